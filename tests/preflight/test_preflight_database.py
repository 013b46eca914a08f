"""The database of Slurm's accounting: in RDS, in Aurora, or elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from arrange_vpc import HEAD, NETWORK, VPC, group, vpc
from moto.rds.models import rds_backends
from preflight_cases import REGION, Case, all_of, check, denied, merged

from rehearsal.cloud.seed import ExistingNetwork, ExistingSubnet, make_network
from rehearsal.cloud_model import ACCOUNT
from slipway.preflight.model import Answer, Status
from tests.aws.preflight_aws import PreflightAws

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
SECRET = f"arn:aws:secretsmanager:{REGION}:123456789012:secret:slurm-AbCdEf"
HOST = f"slurm.aaaaaaaaaa.{REGION}.rds.amazonaws.com"  # as moto names it
DB_GROUP, NODES, OTHER_VPC = "sg-0123456789abcdef7", "sg-0123456789abcdef8", "vpc-0bbbbbbbbbbbbbbbb"
PLACE, PORT = ("slurm", "database", "host"), ("slurm", "database", "port")
NC = "nc -vz {} {}; without an answer the head node's boot fails"


def slurm(host: str = HOST, **more: Any) -> dict[str, Any]:
    database = {"host": host, "user": "slurm", "password_secret_arn": SECRET, **more.pop("database", {})}
    return {"slurm": {"database": database}, "network": NETWORK, **more}


NEW_VPC = {"network": {"cidr": "10.0.0.0/16"}}
EXTERNAL = {
    "slurm": {"external_slurmdbd": {"host": "10.4.0.9", "munge_key_secret_arn": SECRET}},
    **NEW_VPC,
}


def lets_in(port: int = 3306, cidr: str = "10.0.0.0/16", group_id: str = "") -> Callable[[PreflightAws], None]:
    source: dict[str, Any] = (
        {"UserIdGroupPairs": [{"GroupId": group_id}]} if group_id else {"IpRanges": [{"CidrIp": cidr}]}
    )
    rule = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, **source}
    return lambda aws: aws.clients("ec2").authorize_security_group_ingress(GroupId=DB_GROUP, IpPermissions=[rule])


def database(
    engine: str = "mysql", *, public: bool = False, subnets: tuple[str, ...] = (HEAD,), **facts: Any
) -> Callable[[PreflightAws], None]:
    """An RDS instance called slurm; `facts` replace what it says of itself."""

    def arrange(aws: PreflightAws) -> None:
        rds = aws.clients("rds")
        rds.create_db_subnet_group(DBSubnetGroupName="db", DBSubnetGroupDescription="db", SubnetIds=list(subnets))
        made = {"DBInstanceClass": "db.m6g.large", "DBSubnetGroupName": "db", "PubliclyAccessible": public}
        rds.create_db_instance(
            DBInstanceIdentifier="slurm",
            Engine=engine,
            AllocatedStorage=20,
            MasterUsername="admin",
            MasterUserPassword="not-a-secret",
            VpcSecurityGroupIds=[DB_GROUP],
            Port=3306,
            **made,
            **facts,
        )

    return arrange


def stopped(aws: PreflightAws) -> None:
    aws.clients("rds").stop_db_instance(DBInstanceIdentifier="slurm")


AURORA = f"slurm.cluster-URL.{REGION}.rds.amazonaws.com"


def aurora(aws: PreflightAws) -> None:
    """An Aurora cluster with one instance; the endpoints get the names that the cases use."""
    rds = aws.clients("rds")
    rds.create_db_subnet_group(DBSubnetGroupName="db", DBSubnetGroupDescription="db", SubnetIds=[HEAD])
    common = {"Engine": "aurora-mysql", "DBSubnetGroupName": "db"}
    rds.create_db_cluster(
        DBClusterIdentifier="slurm",
        MasterUsername="admin",
        MasterUserPassword="not-a-secret",
        Port=3306,
        VpcSecurityGroupIds=[DB_GROUP],
        **common,
    )
    rds.create_db_instance(
        DBInstanceIdentifier="slurm-1", DBClusterIdentifier="slurm", DBInstanceClass="db.r6g.large", **common
    )
    cluster = rds_backends[ACCOUNT][REGION].clusters["slurm"]
    cluster.url_identifier = "url"


IN_VPC = all_of(vpc(), group(id=DB_GROUP, ingress=False, egress=False))
OPEN = all_of(IN_VPC, lets_in(), database())


def in_other_vpc(aws: PreflightAws) -> None:
    subnets = tuple(
        ExistingSubnet(f"subnet-0bbbbbbbbbbbbbbb{number}", f"10.9.{number}.0/24", f"{REGION}a") for number in (1, 2)
    )
    make_network(aws.clients, ExistingNetwork(OTHER_VPC, "10.9.0.0/16", subnets))


ELSEWHERE = all_of(vpc(), in_other_vpc, group(id=DB_GROUP, vpc_id=OTHER_VPC, ingress=False, egress=False))
OTHER_SUBNETS = ("subnet-0bbbbbbbbbbbbbbb1",)


def db(name: str, status: Status, text: str, **more: Any) -> Case:
    return Case("database", name, status, text, **{"path": PLACE, "settings": slurm(), "arrange": OPEN, **more})


CASES = [
    db("in the VPC", OK, f"{DB_GROUP} of slurm lets the head node in on TCP 3306"),
    db("lets the nodes' group in", OK, f"{DB_GROUP} of slurm lets the head node in on TCP 3306",
       settings=merged(slurm(), {"network": {"security_group_id": NODES}}),
       arrange=all_of(IN_VPC, group(id=NODES), lets_in(group_id=NODES), database())),
    db("closed", FAULT, f"{DB_GROUP} of slurm does not let the head node in on TCP 3306",
       hint=f"aws ec2 authorize-security-group-ingress --group-id {DB_GROUP} --protocol tcp --port 3306 --cidr 10.0.0.0/24",
       arrange=all_of(IN_VPC, database())),
    db("another region, new VPC", FAULT,
       "slurm.aaaaaaaaaa.eu-west-1.rds.amazonaws.com is in eu-west-1, the cluster in us-east-1: no way leads there from "
       "the new VPC", settings={**slurm(HOST.replace(REGION, "eu-west-1")), **NEW_VPC}, arrange=all_of(),
       hint="set network.vpc_id and its subnets: the database's VPC, or one that is joined with it"),
    db("another region", WARNING,
       "slurm.aaaaaaaaaa.eu-west-1.rds.amazonaws.com is in eu-west-1, the cluster in us-east-1",
       settings=slurm(HOST.replace(REGION, "eu-west-1")), arrange=all_of(),
       hint="make sure that peering or a transit gateway joins both, with routes both ways"),
    db("new VPC", FAULT, f"slurm is in {VPC}: no way leads there from the new VPC", settings={**slurm(), **NEW_VPC},
       hint=f"set network.vpc_id: {VPC} and its subnets"),
    db("new VPC, public", WARNING, f"slurm is in {VPC}: from the new VPC the way to it is the internet",
       settings={**slurm(), **NEW_VPC}, arrange=all_of(IN_VPC, lets_in(), database(public=True))),
    db("another VPC", WARNING, f"slurm is in {OTHER_VPC}, the head node in {VPC}",
       arrange=all_of(ELSEWHERE, lets_in(), database(subnets=OTHER_SUBNETS))),
    db("PostgreSQL", FAULT, "slurm is postgres; slurmdbd needs MySQL or MariaDB",
       arrange=all_of(IN_VPC, lets_in(), database("postgres"))),
    db("stopped", FAULT, "slurm is stopped", arrange=all_of(OPEN, stopped)),
    db("another port", FAULT, "slurm listens on TCP 3306, not 3307", path=PORT, hint="write port: 3306",
       settings=slurm(database={"port": 3307}), arrange=all_of(IN_VPC, lets_in(3307), database())),
    db("Aurora", OK, f"{DB_GROUP} of slurm lets the head node in on TCP 3306",
       settings=slurm(AURORA.lower()), arrange=all_of(IN_VPC, lets_in(), aurora)),
    db("Aurora's reader", FAULT, f"slurm.cluster-ro-url.{REGION}.rds.amazonaws.com only reads, and slurmdbd writes",
       settings=slurm(AURORA.lower().replace("cluster-", "cluster-ro-")), arrange=all_of(IN_VPC, lets_in(), aurora),
       hint="name the writer's endpoint of slurm"),
    db("not in the account", WARNING, f"no database of this account in {REGION} has the endpoint {HOST}", arrange=IN_VPC,
       hint=f"correct the host; if it is another account's, ask from a host in the head node's subnet: {NC.format(HOST, 3306)}"),
    db("of the site", WARNING,
       "db.corp.example is not RDS's: whether the head node reaches it on TCP 3306, AWS cannot say",
       settings=slurm("db.corp.example"), arrange=all_of(),
       hint=f"ask from a host in the head node's subnet: {NC.format('db.corp.example', 3306)}"),
    db("private address, new VPC", FAULT, "10.4.0.9 is private: no way leads there from the new VPC",
       path=("slurm", "external_slurmdbd", "host"), settings=EXTERNAL, arrange=all_of()),
    denied("rds:DescribeDBInstances", "database", settings=slurm(), arrange=OPEN),
    denied("rds:DescribeDBClusters", "database", settings=slurm(AURORA.lower()), arrange=all_of(IN_VPC, lets_in(), aurora)),
    denied("ec2:DescribeSecurityGroups", "database", settings=slurm(), arrange=OPEN),
    denied("ec2:DescribeSubnets", "database", settings=slurm(), arrange=OPEN),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_database(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))
