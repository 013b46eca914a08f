"""Run the whole suite on this machine: every GPU, then the communication of all of them, then storage if asked for.

    python run_all_tests.py --quick --report-dir reports

Exit codes: 0 good, or no GPU (skipped); 1 a test failed; 2 wrong use; 3 torch is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from gpusuite import reports
from gpusuite.devices import CudaError, Gpu, find_gpus

REPORT = "run_all_result.json"
HERE = Path(__file__).resolve().parent
_LARGE = 79 * 10**9  # bytes of GPU memory from which all-reduces of 8 GiB are measured too


@dataclass(frozen=True)
class Part:
    """One program of the suite. report: its JSON file; timeout_s: after which it hangs."""

    name: str
    argv: list[str]
    report: str
    timeout_s: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts one after the other; a part that fails does not keep the others from running."""
    arguments = _parser().parse_args(argv)
    cpu = arguments.cpu_devices
    try:
        gpus = find_gpus() if cpu is None else [Gpu(index, "CPU", f"cpu:{index}") for index in range(cpu)]
    except CudaError as error:
        return reports.result([f"{reports.node_name()}: {error}"])
    if not gpus and not arguments.expect_gpus and not arguments.storage_dir:
        reports.say("ENV", f"node {reports.node_name()}: no GPU")
        return reports.result([], "no GPU on this machine: no test was run")
    if gpus and importlib.util.find_spec("torch") is None:
        reports.wrong_use(f"{sys.executable} has no torch. Hint: run in an image with torch")
        return reports.EXIT_ENVIRONMENT
    started, found = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder:
        directory = arguments.report_dir or Path(folder)
        for part in parts(arguments, gpus, directory):
            found[part.name] = run_part(part, directory)
        if len(gpus) == 1:
            reports.say("DDP", "one GPU: there is no other to communicate with, DDP and FSDP were not run")
        return _conclude(arguments, found, time.monotonic() - started)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run the whole GPU suite on this machine.")
    reports.add_common(parser, REPORT)
    parser.add_argument("--expect-gpus", type=reports.whole(0, 1_000_000), metavar="N", help="fewer GPUs are a failure")
    parser.add_argument("--stress-seconds", type=reports.above_zero, metavar="S", help="length of the stress test")
    storage = "test the storage of this directory too; may be repeated"
    parser.add_argument("--storage-dir", type=Path, action="append", default=[], metavar="DIR", help=storage)
    parser.add_argument("--inject", metavar="KIND:GPU", help="passed to gpu_tests.py: a fault on purpose")
    cpu = "for tests: N processes on the CPU instead of GPUs; the figures mean nothing"
    parser.add_argument("--cpu-devices", type=reports.whole(1, 64), metavar="N", help=cpu)
    return parser


def parts(arguments: argparse.Namespace, gpus: Sequence[Gpu], directory: Path) -> list[Part]:
    """Return the programs to run, with their arguments."""
    common = ["--report-dir", str(directory)]
    common += [flag for flag, wanted in (("--quick", arguments.quick), ("--verbose", arguments.verbose)) if wanted]
    return [
        *([_gpu_part(arguments, common)] if gpus or arguments.expect_gpus else []),
        *(_group_parts(arguments, gpus, common) if len(gpus) > 1 else []),
        *([_storage_part(arguments, common)] if arguments.storage_dir else []),
    ]


def _gpu_part(arguments: argparse.Namespace, common: Sequence[str]) -> Part:
    argv = [sys.executable, str(HERE / "gpu_tests.py"), *common]
    for flag in ("expect_gpus", "stress_seconds", "inject", "cpu_devices"):
        value = getattr(arguments, flag)
        argv += [f"--{flag.replace('_', '-')}", str(value)] if value is not None else []
    most = 1200 if arguments.quick else 4000
    return Part("gpu_tests", argv, "gpu_tests_result.json", most + (arguments.stress_seconds or 0))


def _group_parts(arguments: argparse.Namespace, gpus: Sequence[Gpu], common: Sequence[str]) -> list[Part]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={len(gpus)}"]
    program = [*launch, str(HERE / "ddp_tests.py"), *common, *(["--cpu"] if arguments.cpu_devices else [])]
    largest = ",8G" if min(gpu.memory_bytes for gpu in gpus) >= _LARGE and not arguments.quick else ""
    sizes = "64K,1M" if arguments.cpu_devices else f"1M,64M,1G{largest}"
    iterations = "--iters=20" if arguments.quick else "--iters=50"
    fsdp = ["--fsdp", "--report-name", "fsdp_training_result.json"]
    return [
        Part("ddp_tests", [*program, "--sizes", sizes, iterations], "ddp_allreduce_result.json", 600),
        Part("ddp_train", [*program, "--train-smoke"], "ddp_training_result.json", 400),
        Part("fsdp_train", [*program, *fsdp], "fsdp_training_result.json", 400),
    ]


def _storage_part(arguments: argparse.Namespace, common: Sequence[str]) -> Part:
    argv = [sys.executable, str(HERE / "storage_tests.py"), *common]
    for directory in arguments.storage_dir:
        argv += ["--directory", str(directory)]
    return Part("storage", argv, "storage_result.json", 3600)


def run_part(part: Part, directory: Path) -> dict[str, Any]:
    """Run a program, print its lines, and return its exit code and report. It is killed after its time."""
    (directory / part.report).unlink(missing_ok=True)  # an older run's would be read as this one's
    started = time.monotonic()
    process = subprocess.Popen(
        part.argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    )
    late = threading.Event()

    def kill() -> None:
        late.set()
        os.killpg(process.pid, signal.SIGKILL)

    watchdog = threading.Timer(part.timeout_s, kill)
    watchdog.start()
    try:
        for line in process.stdout or ():
            if "[RESULT]" in line:
                line = line.replace("[RESULT]", f"[PART] {part.name}:")
            print(line, end="", flush=True)
        code = process.wait()
    except BaseException:  # Ctrl-C, SIGTERM, a reader that has ended: the part ends too
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        raise
    finally:
        watchdog.cancel()
    report = _read(directory / part.report)
    failures = report.get("failures", [])
    if late.is_set():
        failures = [f"{part.name} did not end within {part.timeout_s:.0f} s: it hangs"]
    elif code and not failures:
        failures = [f"{part.name} ended with code {code} (its lines are above)"]
    return {"rc": code, "took_s": round(time.monotonic() - started, 1), "failures": failures, "report": report}


def _read(path: Path) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return report


def _conclude(arguments: argparse.Namespace, found: dict[str, dict[str, Any]], took_s: float) -> int:
    failures = [failure for part in found.values() for failure in part["failures"]]
    for name, part in found.items():
        reports.say("SUMMARY", f"{name} rc={part['rc']} in {part['took_s']} s")
    reports.say("SUMMARY", f"whole suite in {took_s:.1f} s")
    report = {"schema": 1, "node": reports.node_name(), "date": reports.now(), "quick": arguments.quick}
    report.update(took_s=round(took_s, 1), parts=found, failures=failures)
    report["result"] = reports.FAILURE if failures else reports.SUCCESS
    written = reports.write(arguments.report_dir, arguments.report_name, report)
    code = reports.result(failures)
    return code if written else code or reports.EXIT_ENVIRONMENT


if __name__ == "__main__":
    sys.exit(reports.run(main))
