"""Resource types: what a cluster's stacks use is made through its service, with the service's rules, and can be deleted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.fsx.models import FileSystem

from rehearsal.cloud.seed import ExistingNetwork, ExistingSubnet, Reservation, Seed
from rehearsal.cloud.server import EmbeddedAws

from .conftest import Deployer

SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:ngc-AbCdEf"


def ref(name: str) -> dict[str, str]:
    return {"Ref": name}


def att(name: str, attribute: str) -> dict[str, list[str]]:
    return {"Fn::GetAtt": [name, attribute]}


def lustre(subnet: str, capacity: Any = 4800, **configuration: Any) -> dict[str, Any]:
    settings = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250, **configuration}
    return {
        "Type": "AWS::FSx::FileSystem",
        "Properties": {
            "FileSystemType": "LUSTRE",
            "StorageCapacity": capacity,
            "SubnetIds": [subnet],
            "LustreConfiguration": {key: value for key, value in settings.items() if value is not None},
        },
    }


def association(path: str, prefix: str, file_system: Any = None) -> dict[str, Any]:
    return {
        "Type": "AWS::FSx::DataRepositoryAssociation",
        "Properties": {
            "FileSystemId": file_system or ref("Fs"),
            "FileSystemPath": path,
            "DataRepositoryPath": {"Fn::Sub": f"s3://${{Data}}/{prefix}"},
        },
    }


def test_a_network_is_made_and_deleted_in_order(aws: EmbeddedAws, deployer: Deployer) -> None:
    def typed(kind: str, depends: str = "", **properties: Any) -> dict[str, Any]:
        return {"Type": f"AWS::EC2::{kind}", "Properties": properties, **({"DependsOn": depends} if depends else {})}

    vpc = ref("Vpc")
    group = ref("Group")
    resources = {
        "Vpc": typed("VPC", CidrBlock="10.0.0.0/16", EnableDnsHostnames=True, EnableDnsSupport="true"),
        "Public": typed("Subnet", VpcId=vpc, CidrBlock="10.0.0.0/24", AvailabilityZone="us-east-1a", MapPublicIpOnLaunch=True),
        "Private": typed("Subnet", VpcId=vpc, CidrBlock="10.0.64.0/18", AvailabilityZone="us-east-1a"),
        "Gateway": typed("InternetGateway"),
        "Attached": typed("VPCGatewayAttachment", VpcId=vpc, InternetGatewayId=ref("Gateway")),
        "Routes": typed("RouteTable", VpcId=vpc),
        "Route": typed("Route", "Attached", RouteTableId=ref("Routes"), DestinationCidrBlock="0.0.0.0/0", GatewayId=ref("Gateway")),
        "Joined": typed("SubnetRouteTableAssociation", RouteTableId=ref("Routes"), SubnetId=ref("Public")),
        "Address": typed("EIP", Domain="vpc"),
        "Nat": typed("NatGateway", SubnetId=ref("Public"), AllocationId=att("Address", "AllocationId")),
        "S3": typed("VPCEndpoint", VpcId=vpc, ServiceName="com.amazonaws.us-east-1.s3", RouteTableIds=[ref("Routes")]),
        "Group": typed("SecurityGroup", VpcId=vpc, GroupDescription="efa", SecurityGroupEgress=[{"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "CidrIp": "0.0.0.0/0"}]),
        "In": typed("SecurityGroupIngress", GroupId=group, IpProtocol="-1", SourceSecurityGroupId=group),
        "Out": typed("SecurityGroupEgress", GroupId=group, IpProtocol="-1", DestinationSecurityGroupId=group),
        "Near": typed("PlacementGroup", Strategy="cluster"),
    }  # fmt: skip
    stack = deployer.create(resources, name="wires", Outputs={"Group": {"Value": group}, "Vpc": {"Value": vpc}})
    assert stack["StackStatus"] == "CREATE_COMPLETE", deployer.failures("wires")
    made = deployer.outputs(stack)
    ec2 = aws.clients("ec2")
    found = ec2.describe_security_groups(GroupIds=[made["Group"]])["SecurityGroups"][0]
    to_itself = [rule for rule in found["IpPermissionsEgress"] if rule["UserIdGroupPairs"]]
    assert ec2.describe_vpc_attribute(VpcId=made["Vpc"], Attribute="enableDnsHostnames")["EnableDnsHostnames"]["Value"]
    assert (len(found["IpPermissions"]), len(found["IpPermissionsEgress"]), len(to_itself)) == (1, 2, 1)
    assert deployer.delete("wires")["StackStatus"] == "DELETE_COMPLETE", deployer.failures(stack["StackId"])
    with pytest.raises(ClientError, match="InvalidVpcID"):
        ec2.describe_vpcs(VpcIds=[made["Vpc"]])


def test_a_file_system_with_associations(aws: EmbeddedAws, deployer: Deployer, subnet: str) -> None:
    resources = {
        "Data": {"Type": "AWS::S3::Bucket"},
        "Fs": lustre(subnet, "4800", DataCompressionType="LZ4"),
        "A": association("/datasets", "datasets/"),
        "B": association("/models", "models/"),
    }
    outputs = {"Mount": {"Value": att("Fs", "LustreMountName")}, "Id": {"Value": ref("Fs")}}
    stack = deployer.create(resources, Outputs=outputs)
    made = deployer.outputs(stack)
    described = aws.clients("fsx").describe_file_systems(FileSystemIds=[made["Id"]])["FileSystems"][0]
    assert (len(made["Id"]), described["Lifecycle"]) == (len("fs-") + 17, "AVAILABLE")
    assert described["LustreConfiguration"]["MountName"] == made["Mount"]
    assert described["DNSName"] == f"{made['Id']}.fsx.us-east-1.amazonaws.com"
    interface = described["NetworkInterfaceIds"][0]
    ec2 = aws.clients("ec2")
    assert (
        ec2.describe_network_interfaces(NetworkInterfaceIds=[interface])["NetworkInterfaces"][0]["SubnetId"] == subnet
    )
    assert deployer.delete(stack["StackName"])["StackStatus"] == "DELETE_COMPLETE"
    with pytest.raises(ClientError, match="InvalidNetworkInterfaceID"):
        ec2.describe_network_interfaces(NetworkInterfaceIds=[interface])


def test_file_systems_are_described_while_one_goes(
    aws: EmbeddedAws, subnet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion ends in a thread of its own, also in the middle of an answer."""
    fsx = aws.clients("fsx")
    lustre_1 = {"StorageCapacity": 1200, "FileSystemType": "LUSTRE", "SubnetIds": [subnet]}
    first, second = (fsx.create_file_system(**lustre_1)["FileSystem"]["FileSystemId"] for _ in range(2))
    described = FileSystem.to_dict

    def to_dict(system: FileSystem) -> dict[str, Any]:
        system.backend.file_systems.pop(second, None)
        return described(system)

    monkeypatch.setattr(FileSystem, "to_dict", to_dict)
    assert [item["FileSystemId"] for item in fsx.describe_file_systems()["FileSystems"]] == [first, second]
    assert [item["FileSystemId"] for item in fsx.describe_file_systems()["FileSystems"]] == [first]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"capacity": 3000}, "1200 or a multiple of 2400"),
        ({"PerUnitStorageThroughput": 200}, "PerUnitStorageThroughput 200 is invalid for PERSISTENT_2"),
        ({"PerUnitStorageThroughput": None}, "PerUnitStorageThroughput None is invalid"),
        ({"ImportPath": "s3://b"}, "does not take ImportPath"),
        ({"DeploymentType": "SCRATCH_2"}, "not allowed for deployment type SCRATCH_2"),
    ],
)
def test_rules_of_lustre(deployer: Deployer, subnet: str, change: dict[str, Any], words: str) -> None:
    stack = deployer.create({"Fs": lustre(subnet, **change)})
    assert words in deployer.failures(stack["StackName"])["Fs"]


def _behind(group: Any, ports: tuple[tuple[int, int], ...] = ((988, 988), (1018, 1023))) -> dict[str, Any]:
    """Rules of a group for itself, in and out."""
    made: dict[str, Any] = {}
    for first, last in ports:
        for direction, peer in (("Ingress", "Source"), ("Egress", "Destination")):
            rule = {"GroupId": group, "IpProtocol": "tcp", "FromPort": first, "ToPort": last}
            made[f"{direction}{first}"] = {
                "Type": f"AWS::EC2::SecurityGroup{direction}",
                "Properties": {**rule, f"{peer}SecurityGroupId": group},
            }
    return made


@pytest.mark.parametrize("without", ["", "Ingress988", "Egress988", "Ingress1018", "everything"])
def test_lustre_needs_its_groups_rules_when_it_is_made(
    aws: EmbeddedAws, deployer: Deployer, subnet: str, without: str
) -> None:
    """aws-parallelcluster issue 6181: the rules came a second too late."""
    vpc = aws.clients("ec2").describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    nothing = [{"IpProtocol": "icmp", "FromPort": 252, "ToPort": 86, "CidrIp": "255.255.255.255/32"}]
    properties = {"GroupDescription": "g", "VpcId": vpc, "SecurityGroupEgress": nothing}
    rules = _behind(ref("Group"))
    system = lustre(subnet)
    system["Properties"]["SecurityGroupIds"] = [ref("Group")]
    system["DependsOn"] = [] if without == "everything" else [name for name in rules if name != without]
    resources = {"Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": properties}, **rules, "Fs": system}
    stack = deployer.create(resources)
    if not without:
        assert stack["StackStatus"] == "CREATE_COMPLETE", deployer.failures(stack["StackName"])
    else:
        assert "do not permit Lustre LNET" in deployer.failures(stack["StackName"])["Fs"]


def test_a_file_system_grows_in_place_and_is_replaced_for_another_kind(deployer: Deployer, subnet: str) -> None:
    outputs = {"Id": {"Value": ref("Fs")}}
    ids = [deployer.outputs(deployer.create({"Fs": lustre(subnet)}, name="grows", Outputs=outputs))["Id"]]
    for change in (
        {"capacity": 9600},
        {"capacity": 9600, "DataCompressionType": "NONE"},
        {"capacity": 9600, "DataCompressionType": "NONE", "PerUnitStorageThroughput": 500},
        {"capacity": 9600, "DeploymentType": "SCRATCH_2", "PerUnitStorageThroughput": None},
    ):
        ids.append(deployer.outputs(deployer.update("grows", {"Fs": lustre(subnet, **change)}, Outputs=outputs))["Id"])
    assert ids[0] == ids[1] == ids[2]
    assert len({*ids[2:]}) == 3  # another throughput or deployment type: CloudFormation replaces it
    smaller = lustre(subnet, capacity=4800, DeploymentType="SCRATCH_2", PerUnitStorageThroughput=None)
    shrunk = deployer.update("grows", {"Fs": smaller}, Outputs=outputs)
    assert shrunk["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"


def test_an_association_with_another_prefix_overlaps_its_own_old_one(deployer: Deployer, subnet: str) -> None:
    """A replacement is made before the old association is deleted."""
    both = {"Data": {"Type": "AWS::S3::Bucket"}, "Fs": lustre(subnet)}
    deployer.create({**both, "A": association("/d", "one/")}, name="moves")
    assert deployer.update("moves", {**both, "A": association("/d", "two/")})["StackStatus"].endswith(
        "ROLLBACK_COMPLETE"
    )
    assert "overlaps" in deployer.failures("moves")["A"]
    assert deployer.update("moves", both)["StackStatus"] == "UPDATE_COMPLETE"
    assert deployer.update("moves", {**both, "A": association("/d", "two/")})["StackStatus"] == "UPDATE_COMPLETE"


def test_a_volume_grows_but_does_not_shrink(aws: EmbeddedAws, deployer: Deployer) -> None:
    def volume(size: int) -> dict[str, Any]:
        properties = {"AvailabilityZone": "us-east-1a", "Size": size, "VolumeType": "gp3", "Encrypted": True}
        return {"V": {"Type": "AWS::EC2::Volume", "Properties": {**properties, "Tags": [{"Key": "a", "Value": "b"}]}}}

    outputs = {"Id": {"Value": ref("V")}}
    made = deployer.outputs(deployer.create(volume(10), name="volume", Outputs=outputs))["Id"]
    assert deployer.outputs(deployer.update("volume", volume(20), Outputs=outputs))["Id"] == made
    described = aws.clients("ec2").describe_volumes(VolumeIds=[made])["Volumes"][0]
    assert (described["Size"], described["Encrypted"], described["Tags"]) == (20, True, [{"Key": "a", "Value": "b"}])
    assert deployer.update("volume", volume(10), Outputs=outputs)["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"Z": association("/d/sub", "z/")}, "FileSystemPath /d/sub overlaps /d"),
        ({"Z": association("/z", "d/sub/")}, "overlaps"),
        ({"Z": association("/z", "z/", "fs-0123456789abcdef0")}, "does not exist"),
        ({f"Z{n}": association(f"/z{n}", f"z{n}/") for n in range(8)}, "At most 8 data repository associations"),
    ],
)
def test_rules_of_associations(deployer: Deployer, subnet: str, extra: dict[str, Any], words: str) -> None:
    later = {key: {**body, "DependsOn": "First"} for key, body in extra.items()}
    first = {"First": association("/d", "d/")}
    stack = deployer.create({"Data": {"Type": "AWS::S3::Bucket"}, "Fs": lustre(subnet), **first, **later})
    assert any(words in reason for reason in deployer.failures(stack["StackName"]).values())


@pytest.mark.parametrize(
    ("deployment", "repository", "words"),
    [
        ("SCRATCH_1", "s3://${Data}/d", "not supported on LUSTRE SCRATCH_1"),
        ("PERSISTENT_2", "s3://nobodys-bucket/d", "Unable to validate access"),
    ],
)
def test_associations_need_a_fitting_file_system_and_a_bucket(
    deployer: Deployer, subnet: str, deployment: str, repository: str, words: str
) -> None:
    throughput = 250 if deployment == "PERSISTENT_2" else None
    body = association("/d", "d")
    body["Properties"]["DataRepositoryPath"] = {"Fn::Sub": repository}
    system = lustre(subnet, DeploymentType=deployment, PerUnitStorageThroughput=throughput)
    stack = deployer.create({"Data": {"Type": "AWS::S3::Bucket"}, "Fs": system, "A": body})
    assert words in deployer.failures(stack["StackName"])["A"]


def test_observability_and_the_rest(aws: EmbeddedAws, deployer: Deployer) -> None:
    threshold = {"ComparisonOperator": "GREATER_THAN", "NotificationType": "ACTUAL", "Threshold": 80}
    budget = {"BudgetType": "COST", "TimeUnit": "MONTHLY", "BudgetLimit": {"Amount": 500, "Unit": "USD"}}
    subscriber = {"SubscriptionType": "EMAIL", "Address": "ops@example.com"}
    grafana = {
        "AccountAccessType": "CURRENT_ACCOUNT",
        "AuthenticationProviders": ["AWS_SSO"],
        "PermissionType": "SERVICE_MANAGED",
    }
    alarm = {"Namespace": "n", "MetricName": "m", "Statistic": "Sum", "Period": 60, "EvaluationPeriods": 1, "Threshold": 1, "ComparisonOperator": "GreaterThanThreshold"}  # fmt: skip
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}]}  # fmt: skip
    resources = {
        "Amp": {"Type": "AWS::APS::Workspace", "Properties": {"Alias": "ml"}},
        "Amg": {"Type": "AWS::Grafana::Workspace", "Properties": grafana},
        "Topic": {"Type": "AWS::SNS::Topic"},
        "Mail": {"Type": "AWS::SNS::Subscription", "Properties": {"TopicArn": ref("Topic"), "Protocol": "email", "Endpoint": "ops@example.com"}},
        "Alarm": {"Type": "AWS::CloudWatch::Alarm", "Properties": {**alarm, "AlarmActions": [ref("Topic")]}},
        "Budget": {"Type": "AWS::Budgets::Budget", "Properties": {"Budget": budget, "NotificationsWithSubscribers": [{"Notification": threshold, "Subscribers": [subscriber]}]}},
        "Secret": {"Type": "AWS::SecretsManager::Secret", "Properties": {"GenerateSecretString": {"GenerateStringKey": "password", "SecretStringTemplate": "{}"}}},
        "Rule": {"Type": "AWS::Events::Rule", "Properties": {"EventPattern": {"source": ["aws.ec2"]}, "Targets": [{"Id": "t", "Arn": ref("Topic")}]}},
        "Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"RetentionInDays": 30}},
        "Data": {"Type": "AWS::S3::Bucket"},
        "Policy": {"Type": "AWS::S3::BucketPolicy", "Properties": {"Bucket": ref("Data"), "PolicyDocument": policy}},
        "Meta": {"Type": "AWS::CDK::Metadata"},
    }  # fmt: skip
    outputs = {"Url": {"Value": att("Amp", "PrometheusEndpoint")}, "Data": {"Value": ref("Data")}}
    stack = deployer.create(resources, name="rest", Outputs=outputs)
    assert stack["StackStatus"] == "CREATE_COMPLETE", deployer.failures("rest")
    made = deployer.outputs(stack)
    assert made["Url"].startswith(f"http://localhost:{aws.port}/workspaces/ws-")
    aws.clients("s3").put_object(Bucket=made["Data"], Key="k", Body=b"a TLS-only policy must not block the rehearsal")
    assert json.loads(aws.clients("s3").get_bucket_policy(Bucket=made["Data"])["Policy"]) == policy
    aws.clients("s3").delete_object(Bucket=made["Data"], Key="k")
    assert deployer.delete("rest")["StackStatus"] == "DELETE_COMPLETE", deployer.failures(stack["StackId"])


def test_grafana_needs_a_login(deployer: Deployer) -> None:
    body = {"AccountAccessType": "CURRENT_ACCOUNT", "AuthenticationProviders": ["PASSWORD"], "PermissionType": "x"}
    stack = deployer.create({"Amg": {"Type": "AWS::Grafana::Workspace", "Properties": body}})
    assert "must be AWS_SSO or SAML" in deployer.failures(stack["StackName"])["Amg"]


def test_roles_and_functions(deployer: Deployer) -> None:
    trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}]}  # fmt: skip
    allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}
    managed = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
    resources = {
        "Role": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": trust, "ManagedPolicyArns": [managed]}},
        "Inline": {"Type": "AWS::IAM::Policy", "Properties": {"PolicyName": "p", "PolicyDocument": allow, "Roles": [ref("Role")]}},
        "Managed": {"Type": "AWS::IAM::ManagedPolicy", "Properties": {"PolicyDocument": allow, "Roles": [ref("Role")]}},
        "Profile": {"Type": "AWS::IAM::InstanceProfile", "Properties": {"Roles": [ref("Role")]}},
        "Function": {"Type": "AWS::Lambda::Function", "Properties": {"Runtime": "python3.12", "Handler": "index.f", "Role": att("Role", "Arn"), "Code": {"ZipFile": "def f(e, c): return 1"}}},
        "May": {"Type": "AWS::Lambda::Permission", "Properties": {"FunctionName": att("Function", "Arn"), "Action": "lambda:InvokeFunction", "Principal": "events.amazonaws.com"}},
    }  # fmt: skip
    stack = deployer.create(resources, name="roles")
    assert stack["StackStatus"] == "CREATE_COMPLETE", deployer.failures("roles")
    assert deployer.delete("roles")["StackStatus"] == "DELETE_COMPLETE", deployer.failures(stack["StackId"])


@pytest.fixture(scope="module")
def seeded(aws: EmbeddedAws) -> EmbeddedAws:
    subnets = (
        ExistingSubnet("subnet-0123456789abcdef0", "10.0.0.0/24", "us-east-1a", public=True),
        ExistingSubnet("subnet-0123456789abcdef1", "10.0.64.0/18", "us-east-1b"),
    )
    aws.seed(
        Seed(
            reservations=(Reservation("cr-0123456789abcdef1", "p5.48xlarge", 4, "us-east-1a", "capacity-block"),),
            key_pairs=("gpu",),
            secret_arns=(SECRET,),
            buckets=("datasets-of-ours",),
            network=ExistingNetwork("vpc-0123456789abcdef0", "10.0.0.0/16", subnets),
        )
    )
    return aws


def test_seed_makes_what_settings_name(seeded: EmbeddedAws) -> None:
    ec2 = seeded.clients("ec2")
    block = ec2.describe_capacity_reservations(CapacityReservationIds=["cr-0123456789abcdef1"])["CapacityReservations"][
        0
    ]
    zones = {item["SubnetId"]: item["AvailabilityZone"] for item in ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": ["vpc-0123456789abcdef0"]}])["Subnets"]}  # fmt: skip
    images = ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "name", "Values": ["aws-parallelcluster-3.16.1-ubuntu-2204*x86_64*"]}])["Images"]  # fmt: skip
    assert (block["ReservationType"], block["State"], block["TotalInstanceCount"]) == ("capacity-block", "active", 4)
    assert zones == {"subnet-0123456789abcdef0": "us-east-1a", "subnet-0123456789abcdef1": "us-east-1b"}
    assert len(images) == 1
    assert seeded.clients("secretsmanager").get_secret_value(SecretId=SECRET)["ARN"] == SECRET
    assert ec2.describe_key_pairs(KeyNames=["gpu"])["KeyPairs"]
    version = seeded.clients("ssm").get_parameter(Name="/cdk-bootstrap/hnb659fds/version")["Parameter"]["Value"]
    assert int(version) >= 6


def _launch(aws: EmbeddedAws, kind: str, count: int) -> list[str]:
    ec2 = aws.clients("ec2")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    started = ec2.run_instances(
        ImageId=image, InstanceType=kind, SubnetId="subnet-0123456789abcdef0", MinCount=count, MaxCount=count
    )
    return [one["InstanceId"] for one in started["Instances"]]


def test_the_topology_of_running_instances_comes_in_pages(seeded: EmbeddedAws) -> None:
    ec2 = seeded.clients("ec2")
    p5, b200, (small, *_) = (_launch(seeded, *one) for one in (("p5.48xlarge", 105), ("p6-b200.48xlarge", 1), ("g5.48xlarge", 1)))  # fmt: skip
    only = [{"Name": "instance-type", "Values": ["p5.*"]}, {"Name": "availability-zone", "Values": ["us-east-1a"]}]
    first = ec2.describe_instance_topology(Filters=only)
    assert (len(first["Instances"]), bool(first["NextToken"])) == (20, True)
    pages = list(
        ec2.get_paginator("describe_instance_topology").paginate(Filters=only, PaginationConfig={"PageSize": 100})
    )
    assert [len(page["Instances"]) for page in pages] == [100, 5]
    found = {one["InstanceId"]: one for page in pages for one in page["Instances"]}
    assert found.keys() == set(p5)
    assert {len(one["NetworkNodes"]) for one in found.values()} == {3}
    assert [len({one["NetworkNodes"][level] for one in found.values()}) for level in range(3)] == [1, 2, 7]
    ec2.terminate_instances(InstanceIds=p5)
    asked = {one["InstanceId"]: one.get("NetworkNodes") for one in ec2.describe_instance_topology(InstanceIds=[p5[0], *b200, small])["Instances"]}  # fmt: skip
    assert len(asked.pop(b200[0]) or ()) == 4
    assert asked == {p5[0]: None, small: None}  # no longer running; a type without a topology
    ec2.terminate_instances(InstanceIds=[*b200, small])


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"InstanceIds": ["i-00000000000000000"]}, "InvalidInstanceID.NotFound"),
        ({"InstanceIds": [f"i-{one:017x}" for one in range(101)]}, "InvalidParameterValue"),
        ({"InstanceIds": ["i-00000000000000000"], "MaxResults": 5}, "InvalidParameterCombination"),
        ({"MaxResults": 101}, "InvalidParameterValue"),
        ({"Filters": [{"Name": "instance-id", "Values": ["i-1"]}]}, "InvalidParameterValue"),
    ],
)
def test_a_wrong_question_about_the_topology_is_refused(seeded: EmbeddedAws, wrong: dict[str, Any], code: str) -> None:
    with pytest.raises(ClientError) as caught:
        seeded.clients("ec2").describe_instance_topology(**wrong)
    assert caught.value.response["Error"]["Code"] == code


def test_an_unknown_reservation_is_no_reservation(seeded: EmbeddedAws) -> None:
    with pytest.raises(ClientError, match=r"InvalidCapacityReservationId\.NotFound"):
        seeded.clients("ec2").describe_capacity_reservations(CapacityReservationIds=["cr-0123456789abcdeff"])


def test_the_provider_of_parallelcluster_is_a_stack(seeded: EmbeddedAws, deployer: Deployer) -> None:
    url = "https://us-east-1-aws-parallelcluster.s3.us-east-1.amazonaws.com/parallelcluster/3.16.1/templates/custom_resource/cluster.yaml"
    provider = {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": url, "Parameters": {"AdditionalIamPolicies": "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"}}}  # fmt: skip
    stack = deployer.create({"P": provider}, Outputs={"T": {"Value": att("P", "Outputs.ServiceToken")}})
    assert ":function:" in deployer.outputs(stack)["T"]


def test_every_recorded_type_has_a_reason() -> None:
    from rehearsal.cloud.catalog import FROM_MOTO, RECORDED

    assert all(len(reason) > 10 for reason in RECORDED.values())
    assert not FROM_MOTO & set(RECORDED)
