"""The endpoints of an existing VPC: whether names lead the nodes to them, and whether they let the nodes in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slipway.aws.calls import Aws
from slipway.preflight.groups import is_open, lets_in, named_groups
from slipway.preflight.model import Answer, fault
from slipway.settings import Settings
from slipway.settings.source import Place

HTTPS = (443, 443)


class Endpoints:
    """The VPC endpoints that serve one subnet; the calls are on their way as soon as this is made."""

    def __init__(self, settings: Settings, aws: Aws, subnet_id: str, wanted: tuple[str, ...]) -> None:
        in_vpc = [{"Name": "vpc-id", "Values": [settings.network.vpc_id]}]
        self._region, self._subnet_id, self._wanted = settings.region, subnet_id, wanted
        self._nodes = named_groups(settings)
        self._endpoints = aws.start("ec2", "describe_vpc_endpoints", Filters=in_vpc)
        self._subnet = aws.start("ec2", "describe_subnets", SubnetIds=[subnet_id])
        self._groups = aws.start("ec2", "describe_security_groups")  # all of them, as other questions ask for too

    def missing(self, route_table: str) -> list[str]:
        """Those of the wanted services that have no endpoint here. Raises Unasked."""
        reached = {
            self._service(endpoint)
            for endpoint in self._known()
            if endpoint["VpcEndpointType"] != "Gateway" or route_table in endpoint.get("RouteTableIds", ())
        }
        return [name for name in self._wanted if name not in reached]

    def without_names(self, path: Place) -> Iterator[Answer]:
        """Faults for endpoints that the services' names do not lead to, in a subnet without another way out."""
        for endpoint in self._interfaces():
            if not endpoint.get("PrivateDnsEnabled"):
                id = endpoint["VpcEndpointId"]
                text = f"{id} ({self._service(endpoint)}) has private DNS off: its name leads to the internet"
                hint = f"aws ec2 modify-vpc-endpoint --vpc-endpoint-id {id} --private-dns-enabled"
                yield fault(path, f"{text}, and {self._subnet_id} has no way there", hint)

    def closed(self, path: Place) -> Iterator[Answer]:
        """Faults for endpoints whose security groups keep the nodes out. With private DNS there is no way past them."""
        named = [endpoint for endpoint in self._interfaces() if endpoint.get("PrivateDnsEnabled")]
        if not named:
            return
        network = self._subnet.result()["Subnets"][0]["CidrBlock"]
        known = {group["GroupId"]: group.get("IpPermissions", []) for group in self._groups.result()["SecurityGroups"]}
        for endpoint in named:
            groups = [group["GroupId"] for group in endpoint.get("Groups", ())]
            if all(self._is_closed(known.get(group, []), network) for group in groups):
                text = (
                    f"{', '.join(groups)} of {endpoint['VpcEndpointId']} ({self._service(endpoint)}) lets no HTTPS in"
                )
                hint = f"aws ec2 authorize-security-group-ingress --group-id {groups[0]} --protocol tcp --port 443"
                yield fault(path, f"{text} from {self._subnet_id}", f"{hint} --cidr {network}")

    def _is_closed(self, rules: list[dict[str, Any]], network: str) -> bool:
        by_list = any(is_open(rule, HTTPS) and rule.get("PrefixListIds") for rule in rules)  # may have the nodes in it
        return not by_list and not lets_in(rules, HTTPS, self._nodes, network)

    def _interfaces(self) -> list[dict[str, Any]]:
        known = [endpoint for endpoint in self._known() if endpoint["VpcEndpointType"] == "Interface"]
        return [endpoint for endpoint in known if self._service(endpoint) in self._wanted]

    def _known(self) -> list[dict[str, Any]]:
        known: list[dict[str, Any]] = self._endpoints.result()["VpcEndpoints"]
        return [endpoint for endpoint in known if endpoint.get("State", "available").lower() == "available"]

    def _service(self, endpoint: dict[str, Any]) -> str:
        return str(endpoint["ServiceName"].rpartition(f"{self._region}.")[2])
