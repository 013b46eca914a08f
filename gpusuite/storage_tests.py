"""Test storage as training uses it: write and read a checkpoint with checksums, many small files, random reads; fio.

    python storage_tests.py --directory /fsx/checkpoints --directory /scratch
    srun --ntasks-per-node=1 python storage_tests.py --directory /fsx/checkpoints     (all nodes at once)

Needs neither a GPU nor torch. Exit codes: gpusuite/reports.py.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from gpusuite import reports
from gpusuite.judgement import Check, number

REPORT = "storage_result.json"
BLOCK = 16 << 20
_READ = 128 << 10  # one read of a data loader
# Random reads of each thread, and seconds that they may take at most: without and with --quick.
_READS, _READS_S = (4000, 1000), (5.0, 1.25)
_FIO_LIMIT_S = 600
SIZES = ("16G", "1G")  # without and with --quick
THREADS = 8
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Content:
    """The content of the files: blocks of random bytes, each begun by its file's and its own number."""

    def __init__(self) -> None:
        self._body = os.urandom(BLOCK)

    def block(self, file: int, position: int) -> bytes:
        """One block; no two blocks of the test are equal."""
        stamp = file.to_bytes(8, "big") + position.to_bytes(8, "big")
        return stamp + self._body[16:]

    def checksum(self, file: int, position: int) -> int:
        """The CRC-32 of a block."""
        return zlib.crc32(self.block(file, position))


def main(argv: Sequence[str] | None = None) -> int:
    """Test each directory, print and write what was measured."""
    arguments = _parser().parse_args(argv)
    try:
        size = size_of(arguments.size or SIZES[arguments.quick])
        check_places(arguments.directory, size, arguments.threads)
    except (ValueError, OSError) as error:
        reports.complain(str(error))
        return reports.EXIT_INPUT
    results, checks = {}, []
    for directory in arguments.directory:
        try:
            result = test(directory, size, arguments)
        except OSError as error:
            place = error.filename or directory
            checks.append(Check("storage", "fail", f"{reports.node_name()}: {place}: {error.strerror or error}"))
            continue
        results[str(directory)] = result
        checks += judged(directory, result, arguments)
        for line in lines_of(result):
            reports.say("STORAGE", f"{reports.node_name()} {directory}: {line}")
    reports.print_checks(checks, arguments.verbose)
    failures = reports.failures_of(checks)
    report = {"schema": 1, "program": "storage_tests", "node": reports.node_name(), "date": reports.now()}
    report.update(quick=arguments.quick, size_bytes=size, threads=arguments.threads, directories=results)
    report.update(checks=[one.as_json() for one in checks], failures=failures)
    report["result"] = reports.FAILURE if failures else reports.SUCCESS
    written = reports.write(arguments.report_dir, arguments.report_name, report)
    code = reports.result(failures)
    return code if written else code or reports.EXIT_ENVIRONMENT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Test storage as training uses it.")
    reports.add_common(parser, REPORT)
    where = "a directory on the storage to test; may be repeated"
    parser.add_argument("--directory", type=reports.path, action="append", required=True, metavar="DIR", help=where)
    size = f"bytes that are written and read, such as 64G (default: {SIZES[0]}, with --quick {SIZES[1]})"
    parser.add_argument("--size", type=reports.filled, metavar="SIZE", help=size)
    parser.add_argument(
        "--threads",
        type=reports.whole(1, 1024),
        default=THREADS,
        metavar="N",
        help=f"files at the same time (default: {THREADS})",
    )
    parser.add_argument(
        "--files", type=reports.whole(1, 1_000_000), metavar="N", help="small files (default: 5000, with --quick 1000)"
    )
    seconds = "seconds of each of fio's two measurements, where fio is installed (default: 10, with --quick 2)"
    parser.add_argument("--fio-seconds", type=reports.whole(1, 300), metavar="S", help=seconds)
    for name, text in (("write", "of the checkpoint"), ("read", "of the checkpoint")):
        least = f"least rate {text}; slower is a failure"
        parser.add_argument(f"--least-{name}-gb-per-s", type=reports.above_zero, metavar="X", help=least)
    return parser


def size_of(text: str) -> int:
    """Return a size in bytes. Raises ValueError with value, rule and repair."""
    match = re.fullmatch(r"([0-9]{1,15})([KMG]?)", text)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"--size {text}: is no size. Hint: 512M or 64G")
    return int(match[1]) * _UNITS[match[2]]


def check_places(directories: Sequence[Path], size: int, threads: int, flag: str = "--directory") -> None:
    """Raise ValueError or OSError for a directory that cannot be tested. flag: that has named it."""
    size = threads * _blocks(size, threads) * BLOCK
    for directory in directories:
        place = f"{flag} {directory}"
        if not directory.is_dir():
            raise ValueError(f"{place}: is no directory. Hint: make it, or mount the file system")
        if not os.access(directory, os.W_OK | os.X_OK):
            raise ValueError(f"{place}: cannot be written. Hint: give a directory of your own below it")
        free = shutil.disk_usage(directory).free
        if free < 1.1 * size:
            needed = f"{free} bytes are free, the test writes {size}"
            raise ValueError(f"{place}: {needed}. Hint: storage_tests.py with a smaller --size, fewer --threads")


def test(directory: Path, size: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run every test in an own folder of the directory, which is removed afterwards. Raises OSError."""
    files = arguments.files or (1000 if arguments.quick else 5000)
    seconds = arguments.fio_seconds or (2 if arguments.quick else 10)
    with _folder(directory) as folder:
        result = {**checkpoint(folder, size, arguments.threads, arguments.quick), **metadata(folder, files)}
    with _folder(directory) as folder:  # another one: the checkpoint is removed, and fio has its space
        fio = fio_results(folder, min(max(size, 1 << 20), 4 << 30), seconds)
    return {**result, "fio": fio} if fio is not None else result


@contextlib.contextmanager
def _folder(directory: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gpusuite-", dir=directory) as name:
        yield Path(name)


def _blocks(size: int, threads: int) -> int:
    """The blocks of each thread's file: one at least, also where that is more than was asked for."""
    return max(1, size // threads // BLOCK)


def checkpoint(folder: Path, size: int, threads: int, quick: bool) -> dict[str, Any]:
    """Write files at the same time, each with fsync, read them back, and read random parts. Compares every block."""
    content, blocks = Content(), _blocks(size, threads)
    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        list(pool.map(lambda file: _write(folder, file, blocks, content), range(threads)))
        write_s = time.perf_counter() - started
        reads = list(pool.map(lambda file: _read(folder, file, blocks, content), range(threads)))
        random_reads = list(pool.map(lambda file: _loader(folder, file, blocks, content, quick), range(threads)))
    total, loader_s = threads * blocks * BLOCK, max(seconds for _, seconds, _ in random_reads)
    count = sum(done for done, _, _ in random_reads)
    return {
        "bytes": total,
        "write_gb_per_s": total / write_s / 1e9,
        "read_gb_per_s": sum(blocks * BLOCK / seconds for seconds, _, _ in reads) / 1e9,
        "direct_reads": all(direct for _, _, direct in reads),
        "wrong_blocks": sum(wrong for _, wrong, _ in reads) + sum(wrong for _, _, wrong in random_reads),
        "loader_reads": count,
        "loader_reads_per_s": count / loader_s,
        "loader_gb_per_s": count * _READ / loader_s / 1e9,
    }


def _write(folder: Path, file: int, blocks: int, content: Content) -> None:
    with (folder / f"part-{file}").open("wb", buffering=0) as stream:
        for position in range(blocks):
            view = memoryview(content.block(file, position))
            while view:
                view = view[stream.write(view) :]
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[int, bool]]:
    """Open a file past the page cache where the file system can do that; returns the descriptor and whether it can."""
    direct = True
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    except OSError:
        direct, descriptor = False, os.open(path, os.O_RDONLY)
    try:
        yield descriptor, direct
    finally:
        os.close(descriptor)


def _read(folder: Path, file: int, blocks: int, content: Content) -> tuple[float, int, bool]:
    """Return the seconds of reading alone, the wrong blocks, and whether the page cache was avoided."""
    seconds, wrong = 0.0, 0
    with _opened(folder / f"part-{file}") as (descriptor, direct), mmap.mmap(-1, BLOCK) as buffer:
        for position in range(blocks):
            started = time.perf_counter()
            count = os.preadv(descriptor, [buffer], position * BLOCK)
            seconds += time.perf_counter() - started
            wrong += int(count != BLOCK or zlib.crc32(buffer) != content.checksum(file, position))
    return max(seconds, 1e-9), wrong, direct


def _loader(folder: Path, file: int, blocks: int, content: Content, quick: bool) -> tuple[int, float, int]:
    """Read random parts as a data loader does; returns their number, the seconds and the wrong ones."""
    dice, wrong, count, started = random.Random(file), 0, 0, time.perf_counter()  # noqa: S311
    with _opened(folder / f"part-{file}") as (descriptor, _), mmap.mmap(-1, _READ) as buffer:
        while count < _READS[quick] and time.perf_counter() - started < _READS_S[quick]:
            place = dice.randrange(blocks * BLOCK // _READ) * _READ
            wrong += int(os.preadv(descriptor, [buffer], place) != _READ)
            if count % 64 == 0:
                expected = content.block(file, place // BLOCK)[place % BLOCK :][:_READ]
                wrong += int(buffer[:] != expected)
            count += 1
    return count, time.perf_counter() - started, wrong


def metadata(folder: Path, files: int) -> dict[str, Any]:
    """Make, ask for and remove small files; returns each rate a second."""
    paths = [folder / f"small-{number}" for number in range(files)]
    steps: dict[str, Callable[[Path], Any]] = {"create": Path.touch, "stat": Path.stat, "remove": Path.unlink}
    rates = {}
    for name, step in steps.items():
        started = time.perf_counter()
        for path in paths:
            step(path)
        rates[f"{name}_per_s"] = files / (time.perf_counter() - started)
    return {"small_files": files, **rates}


def fio_results(folder: Path, size: int, seconds: int) -> dict[str, Any] | None:
    """Return operations a second of fio's random 4 KiB writes and reads; None where fio is not installed."""
    fio = shutil.which("fio")
    if fio is None:
        return None
    # A thread: the processes that fio otherwise forks would write on if fio were killed.
    argv = [fio, "--name=gpusuite", "--thread", f"--directory={folder}", f"--size={size}", "--bs=4k", "--iodepth=64"]
    argv += ["--ioengine=libaio", "--direct=1", f"--runtime={seconds}", "--time_based", "--output-format=json"]
    return {kind: _fio_result([*argv, f"--rw={kind}"], kind) for kind in ("randwrite", "randread")}


def _fio_result(argv: Sequence[str], kind: str) -> dict[str, Any]:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_FIO_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"fio did not end within {_FIO_LIMIT_S} s"}
    except OSError as error:
        return {"error": f"fio does not start: {error.strerror}"}
    if done.returncode:
        return {"error": fio_error(done.returncode, done.stdout, done.stderr)}
    return parse_fio(done.stdout, kind)


def fio_error(code: int, output: str, errors: str) -> str:
    """Return why fio failed: its first line of its own that does not name a line of its source, in both outputs."""
    if code < 0:
        return f"fio was ended by signal {-code}"
    said = re.findall(r"^fio: (?!file:|pid=)(.+)", f"{errors}\n{output}", re.MULTILINE)
    return f"fio ended with code {code}" + (f": {said[0][:200]}" if said else "")


def parse_fio(text: str, kind: str) -> dict[str, Any]:
    """Read fio's JSON. fio may print warnings before it."""
    try:
        job = json.loads(text[text.index("{") :])["jobs"][0]["read" if kind == "randread" else "write"]
        return {"iops": float(job["iops"]), "gb_per_s": float(job["bw_bytes"]) / 1e9}
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return {"error": f"fio's output cannot be read: {type(error).__name__} {error}"}


def judged(directory: Path, result: dict[str, Any], arguments: argparse.Namespace) -> list[Check]:
    """Compare with the rates that are asked for, and report wrong data."""
    where, wrong = f"{reports.node_name()}: {directory}", result["wrong_blocks"]
    message = f"{where}: {wrong} blocks read back differently than they were written"
    checks = [Check("storage", "fail" if wrong else "pass", message)]
    for name in ("write", "read"):
        least, value = getattr(arguments, f"least_{name}_gb_per_s"), result[f"{name}_gb_per_s"]
        if least is not None:
            message = f"{where}: {name} {number(value)} GB/s, expected at least {number(least)}"
            checks.append(Check("storage", "pass" if value >= least else "fail", message))
    if not result["direct_reads"]:
        message = f"{where}: reads went through the page cache: this file system has no direct reads"
        checks.append(Check("storage", "warn", message))
    for kind, one in result.get("fio", {}).items():
        if "error" in one:
            checks.append(Check("storage", "warn", f"{where}: {kind}: {one['error']}"))
    return checks


def lines_of(result: dict[str, Any]) -> list[str]:
    """The lines that are printed of one directory."""
    lines = [
        f"checkpoint of {result['bytes']} bytes: write {number(result['write_gb_per_s'])} GB/s with fsync, read"
        f" {number(result['read_gb_per_s'])} GB/s, {result['wrong_blocks']} wrong blocks",
        f"data loader: {result['loader_reads']} reads of 128 KiB, {result['loader_reads_per_s']:.0f} a second,"
        f" {number(result['loader_gb_per_s'])} GB/s",
        f"{result['small_files']} small files: create {result['create_per_s']:.0f}, stat {result['stat_per_s']:.0f},"
        f" remove {result['remove_per_s']:.0f} a second",
    ]
    for kind, one in result.get("fio", {}).items():
        if "error" not in one:
            lines.append(f"fio {kind} 4 KiB: {one['iops']:.0f} operations a second, {number(one['gb_per_s'])} GB/s")
    return lines


if __name__ == "__main__":
    sys.exit(reports.run(main))
