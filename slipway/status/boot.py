"""Why a node did not boot, from the logs that ParallelCluster ships before and besides Slipway's scripts.

Streams are HOST.INSTANCE.KIND in /aws/parallelcluster/NAME-TIMESTAMP (cloudwatch_agent_config.json of
aws-parallelcluster-cookbook, read 2026-11-28). CloudWatch returns only lines that contain a term of `CAUSES`; of each
host the most telling line is kept.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from slipway.aws.calls import Aws, Refused, Unasked
from slipway.status.problem import DEGRADED, FAILED, Problem

KINDS = (
    *("cloud-init", "cloud-init-output", "cfn-init", "chef-client", "bootstrap_error_msg"),
    *("slurmdbd", "slurmctld", "system-messages", "syslog"),
)
MOST_PAGES = 20  # CloudWatch may return empty pages of a large group
MOST_CAUSES = 5
LINE_CHARACTERS = 400
RECENT_S = 6 * 3600.0


@dataclasses.dataclass(frozen=True)
class Cause:
    """A known cause. `terms`: what CloudWatch looks for, as written; `pattern`: what the line must match.

    `kinds`: the logs in which the line counts.
    """

    what: str
    terms: tuple[str, ...]
    pattern: re.Pattern[str]
    repair: str
    kinds: tuple[str, ...] = KINDS


def _cause(what: str, terms: tuple[str, ...], pattern: str, repair: str, kinds: tuple[str, ...] = KINDS) -> Cause:
    return Cause(what, terms, re.compile(pattern), repair, kinds)


CALL = "when calling the"  # botocore: An error occurred (CODE) when calling the NAME operation
FAILED_TO = "Failed to"

# The most telling first: a mount that times out is why chef says FATAL. Each line's source is in docs/status.md. Terms
# are short and shared: CloudWatch takes a filter pattern of 1,024 characters.
CAUSES = (
    _cause(
        "the Lustre client does not fit the node's kernel",
        ("mount.lustre", "Module lustre"),
        r"mount\.lustre: .*No such device|Module lustre not found",
        "a package upgrade replaced the kernel: take it out of head_node.scripts and queues[].scripts (Slipway holds "
        "the kernel's packages), then deploy again",
    ),
    _cause(
        "the FSx for Lustre file system cannot be mounted",
        ("mount.lustre", FAILED_TO),
        r"mount\.lustre: .*(failed|timed out|Input/output error)|Failed to mount FSX",
        "the file system's security group must let TCP 988 and 1018-1023 in from the nodes' group, both ways; "
        "slipway preflight FILE asks for it",
    ),
    _cause(
        "another file system cannot be mounted",
        ("mount.nfs", FAILED_TO),
        r"mount\.nfs4?: .*(timed out|refused|denied|No such)|Failed to mount (EFS|EBS)",
        "its security group must let TCP 2049 in from the nodes' group; slipway preflight FILE asks for it",
    ),
    _cause(
        "slurmdbd cannot reach its database",
        ("mysql_real_connect failed", "Can't connect to MySQL", "Access denied for user", "slurm_persist_conn_open"),
        r"mysql_real_connect failed|Can't connect to MySQL|Access denied for user|slurm_persist_conn_open",
        "look at slurm.database: host, port, user and secret, the database's security group, and a route to it from "
        "the head node's subnet",
    ),
    _cause(
        "EC2 does not launch the static nodes, for which the head node waits",
        (CALL,),
        r"when calling the (RunInstances|CreateFleet) operation",
        "the code in brackets is EC2's: Insufficient...: reserve capacity, or another zone; VcpuLimitExceeded: the "
        "quota; UnauthorizedOperation: a boundary or service control policy. slipway preflight FILE asks for each",
        ("clustermgtd", "slurm_resume"),
    ),
    _cause(
        "a name cannot be looked up (DNS)",
        ("Could not", "Temporary failure", "mount.lustre"),
        r"Could not resolve host|Temporary failure (in name resolution|resolving)|mount\.lustre: Can't parse NID",
        "the VPC needs enableDnsSupport and enableDnsHostnames, and DHCP options that name a resolver",
    ),
    _cause(
        "an AWS endpoint cannot be reached",
        ("Could not", "timeout on endpoint URL", "No route to host"),
        r"Could not connect to the endpoint URL|Connect timeout on endpoint URL|No route to host",
        "the subnet needs a NAT gateway, or a VPC endpoint with private DNS whose group lets TCP 443 in; "
        "slipway preflight FILE asks for them",
    ),
    _cause(
        "a certificate is not trusted",
        ("certificate",),
        r"SSL certificate problem|CERTIFICATE_VERIFY_FAILED|certificate verify failed",
        "a proxy of the site opens TLS: let the nodes' subnets pass it, or use VPC endpoints and software_mirror",
    ),
    _cause(
        "packages cannot be fetched",
        (FAILED_TO, "Unable to fetch"),
        r"Failed to fetch|Unable to fetch some archives|Failed to download metadata for repo",
        "the subnet needs a way to the distribution's mirror, or software_mirror and an own mirror",
    ),
    _cause(
        "S3 refuses an object",
        (CALL, "fatal error: An error"),
        r"when calling the (Get|Head)Object operation|fatal error: An error",
        "the node's role must read the bucket, and the bucket's policy must let it; slipway preflight FILE (bucket)",
    ),
    _cause(
        "a secret cannot be read",
        (CALL,),
        r"when calling the GetSecretValue operation",
        "the secret must exist in this region under exactly this ARN; slipway preflight FILE asks for it",
    ),
    _cause(
        "the node's role lacks a permission",
        (CALL, "is not authorized to perform"),
        r"is not authorized to perform|\((UnauthorizedOperation|AccessDenied|AccessDeniedException)\) when calling",
        "ParallelCluster's roles have it: look for a permissions boundary (iam.permissions_boundary) or a service "
        "control policy that denies it",
    ),
    _cause(
        "a disk of the node is full",
        ("No space left",),
        r"No space left on device",
        "head_node.root_volume_gib for the head node; a site's script that writes much: to /scratch or /fsx",
    ),
    _cause(
        "the fabric manager did not start in time",
        ("nvidia-fabricmanager", "fabric_manager"),
        r"(nvidia-fabricmanager|fabric_manager).*(timed out|Timeout|timeout|[Ff]ailed|failure)",
        "a GPU or NVSwitch of this machine may be broken: the next one may start; aws-parallelcluster issue 6571",
    ),
    _cause(
        "a service of the node did not start",
        ("Job for ",),
        r"Job for \S+\.service failed",
        "slipway logs FILE --group system --node HOST has the service's own lines; for munge: "
        "slurm.external_slurmdbd.munge_key_secret_arn must hold a key in base64",
    ),
    _cause(
        "ParallelCluster's daemon clustermgtd does not run",
        ("clustermgtd_heartbeat: No",),
        r"clustermgtd_heartbeat: No such file",
        "slipway logs FILE --group slurm (clustermgtd) has the reason; mostly no way to EC2's or DynamoDB's endpoint",
    ),
    _cause(
        "ParallelCluster cannot write Slurm's configuration",
        (FAILED_TO,),
        r"Failed to generate slurm configurations",
        "slipway logs FILE --group boot has the exception; after a failed update: docs/updates.md, "
        '"When a roll-back fails"',
    ),
    _cause(
        "a custom action failed",
        (FAILED_TO,),
        r"Failed to (execute|download|run) OnNode",
        "slipway logs FILE --group setup has the steps' lines; the site's scripts print to cfn-init, cloud-init-output",
    ),
    _cause(
        "static nodes failed to start again and again (protected mode)",
        ("to PROTECTED mode",),
        r"has been set to PROTECTED mode",
        "the cause is in the compute nodes' logs: slipway logs FILE --group boot",
    ),
    _cause(
        "a recipe of ParallelCluster's cookbook failed",
        ("Error executing action", "FATAL", FAILED_TO, "Client failed"),
        r"Error executing action|FATAL|Failed to run chef recipe|(Cinc|Chef) Client failed",
        "slipway logs FILE --group boot shows what is before it",
    ),
    _cause(
        "cloud-init failed",
        ("cloud-init[", FAILED_TO, "Failed running /var/lib/cloud"),
        r"Failed to run module scripts-user|Failed running /var/lib/cloud|cloud-init\[\d+\]: .*(ERROR|CRITICAL)",
        "slipway logs FILE --group boot shows what is before it",
    ),
)


def filter_pattern() -> str:
    """CloudWatch's pattern for lines with any of the terms: `?"a" ?"b"` (user guide, filter pattern syntax)."""
    terms = dict.fromkeys(term for cause in CAUSES for term in cause.terms)
    return " ".join(f'?"{term}"' for term in terms)


def boot_problems(aws: Aws, group: str, start_ms: int | None, notes: list[str], *, failed: bool) -> list[Problem]:
    """The known causes in a log group since `start_ms`, the most telling first. `failed`: the creation failed."""
    try:
        events = list(_events(aws, group, start_ms))
    except (Unasked, Refused) as error:
        notes.append(f"ParallelCluster's log group {group}: {error}")
        return []
    return judge(group, events, failed=failed)


def _events(aws: Aws, group: str, start_ms: int | None) -> Iterable[Mapping[str, Any]]:
    more: dict[str, Any] = {} if start_ms is None else {"startTime": start_ms}
    for _ in range(MOST_PAGES):
        page = aws.call("logs", "filter_log_events", logGroupName=group, filterPattern=filter_pattern(), **more)
        yield from page["events"]
        if "nextToken" not in page:
            return
        more["nextToken"] = page["nextToken"]


def judge(group: str, events: Iterable[Mapping[str, Any]], *, failed: bool) -> list[Problem]:
    """One problem for each cause: of each host the first line of its most telling cause."""
    best: dict[str, tuple[int, str, str]] = {}  # host and instance -> rank, stream, line
    for event in sorted(events, key=lambda one: one.get("timestamp", 0)):
        stream, line = str(event["logStreamName"]), " ".join(str(event["message"]).split())
        machine, _, kind = stream.rpartition(".")
        rank = next((n for n, one in enumerate(CAUSES) if kind in one.kinds and one.pattern.search(line)), None)
        if rank is not None and rank < best.get(machine, (len(CAUSES), "", ""))[0]:
            best[machine] = (rank, stream, line[:LINE_CHARACTERS])
    by_rank: dict[int, list[tuple[str, str]]] = {}
    for rank, stream, line in best.values():
        by_rank.setdefault(rank, []).append((stream, line))
    return [_problem(group, CAUSES[rank], by_rank[rank], failed=failed) for rank in sorted(by_rank)[:MOST_CAUSES]]


def _problem(group: str, cause: Cause, found: list[tuple[str, str]], *, failed: bool) -> Problem:
    stream, line = found[0]
    more = f" (and {len(found) - 1} more nodes)" if len(found) > 1 else ""
    where = f"boot of {stream.partition('.')[0]}"
    text = f"{cause.what}{more}: {line} (log group {group}, stream {stream})"
    return Problem(FAILED if failed else DEGRADED, where, text, cause.repair)


def boots_fail(slurm: Mapping[str, Any]) -> bool:
    """Whether Slurm's or ParallelCluster's words say that nodes failed to boot, while the stacks are fine."""
    words = ("ResumeTimeout", "Static node maintenance", "Scheduler health check failed")
    reasons = (str(node.get("reason") or "") for node in slurm.get("nodes") or ())
    inactive = any(word.startswith("inact") for word in (slurm.get("partitions") or {}).values())
    return slurm.get("fleet") == "PROTECTED" or inactive or any(word in reason for reason in reasons for word in words)
