"""The programs with torch on the CPU, gloo between the ranks: where the environment of torch is (`make test`)."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from acceptance.report import suite_report
from gpusuite import gpu_tests, reports
from gpusuite.checks import check_stage
from gpusuite.judgement import judge
from gpusuite.readings import readings_of
from gpusuite.reports import node_name
from gpusuite.workers import Workers
from tests.ports import free_ports

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SUITE = ROOT / "gpusuite"
PYTHON = str(Path(os.environ.get("SLIPWAY_GPU_SUITE", "python3")).absolute())
CPU = {**os.environ, "OMP_NUM_THREADS": "1"}
NODE = node_name()
COLLECTIVES = "all_reduce,all_gather,reduce_scatter,alltoall,sendrecv"


def test_the_whole_suite_next_to_a_bare_script(tmp_path: Path) -> None:
    """`make bench-suite` on the CPU: the figures mean nothing, and may differ."""
    flags = ["--cpu-devices", "2", "--stress-seconds", "0.5", "--report-dir", str(tmp_path)]
    argv = [PYTHON, "-m", "bench.suite", *flags]
    done = subprocess.run(argv, cwd=ROOT, env=CPU, capture_output=True, text=True, timeout=300, check=False)
    lines = done.stdout.splitlines()
    assert "[RESULT] SUCCESS" in lines, done.stdout + done.stderr
    compared = [line.split(": ")[:2] for line in lines if ", ratio " in line]
    alone = {"gemm fp32 128", "gemm bf16 128", "memory copy", "device to host", "host to device", "stress bf16 64"}
    alone |= {"resnet50 batch 2", "transformer batch 2"}
    together = {("all GPUs", f"all_reduce {size}") for size in (65536, 1048576)}
    assert {(where, metric) for where, metric in compared} == together | {
        (f"gpu {gpu}", metric) for gpu in (0, 1) for metric in alone
    }
    assert lines[-2] == "not measured by both: memory triad, resnet50 batch 1, transformer batch 1"
    assert done.returncode == int(not lines[-1].startswith("18 figures, 0 of them differ"))
    for name in ("gpu_tests", "ddp_tests", "ddp_train", "fsdp_train"):
        assert f"[SUMMARY] {name} rc=0" in done.stdout
    for prefix in ("[ENV] ", "[COMPUTE] ", "[TRAIN] ", "[DDP] "):
        assert f"\n{prefix}" in "\n" + done.stdout
    for name, mode in (("ddp_training_result", "DDP"), ("fsdp_training_result", "FSDP")):
        training = json.loads((tmp_path / f"{name}.json").read_text())
        assert (training["mode"], training["improved"]) == (mode, True)
        assert training["end_loss"] < training["start_loss"]
    moved = json.loads((tmp_path / "ddp_allreduce_result.json").read_text())
    assert [(one["bytes"], one["ok"]) for one in moved["allreduce"]] == [(65536, True), (1048576, True)]
    assert {one["collective"] for one in moved["collectives"] if one["ok"]} == set(COLLECTIVES.split(",")[1:])
    report = json.loads((tmp_path / "gpu_tests_result.json").read_text())
    assert set(report["stages"]) == {"compute", "memory", "pattern", "train", "inference", "screen", "stress"}
    screens = [report["stages"]["screen"][gpu]["hashes"] for gpu in ("0", "1")]
    assert screens[0] == screens[1]
    windows = report["stages"]["stress"]["0"]["windows_tflops"]
    assert min(windows) > 0


def of(launcher: str, rank: int, world: int, port: str) -> dict[str, str]:
    """The environment of one rank, as the launcher sets it."""
    values = {
        "torchrun": {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1"},
        "srun": {
            "SLURM_PROCID": rank,
            "SLURM_LOCALID": rank,
            "SLURM_STEP_NUM_TASKS": world,
            "SLURM_STEP_NODELIST": "localhost",
        },
        "mpirun": {
            f"OMPI_COMM_WORLD_{name}": value
            for name, value in (("RANK", rank), ("LOCAL_RANK", rank), ("SIZE", world), ("LOCAL_SIZE", world))
        },
    }[launcher]
    return {"MASTER_PORT": port, **{name: str(value) for name, value in values.items()}}


GROUPS = {  # case -> launcher, ranks, flags
    "three ranks": ("torchrun", 3, "--iters 3 --sizes 4,1000,64K --collectives " + COLLECTIVES),
    "wrong": ("torchrun", 2, "--iters 4 --numel 1000 --collectives all_reduce,alltoall --inject wrong:1 --verbose"),
    "too slow": ("torchrun", 2, "--quick --sizes 1000,2G --least-gb-per-s 1e9"),
    "loss": ("torchrun", 2, "--train-smoke --epochs 2 --steps 3 --batch-size 5 --inject loss:0"),
    "quick training": ("torchrun", 2, "--train-smoke --quick --verbose"),
    "srun": ("srun", 2, "--iters 2 --numel 500 --expect-gpus 2"),
    "too few": ("mpirun", 2, "--iters 2 --numel 500 --expect-gpus 3"),
    "hang": ("torchrun", 2, "--iters 2 --timeout 8 --inject hang:1"),
    "stall": ("torchrun", 2, "--iters 2 --timeout 8 --inject stall:1"),
    "rank 0 stalls": ("torchrun", 2, "--iters 2 --timeout 8 --inject stall:0"),
    "alone": ("torchrun", 2, "--timeout 2"),
}
# Faults on purpose, each with a stage that finds it; and the same stages without a fault.
STAGES = [("wrong", "compute"), ("flip", "screen"), ("loss", "train"), ("droop", "stress"), ("slow", "compute")]
STAGES += [("slow", "memory"), ("", "compute"), ("", "memory")]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program printed for each case, and its report."""
    cases: list[dict[str, Any]] = [{"stage": stage, "fault": fault} for fault, stage in STAGES]
    folder = tmp_path_factory.mktemp("reports")
    for case, (launcher, world, flags) in GROUPS.items():
        port = str(free_ports(1))
        ranks = [of(launcher, rank, world, port) for rank in range(case == "alone", world)]
        argv = ["--cpu", *flags.split(), "--report-dir", str(folder), "--report-name", case]
        cases.append({"argv": argv, "ranks": ranks})
    argv = [PYTHON, str(HERE / "in_one_process.py")]
    done = subprocess.run(
        argv, env=CPU, input=json.dumps(cases), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    values: dict[str, Any] = dict(zip([*STAGES, *GROUPS], results, strict=True))
    for case in GROUPS:
        path = folder / f"{case}.json"
        values[case]["report"] = json.loads(path.read_text()) if path.exists() else None
    return values


def last_line(output: str) -> str:
    return [line for line in output.splitlines() if line.startswith("[RESULT]")][-1]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("wrong", "gpu 1: fp32 product of 128: wrong result: an integer product is not exact in"),
        ("flip", "gpu 1: corruption screen: 32 repeated products differ from their first result"),
        ("loss", "gpu 1: training: the loss does not fall"),
        ("droop", "gpu 1: stress: droops by "),
    ],
)
def test_faults_on_purpose_are_found(fault: str, said: str, found: dict[Any, Any]) -> None:
    stage = dict(STAGES)[fault]
    checks = check_stage(stage, {1: found[fault, stage]}, lambda gpu: f"gpu {gpu}")
    assert [one.outcome for one in checks if said in one.message] == ["fail"]


@pytest.mark.parametrize(
    ("stage", "metrics"),
    [
        ("compute", {"gemm fp32 128", "gemm bf16 128"}),
        ("memory", {"memory copy", "memory triad", "host to device", "device to host"}),
    ],
)
def test_a_gpu_that_is_slow_on_purpose_is_named(stage: str, metrics: set[str], found: dict[Any, Any]) -> None:
    gpus = [{"index": gpu, "name": "CPU", "bus": f"cpu:{gpu}"} for gpu in range(4)]
    results = {str(gpu): found["slow" if gpu == 2 else "", stage] for gpu in range(4)}
    checks = judge(readings_of({"node": "n1", "gpus": gpus, "stages": {stage: results}}))
    bad = [one for one in checks if one.outcome in ("warn", "fail")]
    assert {(one.gpu, one.outcome, one.kind) for one in bad} == {(2, "fail", "slow")}
    assert {one.metric for one in bad} == metrics
    assert all(
        re.match(r"n1 gpu 2 \(cpu:2\): .*, (3[3-9]|4[0-9])% below the median .* of 4", one.message) for one in bad
    )


def test_a_gpu_that_hangs_on_purpose_is_named_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker itself, in two processes: it would answer after an hour."""
    started: list[Workers] = []

    def start(names: dict[int, str]) -> Workers:
        started.append(Workers(names, (PYTHON, str(SUITE / "worker.py"))))
        return started[0]

    monkeypatch.setattr(gpu_tests, "Workers", start)
    monkeypatch.setattr(reports, "unfit", lambda: 0)  # torch is in the workers' environment
    monkeypatch.setitem(gpu_tests.STAGES, "memory", (15, 15))
    flags = ["--quick", "--cpu-devices", "2", "--stages", "memory,screen", "--inject", "hang:1"]
    assert gpu_tests.main([*flags, "--report-dir", str(tmp_path)]) == 1
    report = json.loads((tmp_path / "gpu_tests_result.json").read_text())
    where = f"{NODE} gpu 1 (cpu:1)"
    assert report["failures"] == [f"{where}: memory: memory did not end within 15 s: it hangs"]
    assert {stage: set(results) for stage, results in report["stages"].items()} == {"memory": {"0"}, "screen": {"0"}}
    assert [worker.process.poll() for worker in started[0]._workers.values()] == [-signal.SIGKILL] * 2
    suite = suite_report(tmp_path).gpus
    assert suite is not None
    assert [(one.gpu, one.verdict) for one in suite.gpus] == [(0, "good"), (1, "failed")]


def test_collectives_of_sizes_that_three_ranks_cannot_share(found: dict[str, Any]) -> None:
    one = found["three ranks"]
    assert one["codes"] == [0, 0, 0], one["output"]
    moved = [(row["collective"], row["bytes"]) for row in one["report"]["allreduce"] + one["report"]["collectives"]]
    sizes = {"all_reduce": (4, 1000, 65536), "sendrecv": (4, 1000, 65536)}
    assert moved == [(name, size) for name in COLLECTIVES.split(",") for size in sizes.get(name, (12, 996, 65532))]


def test_wrong_sums_and_data_are_named_by_rank(found: dict[str, Any]) -> None:
    one = found["wrong"]
    assert one["codes"] == [1, 1]
    assert f"all-reduce of 4000 bytes: wrong sums in 4 checks: ranks 1 on {NODE}" in last_line(one["output"])
    assert f"all-to-all of 4000 bytes: wrong data in 4 checks: ranks 1 on {NODE}" in last_line(one["output"])
    assert "[DDP] all_reduce world=2 numel=1000" in one["output"]
    assert one["report"]["ok"] is False

    checks = [re.sub(r"[0-9.]+ us", "N us", line) for line in one["output"].splitlines() if "rank " in line]
    counts = ("0 of 4", "4 of 4")
    assert checks == [
        f"[DDP] rank {rank} on {NODE}: {name} of 4000 bytes: N us, {counts[rank]} checks wrong"
        for name in ("all_reduce", "alltoall")
        for rank in (0, 1)
    ]


def test_quick_has_fewer_iterations_and_no_large_size(found: dict[str, Any]) -> None:
    one = found["too slow"]
    assert one["codes"] == [1, 1]
    assert [(row["bytes"], row["iters"]) for row in one["report"]["allreduce"]] == [(1000, 20)]
    assert "all-reduce of 1000 bytes: bus bandwidth" in last_line(one["output"])
    assert "GB/s, expected at least 1000000000" in last_line(one["output"])
    assert " rank " not in one["output"]


def test_training_that_does_not_learn_fails(found: dict[str, Any]) -> None:
    assert found["loss"]["codes"] == [1, 1]
    assert "DDP training: the loss does not fall" in last_line(found["loss"]["output"])
    report = found["loss"]["report"]
    assert (report["steps"], report["samples"]) == (6, 30)


def test_each_step_and_rank_of_a_training(found: dict[str, Any]) -> None:
    one = found["quick training"]
    assert one["codes"] == [0, 0], one["output"]
    report = one["report"]
    assert (report["steps"], report["samples"], report["improved"]) == (20, 20 * 64, True)
    losses = re.findall(r"^\[DDP\] DDP training step \d+: loss (.*)$", one["output"], re.MULTILINE)
    assert (len(losses), losses[0], losses[-1]) == (20, f"{report['start_loss']:.5f}", f"{report['end_loss']:.5f}")
    for rank in (0, 1):
        line = f"[DDP] rank {rank} on {NODE}: DDP training: checksum {report['checksum']:.9g}"
        assert line in one["output"].splitlines()


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("hang", "init did not end within 8 s on rank 0: ranks 1 did not arrive"),
        ("stall", f"all-reduce of 8000000 did not end within 8 s on rank 0: ranks 1 on {NODE} did not arrive"),
        ("rank 0 stalls", "on rank 1: rank 0, which keeps the list of those that arrived, does not answer"),
        ("alone", f"{NODE} rank 1: rank 0 at 127.0.0.1, port "),
    ],
)
def test_a_rank_that_does_not_arrive_is_named(case: str, said: str, found: dict[str, Any]) -> None:
    assert 0 not in found[case]["codes"]
    assert said in found[case]["output"]


@pytest.mark.parametrize(("case", "launcher", "code"), [("srun", "srun", 0), ("too few", "mpirun", 1)])
def test_one_task_a_gpu_without_a_launcher(case: str, launcher: str, code: int, found: dict[str, Any]) -> None:
    one = found[case]
    assert one["codes"] == [code, code], one["output"]
    report = one["report"]
    assert (report["launcher"], report["world_size"], report["ok"]) == (launcher, 2, True)
    assert report["nodes"] == [NODE, NODE]
    failures = ["2 ranks, expected 3. Hint: one rank a GPU"] if code else []
    assert report["failures"] == failures


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI: apt-get install openmpi-bin")
def test_mpirun(tmp_path: Path) -> None:
    """Open MPI's own mpirun: it sets the ranks, and no address is needed on one host."""
    argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", PYTHON, str(SUITE / "ddp_tests.py")]
    flags = ["--cpu", "--iters", "2", "--sizes", "64K", "--collectives", COLLECTIVES, "--report-dir", str(tmp_path)]
    env = {**CPU, "MASTER_PORT": str(free_ports(1))}
    done = subprocess.run([*argv, *flags], env=env, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, last_line(done.stdout)) == (0, "[RESULT] SUCCESS"), done.stdout + done.stderr
    report = json.loads((tmp_path / "ddp_allreduce_result.json").read_text())
    assert (report["launcher"], report["world_size"], report["nodes"]) == ("mpirun", 2, [NODE, NODE])
    moved = {row["collective"]: row["ok"] for row in report["allreduce"] + report["collectives"]}
    assert moved == dict.fromkeys(COLLECTIVES.split(","), True)
