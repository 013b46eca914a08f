"""Existing security groups: of the VPC, and open to themselves both ways where EFA runs in them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from slipway.aws.calls import Aws, Pending
from slipway.preflight.asking import found, together
from slipway.preflight.model import Answer, Question, fault, ok
from slipway.settings import Settings
from slipway.settings.source import Place

NO_GROUP = ("InvalidGroup.NotFound", "InvalidGroupId.Malformed", "InvalidSecurityGroupID.NotFound")
NODES: Place = ("network", "security_group_id")
ALL_TRAFFIC = "-1"
# rule list of DescribeSecurityGroups -> (its word, the command that adds a rule)
DIRECTIONS = {
    "IpPermissions": ("ingress", "authorize-security-group-ingress"),
    "IpPermissionsEgress": ("egress", "authorize-security-group-egress"),
}


def _named(settings: Settings) -> dict[Place, str]:
    groups: dict[Place, str] = {
        ("head_node", "security_group_ids", index): id for index, id in enumerate(settings.head_node.security_group_ids)
    }
    if settings.network.security_group_id:
        groups = {NODES: settings.network.security_group_id, **groups}
    return groups


def ask_groups(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """Every security group that the settings name."""
    groups = _named(settings)
    pending = {id: aws.start("ec2", "describe_security_groups", GroupIds=[id]) for id in groups.values()}
    yield from together(*(_group(settings, path, id, pending[id]) for path, id in groups.items()))


def _group(settings: Settings, path: Place, id: str, pending: Pending) -> Iterator[Answer]:
    response = found(pending, *NO_GROUP)
    if response is None:
        hint = f"aws ec2 describe-security-groups --region {settings.region} lists those there are"
        yield fault(path, f"{id} does not exist in {settings.region}", hint)
        return
    group = response["SecurityGroups"][0]
    faults = [*_in_vpc(settings, path, group), *_open_to_itself(settings, path, group)]
    yield from faults
    if not faults:
        yield ok(path, f"{id} is in {group['VpcId']}{' and open to itself both ways' if path == NODES else ''}")


def _in_vpc(settings: Settings, path: Place, group: dict[str, Any]) -> Iterator[Answer]:
    vpc_id = settings.network.vpc_id
    if vpc_id is None:
        text = f"{group['GroupId']} is in {group['VpcId']}, and the cluster makes a new VPC"
        yield fault(path, text, "leave it out, or deploy into its VPC")
    elif group["VpcId"] != vpc_id:
        text = f"{group['GroupId']} is in {group['VpcId']}, not in {vpc_id}"
        yield fault(path, text, f"name a security group of {vpc_id}")


def _open_to_itself(settings: Settings, path: Place, group: dict[str, Any]) -> Iterator[Answer]:
    """A rule to a range of addresses does not count for EFA, not even 0.0.0.0/0."""
    if path != NODES or not any(queue.efa for queue in settings.queues):
        return
    id = group["GroupId"]
    for key, (direction, command) in DIRECTIONS.items():
        if not any(names_itself(rule, id) for rule in group[key]):
            lacks = f"{id} has no {direction} rule for all traffic to itself"
            text = f"{lacks}: EFA does not get through, 0.0.0.0/0 is not enough"
            yield fault(path, text, f"aws ec2 {command} --group-id {id} --protocol all --source-group {id}")


def names_itself(rule: dict[str, Any], id: str) -> bool:
    """Whether a rule of the group `id` is for all traffic to or from the group itself."""
    pairs = rule.get("UserIdGroupPairs", ())
    return rule.get("IpProtocol") == ALL_TRAFFIC and any(pair.get("GroupId") == id for pair in pairs)


def named_groups(settings: Settings) -> set[str]:
    """The security groups of the head node, by which rules of other groups may let it in."""
    return set(_named(settings).values())


def lets_in(rules: list[dict[str, Any]], ports: tuple[int, int], groups: set[str], network: str) -> bool:
    """Whether inbound rules let TCP on the ports (first, last) in from one of the groups, or from all of `network`."""
    return any(is_open(rule, ports) and _names(rule, groups, network) for rule in rules)


def is_open(rule: dict[str, Any], ports: tuple[int, int]) -> bool:
    """Whether a rule is about TCP on all of these ports, from any source."""
    if rule["IpProtocol"] == "-1":
        return True
    return rule["IpProtocol"] in ("tcp", "6") and rule["FromPort"] <= ports[0] and ports[1] <= rule["ToPort"]


def _names(rule: dict[str, Any], groups: set[str], network: str) -> bool:
    if any(pair.get("GroupId") in groups for pair in rule.get("UserIdGroupPairs", [])):
        return True
    inner = ipaddress.IPv4Network(network)
    return any(inner.subnet_of(ipaddress.IPv4Network(item["CidrIp"])) for item in rule.get("IpRanges", []))


QUESTIONS = (
    Question(
        name="security-groups",
        asks="Are the security groups in the VPC, and is that of the nodes open to itself both ways?",
        why="EFA needs a rule for all traffic to the group itself in ingress and in egress; without the second one "
        "NCCL hangs or reports an unresponsive receiver, after everything was deployed.",
        source="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html; awsome-distributed-training issue "
        "546; gardener-extension-provider-aws issue 1832",
        permissions=("ec2:DescribeSecurityGroups",),
        ask=ask_groups,
        applies=lambda settings: bool(_named(settings)),
    ),
)
