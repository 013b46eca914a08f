"""Templates: order, references, parameters, intrinsic functions."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.cloud import template
from rehearsal.cloud_errors import ResourceFailed, TemplateInvalid


def resolver(references: dict[str, Any] | None = None, **sections: Any) -> template.Resolver:
    def attribute(logical_id: str, name: str) -> Any:
        if (logical_id, name) != ("Bucket", "Arn"):
            raise ResourceFailed(f"no attribute {logical_id}.{name}")
        return "arn:aws:s3:::b"

    return template.Resolver(
        sections,
        {"AWS::Region": "us-east-1", "Name": "ml", "List": ["a", "b"], **(references or {})},
        attribute,
        {"exported": "value"}.__getitem__,
        lambda stack, output: f"{output} of {stack}",
        lambda region: [f"{region}a", f"{region}b"],
    )


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"Ref": "Name"}, "ml"),
        ({"Fn::GetAtt": ["Bucket", "Arn"]}, "arn:aws:s3:::b"),
        ({"Fn::GetAtt": "Bucket.Arn"}, "arn:aws:s3:::b"),
        ({"Fn::Sub": "${Name}-${AWS::Region}-${Bucket.Arn}-${!Literal}"}, "ml-us-east-1-arn:aws:s3:::b-${Literal}"),
        ({"Fn::Sub": ["${x}-${Name}", {"x": {"Ref": "AWS::Region"}}]}, "us-east-1-ml"),
        ({"Fn::Join": ["/", ["a", {"Ref": "Name"}, 3, True]]}, "a/ml/3/true"),
        ({"Fn::Select": ["1", {"Ref": "List"}]}, "b"),
        ({"Fn::Select": [0, {"Fn::Split": [",", "x,y"]}]}, "x"),
        ({"Fn::If": ["IsMl", "yes", "no"]}, "yes"),
        ({"Fn::FindInMap": ["Map", {"Ref": "Name"}, "k"]}, "v"),
        ({"Fn::ImportValue": "exported"}, "value"),
        ({"Fn::GetStackOutput": {"StackName": "ml-storage", "OutputName": "Bucket"}}, "Bucket of ml-storage"),
        ({"Fn::GetAZs": "us-east-1"}, ["us-east-1a", "us-east-1b"]),
        ({"Fn::Base64": "hi"}, "aGk="),
        ({"Fn::Cidr": ["10.0.0.0/16", 2, 8]}, ["10.0.0.0/24", "10.0.1.0/24"]),
        ({"a": {"Ref": "AWS::NoValue"}, "b": 1}, {"b": 1}),
        ([{"Ref": "AWS::NoValue"}, 1], [1]),
    ],
)
def test_functions_resolve(node: Any, expected: Any) -> None:
    made = resolver(Conditions={"IsMl": {"Fn::Equals": [{"Ref": "Name"}, "ml"]}}, Mappings={"Map": {"ml": {"k": "v"}}})
    assert made.resolve(node) == expected


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"Ref": "Nothing"}, "Nothing"),
        ({"Fn::GetAtt": ["Bucket", "Colour"]}, "Bucket.Colour"),
        ({"Fn::Transform": {}}, "Fn::Transform is not emulated"),
        ("{{resolve:secretsmanager:x}}", "dynamic reference"),
        ({"Fn::Select": [7, ["a"]]}, "nonexistent"),
    ],
)
def test_what_cannot_be_resolved_is_an_error(node: Any, words: str) -> None:
    with pytest.raises(ResourceFailed, match=words.replace(".", r"\.")):
        resolver().resolve(node)


def test_conditions() -> None:
    made = resolver(
        Conditions={
            "A": {"Fn::Not": [{"Condition": "B"}]},
            "B": {"Fn::Or": [{"Fn::Equals": ["x", "y"]}, {"Condition": "C"}]},
            "C": {"Fn::And": [{"Fn::Equals": [1, "1"]}, {"Fn::Equals": [True, "true"]}]},
        }
    )
    assert (made.condition("A"), made.condition("B"), made.condition("C")) == (False, True, True)


def test_creation_order_follows_references_and_depends_on() -> None:
    resources = {
        "C": {"Properties": {"x": {"Fn::Sub": "${B.Arn}"}}},
        "B": {"DependsOn": ["A"]},
        "A": {},
    }
    assert template.creation_order(resources) == ["A", "B", "C"]


def test_a_circle_is_named() -> None:
    resources = {"A": {"DependsOn": "B"}, "B": {"Properties": {"x": {"Ref": "A"}}}}
    with pytest.raises(TemplateInvalid, match=r"Circular dependency between resources: \[A, B\]"):
        template.creation_order(resources)


def test_yaml_short_tags() -> None:
    document = template.parse("Resources:\n  A:\n    Type: X\n    Properties: {n: !Sub '${B}', a: !GetAtt B.Arn}\n")
    assert document["Resources"]["A"]["Properties"] == {"n": {"Fn::Sub": "${B}"}, "a": {"Fn::GetAtt": ["B", "Arn"]}}


@pytest.mark.parametrize("text", ["{", "a: [", "{}", "[]", "Resources: {}"])
def test_bad_templates_are_refused(text: str) -> None:
    with pytest.raises(TemplateInvalid):
        template.parse(text)


@pytest.mark.parametrize(
    ("declared", "given", "words"),
    [
        ({"P": {"Type": "String"}}, {}, "must have values"),
        ({}, {"P": "x"}, "do not exist in the template"),
        ({"P": {"Type": "String", "AllowedValues": ["a"]}}, {"P": "b"}, "AllowedValues"),
        ({"P": {"Type": "String", "AllowedPattern": "[a-z]+"}}, {"P": "1"}, "must match pattern"),
    ],
)
def test_bad_parameters_are_refused(declared: dict[str, Any], given: dict[str, str], words: str) -> None:
    with pytest.raises(TemplateInvalid, match=words):
        template.resolve_parameters({"Parameters": declared}, given, str)


def test_parameters_of_systems_manager_are_looked_up() -> None:
    document = {"Parameters": {"V": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/path"}}}
    assert template.resolve_parameters(document, {}, {"/path": "30"}.__getitem__) == {"V": "30"}


def test_custom_resources_get_strings() -> None:
    assert template.stringify({"a": 4, "b": [True, None, 1.5], "c": "x"}) == {
        "a": "4",
        "b": ["true", None, "1.5"],
        "c": "x",
    }
