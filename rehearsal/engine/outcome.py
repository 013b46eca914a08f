"""What came of a rehearsal: the report fetched from the results bucket, and the last lines the user reads."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rehearsal.cloud.server import EmbeddedAws
from rehearsal.engine.progress import Phase
from slipway.errors import EXIT_ENVIRONMENT, EXIT_GOOD, EXIT_INTERRUPTED, EXIT_NO
from slipway.settings.model import Queue

PREFIX = "acceptance/"
RESULTS_ADDRESS = re.compile(r"s3://[^/\s]+/acceptance/")


@dataclasses.dataclass
class Outcome:
    """One rehearsal's end. `faults` is empty when everything went well; each is a line: what, where.

    `starvation`: why this machine was too slow to judge the nodes; empty if it was not. `permissions`: what was used,
    refused, and granted without use.
    """

    folder: Path
    faults: list[str] = dataclasses.field(default_factory=list)
    report: dict[str, Any] | None = None
    report_folder: Path | None = None
    interrupted: bool = False
    starvation: str = ""
    permissions: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 good, 1 the deployment or the cluster failed, 3 the machine is too slow to know, 130 interrupted."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        return EXIT_GOOD if not self.faults else EXIT_ENVIRONMENT if self.starvation else EXIT_NO

    def name_local_results(self) -> None:
        """Name the fetched files in the faults instead of the bucket, which ends with the embedded AWS."""
        local = f"{self.folder}/{PREFIX}"
        self.faults = [RESULTS_ADDRESS.sub(lambda _: local, fault) for fault in self.faults]


def left_out(queues: Sequence[Queue], most: int, scenario: str) -> list[str]:
    """One line for each queue of which `--max-hosts` leaves nodes out, and one for what `full` would measure."""
    suite = "acceptance.scenario = full: the network is measured; the GPU suite and the storage test need real nodes"
    return ([suite] if scenario == "full" else []) + [
        f"queue {queue.name}: {most} of {queue.max_count} nodes are rehearsed (--max-hosts {most})"
        for queue in queues
        if queue.max_count > most
    ]


def fetch_results(aws: EmbeddedAws, bucket: str, folder: Path) -> Path | None:
    """Copy every acceptance run from the results bucket to `folder`; returns the newest run's folder."""
    s3 = aws.clients("s3")
    newest: Path | None = None
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=PREFIX):
        for item in page.get("Contents", []):
            relative = Path(item["Key"]).relative_to(PREFIX)
            if relative.is_absolute() or ".." in relative.parts:
                continue
            target = folder / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(bucket, item["Key"], str(target))
            if target.name == "report.json":
                newest = max(filter(None, (newest, target.parent)), key=lambda path: path.name)
    return newest


def read_report(folder: Path | None) -> dict[str, Any] | None:
    """The run's report.json, or None."""
    if folder is None:
        return None
    data: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return data


def print_times(console: Console, phases: list[Phase], total_s: float, memory_mb: int | None) -> None:
    """Where the time went."""
    table = Table(title="Where the time went", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("part")
    table.add_column("seconds", justify="right")
    for index, phase in enumerate(phases):
        table.add_row("  " * phase.depth + phase.name, f"{phase.seconds:.1f}")
        is_last_inside = phase.depth and (index + 1 == len(phases) or not phases[index + 1].depth)
        if is_last_inside:
            around = next(part for part in reversed(phases[:index]) if not part.depth)
            rest = around.seconds - sum(part.seconds for part in phases if part.depth)
            table.add_row("  assets, other stacks, the CLI's own time", f"{max(rest, 0.0):.1f}")
    table.add_row("all", f"{total_s:.1f}", style="bold")
    console.print(table)
    if memory_mb:
        console.print(f"Peak memory of everything together: {memory_mb} MB")


def first_line(text: str) -> str:
    """The first line of a message, with the next one if it ends in a colon and so says nothing by itself."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason was given"]
    if not lines[0].endswith(":"):
        return lines[0]
    return f"{lines[0]} {lines[1]}" if len(lines) > 1 else lines[0].removesuffix(":")


def print_permissions(console: Console, outcome: Outcome) -> None:
    """One line: how many actions each role used, and how many it was granted without a use."""
    record = outcome.permissions
    if record:
        used = sum(map(len, record["used"].values()))
        text = f"Permissions: {len(record['used'])} roles used {used} actions, {len(record['unused'])} more are granted"
        console.print(f"{text}: {outcome.folder / 'permissions.txt'}", soft_wrap=True, highlight=False, markup=False)


def print_result(console: Console, outcome: Outcome) -> None:
    """Print the faults, one line each, and last the `[RESULT]` line that other programs look for."""
    for fault in outcome.faults:
        console.print(fault, style="red", markup=False, highlight=False, soft_wrap=True)
    if outcome.report_folder:
        console.print(f"Report: {outcome.report_folder / 'report.html'}", soft_wrap=True, highlight=False)
    console.print(f"Logs:   {outcome.folder}", soft_wrap=True, highlight=False)
    reason = outcome.faults[0] if outcome.faults else ""
    reason = "interrupted" if outcome.interrupted else outcome.starvation or reason
    last = f"[RESULT] FAILURE: {first_line(reason)}" if reason else "[RESULT] SUCCESS"
    console.print(last, markup=False, highlight=False, soft_wrap=True)
