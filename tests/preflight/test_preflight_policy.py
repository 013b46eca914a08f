"""Resource policies, as far as they are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipway.preflight.policy import condition_keys, covers_action, covers_resource, principals, statements

ACTIONS = ("s3:GetObject", "s3:PutObject")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ({"Action": "*"}, list(ACTIONS)),
        ({"Action": "s3:Get*"}, ["s3:GetObject"]),
        ({"Action": ["S3:putobject"]}, ["s3:PutObject"]),
        ({"NotAction": ["s3:Get*"]}, ["s3:PutObject"]),
        ({"Action": "s3:[GP]*"}, []),  # brackets are no wildcard in a policy
        ({"Action": "s3:?etObject"}, ["s3:GetObject"]),
        ({}, []),
    ],
)
def test_actions(statement: dict[str, Any], expected: list[str]) -> None:
    assert covers_action(statement, ACTIONS) == expected


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("*", True),
        ("arn:aws:s3:::data", True),
        ("arn:aws:s3:::data/*", True),
        ("arn:aws:s3:::data/secret/*", True),  # a part of what is asked about
        ("arn:aws:s3:::other/*", False),
        (["arn:aws:s3:::other", "arn:aws:s3:::da*"], True),
    ],
)
def test_resources(resource: Any, expected: bool) -> None:
    assert covers_resource({"Resource": resource}, ("arn:aws:s3:::data", "arn:aws:s3:::data/*")) is expected


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        ("*", ["*"]),
        ({"AWS": "*"}, ["*"]),
        ({"AWS": ["1", "2"]}, ["1", "2"]),
        ({"Service": "fsx.amazonaws.com"}, []),
        (None, []),
    ],
)
def test_principals(principal: Any, expected: list[str]) -> None:
    assert principals({"Principal": principal}) == expected


def test_statements_and_conditions() -> None:
    one = {"Condition": {"Bool": {"aws:SecureTransport": "false"}, "StringLike": {"aws:PrincipalArn": "*"}}}
    assert list(statements(json.dumps({"Statement": one}))) == [one]
    assert list(statements(json.dumps({"Statement": [one, {}]}))) == [one, {}]
    assert condition_keys(one) == {"aws:securetransport", "aws:principalarn"}
    assert condition_keys({}) == set()
