"""What the templates other than NcclTest leave in a job's folder: their figures, and whether they succeeded.

Source of the files and texts: the report_generation_strategy modules of github.com/NVIDIA/cloudai at 5b5c0f72,
src/cloudai/workloads.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median, pstdev

from acceptance.cloudai.suite import PROGRAMS, suite_results
from acceptance.limits import Check
from acceptance.report.model import Figure
from acceptance.runner.files import open_plain

Results = tuple[list[Figure], list[Check]]
_MOST_LINES = 5_000_000
NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"
_STEP = re.compile(rf"train_step_timing in s[:=]\s*{NUMBER}")
_STEPS = re.compile(r"train_step_timing in s:\s*\[([^\]]*)\]")
_PAX = re.compile(rf"\[PAX STATUS\]: train_step\(\) took {NUMBER} seconds")
_PAX_ENDED = "E2E time: Elapsed time for"
# A cause that a log of JAX names, by the text that shows it.
_PAX_CAUSES = (
    ("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "a node has no GPU that CUDA can use"),
    ("Terminating process because the coordinator detected missing heartbeats", "a process lost its coordinator"),
    ("pyxis: mktemp: failed to create directory via template", "the disk of a node is full: pyxis made no container"),
)
_ROWS = {  # of genai-perf's and aiperf's tables -> whether higher is better
    "Time To First Token (ms)": False,
    "Inter Token Latency (ms)": False,
    "Request Latency (ms)": False,
    "Output Token Throughput (per sec)": True,
    "Output Token Throughput (tokens/sec)": True,
    "Request Throughput (per sec)": True,
    "Request Throughput (requests/sec)": True,
}
_COLUMNS = {"avg": "avg", "mean": "avg", "Value": "", "p50": "p50", "median": "p50", "p99": "p99"}


def results_of(template: str, folder: Path) -> Results:
    """Return the figures of a job that ended well, and the checks of its template."""
    reader = _READERS.get(template)
    return reader(folder) if reader else ([], [])


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file; none if it does not exist. Others' links are not followed."""
    try:
        with os.fdopen(open_plain(path), "r", encoding="utf-8", errors="replace") as stream:
            for number, line in enumerate(stream):
                if number >= _MOST_LINES:
                    return
                yield line
    except OSError:
        return


def _times(values: Sequence[float], name: str = "step time") -> list[Figure]:
    """Mean first: it is what points of a sweep are compared by."""
    parts = (("mean", mean(values)), ("median", median(values)), ("min", min(values)), ("max", max(values)))
    return [Figure(f"{name}, {part}", value, "s") for part, value in (*parts, ("deviation", pstdev(values)))]


def missing(what: str, where: str) -> Check:
    return Check("results", "fail", f"{where} has no {what}: the program ended well, but left no result")


def _stepped(values: Sequence[float], where: str) -> Results:
    if not values:
        return [], [missing("step times (train_step_timing in s)", where)]
    figures = _times(values)
    return figures, [Check("results", "pass", f"{len(values)} steps of {figures[0].value:.4g} s on average")]


def _nemo_launcher(folder: Path) -> Results:
    """The launcher's job logs below run/. Of more than 100 steps the last 20 count."""
    values: list[float] = []
    for path in sorted((folder / "run").glob("log-*.out")):
        for line in lines_of(path):
            listed = _STEPS.search(line)
            values += [float(one) for one in re.findall(NUMBER, listed[1])] if listed else _found(_STEP, line)
    return _stepped(values[-20:] if len(values) > 100 else values, "run/log-*.out")


def _found(pattern: re.Pattern[str], line: str) -> list[float]:
    return [float(one) for one in pattern.findall(line)]


def _nemo_run(folder: Path) -> Results:
    """Steps 80 to 100 if there are 20 of them, else all but the first, which compiles."""
    values = [one for line in lines_of(folder / "stdout.txt") for one in _found(_STEP, line)]
    chosen = values[80:101] if len(values[80:101]) >= 20 else values[1:] or values
    figures, checks = _stepped(chosen, "stdout.txt")
    if not any("max_steps=" in line and "reached" in line for line in lines_of(folder / "stderr.txt")):
        message = "stderr.txt does not say that max_steps was reached: the training ended before its last step"
        checks.append(Check("last step", "fail", message))
    return figures, checks


def _jax(folder: Path) -> Results:
    """The first ten steps of each process are left out: they compile."""
    values: list[float] = []
    checks: list[Check] = []
    errors = sorted(folder.glob("error-*.txt"))
    for path in [*errors, *sorted(folder.glob("profile_stderr_*.txt"))]:
        ended, cause, own = False, "", list[float]()
        for line in lines_of(path):
            own += _found(_PAX, line)
            ended = ended or _PAX_ENDED in line
            cause = cause or next((text for shown, text in _PAX_CAUSES if shown in line), "")
        values += own[10:] if path in errors else []
        if not ended:
            reason = f": {cause}" if cause else f' (it has no "{_PAX_ENDED}")'
            checks.append(Check(path.name, "fail", f"this process did not reach its end{reason}"))
    figures, more = _stepped(values, "error-*.txt")
    return figures, [*checks, *more]


def _dynamo(folder: Path) -> Results:
    """Tables of genai-perf and aiperf; CloudAI's script leaves a marker of success or failure."""
    checks = []
    if (folder / "failure-marker.txt").exists():
        checks.append(Check("marker", "fail", "failure-marker.txt exists: ai_dynamo.sh reports a failure"))
    elif not (folder / "success-marker.txt").exists():
        checks.append(Check("marker", "fail", "success-marker.txt does not exist: ai_dynamo.sh did not reach its end"))
    patterns = ("genai_perf_report.csv", "aiperf_report.csv", "aiperf_*_report.csv", "profile_genai_perf.csv")
    paths = dict.fromkeys(path for pattern in patterns for path in sorted(folder.glob(pattern)))
    figures = []
    for path in paths:
        name = re.sub(r"_report$|^profile_", "", path.stem)
        figures += [
            Figure(f"{name}: {figure.name}", figure.value, figure.unit, figure.higher) for figure in table_figures(path)
        ]
    if not figures:
        checks.append(missing("table of genai-perf or aiperf", "the folder"))
    else:
        checks.append(Check("results", "pass", f"{len(paths)} tables with {len(figures)} figures"))
    return figures, checks


def table_figures(path: Path) -> list[Figure]:
    """Return the known rows of a CSV of genai-perf or aiperf, which may have several tables, each with its head."""
    figures: list[Figure] = []
    head: list[str] = []
    for row in csv.reader(lines_of(path)):
        if row and row[0].strip() == "Metric":
            head = [cell.strip() for cell in row]
        elif row and row[0].strip() in _ROWS:
            name, unit = re.fullmatch(r"(.*) \((.*)\)", row[0].strip()).groups()  # type: ignore[union-attr]
            for title, cell in zip(head[1:], row[1:]):
                text = cell.replace(",", "").strip()
                if title in _COLUMNS and re.fullmatch(NUMBER, text):
                    full = f"{name}, {_COLUMNS[title]}" if _COLUMNS[title] else name
                    figures.append(Figure(full, float(text), unit.replace("per sec", "1/s"), _ROWS[row[0].strip()]))
    return figures


def _ucc(folder: Path) -> Results:
    """Rows of count, size, time (average, least, most, in microseconds) and bandwidth (the same, in GB/s)."""
    rows = []
    for line in lines_of(folder / "stdout.txt"):
        cells = line.split()
        if len(cells) == 8 and all(re.fullmatch(NUMBER, cell) for cell in cells):
            rows.append([float(cell) for cell in cells])
    if not rows:
        return [], [missing("row of ucc_perftest", "stdout.txt")]
    last = rows[-1]
    figures = [
        Figure(f"bandwidth at {last[1]:.0f} bytes, average", last[5], "GB/s", higher=True),
        Figure(f"time at {last[1]:.0f} bytes, average", last[2], "us"),
        Figure(f"time at {rows[0][1]:.0f} bytes, average", rows[0][2], "us"),
    ]
    return figures, [Check("results", "pass", f"{len(rows)} sizes were measured")]


def _chakra(folder: Path) -> Results:
    """How many operations of each kind were replayed."""
    counts = {}
    for line in lines_of(folder / "stdout.txt"):
        match = re.search(r"Replayed (\d+) (\S+)", line)
        if match:
            counts[match[2]] = float(match[1])
    if not counts:
        return [], [missing('"Replayed N OPERATION"', "stdout.txt")]
    figures = [Figure(f"replayed {name}", value, "operations", higher=True) for name, value in counts.items()]
    return figures, [Check("results", "pass", f"{sum(counts.values()):.0f} operations were replayed")]


_READERS: dict[str, Callable[[Path], Results]] = {
    "NeMoLauncher": _nemo_launcher,
    "NeMoRun": _nemo_run,
    "JaxToolboxGPT": _jax,
    "JaxToolboxGrok": _jax,
    "JaxToolboxNemotron": _jax,
    "AIDynamo": _dynamo,
    "UCCTest": _ucc,
    "ChakraReplay": _chakra,
    **dict.fromkeys(PROGRAMS, suite_results),
}
