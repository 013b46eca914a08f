"""IAM's evaluation of policies, as a table: the IAM user guide's rules in the small."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from rehearsal.permissions.evaluator import Principal, Request, evaluate, holds, is_about, like, statements

ROLE = "arn:aws:iam::123456789012:role/node"
SESSION = "arn:aws:sts::123456789012:assumed-role/node/i-1"
NODE = Principal(SESSION, ROLE, "123456789012")
OBJECT = "arn:aws:s3:::data/a/b"


def allow(action: Any = "s3:GetObject", resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def deny(action: Any = "s3:GetObject", resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {**allow(action, resource, **more), "Effect": "Deny"}


def of(*bodies: dict[str, Any]) -> Any:
    return statements("policy", json.dumps({"Statement": list(bodies)}))


ALLOWED = ""
NO_IDENTITY = "because no identity-based policy allows the s3:GetObject action"


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        ([], NO_IDENTITY),
        ([allow()], ALLOWED),
        ([allow("s3:Get*")], ALLOWED),
        ([allow("S3:getobject")], ALLOWED),
        ([allow("*")], ALLOWED),
        ([allow("s3:?etObject")], ALLOWED),
        ([allow("s3:[GP]etObject")], NO_IDENTITY),
        ([allow(["ec2:*", "s3:GetObject"])], ALLOWED),
        ([allow(resource="arn:aws:s3:::data/*")], ALLOWED),
        ([allow(resource="arn:aws:s3:::data")], NO_IDENTITY),
        ([allow(resource="arn:aws:s3:::DATA/*")], NO_IDENTITY),
        ([allow(resource=["arn:aws:s3:::other/*", OBJECT])], ALLOWED),
        ([{"Effect": "Allow", "NotAction": "s3:Put*", "Resource": "*"}], ALLOWED),
        ([{"Effect": "Allow", "NotAction": "s3:*", "Resource": "*"}], NO_IDENTITY),
        ([{"Effect": "Allow", "Action": "*", "NotResource": "arn:aws:s3:::data/*"}], NO_IDENTITY),
        ([{"Effect": "Allow", "Action": "*", "NotResource": "arn:aws:s3:::other/*"}], ALLOWED),
        ([allow(), deny()], "with an explicit deny in an identity-based policy"),
        ([deny(), allow()], "with an explicit deny in an identity-based policy"),
        ([allow(), deny("s3:Put*")], ALLOWED),
        ([allow(), {"Effect": "Deny", "NotAction": "s3:GetObject", "Resource": "*"}], ALLOWED),
        ([allow(), deny(Condition={"Bool": {"aws:SecureTransport": "false"}})], ALLOWED),
        ([allow(resource="arn:aws:s3:::data/${aws:PrincipalTag/team}/*")], NO_IDENTITY),
        ([allow(resource="arn:aws:s3:::${s3:bucket}/*")], ALLOWED),
        ([allow(resource="arn:aws:s3:::${no:key, 'data'}/*")], ALLOWED),
        ([allow(resource="arn:aws:s3:::data/${*}")], NO_IDENTITY),
    ],
)
def test_identity_policies(identity: list[dict[str, Any]], expected: str) -> None:
    context = {"aws:securetransport": ("true",), "s3:bucket": ("data",)}
    decision = evaluate(Request("s3:GetObject", OBJECT, context), NODE, of(*identity))
    assert (decision.allowed, decision.why) == (not expected, expected)


@pytest.mark.parametrize(
    ("identity", "boundary", "expected"),
    [
        ([allow()], [allow("s3:*")], ALLOWED),
        ([allow()], [allow("ec2:*")], "because no permissions boundary allows the s3:GetObject action"),
        ([], [allow()], NO_IDENTITY),
        ([allow()], [allow(), deny()], "with an explicit deny in a permissions boundary"),
        ([allow()], [], "because no permissions boundary allows the s3:GetObject action"),
    ],
)
def test_boundaries(identity: list[dict[str, Any]], boundary: list[dict[str, Any]], expected: str) -> None:
    decision = evaluate(Request("s3:GetObject", OBJECT), NODE, of(*identity), boundary=of(*boundary))
    assert (decision.allowed, decision.why) == (not expected, expected)


def to(principal: Any, effect: str = "Allow", **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": "s3:*", "Resource": "*", "Principal": principal, **more}


@pytest.mark.parametrize(
    ("identity", "resource", "expected"),
    [
        ([], [to("*")], ALLOWED),
        ([], [to({"AWS": "*"})], ALLOWED),
        ([], [to({"AWS": [ROLE]})], ALLOWED),
        ([], [to({"AWS": SESSION})], ALLOWED),
        ([], [to({"AWS": "123456789012"})], NO_IDENTITY),  # the account decides by its own policies
        ([allow()], [to({"AWS": "arn:aws:iam::123456789012:root"})], ALLOWED),
        ([], [to({"AWS": "arn:aws:iam::123456789012:role/other"})], NO_IDENTITY),
        ([], [to({"Service": "fsx.amazonaws.com"})], NO_IDENTITY),
        ([allow()], [to("*", "Deny")], "with an explicit deny in a resource-based policy"),
        ([allow()], [to({"AWS": "arn:aws:iam::123456789012:role/other"}, "Deny")], ALLOWED),
        ([allow()], [{"Effect": "Deny", "Action": "*", "Resource": "*", "NotPrincipal": {"AWS": ROLE}}], ALLOWED),
        (
            [allow()],
            [{"Effect": "Deny", "Action": "*", "Resource": "*", "NotPrincipal": {"AWS": f"{ROLE}s"}}],
            "with an explicit deny in a resource-based policy",
        ),
        ([allow()], [to("*", "Deny", Condition={"Bool": {"aws:SecureTransport": "false"}})], ALLOWED),
    ],
)
def test_resource_policies(identity: list[dict[str, Any]], resource: list[dict[str, Any]], expected: str) -> None:
    request = Request("s3:GetObject", OBJECT, {"aws:securetransport": ("true",)})
    decision = evaluate(request, NODE, of(*identity), resource=of(*resource))
    assert (decision.allowed, decision.why) == (not expected, expected)


def test_a_boundary_limits_what_a_resource_policy_allows() -> None:
    decision = evaluate(Request("s3:GetObject", OBJECT), NODE, (), boundary=of(allow("ec2:*")), resource=of(to("*")))
    assert not decision.allowed


def test_a_key_needs_its_own_policy() -> None:
    request, identity = Request("kms:Decrypt", "arn:aws:kms:us-east-1:123456789012:key/k"), of(allow("kms:*"))
    root = to({"AWS": "arn:aws:iam::123456789012:root"}) | {"Action": "kms:*"}
    assert evaluate(request, NODE, identity, resource=of(root), needs_resource_policy=True).allowed
    refused = evaluate(request, NODE, identity, resource=of(to({"AWS": "999999999999"})), needs_resource_policy=True)
    assert refused.why == "because no resource-based policy allows the kms:Decrypt action"


CONTEXT: Mapping[str, tuple[str, ...]] = {
    "aws:requestedregion": ("us-east-1",),
    "aws:securetransport": ("true",),
    "aws:sourceip": ("10.1.2.3",),
    "aws:currenttime": ("2026-11-28T12:00:00Z",),
    "aws:tagkeys": ("project", "team"),
    "s3:max-keys": ("10",),
    "iam:policyarn": ("arn:aws:iam::123456789012:policy/parallelcluster/ml/x",),
}


@pytest.mark.parametrize(
    ("operator", "key", "wanted", "expected"),
    [
        ("StringEquals", "aws:RequestedRegion", "us-east-1", True),
        ("StringEquals", "AWS:requestedregion", ["eu-north-1", "us-east-1"], True),
        ("StringEquals", "aws:RequestedRegion", "US-EAST-1", False),
        ("StringEqualsIgnoreCase", "aws:RequestedRegion", "US-EAST-1", True),
        ("StringNotEquals", "aws:RequestedRegion", ["eu-north-1", "us-east-1"], False),
        ("StringNotEqualsIgnoreCase", "aws:RequestedRegion", "eu-north-1", True),
        ("StringLike", "aws:RequestedRegion", "us-*", True),
        ("StringNotLike", "aws:RequestedRegion", "us-*", False),
        ("StringEquals", "no:key", "x", False),
        ("StringNotEquals", "no:key", "x", True),
        ("StringEqualsIfExists", "no:key", "x", True),
        ("StringEqualsIfExists", "aws:RequestedRegion", "x", False),
        ("ArnLike", "iam:PolicyARN", "arn:aws:iam::*:policy/parallelcluster*", True),
        ("ArnLike", "iam:PolicyARN", "arn:aws:*", False),  # a wildcard does not reach over a colon
        ("ArnEquals", "iam:PolicyARN", "arn:aws:iam::123456789012:policy/*", True),
        ("ArnNotLike", "iam:PolicyARN", "arn:aws:iam::aws:policy/*", True),
        ("Bool", "aws:SecureTransport", "true", True),
        ("Bool", "aws:SecureTransport", False, False),
        ("BoolIfExists", "aws:MultiFactorAuthPresent", "false", True),
        ("NumericLessThan", "s3:max-keys", "11", True),
        ("NumericLessThanEquals", "s3:max-keys", 9, False),
        ("NumericGreaterThanEquals", "s3:max-keys", "10", True),
        ("NumericNotEquals", "s3:max-keys", "10", False),
        ("DateGreaterThan", "aws:CurrentTime", "2026-01-01T00:00:00Z", True),
        ("DateLessThan", "aws:CurrentTime", "1700000000", False),
        ("IpAddress", "aws:SourceIp", "10.0.0.0/8", True),
        ("NotIpAddress", "aws:SourceIp", ["10.0.0.0/8", "2001:db8::/32"], False),
        ("IpAddress", "aws:RequestedRegion", "10.0.0.0/8", False),
        ("Null", "no:key", "true", True),
        ("Null", "aws:SourceIp", "true", False),
        ("Null", "aws:SourceIp", False, True),
        ("ForAnyValue:StringEquals", "aws:TagKeys", ["team", "x"], True),
        ("ForAnyValue:StringEquals", "aws:TagKeys", "x", False),
        ("ForAnyValue:StringEquals", "no:key", "x", False),
        ("ForAnyValue:StringEqualsIfExists", "no:key", "x", True),
        ("ForAnyValue:StringNotEquals", "aws:TagKeys", "team", True),
        ("ForAllValues:StringEquals", "aws:TagKeys", ["team", "project", "x"], True),
        ("ForAllValues:StringEquals", "aws:TagKeys", ["team"], False),
        ("ForAllValues:StringEquals", "no:key", "x", True),
        ("ForAllValues:StringNotLike", "aws:TagKeys", "aws:*", True),
        ("StringEquals", "aws:RequestedRegion", "${aws:RequestedRegion}", True),
        ("BinaryEquals", "no:key", "QQ==", False),
    ],
)
def test_conditions(operator: str, key: str, wanted: Any, expected: bool) -> None:
    assert holds({"Condition": {operator: {key: wanted}}}, CONTEXT) is expected


def test_all_conditions_have_to_hold() -> None:
    both = {"StringEquals": {"aws:RequestedRegion": "us-east-1"}, "Bool": {"aws:SecureTransport": "false"}}
    assert not holds({"Condition": both}, CONTEXT)


def test_an_operator_that_iam_has_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="StringSounds"):
        holds({"Condition": {"StringSounds": {"aws:SourceIp": "x"}}}, CONTEXT)


def test_the_deciding_statements_are_named() -> None:
    decision = evaluate(Request("s3:GetObject", OBJECT), NODE, of(allow("ec2:*"), allow(Sid="Read"), allow("s3:*")))
    assert [item.name for item in decision.by] == ["policy[Read]", "policy[2]"]


@pytest.mark.parametrize(("pattern", "text"), [("a.c", "abc"), ("a", "ab"), ("a?", "a"), ("*\\", "x")])
def test_what_is_no_wildcard(pattern: str, text: str) -> None:
    assert not like(pattern, text)


def test_a_statement_without_an_action_is_about_nothing() -> None:
    assert not is_about({"Effect": "Allow", "Resource": "*"}, Request("s3:GetObject"))
