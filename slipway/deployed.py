"""The facts of a deployed cluster, read from its CloudFormation stacks: what the cluster stack gave ParallelCluster.

The deployed template of ``NAME-cluster`` holds the whole cluster configuration; its references are resolved with the
outputs of the stacks and the resources of the cluster stack. Permissions: cloudformation:DescribeStacks,
ListStackResources, GetTemplate.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from slipway.aws.calls import Aws, Refused, Unasked
from slipway.aws.session import session_of
from slipway.cluster_config import ClusterFacts
from slipway.errors import EnvironmentFault, SlipwayError
from slipway.settings import Settings

PARTS = ("network", "storage", "observability", "cluster")
STANDING = (
    "CREATE_COMPLETE",
    "UPDATE_COMPLETE",
    "UPDATE_ROLLBACK_COMPLETE",
    "IMPORT_COMPLETE",
    "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS",
)
CLUSTER_TYPE = "Custom::PclusterCluster"
VARIABLE = re.compile(r"\$\{([^!}][^}]*)\}")
ARN = re.compile(r"arn:([^:]+):[^:]*:([^:]*):([^:]*):")
URL_SUFFIXES = {"aws-cn": "amazonaws.com.cn"}  # all other partitions that Slipway knows: amazonaws.com


@dataclasses.dataclass(frozen=True)
class Deployment:
    """``configuration`` as ParallelCluster got it, ``facts`` from it, and the outputs of each stack by its part.

    There are none of ``network`` when all of it existed already: the CDK CLI deploys no stack without resources.
    """

    configuration: dict[str, Any]
    facts: ClusterFacts
    outputs: dict[str, dict[str, str]]


def read_deployment(settings: Settings, session: Any = None) -> Deployment:
    """The deployed cluster of ``settings``, asked through a boto3 ``session``.

    Raises SlipwayError when a stack is missing or not complete, EnvironmentFault when AWS does not answer.
    """
    aws = _aws(settings, session)
    stacks = _stacks(aws, settings)
    name = stacks["cluster"]["StackName"]
    template = aws.start("cloudformation", "get_template", StackName=name)
    resources = aws.start("cloudformation", "list_stack_resources", StackName=name)
    body = _answer(template.result)["TemplateBody"]
    listed = _answer(resources.result)["StackResourceSummaries"]
    ids = {one["LogicalResourceId"]: one.get("PhysicalResourceId", "") for one in listed}
    exports = {
        one["ExportName"]: one["OutputValue"]
        for stack in stacks.values()
        for one in stack.get("Outputs", [])
        if "ExportName" in one
    }
    resolve = _Resolver(ids, exports, stacks["cluster"]["StackId"], name)
    raw = _cluster_configuration(body, name)
    configuration = resolve(raw)
    facts = _facts(raw, configuration, name)
    return Deployment(configuration, facts, {part: _outputs(stack) for part, stack in stacks.items()})


def _aws(settings: Settings, session: Any) -> Aws:
    return Aws(session or session_of(None), settings.region)


def _answer(result: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return result()
    except Unasked as error:
        raise EnvironmentFault(
            f"AWS did not say what is deployed: {error.text}. Hint: aws sts get-caller-identity"
        ) from None
    except Refused as error:
        raise EnvironmentFault(f"AWS did not say what is deployed: {error}") from None


def _stacks(aws: Aws, settings: Settings) -> dict[str, dict[str, Any]]:
    """Each part's stack, all complete; every one that is not is named at once."""
    pending = {
        part: aws.start("cloudformation", "describe_stacks", StackName=f"{settings.name}-{part}") for part in PARTS
    }
    stacks, problems = {}, []
    for part, call in pending.items():
        name = f"{settings.name}-{part}"
        try:
            stack = call.result()["Stacks"][0]
        except Refused as error:
            if "does not exist" not in error.message:
                raise EnvironmentFault(f"AWS did not say what is deployed: {error}") from None
            if part != "network" or _makes_network(settings):
                problems.append(f"stack {name} does not exist in {settings.region}")
        except Unasked as error:
            raise EnvironmentFault(
                f"AWS did not say what is deployed: {error.text}. Hint: aws sts get-caller-identity"
            ) from None
        else:
            stacks[part] = stack
            if stack["StackStatus"] not in STANDING:
                problems.append(f"stack {name} is {stack['StackStatus']}")
    if problems:
        raise SlipwayError(f"{settings.name} is not deployed: {'; '.join(problems)}. Hint: {_hint(settings, stacks)}")
    return stacks


def _makes_network(settings: Settings) -> bool:
    """Whether the network stack has a resource: a VPC, or at least the nodes' security group."""
    return settings.network.is_new or settings.network.security_group_id is None


def _hint(settings: Settings, stacks: Mapping[str, Any]) -> str:
    elsewhere = {os.environ.get(key) for key in ("AWS_REGION", "AWS_DEFAULT_REGION")} - {None, settings.region}
    if not stacks and elsewhere:
        return (
            f"the settings say {settings.region}, your shell says {', '.join(sorted(map(str, elsewhere)))}: which one?"
        )
    return "cdk deploy first, or leave --deployed out"


def _outputs(stack: Mapping[str, Any]) -> dict[str, str]:
    return {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}


def _cluster_configuration(body: Any, name: str) -> Any:
    try:
        template = json.loads(body) if isinstance(body, str) else body
        resources = template["Resources"].values()
        return next(one for one in resources if one["Type"] == CLUSTER_TYPE)["Properties"]["ClusterConfiguration"]
    except (ValueError, KeyError, TypeError, StopIteration):
        raise SlipwayError(f"stack {name} holds no {CLUSTER_TYPE}: it is not Slipway's. Hint: another name?") from None


class _Resolver:
    """CloudFormation's functions, as far as the cluster stack uses them in the cluster's configuration."""

    def __init__(self, ids: Mapping[str, str], exports: Mapping[str, str], stack_id: str, name: str) -> None:
        match = ARN.match(stack_id)
        partition, region, account = match.groups() if match else ("aws", "", "")
        pseudo = {"AWS::Partition": partition, "AWS::Region": region, "AWS::AccountId": account, "AWS::StackName": name}
        pseudo |= {"AWS::StackId": stack_id, "AWS::URLSuffix": URL_SUFFIXES.get(partition, "amazonaws.com")}
        self._refs = {**ids, **pseudo}
        self._exports = exports
        self._name = name

    def __call__(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self(item) for item in node]
        if not isinstance(node, Mapping):
            return node
        if len(node) == 1:
            function, argument = next(iter(node.items()))
            if function == "Ref":
                return self._ref(argument)
            if function == "Fn::ImportValue":
                return self._import(self(argument))
            if function == "Fn::Join":
                return argument[0].join(str(self(part)) for part in argument[1])
            if function == "Fn::Sub" and isinstance(argument, str):
                return VARIABLE.sub(lambda match: str(self._ref(match[1])), argument).replace("${!", "${")
            if function.startswith("Fn::"):
                raise SlipwayError(f"stack {self._name}: {function} in the cluster's configuration cannot be read")
        return {key: self(value) for key, value in node.items()}

    def _ref(self, name: str) -> str:
        if name not in self._refs:
            raise SlipwayError(f"stack {self._name} has no resource {name}. Hint: cdk deploy again")
        return self._refs[name]

    def _import(self, name: str) -> str:
        if name not in self._exports:
            raise SlipwayError(f"no stack of the cluster exports {name}. Hint: cdk deploy again")
        return self._exports[name]


def _facts(raw: Any, configuration: Any, name: str) -> ClusterFacts:
    """The facts that this configuration was made with: ``cluster_configuration`` read backwards."""
    try:
        head, queue = configuration["HeadNode"], configuration["Scheduling"]["SlurmQueues"][0]
        own = head["CustomActions"]["OnNodeUpdated"]
        _, _, _, bundle_sha256, *node_arguments = own["Args"]
        lustre = next(one for one in configuration["SharedStorage"] if one["MountDir"] == "/fsx")
        return ClusterFacts(
            head_node_subnet_id=head["Networking"]["SubnetId"],
            compute_subnet_id=queue["Networking"]["SubnetIds"][0],
            node_security_group_id=queue["Networking"]["AdditionalSecurityGroups"][0],
            file_system_id=lustre["FsxLustreSettings"]["FileSystemId"],
            script_url=own["Script"],
            bundle_sha256=bundle_sha256,
            node_arguments=tuple(node_arguments),
            head_node_policy_arns=_stack_policies(raw["HeadNode"], head),
            compute_policy_arns=_stack_policies(raw["Scheduling"]["SlurmQueues"][0], queue),
        )
    except (KeyError, IndexError, TypeError, ValueError, StopIteration):
        raise SlipwayError(
            f"stack {name}: its cluster was made by another release of Slipway. Hint: cdk deploy again"
        ) from None


def _stack_policies(raw: Any, resolved: Any) -> tuple[str, ...]:
    """Those that the stack gave are references in its template; the settings' own are plain text there."""
    pairs = zip(raw["Iam"]["AdditionalIamPolicies"], resolved["Iam"]["AdditionalIamPolicies"], strict=True)
    return tuple(after["Policy"] for before, after in pairs if not isinstance(before["Policy"], str))
