"""What must hold in the templates: security, what outlives a deletion, references, and what is left out when off."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from nodes.metrics import remote_write
from slipway.settings import load_settings
from slipway.stack_names import STACKS
from stacks.cluster import AGENT_ACTIONS as SESSION_ACTIONS
from stacks.cluster import OLDER_AGENT_ACTIONS
from stacks.storage import _association_id
from tests.stacks.assembly import EXAMPLES, ROOT, Assemblies, Assembly, synthesise, synthesised
from tests.stacks.cloudwatch_rules import alarm_states, metric_value

CUSTOM_RESOURCES = {"Custom::ClusterNameGuard", "Custom::PclusterCluster", "Custom::ClusterAcceptance"}
# Actions that AWS cannot tie to a resource.
WITHOUT_RESOURCE = {
    "aps:ListWorkspaces",
    "ec2:DescribeInstanceTopology",  # EC2's Describe actions take no resource (Service Authorization Reference)
    "ssm:GetCommandInvocation",
    *SESSION_ACTIONS,
    *OLDER_AGENT_ACTIONS,
}


@pytest.fixture(params=["rehearsal", "every-part"])
def assembly(request: pytest.FixtureRequest, assemblies: Assemblies) -> Assembly:
    return assemblies[request.param]


@pytest.fixture(params=["rehearsal", "every-part", "site-parts"])
def any_assembly(request: pytest.FixtureRequest, assemblies: Assemblies) -> Assembly:
    return assemblies[request.param]


KEPT = ("RetainExceptOnCreate", "Retain")  # on deletion of the stack, on replacement


def test_five_stacks_and_no_custom_resource_beyond_the_three(any_assembly: Assembly) -> None:
    assert set(any_assembly.templates) == set(STACKS)
    kinds = {resource["Type"] for _, _, resource in any_assembly.resources()}
    assert {
        kind for kind in kinds if kind.startswith("Custom::") or kind.endswith("::CustomResource")
    } == CUSTOM_RESOURCES


def test_synth_asked_nobody(any_assembly: Assembly) -> None:
    manifest = json.loads((any_assembly.directory / "manifest.json").read_text(encoding="utf-8"))
    assert not manifest.get("missing")
    environments = {a["environment"] for a in manifest["artifacts"].values() if a["type"] == "aws:cloudformation:stack"}
    assert all(place.startswith("aws://unknown-account/") for place in environments)


def test_no_statement_is_open_beyond_the_list(any_assembly: Assembly) -> None:
    statements = list(any_assembly.statements())
    assert statements
    for place, statement in statements:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert not [action for action in actions if "*" in action], place
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        if "*" in resources:
            assert set(actions) <= WITHOUT_RESOURCE, place


def test_compute_nodes_only_read_their_scripts_and_write_their_logs(rehearsal: Assembly) -> None:
    allowed = {
        action
        for place, statement in rehearsal.statements()
        if place.startswith("cluster/ComputePolicy")
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    logs = {"logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"}
    assert allowed == {"s3:GetObject", "ssm:GetParameter", *logs}


@pytest.mark.parametrize("policy", ["ComputePolicy", "HeadNodePolicy"])
def test_nodes_read_exactly_the_parameter_of_their_cluster_and_write_none(policy: str, rehearsal: Assembly) -> None:
    statements = [s for place, s in rehearsal.statements() if place.startswith(f"cluster/{policy}")]
    (parameter,) = [s for s in statements if "ssm:GetParameter" in s["Action"]]
    assert parameter["Action"] == "ssm:GetParameter"
    assert parameter["Resource"]["Fn::Join"][1][-1] == ":parameter/slipway/rehearsal/bundle"
    assert "ssm:Put" not in json.dumps(statements)


# Every call of the AWS CLI in what the nodes run, and the permissions that it takes. A pull from ECR is allowed by a
# policy of the site: rule image-ecr.
CLI_CALLS = {
    "s3 cp": {"s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload", "kms:GenerateDataKey", "kms:Decrypt"},
    "ssm get-parameter": {"ssm:GetParameter"},
    "secretsmanager get-secret-value": {"secretsmanager:GetSecretValue", "kms:Decrypt"},
    "ecr get-login-password": set[str](),
    # Granted by ParallelCluster's own policy of the head node (3.16.1: pcluster/templates/cdk_builder_utils.py).
    "ec2 describe-capacity-reservations": set[str](),
    "ec2 describe-instance-topology": {"ec2:DescribeInstanceTopology"},
}
# The CloudWatch agent writes logs, Prometheus sends metrics.
AGENT_ACTIONS = {"logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents", "aps:RemoteWrite"}


def test_nodes_may_do_what_their_scripts_call_and_nothing_else(assemblies: Assemblies) -> None:
    allowed = {
        action
        for assembly in assemblies.values()
        for place, statement in assembly.statements()
        if place.startswith(("cluster/HeadNodePolicy", "cluster/ComputePolicy"))
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert allowed == AGENT_ACTIONS.union(*CLI_CALLS.values(), SESSION_ACTIONS, OLDER_AGENT_ACTIONS)


def test_no_script_of_the_nodes_calls_aws_beyond_the_list() -> None:
    found = set()
    for folder in ("nodes", "headnode", "compute", "acceptance", "templates"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in (".sh", ".py", ".j2", "") and file.is_file():
                text = re.sub(r"[\"',\[\]]", "", re.sub(r"(?m)^\s*#.*$", "", file.read_text(encoding="utf-8")))
                found |= {" ".join(call) for call in re.findall(r"\baws (?:--\S+ \S+ )*([a-z0-9-]+) ([a-z-]+)\b", text)}
                assert "boto3" not in text, file
    assert found == set(CLI_CALLS)


def test_bucket_is_private_encrypted_versioned_tls_only_and_kept(rehearsal: Assembly) -> None:
    (bucket,) = rehearsal.of_type("AWS::S3::Bucket")
    assert (bucket["DeletionPolicy"], bucket["UpdateReplacePolicy"]) == KEPT
    assert bucket["Properties"]["VersioningConfiguration"] == {"Status": "Enabled"}
    assert set(bucket["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["Properties"]["BucketEncryption"]
    (policy,) = rehearsal.of_type("AWS::S3::BucketPolicy")
    denied = [s["Condition"] for s in policy["Properties"]["PolicyDocument"]["Statement"] if s["Effect"] == "Deny"]
    assert {"Bool": {"aws:SecureTransport": "false"}} in denied


def test_existing_bucket_is_left_alone(every_part: Assembly) -> None:
    assert not every_part.of_type("AWS::S3::Bucket")
    assert not every_part.of_type("AWS::S3::BucketPolicy")


@pytest.mark.parametrize("kind", ["AWS::FSx::FileSystem", "AWS::EC2::Volume", "AWS::Logs::LogGroup"])
def test_data_outlives_the_stacks(assembly: Assembly, kind: str) -> None:
    resources = [
        r
        for r in assembly.of_type(kind)
        if r in assembly.templates["storage"]["Resources"].values()
        or r in assembly.templates["observability"]["Resources"].values()
    ]
    assert resources or kind == "AWS::EC2::Volume"
    assert {(resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) for resource in resources} <= {KEPT}


def test_an_association_goes_with_its_settings_and_leaves_the_data(assembly: Assembly) -> None:
    """One that stays would refuse its own path to the next deployment, and would go on exporting."""
    associations = list(assembly.of_type("AWS::FSx::DataRepositoryAssociation"))
    assert associations
    for association in associations:
        assert not {"DeletionPolicy", "UpdateReplacePolicy"} & set(association)


def test_associations_are_made_one_after_the_other(rehearsal: Assembly) -> None:
    resources = rehearsal.templates["storage"]["Resources"]
    links = [(name, body) for name, body in resources.items() if body["Type"].endswith("Association")]
    (first, _), (_, second) = links
    assert second["DependsOn"] == [first]


def test_ids_of_associations_come_from_their_paths() -> None:
    paths = ("/a-b", "/a/b", "/ab", "/", "/datasets")
    ids = [_association_id(path) for path in paths]
    assert len(set(ids)) == len(paths)
    assert all(re.fullmatch("Association[A-Za-z0-9]+", id) for id in ids)
    assert ids[-1].startswith("AssociationDatasets")


def test_the_file_system_comes_after_every_rule_of_its_group(rehearsal: Assembly) -> None:
    resources = rehearsal.templates["storage"]["Resources"]
    rules = {name for name, body in resources.items() if body["Type"].startswith("AWS::EC2::SecurityGroup")}
    (file_system,) = [body for body in resources.values() if body["Type"] == "AWS::FSx::FileSystem"]
    assert len(rules) == 11
    assert rules <= set(file_system["DependsOn"])


def test_acceptance_comes_after_its_functions_policies_and_log_group(rehearsal: Assembly) -> None:
    resources = rehearsal.templates["acceptance"]["Resources"]
    (verdict,) = [body for body in resources.values() if body["Type"] == "Custom::ClusterAcceptance"]
    needed = {
        name
        for name, body in resources.items()
        if body["Type"] in ("AWS::Lambda::Function", "AWS::IAM::Policy", "AWS::StepFunctions::StateMachine")
    }
    assert needed <= set(verdict["DependsOn"])


def test_functions_log_to_a_group_that_goes_with_their_stack(any_assembly: Assembly) -> None:
    for part in ("acceptance", "cluster"):
        resources = any_assembly.templates[part]["Resources"]
        (group,) = [name for name, body in resources.items() if body["Type"] == "AWS::Logs::LogGroup"]
        functions = [body for body in resources.values() if body["Type"] == "AWS::Lambda::Function"]
        assert {json.dumps(body["Properties"]["LoggingConfig"]["LogGroup"]) for body in functions} == {
            json.dumps({"Ref": group})
        }
        assert resources[group]["Properties"]["RetentionInDays"] == 30
        assert resources[group]["DeletionPolicy"] == "Delete"


def node_group_rules(assembly: Assembly, kind: str) -> list[dict[str, Any]]:
    resources = assembly.templates["network"]["Resources"].values()
    return [resource["Properties"] for resource in resources if resource["Type"] == kind]


def test_nodes_reach_each_other_by_the_group_itself_both_ways(assembly: Assembly) -> None:
    """An egress rule to 0.0.0.0/0 does not let EFA traffic out; only one to the group does."""
    (ingress,) = node_group_rules(assembly, "AWS::EC2::SecurityGroupIngress")
    (egress,) = node_group_rules(assembly, "AWS::EC2::SecurityGroupEgress")
    assert ingress["IpProtocol"] == egress["IpProtocol"] == "-1"
    assert ingress["GroupId"] == ingress["SourceSecurityGroupId"]
    assert egress["GroupId"] == egress["DestinationSecurityGroupId"]


def test_no_security_group_is_open_to_the_world(any_assembly: Assembly) -> None:
    groups = list(any_assembly.of_type("AWS::EC2::SecurityGroup"))
    assert groups or not list(any_assembly.of_type("AWS::EC2::VPC"))
    for group in groups:
        assert "SecurityGroupIngress" not in group["Properties"]
        assert [rule["CidrIp"] for rule in group["Properties"]["SecurityGroupEgress"]] == ["255.255.255.255/32"]


def test_file_system_opens_lustre_only(assembly: Assembly) -> None:
    rules = [r for r in assembly.templates["storage"]["Resources"].values() if "SecurityGroupIngress" in r["Type"]]
    ports = {(rule["Properties"]["FromPort"], rule["Properties"]["ToPort"]) for rule in rules}
    assert ports == {(988, 988), (1018, 1023)}
    assert len(rules) == 6  # to the file system from itself and from the nodes; to the nodes from the file system


def test_a_kept_file_system_keeps_its_security_group(assembly: Assembly) -> None:
    resources = assembly.templates["storage"]["Resources"].values()
    parts = [
        r
        for r in resources
        if r["Type"].startswith("AWS::EC2::SecurityGroup") and "network" not in str(r["Properties"].get("GroupId"))
    ]
    assert parts
    assert {(part["DeletionPolicy"], part["UpdateReplacePolicy"]) for part in parts} == {KEPT}


def test_new_network_lies_in_the_zone_of_the_settings(rehearsal: Assembly) -> None:
    subnets = rehearsal.of_type("AWS::EC2::Subnet")
    assert {(s["Properties"]["AvailabilityZone"], s["Properties"]["MapPublicIpOnLaunch"]) for s in subnets} == {
        ("us-east-1a", True),
        ("us-east-1a", False),
    }
    assert len(rehearsal.of_type("AWS::EC2::NatGateway")) == 1


def test_existing_network_gets_the_two_rules_and_nothing_else(every_part: Assembly) -> None:
    kinds = sorted(resource["Type"] for resource in every_part.templates["network"]["Resources"].values())
    assert kinds == ["AWS::EC2::SecurityGroup", "AWS::EC2::SecurityGroupEgress", "AWS::EC2::SecurityGroupIngress"]


def test_cluster_takes_its_provider_from_parallelcluster(rehearsal: Assembly) -> None:
    from slipway.settings import PARALLELCLUSTER_VERSION

    (provider,) = rehearsal.of_type("AWS::CloudFormation::Stack")
    parts = provider["Properties"]["TemplateURL"]["Fn::Join"][1]
    assert parts[0] == "https://us-east-1-aws-parallelcluster.s3.us-east-1."
    assert f"/{PARALLELCLUSTER_VERSION}/" in parts[2]
    (cluster,) = rehearsal.of_type("Custom::PclusterCluster")
    assert cluster["Properties"]["ServiceToken"] == {"Fn::GetAtt": ["Provider", "Outputs.ServiceToken"]}
    assert cluster["Properties"]["ClusterName"] == "rehearsal"  # the stack is rehearsal-cluster


def test_node_policies_lie_where_parallelcluster_may_attach_them(rehearsal: Assembly) -> None:
    """Its own role may attach policies of this path to the nodes' roles; a permission of ours would be one too many."""
    policies = {
        p["Properties"]["Path"] for p in rehearsal.of_type("AWS::IAM::ManagedPolicy") if "Path" in p["Properties"]
    }
    assert "/parallelcluster/rehearsal/" in policies
    assert not [s for _, s in rehearsal.statements() if "iam:AttachRolePolicy" in s["Action"]]


def parameter_lines(assembly: Assembly) -> list[str]:
    """The lines of the nodes' parameter; a token is written as {}."""
    (parameter,) = assembly.of_type("AWS::SSM::Parameter")
    parts = parameter["Properties"]["Value"]["Fn::Join"][1]
    return "".join(part if isinstance(part, str) else "{}" for part in parts).splitlines()


def test_the_parameter_names_the_bundle_and_its_hash(rehearsal: Assembly) -> None:
    (bundle,) = rehearsal.directory.glob("asset.*.tar.gz")
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    url, sha256, *values = parameter_lines(rehearsal)
    assert url == "BUNDLE_URL={}"
    (parameter,) = rehearsal.of_type("AWS::SSM::Parameter")
    address = next(part["Fn::Sub"] for part in parameter["Properties"]["Value"]["Fn::Join"][1] if "Fn::Sub" in part)
    assert re.fullmatch(r"s3://cdk-hnb659fds-assets-\${AWS::AccountId}-us-east-1/[0-9a-f]{64}.gz", address)
    assert sha256 == f"BUNDLE_SHA256={digest}"
    assert [value.partition("=")[0] for value in values] == ["RESULTS_BUCKET", "AMP_REMOTE_WRITE_URL", "LOG_GROUP"]
    updated = cluster_configuration(rehearsal)["HeadNode"]["CustomActions"]["OnNodeUpdated"]["Args"]
    assert updated[3] == digest  # another bundle is an update of the cluster


def test_the_parameter_stands_between_the_permission_to_read_the_bundle_and_the_cluster(rehearsal: Assembly) -> None:
    resources = rehearsal.templates["cluster"]["Resources"]
    assert "BundleParameter" in resources["Cluster"]["DependsOn"]
    needs = resources["BundleParameter"]["DependsOn"]
    assert {re.sub(r"[0-9A-F]{8}$", "", name) for name in needs} == {"ComputePolicy", "HeadNodePolicy"}


# ParallelCluster refuses the next update of every standing cluster when this file's address changes, and that hangs on
# each byte. What is to change belongs in nodes/use-bundle.sh, which the bundle carries to the nodes.
BOOTSTRAP_ACTION_SHA256 = "ce7de51964e24efe4908bb359fb032f3fbccc69e44e45f9865af5c0906c9fe93"


def test_the_bootstrap_action_is_the_one_that_standing_clusters_have(rehearsal: Assembly) -> None:
    digest = hashlib.sha256((ROOT / "nodes/load-bundle.sh").read_bytes()).hexdigest()
    assert digest == BOOTSTRAP_ACTION_SHA256
    for actions in (
        cluster_configuration(rehearsal)["HeadNode"]["CustomActions"],
        cluster_configuration(rehearsal)["Scheduling"]["SlurmQueues"][0]["CustomActions"],
    ):
        own = actions["OnNodeConfigured"]
        key = hashlib.sha256(digest.encode()).hexdigest()  # as CDK makes a key of a custom hash
        assert own["Script"]["Fn::Sub"].endswith(f"/{key}.sh")
        assert own["Args"][1:] == ["us-east-1", "/slipway/rehearsal/bundle"]


def test_secret_and_mirror_are_granted_only_when_named(rehearsal: Assembly, every_part: Assembly) -> None:
    for assembly, expected in ((rehearsal, False), (every_part, True)):
        text = json.dumps([statement for _, statement in assembly.statements()])
        assert ("secretsmanager:GetSecretValue" in text) is expected
        assert ("a-mirror/slipway/*" in text) is expected


def test_alarms_and_budget_only_with_an_address(rehearsal: Assembly, every_part: Assembly) -> None:
    for kind in ("AWS::SNS::Topic", "AWS::SNS::Subscription", "AWS::Logs::MetricFilter", "AWS::Budgets::Budget"):
        assert not rehearsal.of_type(kind)
        assert len(every_part.of_type(kind)) == 1
    assert not rehearsal.of_type("AWS::CloudWatch::Alarm")
    names = {one["Properties"]["MetricName"] for one in every_part.of_type("AWS::CloudWatch::Alarm")}
    assert names == {"StatusCheckFailed", "RemoteWriteSamplesRefused"}


def test_the_alarm_reads_what_the_head_node_notes(every_part: Assembly, tmp_path: Path) -> None:
    """The metric filter takes the number of refused samples from the line that remote_write.py appends, and no other."""
    (metric_filter,) = every_part.of_type("AWS::Logs::MetricFilter")
    pattern = metric_filter["Properties"]["FilterPattern"]
    (transformation,) = metric_filter["Properties"]["MetricTransformations"]
    remote_write.LOG = tmp_path / "remote-write.log"
    for refused in (0, 12, 1_234_567):
        remote_write.record({"refused": refused, "retried": 3, "sent": 100})
    lines = remote_write.LOG.read_text().splitlines()
    values = [metric_value(pattern, transformation["MetricValue"], line) for line in lines]
    assert values == [0.0, 12.0, 1_234_567.0]
    others = (
        "slipway: remote_write 12 3 100",
        "2026-11-28T10:00:00Z INFO host=head step=headnode/20-prometheus started",
        'level=error msg="non-recoverable error" count=500 err="server returned HTTP status 400: series limit"',
        "remote_write 12 3 100",
    )
    assert [metric_value(pattern, transformation["MetricValue"], line) for line in others] == [None] * len(others)


@pytest.mark.parametrize(
    ("minutes", "apart_s", "alarms"),
    [
        ((), 305, False),
        ((30,), 305, False),  # one batch: in the notes of 15 minutes
        ((30,), 300, False),
        ((30, 90), 305, False),
        (tuple(range(30, 300)), 300, True),
        (tuple(range(30, 300)), 310, True),  # a period of ten minutes has one note
    ],
)
def test_the_alarm_fires_and_stays_while_samples_are_refused(
    every_part: Assembly, minutes: tuple[int, ...], apart_s: int, alarms: bool
) -> None:
    """A refused batch in each of these minutes, the head node's notes of the last 15 minutes, CloudWatch's evaluation."""
    found = [one["Properties"] for one in every_part.of_type("AWS::CloudWatch::Alarm")]
    (alarm,) = [one for one in found if one["MetricName"] == "RemoteWriteSamplesRefused"]
    notes = [(t, sum(0 <= t - 60 * minute < 900 for minute in minutes)) for t in range(7, 18_000, apart_s)]
    states = alarm_states(alarm, notes, 18_000)
    assert any(states) == alarms
    if alarms:
        assert states.index(True) * alarm["Period"] <= 30 * 60 + 25 * 60
        assert all(states[states.index(True) :])


def test_the_end_of_a_block_is_an_event_for_the_operators(every_part: Assembly, tmp_path: Path) -> None:
    def rules(assembly: Assembly) -> list[dict[str, Any]]:
        found = [one["Properties"] for one in assembly.of_type("AWS::Events::Rule")]
        return [one for one in found if one.get("EventPattern", {}).get("source") == ["aws.ec2"]]

    assert rules(every_part) == [], "its reservation has no end"
    settings = tmp_path / "block.yaml"
    text = EXAMPLES["every-part"].read_text(encoding="utf-8")
    settings.write_text(text.replace("kind: on-demand", "kind: capacity-block"), encoding="utf-8")
    made = synthesised(load_settings(settings), tmp_path / "out")
    (rule,) = rules(made)
    assert rule["EventPattern"]["detail-type"] == ["Capacity Block Reservation Expiration Warning"]
    assert rule["EventPattern"]["detail"] == {"capacity-reservation-id": ["cr-0123456789abcdef0"]}
    (policy,) = made.of_type("AWS::SNS::TopicPolicy")
    assert "events.amazonaws.com" in json.dumps(policy)


# ---- what a site has already ----

SITE_GROUP = "sg-0123456789abcdef0"
SITE_FILE_SYSTEM = "fs-0123456789abcdef0"
SITE_SCRIPTS = {
    "HeadNodePolicy": {"site-scripts/harden.sh"},
    "ComputePolicy": {"site-scripts/compute/limits.sh"},
    "ProviderPolicy": {"site-scripts/harden.sh", "site-scripts/compute/limits.sh"},
}


def cluster_configuration(assembly: Assembly) -> dict[str, Any]:
    (cluster,) = assembly.of_type("Custom::PclusterCluster")
    configuration: dict[str, Any] = cluster["Properties"]["ClusterConfiguration"]
    return configuration


def test_a_sites_network_leaves_nothing_to_make(site_parts: Assembly) -> None:
    network = site_parts.templates["network"]
    assert "Resources" not in network
    outputs = {key: value["Value"] for key, value in network["Outputs"].items()}
    assert outputs["NodeSecurityGroupId"] == SITE_GROUP


def test_no_group_no_file_system_no_bucket_and_no_rule_in_what_the_site_has(site_parts: Assembly) -> None:
    kinds = {resource["Type"] for _, _, resource in site_parts.resources()}
    assert not [kind for kind in kinds if kind.startswith(("AWS::EC2::", "AWS::S3::"))]
    assert [kind for kind in kinds if kind.startswith("AWS::FSx::")] == ["AWS::FSx::DataRepositoryAssociation"]


def test_associations_are_those_of_the_sites_file_system(site_parts: Assembly) -> None:
    (association,) = site_parts.of_type("AWS::FSx::DataRepositoryAssociation")
    assert association["Properties"]["FileSystemId"] == SITE_FILE_SYSTEM
    assert association["Properties"]["DataRepositoryPath"] == "s3://an-existing-bucket/datasets/"


@pytest.mark.parametrize(("policy", "scripts"), SITE_SCRIPTS.items())
def test_each_kind_of_node_reads_exactly_its_scripts(policy: str, scripts: set[str], site_parts: Assembly) -> None:
    """Two objects of the assets' bucket, and of the site's bucket exactly these."""
    arns = [
        json.dumps(arn)
        for place, statement in site_parts.statements()
        if place.startswith(f"cluster/{policy}") and statement["Action"] == "s3:GetObject"
        for arn in statement["Resource"]
    ]
    sites = {arn for arn in arns if "cdk-hnb659fds-assets-" not in arn}
    assert len(arns) - len(sites) == 2
    expected = ({"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, f":s3:::{script}"]]} for script in scripts)
    assert sites == {json.dumps(arn) for arn in expected}


def test_the_sites_parts_are_in_the_cluster_configuration(site_parts: Assembly) -> None:
    configuration = cluster_configuration(site_parts)
    head, (queue,) = configuration["HeadNode"], configuration["Scheduling"]["SlurmQueues"]
    assert head["Networking"]["AdditionalSecurityGroups"] == [SITE_GROUP, "sg-0123456789abcdef1"]
    assert queue["Networking"]["AdditionalSecurityGroups"] == [SITE_GROUP]
    assert queue["Networking"]["PlacementGroup"] == {"Enabled": True, "Name": "site-group"}
    policies = [one["Policy"] for one in head["Iam"]["AdditionalIamPolicies"]]
    assert "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly" in policies
    policies = [one["Policy"] for one in queue["Iam"]["AdditionalIamPolicies"]]
    assert policies[-1] == "arn:aws:iam::123456789012:policy/site/datasets"
    mounts = {one["MountDir"]: one for one in configuration["SharedStorage"]}
    assert mounts["/fsx"]["FsxLustreSettings"] == {
        "FileSystemId": {"Fn::ImportValue": "site-parts-storage:FileSystemId"}
    }
    assert site_parts.templates["storage"]["Outputs"]["FileSystemId"]["Value"] == SITE_FILE_SYSTEM
    assert mounts["/shared"]["EfsSettings"] == {"FileSystemId": "fs-0123456789abcdef1"}


def test_slipways_own_script_runs_before_the_sites(site_parts: Assembly) -> None:
    configuration = cluster_configuration(site_parts)
    for part, site in (
        (configuration["HeadNode"], {"Script": "s3://site-scripts/harden.sh", "Args": ["--level", "2"]}),
        (configuration["Scheduling"]["SlurmQueues"][0], {"Script": "s3://site-scripts/compute/limits.sh"}),
    ):
        own, *others = part["CustomActions"]["OnNodeConfigured"]["Sequence"]
        assert own["Args"][0] in ("head", "compute")
        assert others == [site]


def test_the_databases_password_is_never_read_at_deployment(site_parts: Assembly) -> None:
    actions = {
        action
        for place, statement in site_parts.statements()
        if place.startswith("cluster/ProviderPolicy")
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert "secretsmanager:DescribeSecret" in actions
    assert "secretsmanager:GetSecretValue" not in actions


def test_the_sites_tags_are_on_the_cluster(site_parts: Assembly) -> None:
    assert {"Key": "team", "Value": "research"} in cluster_configuration(site_parts)["Tags"]


# A region that this release of CDK does not know, so that nothing of it may be taken for granted at synth.
OFF = """\
name: bare
region: eu-west-1
zone: eu-west-1a
storage: {bucket: an-existing-bucket}
queues: [{name: small, instance_type: g6.12xlarge, min_count: 0, max_count: 2}]
observability: {prometheus: false, grafana: false}
acceptance: {scenario: none}
"""


def test_parts_can_be_off(tmp_path: Path) -> None:
    settings = tmp_path / "bare.yaml"
    settings.write_text(OFF, encoding="utf-8")
    done = synthesise(settings, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    bare = Assembly(tmp_path / "out")
    assert set(bare.templates) == {"network", "storage", "observability", "cluster"}
    assert [r["Type"] for r in bare.templates["observability"]["Resources"].values()] == ["AWS::Logs::LogGroup"]
    assert '"AMP_REMOTE_WRITE_URL="' in json.dumps(bare.templates["cluster"])
    assert "aps:RemoteWrite" not in json.dumps(bare.templates["cluster"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OFF.replace("region:", "regoin:"), "regoin"),
        ("name: [", "bad.yaml"),
    ],
)
def test_bad_settings_are_told_without_a_traceback(tmp_path: Path, text: str, said: str) -> None:
    settings = tmp_path / "bad.yaml"
    settings.write_text(text, encoding="utf-8")
    done = synthesise(settings, tmp_path / "out")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_settings_file_is_told_without_a_traceback(tmp_path: Path) -> None:
    done = synthesise(tmp_path / "none.yaml", tmp_path / "out")
    assert done.returncode == 2
    assert "none.yaml" in done.stderr
    assert "Traceback" not in done.stderr
