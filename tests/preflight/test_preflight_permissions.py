"""What the caller and the CDK's executing role may do, and the policies that the settings name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from arrange_services import allow, as_role, as_user, executing_role, linked_role, policy, without_role
from preflight_cases import REGION, Case, check, denied, settings_of

from rehearsal.cloud_model import ACCOUNT
from slipway.preflight.actions import ARNS, RESOURCES, WHEN, actions_needed, by_resource
from slipway.preflight.model import Answer, Status
from slipway.settings import load_settings
from tests.aws.preflight_aws import PreflightAws
from tests.stacks.assembly import synthesised

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
ANN = f"arn:aws:iam::{ACCOUNT}:user/ann"
DEPLOY = f"cdk-hnb659fds-deploy-role-{ACCOUNT}-{REGION}"
PUBLISH = f"cdk-hnb659fds-file-publishing-role-{ACCOUNT}-{REGION}"
ASSUME_HINT = f"allow sts:AssumeRole on arn:aws:iam::{ACCOUNT}:role/cdk-hnb659fds-*-role-{ACCOUNT}-{REGION}"
ASSUME = allow("sts:AssumeRole", resource="arn:aws:iam::*:role/cdk-*")
NO_FSX = {"Effect": "Allow", "NotAction": "fsx:*", "Resource": "*"}
NO_FSX_TEXT = "the CDK's executing role is not allowed fsx:CreateFileSystem, fsx:TagResource"
POLICIES_HINT = "cdk bootstrap with --cloudformation-execution-policies that allow them"
DENY = {"Effect": "Deny", "Action": "aps:Create*", "Resource": "*"}
ONLY_HERE = allow("fsx:*", Condition={"StringEquals": {"aws:RequestedRegion": REGION}})
TAGGED = allow("fsx:*", Condition={"StringEquals": {"aws:RequestTag/team": "ml"}})
SCOPED = allow("fsx:*", resource=f"arn:aws:fsx:{REGION}:{ACCOUNT}:file-system/*")
TAGGED_DENY = {**DENY, "Condition": {"StringNotEquals": {"aws:PrincipalTag/team": "ml"}}}
MFA_ONLY = {"Effect": "Deny", "Action": "*", "Resource": "*",
            "Condition": {"BoolIfExists": {"aws:MultiFactorAuthPresent": "false"}}}  # fmt: skip
ROLES_ONLY = {"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}
OWN_IAM = [allow("iam:*", resource=f"arn:aws:iam::{ACCOUNT}:{kind}/*") for kind in ("role", "policy")]
FSX_LINKED = allow("iam:CreateServiceLinkedRole", resource="arn:aws:iam::*:role/aws-service-role/*",
                   Condition={"StringLike": {"iam:AWSServiceName": "fsx.amazonaws.com"}})  # fmt: skip
SPOT = {"queues": [{"name": "dev", "instance_type": "g6.48xlarge", "max_count": 2, "spot": True}]}
FSX_ROLE, SPOT_ROLE = "AWSServiceRoleForAmazonFSx", "AWSServiceRoleForEC2Spot"
OWN_POLICY = f"arn:aws:iam::{ACCOUNT}:policy/training-data"
READ_ONLY = "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"
ALL_ALLOWED = f"the CDK's executing role may do all {len(actions_needed(settings_of({})))} actions that the stacks need"


def own_policy(aws: PreflightAws) -> None:
    aws.clients("iam").create_policy(PolicyName="training-data", PolicyDocument=policy(allow("s3:GetObject")))


CALLERS = [
    Case("caller-permissions", "administrator", OK, f"arn:aws:sts::{ACCOUNT}:user/moto may assume the CDK's roles", ()),
    Case("caller-permissions", "user", OK, f"{ANN} may assume the CDK's roles", (), arrange=as_user("ann", ASSUME)),
    Case("caller-permissions", "role with a path", OK,
         f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/sso.amazonaws.com/Deployer may assume the CDK's roles", (),
         arrange=as_role("Deployer", "/aws-reserved/sso.amazonaws.com/", ASSUME)),
    Case("caller-permissions", "user without", FAULT, f"{ANN} may not assume {DEPLOY}, {PUBLISH}", (), ASSUME_HINT,
         arrange=as_user("ann")),
    Case("caller-permissions", "user with one", FAULT, f"{ANN} may not assume {PUBLISH}", (), ASSUME_HINT,
         arrange=as_user("ann", allow("sts:AssumeRole", resource="arn:aws:iam::*:role/cdk-*-deploy-role-*"))),
    Case("caller-permissions", "user with CloudFormation", WARNING,
         f"{ANN} may not assume {DEPLOY}, {PUBLISH}; the CDK goes on with the caller's own permissions", (), ASSUME_HINT,
         arrange=as_user("ann", allow("cloudformation:*"))),
    Case("caller-permissions", "user who needs MFA", WARNING,
         f"whether {ANN} may assume {DEPLOY}, {PUBLISH} depends on aws:MultiFactorAuthPresent", (),
         "look whether the conditions of its policies hold, e.g. that it signed in with MFA",
         arrange=as_user("ann", allow("*"), MFA_ONLY)),
    denied("sts:GetCallerIdentity", "caller-permissions"),
    denied("iam:SimulatePrincipalPolicy", "caller-permissions"),
    denied("iam:GetRole", "caller-permissions", arrange=as_role("Deployer", "/", ASSUME)),
]  # fmt: skip
CASES = [
    *CALLERS,
    Case("deployment-permissions", "administrator", OK, ALL_ALLOWED, ()),
    Case("deployment-permissions", "no FSx", FAULT, NO_FSX_TEXT, (), POLICIES_HINT, arrange=executing_role(NO_FSX)),
    Case("deployment-permissions", "a Deny", FAULT, "the CDK's executing role is denied aps:CreateWorkspace", (),
         "look for a Deny in its policies, its boundary or the organization's",
         arrange=executing_role(allow("*"), DENY)),
    Case("deployment-permissions", "a Deny under conditions", WARNING,
         "whether the CDK's executing role is allowed aps:CreateWorkspace depends on conditions", (),
         arrange=executing_role(allow("*"), TAGGED_DENY)),
    Case("deployment-permissions", "own roles and policies only", OK, ALL_ALLOWED, (),
         arrange=executing_role(ROLES_ONLY, *OWN_IAM)),
    Case("deployment-permissions", "a boundary", FAULT, NO_FSX_TEXT, (), POLICIES_HINT,
         arrange=executing_role(boundary=(NO_FSX,))),
    Case("deployment-permissions", "own resources only", OK, ALL_ALLOWED, (), arrange=executing_role(NO_FSX, SCOPED)),
    Case("deployment-permissions", "this region only", OK, ALL_ALLOWED, (), arrange=executing_role(NO_FSX, ONLY_HERE)),
    Case("deployment-permissions", "conditions", WARNING,
         "whether the CDK's executing role is allowed fsx:CreateFileSystem, fsx:TagResource depends on conditions", (), "look whether the conditions of its policies hold for this deployment",
         arrange=executing_role(NO_FSX, TAGGED)),
    Case("deployment-permissions", "nothing at all", FAULT,
         "the CDK's executing role is not allowed aps:CreateWorkspace, aps:TagResource,"
         " cloudformation:CreateChangeSet, cloudformation:CreateStack, ec2:AllocateAddress, ec2:AssociateRouteTable and"
         f" {len(actions_needed(settings_of({}))) - 6} more", arrange=executing_role(allow("s3:ListAllMyBuckets"))),
    Case("deployment-permissions", "no role", Status.COULD_NOT_ASK,
         f"there is no role cdk-hnb659fds-cfn-exec-role-{ACCOUNT}-{REGION} to ask about",
         arrange=without_role("cfn-exec")),
    denied("sts:GetCallerIdentity", "deployment-permissions"),
    denied("iam:SimulatePrincipalPolicy", "deployment-permissions"),
    Case("service-linked-roles", "there", OK, f"{FSX_ROLE} is there", ("storage", "fsx"),
         arrange=linked_role("fsx.amazonaws.com")),
    Case("service-linked-roles", "to be made", OK, f"{FSX_ROLE} will be made with the account's first file system",
         ("storage", "fsx")),
    Case("service-linked-roles", "to be made for FSx only", OK,
         f"{FSX_ROLE} will be made with the account's first file system", ("storage", "fsx"),
         arrange=executing_role(allow("fsx:*"), FSX_LINKED)),
    Case("service-linked-roles", "not to be made", FAULT,
         f"{FSX_ROLE} is not there, and the CDK's executing role may not create it", ("storage", "fsx"),
         "aws iam create-service-linked-role --aws-service-name fsx.amazonaws.com",
         arrange=executing_role(allow("fsx:*"))),
    Case("service-linked-roles", "spot", OK, f"{SPOT_ROLE} is there", ("queues", 0, "spot"), settings=SPOT,
         arrange=linked_role("spot.amazonaws.com")),
    Case("service-linked-roles", "no spot", FAULT,
         f"{SPOT_ROLE} is not there: the head node may not create it, and no spot instance would start",
         ("queues", 0, "spot"), "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
         settings=SPOT),
    denied("iam:GetRole", "service-linked-roles"),
    denied("sts:GetCallerIdentity", "service-linked-roles"),
    denied("iam:SimulatePrincipalPolicy", "service-linked-roles"),
    Case("policies", "AWS's", OK, f"{READ_ONLY} is there", ("head_node", "policy_arns", 0),
         settings={"head_node": {"policy_arns": [READ_ONLY]}}),
    Case("policies", "own", OK, f"{OWN_POLICY} is there", ("queues", 0, "policy_arns", 0), arrange=own_policy,
         settings={"queues": [{"name": "dev", "instance_type": "g6.48xlarge", "count": 1, "policy_arns": [OWN_POLICY]}]}),
    Case("policies", "boundary", OK, f"{OWN_POLICY} is there", ("iam", "permissions_boundary"), arrange=own_policy,
         settings={"iam": {"permissions_boundary": OWN_POLICY}}),
    Case("policies", "no boundary", FAULT, f"there is no policy {OWN_POLICY} in this account",
         ("iam", "permissions_boundary"), "correct the ARN, or make the policy",
         settings={"iam": {"permissions_boundary": OWN_POLICY}}),
    Case("policies", "missing", FAULT, f"there is no policy {OWN_POLICY} in this account",
         ("head_node", "policy_arns", 0), "correct the ARN, or make the policy",
         settings={"head_node": {"policy_arns": [OWN_POLICY]}}),
    denied("iam:GetPolicy", "policies", settings={"head_node": {"policy_arns": [READ_ONLY]}}),
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_credentials(botocore_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session reads the environment again: cases ask as other users."""
    monkeypatch.setattr(botocore_session, "_credentials", None)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_permissions(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))


ALL_EXISTING = """\
name: p5-own
region: us-east-1
zone: us-east-1a
network:
  vpc_id: vpc-0123456789abcdef0
  head_node_subnet_id: subnet-0123456789abcdef0
  compute_subnet_id: subnet-0123456789abcdef1
  security_group_id: sg-0123456789abcdef0
queues:
  - {name: train, instance_type: g6.48xlarge, count: 1}
storage:
  fsx: {file_system_id: fs-0123456789abcdef0}
  bucket: corp-training-data
  associations: [{path: /datasets, prefix: datasets/}]
observability: {prometheus: false}
acceptance: {scenario: none}
"""
EVERY_PART = Path(__file__).parents[1] / "stacks/every-part.yaml"


@pytest.mark.parametrize("text", [EVERY_PART.read_text(encoding="utf-8"), ALL_EXISTING], ids=["everything", "existing"])
def test_every_type_of_the_stacks_has_its_actions(tmp_path: Path, text: str) -> None:
    """A resource that is added to a stack and not to the table is found here."""
    file = tmp_path / "cluster.yaml"
    file.write_text(text, encoding="utf-8")
    templates = synthesised(load_settings(file), tmp_path / "out").templates.values()
    made = {resource["Type"] for template in templates for resource in template.get("Resources", {}).values()}
    settings = load_settings(file)
    assert made == {kind for kind, when, _ in RESOURCES if WHEN[when](settings)}


def test_every_service_has_a_resource_to_try() -> None:
    assert {action.partition(":")[0] for _, _, actions in RESOURCES for action in actions} <= set(ARNS)


def test_actions_by_resource() -> None:
    rows = by_resource(["fsx:CreateFileSystem", "iam:CreatePolicy", "iam:CreateRole", "iam:PassRole"])
    assert list(rows.values()) == [["fsx:CreateFileSystem"], ["iam:CreatePolicy"], ["iam:CreateRole", "iam:PassRole"]]


def test_fewer_parts_need_fewer_actions() -> None:
    bare = settings_of({"observability": {"prometheus": False}, "acceptance": {"scenario": "none"}})
    assert not [action for action in actions_needed(bare) if action.startswith(("aps:", "states:", "grafana:"))]
    assert "fsx:CreateFileSystem" in actions_needed(bare)


def test_the_simulator_knows_groups_and_wildcards(account: PreflightAws) -> None:
    iam = account.clients("iam")
    iam.create_user(UserName="eve")
    iam.create_group(GroupName="builders")
    iam.add_user_to_group(GroupName="builders", UserName="eve")
    document = policy(allow("S3:Get?bject", resource="arn:aws:s3:::data/*"))
    iam.put_group_policy(GroupName="builders", PolicyName="read", PolicyDocument=document)
    answer = iam.simulate_principal_policy(
        PolicySourceArn=f"arn:aws:iam::{ACCOUNT}:user/eve",
        ActionNames=["s3:GetObject", "s3:PutObject"],
        ResourceArns=["arn:aws:s3:::data/a", "arn:aws:s3:::other/a"],
    )
    decisions = [(item["EvalActionName"], item["EvalDecision"]) for item in answer["EvaluationResults"]]
    assert decisions == [
        ("s3:GetObject", "allowed"),
        ("s3:GetObject", "implicitDeny"),
        ("s3:PutObject", "implicitDeny"),
        ("s3:PutObject", "implicitDeny"),
    ]
