"""Comparing what all nodes together wrote to and read from FSx for Lustre with what it is made for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from acceptance.report.gpus_model import StorageFigure, SuiteFailure, SuiteReport, SuiteTest
from acceptance.scenario.model import FileSystem
from acceptance.text import gb_text, plural

# The baseline is what the file system sustains without burst credits, so healthy ones reach it: 648 MB/s written and
# 599 read of 600, on 4.8 TiB with 125 MB/s per TiB (AllenXieSZ/storage, fsx-lustre-throughput-change, 2026-08-01).
_FAIL_BELOW, _WARN_BELOW = 0.75, 0.9
NAME = "FSx throughput"


def compared_with_file_system(report: SuiteReport, file_system: FileSystem | None) -> SuiteReport:
    """Return the report with a test of the checkpoint's write and read by all nodes at once; without facts as it is."""
    if file_system is None:
        return report
    mount = file_system.mount
    mine = [one for one in report.storage if one.directory == mount or one.directory.startswith(f"{mount}/")]
    tests = [
        _test(what, mine, file_system, promised)
        for what, promised in (
            ("checkpoint write", file_system.write_gb_per_s),
            ("checkpoint read", file_system.read_gb_per_s),
        )
        if promised is not None and any(one.what == what for one in mine)
    ]
    failures = [SuiteFailure(test.cause, "storage") for test in tests if test.verdict == "fail"]
    return replace(
        report,
        tests=(*report.tests, *tests),
        failures=(*report.failures, *failures),
        verdict="not accepted" if failures else report.verdict,
    )


def _test(what: str, figures: Sequence[StorageFigure], file_system: FileSystem, promised: float) -> SuiteTest:
    """Judge one direction. Nodes that together cannot ask for the whole baseline are compared with what they can."""
    mine = [one for one in figures if one.what == what]
    nodes = len({one.node for one in mine})
    total, clients = sum(one.value for one in mine), nodes * file_system.client_gb_per_s
    few = clients < promised
    expected = min(promised, clients)
    verdict = "pass" if total >= _WARN_BELOW * expected else "warn"
    if total < _FAIL_BELOW * expected and not few:
        verdict = "fail"
    where = plural(nodes, "node") + (" at once" if nodes > 1 else "")
    text = f"{what} to" if what.endswith("write") else f"{what} from"
    text = f"{text} {file_system.mount}: {gb_text(total)} GB/s by {where}"
    basis = f"{gb_text(promised)} GB/s ({file_system.source})"
    if few:
        one_client = file_system.client_gb_per_s
        need = -(-promised // one_client)
        note = f"one client is counted with {gb_text(one_client)} GB/s, so that {need:.0f} would be needed"
        text = f"{text}, expected {gb_text(expected)}: the nodes are too few for the file system's {basis}; {note}"
    else:
        bounds = f"fail below {gb_text(_FAIL_BELOW * expected)}, warn below {gb_text(_WARN_BELOW * expected)}"
        text = f"{text}, expected {basis}, {bounds}"
    if file_system.burst_gb_per_s and total > promised:
        text += f"; up to {gb_text(file_system.burst_gb_per_s)} while it has burst credits"
    if what.endswith("read") and total > promised:
        text += "; the file servers' memory may have answered"
    return SuiteTest(plural(nodes, "node"), f"{NAME}: {what.partition(' ')[2]}", verdict, text)
