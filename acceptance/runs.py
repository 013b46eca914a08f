"""`acceptance run` and `locate`: prepare, measure, then judge, report, remember and upload."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from acceptance import preparation
from acceptance.cloudai.cli import add_run_options
from acceptance.cloudai.stored import is_scenario_folder, read_plan
from acceptance.errors import (
    EXIT_ENVIRONMENT,
    EXIT_GOOD,
    EXIT_INPUT,
    EXIT_NO,
    AcceptanceError,
    ExternalError,
    InputError,
)
from acceptance.history import HISTORY_FILE, keep_gpu_baselines, remember, send_history
from acceptance.options import filled, path_of
from acceptance.preparation import OUTPUT, Prepared, Say, history_of, new_run, new_search, resumed, scenario_run
from acceptance.report import Report, table
from acceptance.runner.drain import drain_bad_nodes
from acceptance.runner.slurm import Slurm
from acceptance.runner.stop import Stop
from acceptance.scenario import COLLECTIVES
from acceptance.text import complain, plural, printable
from acceptance.upload import upload

EXIT_CODES = {"accepted": EXIT_GOOD, "not accepted": EXIT_NO, "error": EXIT_ENVIRONMENT}


def add_run_commands(commands: Any) -> None:
    """Add the commands to the parser of `acceptance`."""
    run = commands.add_parser("run", help="measure what a scenario asks for, judge it, write the report")
    _add_common(run)
    network = "measure the network alone, also if the scenario file names a scenario of CloudAI or the GPU suite"
    run.add_argument("--network", action="store_true", help=network)
    run.add_argument("--resume", type=path_of, metavar="RUN_DIR", help="go on with a run that was interrupted")
    run.add_argument("--upload", type=filled, metavar="S3URL", help="copy the run directory below s3://BUCKET/PREFIX/")
    history = f"what earlier runs measured, for baselines and trends (default: DIR/{HISTORY_FILE})"
    run.add_argument("--history", type=path_of, metavar="FILE", help=history)
    add_run_options(run)
    run.set_defaults(do=_run)
    search = commands.add_parser("locate", help="look for the bad node, link or switch, without a test over all nodes")
    _add_common(search)
    nodes = "which nodes, as Slurm writes them: gpu-[1-4],gpu-7 (default: all of the partition that can be used)"
    search.add_argument("--nodes", type=filled, metavar="LIST", help=nodes)
    search.add_argument("--partition", type=filled, metavar="NAME", help="a partition other than the scenario's")
    pairs = "what the pairs run (default: the scenario's; the all_reduce of a pair hides a loss of EFA devices)"
    search.add_argument("--collective", choices=COLLECTIVES, help=pairs)
    search.set_defaults(do=_locate, upload=None, history=None, resume=None)


def _add_common(parser: argparse.ArgumentParser) -> None:
    scenario = f"scenario file (JSON, schema 1; default: {preparation.SCENARIO_FILE})"
    parser.add_argument("--scenario", type=path_of, default=preparation.SCENARIO_FILE, metavar="FILE", help=scenario)
    site = f"values of this site that replace the scenario's (default: {preparation.SITE_FILE}, if it exists)"
    parser.add_argument("--site", type=path_of, metavar="FILE", help=site)
    output = f"a directory for each run is made here (default: {OUTPUT})"
    parser.add_argument("--output", type=path_of, default=OUTPUT, metavar="DIR", help=output)
    drain = (
        "drain the nodes that are slow or failed, with the reason: one, or up to locate.drain_percent of the scenario "
        "(10 %%); ParallelCluster then replaces their instances; a node that is drained already keeps its reason"
    )
    parser.add_argument("--drain", action="store_true", help=drain)
    parser.add_argument("--json", action="store_true", help="print report.json instead of the tables")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.test_scenario or (arguments.resume and is_scenario_folder(arguments.resume)):
        return _measure(arguments, scenario_run)
    return _measure(arguments, resumed if arguments.resume else new_run)


def _locate(arguments: argparse.Namespace) -> int:
    return _measure(arguments, new_search)


def _measure(arguments: argparse.Namespace, prepare: Callable[[argparse.Namespace, Stop, Say], Prepared]) -> int:
    """Prepare a run, measure and conclude. Every way out but that of `--no-wait` prints `[RESULT]` last."""
    stream = sys.stderr if arguments.json else sys.stdout
    stop, trouble = Stop(), None
    try:
        prepared = prepare(arguments, stop, clock(stream))
        with stop:
            try:
                prepared.work()
            except ExternalError as caught:
                trouble = caught
        if trouble is None and not prepared.waits:
            return EXIT_GOOD
        return _conclude(prepared, arguments, trouble, stream)
    except InputError as error:
        for fault in error.faults:
            complain(fault)
        words = f"{plural(len(error.faults), 'fault')} in the input, nothing was run: {error.faults[0]}"
        print_result(stream, False, words)
        return EXIT_INPUT
    except (AcceptanceError, OSError) as error:
        print_result(stream, False, " ".join(str(error).split()))
        return EXIT_ENVIRONMENT


def _conclude(prepared: Prepared, arguments: argparse.Namespace, trouble: ExternalError | None, stream: TextIO) -> int:
    """Write the report, print it, add it to the history, upload it; print the result last."""
    report = prepared.report()
    if keep_gpu_baselines(history_of(arguments), report, partial(print, file=stream, flush=True)):
        report = prepared.report()
    code = EXIT_CODES[report.verdict] if trouble is None else trouble.exit_code
    print(json.dumps(report.as_json(), indent=1) if arguments.json else "\n" + table(report), flush=True)
    summary = report.summary if trouble is None else " ".join(str(trouble).split())
    say = partial(print, file=stream, flush=True)
    if arguments.drain:
        drain_bad_nodes(report, Slurm(), prepared.drain_percent, say)
    if report.purpose != "locate":
        remember(history_of(arguments), report, say)
    post_figures(report, say)
    if arguments.upload:
        try:
            say(f"uploaded: {upload(Path(report.directory), arguments.upload)}")
            send_history(history_of(arguments), report.cluster, arguments.upload, say)
        except ExternalError as fault:
            say(f"not uploaded: {fault}")
            if code == EXIT_GOOD:
                print_result(stream, False, f"the cluster is accepted ({summary}), but the upload failed: {fault}")
                return EXIT_ENVIRONMENT
    print_result(stream, code == EXIT_GOOD, summary)
    return code


def post_figures(report: Report, say: Say) -> None:
    """Post the figures of a scenario, if its system has a data repository."""
    folder = Path(report.directory)
    if report.purpose == "scenario" and read_plan(folder).data_repository:
        from acceptance.cloudai.post import post_results  # loads urllib and ssl, which few systems need

        post_results(folder, report, say)


def clock(stream: TextIO) -> Say:
    """Return a function that prints a line after the seconds since now."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", file=stream, flush=True)

    return say


def print_result(stream: TextIO, success: bool, text: str) -> None:
    """Print the last line of a command."""
    word = "SUCCESS" if success else "FAILURE"
    print(f"[RESULT] {word}" + (f": {printable(text)}" if text and not success else ""), file=stream, flush=True)
