"""How each kind of run begins: a scenario of CloudAI, a new run, a search, a run that is resumed."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from acceptance.cloudai.cli import timeout_of, unused_options, write_scenario
from acceptance.cloudai.load import folders_of
from acceptance.cloudai.report import CLUSTER, write_scenario_report
from acceptance.cloudai.run import ScenarioRun
from acceptance.cloudai.standalone import StandaloneRun
from acceptance.cloudai.stored import read_plan
from acceptance.errors import InputError
from acceptance.history import HISTORY_FILE, known_baselines, with_baselines
from acceptance.options import resolved
from acceptance.report import Report, write_report
from acceptance.runner.campaign import Campaign, make_run_directory
from acceptance.runner.files import write_whole
from acceptance.runner.record import read_record
from acceptance.runner.slurm import Slurm
from acceptance.runner.stop import Stop
from acceptance.scenario import Scenario, ScenarioFile, check_scenario, load_own, read_values, search_values
from acceptance.upload import url_fault

SCENARIO_FILE = Path("/opt/slipway/current/acceptance.json")
OUTPUT = Path("/fsx/results")
SITE_FILE = Path("/etc/slipway/acceptance-site.json")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """A run that is about to begin. report: writes its report; waits: whether the run ends with a report."""

    work: Callable[[], object]
    report: Callable[[], Report]
    drain_percent: int = 0
    waits: bool = True


def scenario_run(arguments: argparse.Namespace, stop: Stop, say: Say) -> Prepared:
    """Prepare a scenario of CloudAI: in a new folder, or, with --resume, in the folder of a run that was killed."""
    fault = url_fault(arguments.upload) if arguments.upload else None
    faults = [fault] if fault else []
    if arguments.drain:
        faults.append("--drain: is for an acceptance.json, whose nodes are searched. Hint: leave it out")
    if arguments.resume and arguments.test_scenario:
        faults.append("--resume: goes on with a folder, which has its scenario. Hint: leave --test-scenario out")
    if arguments.network:
        faults.append("--network: is for an acceptance.json and a new run. Hint: leave it out")
    if faults:
        raise InputError(faults)
    bound = timeout_of(arguments)
    if arguments.resume:
        folder = resolved(arguments.resume)
        _refuse_foreign(folder)
        say(f"going on in {folder}")
    else:
        facts = _cluster_facts(arguments)
        folder = write_scenario(arguments, Slurm().nodes).folder
        if facts is not None:
            write_whole(folder / CLUSTER, json.dumps(facts, indent=1) + "\n")
        say(f"run directory {folder}")
    arguments.output = folder.parent
    run = scenario_in(folder, stop, say)

    def work() -> None:
        run.run(bound, not arguments.no_wait)
        if arguments.no_wait:
            say(f"submitted; to watch and report: acceptance run --resume {shlex.quote(str(folder))}")

    return Prepared(work, partial(write_scenario_report, folder), waits=not arguments.no_wait)


def scenario_in(folder: Path, stop: Stop, say: Say) -> ScenarioRun | StandaloneRun:
    """The run of a folder, by the scheduler of its system. Raises InputError."""
    alone = read_plan(folder).scheduler == "standalone"
    return StandaloneRun(folder, stop, say) if alone else ScenarioRun(folder, stop, say)


def new_run(arguments: argparse.Namespace, stop: Stop, say: Say) -> Prepared:
    """What an acceptance.json asks for: its tests, or the scenario of CloudAI that it names."""
    fault = url_fault(arguments.upload) if arguments.upload else None
    faults = [fault] if fault else []
    try:
        values, where = _values(arguments)
        if arguments.network and isinstance(values, dict):
            values = {key: value for key, value in values.items() if key not in ("test_scenario", "suite")}
        scenario = check_scenario(values, where)
    except InputError as error:
        raise InputError(error.faults + faults) from None
    if scenario.test_scenario is None:
        faults += unused_options(arguments)
    if faults:
        raise InputError(faults)
    if scenario.test_scenario is not None:
        return _named_scenario(arguments, scenario.test_scenario, stop, say)
    scenario = replace(scenario, baselines=known_baselines(history_of(arguments), scenario, say))
    directory = _begin(scenario, with_baselines(values, scenario.baselines), arguments, say)
    campaign = Campaign(scenario, directory, stop, say)
    return _prepared(campaign, campaign.run)


def _named_scenario(arguments: argparse.Namespace, named: ScenarioFile, stop: Stop, say: Say) -> Prepared:
    """The scenario of CloudAI that an acceptance.json names, which measures in place of its tests."""
    here = resolved(arguments.scenario).parent
    arguments.system_config, arguments.test_scenario = here / named.system, here / named.file
    tests, hooks = folders_of(arguments.test_scenario)
    arguments.tests_dir, arguments.hook_dir = arguments.tests_dir or tests, arguments.hook_dir or hooks
    arguments.output_dir = arguments.output_dir or arguments.output
    if arguments.timeout is None:
        arguments.timeout = f"{named.timeout_s}s"
    return scenario_run(arguments, stop, say)


def new_search(arguments: argparse.Namespace, stop: Stop, say: Say) -> Prepared:
    """A search for the bad node, link or switch."""
    values, where = _values(arguments)
    values = search_values(values, arguments.partition, arguments.collective)
    scenario = check_scenario(values, where)
    names = Slurm().expand(arguments.nodes) if arguments.nodes else []
    if len(names) == 1:
        raise InputError([f"--nodes {arguments.nodes}: is one node; a pair needs two. Hint: add a good node"])
    campaign = Campaign(scenario, _begin(scenario, values, arguments, say), stop, say)
    return _prepared(campaign, lambda: campaign.locate(scenario.tests[0], names))


def resumed(arguments: argparse.Namespace, stop: Stop, say: Say) -> Prepared:
    """Go on with an interrupted run from its directory: results stay, and a job that is still queued is followed."""
    faults = unused_options(arguments)
    if arguments.network:
        faults.append("--network: is for a new run; a run that is resumed has its scenario. Hint: leave it out")
    if faults:
        raise InputError(faults)
    directory = resolved(arguments.resume)
    record, scenario = read_record(directory), load_own(directory)
    _refuse_foreign(directory)
    arguments.output = directory.parent
    say(f"going on in {directory}")
    search = record.locate if record.purpose == "locate" else None
    campaign = Campaign(scenario, directory, stop, say, record)
    return _prepared(campaign, partial(campaign.locate, scenario.tests[0], search.nodes) if search else campaign.run)


def _prepared(campaign: Campaign, work: Callable[[], object]) -> Prepared:
    report = partial(write_report, campaign.directory, campaign.judged)
    return Prepared(work, report, campaign.scenario.locate.drain_percent)


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


def history_of(arguments: argparse.Namespace) -> Path:
    """The file of what earlier runs measured."""
    path: Path = arguments.history or arguments.output / HISTORY_FILE
    return path
