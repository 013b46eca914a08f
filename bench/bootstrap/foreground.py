"""How long a node's bootstrap holds ParallelCluster up: the foreground seconds of each step, in a real rehearsal.

The rehearsal is `slipway rehearse` with clusters/rehearsal.yaml, one compute host, and nothing to accept: a node on AWS
shares its processors with no other node. The packages are there, and the software comes from a local mirror. The
figures are the steps' own, from the setup log that the rehearsal keeps of every host. A step whose failure was reported
counts with the whole seconds between its lines.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = "clusters/rehearsal.yaml"
MEASURED, NOTHING = "scenario: all-reduce", "scenario: none"  # a line of the settings, and what takes its place
LIMIT_S = 10.0
"""Foreground seconds that the bootstrap of each kind of node may take (ours, 2026-11)."""
REHEARSAL_TIMEOUT_S = 900
KINDS = {"headnode": "head", "compute": "compute"}
_LINE = re.compile(
    r"^(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) slipway: "
    r"(?:step (?P<step>\w+/[\w-]+) (?P<state>started|ok)(?: (?P<s>[\d.]+) s)?"
    r"|(?:WARNING|FAULT) .*?\bstep=(?P<fault>\w+/[\w-]+) )",
    re.MULTILINE,
)


class NoFigures(Exception):
    """The rehearsal did not come to figures; the text says why."""


@dataclass
class Node:
    """One node's steps in their order, with seconds, and which of them only reported a failure."""

    name: str
    steps: dict[str, float] = field(default_factory=dict)
    reported: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """All steps together."""
        return sum(self.steps.values())

    @property
    def kind(self) -> str:
        """headnode or compute."""
        return next(iter(self.steps)).partition("/")[0]


def read_log(name: str, text: str) -> Node:
    """Return the steps of a host's log. Raises NoFigures if the log has no line of a step."""
    node = Node(name)
    started: dict[str, datetime.datetime] = {}
    for line in _LINE.finditer(text):
        time = datetime.datetime.strptime(line["time"], "%Y-%m-%dT%H:%M:%S%z")
        step = line["step"] or line["fault"]
        if line["state"] == "started":
            started[step] = time
        elif line["state"] == "ok":
            node.steps[step] = float(line["s"])
        elif step in started:
            node.steps[step] = (time - started[step]).total_seconds()
            node.reported.append(step)
    if not node.steps:
        raise NoFigures(f"{name}: its log has no line of a step")
    return node


def rehearse(output: Path) -> list[Node]:
    """One rehearsal; the nodes of its logs. NoFigures: it failed."""
    if os.geteuid() != 0:
        raise NoFigures("a rehearsal with hosts needs root. Hint: sudo make bench-bootstrap")
    program = Path(sys.executable).parent / "slipway"
    settings = output / "bench.yaml"
    settings.write_text(
        (REPOSITORY / SETTINGS).read_text(encoding="utf-8").replace(MEASURED, NOTHING), encoding="utf-8"
    )
    command = [str(program), "rehearse", str(settings), "--max-hosts", "1", "--output", str(output)]
    done = subprocess.run(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=REHEARSAL_TIMEOUT_S, check=False,
    )  # fmt: skip
    logs = sorted(output.glob("*/hosts/*.log"))
    if done.returncode != 0 or not logs:
        raise NoFigures(
            f"{' '.join(command)}: exit {done.returncode}: {(done.stdout.splitlines() or ['no output'])[-1]}"
        )
    return [read_log(path.stem, path.read_text(encoding="utf-8", errors="replace")) for path in logs]


def slowest(nodes: list[Node]) -> dict[str, Node]:
    """For each kind of node the one whose steps took longest."""
    found = {kind: [node for node in nodes if node.kind == kind] for kind in KINDS}
    if missing := [kind for kind, some in found.items() if not some]:
        raise NoFigures(f"the rehearsal kept no log of a {' and a '.join(missing)} node")
    return {kind: max(some, key=lambda node: node.seconds) for kind, some in found.items()}


def table(chosen: dict[str, Node]) -> list[str]:
    """A line a step, and the sum against its limit for each kind."""
    lines = [f"foreground seconds in a rehearsal ({SETTINGS}, one compute host)", ""]
    for kind, node in chosen.items():
        for step, seconds in node.steps.items():
            note = "  reported a failure" if step in node.reported else ""
            lines.append(f"  {seconds:5.1f} s  {step}{note}")
        verdict = "" if node.seconds <= LIMIT_S else "  TOO LONG"
        lines += [f"  {node.seconds:5.1f} s  {KINDS[kind]} ({node.name}), limit {LIMIT_S:.0f} s{verdict}", ""]
    return lines


def foreground() -> dict[str, Node]:
    """Run the rehearsal, print the table, and give a node of each kind. NoFigures: it did not work."""
    with tempfile.TemporaryDirectory(prefix="bench-bootstrap-") as folder:
        nodes = rehearse(Path(folder))
    chosen = slowest(nodes)
    print("\n".join(table(chosen)))
    return chosen
