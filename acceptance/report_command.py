"""`acceptance report` and `generate-report`: make a report again from what was measured."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from acceptance.cloudai.cli import add_files
from acceptance.cloudai.report import write_scenario_report
from acceptance.cloudai.stored import is_scenario_folder
from acceptance.errors import InputError
from acceptance.options import path_of, resolved
from acceptance.preparation import scenario_in
from acceptance.report import REPORT_FILES, Report, suite_report, table, write_files, write_report
from acceptance.runner.record import FILE
from acceptance.runner.stop import Stop
from acceptance.runs import EXIT_CODES, clock, post_figures, print_result


def add_report_commands(commands: Any) -> None:
    """Add the command to the parser of `acceptance`."""
    report = commands.add_parser("report", help="make the report of a run, or of the GPU suite's results, again")
    report.add_argument("directory", type=path_of, metavar="RUN_DIR")
    report.add_argument("--json", action="store_true", help="print report.json instead of the tables")
    report.set_defaults(do=_report)
    again = commands.add_parser("generate-report", help="make the report of a folder of a scenario of CloudAI")
    again.add_argument("--result-dir", type=path_of, required=True, metavar="FOLDER", help="what run or dry-run wrote")
    add_files(again, required=False)
    again.add_argument("--json", action="store_true", help="print report.json instead of the tables")
    again.set_defaults(do=_generate_report)


def _generate_report(arguments: argparse.Namespace) -> int:
    """The report of a scenario's folder, also of jobs that submit.sh submitted; system and scenario are in it."""
    folder = resolved(arguments.result_dir)
    scenario_in(folder, Stop(), clock(sys.stderr)).refresh()
    arguments.directory = folder
    return _report(arguments)


def _report(arguments: argparse.Namespace) -> int:
    directory = resolved(arguments.directory)
    report = _made_again(directory)
    post_figures(report, partial(print, file=sys.stderr))
    print(json.dumps(report.as_json(), indent=1) if arguments.json else table(report))
    stream = sys.stderr if arguments.json else sys.stdout
    print_result(stream, report.verdict == "accepted", report.summary)
    return EXIT_CODES[report.verdict]


def _made_again(directory: Path) -> Report:
    """The report of a scenario's folder, a run directory, or a directory with results of the GPU suite alone."""
    if is_scenario_folder(directory):
        return write_scenario_report(directory)
    if not directory.is_dir():
        rule = "is not a run directory" if directory.exists() else "is not a run directory: it does not exist"
        raise InputError([f"{directory}: {rule}. Hint: give what `acceptance run` printed as its run directory"])
    if (directory / FILE).exists():
        return write_report(directory)
    report = suite_report(directory)
    foreign = [name for name in REPORT_FILES if (directory / name).exists()]
    if foreign and "report.json" not in foreign:  # a report that was made before has it
        rule = "exists, and no report wrote it: there is no report.json"
        raise InputError([f"{directory / name}: {rule}. Hint: move it away" for name in foreign])
    write_files(report)
    return report
