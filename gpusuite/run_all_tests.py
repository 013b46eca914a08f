"""Run the whole suite on this machine: every GPU, then the communication of all of them, then storage if asked for.

    python run_all_tests.py --quick --report-dir reports

Exit codes: gpusuite/reports.py.
"""

from __future__ import annotations

import argparse
import contextlib
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
from gpusuite.gpu_tests import STAGES
from gpusuite.options import fault_of
from gpusuite.storage_tests import SIZES, THREADS, check_places, size_of

REPORT = "run_all_result.json"
# Test of ddp_tests.py -> its report.
GROUP_REPORTS = {
    "ddp_tests": "ddp_allreduce_result.json",
    "ddp_train": "ddp_training_result.json",
    "fsdp_train": "fsdp_training_result.json",
}
HERE = Path(__file__).resolve().parent
_LARGE = 79 * 10**9  # bytes of GPU memory from which all-reduces of 8 GiB are measured too


@dataclass(frozen=True)
class Part:
    """One program of the suite. reports: test -> its JSON file; timeout_s: after which the program hangs."""

    argv: list[str]
    reports: dict[str, str]
    timeout_s: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts one after the other; a part that fails does not keep the others from running."""
    arguments = _parser().parse_args(argv)
    cpu = arguments.cpu_devices
    try:
        check_places(arguments.storage_dir, size_of(SIZES[arguments.quick]), THREADS, "--storage-dir")
        gpus = find_gpus() if cpu is None else [Gpu(index, "CPU", f"cpu:{index}") for index in range(cpu)]
        if arguments.inject:
            fault_of(arguments.inject, list(STAGES), len(gpus) if gpus or not arguments.expect_gpus else None)
    except ValueError as error:
        reports.complain(str(error))
        return reports.EXIT_INPUT
    except CudaError as error:
        return reports.result([f"{reports.node_name()}: {error}"])
    except OSError as error:
        reports.complain(f"--storage-dir {error.filename}: {error.strerror}. Hint: is the file system mounted?")
        return reports.EXIT_INPUT
    if not gpus and not arguments.expect_gpus and not arguments.storage_dir:
        reports.say("ENV", f"node {reports.node_name()}: no GPU")
        return _conclude(arguments, {}, 0.0, "no GPU on this machine: no test was run")
    if gpus and reports.unfit():
        return reports.EXIT_ENVIRONMENT
    started, found = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder:
        directory = _writable(arguments.report_dir) or Path(folder)
        for part in parts(arguments, gpus, directory):
            found.update(run_part(part, directory))
        if len(gpus) == 1:
            reports.say("DDP", "one GPU: there is no other to communicate with, DDP and FSDP were not run")
        return _conclude(arguments, found, time.monotonic() - started)


def _writable(directory: Path | None) -> Path | None:
    """Return the directory if it can be written. Else the parts write elsewhere, and their failures are not lost."""
    if directory is not None:
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory):
                return directory
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run the whole GPU suite on this machine.")
    reports.add_common(parser, REPORT)
    parser.add_argument("--expect-gpus", type=reports.whole(0, 1_000_000), metavar="N", help="fewer GPUs are a failure")
    parser.add_argument("--stress-seconds", type=reports.above_zero, metavar="S", help="length of the stress test")
    storage = "test the storage of this directory too; may be repeated"
    parser.add_argument("--storage-dir", type=reports.path, action="append", default=[], metavar="DIR", help=storage)
    parser.add_argument(
        "--inject", type=reports.filled, metavar="KIND:GPU", help="passed to gpu_tests.py: a fault on purpose"
    )
    cpu = "for tests: N processes on the CPU instead of GPUs; the figures mean nothing"
    parser.add_argument("--cpu-devices", type=reports.whole(1, 64), metavar="N", help=cpu)
    return parser


def parts(arguments: argparse.Namespace, gpus: Sequence[Gpu], directory: Path) -> list[Part]:
    """Return the programs to run, with their arguments."""
    common = ["--report-dir", str(directory)]
    common += [flag for flag, wanted in (("--quick", arguments.quick), ("--verbose", arguments.verbose)) if wanted]
    return [
        *([_gpu_part(arguments, common)] if gpus or arguments.expect_gpus else []),
        *([_group_part(arguments, gpus, common)] if len(gpus) > 1 else []),
        *([_storage_part(arguments, common)] if arguments.storage_dir else []),
    ]


def _gpu_part(arguments: argparse.Namespace, common: Sequence[str]) -> Part:
    argv = [sys.executable, str(HERE / "gpu_tests.py"), *common]
    for flag in ("expect_gpus", "stress_seconds", "inject", "cpu_devices"):
        value = getattr(arguments, flag)
        argv += [f"--{flag.replace('_', '-')}", str(value)] if value is not None else []
    most = 1200 if arguments.quick else 4000
    return Part(argv, {"gpu_tests": "gpu_tests_result.json"}, most + (arguments.stress_seconds or 0))


def _group_part(arguments: argparse.Namespace, gpus: Sequence[Gpu], common: Sequence[str]) -> Part:
    """All tests of the communication in one start: importing torch and setting up NCCL take longer than they do."""
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={len(gpus)}"]
    argv += [str(HERE / "ddp_tests.py"), *common, *(["--cpu"] if arguments.cpu_devices else []), "--all"]
    largest = ",8G" if min(gpu.memory_bytes for gpu in gpus) >= _LARGE else ""  # left out with --quick
    argv += ["--collectives", "all_reduce,all_gather,reduce_scatter,alltoall,sendrecv"]
    argv += ["--sizes", "64K,1M" if arguments.cpu_devices else f"1M,64M,1G{largest}"]
    return Part(argv, GROUP_REPORTS, 1200)


def _storage_part(arguments: argparse.Namespace, common: Sequence[str]) -> Part:
    argv = [sys.executable, str(HERE / "storage_tests.py"), *common]
    for directory in arguments.storage_dir:
        argv += ["--directory", str(directory)]
    return Part(argv, {"storage": "storage_result.json"}, 3600)


def run_part(part: Part, directory: Path) -> dict[str, dict[str, Any]]:
    """Run a program, print its lines, and return exit code and report of each test. It is killed after its time."""
    for name in part.reports.values():
        (directory / name).unlink(missing_ok=True)  # an older run's would be read as this one's
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
                line = line.replace("[RESULT]", f"[PART] {next(iter(part.reports))}:")
            print(line, end="", flush=True)
        code = process.wait()
    except BaseException:  # Ctrl-C, SIGTERM, a reader that has ended: the part ends too
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        raise
    finally:
        watchdog.cancel()
    end = f"did not end within {part.timeout_s:.0f} s: it hangs"
    if not late.is_set():
        end = f"ended with code {code} (its lines are above)" if code else "left no report"
    return _found(part, directory, code, end, time.monotonic() - started)


def _found(part: Part, directory: Path, code: int, end: str, took_s: float) -> dict[str, dict[str, Any]]:
    """Return what each test has reported. A test without a report has failed; so has the last one of a bad end."""
    found: dict[str, dict[str, Any]] = {}
    for test, name in part.reports.items():
        report = _read(directory / name)
        failures = list(report.get("failures", [])) if report else [f"{test} {end}"]
        found[test] = {"rc": code if failures else 0, "took_s": round(report.get("took_s", took_s), 1)}
        found[test].update(failures=failures, report=report)
    if code and not any(one["failures"] for one in found.values()):
        found[test].update(rc=code, failures=[f"{test} {end}"])
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return report


def _conclude(arguments: argparse.Namespace, found: dict[str, dict[str, Any]], took_s: float, skipped: str = "") -> int:
    failures = list(dict.fromkeys(failure for part in found.values() for failure in part["failures"]))
    for name, part in found.items():
        reports.say("SUMMARY", f"{name} rc={part['rc']} in {part['took_s']} s")
    if not skipped:
        reports.say("SUMMARY", f"whole suite in {took_s:.1f} s")
    report = {"schema": 1, "node": reports.node_name(), "date": reports.now(), "quick": arguments.quick}
    report.update(took_s=round(took_s, 1), parts=found, failures=failures)
    report["result"] = reports.FAILURE if failures else reports.SKIPPED if skipped else reports.SUCCESS
    written = reports.write(arguments.report_dir, arguments.report_name, report)
    code = reports.result(failures, skipped)
    return code if written else code or reports.EXIT_ENVIRONMENT


if __name__ == "__main__":
    sys.exit(reports.run(main))
