"""The command line. The exit codes are in errors.py."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from acceptance import __version__
from acceptance.cloudai.command import (
    DEFAULT_TIMEOUT,
    LISTS,
    add_cloudai_commands,
    add_files,
    add_folders,
    add_log_options,
    add_run_options,
    list_names,
    list_runs,
    read_one_scenario,
    timeout_of,
    write_scenario,
)
from acceptance.cloudai.load import folders_of
from acceptance.cloudai.report import CLUSTER, write_scenario_report
from acceptance.cloudai.run import ScenarioRun
from acceptance.cloudai.standalone import StandaloneRun
from acceptance.cloudai.stored import is_scenario_folder, read_plan
from acceptance.errors import (
    EXIT_ENVIRONMENT,
    EXIT_GOOD,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_NO,
    EXIT_PIPE,
    AcceptanceError,
    ExternalError,
    InputError,
)
from acceptance.explain import add_explain_command
from acceptance.history import (
    HISTORY_FILE,
    add_history_command,
    keep_gpu_baselines,
    known_baselines,
    remember,
    send_history,
    with_baselines,
)
from acceptance.limits import known_limits
from acceptance.nccl import Log, Table, merged, parse_file
from acceptance.report import REPORT_FILES, Report, suite_report, table, write_files, write_report
from acceptance.runner.campaign import Campaign, make_run_directory
from acceptance.runner.drain import drain_bad_nodes
from acceptance.runner.files import write_whole
from acceptance.runner.record import FILE, read_record
from acceptance.runner.slurm import Slurm
from acceptance.runner.stop import Stop
from acceptance.scenario import (
    COLLECTIVES,
    Scenario,
    ScenarioFile,
    check_scenario,
    load_own,
    load_scenario,
    read_values,
    search_values,
)
from acceptance.scenario.runs import as_test_scenario
from acceptance.suite import PROGRAMS, add_suite_commands, run_program
from acceptance.text import gb_text, plural, printable, size_text
from acceptance.upload import upload, url_fault

SCENARIO_FILE = Path("/opt/slipway/current/acceptance.json")
OUTPUT = Path("/fsx/results")
SITE_FILE = Path("/etc/slipway/acceptance-site.json")
EXIT_CODES = {"accepted": EXIT_GOOD, "not accepted": EXIT_NO, "error": EXIT_ENVIRONMENT}
_MOST_CAUSES, _MOST_FAILURES = 8, 8  # printed of one log
_LONGEST_LINE = 240  # characters of a log's line that are printed
Say = Callable[[str], None]


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code. Faults of the user or the machine never print a traceback."""
    words = sys.argv[1:] if argv is None else argv
    try:
        if words[:1] == ["--mode"]:  # as the CloudAI guide of 2024 names its commands
            words = words[1:]
        if words and words[0] in PROGRAMS:
            run_program(words[0], words[1:])
        arguments = command_parser().parse_args(words)
        code: int = arguments.do(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except AcceptanceError as error:
        _complain(str(error))
        return error.exit_code
    except OSError as error:
        _complain(f"{error.filename or 'the file system'}: {error.strerror or error}. Hint: is it full or read-only?")
        return EXIT_ENVIRONMENT
    except KeyboardInterrupt:
        _complain("interrupted")
        return EXIT_INTERRUPTED
    return code


def _complain(message: str) -> None:
    for line in message.split("\n"):
        print(f"acceptance: {printable(line)}", file=sys.stderr)


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of every command; docs/acceptance-commands.md is made from it."""
    parser = argparse.ArgumentParser(prog="acceptance", description="Measure a GPU cluster through Slurm and judge it.")
    parser.add_argument("--version", action="version", version=f"acceptance {__version__}")
    add_log_options(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="measure what a scenario asks for, judge it, write the report")
    _add_common(run)
    network = "measure the network alone, also if the scenario file names a scenario of CloudAI or the GPU suite"
    run.add_argument("--network", action="store_true", help=network)
    run.add_argument("--resume", type=Path, metavar="RUN_DIR", help="go on with a run that was interrupted")
    run.add_argument("--upload", metavar="S3URL", help="copy the run directory below s3://BUCKET/PREFIX/")
    history = f"what earlier runs measured, for baselines and trends (default: DIR/{HISTORY_FILE})"
    run.add_argument("--history", type=Path, metavar="FILE", help=history)
    add_run_options(run)
    run.set_defaults(do=_run)
    search = commands.add_parser("locate", help="look for the bad node, link or switch, without a test over all nodes")
    _add_common(search)
    nodes = "which nodes, as Slurm writes them: gpu-[1-4],gpu-7 (default: all of the partition that can be used)"
    search.add_argument("--nodes", metavar="LIST", help=nodes)
    search.add_argument("--partition", metavar="NAME", help="a partition other than the scenario's")
    pairs = "what the pairs run (default: the scenario's; the all_reduce of a pair hides a loss of EFA devices)"
    search.add_argument("--collective", choices=COLLECTIVES, help=pairs)
    search.set_defaults(do=_locate, upload=None, history=None, resume=None)
    parse = commands.add_parser("parse", help="read logs of nccl-tests")
    parse.add_argument(
        "logs", nargs="+", type=Path, metavar="LOG", help="a log, text or JSON (-J); - is standard input"
    )
    parse.add_argument("--json", action="store_true", help="print one JSON object a file")
    parse.set_defaults(do=_parse)
    add_explain_command(commands)
    report = commands.add_parser("report", help="make the report of a run, or of the GPU suite's results, again")
    report.add_argument("directory", type=Path, metavar="RUN_DIR")
    report.add_argument("--json", action="store_true", help="print report.json instead of the tables")
    report.set_defaults(do=_report)
    again = commands.add_parser("generate-report", help="make the report of a folder of a scenario of CloudAI")
    again.add_argument("--result-dir", type=Path, required=True, metavar="FOLDER", help="what run or dry-run wrote")
    add_files(again, required=False)
    again.add_argument("--json", action="store_true", help="print report.json instead of the tables")
    again.set_defaults(do=_generate_report)
    add_history_command(commands, OUTPUT)
    add_suite_commands(commands)
    add_cloudai_commands(commands)
    listing = commands.add_parser("list", help="show the tests of a scenario, or the collectives and limits known")
    listing.add_argument("what", nargs="?", choices=LISTS, help="these names of CloudAI's")
    listing.add_argument("--scenario", type=Path, metavar="FILE", help="an acceptance.json")
    listing.add_argument(
        "--test-scenario", type=Path, metavar="FILE", help="a scenario of CloudAI, or an acceptance.json"
    )
    add_folders(listing)
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(do=_list)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    scenario = f"scenario file (JSON, schema 1; default: {SCENARIO_FILE})"
    parser.add_argument("--scenario", type=Path, default=SCENARIO_FILE, metavar="FILE", help=scenario)
    site = f"values of this site that replace the scenario's (default: {SITE_FILE}, if it exists)"
    parser.add_argument("--site", type=Path, metavar="FILE", help=site)
    output = f"a directory for each run is made here (default: {OUTPUT})"
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR", help=output)
    drain = (
        "drain the nodes that are slow or failed, with the reason: one, or up to locate.drain_percent of the scenario "
        "(10 %%); ParallelCluster then replaces their instances; a node that is drained already keeps its reason"
    )
    parser.add_argument("--drain", action="store_true", help=drain)
    parser.add_argument("--json", action="store_true", help="print report.json instead of the tables")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.test_scenario or (arguments.resume and is_scenario_folder(arguments.resume)):
        return _measure(arguments, _scenario_run)
    return _measure(arguments, _resumed if arguments.resume else _new_run)


def _locate(arguments: argparse.Namespace) -> int:
    return _measure(arguments, _new_search)


@dataclass(frozen=True)
class _Prepared:
    """A run that is about to begin. report: writes its report; waits: whether the run ends with a report."""

    work: Callable[[], object]
    report: Callable[[], Report]
    drain_percent: int = 0
    waits: bool = True


def _measure(arguments: argparse.Namespace, prepare: Callable[[argparse.Namespace, Stop, Say], _Prepared]) -> int:
    """Prepare a run, measure and conclude. Every way out but that of `--no-wait` prints `[RESULT]` last."""
    stream = sys.stderr if arguments.json else sys.stdout
    stop, trouble = Stop(), None
    try:
        prepared = prepare(arguments, stop, _clock(stream))
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
            _complain(fault)
        words = f"{plural(len(error.faults), 'fault')} in the input, nothing was run: {error.faults[0]}"
        _result(stream, False, words)
        return EXIT_INPUT
    except (AcceptanceError, OSError) as error:
        _result(stream, False, " ".join(str(error).split()))
        return EXIT_ENVIRONMENT


def _prepared(campaign: Campaign, work: Callable[[], object]) -> _Prepared:
    report = partial(write_report, campaign.directory, campaign.judged)
    return _Prepared(work, report, campaign.scenario.locate.drain_percent)


def _scenario_run(arguments: argparse.Namespace, stop: Stop, say: Say) -> _Prepared:
    """A scenario of CloudAI: a new folder, or one that a killed run left."""
    fault = url_fault(arguments.upload) if arguments.upload else None
    faults = [fault] if fault else []
    if arguments.drain:
        faults.append("--drain: is for an acceptance.json, whose nodes are searched. Hint: leave it out")
    if arguments.resume and arguments.test_scenario:
        faults.append("--resume: goes on with a folder, which has its scenario. Hint: leave --test-scenario out")
    if faults:
        raise InputError(faults)
    bound = timeout_of(arguments)
    if arguments.resume:
        folder = arguments.resume.resolve()
        _refuse_foreign(folder)
        say(f"going on in {folder}")
    else:
        facts = _cluster_facts(arguments)
        folder = write_scenario(arguments, Slurm().nodes).folder
        if facts is not None:
            write_whole(folder / CLUSTER, json.dumps(facts, indent=1) + "\n")
        say(f"run directory {folder}")
    arguments.output = folder.parent
    run = _scenario_in(folder, stop, say)

    def work() -> None:
        run.run(bound, not arguments.no_wait)
        if arguments.no_wait:
            say(f"submitted; to watch and report: acceptance run --resume {shlex.quote(str(folder))}")

    return _Prepared(work, partial(write_scenario_report, folder), waits=not arguments.no_wait)


def _scenario_in(folder: Path, stop: Stop, say: Say) -> ScenarioRun | StandaloneRun:
    """The run of a folder, by the scheduler of its system. Raises InputError."""
    alone = read_plan(folder).scheduler == "standalone"
    return StandaloneRun(folder, stop, say) if alone else ScenarioRun(folder, stop, say)


def _new_run(arguments: argparse.Namespace, stop: Stop, say: Say) -> _Prepared:
    fault = url_fault(arguments.upload) if arguments.upload else None
    faults = [fault] if fault else []
    try:
        values, where = _values(arguments)
        if arguments.network and isinstance(values, dict):
            values = {key: value for key, value in values.items() if key not in ("test_scenario", "suite")}
        scenario = check_scenario(values, where)
    except InputError as error:
        raise InputError(error.faults + faults) from None
    if faults:
        raise InputError(faults)
    if scenario.test_scenario is not None:
        return _named_scenario(arguments, scenario.test_scenario, stop, say)
    scenario = replace(scenario, baselines=known_baselines(_history(arguments), scenario, say))
    directory = _begin(scenario, with_baselines(values, scenario.baselines), arguments, say)
    campaign = Campaign(scenario, directory, stop, say)
    return _prepared(campaign, campaign.run)


def _named_scenario(arguments: argparse.Namespace, named: ScenarioFile, stop: Stop, say: Say) -> _Prepared:
    """The scenario of CloudAI that an acceptance.json names, which measures in place of its tests."""
    here = arguments.scenario.resolve().parent
    arguments.system_config, arguments.test_scenario = here / named.system, here / named.file
    tests, hooks = folders_of(arguments.test_scenario)
    arguments.tests_dir, arguments.hook_dir = arguments.tests_dir or tests, arguments.hook_dir or hooks
    arguments.output_dir = arguments.output_dir or arguments.output
    if arguments.timeout == DEFAULT_TIMEOUT:
        arguments.timeout = f"{named.timeout_s}s"
    return _scenario_run(arguments, stop, say)


def _new_search(arguments: argparse.Namespace, stop: Stop, say: Say) -> _Prepared:
    values, where = _values(arguments)
    values = search_values(values, arguments.partition, arguments.collective)
    scenario = check_scenario(values, where)
    names = Slurm().expand(arguments.nodes) if arguments.nodes else []
    if len(names) == 1:
        raise InputError([f"--nodes {arguments.nodes}: is one node; a pair needs two. Hint: add a good node"])
    campaign = Campaign(scenario, _begin(scenario, values, arguments, say), stop, say)
    return _prepared(campaign, lambda: campaign.locate(scenario.tests[0], names))


def _resumed(arguments: argparse.Namespace, stop: Stop, say: Say) -> _Prepared:
    """Go on with an interrupted run from its directory: results stay, and a job that is still queued is followed."""
    directory = arguments.resume.resolve()
    record, scenario = read_record(directory), load_own(directory)
    _refuse_foreign(directory)
    arguments.output = directory.parent
    say(f"going on in {directory}")
    search = record.locate if record.purpose == "locate" else None
    campaign = Campaign(scenario, directory, stop, say, record)
    return _prepared(campaign, partial(campaign.locate, scenario.tests[0], search.nodes) if search else campaign.run)


def _cluster_facts(arguments: argparse.Namespace) -> Any:
    """The cluster's acceptance.json, for the limits of its nodes; None on a cluster without one. Raises InputError."""
    if arguments.scenario == SCENARIO_FILE and not SCENARIO_FILE.exists():
        return None
    values, where = _values(arguments)
    check_scenario(values, where)
    return values


def _values(arguments: argparse.Namespace) -> tuple[Any, str]:
    """The scenario's JSON as the site changes it, and the names of the files that it is from. Raises InputError."""
    if arguments.scenario == SCENARIO_FILE and not SCENARIO_FILE.exists():
        rule = "does not exist: this machine is not the head node of a cluster, where Slipway puts it"
        raise InputError(
            [f"{SCENARIO_FILE}: {rule}. Hint: run it on the head node, or name a file with --scenario FILE"]
        )
    site = arguments.site or (SITE_FILE if SITE_FILE.exists() else None)
    values = read_values(arguments.scenario, site)
    return values, f"{arguments.scenario} with {site}" if site else str(arguments.scenario)


def _begin(scenario: Scenario, values: Any, arguments: argparse.Namespace, say: Say) -> Path:
    """Make the run directory, with the scenario in it. Raises ExternalError, OSError."""
    directory = make_run_directory(arguments.output, scenario.partition)
    own = {key: value for key, value in values.items() if key != "test_scenario"}  # this run measures its tests
    write_whole(directory / "scenario.json", json.dumps(own, indent=1) + "\n")
    say(f"run directory {directory}")
    return directory


def _refuse_foreign(directory: Path) -> None:
    """Raise InputError if the run is another user's: resuming it would execute its job scripts as this user."""
    owner = directory.stat().st_uid
    if owner != os.geteuid():
        fault = f"{directory}: belongs to the user {owner}; resuming it would execute its job scripts as you"
        raise InputError([f"{fault}. Hint: sudo -u '#{owner}' acceptance run --resume {directory}"])


def _clock(stream: TextIO) -> Say:
    """Return a function that prints a line after the seconds since now."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", file=stream, flush=True)

    return say


def _history(arguments: argparse.Namespace) -> Path:
    path: Path = arguments.history or arguments.output / HISTORY_FILE
    return path


def _conclude(prepared: _Prepared, arguments: argparse.Namespace, trouble: ExternalError | None, stream: TextIO) -> int:
    """Write the report, print it, add it to the history, upload it; print the result last."""
    report = prepared.report()
    if keep_gpu_baselines(_history(arguments), report, partial(print, file=stream, flush=True)):
        report = prepared.report()
    code = EXIT_CODES[report.verdict] if trouble is None else trouble.exit_code
    print(_json(report.as_json()) if arguments.json else "\n" + table(report), flush=True)
    summary = report.summary if trouble is None else " ".join(str(trouble).split())
    say = partial(print, file=stream, flush=True)
    if arguments.drain:
        drain_bad_nodes(report, Slurm(), prepared.drain_percent, say)
    if report.purpose != "locate":
        remember(_history(arguments), report, say)
    _post_figures(report, say)
    if arguments.upload:
        try:
            say(f"uploaded: {upload(Path(report.directory), arguments.upload)}")
            send_history(_history(arguments), report.cluster, arguments.upload, say)
        except ExternalError as fault:
            say(f"not uploaded: {fault}")
            if code == EXIT_GOOD:
                _result(stream, False, f"the cluster is accepted ({summary}), but the upload failed: {fault}")
                return EXIT_ENVIRONMENT
    _result(stream, code == EXIT_GOOD, summary)
    return code


def _post_figures(report: Report, say: Say) -> None:
    """Post the figures of a scenario, if its system has a data repository."""
    folder = Path(report.directory)
    if report.purpose == "scenario" and read_plan(folder).data_repository:
        from acceptance.cloudai.post import post_results  # loads urllib and ssl, which few systems need

        post_results(folder, report, say)


def _json(value: Any) -> str:
    return json.dumps(value, indent=1)


def _result(stream: TextIO, success: bool, text: str) -> None:
    word = "SUCCESS" if success else "FAILURE"
    print(f"[RESULT] {word}" + (f": {printable(text)}" if text and not success else ""), file=stream, flush=True)


def _parse(arguments: argparse.Namespace) -> int:
    code = EXIT_GOOD
    for path in arguments.logs:
        try:
            log = parse_file(path)
        except OSError as error:
            _complain(f"{path}: {error.strerror}. Hint: give the path of a log")
            code = EXIT_INPUT
            continue
        print(json.dumps(log.as_json(str(path)), allow_nan=False) if arguments.json else _log_text(path, log))
        if code == EXIT_GOOD and not log.good:
            code = EXIT_NO
    return code


def _log_text(path: Path, log: Log) -> str:
    lines = [f"{path}: {_state(log)}, {plural(len(log.devices), 'device')}"]
    if not log.tables:
        lines = [f"{path}: no table"]
        lines.append("  no nccl-tests table in this file. Hint: give the output of a program such as all_reduce_perf")
    lines += [f"  {reason}" for reason in log.refused]
    for finding in log.causes[:_MOST_CAUSES]:
        label = "note" if finding.note or log.good else "cause"
        lines += [f"  {label}: {finding.text}", f"    log: {finding.line[:_LONGEST_LINE]}"]
    if len(log.causes) > _MOST_CAUSES:
        lines.append(f"  and {plural(len(log.causes) - _MOST_CAUSES, 'more cause')} (acceptance explain prints all)")
    for one in log.tables[:20]:
        lines += _table_text(one)
    if len(log.tables) > 20:
        lines.append(f"  and {plural(len(log.tables) - 20, 'more table')} (--json gives all)")
    lines += [f"  {name.replace('_', ' ')} {version}" for name, version in sorted(log.versions.items())]
    for name in ("provider", "nics", "network", "protocol"):
        values = log.network.values(name)
        if values:
            lines.append(f"  {name}: {', '.join(map(str, values))}")
    for flag in log.network.red_flags[:5]:
        lines.append(f"  network: {flag}")
    lines += [f"  warning: {warning}" for warning in log.warnings]
    failures = merged(log.failures + log.events)
    lines += [f"  {failure.kind}: {failure.text}" for failure in failures[:_MOST_FAILURES]]
    if len(failures) > _MOST_FAILURES:
        lines.append(f"  and {plural(len(failures) - _MOST_FAILURES, 'more failure')} (--json gives all)")
    return "\n".join(lines)


def _state(log: Log) -> str:
    if log.refused:
        return "WRONG DATA" if any(table.wrong_data for table in log.tables) else "REFUSED by nccl-tests"
    return "complete" if log.complete else "NOT COMPLETE"


def _table_text(one: Table) -> list[str]:
    top = max(one.rows, key=lambda row: row.out_of_place.busbw, default=None)
    peak = f", peak {gb_text(top.out_of_place.busbw)} GB/s at {size_text(top.size)}" if top else ""
    lines = [f"  {one.collective or 'unnamed collective'}: {plural(len(one.rows), 'row')}{peak}"]
    lines += [f"    {fault}" for fault in one.faults]
    lines += [f"    {size_text(bad.size)}: {bad.reason}" for bad in one.bad_rows[:3]]
    return lines


def _generate_report(arguments: argparse.Namespace) -> int:
    """The report of a scenario's folder, also of jobs that submit.sh submitted; system and scenario are in it."""
    folder = arguments.result_dir.resolve()
    _scenario_in(folder, Stop(), _clock(sys.stderr)).refresh()
    arguments.directory = folder
    return _report(arguments)


def _report(arguments: argparse.Namespace) -> int:
    directory = arguments.directory.resolve()
    report = _made_again(directory)
    _post_figures(report, partial(print, file=sys.stderr))
    print(_json(report.as_json()) if arguments.json else table(report))
    stream = sys.stderr if arguments.json else sys.stdout
    _result(stream, report.verdict == "accepted", report.summary)
    return EXIT_CODES[report.verdict]


def _made_again(directory: Path) -> Report:
    """The report of a scenario's folder, a run directory, or a directory with results of the GPU suite alone."""
    if is_scenario_folder(directory):
        return write_scenario_report(directory)
    if (directory / FILE).exists() or not directory.is_dir():
        return write_report(directory)
    report = suite_report(directory)
    foreign = [name for name in REPORT_FILES if (directory / name).exists()]
    if foreign and "report.json" not in foreign:  # a report that was made before has it
        rule = "exists, and no report wrote it: there is no report.json"
        raise InputError([f"{directory / name}: {rule}. Hint: move it away" for name in foreign])
    write_files(report)
    return report


def _list(arguments: argparse.Namespace) -> int:
    if arguments.what:
        list_names(arguments.what)
        return EXIT_GOOD
    if arguments.test_scenario:
        path = arguments.test_scenario
        in_json = path.suffix == ".json"
        read = read_one_scenario(path, arguments.tests_dir, arguments.hook_dir) if not in_json else None
        list_runs(read or as_test_scenario(load_scenario(path)), arguments.json)
        return EXIT_GOOD
    if arguments.scenario:
        _list_tests(load_scenario(arguments.scenario), arguments.json)
        return EXIT_GOOD
    if arguments.json:
        names = ("size_bytes", "fail_below_gb_per_s", "warn_below_gb_per_s", "basis", "source", "date")
        limits = [
            {
                "instance_type": limit.instance_type,
                "collective": limit.collective,
                "nodes": [limit.nodes_min, limit.nodes_max],
                **{name: getattr(limit, name) for name in names},
            }
            for limit in known_limits()
        ]
        print(_json({"collectives": list(COLLECTIVES), "limits": limits}))
        return EXIT_GOOD
    print(f"collectives: {', '.join(COLLECTIVES)}")
    for limit in known_limits():
        bounds = f"fail < {gb_text(limit.fail_below_gb_per_s)}, warn < {gb_text(limit.warn_below_gb_per_s)} GB/s"
        nodes = f"{limit.node_counts} node{'s' * (limit.nodes_max > 1)}"
        what = f"{limit.instance_type} {limit.collective} {nodes} {size_text(limit.size_bytes)}"
        print(f"{what}: {bounds}; {limit.basis}: {limit.source}")
    return EXIT_GOOD


def _list_tests(scenario: Scenario, as_json: bool) -> None:
    if as_json:
        tests = [{"name": test.name, "collective": test.collective, "sizes": test.sizes()} for test in scenario.tests]
        print(_json({"tests": tests}))
        return
    for test in scenario.tests:
        sizes = f"{size_text(test.min_bytes)} to {size_text(test.max_bytes)}"
        where = f"{test.collective} on {plural(scenario.nodes, 'node')}"
        print(f"{test.name}: {where}, {sizes}, {test.timeout_s} s at most")
