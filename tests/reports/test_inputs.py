"""Inputs of public problem reports, tried on the product: the evidence of rows that no other test shows as a whole."""

from __future__ import annotations

import json
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

from acceptance.nccl import parse_bytes
from slipway.cluster_config import cluster_configuration, placeholder_facts
from slipway.node_steps import steps_of
from slipway.settings import PARALLELCLUSTER_VERSION, examine, load_settings

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
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=20, check=True)
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
    ("P13 library", "slurmstepd: error:  mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:195: pmi/pmix: can not load PMIx library",
     "pmix-library", ("libpmix",)),
]  # fmt: skip


@pytest.mark.parametrize(("line", "cause", "words"), [row[1:] for row in REPORTED], ids=[row[0] for row in REPORTED])
def test_the_line_that_says_why_is_a_cause_with_a_repair(line: str, cause: str, words: tuple[str, ...]) -> None:
    found = {finding.id: finding for finding in parse_bytes(f"\n{line}\n".encode()).causes}
    assert cause in found, sorted(found)
    assert all(word in found[cause].text for word in words), found[cause].text
    assert found[cause].repair
