"""Inputs of public problem reports, tried on the product: the evidence of rows that no other test shows as a whole."""

from __future__ import annotations

import json
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

from acceptance.nccl import parse_bytes
from slipway.cluster_config import cluster_configuration, placeholder_facts
from slipway.instances import INSTANCE_TYPES
from slipway.node_steps import steps_of
from slipway.settings import PARALLELCLUSTER_VERSION, examine, load_settings
from slipway.status.boot import judge

ROOT = Path(__file__).resolve().parents[2]
QUEUE = "  - {{name: {name}, instance_type: {type}, count: 2, efa: {efa}}}\n"
HEAD = "name: ml\nregion: us-east-1\nzone: us-east-1a\nacceptance: {scenario: none}\nqueues:\n"
NODE_TIMEOUT_S = 2100  # ParallelCluster ends a node whose set-up takes longer


def queue(name: str, instance_type: str, *, efa: bool = True) -> str:
    return QUEUE.format(name=name, type=instance_type, efa=str(efa).lower())


def rules_of(text: str, folder: Path) -> set[str]:
    """Return the names of the rules that a settings file breaks or is warned of."""
    (folder / "ml.yaml").write_text(text, encoding="utf-8")
    found = examine(folder / "ml.yaml")
    return {fault.rule_name for fault in (*found.faults, *found.warnings)}


@pytest.mark.parametrize(
    ("nccl", "plugin", "rule"),
    [
        ("v2.29.2-1", "v1.18.0", "nccl-known-bad"),  # large broadcasts hang
        ("v2.29.7-1", "v1.19.0", "nccl-known-bad"),  # multi-receive gives wrong results
        ("v2.29.7-1", "v1.19.1", "nccl-known-bad"),
        ("v2.28.9-1", "v1.17.2", "nccl-untested"),  # deadlocks on EFA
        ("v2.28.7-1", "v1.17.2", None),
    ],
)
def test_pairs_of_nccl_and_plugin(nccl: str, plugin: str, rule: str | None, tmp_path: Path) -> None:
    text = (
        f"{HEAD}{queue('train', 'p5.48xlarge')}nccl: {{source: shared, nccl_version: {nccl}, ofi_version: {plugin}}}\n"
    )
    found = {name for name in rules_of(text, tmp_path) if name.startswith("nccl-known-bad") or name == "nccl-untested"}
    assert found >= {rule} if rule else not found


def test_a_fabric_manager_that_is_slow_does_not_end_the_node(tmp_path: Path) -> None:
    """p4d with Amazon Linux 2023 waited 900 s (ParallelCluster 3.11): another release, and an own step that gives up."""
    assert tuple(map(int, PARALLELCLUSTER_VERSION.split("."))) > (3, 12)
    (step,) = [head for path, head in steps_of("compute") if path.stem == "14-gpu-state"]
    assert step.keys["on failure"] == "report"
    assert int(step.keys["timeout"].split()[0]) < NODE_TIMEOUT_S / 10
    assert "efa-off" in rules_of(HEAD + queue("train", "p4d.24xlarge", efa=False), tmp_path)


def test_the_place_of_a_prolog_or_epilog_is_named(tmp_path: Path) -> None:
    (tmp_path / "ml.yaml").write_text(
        f"{HEAD}{queue('train', 'p5.48xlarge')}slurm: {{settings: {{Epilog: /fsx/x.sh}}}}\n"
    )
    (fault,) = [one for one in examine(tmp_path / "ml.yaml").faults if one.rule_name == "slurm-denied"]
    assert "/opt/slurm/etc/scripts/epilog.d" in f"{fault.message} {fault.hint}"


def test_a_cluster_of_fifty_queues_is_larger_than_the_limit_that_was(tmp_path: Path) -> None:
    """The custom resource of ParallelCluster before 3.7 took 8 kB; the one since then passes it through S3.

    CloudFormation takes a template of 1 MB.
    """
    (tmp_path / "ml.yaml").write_text(
        HEAD + "".join(queue(f"q-{number}", "g6.48xlarge", efa=False) for number in range(50))
    )
    settings = load_settings(tmp_path / "ml.yaml")
    size = len(json.dumps(cluster_configuration(settings, placeholder_facts(settings))))
    assert 8 * 1024 < size < 200_000
    assert tuple(map(int, PARALLELCLUSTER_VERSION.split("."))) > (3, 7)


@pytest.mark.parametrize("name", ["pyxis.conf", "slipway-pyxis.conf"])
def test_slurm_never_reads_half_of_a_file_that_is_replaced(name: str, tmp_path: Path) -> None:
    """plugstack.conf includes `*.conf`: what is written and not yet renamed does not match."""
    script = (
        f'source {ROOT}/nodes/lib/all.sh; mv() {{ ls -A {tmp_path}; command mv "$@"; }}; '
        f"printf 'a\\nb\\n' | file::put - {tmp_path}/{name} 0644 $(id -un):$(id -gn)"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    before = [line for line in done.stdout.splitlines() if "slipway-new" in line]
    assert len(before) == 1
    assert not fnmatch(before[0], "*.conf")
    assert (tmp_path / name).read_text() == "a\nb\n"
    assert [path.name for path in tmp_path.iterdir()] == [name]


REPORTED = [
    (
        "B7.1",
        "gpu-1:1000:1100 [0] register_mr_buffers:520 NCCL WARN NET/OFI Unable to register memory (type = 2) for device 3."
        " RC: -22, Error: Invalid argument",
        "memory-registration",
        ("gpu-1", "registering memory with the network failed"),
    ),
    (
        "B7.2 library",
        "gpu-1:79:79 [0] nccl_net_ofi_cuda_init:35 NCCL WARN NET/OFI Failed to find CUDA Driver library: libcuda.so: cannot"
        " open shared object file: No such file or directory",
        "libcuda-link",
        ("libcuda.so",),
    ),
    (
        "B7.2 channels",
        "gpu-1:79:130 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/0",
        "no-gpudirect",
        ("without GPUDirect RDMA",),
    ),
    ("P11", "gpu-1:79:79 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net-aws-ofi.so", "plugin-not-found", ("aws-ofi",)),
    ("P13 srun", "srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types", "pmix-plugin", ("pmix",)),
    ("R14", "gpu-1:10:11 [7] create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument",
     "efa-resources", ("gpu-1", "could not open an EFA interface")),
    ("R15", "gpu-1:19:37 [0] nccl_net_ofi_rdma_init:7978 NCCL WARN NET/OFI OFI fi_getinfo() call failed: No data available",
     "no-provider", ("no usable provider",)),
    ("R16", "gpu-1:10:11 [0] nccl_net_ofi_create_plugin:1067 NCCL WARN NET/OFI aws-ofi-nccl initialization failed",
     "plugin-failed", ("NCCL has no EFA",)),
    ("R17", "gpu-1:10:11 [0] find_ofi_provider:543 NCCL WARN NET/OFI Couldn't find any optimal provider", "no-provider",
     ("no usable provider",)),
    ("R18", "Error 803: system has unsupported display driver / cuda driver combination", "cuda-compat", ("cuda-compat",)),
    ("R19", "gpu-1:116:236 [3] misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to 192.168.102.1<38007> failed : "
     "Software caused connection abort", "connection-timeout", ("had no answer",)),
    ("R20", "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLGATHER, "
     "Timeout(ms)=1800000) ran for 1804619 milliseconds before timing out.", "watchdog", ("did not end",)),
    ("R21", "gpu-1:10:11 [0] NCCL WARN NET/OFI Request 0x7f completed with error. RC: 107. Error: 4126 (Unresponsive "
     "receiver (reachable by EFA device but handshake failed))", "efa-unresponsive", ("the peer does not answer",)),
    ("R22", "slurmstepd: error: pyxis:     mkdir: cannot create directory '/run/user/1000': Permission denied",
     "container-directory", ("/run/user/1000",)),
    ("R23", "slurmstepd: error: pyxis:     Can't find a SQUASHFS superblock on /fsx/pyxis/1000/385.0.squashfs",
     "container-image-cut", ("no whole image",)),
    ("R24", "slurmstepd: error: pyxis: failed to import docker image", "container-start", ("begins with / or ./",)),
    ("R25", "slurmstepd: error: pyxis:     nvidia-container-cli: ldcache error: process /sbin/ldconfig terminated with signal 9",
     "container-hook", ("ldcache error",)),
    ("R26", "srun: error: Task launch for StepId=96.0 failed on node n2: Socket timed out on send/recv operation",
     "task-launch", ("n2",)),
    ("R27", "slurmstepd: error: execve(): /usr/bin/ls: No such file or directory", "program-missing", ("/usr/bin/ls",)),
    ("R28", "slurmstepd: error: pyxis:     enroot-mount: failed to mount: /home/a/coco at /data: Permission denied",
     "container-mount", ("/home/a/coco", "Permission denied")),
    ("R29", "slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/sh: Permission denied",
     "container-program", ("/bin/sh",)),
    ("R30", "slurmstepd: error: pyxis:     Write failed because No space left on device", "disk-full", ("is full",)),
    ("R31", 'slurmstepd: error: pyxis: error: a container with name "pyxis_nemo" does not exist, and --container-image is not '
     "set", "container-start", ("does not exist",)),
    ("R32", "srun: error: Job allocation 1 has been revoked", "allocation-revoked", ("job 1",)),
    ("R33", "gpu-1:79:91 [0] graph/xml.h:85 NCCL WARN Attribute arch of node cpu not found", "topology-file", ("arch of cpu",)),
    ("R50", "slurmstepd: error: pyxis:     [ERROR] URL https://nvcr.io/v2/x/manifests/1 returned error code: 401 Unauthorized",
     "registry-refused", ("HTTP 401",)),
    ("P13 library", "slurmstepd: error:  mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:195: pmi/pmix: can not load PMIx library",
     "pmix-library", ("libpmix",)),
]  # fmt: skip


@pytest.mark.parametrize(("line", "cause", "words"), [row[1:] for row in REPORTED], ids=[row[0] for row in REPORTED])
def test_the_line_that_says_why_is_a_cause_with_a_repair(line: str, cause: str, words: tuple[str, ...]) -> None:
    found = {finding.id: finding for finding in parse_bytes(f"\n{line}\n".encode()).causes}
    assert cause in found, sorted(found)
    assert all(word in found[cause].text for word in words), found[cause].text
    assert found[cause].repair


BOOTS = [
    ("R1", "chef-client", "mount.lustre: Can't parse NID 'fs-0123456789abcdef0.fsx.eu-west-1.amazonaws.com@tcp:/abcdefgh'", "DNS"),
    ("R2", "chef-client", "mount.lustre: mount fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com@tcp:/abcdefgh at /fsx failed: "
     "No such device", "does not fit the node's kernel"),
    ("R3", "chef-client", "Job for munge.service failed because the control process exited with error code.", "a service"),
    ("R4", "chef-client", "cat: /opt/slurm/etc/pcluster/.slurm_plugin/clustermgtd_heartbeat: No such file or directory",
     "clustermgtd does not run"),
    ("R5", "chef-client", "mount.nfs: Connection timed out", "another file system"),
    ("R6", "chef-client", "Error: 'systemctl start nvidia-persistenced.service' failed with 'Job for nvidia-persistenced.service "
     "failed because the control process exited with error code.", "a service"),
    ("R7", "chef-client", "ERROR - Failed to generate slurm configurations, exception: 'c5.large'", "Slurm's configuration"),
    ("R8", "clustermgtd", "Encountered exception when launching instances for nodes (x2): An error occurred "
     "(InsufficientInstanceCapacity) when calling the RunInstances operation", "EC2 does not launch"),
    ("R9", "slurm_resume", "An error occurred (VcpuLimitExceeded) when calling the RunInstances operation", "EC2 does not launch"),
    ("R49", "clustermgtd", "An error occurred (MaxSpotInstanceCountExceeded) when calling the CreateFleet operation", "EC2 does not"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "line", "what"), [row[1:] for row in BOOTS], ids=[row[0] for row in BOOTS])
def test_a_log_of_the_boot_names_the_cause_before_its_consequences(kind: str, line: str, what: str) -> None:
    consequences = (
        "    Error executing action `run` on resource 'execute[x]'",
        "FATAL: Cinc::Exceptions::ChildConvergeError",
    )
    lines = [("chef-client", text) for text in consequences] + [(kind, line)]
    events = [{"logStreamName": f"ip-10-0-0-4.i-1.{of}", "message": text, "timestamp": 1} for of, text in lines]
    (problem,) = judge("/aws/parallelcluster/ml-202611280900", events, failed=True)
    assert what in problem.text
    assert problem.hint


@pytest.mark.parametrize("last_with_fault", ["3.5.1", "3.15.1", "3.16.0"])
def test_the_release_is_newer_than_the_fault(last_with_fault: str) -> None:
    """GPU nodes after `scontrol reboot`; loops with a user's maintenance reservation; Slurm's CVE-2026-65107 and others."""
    assert tuple(map(int, PARALLELCLUSTER_VERSION.split("."))) > tuple(map(int, last_with_fault.split(".")))


def test_p6_b300_has_a_card_without_efa() -> None:
    """17 network cards and EFA on 16 of them; ParallelCluster writes the interfaces of this type since 3.15."""
    b300 = INSTANCE_TYPES["p6-b300.48xlarge"]
    assert (b300.network_cards, b300.efa_interfaces) == (17, 16)
    assert tuple(map(int, PARALLELCLUSTER_VERSION.split("."))) >= (3, 15)


@pytest.mark.parametrize("old", ["p3.16xlarge", "p2.16xlarge", "g3.16xlarge"])
def test_gpus_that_the_image_has_no_driver_for_are_refused(old: str, tmp_path: Path) -> None:
    assert "instance-type-unknown" in rules_of(HEAD + queue("train", old, efa=False), tmp_path)
