"""`make bench-suite`: the GPU suite next to a bare script in plain torch, in one call: bare, suite, bare.

    python3 -m bench.suite --report-dir DIR           (in a checkout, in an image with torch, on a node with GPUs)

A cooler machine is faster: a figure of the suite is compared with the nearer one of the two bare runs. DIR keeps what
was printed and written; `--compare` reads it again and measures nothing. Exit codes: 0 all ratios are within 3 %; 1 one
is not; 2 wrong use, or a file of DIR that cannot be compared; 3 nothing could be measured.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.suite.compare import WITHIN, Row, compare, figures_of_bare, figures_of_suite
from gpusuite import reports

Figures = dict[tuple[str, str], float]
HERE = Path(__file__).resolve().parent
SUITE = HERE.parents[1] / "gpusuite/run_all_tests.py"
BARES = ("bare-before.json", "bare-after.json")


def measure(arguments: argparse.Namespace) -> bool:
    """Run the three; returns whether each has measured, after a line if not. Raises InputFault."""
    if importlib.util.find_spec("torch") is None:
        hint = "Hint: make bench-suite PYTHON=FILE, with the python3 of an environment that has torch"
        print(f"bench.suite: {sys.executable}: torch is missing. {hint}", file=sys.stderr)
        return False
    flags = ["--stress-seconds", str(arguments.stress_seconds)]
    flags += ["--cpu-devices", str(arguments.cpu_devices)] if arguments.cpu_devices else []
    folder: Path = arguments.report_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputFault(folder, "is not a folder") from None
    good = (
        bare(flags, folder / BARES[0])
        and subprocess.run([sys.executable, SUITE, "--quick", "--report-dir", folder, *flags], check=False).returncode
        == 0
        and bare(flags, folder / BARES[1])
    )
    if not good:
        print("bench.suite: a part has failed: its lines are above", file=sys.stderr)
    return good


def bare(flags: list[str], path: Path) -> bool:
    """Run the bare script and keep the line that it prints."""
    print(f"{path.stem} ...", flush=True)
    done = subprocess.run([sys.executable, HERE / "bare.py", *flags], stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return False
    path.write_text(lines[-1] + "\n", encoding="utf-8")
    return True


class InputFault(Exception):
    """A file or folder that cannot be compared: place, rule and repair."""

    def __init__(self, path: Path, rule: str) -> None:
        super().__init__(f"{path}: {rule}. Hint: measure it, or name another folder with --report-dir")


def read(folder: Path) -> tuple[list[Row], list[str]]:
    """Compare what the folder has. Raises InputFault."""
    suite = _figures(folder / "run_all_result.json", _suite_figures)
    return compare(suite, [_figures(folder / name, figures_of_bare) for name in BARES])


def _suite_figures(report: Any) -> Figures:
    parts = report["parts"]
    group = parts["ddp_tests"]["report"] if "ddp_tests" in parts else {}
    return figures_of_suite(parts["gpu_tests"]["report"], group)


def _figures(path: Path, take: Callable[[Any], Figures]) -> Figures:
    """Return the figures of a file. Raises InputFault."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputFault(path, "is not a regular file")
        return take(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputFault(path, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise InputFault(path, "is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputFault(path, f"is not JSON: {error}") from None
    except KeyError as error:
        raise InputFault(path, f"{error.args[0]} is missing") from None
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InputFault(path, "has another form than the suite and the bare script write") from None


def main(argv: list[str] | None = None) -> int:
    """Measure, or read what was measured; print each figure with its ratio."""
    parser = argparse.ArgumentParser(prog="bench.suite", description="The GPU suite next to a bare script.")
    parser.add_argument("--report-dir", type=reports.path, required=True, metavar="DIR", help="keeps what is measured")
    parser.add_argument("--compare", action="store_true", help="measure nothing: compare what DIR has")
    parser.add_argument("--stress-seconds", type=float, default=20, metavar="S", help="length of the full load")
    cpu = "for tests: N processes on the CPU instead of GPUs; the figures and ratios mean nothing"
    parser.add_argument("--cpu-devices", type=int, metavar="N", help=cpu)
    arguments = parser.parse_args(argv)
    try:
        if not arguments.compare and not measure(arguments):
            return 3
        rows, alone = read(arguments.report_dir)
    except InputFault as error:
        print(f"bench.suite: {error}", file=sys.stderr)
        return 2
    for row in rows:
        text = f"{row.where}: {row.metric}: suite {row.suite:.5g}, bare {row.bare:.5g}, ratio {row.ratio:.4f}"
        print(text if row.good else f"{text}: differs by more than {WITHIN:.0%}")
    print(f"not measured by both: {', '.join(alone) or 'nothing'}")
    bad = [row for row in rows if not row.good]
    print(f"{len(rows)} figures, {len(bad)} of them differ by more than {WITHIN:.0%}")
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    sys.exit(reports.run(main))
