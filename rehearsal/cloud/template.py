"""CloudFormation templates: reading, parameters, conditions, intrinsic functions, order of creation.

Source: the AWS CloudFormation user guide, "Intrinsic function reference" and "Template anatomy". Strict on purpose:
what cannot be resolved is an error, never an empty value.
"""

from __future__ import annotations

import base64
import graphlib
import hashlib
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import yaml

from rehearsal.cloud_errors import ResourceFailed, TemplateInvalid

_NO_VALUE = object()
_SUB = re.compile(r"\$\{(!?)([^}]+)\}")
_DYNAMIC = "{{resolve:"
_OUTPUT_KEYS = ("StackName", "OutputName")
_TEMPLATE_LIMIT_BYTES = 1_000_000  # CloudFormation's limit for a template in S3
#: Made last among what is ready: resources that others need without a reference to them.
_LATE_TYPES = frozenset(
    {
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::Route",
        "AWS::EC2::VPCGatewayAttachment",
        "AWS::IAM::ManagedPolicy",
        "AWS::IAM::Policy",
        "AWS::Lambda::Permission",
        "AWS::Logs::LogGroup",
        "AWS::Logs::ResourcePolicy",
        "AWS::S3::BucketPolicy",
        "AWS::SNS::TopicPolicy",
        "AWS::SQS::QueuePolicy",
    }
)


class _TemplateLoader(yaml.SafeLoader):
    """YAML with CloudFormation's short tags."""


def _short_tag(loader: _TemplateLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
        if suffix == "GetAtt":
            value = str(value).split(".", 1)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    elif isinstance(node, yaml.MappingNode):
        value = loader.construct_mapping(node, deep=True)
    else:
        raise TemplateInvalid(f"Template format error: unsupported node for !{suffix}")
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_TemplateLoader.add_multi_constructor("!", _short_tag)


def parse(text: str) -> dict[str, Any]:
    """Read a JSON or YAML template; raises TemplateInvalid as CloudFormation words it."""
    if len(text.encode()) > _TEMPLATE_LIMIT_BYTES:
        raise TemplateInvalid(f"Template may not exceed {_TEMPLATE_LIMIT_BYTES} bytes in size.")
    try:
        document = json.loads(text) if text.lstrip().startswith("{") else yaml.load(text, Loader=_TemplateLoader)  # noqa: S506 (a SafeLoader subclass)
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        raise TemplateInvalid(f"Template format error: not well-formed. {error}") from None
    if not isinstance(document, dict) or not document.get("Resources"):
        raise TemplateInvalid("Template format error: At least one Resources member must be defined.")
    return document


def walk_references(node: Any) -> Iterator[str]:
    """Every logical id or parameter that a part of a template refers to (Ref, Fn::GetAtt, Fn::Sub)."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "Ref" and isinstance(value, str):
                yield value
            elif key == "Fn::GetAtt":
                yield str(value[0] if isinstance(value, list) else str(value).split(".", 1)[0])
            elif key == "Fn::Sub":
                yield from _sub_references(value)
            else:
                yield from walk_references(value)
    elif isinstance(node, list):
        for item in node:
            yield from walk_references(item)


def functions(node: Any, name: str) -> Iterator[Any]:
    """The arguments of each use of an intrinsic function in a part of a template."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if key == name:
            yield value
        else:
            yield from functions(value, name)


def _sub_references(value: Any) -> Iterator[str]:
    text, local = (value[0], value[1]) if isinstance(value, list) else (value, {})
    yield from walk_references(local)
    for literal, name in _SUB.findall(text):
        if not literal and name not in local:
            yield name.split(".", 1)[0]


def dependencies(resource: Mapping[str, Any], logical_ids: Mapping[str, Any]) -> set[str]:
    """Logical ids that must exist before this resource."""
    wanted = resource.get("DependsOn", [])
    explicit = {wanted} if isinstance(wanted, str) else set(wanted)
    implicit = set(walk_references(resource.get("Properties", {})))
    return {name for name in explicit | implicit if name in logical_ids}


def creation_order(resources: Mapping[str, Any], seed: str = "") -> list[str]:
    """Logical ids in the worst order that their references allow. Raises TemplateInvalid for a circle."""
    needs = {name: dependencies(body, resources) for name, body in resources.items()}
    return worst_order(needs, {name: str(body.get("Type")) for name, body in resources.items()}, seed)


def worst_order(needs: Mapping[str, Set[str]], types: Mapping[str, str], seed: str) -> list[str]:
    """Names, each after those that it needs, in the worst order. Raises TemplateInvalid for a circle.

    CloudFormation works on resources side by side when no reference or DependsOn orders them, so any order can happen.
    The worst one has `_LATE_TYPES` only when nothing else is ready, and those that nothing depends on last of all;
    `seed` shuffles the rest.
    """
    sorter = graphlib.TopologicalSorter(needs)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        circle = ", ".join(sorted(set(error.args[1])))
        raise TemplateInvalid(f"Circular dependency between resources: [{circle}]") from None

    needed = set[str]().union(*needs.values())

    def rank(name: str) -> tuple[bool, bool, str]:
        is_late = types[name] in _LATE_TYPES
        return is_late, is_late and name not in needed, hashlib.sha256(f"{seed}{name}".encode()).hexdigest()

    order: list[str] = []
    ready: list[str] = []
    while sorter.is_active():
        ready.extend(sorter.get_ready())
        following = min(ready, key=rank)
        ready.remove(following)
        order.append(following)
        sorter.done(following)
    return order


def check_references(document: Mapping[str, Any]) -> None:
    """Raise TemplateInvalid for a reference to nothing, as CloudFormation does before it creates anything."""
    known = set(document["Resources"]) | set(document.get("Parameters", {}))
    for section in ("Resources", "Outputs"):
        for body in document.get(section, {}).values():
            part = {**body.get("Properties", {}), "Value": body.get("Value")} if isinstance(body, dict) else {}
            missing = {name for name in walk_references(part) if name not in known and not name.startswith("AWS::")}
            if missing:
                raise TemplateInvalid(
                    f"Template format error: Unresolved resource dependencies [{', '.join(sorted(missing))}]"
                    f" in the {section} block of the template"
                )


def resolve_parameters(
    document: Mapping[str, Any], given: Mapping[str, str], read_ssm: Callable[[str], str]
) -> dict[str, Any]:
    """Values of a template's parameters: given ones, else defaults; SSM types are looked up with `read_ssm`."""
    declared = document.get("Parameters", {})
    unknown = sorted(set(given) - set(declared))
    if unknown:
        raise TemplateInvalid(f"Parameters: [{', '.join(unknown)}] do not exist in the template")
    missing = sorted(name for name, body in declared.items() if name not in given and "Default" not in body)
    if missing:
        raise TemplateInvalid(f"Parameters: [{', '.join(missing)}] must have values")
    return {
        name: _parameter(name, body, given.get(name, body.get("Default")), read_ssm) for name, body in declared.items()
    }


def _parameter(name: str, body: Mapping[str, Any], value: Any, read_ssm: Callable[[str], str]) -> Any:
    kind = str(body.get("Type", "String"))
    text = str(value)
    allowed = body.get("AllowedValues")
    if allowed and text not in {str(item) for item in allowed}:
        raise TemplateInvalid(f"Parameter '{name}' must be one of AllowedValues")
    pattern = body.get("AllowedPattern")
    if pattern and not re.fullmatch(pattern, text):
        raise TemplateInvalid(f"Parameter '{name}' must match pattern {pattern}")
    if kind.startswith("AWS::SSM::Parameter::Value"):
        text = read_ssm(text)
    if "List" in kind:
        return [item.strip() for item in text.split(",")] if text else []
    return text


class Resolver:
    """Resolves intrinsic functions of one stack.

    `references` maps names to values of Ref (parameters, pseudo parameters, physical ids); `attribute` answers
    Fn::GetAtt, `imported` Fn::ImportValue and `stack_output` Fn::GetStackOutput (without another region or role). Each
    raises ResourceFailed for what does not exist.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        references: Mapping[str, Any],
        attribute: Callable[[str, str], Any],
        imported: Callable[[str], Any],
        stack_output: Callable[[str, str], str],
        zones: Callable[[str], list[str]],
    ) -> None:
        self._mappings = document.get("Mappings", {})
        self._conditions = document.get("Conditions", {})
        self._references = references
        self._attribute = attribute
        self._imported = imported
        self._stack_output = stack_output
        self._zones = zones
        self._functions: dict[str, Callable[[Any], Any]] = {
            "Ref": self._ref,
            "Condition": self.condition,
            "Fn::GetAtt": self._get_att,
            "Fn::Sub": self._sub,
            "Fn::Join": lambda v: str(v[0]).join(_text(item) for item in self._list(v[1])),
            "Fn::Split": lambda v: str(self.resolve(v[1])).split(v[0]),
            "Fn::Select": lambda v: self._select(self.resolve(v[0]), self._list(v[1])),
            "Fn::If": lambda v: self._resolve(v[1] if self.condition(v[0]) else v[2]),
            "Fn::FindInMap": self._find_in_map,
            "Fn::ImportValue": lambda v: self._imported(str(self.resolve(v))),
            "Fn::GetStackOutput": lambda v: self._stack_output(*(str(self.resolve(v[key])) for key in _OUTPUT_KEYS)),
            "Fn::GetAZs": lambda v: self._zones(str(self.resolve(v))),
            "Fn::Base64": lambda v: base64.b64encode(str(self.resolve(v)).encode()).decode(),
            "Fn::ToJsonString": lambda v: json.dumps(self.resolve(v)),
            "Fn::Length": lambda v: len(self._list(v)),
            "Fn::Cidr": lambda v: self._cidr(*(self.resolve(item) for item in v)),
            "Fn::Equals": lambda v: _text(self.resolve(v[0])) == _text(self.resolve(v[1])),
            "Fn::Not": lambda v: not self._truth(v[0]),
            "Fn::And": lambda v: all(self._truth(item) for item in v),
            "Fn::Or": lambda v: any(self._truth(item) for item in v),
        }

    def resolve(self, node: Any) -> Any:
        """The node with every function replaced by its value; keys of AWS::NoValue are left out."""
        value = self._resolve(node)
        return None if value is _NO_VALUE else value

    def condition(self, name: str) -> bool:
        """Truth of a condition of the template."""
        if name not in self._conditions:
            raise TemplateInvalid(f"Template error: unresolved condition dependency {name}")
        return self._truth(self._conditions[name])

    def _truth(self, node: Any) -> bool:
        value = self.resolve(node)
        return value if isinstance(value, bool) else str(value).lower() == "true"

    def _resolve(self, node: Any) -> Any:
        if isinstance(node, dict):
            return self._resolve_dict(node)
        if isinstance(node, list):
            return [value for value in map(self._resolve, node) if value is not _NO_VALUE]
        if isinstance(node, str) and _DYNAMIC in node:
            raise ResourceFailed(f"dynamic reference {node!r} is not emulated by the rehearsal's cloud")
        return node

    def _resolve_dict(self, node: dict[str, Any]) -> Any:
        if len(node) == 1:
            (name, argument), *_ = node.items()
            if name in self._functions and (name != "Condition" or isinstance(argument, str)):
                return self._functions[name](argument)
            if name.startswith("Fn::"):
                raise ResourceFailed(f"intrinsic function {name} is not emulated by the rehearsal's cloud")
        resolved = {key: self._resolve(value) for key, value in node.items()}
        return {key: value for key, value in resolved.items() if value is not _NO_VALUE}

    def _list(self, node: Any) -> list[Any]:
        value = self.resolve(node)
        if not isinstance(value, list):
            raise ResourceFailed(f"Template error: a list is needed, got {value!r}")
        return value

    @staticmethod
    def _select(index: Any, items: list[Any]) -> Any:
        try:
            return items[int(index)]
        except IndexError:
            raise ResourceFailed(
                f"Template error: Fn::Select cannot select nonexistent value at index {index}"
            ) from None

    def _ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return _NO_VALUE
        if name not in self._references:
            raise ResourceFailed(f"Template error: Ref {name} names nothing that exists")
        return self._references[name]

    def _get_att(self, argument: Any) -> Any:
        logical_id, attribute = argument if isinstance(argument, list) else str(argument).split(".", 1)
        return self._attribute(logical_id, str(self.resolve(attribute)))

    def _sub(self, argument: Any) -> str:
        text, extra = (argument[0], argument[1]) if isinstance(argument, list) else (argument, {})
        local = {key: _text(self.resolve(value)) for key, value in extra.items()}

        def value_of(match: re.Match[str]) -> str:
            literal, name = match.groups()
            if literal:
                return "${" + name + "}"
            if name in local:
                return local[name]
            return _text(self._get_att(name) if "." in name else self._ref(name))

        return _SUB.sub(value_of, text)

    def _find_in_map(self, argument: list[Any]) -> Any:
        name, first, second = (self.resolve(item) for item in argument[:3])
        try:
            return self._mappings[name][str(first)][str(second)]
        except KeyError:
            raise TemplateInvalid(f"Template error: Unable to get mapping for {name}::{first}::{second}") from None

    @staticmethod
    def _cidr(block: str, count: Any, bits: Any = 8) -> list[str]:
        subnets = ipaddress.ip_network(block).subnets(new_prefix=32 - int(bits))
        return [str(subnet) for subnet, _ in zip(subnets, range(int(count)), strict=False)]


def _text(value: Any) -> str:
    """A scalar as CloudFormation writes it into text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def stringify(node: Any) -> Any:
    """Scalars as strings: the form in which CloudFormation sends properties to a custom resource."""
    if isinstance(node, dict):
        return {key: stringify(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [stringify(value) for value in node]
    return node if node is None else _text(node)
