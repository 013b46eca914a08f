"""`make bench-suite`: the GPU suite next to a bare script in plain torch, in one call: bare, suite, bare.

    python3 -m bench.suite --report-dir DIR           (in a checkout, in an image with torch, on a node with GPUs)

A cooler machine is faster: a figure of the suite is compared with the nearer one of the two bare runs. DIR keeps what
was printed and written; `--compare` reads it again and measures nothing. Exit codes: 0 all ratios are within 3 %; 1 one
is not; 3 nothing could be measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.suite.compare import WITHIN, Row, compare, figures_of_bare, figures_of_suite

HERE = Path(__file__).resolve().parent
SUITE = HERE.parents[1] / "gpusuite/run_all_tests.py"
BARES = ("bare-before.json", "bare-after.json")


def measure(arguments: argparse.Namespace) -> bool:
    """Run the three; returns whether each has measured."""
    flags = ["--stress-seconds", str(arguments.stress_seconds)]
    flags += ["--cpu-devices", str(arguments.cpu_devices)] if arguments.cpu_devices else []
    folder: Path = arguments.report_dir
    folder.mkdir(parents=True, exist_ok=True)
    return (
        bare(flags, folder / BARES[0])
        and subprocess.run([sys.executable, SUITE, "--quick", "--report-dir", folder, *flags], check=False).returncode
        == 0
        and bare(flags, folder / BARES[1])
    )


def bare(flags: list[str], path: Path) -> bool:
    """Run the bare script and keep the line that it prints."""
    print(f"{path.stem} ...", flush=True)
    done = subprocess.run([sys.executable, HERE / "bare.py", *flags], stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return False
    path.write_text(lines[-1] + "\n", encoding="utf-8")
    return True


def read(folder: Path) -> tuple[list[Row], list[str]]:
    """Compare what the folder has. Raises OSError, or another error for a file of another form."""

    def values(name: str) -> Any:
        return json.loads((folder / name).read_text(encoding="utf-8"))

    parts = values("run_all_result.json")["parts"]
    group = parts["ddp_tests"]["report"] if "ddp_tests" in parts else {}
    suite = figures_of_suite(parts["gpu_tests"]["report"], group)
    return compare(suite, [figures_of_bare(values(name)) for name in BARES])


def main(argv: list[str] | None = None) -> int:
    """Measure, or read what was measured; print each figure with its ratio."""
    parser = argparse.ArgumentParser(prog="bench.suite", description="The GPU suite next to a bare script.")
    parser.add_argument("--report-dir", type=Path, required=True, metavar="DIR", help="keeps what is measured")
    parser.add_argument("--compare", action="store_true", help="measure nothing: compare what DIR has")
    parser.add_argument("--stress-seconds", type=float, default=20, metavar="S", help="length of the full load")
    cpu = "for tests: N processes on the CPU instead of GPUs; the figures and ratios mean nothing"
    parser.add_argument("--cpu-devices", type=int, metavar="N", help=cpu)
    arguments = parser.parse_args(argv)
    if not arguments.compare and not measure(arguments):
        print("bench.suite: a part has failed: its lines are above", file=sys.stderr)
        return 3
    try:
        rows, alone = read(arguments.report_dir)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"bench.suite: {arguments.report_dir}: cannot be compared: {error!r}. Hint: measure it", file=sys.stderr)
        return 3
    for row in rows:
        text = f"{row.where}: {row.metric}: suite {row.suite:.5g}, bare {row.bare:.5g}, ratio {row.ratio:.4f}"
        print(text if row.good else f"{text}: differs by more than {WITHIN:.0%}")
    print(f"not measured by both: {', '.join(alone) or 'nothing'}")
    bad = [row for row in rows if not row.good]
    print(f"{len(rows)} figures, {len(bad)} of them differ by more than {WITHIN:.0%}")
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
