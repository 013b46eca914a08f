"""Room for a new file system; one that is there, and others to mount."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from arrange_services import efs, file_system
from arrange_vpc import COMPUTE, HEAD, NETWORK, VPC, ZONE, group, vpc
from moto.ec2.models import ec2_backends
from moto.fsx.models import fsx_backends
from preflight_cases import REGION, Case, all_of, check, denied, nothing

from rehearsal.cloud.existing import make_volume
from rehearsal.cloud.seed import ExistingNetwork, ExistingSubnet, make_network
from rehearsal.cloud.volumes import add_cache, add_volume
from rehearsal.cloud_model import ACCOUNT
from slipway.preflight.model import Answer, Status
from tests.aws.preflight_aws import PreflightAws
from tests.aws.quotas import set_quota

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
FS, OTHER_FS, EFS = "fs-0123456789abcdef0", "fs-0123456789abcdef1", "fs-0123456789abcdef2"
VOLUME, CACHE = "fsvol-0123456789abcdef0", "fc-0123456789abcdef0"
NODES, SERVERS = "sg-0123456789abcdef0", "sg-0123456789abcdef1"
OTHER_VPC, OTHER_SUBNET = "vpc-0123456789abcdef1", "subnet-0123456789abcdef2"
LUSTRE_PORTS = ((988, 988), (1018, 1023))
CAPACITY, COUNT = ("fsx", "L-8F1B9C74"), ("fsx", "L-FD6F2F22")
IDS = ("storage", "fsx", "file_system_id")
MOUNT = ("storage", "mounts", 0, "id")
BASE_STORAGE: dict[str, Any] = {"fsx": {"file_system_id": FS}}
EXISTING: dict[str, Any] = {"network": {**NETWORK, "security_group_id": NODES}, "storage": BASE_STORAGE}
BY_ADDRESS: dict[str, Any] = {"network": NETWORK, "storage": BASE_STORAGE}


def linked(*paths: str) -> dict[str, Any]:
    links = [{"path": path, "prefix": f"{path.strip('/')}/"} for path in paths]
    return {**EXISTING, "storage": {**BASE_STORAGE, "bucket": "corp-training-data", "associations": links}}


def mounting(kind: str, mount_id: str, **network: Any) -> dict[str, Any]:
    mounts = [{"path": "/shared", "kind": kind, "id": mount_id}]
    return {"network": {**NETWORK, **network}, "storage": {"mounts": mounts}}


def lets_in(*ports: tuple[int, int], group_id: str = "", cidr: str = "") -> Callable[[PreflightAws], None]:
    """Rules of the servers' group."""
    source: dict[str, Any] = (
        {"UserIdGroupPairs": [{"GroupId": group_id}]} if group_id else {"IpRanges": [{"CidrIp": cidr}]}
    )

    def arrange(aws: PreflightAws) -> None:
        rules = [{"IpProtocol": "tcp", "FromPort": low, "ToPort": high, **source} for low, high in ports]
        if rules:
            aws.clients("ec2").authorize_security_group_ingress(GroupId=SERVERS, IpPermissions=rules)

    return arrange


GROUPS = all_of(vpc(), group(), group(id=SERVERS, ingress=False, egress=False))
OPEN = lets_in(*LUSTRE_PORTS, group_id=NODES)


def lets_a_list_in(aws: PreflightAws) -> None:
    """A rule for a prefix list, whose addresses the question does not ask for."""
    ec2 = aws.clients("ec2")
    made = ec2.create_managed_prefix_list(PrefixListName="site", MaxEntries=4, AddressFamily="IPv4")
    lists = [{"PrefixListId": made["PrefixList"]["PrefixListId"]}]
    rules = [
        {"IpProtocol": "tcp", "FromPort": low, "ToPort": high, "PrefixListIds": lists} for low, high in LUSTRE_PORTS
    ]
    ec2.authorize_security_group_ingress(GroupId=SERVERS, IpPermissions=rules)


def existing(**facts: Any) -> Callable[[PreflightAws], None]:
    return all_of(GROUPS, OPEN, file_system(FS, COMPUTE, SERVERS, **facts))


def other_vpc(aws: PreflightAws) -> None:
    """A second VPC, with a subnet and a group."""
    cidr = "10.99.0.0/24"
    make_network(aws.clients, ExistingNetwork(OTHER_VPC, "10.99.0.0/16", (ExistingSubnet(OTHER_SUBNET, cidr, ZONE),)))


def in_other_vpc(arrange: Callable[[PreflightAws], None]) -> Callable[[PreflightAws], None]:
    return all_of(vpc(), other_vpc, group(id=SERVERS, vpc_id=OTHER_VPC, ingress=False, egress=False), arrange)


def associations(*paths: str) -> Callable[[PreflightAws], None]:
    """Associations that the file system has already."""

    def arrange(aws: PreflightAws) -> None:
        aws.clients("s3").create_bucket(Bucket="old-data")
        for path in paths:
            aws.clients("fsx").create_data_repository_association(
                FileSystemId=FS, FileSystemPath=path, DataRepositoryPath=f"s3://old-data{path}/"
            )

    return arrange


def broken_association(path: str, lifecycle: str, reason: str = "") -> Callable[[PreflightAws], None]:
    """An association that FSx reports as broken."""

    def arrange(aws: PreflightAws) -> None:
        associations(path)(aws)
        for item in fsx_backends[ACCOUNT][REGION].associations.values():
            item |= {"AssociationId": LINK, "Lifecycle": lifecycle}
            if reason:
                item["FailureDetails"] = {"Message": reason}

    return all_of(existing(), arrange)


def efa_enabled(**rules: bool) -> Callable[[PreflightAws], None]:
    """An EFA-enabled file system; by default its group has no rules to itself."""
    lustre = {"DeploymentType": "PERSISTENT_2", "EfaEnabled": True, "PerUnitStorageThroughput": 1000}
    servers = group(id=SERVERS, **{"ingress": False, "egress": False, **rules})
    return all_of(vpc(), group(), servers, OPEN, file_system(FS, COMPUTE, SERVERS, LustreConfiguration=lustre))


def quota(code: tuple[str, str], value: float) -> Callable[[PreflightAws], None]:
    return lambda _: set_quota(REGION, *code, value)


def never_set(aws: PreflightAws) -> None:
    aws.misbehave("service-quotas:GetServiceQuota", error=(400, "NoSuchResourceException", "not there"))


def volume(kind: str, lifecycle: str = "AVAILABLE", system: str = OTHER_FS) -> Callable[[PreflightAws], None]:
    def arrange(aws: PreflightAws) -> None:
        file_system(system, COMPUTE, SERVERS, kind="WINDOWS")(aws)
        add_volume(REGION, VOLUME, kind, system, lifecycle)

    return all_of(GROUPS, arrange)


def room(name: str, status: Status, text: str, path: tuple[str, ...] = ("storage", "fsx"), **more: Any) -> Case:
    return Case("file-system-quota", name, status, text, path, **more)


def system(name: str, status: Status, text: str, path: tuple[Any, ...] = IDS, **more: Any) -> Case:
    return Case("file-system", name, status, text, path, **{"settings": EXISTING, "arrange": existing(), **more})


def mount(name: str, status: Status, text: str, settings: dict[str, Any], **more: Any) -> Case:
    return Case("mounts", name, status, text, MOUNT, settings=settings, **more)


RAISE = "aws service-quotas request-service-quota-increase --region us-east-1 --service-code fsx --quota-code"
INSIDE = f"{SERVERS} of {FS} lets the nodes in"
LINK = "dra-0123456789abcdef0"
TCP = f"{FS} is EFA-enabled, and the nodes use it over TCP: Slipway does not set up EFA for Lustre"
CLOSED = f"{SERVERS} of {FS} does not let the nodes in on TCP"
OPENZFS = mounting("fsx-openzfs", VOLUME)
QUOTA_CASES = [
    room("enough", OK, "room for 4800 GiB of Lustre Persistent_2; of the quota's 100800 GiB 0 are used",
         ("storage", "fsx", "capacity_gib")),
    room("too large", FAULT, "no room for 120000 GiB of Lustre Persistent_2; of the quota's 100800 GiB 0 are used",
         ("storage", "fsx", "capacity_gib"), hint=f"{RAISE} L-8F1B9C74 --desired-value 120000",
         settings={"storage": {"fsx": {"capacity_gib": 120000, "throughput_mb_s_per_tib": 125}}}),
    room("used", FAULT, "no room for 4800 GiB of Lustre Persistent_2; of the quota's 5000 GiB 1200 are used",
         ("storage", "fsx", "capacity_gib"), arrange=all_of(existing(), quota(CAPACITY, 5000))),
    room("other family", OK, "room for 2400 GiB of Lustre Scratch; of the quota's 100800 GiB 0 are used",
         ("storage", "fsx", "capacity_gib"), arrange=existing(),
         settings={"storage": {"fsx": {"deployment": "scratch-2", "capacity_gib": 2400}}}),
    room("too many", FAULT, "the quota of 0 Lustre Persistent_2 file systems is used up",
         hint=f"{RAISE} L-FD6F2F22 --desired-value 1", arrange=quota(COUNT, 0)),
    room("deployed", OK, "the cluster p5 has a Persistent_2 file system already",
         arrange=all_of(existing(Tags=[{"Key": "project", "Value": "p5"}]), quota(COUNT, 1))),
    room("default", OK, "room for 4800 GiB of Lustre Persistent_2; of the quota's 100800 GiB 0 are used",
         ("storage", "fsx", "capacity_gib"), arrange=never_set),
    denied("service-quotas:GetServiceQuota", "file-system-quota", "servicequotas:GetServiceQuota"),
    denied("service-quotas:GetAWSDefaultServiceQuota", "file-system-quota", "servicequotas:GetAWSDefaultServiceQuota",
           arrange=never_set),
    denied("fsx:DescribeFileSystems", "file-system-quota"),
]  # fmt: skip
SYSTEM_CASES = [
    system("available", OK, f"{FS} is AVAILABLE: Lustre 2.15, 1200 GiB"),
    system("by group", OK, INSIDE),
    system("by address", OK, INSIDE, settings=BY_ADDRESS,
           arrange=all_of(GROUPS, lets_in(*LUSTRE_PORTS, cidr="10.0.0.0/16"), file_system(FS, COMPUTE, SERVERS))),
    system("missing", FAULT, f"there is no file system {FS} in {REGION}", hint="correct the id", arrange=GROUPS),
    system("Windows", FAULT, f"{FS} is of type WINDOWS, not LUSTRE", arrange=existing(kind="WINDOWS")),
    system("failed", FAULT, f"{FS} is FAILED", arrange=existing(Lifecycle="FAILED")),
    system("old", WARNING, f"{FS} is AVAILABLE: Lustre 2.10, 1200 GiB",
           arrange=existing(FileSystemTypeVersion="2.10")),
    system("new VPC", FAULT, f"{FS} is in {VPC}: no way leads there from the new VPC",
           hint=f"set network.vpc_id: {VPC} and its subnets", settings={"storage": BASE_STORAGE},
           arrange=all_of(GROUPS, lets_in(*LUSTRE_PORTS, cidr="10.0.0.0/16"), file_system(FS, COMPUTE, SERVERS))),
    system("other VPC", WARNING, f"{FS} is in {OTHER_VPC}, the nodes in {VPC}", settings=BY_ADDRESS,
           arrange=in_other_vpc(all_of(lets_in(*LUSTRE_PORTS, cidr="10.0.0.0/8"), file_system(FS, OTHER_SUBNET, SERVERS)))),
    system("other zone", WARNING, f"{FS} is in {REGION}b, the nodes in {ZONE}",
           hint="every byte crosses zones: slower, and paid for per GB",
           arrange=all_of(vpc(zone=f"{REGION}b"), group(), group(id=SERVERS), OPEN, file_system(FS, HEAD, SERVERS))),
    system("closed", FAULT, f"{CLOSED} 988 and 1018-1023",
           hint=f"add an inbound rule to {SERVERS}: TCP 988 and 1018-1023 from {NODES}",
           arrange=all_of(GROUPS, file_system(FS, COMPUTE, SERVERS))),
    system("open to a prefix list", WARNING,
           f"{SERVERS} of {FS} lets prefix lists in on TCP 988 and 1018-1023: the nodes may be in them or not",
           arrange=all_of(GROUPS, lets_a_list_in, file_system(FS, COMPUTE, SERVERS)),
           hint="look whether they have the nodes' addresses"),
    system("half open", WARNING, f"{CLOSED} 1018-1023",
           arrange=all_of(GROUPS, lets_in((988, 988), group_id=NODES), file_system(FS, COMPUTE, SERVERS))),
    system("open to others", FAULT, f"{CLOSED} 988 and 1018-1023", settings=BY_ADDRESS,
           hint=f"add an inbound rule to {SERVERS}: TCP 988 and 1018-1023 from 10.0.128.0/17",
           arrange=all_of(GROUPS, lets_in(*LUSTRE_PORTS, cidr="10.0.0.0/24"), file_system(FS, COMPUTE, SERVERS))),
    system("overlap", FAULT, "/datasets overlaps the association /datasets/imagenet that the file system has already",
           ("storage", "associations", 0, "path"), settings=linked("/datasets"),
           arrange=all_of(existing(), associations("/datasets/imagenet"))),
    system("too many", FAULT, "7 associations are there and 2 are to come; a file system takes 8",
           ("storage", "associations"), settings=linked("/x", "/y"),
           arrange=all_of(existing(), associations(*(f"/old{number}" for number in range(7))))),
    system("scratch-1", FAULT, "a SCRATCH_1 file system takes no associations", ("storage", "associations"),
           settings=linked("/x"), arrange=existing(deployment="SCRATCH_1")),
    system("EFA", WARNING, f"{TCP}; {SERVERS} also has no rules for all traffic to itself, without which EFA does not pass",
           arrange=efa_enabled(),
           hint="expect TCP's throughput, or run the client set-up of the FSx for Lustre user guide in queues[].scripts, "
           "and add these rules, inbound and outbound"),
    system("EFA with rules", WARNING, TCP, arrange=efa_enabled(ingress=True, egress=True),
           hint="expect TCP's throughput, or run the client set-up of the FSx for Lustre user guide in queues[].scripts"),
    system("association misconfigured", FAULT,
           f"the association {LINK} of /results with s3://old-data/results/ is MISCONFIGURED: access to the bucket was denied",
           hint="let FSx read and write the bucket (policy, KMS key, region): FSx then goes on by itself; or remove it: "
           f"aws fsx delete-data-repository-association --association-id {LINK}",
           arrange=broken_association("/results", "MISCONFIGURED", "access to the bucket was denied")),
    system("association failed", FAULT,
           f"the association {LINK} of /results with s3://old-data/results/ is FAILED: FSx gives no reason",
           hint=f"remove it: aws fsx delete-data-repository-association --association-id {LINK}",
           arrange=broken_association("/results", "FAILED")),
    denied("fsx:DescribeFileSystems", "file-system", settings=EXISTING, arrange=existing()),
    denied("fsx:DescribeDataRepositoryAssociations", "file-system", settings=EXISTING, arrange=existing()),
    denied("ec2:DescribeNetworkInterfaces", "file-system", settings=EXISTING, arrange=existing()),
    denied("ec2:DescribeSubnets", "file-system", settings=EXISTING, arrange=existing()),
    denied("ec2:DescribeSecurityGroups", "file-system", settings=EXISTING, arrange=existing()),
]  # fmt: skip
MOUNT_CASES = [
    mount("Lustre", OK, f"{FS} is AVAILABLE: Lustre 2.15, 1200 GiB", mounting("fsx-lustre", FS), arrange=existing()),
    mount("no Lustre", FAULT, f"there is no fsx-lustre {FS} in {REGION}", mounting("fsx-lustre", FS)),
    mount("OpenZFS", OK, f"{VOLUME} is AVAILABLE", OPENZFS, arrange=volume("OPENZFS")),
    mount("ONTAP", OK, f"{VOLUME} is CREATED", mounting("fsx-ontap", VOLUME), arrange=volume("ONTAP", "CREATED")),
    mount("no volume", FAULT, f"there is no fsx-openzfs {VOLUME} in {REGION}", OPENZFS, hint="correct the id"),
    mount("failed volume", FAULT, f"{VOLUME} is FAILED", OPENZFS, arrange=volume("OPENZFS", "FAILED"),
          hint="repair it, or leave the mount out"),
    mount("other kind", FAULT, f"{VOLUME} is a volume of ONTAP, not of OPENZFS", OPENZFS, arrange=volume("ONTAP")),
    mount("cache", OK, f"{CACHE} is AVAILABLE", mounting("file-cache", CACHE),
          arrange=lambda _: add_cache(REGION, CACHE, VPC)),
    mount("cache elsewhere", WARNING, f"{CACHE} is in {OTHER_VPC}, the nodes in {VPC}", mounting("file-cache", CACHE),
          arrange=lambda _: add_cache(REGION, CACHE, OTHER_VPC)),
    mount("EFS", OK, f"{EFS} is available, with a mount target in {ZONE}", mounting("efs", EFS),
          arrange=all_of(vpc(), efs(EFS, subnet=COMPUTE))),
    mount("no EFS", FAULT, f"there is no efs {EFS} in {REGION}", mounting("efs", EFS)),
    mount("EFS to come", FAULT, f"{EFS} is creating", mounting("efs", EFS), arrange=efs(EFS, "creating")),
    mount("no mount target", FAULT, f"{EFS} has no mount target in {ZONE}", mounting("efs", EFS),
          arrange=all_of(vpc(zone=f"{REGION}b"), efs(EFS, subnet=COMPUTE)),
          hint=f"aws efs create-mount-target --file-system-id {EFS} --subnet-id (one in {ZONE})"),
    mount("EFS, new VPC", FAULT, f"{EFS} is in {VPC}: no way leads there from the new VPC",
          {"storage": {"mounts": [{"path": "/shared", "kind": "efs", "id": EFS}]}},
          arrange=all_of(vpc(), efs(EFS, subnet=COMPUTE))),
    denied("fsx:DescribeFileSystems", "mounts", settings=mounting("fsx-lustre", FS)),
    denied("fsx:DescribeVolumes", "mounts", settings=OPENZFS),
    denied("fsx:DescribeFileCaches", "mounts", settings=mounting("file-cache", CACHE)),
    denied("efs:DescribeFileSystems", "mounts", "elasticfilesystem:DescribeFileSystems", settings=mounting("efs", EFS)),
    denied("efs:DescribeMountTargets", "mounts", "elasticfilesystem:DescribeMountTargets",
           settings=mounting("efs", EFS), arrange=all_of(vpc(), efs(EFS, subnet=COMPUTE))),
]  # fmt: skip
HOME_ID = "vol-0123456789abcdef0"
HOME: dict[str, Any] = {"storage": {"home": {"kind": "ebs", "volume_id": HOME_ID}}}
HOME_FACTS = f"{HOME_ID}: 500 GiB gp3 in"


def home_volume(zone: str = ZONE, encrypted: bool = True) -> Callable[[PreflightAws], None]:
    def arrange(aws: PreflightAws) -> None:
        make_volume(aws.clients, HOME_ID, zone)
        ec2_backends[ACCOUNT][REGION].volumes[HOME_ID].encrypted = encrypted

    return arrange


def attached_to(cluster: str) -> Callable[[PreflightAws], None]:
    """To a head node of that cluster."""

    def arrange(aws: PreflightAws) -> None:
        home_volume()(aws)
        ec2 = aws.clients("ec2")
        image = ec2.describe_images()["Images"][0]["ImageId"]
        tags = [
            {"Key": "parallelcluster:cluster-name", "Value": cluster},
            {"Key": "parallelcluster:node-type", "Value": "HeadNode"},
        ]
        made = ec2.run_instances(
            ImageId=image, MinCount=1, MaxCount=1, Placement={"AvailabilityZone": ZONE},
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )  # fmt: skip
        ec2.attach_volume(VolumeId=HOME_ID, InstanceId=made["Instances"][0]["InstanceId"], Device="/dev/sdf")

    return arrange


def home(name: str, status: Status, text: str, arrange: Any = nothing, **more: Any) -> Case:
    path = ("storage", "home", "volume_id")
    return Case("existing-home", name, status, text, path, settings=HOME, arrange=arrange, **more)


HOME_CASES = [
    home("available", OK, f"{HOME_FACTS} {ZONE}, available", home_volume()),
    home("missing", FAULT, f"there is no volume {HOME_ID} in {REGION}", hint="correct the id"),
    home("other zone", FAULT, f"{HOME_FACTS} {REGION}b; the head node is in {ZONE}", home_volume(f"{REGION}b")),
    home("open", WARNING, f"{HOME_ID} is not encrypted", home_volume(encrypted=False)),
    home("ours", OK, f"{HOME_FACTS} {ZONE}, attached to the head node of p5", attached_to("p5")),
    denied("ec2:DescribeVolumes", "existing-home", settings=HOME, arrange=home_volume()),
    denied("ec2:DescribeInstances", "existing-home", settings=HOME, arrange=attached_to("p5")),
]
CASES = [*QUOTA_CASES, *SYSTEM_CASES, *MOUNT_CASES, *HOME_CASES]


def test_a_home_of_another_cluster_is_not_taken(ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    (answer,) = ask(home("theirs", FAULT, "", attached_to("other")))
    assert (answer.status, answer.text[: len(HOME_FACTS)]) == (FAULT, HOME_FACTS)
    assert "is attached to i-" in answer.text
    assert "two hosts cannot write to it" in answer.hint


@pytest.mark.parametrize("case", CASES, ids=str)
def test_file_systems(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))
