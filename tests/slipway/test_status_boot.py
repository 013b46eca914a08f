"""Why a node did not boot: lines as chef, cloud-init, mount and slurmdbd write them, in ParallelCluster's log group."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.status.boot import CAUSES, LINE_CHARACTERS, filter_pattern, judge
from slipway.status.problem import DEGRADED, FAILED

GROUP = "/aws/parallelcluster/rehearsal-202611281530"
HEAD, COMPUTE = "ip-10-0-0-4.i-0aaaaaaaaaaaaaaa1", "ip-10-0-1-7.i-0bbbbbbbbbbbbbbb2"
LINES = [
    # kind, line, what the problem says, what its repair says
    (
        "chef-client",
        "mount.lustre: mount fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh at /fsx failed: "
        "Connection timed out",
        "the FSx for Lustre file system cannot be mounted",
        "988 and 1018-1023",
    ),
    (
        "bootstrap_error_msg",
        "Failed to mount FSX. Please check /var/log/chef-client.log in the head node",
        "the FSx for Lustre",
        "security group",
    ),
    ("chef-client", "mount.nfs4: Connection timed out", "another file system cannot be mounted", "2049"),
    (
        "slurmdbd",
        "[2026-11-28T15:40:01.123] error: mysql_real_connect failed: 2003 Can't connect to MySQL server on "
        "'db.example.com:3306' (110)",
        "slurmdbd cannot reach its database",
        "slurm.database",
    ),
    ("cloud-init-output", "curl: (6) Could not resolve host: s3.us-east-1.amazonaws.com", "(DNS)", "enableDnsSupport"),
    (
        "cfn-init",
        'botocore.exceptions.ConnectTimeoutError: Connect timeout on endpoint URL: "https://dynamodb.us-east-1.x/"',
        "an AWS endpoint cannot be reached",
        "NAT gateway",
    ),
    (
        "chef-client",
        "E: Failed to fetch http://us-east-1.ec2.archive.ubuntu.com/ubuntu/pool/j/jq.deb  Could not connect",
        "packages cannot be fetched",
        "mirror",
    ),
    (
        "cfn-init",
        "fatal error: An error occurred (403) when calling the HeadObject operation: Forbidden",
        "S3 refuses an object",
        "bucket",
    ),
    (
        "chef-client",
        "Mixlib::ShellOut::CommandTimeout: service[nvidia-fabricmanager] start: Command timed out after 900s:",
        "the fabric manager did not start in time",
        "6571",
    ),
    (
        "cfn-init",
        "Failed to execute OnNodeConfigured script 1 s3://site/post.sh, return code: 3.",
        "a custom action failed",
        "--group setup",
    ),
    (
        "chef-client",
        "RuntimeError: Cluster has been set to PROTECTED mode due to failures detected in static node provisioning",
        "protected mode",
        "--group boot",
    ),
    (
        "chef-client",
        "    Error executing action `run` on resource 'execute[check slurmctld status]'",
        "a recipe of ParallelCluster's cookbook failed",
        "--group boot",
    ),
    (
        "chef-client",
        "[2026-11-28T15:41:00+00:00] FATAL: Cinc::Exceptions::ChildConvergeError: Cinc run process exited",
        "a recipe of ParallelCluster's cookbook failed",
        "--group boot",
    ),
    (
        "chef-client",
        "STDERR: mount.lustre: mount fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh at /fsx failed: "
        "No such device",
        "the Lustre client does not fit the node's kernel",
        "Slipway holds the kernel's packages",
    ),
    (
        "chef-client",
        "STDERR: mount.lustre: Can't parse NID 'fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh'",
        "(DNS)",
        "enableDnsSupport",
    ),
    (
        "clustermgtd",
        "ERROR - Encountered exception when launching instances for nodes (x2) ['train-st-p5-1', 'train-st-p5-2']: An error "
        "occurred (InsufficientInstanceCapacity) when calling the RunInstances operation (reached max retries: 1)",
        "EC2 does not launch the static nodes",
        "reserve capacity",
    ),
    (
        "slurm_resume",
        "An error occurred (VcpuLimitExceeded) when calling the CreateFleet operation: You have requested more vCPU capacity",
        "EC2 does not launch the static nodes",
        "VcpuLimitExceeded: the quota",
    ),
    (
        "cfn-init",
        "botocore.errorfactory.ResourceNotFoundException: An error occurred (ResourceNotFoundException) when calling the "
        "GetSecretValue operation: Secrets Manager can't find the specified secret.",
        "a secret cannot be read",
        "in this region",
    ),
    (
        "chef-client",
        "An error occurred (AccessDeniedException) when calling the PutItem operation: User: arn:aws:sts::123456789012:"
        "assumed-role/team-p5/i-1 is not authorized to perform: dynamodb:PutItem with an explicit deny",
        "the node's role lacks a permission",
        "iam.permissions_boundary",
    ),
    (
        "cloud-init-output",
        "curl: (60) SSL certificate problem: self-signed certificate in certificate chain",
        "a certificate is not trusted",
        "VPC endpoints",
    ),
    (
        "chef-client",
        "OSError: [Errno 28] No space left on device: '/opt/x'",
        "a disk of the node is full",
        "root_volume_gib",
    ),
    (
        "chef-client",
        "STDERR: Job for munge.service failed because the control process exited with error code.",
        "a service of the node did not start",
        "munge_key_secret_arn",
    ),
    (
        "chef-client",
        "STDERR: cat: /opt/slurm/etc/pcluster/.slurm_plugin/clustermgtd_heartbeat: No such file or directory",
        "clustermgtd does not run",
        "DynamoDB's endpoint",
    ),
    (
        "chef-client",
        "ERROR - Failed to generate slurm configurations, exception: 'p4d.24xlarge'",
        "cannot write Slurm's configuration",
        "When a roll-back fails",
    ),
    (
        "cloud-init",
        "cc_scripts_user.py[WARNING]: Failed to run module scripts-user (scripts in /var/lib/cloud/instance/scripts)",
        "cloud-init failed",
        "--group boot",
    ),
]


def event(stream: str, line: str, timestamp: int = 0) -> dict[str, Any]:
    return {"logStreamName": stream, "message": line, "timestamp": timestamp}


@pytest.mark.parametrize(("kind", "line", "what", "repair"), LINES, ids=range(len(LINES)))
def test_a_known_line_names_cause_group_stream_and_repair(kind: str, line: str, what: str, repair: str) -> None:
    stream = f"{HEAD}.{kind}"
    (one,) = judge(GROUP, [event(stream, line)], failed=True)
    assert one.level == FAILED
    assert one.where == "boot of ip-10-0-0-4"
    assert what in one.text
    assert " ".join(line.split())[:LINE_CHARACTERS] in one.text
    assert one.text.endswith(f"(log group {GROUP}, stream {stream})")
    assert repair in one.hint
    assert any(f'?"{term}"' in filter_pattern() and term in line for cause in CAUSES for term in cause.terms), (
        "CloudWatch would not return this line"
    )


def test_cloudwatch_takes_the_filter_pattern() -> None:
    """CloudWatch Logs API reference, FilterLogEvents: filterPattern has at most 1,024 characters."""
    assert len(filter_pattern()) <= 1024


def test_of_one_host_the_cause_and_not_its_consequence() -> None:
    lines = [
        event(f"{HEAD}.chef-client", LINES[12][1], 3),
        event(f"{HEAD}.chef-client", LINES[11][1], 2),
        event(f"{HEAD}.chef-client", LINES[0][1], 1),
        event(f"{HEAD}.slurmctld", "fatal things"),
        event(f"{HEAD}.clustermgtd", LINES[4][1]),  # no log of a boot
    ]
    (one,) = judge(GROUP, lines, failed=False)
    assert one.level == DEGRADED
    assert "mount.lustre" in one.text


def test_many_nodes_with_one_cause_are_one_line() -> None:
    lines = [event(f"ip-10-0-1-{n}.i-{n}.chef-client", LINES[0][1], n) for n in range(300)]
    (one,) = judge(GROUP, [*lines, event(f"{COMPUTE}.syslog", "all is well")], failed=False)
    assert "cannot be mounted (and 299 more nodes)" in one.text


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-28T15:41:00+00:00] INFO: Cinc Infra Client finished",
        "mount.lustre: debug",
        "cloud-init[1234]: Cloud-init v. 24.1 finished",
        "An error occurred (InsufficientInstanceCapacity) when calling the RunInstances operation",  # of clustermgtd's logs
    ],
)
def test_other_lines_are_no_cause(line: str) -> None:
    assert judge(GROUP, [event(f"{HEAD}.chef-client", line)], failed=True) == []
