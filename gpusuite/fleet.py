"""Judge the reports of many nodes together: slow GPUs and nodes by their peers, and corrupted results by the majority.

    srun --ntasks-per-node=1 python gpu_tests.py --report-dir DIR/%N
    python fleet.py DIR

Exit codes: gpusuite/reports.py.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from gpusuite import reports
from gpusuite.checks import Kind, vote_by_kind
from gpusuite.judgement import Check, judge, judge_nodes
from gpusuite.readings import pair_readings, readings_of

REPORT = "fleet_result.json"
_LARGEST = 64 << 20  # bytes of one report; that of 8 GPUs has some hundred thousand


def main(argv: Sequence[str] | None = None) -> int:
    """Read every report of gpu_tests.py below a directory and judge them together."""
    parser = argparse.ArgumentParser(description="Judge the reports of many nodes together.")
    reports.add_common(parser, REPORT, measures=False)
    parser.add_argument("directory", type=reports.path, metavar="DIR", help="with the nodes' reports, in any depth")
    parser.add_argument(
        "--expect-nodes", type=reports.whole(0, 1_000_000), metavar="N", help="fewer reports are a failure"
    )
    arguments = parser.parse_args(argv)
    found, checks = _read(arguments.directory)
    if not arguments.directory.is_dir() or not (found or checks):
        reports.complain(f"{arguments.directory}: no report of gpu_tests.py. Hint: run it with --report-dir")
        return reports.EXIT_INPUT
    if arguments.expect_nodes and len(found) < arguments.expect_nodes:
        nodes = ", ".join(sorted(found))
        message = f"{len(found)} nodes have a report, expected {arguments.expect_nodes}: {nodes}"
        checks.append(Check("nodes", "fail", message))
    checks += judge_fleet(list(found.values()))
    reports.print_checks(checks, arguments.verbose)
    reports.say("SUMMARY", f"{len(found)} nodes, {sum(len(one['gpus']) for one in found.values())} GPUs")
    failures = reports.failures_of(checks)
    values = {"schema": 1, "date": reports.now(), "nodes": sorted(found), "failures": failures}
    values["checks"] = [one.as_json() for one in checks]
    values["result"] = reports.FAILURE if failures else reports.SUCCESS
    written = reports.write(arguments.report_dir, arguments.report_name, values)
    code = reports.result(failures)
    return code if written else code or reports.EXIT_ENVIRONMENT


def _read(directory: Path) -> tuple[dict[str, dict[str, Any]], list[Check]]:
    """The newest report of each node, and a check for each file that cannot be read."""
    found: dict[str, dict[str, Any]] = {}
    checks = []

    def refuse(error: OSError) -> None:
        checks.append(Check("report", "fail", f"{error.filename}: cannot be read: {error.strerror}"))

    for folder, _, names in os.walk(directory, onerror=refuse):
        for path in sorted(Path(folder) / name for name in names if name.endswith(".json")):
            try:
                report = _report(path)
            except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                text = f"{path}: cannot be read: {_reason(error)}. Hint: remove it, or run gpu_tests.py there again"
                checks.append(Check("report", "fail", text))
                continue
            if report is not None:
                known = found.get(report["node"])
                if known is None or known["date"] <= report["date"]:
                    found[report["node"]] = report
    return found, checks


class _FormError(ValueError):
    """What a report may not be, in words."""


def _reason(error: Exception) -> str:
    """Say in words why a report cannot be read."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, _FormError):
        return str(error)
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"is not JSON: {error}"
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return "has another form than a report of gpu_tests.py"


def _report(path: Path) -> dict[str, Any] | None:
    """Return a report of gpu_tests.py, None for any other file of JSON. Raises several errors if it has another form.

    What will be read of it is read once here, so that one bad report does not keep the others from being judged.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise _FormError("is not a regular file")
        data = stream.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise _FormError(f"is larger than {_LARGEST} bytes")
    report = json.loads(data)
    if not isinstance(report, dict) or report.get("program") != "gpu_tests":
        return None
    if not isinstance(report["node"], str) or not isinstance(report["date"], str):
        raise _FormError("node and date must be texts")
    judge_fleet([report])
    return report


def judge_fleet(found: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return what the nodes report themselves, and what only the comparison of all of them shows."""
    checks = [Check("node", "fail", message) for one in found for message in one["failures"]]
    readings = [reading for one in found for reading in readings_of(one)]
    pairs = [reading for one in found for reading in pair_readings(one)]
    seen = {check.message for check in checks}
    compared = judge(readings) + judge(pairs) + judge_nodes(readings) + _votes(found)
    return checks + [check for check in compared if check.message not in seen]


def _votes(found: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Compare the corruption screen's hashes over all nodes, for GPUs of one model, size and software."""
    labels: list[str] = []
    groups: dict[Kind, dict[int, Mapping[str, str]]] = defaultdict(dict)
    for report in found:
        gpus = {gpu["index"]: gpu for gpu in report["gpus"]}
        versions = [f"{name} {report['environment'].get(name)}" for name in ("torch", "cuda")]
        for index, result in report["stages"].get("screen", {}).items():
            gpu = gpus[int(index)]
            size = f"{result['multiprocessors']} multiprocessors"
            groups[(gpu["name"], size, *versions)][len(labels)] = result["hashes"]
            labels.append(f"{report['node']} gpu {index} ({gpu['bus']})")
    checks = vote_by_kind(groups, lambda number: labels[number])
    return [replace(check, gpu=None) for check in checks]  # the number of a GPU in the fleet is no index


if __name__ == "__main__":
    sys.exit(reports.run(main))
