"""What `cdk bootstrap` makes in an account: the bucket of assets, the version, and the roles that `cdk deploy` assumes.

The roles, their trust and their policies are those of the bootstrap template of the installed CDK CLI
(node_modules/aws-cdk/lib/api/bootstrap/bootstrap-template.yaml), with the parameters' defaults.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from moto.iam.models import iam_backends
from moto.s3.models import s3_backends
from moto.ssm.models import ssm_backends

from rehearsal.cloud import template
from rehearsal.cloud.clients import Clients
from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ACCOUNT, PARTITION
from slipway.places import FILES

QUALIFIER = "hnb659fds"
ADMINISTRATOR = f"arn:{PARTITION}:iam::aws:policy/AdministratorAccess"  # the CLI's default
_TEMPLATE = FILES / "node_modules/aws-cdk/lib/api/bootstrap/bootstrap-template.yaml"
_VERSION = "30"


def make_bootstrap(clients: Clients, execution_policy: str = "") -> None:
    """Make it all; `execution_policy`: what CloudFormation's role may do, as a document. Empty: everything.

    The document becomes a managed policy, as `cdk bootstrap --cloudformation-execution-policies ARN` needs one.
    """
    region = clients.region  # in this process: a request each took two thirds of the preparation
    s3_backends[ACCOUNT][PARTITION].create_bucket(f"cdk-{QUALIFIER}-assets-{ACCOUNT}-{region}", region)
    ssm_backends[ACCOUNT][region].put_parameter(
        f"/cdk-bootstrap/{QUALIFIER}/version", "", _VERSION, "String", "", "", True, [], "text", None, None
    )
    if _TEMPLATE.is_file():  # without the CDK CLI nothing is deployed
        made = {"PolicyName": "cdk-execution", "PolicyDocument": execution_policy}
        arn = clients("iam").create_policy(**made)["Policy"]["Arn"] if execution_policy else ADMINISTRATOR
        _make_roles(clients, arn)


@functools.lru_cache(maxsize=1)
def _document() -> dict[str, Any]:
    return template.parse(_TEMPLATE.read_text(encoding="utf-8"))


def _make_roles(clients: Clients, execution_policy: str) -> None:
    document, region = _document(), clients.region
    iam = iam_backends[ACCOUNT][PARTITION]
    given = {"CloudFormationExecutionPolicies": execution_policy}
    parameters = template.resolve_parameters(document, given, lambda _: "")
    names: dict[str, str] = {}
    references = {
        **parameters,
        "AWS::AccountId": ACCOUNT,
        "AWS::Region": region,
        "AWS::Partition": PARTITION,
        "AWS::URLSuffix": "amazonaws.com",
        "AWS::StackName": "CDKToolkit",
        "CdkBootstrapVersion": f"/cdk-bootstrap/{QUALIFIER}/version",
    }

    def attribute(logical_id: str, _: str) -> str:
        if logical_id == "StagingBucket":
            return f"arn:{PARTITION}:s3:::cdk-{QUALIFIER}-assets-{ACCOUNT}-{region}"
        if logical_id in names:
            return f"arn:{PARTITION}:iam::{ACCOUNT}:role/{names[logical_id]}"
        return f"arn:{PARTITION}:rehearsal:{region}:{ACCOUNT}:{logical_id}"

    def exported(name: str) -> str:
        raise ResourceFailed(f"export {name}: the bootstrap imports nothing")

    def output(stack: str, name: str) -> str:
        raise ResourceFailed(f"output {name} of {stack}: the bootstrap reads no other stack")

    resolver = template.Resolver(document, references, attribute, exported, output, lambda _: [])
    resources = document["Resources"]
    roles = {key: body for key, body in resources.items() if body["Type"] == "AWS::IAM::Role"}
    for key, body in roles.items():
        names[key] = str(resolver.resolve(body["Properties"]["RoleName"]))
    for key, body in roles.items():
        _make_role(iam, names[key], resolver.resolve(body["Properties"]))
    for body in resources.values():
        if body["Type"] == "AWS::IAM::Policy":
            references |= names
            properties = resolver.resolve(body["Properties"])
            for role in properties["Roles"]:
                _put(iam, role, properties)


def _make_role(iam: Any, name: str, properties: Mapping[str, Any]) -> None:
    trust = json.dumps(properties["AssumeRolePolicyDocument"])
    iam.create_role(name, trust, "/", None, "", [], None)
    for arn in properties.get("ManagedPolicyArns", []):
        iam.attach_role_policy(arn, name)
    for policy in properties.get("Policies", []):
        _put(iam, name, policy)


def _put(iam: Any, role: str, policy: Mapping[str, Any]) -> None:
    iam.put_role_policy(role, policy["PolicyName"], json.dumps(policy["PolicyDocument"]))
