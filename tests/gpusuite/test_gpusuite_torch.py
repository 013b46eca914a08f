"""The programs with torch on the CPU: two processes each, gloo between them (`make test-gpu-suite`)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpusuite.checks import DROOP_FAIL, droop
from tests.ports import free_ports

SUITE = Path(__file__).parents[2] / "gpusuite"
PYTHON = os.environ.get("SLIPWAY_GPU_SUITE", "python3")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
CPU = {**os.environ, "OMP_NUM_THREADS": "1"}


def program(name: str, *flags: str, launcher: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    argv = [str(Path(PYTHON).absolute()), *(launcher or []), str(SUITE / name), *flags]
    return subprocess.run(argv, env=CPU, capture_output=True, text=True, timeout=300, check=False)


def result(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stdout.splitlines() if line.startswith("[RESULT]")]
    assert lines, done.stdout + done.stderr
    return lines[0]


def test_the_whole_suite(tmp_path: Path) -> None:
    flags = ["--quick", "--cpu-devices", "2", "--expect-gpus", "2", "--stress-seconds", "0.5"]
    done = program("run_all_tests.py", *flags, "--report-dir", str(tmp_path))
    assert (done.returncode, result(done)) == (0, "[RESULT] SUCCESS"), done.stdout + done.stderr
    for name in ("gpu_tests", "ddp_tests", "ddp_train", "fsdp_train"):
        assert f"[SUMMARY] {name} rc=0" in done.stdout
    for prefix in ("[ENV] ", "[COMPUTE] ", "[TRAIN] ", "[DDP] "):
        assert f"\n{prefix}" in "\n" + done.stdout
    training = json.loads((tmp_path / "ddp_training_result.json").read_text())
    assert training["improved"] is True
    assert training["end_loss"] < training["start_loss"]
    moved = json.loads((tmp_path / "ddp_allreduce_result.json").read_text())
    assert [(one["bytes"], one["ok"]) for one in moved["allreduce"]] == [(65536, True), (1048576, True)]
    others = {one["collective"] for one in moved["collectives"] if one["ok"]}
    assert others == {"all_gather", "reduce_scatter", "alltoall", "sendrecv"}
    report = json.loads((tmp_path / "gpu_tests_result.json").read_text())
    assert set(report["stages"]) == {"compute", "memory", "pattern", "train", "inference", "screen", "stress"}
    screens = [report["stages"]["screen"][gpu]["hashes"] for gpu in ("0", "1")]
    assert screens[0] == screens[1]
    windows = report["stages"]["stress"]["0"]["windows_tflops"]
    assert min(windows) > 0


@pytest.mark.parametrize(
    ("fault", "stage", "said"),
    [
        ("wrong:1", "compute", "gpu 1 (cpu:1): fp32 product of 128: wrong result: an integer product is not exact in"),
        ("flip:0", "screen", "gpu 0 (cpu:0): corruption screen: 32 repeated products differ from their first result"),
        ("loss:1", "train", "gpu 1 (cpu:1): training: the loss does not fall"),
    ],
)
def test_faults_on_purpose_are_found_and_named(fault: str, stage: str, said: str) -> None:
    done = program("gpu_tests.py", "--quick", "--cpu-devices", "2", "--stages", stage, "--inject", fault)
    assert (done.returncode, said in result(done)) == (1, True), done.stdout
    other = f"gpu {1 - int(fault[-1])} (cpu"
    assert other not in result(done).partition("disagree")[0].rpartition("corruption screen: ")[0]


DROOP = """import json, torch
from gpusuite import stress
from gpusuite.options import Options
stress.seconds = lambda device, work, calls: calls * 1e-3  # a machine whose speed is steady
print(json.dumps(stress.load(torch.device("cpu"), Options(tiny=True, seconds=0.05, fault="droop"))["windows_tflops"]))
"""


def test_a_droop_on_purpose_is_found() -> None:
    argv = [str(Path(PYTHON).absolute()), "-c", DROOP]
    done = subprocess.run(argv, cwd=SUITE.parent, capture_output=True, text=True, timeout=120, check=True)
    share = droop(json.loads(done.stdout))
    assert share is not None
    assert share > DROOP_FAIL


def test_wrong_sums_are_named_by_rank(tmp_path: Path) -> None:
    flags = ["--cpu", "--iters", "4", "--numel", "1000", "--inject", "wrong:1", "--report-dir", str(tmp_path)]
    done = program("ddp_tests.py", *flags, launcher=TORCHRUN)
    assert done.returncode != 0
    assert "all-reduce of 4000 bytes: wrong sums on ranks [1] in 4 checks" in result(done)
    assert "[DDP] all_reduce world=2 numel=1000" in done.stdout
    assert json.loads((tmp_path / "ddp_allreduce_result.json").read_text())["ok"] is False


def test_training_that_does_not_learn_fails() -> None:
    done = program("ddp_tests.py", "--cpu", "--train-smoke", "--steps", "5", "--inject", "loss:0", launcher=TORCHRUN)
    assert done.returncode != 0
    assert "DDP training: the loss does not fall" in result(done)


def test_a_rank_that_does_not_arrive_is_named() -> None:
    flags = ["--cpu", "--iters", "2", "--timeout", "8", "--inject", "hang:1"]
    done = program("ddp_tests.py", *flags, launcher=TORCHRUN)
    assert done.returncode != 0
    assert "init did not end within 8 s on rank 0: ranks 1 did not arrive" in result(done)


def of_srun(rank: int) -> Mapping[str, str]:
    names = {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NTASKS": 2, "SLURM_STEP_NODELIST": "localhost"}
    return {name: str(value) for name, value in names.items()}


def of_mpirun(rank: int) -> Mapping[str, str]:
    names = {"RANK": rank, "LOCAL_RANK": rank, "SIZE": 2, "LOCAL_SIZE": 2}
    return {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in names.items()}


@pytest.mark.parametrize("launcher", [of_srun, of_mpirun])
def test_one_task_a_gpu_without_a_launcher(launcher: Any, tmp_path: Path) -> None:
    port = str(free_ports(1))
    argv = [str(Path(PYTHON).absolute()), str(SUITE / "ddp_tests.py"), "--cpu", "--iters", "2", "--numel", "500"]
    argv += ["--report-dir", str(tmp_path), "--expect-gpus", "2"]
    ranks = [
        subprocess.Popen(argv, env={**CPU, **launcher(rank), "MASTER_PORT": port}, stdout=subprocess.DEVNULL)
        for rank in range(2)
    ]
    assert [one.wait(120) for one in ranks] == [0, 0]
    report = json.loads((tmp_path / "ddp_allreduce_result.json").read_text())
    assert (report["launcher"], report["world_size"], report["ok"]) == (launcher.__name__[3:], 2, True)
