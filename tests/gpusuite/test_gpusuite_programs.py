"""The programs without torch and GPUs: flags, exit codes, report files, and GPUs that hang, die or are slow."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from acceptance.cli import main as acceptance
from acceptance.report import suite_report, write_files
from gpusuite import ddp_tests, fleet, gpu_tests, reports, run_all_tests, storage_tests, workers
from gpusuite.devices import CudaError, Gpu, short_bus
from gpusuite.launch import LaunchError, Rank, device_index, find_rank, first_host
from gpusuite.options import FAULTS, Options, fault_of
from gpusuite.smi import Sample
from gpusuite.workers import Workers

HERE = Path(__file__).parent
SUITE = HERE.parents[1] / "gpusuite"
RECORDED = json.loads((HERE / "data/h200-quick.json").read_text())
RESULTS = {stage: found["0"] for stage, found in RECORDED["stages"].items()}
GPUS = [Gpu(index, "NVIDIA H200", f"0000:5{index}:00", f"GPU-{index}", 150_000_000_000, 132) for index in range(4)]
PAIRS = [
    {"from": a, "to": b, "gb_per_s": 393.0, "direct": True, "wrong": False}
    for a in range(4)
    for b in range(4)
    if a != b
]
Run = Callable[..., tuple[int, dict[str, Any], str]]
QUICK = ("--quick",)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run gpu_tests.py on four stand-ins of GPUs with these changes; returns exit code, report and output."""
    monkeypatch.setattr(gpu_tests, "find_gpus", lambda: GPUS)
    monkeypatch.setattr(gpu_tests, "smi_list", list)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    argv = (sys.executable, str(HERE / "stand_in_worker.py"))
    monkeypatch.setattr(gpu_tests, "Workers", functools.partial(Workers, argv=argv))
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-7")
    plan = tmp_path / "plan.json"
    monkeypatch.setenv("STAND_IN", str(plan))

    def running(
        changes: dict[int, dict[str, Any]], *flags: str, quick: Sequence[str] = QUICK
    ) -> tuple[int, dict[str, Any], str]:
        values = {"results": {**RESULTS, "peers": {"pairs": PAIRS}}, "changes": changes}
        plan.write_text(json.dumps(values))
        code = gpu_tests.main([*quick, "--report-dir", str(tmp_path / "%N"), *flags])
        report = json.loads((tmp_path / "gpu-7/gpu_tests_result.json").read_text())
        return code, report, capsys.readouterr().out

    return running


def test_four_good_gpus(run: Run) -> None:
    code, report, out = run({}, "--expect-gpus", "4")
    assert (code, report["result"], report["failures"]) == (0, "SUCCESS", [])
    assert out.splitlines()[-1] == "[RESULT] SUCCESS"
    assert "[ENV] cuda_device_count 4" in out
    line = "[COMPUTE] gpu-7 gpu 2 (0000:52:00): bf16 8192: 662823 GFLOP/s (662.8 TFLOP/s"
    assert line in out
    assert "[TRAIN] gpu-7 gpu 0 (0000:50:00): start_loss=0.01015 end_loss=0.00079 steps=60 improved=True" in out
    assert [one["index"] for one in report["gpus"]] == [0, 1, 2, 3]
    assert {"schema", "node", "date", "quick", "environment", "stages", "peers", "samples", "readings", "checks"} < set(
        report
    )
    assert len(report["peers"]["pairs"]) == 12


def test_every_fault_is_named_in_one_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow, a dying, a hanging and a corrupting GPU; the others go on."""
    monkeypatch.setitem(gpu_tests.STAGES, "train", (6, 6))
    hashes = {**RESULTS["screen"]["hashes"], "bf16 0": "other"}
    code, report, out = run(
        {
            0: {"compute": {"scale": 0.6}, "screen": {"set": {"hashes": hashes}}},
            1: {"memory": {"die": True}},
            3: {"train": {"hang": True}},
        }
    )
    assert (code, report["result"]) == (1, "FAILURE")
    failures = "\n".join(report["failures"])
    assert "gpu-7 gpu 0 (0000:50:00): gemm bf16 8192 397.7 TFLOP/s, 40% below the median 662.8 of 4" in failures
    assert "gpu-7 gpu 0 (0000:50:00): gemm bf16 8192 397.7 TFLOP/s, expected 660" in failures
    died = "gpu-7 gpu 1 (0000:51:00): memory: its process ended with code 139 during memory: CUDA error: an illegal"
    assert died in failures
    assert "gpu-7 gpu 3 (0000:53:00): train: train did not end within 6 s: it hangs" in failures
    # GPU 1 and 3 are gone: two are left, and cannot outvote each other.
    assert "gpu-7 gpu 0 (0000:50:00) and gpu-7 gpu 2 (0000:52:00) disagree in bf16 0" in failures
    assert set(report["stages"]["screen"]) == {"0", "2"}
    assert out.splitlines()[-1].startswith("[RESULT] FAILURE: [gpu-7 gpu 0")


def test_each_fault_is_the_verdict_of_its_gpu_in_the_report(run: Run, tmp_path: Path) -> None:
    """From the worker's answer to the report of `acceptance suite`."""
    windows = [700.0] * 10 + [600.0] * 10
    run(
        {
            0: {"screen": {"set": {"differing": 3}}},
            1: {"stress": {"set": {"windows_tflops": windows}}},
            2: {"train": {"set": {"improved": False}}, "compute": {"scale": 0.6}},
            3: {"pattern": {"die": True}},
        }
    )
    report = suite_report(tmp_path)
    assert report.gpus is not None
    verdicts = {one.gpu: one.verdict for one in report.gpus.gpus}
    assert verdicts == {0: "wrong result", 1: "droop", 2: "wrong result", 3: "failed"}
    assert [(one.name, one.verdict) for one in report.nodes] == [("gpu-7", "failed")]
    slow = [one for one in report.gpus.gpus[2].findings if "40% below the median" in one]
    assert slow
    assert {(one.gpu, one.metric) for one in report.gpus.figures if one.outcome == "fail"} >= {(2, "gemm bf16 8192")}


def asked(report: dict[str, Any], stage: str) -> list[tuple[bool, float, str]]:
    """What the worker of each GPU was asked for."""
    options = [report["stages"][stage][gpu]["options"] for gpu in "0123"]
    return [(one["quick"], one["seconds"], one["fault"]) for one in options]


def test_flags_reach_the_workers(run: Run) -> None:
    _, report, _ = run({}, "--stages", "stress,train", quick=[])
    assert report["quick"] is False
    assert asked(report, "stress") == [(False, 600.0, "")] * 4
    assert asked(report, "train") == [(False, 0.0, "")] * 4
    _, report, _ = run({}, "--stages", "stress", "--inject", "droop:2")
    assert report["quick"] is True
    assert asked(report, "stress") == [(True, 20.0, "droop" if gpu == 2 else "") for gpu in range(4)]
    _, report, _ = run({}, "--stages", "stress", "--stress-seconds", "7")
    assert asked(report, "stress") == [(True, 7.0, "")] * 4


SMI = """#!{python}
import pathlib, sys, time
if "-lms" not in sys.argv:
    sys.exit()
folder = pathlib.Path({folder!r})
(folder / "interval").write_text(sys.argv[-1])
for second in range({seconds}):
    for gpu in range(4):
        mhz, watt, heat = 1440 + second % 45, 690 + second % 7 / 10, 60 + second // 150
        print(f"00000000:5{{gpu}}:00.0, {{mhz}}, 1980, {{watt}}, 700.00, {{heat}}, 100, 0, 0, 5, 16, 0x4")
    sys.stdout.flush()
    time.sleep(0.002)
(folder / "done").touch()
time.sleep(60)
"""


def test_ten_minutes_of_stress(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default length with a sample a second of each GPU, 500 times as fast: what is kept and written stays small."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI.format(python=sys.executable, folder=str(tmp_path), seconds=600))
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    wait = {"until": str(tmp_path / "done"), "set": {"windows_tflops": [658.123456789] * 600, "seconds": 600.4}}
    code, report, out = run({gpu: {"stress": wait} for gpu in range(4)}, "--stages", "stress", quick=[])
    assert (code, [one["message"] for one in report["checks"] if one["outcome"] == "warn"]) == (0, [])
    assert (tmp_path / "interval").read_text() == "1000"
    assert len(report["samples"]) == 4 * 600
    assert "bf16 for 600 s: first, middle, last second 658.1, 658.1, 658.1 TFLOP/s" in out
    assert (tmp_path / "gpu-7/gpu_tests_result.json").stat().st_size < 1 << 20
    kept = suite_report(tmp_path / "gpu-7")
    assert kept.gpus is not None
    assert [(one.seconds, len(one.power_w)) for one in kept.gpus.watched] == [(2, 300)] * 4
    write_files(kept)
    assert (tmp_path / "gpu-7/report.json").stat().st_size < 1 << 17
    assert (tmp_path / "gpu-7/report.html").stat().st_size < 1 << 18
    assert fleet.main([str(tmp_path / "gpu-7")]) == 0


def test_a_day_of_stress_has_no_more_samples_than_an_hour(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [Options(seconds=seconds).window_s for seconds in (20, 600, 3600, 86400)] == [1, 1, 1, 24]
    assert Options(tiny=True, seconds=0.5).window_s == 0.02
    asked_for: list[float] = []

    @contextlib.contextmanager
    def watched(interval_s: float) -> Iterator[list[Sample]]:
        asked_for.append(interval_s)
        yield [Sample(**{**RECORDED["samples"][0], "bus": "0000:50:00"})] * 3600

    monkeypatch.setattr(gpu_tests, "watched", watched)
    run({}, "--stages", "stress", "--stress-seconds", "86400")
    assert asked_for == [24.0]
    kept = suite_report(tmp_path / "gpu-7").gpus
    assert kept is not None
    assert [(one.seconds, len(one.power_w)) for one in kept.watched] == [(12 * 24, 300)]


def test_verbose_prints_every_check(run: Run) -> None:
    mixed = {3: {"screen": {"set": {"model": "NVIDIA L4", "hashes": {"bf16 0": "other"}}}}}
    code, report, out = run(mixed, "--stages", "train,screen")
    assert (code, "[CHECK]" in out) == (0, False)
    assert set(report["stages"]) == {"train", "screen"}
    _, report, out = run(mixed, "--stages", "train,screen", "--verbose")
    checks = [f"[CHECK] {one['outcome']}: {one['message']}" for one in report["checks"]]
    assert [line for line in out.splitlines() if line.startswith("[CHECK]")] == checks
    alone = "there is no other GPU of the same kind to compare with: gpu-7 gpu 3 (0000:53:00) (NVIDIA L4, 132 multiprocessors)"
    assert checks == ["[CHECK] pass: train: right on 4 GPUs", f"[CHECK] no limit: corruption screen: {alone}"]


def test_a_gpu_that_is_slow_once_is_a_warning(run: Run) -> None:
    code, report, out = run({2: {"compute": {"scale": 0.6, "once": True}}}, "--stages", "compute")
    assert code == 0
    assert "[COMPUTE] gpu-7 gpu 2 (0000:52:00): too slow, measured once more" in out
    warned = [one["message"] for one in report["checks"] if one["outcome"] == "warn"]
    assert warned
    assert all("which is good: slow once" in one for one in warned)


@pytest.mark.parametrize("program", [gpu_tests, run_all_tests, ddp_tests])
def test_what_a_program_lacks_is_named_before_it_measures(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No torch; or a container whose root is read-only, without a file system for temporary files."""
    argv = ["--cpu"] if program is ddp_tests else ["--cpu-devices", "1"]
    monkeypatch.setattr(importlib.util, "find_spec", {"torch": None}.get)
    assert program.main(argv) == 3
    hint = f"gpusuite: {sys.executable} has no torch. Hint: run in an image with torch and NumPy\n"
    assert capsys.readouterr().err == hint
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/1/none"])
    assert program.main(argv) == 3
    hint = "no directory for temporary files can be written. Hint: docker run --tmpfs /tmp, or set TMPDIR"
    assert capsys.readouterr().err == f"gpusuite: {hint}\n"


def test_an_image_without_torch_is_named(run: Run) -> None:
    code, report, _ = run({gpu: {"start": True} for gpu in range(4)}, "--stages", "compute")
    assert code == 1
    text = "its process ended with code 1 during the start: ModuleNotFoundError: No module named 'torch'"
    assert text in report["failures"][0]


@pytest.mark.parametrize("program", [gpu_tests, ddp_tests, run_all_tests])
def test_no_gpu_is_skipped_and_fewer_than_expected_fail(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "find_gpus", list)
    monkeypatch.setattr("gpusuite.devices.smi_list", list)
    assert program.main(["--quick"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "[RESULT] SKIPPED: no GPU on this machine: no test was run"
    assert program.main(["--expect-gpus", "8"]) == 1
    assert "expected 8" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("program", [gpu_tests, ddp_tests, run_all_tests])
def test_a_driver_that_fails_is_no_skipped_test(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> list[Gpu]:
        raise CudaError("cuInit failed with error 802: the GPUs are not ready")

    monkeypatch.setattr(program, "find_gpus", broken)
    assert program.main([]) == 1
    assert "cuInit failed with error 802" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("program", "flags", "said"),
    [
        (gpu_tests, ["--stages", "compute,x"], "--stages compute,x: 'x' is no stage. Hint: compute, memory"),
        (gpu_tests, ["--inject", "flip"], "--inject flip: must be KIND:GPU, with KIND one of wrong, flip"),
        (
            gpu_tests,
            ["--cpu-devices", "2", "--inject", "flip:2"],
            "--inject flip:2: there is no GPU 2. Hint: 0 to 1",
        ),
        (
            gpu_tests,
            ["--stages", "memory", "--inject", "flip:0"],
            "--inject flip:0: none of the stages memory finds it on GPU 0. Hint: --stages screen\n",
        ),
        (
            gpu_tests,
            ["--cpu-devices", "2", "--stages", "peers,train", "--inject", "slow:1"],
            "--inject slow:1: none of the stages peers,train finds it on GPU 1. Hint: --stages compute,memory,inference\n",
        ),
        (
            gpu_tests,
            ["--cpu-devices", "1", "--stages", "peers", "--inject", "hang:0"],
            "--inject hang:0: none of the stages peers finds it on GPU 0. Hint: --stages compute\n",
        ),
        (run_all_tests, ["--inject", "flop:0"], "--inject flop:0: must be KIND:GPU, with KIND one of wrong, flip"),
        (run_all_tests, ["--cpu-devices", "2", "--inject", "flip:2"], "--inject flip:2: there is no GPU 2. Hint: 0 to"),
        (
            ddp_tests,
            ["--train-smoke", "--inject", "wrong:1"],
            "--inject wrong:1: training does not find a wrong element",
        ),
        (ddp_tests, ["--fsdp", "--inject", "wrong:1"], "--inject wrong:1: training does not find a wrong element"),
        (ddp_tests, ["--inject", "loss:1"], "--inject loss:1: only training finds it. Hint: add --train-smoke"),
        (ddp_tests, ["--cpu", "--inject", "stall:0"], "--inject stall:0: one rank waits for no other. Hint: start two"),
        (ddp_tests, ["--cpu", "--inject", "wrong:1"], "--inject wrong:1: must be KIND:RANK, with KIND one of wrong"),
        (ddp_tests, ["--inject", "flip:0"], "--inject flip:0: must be KIND:RANK, with KIND one of wrong, loss, hang"),
        (ddp_tests, ["--inject", "wrong:x"], "--inject wrong:x: must be KIND:RANK"),
        (
            ddp_tests,
            ["--collectives", "all_reduce,x"],
            "'x' is not one of the collectives. Hint: all_reduce,all_gather",
        ),
        (ddp_tests, ["--all", "--report-name", "x"], "--all writes three reports, and --report-name names one"),
        (ddp_tests, ["--sizes", "1M,2X"], "--sizes 1M,2X: '2X' is no size of 4 bytes or more. Hint: 1M,64M,1G"),
        (run_all_tests, ["--storage-dir", "/none"], "--storage-dir /none: is no directory. Hint: make it"),
        (storage_tests, ["--directory", "/none"], "--directory /none: is no directory. Hint: make it"),
        (storage_tests, ["--directory", "/tmp", "--size", "0"], "--size 0: is no size. Hint: 512M"),
        (storage_tests, ["--directory", "/tmp", "--size", "99999G"], "bytes are free, the test writes"),
        (fleet, ["/none"], "/none: no report of gpu_tests.py. Hint: run it with --report-dir"),
    ],
)
def test_wrong_use(program: Any, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(flags) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "flags", "said"),
    [
        (storage_tests, ["--directory", ".", "--threads", "0"], "0: must be a whole number from 1 to 1024"),
        (storage_tests, ["--directory", ".", "--files", "100000000"], "must be a whole number from 1 to 1000000"),
        (storage_tests, ["--directory", ".", "--least-read-gb-per-s", "nan"], "nan: must be a number above 0"),
        (storage_tests, ["--directory", ".", "--fio-seconds", "0"], "0: must be a whole number from 1 to 300"),
        (ddp_tests, ["--iters", "-1"], "-1: must be a whole number from 1 to"),
        (ddp_tests, ["--timeout", "inf"], "inf: must be a number above 0"),
        (gpu_tests, ["--stress-seconds", "-1"], "-1: must be a number above 0"),
        (run_all_tests, ["--cpu-devices", "0"], "0: must be a whole number from 1 to 64"),
        (fleet, [".", "--expect-nodes", "x"], "x: must be a whole number from 0 to"),
        (fleet, [".", "--quick"], "unrecognized arguments: --quick"),  # it measures nothing
        (gpu_tests, ["--inject", ""], "must not be empty"),
        (run_all_tests, ["--inject", ""], "must not be empty"),
        (ddp_tests, ["--inject", ""], "must not be empty"),
        (gpu_tests, ["--report-dir", ""], "must not be empty"),
        (run_all_tests, ["--storage-dir", ""], "must not be empty"),
        (storage_tests, ["--directory", ""], "must not be empty"),
        (storage_tests, ["--directory", ".", "--size", ""], "must not be empty"),
        (ddp_tests, ["--sizes", ""], "must not be empty"),
        (fleet, [""], "must not be empty"),
        (gpu_tests, ["--report-name", "../x.json"], "'../x.json': must be the name of a file, without a folder"),
        (run_all_tests, ["--report-name", "/x.json"], "'/x.json': must be the name of a file, without a folder"),
        (gpu_tests, ["--report-name", ""], "'': must be the name of a file"),
    ],
)
def test_flags_that_are_out_of_range(
    program: Any, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(flags)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 141)], ids=["Ctrl-C", "reader"]
)
def test_a_program_that_is_ended_from_outside(
    raised: type[BaseException], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def main() -> int:
        raise raised

    monkeypatch.setattr(reports.os, "dup2", lambda *_: None)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert reports.run(main) == code
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
        assert ended.value.code == 143
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("program", ["gpu_tests", "ddp_tests", "run_all_tests", "storage_tests", "fleet", "acceptance"])
@pytest.mark.parametrize("full", [True, False], ids=["full", "reader"])
def test_output_that_cannot_be_written(program: str, full: bool) -> None:
    words = ["-m", "acceptance"] if program == "acceptance" else [str(SUITE / f"{program}.py")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe, Path("/dev/full").open("w") as disk:
        done = subprocess.run(
            [sys.executable, *words, "--help"],
            stdout=disk if full else pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment,
            cwd=SUITE.parent,
        )
    assert done.returncode == (3 if full else 141)
    expected = "standard output: No space left on device. Hint: is it full"
    assert len(done.stderr.splitlines()) == full
    assert not full or expected in done.stderr


@pytest.mark.parametrize("program", [gpu_tests, ddp_tests, run_all_tests])
def test_a_fault_for_a_machine_without_a_gpu(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "find_gpus", list)
    assert program.main(["--inject", "wrong:9"]) == 2
    assert "--inject wrong:9: there is no GPU " in capsys.readouterr().err


def test_a_skipped_suite_leaves_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_all_tests, "find_gpus", list)
    assert run_all_tests.main(["--report-dir", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "run_all_result.json").read_text())
    assert (report["result"], report["failures"], report["parts"]) == ("SKIPPED", [], {})


def test_a_failure_is_named_where_no_report_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_all_tests, "find_gpus", list)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    for name in ("loop", "file"):
        assert run_all_tests.main(["--expect-gpus", "1", "--report-dir", str(tmp_path / name)]) == 1
        said = capsys.readouterr()
        assert "0 GPUs, expected 1" in said.out.splitlines()[-1]
        assert f"{tmp_path / name}/run_all_result.json: " in said.err


def test_a_part_ends_with_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.print", interrupt)
    text = f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); print(1, flush=True); input()"
    program = [sys.executable, "-c", f"import time\n{text}\ntime.sleep(60)"]
    part = run_all_tests.Part(program, {"gpu_tests": "x.json"}, 60)
    with pytest.raises(KeyboardInterrupt):
        run_all_tests.run_part(part, tmp_path)
    with contextlib.suppress(ChildProcessError):
        assert os.waitpid(int((tmp_path / "pid").read_text()), 0)[1] != 0


def test_reports_of_another_form_do_not_keep_the_fleet_from_being_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.json").write_text(json.dumps(RECORDED))
    texts = ["{", "[" * 100_000, '{"program": "gpu_tests"}', '{"program": "gpu_tests", "node": [1], "date": 1}']
    for number, text in enumerate([*texts, json.dumps({**RECORDED, "gpus": 5}), "[]"]):
        (tmp_path / f"{number}.json").write_text(text)
    os.mkfifo(tmp_path / "pipe.json")
    assert fleet.main([str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert printed.count("cannot be read: ") == 2 * 6  # its line, and the last one
    for name, reason in {
        "0": "is not JSON: Expecting property name",
        "1": "has another form than a report of gpu_tests.py",
        "2": "node is missing",
        "3": "node and date must be texts",
        "4": "has another form than a report of gpu_tests.py",
        "pipe": "is not a regular file",
    }.items():
        assert f"{tmp_path}/{name}.json: cannot be read: {reason}" in printed
    assert "[SUMMARY] 1 nodes" in printed


def test_a_report_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(gpu_tests, "find_gpus", list)
    assert gpu_tests.main(["--report-dir", str(tmp_path / "file")]) == reports.EXIT_ENVIRONMENT
    assert "Hint: give a directory that can be written" in capsys.readouterr().err


TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "gpu-1", "MASTER_PORT": "29400"}
SRUN = {
    "SLURM_PROCID": "9",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu-[01-02]",
    "SLURM_JOB_ID": "5000",
}
ARBITRARY = {"SLURM_DISTRIBUTION": "arbitrary"}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, Rank("none", 0, 1, 0, "127.0.0.1", 0)),
        (TORCHRUN, Rank("torchrun", 3, 4, 1, "gpu-1", 29400)),
        ({**SRUN, **TORCHRUN}, Rank("torchrun", 3, 4, 1, "gpu-1", 29400)),
        (
            {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "x"},
            Rank("torchrun", 3, 4, 1, "gpu-1", 29400, agent_store=True),
        ),
        (SRUN, Rank("srun", 9, 16, 1, "gpu-01", 61464)),
        ({**SRUN, "MASTER_ADDR": "x", "MASTER_PORT": "1"}, Rank("srun", 9, 16, 1, "x", 1)),
        ({**SRUN, "SLURM_STEP_NUM_TASKS": "1"}, Rank("none", 0, 1, 0, "127.0.0.1", 0)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "16"}, Rank("none", 0, 1, 0, "127.0.0.1", 0)),  # a batch script
        (MPIRUN, Rank("mpirun", 2, 8, 2, "127.0.0.1", 29501)),
        ({**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "MASTER_ADDR": "h"}, Rank("mpirun", 2, 8, 2, "h", 29501)),
    ],
)
def test_ranks_of_each_launcher(environment: dict[str, str], rank: Rank) -> None:
    assert find_rank(environment) == rank


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, "MASTER_ADDR is not set, and mpirun started ranks on several"),
        ({**TORCHRUN, "RANK": "x"}, "RANK is 'x', expected a number. Hint: start with torchrun, srun or mpirun"),
        ({"TORCHELASTIC_RUN_ID": "x"}, "RANK is '', expected a number"),
        (
            {**SRUN, **ARBITRARY, "SLURM_HOSTFILE": "/none"},
            "SLURM_DISTRIBUTION is arbitrary, and SLURM_HOSTFILE (/none) ",
        ),
        (
            {**SRUN, **ARBITRARY},
            "SLURM_DISTRIBUTION is arbitrary, and SLURM_HOSTFILE (not set) names no first host here",
        ),
        (
            {**SRUN, "SLURM_PROCID": "0", "SLURMD_NODENAME": "gpu-02"},
            "rank 0 is on gpu-02, and the first host is gpu-01. Hint: MASTER_ADDR=gpu-02 srun ...",
        ),
    ],
)
def test_launchers_that_say_too_little(environment: dict[str, str], said: str) -> None:
    with pytest.raises(LaunchError) as caught:
        find_rank(environment)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("line", ["gpu-02", "# ranks\n\n gpu-02*8 # first", "gpu-[02,01]"])
def test_rank_0_is_on_the_first_host_of_the_host_file(line: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"{line}\ngpu-01\n")
    environment = {**SRUN, **ARBITRARY, "SLURM_HOSTFILE": str(tmp_path / "hosts")}
    assert find_rank(environment).address == "gpu-02"
    assert find_rank({**environment, "MASTER_ADDR": "x"}).address == "x"
    assert find_rank({**environment, "SLURM_DISTRIBUTION": "block"}).address == "gpu-01"  # -m is before the host file


@pytest.mark.parametrize(
    ("nodelist", "host"),
    [
        ("gpu-1", "gpu-1"),
        ("gpu-[01-03,7],login-1", "gpu-01"),
        ("a-[1-2]-b[3,5]", "a-1-b3"),
        ("train-st-p5-[9-10]", "train-st-p5-9"),
        ("x,y", "x"),
        ("", ""),
    ],
)
def test_the_first_host_of_a_compressed_list(nodelist: str, host: str) -> None:
    assert first_host(nodelist) == host


def test_a_task_that_sees_one_gpu_takes_it() -> None:
    rank = Rank("srun", 9, 16, 1, "gpu-01", 1)
    assert [device_index(rank, visible) for visible in (8, 1)] == [1, 0]
    assert short_bus("00000000:53:00.0") == short_bus("0000:53:00.0") == "0000:53:00"


def parts(gpus: list[Gpu], *flags: str) -> list[run_all_tests.Part]:
    return run_all_tests.parts(run_all_tests._parser().parse_args(flags), gpus, Path("/r"))


def test_the_programs_of_the_suite() -> None:
    tests = [list(one.reports) for one in parts(GPUS)]
    assert tests == [["gpu_tests"], ["ddp_tests", "ddp_train", "fsdp_train"]]
    assert [list(one.reports) for one in parts(GPUS[:1], "--storage-dir", "/fsx")] == [["gpu_tests"], ["storage"]]
    quick = parts(GPUS, "--quick", "--verbose", "--expect-gpus", "8")
    assert quick[0].argv[2:] == ["--report-dir", "/r", "--quick", "--verbose", "--expect-gpus", "8"]
    assert "--nproc_per_node=4" in quick[1].argv
    assert {"--quick", "--verbose"} <= set(quick[1].argv)
    assert quick[1].argv[-2:] == ["--sizes", "1M,64M,1G,8G"]
    small = [dataclasses.replace(one, memory_bytes=24 << 30) for one in GPUS]
    assert parts(small)[1].argv[-2:] == ["--sizes", "1M,64M,1G"]
    passed = parts(GPUS, "--stress-seconds", "7", "--inject", "flip:1", "--cpu-devices", "2")[0]
    assert passed.argv[4:] == ["--stress-seconds", "7.0", "--inject", "flip:1", "--cpu-devices", "2"]
    assert passed.timeout_s == parts(GPUS)[0].timeout_s + 7


@pytest.mark.parametrize("kind", FAULTS)
def test_the_whole_suite_finds_each_fault(kind: str) -> None:
    assert fault_of(f"{kind}:1", list(gpu_tests.STAGES), 2) == (kind, 1)
    for stage in FAULTS[kind][1] or gpu_tests.STAGES:
        assert fault_of(f"{kind}:0", [stage], 2) == (kind, 0)


def test_quick_measures_less() -> None:
    """What ddp_tests.py takes where a flag does not say it."""
    parse = ddp_tests._parser().parse_args
    flags = ["--sizes", "1M,1G,8G"]
    assert ddp_tests._sizes(parse(flags)) == [1 << 20, 1 << 30, 8 << 30]
    assert ddp_tests._sizes(parse(["--quick", *flags])) == [1 << 20, 1 << 30]
    assert ddp_tests._sizes(parse(["--quick", "--sizes", "8G,4G"])) == [4 << 30]
    assert ddp_tests._sizes(parse(["--quick", "--numel", "5"])) == [20]


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ([], ["ddp_allreduce_result.json"]),
        (["--train-smoke"], ["ddp_training_result.json"]),
        (["--fsdp"], ["fsdp_training_result.json"]),
        (["--all"], ["ddp_allreduce_result.json", "ddp_training_result.json", "fsdp_training_result.json"]),
    ],
)
def test_what_the_flags_of_ddp_tests_ask_for(flags: list[str], names: list[str]) -> None:
    tests = ddp_tests._tests(ddp_tests._parser().parse_args(flags), cast(Any, None), [])
    assert [name for name, _ in tests] == names


@pytest.mark.parametrize(("flags", "size"), [([], 16 << 30), (["--quick"], 1 << 30), (["--size", "3M"], 3 << 20)])
def test_how_much_storage_is_written(
    flags: list[str], size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[int] = []

    def measure(_: Path, size: int, *__: object) -> None:
        asked_for.append(size)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage_tests, "check_places", lambda *_: None)
    monkeypatch.setattr(storage_tests, "test", measure)
    assert storage_tests.main(["--directory", str(tmp_path), *flags]) == 1
    assert asked_for == [size]


def test_names_of_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in (gpu_tests, run_all_tests):
        monkeypatch.setattr(program, "find_gpus", list)
    monkeypatch.setattr(run_all_tests, "check_places", lambda *_: None)  # a directory that vanishes after the look
    flags = ["--report-dir", str(tmp_path), "--report-name"]
    assert gpu_tests.main([*flags, "gpus"]) == 0
    assert run_all_tests.main([*flags, "whole.json", "--storage-dir", "/none"]) == 1
    assert json.loads((tmp_path / "gpus.json").read_text())["result"] == "SKIPPED"
    whole = json.loads((tmp_path / "whole.json").read_text())
    assert whole["failures"] == ["storage ended with code 2 (its lines are above)"]


def test_a_part_that_hangs_or_says_nothing_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.json").write_text('{"failures": ["of an older run"]}')
    waits = run_all_tests.Part(["sleep", "60"], {"ddp_tests": "r.json"}, 0.2)
    found = run_all_tests.run_part(waits, tmp_path)
    assert found["ddp_tests"]["failures"] == ["ddp_tests did not end within 0 s: it hangs"]
    dies = run_all_tests.Part(["sh", "-c", "echo '[RESULT] x'; exit 7"], {"gpu_tests": "r.json"}, 60)
    found = run_all_tests.run_part(dies, tmp_path)
    assert found["gpu_tests"]["failures"] == ["gpu_tests ended with code 7 (its lines are above)"]
    assert capsys.readouterr().out == "[PART] gpu_tests: x\n"


@pytest.mark.parametrize(
    ("reports_of_it", "code", "outcomes"),
    [
        ({"a": [], "b": [], "c": []}, 0, [(0, []), (0, []), (0, [])]),
        ({"a": ["wrong"], "b": [], "c": []}, 1, [(1, ["wrong"]), (0, []), (0, [])]),
        ({"a": [], "b": []}, 1, [(0, []), (0, []), (1, ["c ended with code 1 (its lines are above)"])]),
        ({"a": [], "b": []}, 0, [(0, []), (0, []), (0, ["c left no report"])]),
        ({"a": [], "b": [], "c": []}, 9, [(0, []), (0, []), (9, ["c ended with code 9 (its lines are above)"])]),
    ],
)
def test_a_program_of_several_tests(
    reports_of_it: dict[str, list[str]], code: int, outcomes: list[tuple[int, list[str]]], tmp_path: Path
) -> None:
    texts = {name: json.dumps({"failures": failures, "took_s": 2}) for name, failures in reports_of_it.items()}
    write = "".join(f"echo '{text}' >{tmp_path}/{name}; " for name, text in texts.items())
    part = run_all_tests.Part(["sh", "-c", f"{write} exit {code}"], {name: name for name in "abc"}, 60)
    found = run_all_tests.run_part(part, tmp_path)
    assert [(one["rc"], one["failures"]) for one in found.values()] == outcomes
    assert found["a"]["took_s"] == 2


def test_the_fleet_names_nodes_gpus_and_corruption(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        report = json.loads(json.dumps(RECORDED))
        report["node"] = f"gpu-{number}"
        if number == 3:
            report["stages"]["screen"]["0"]["hashes"]["fp16 1"] = "other"
            for one in report["stages"]["compute"]["0"]["gemms"]:
                one["tflops"] *= 0.8
        folder = tmp_path / f"gpu-{number}"
        folder.mkdir()
        (folder / "gpu_tests_result.json").write_text(json.dumps(report))
    assert fleet.main([str(tmp_path), "--expect-nodes", "6", "--report-dir", str(tmp_path / "fleet")]) == 1
    failures = "\n".join(json.loads((tmp_path / "fleet/fleet_result.json").read_text())["failures"])
    assert "5 nodes have a report, expected 6: gpu-0, gpu-1" in failures
    assert "gpu-3 gpu 0 (0000:00:06): gemm bf16 8192 530.3 TFLOP/s, 20% below the median 662.8 of 5" in failures
    assert "gpu-3: gemm bf16 8192 530.3 TFLOP/s, 20% below the median of 5 nodes" in failures
    assert "gpu-3 gpu 0 (0000:00:06): corruption screen: other bytes than the majority in fp16 1" in failures
    assert "gpu-0 gpu" not in failures
    (tmp_path / "gpu-0/gpu_tests_result.json").write_text("{")
    assert fleet.main([str(tmp_path)]) == 1
    assert "gpu_tests_result.json: cannot be read" in capsys.readouterr().out


def test_the_fleet_compares_what_is_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three nodes of one card, and one of another that is slower and has other bytes."""
    for number in range(4):
        report = json.loads(json.dumps(RECORDED))
        report["node"] = f"gpu-{number}"
        if number == 3:
            report["gpus"][0].update(name="NVIDIA H200 MIG 1g.18gb", multiprocessors=16)
            report["stages"]["screen"]["0"].update(multiprocessors=16, hashes={"bf16 0": "other"})
            for one in report["stages"]["compute"]["0"]["gemms"]:
                one["tflops"] /= 8
        (tmp_path / f"{number}.json").write_text(json.dumps(report))
    flags = ["--report-dir", str(tmp_path / "fleet"), "--report-name", "mine"]
    assert fleet.main([str(tmp_path), *flags]) == 0
    assert "[CHECK]" not in capsys.readouterr().out
    alone = "there is no other GPU of the same kind to compare with: gpu-3 gpu 0 (0000:00:06) (NVIDIA H200 MIG 1g.18gb, 16 multiprocessors, torch 2.11.0+cu130, cuda 13.0)"
    checks = json.loads((tmp_path / "fleet/mine.json").read_text())["checks"]
    assert [one["message"] for one in checks if one["name"] == "screen"] == [f"corruption screen: {alone}"]
    suite = suite_report(tmp_path).gpus
    assert suite is not None
    rows = {(one.name, one.verdict, one.cause) for one in suite.tests}
    assert {("fleet", "pass", ""), ("fleet: screen", "no limit", f"corruption screen: {alone}")} <= rows
    assert fleet.main([str(tmp_path), "--verbose"]) == 0
    assert f"[CHECK] no limit: corruption screen: {alone}" in capsys.readouterr().out


def test_a_process_that_no_signal_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that hangs in the driver: `answer` reports the hang, and the other GPUs are measured."""
    monkeypatch.setattr(workers, "END_S", 0.05)
    worker = workers._Worker(["sleep", "60"], os.environ)
    with monkeypatch.context() as patch:
        patch.setattr(worker.process, "kill", lambda: None)
        found = worker.answer(time.monotonic(), "compute", 5)
    assert found == {"error": "compute did not end within 5 s: it hangs", "hang": True}
    assert worker.process.poll() is None
    worker.end()


SRUN_STAND_IN = '#!/bin/sh\necho "srun $*" >>"$CALLS"\nexit "${CODE:-0}"\n'


@pytest.mark.parametrize("script", ["single_node_gpu", "multi_node_ddp"])
@pytest.mark.parametrize("image", ["", "/fsx/containers/x.sqsh"])
def test_batch_scripts(tmp_path: Path, script: str, image: str) -> None:
    for name in ("srun", "python3"):
        (tmp_path / name).write_text(SRUN_STAND_IN.replace("srun", name))
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}
    env |= {"SLURM_JOB_ID": "5", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8", "SLURM_CPUS_ON_NODE": "192"}
    env |= {"SUITE": "/s", "REPORTS": str(tmp_path / "r"), "QUICK": "1", "IMAGE": image, "STORAGE": "/fsx/here"}
    argv = ["bash", str(SUITE / f"sbatch/{script}.sbatch")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text().replace(str(tmp_path / "r"), "REPORTS")
    golden = HERE / f"data/{script}{'-image' if image else ''}.txt"
    if os.environ.get("SLIPWAY_UPDATE_GOLDEN"):
        golden.write_text(calls)
    assert calls == golden.read_text()
    failed = subprocess.run(argv, env={**env, "CODE": "1"}, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    if script == "multi_node_ddp":
        assert failed.stdout.splitlines()[-1].startswith("[RESULT] FAILURE: [gpu_tests fleet ddp_tests: see ")


def test_acceptance_becomes_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {
        "gpu": "gpu_tests.py",
        "ddp": "ddp_tests.py",
        "suite": "run_all_tests.py",
        "storage": "storage_tests.py",
    }
    for command, program in programs.items():
        called: list[Any] = []

        def replace(python: str, argv: list[str], seen: list[Any] = called) -> None:
            seen.append((python, argv))
            raise SystemExit(0)

        monkeypatch.setattr("acceptance.suite.os.execv", replace)
        with pytest.raises(SystemExit):
            acceptance([command, "--quick", "--report-name", "r"])
        assert called[0][1][1:] == [str(SUITE / program), "--quick", "--report-name", "r"]
    monkeypatch.setattr("acceptance.suite._PLACES", (tmp_path / "none",))
    assert acceptance(["gpu"]) == 3


@pytest.mark.parametrize("program", ["gpu_tests", "ddp_tests", "run_all_tests", "storage_tests", "fleet"])
def test_each_program_runs_by_its_file_alone(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", str(SUITE / f"{program}.py"), "--help"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "--report-dir" in done.stdout
