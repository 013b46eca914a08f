"""The command line for CloudAI's files: `verify-configs`, `convert`, `dry-run`, `install`, `uninstall`, `download`.

Also the options of `run` for a scenario, and what `list` prints of one. Only `download` submits jobs here.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from acceptance.cloudai import manifests
from acceptance.cloudai.convert import convert
from acceptance.cloudai.download import add_download_options, download
from acceptance.cloudai.install import Piece, install, not_installed, pieces_of, uninstall
from acceptance.cloudai.load import System, Tree, definition, folders_of, load_tree
from acceptance.cloudai.plan import Plan, launchers, make_plan, write_plan
from acceptance.cloudai.remarks import Remarks
from acceptance.cloudai.schema import REPORTS
from acceptance.cloudai.sweep import point_count, points
from acceptance.cloudai.templates import NCCL_IMAGE_2024, REFUSED, TEMPLATES
from acceptance.cloudai.time_limit import TIME_RULE, seconds_of, slurm_time
from acceptance.errors import EXIT_GOOD, EXIT_INPUT, InputError
from acceptance.options import filled, path_of
from acceptance.runner.slurm import Node
from acceptance.scenario.runs import TestDefinition, TestRun, TestScenario, as_sweep
from acceptance.text import plural, size_text, without_password


def add_cloudai_commands(commands: Any) -> None:
    """Add the commands to the parser of `acceptance`."""
    verify = commands.add_parser("verify-configs", help="check CloudAI's TOML files: systems, tests and scenarios")
    verify.add_argument("paths", nargs="+", type=path_of, metavar="PATH", help="a file, or a folder with all below it")
    add_folders(verify)
    verify.add_argument("--json", action="store_true", help="print one JSON object")
    verify.set_defaults(do=_verify)
    dry = commands.add_parser("dry-run", help="write the scripts of a scenario of CloudAI, without Slurm")
    add_files(dry, required=True)
    dry.set_defaults(do=_dry_run)
    for name, do, text in (
        ("install", install, "put images, repositories and programs of CloudAI's tests into install_path"),
        ("uninstall", uninstall, "remove from install_path what install put there for these tests"),
    ):
        installing = commands.add_parser(name, help=text)
        add_files(installing, required=False)
        installing.set_defaults(do=partial(_install, do))
    downloading = commands.add_parser("download", help="download weights and datasets, each by a job of Slurm")
    add_download_options(downloading)
    downloading.set_defaults(do=_download, single_sbatch=False)
    converting = commands.add_parser("convert", help="write a tree of CloudAI's files of 2024 in today's dialect")
    converting.add_argument("source", type=path_of, metavar="SOURCE", help="a folder; it is not changed")
    converting.add_argument("target", type=path_of, metavar="TARGET", help="a folder that is empty or does not exist")
    image = f"the image of NcclTest, whose tests of 2024 name none (default: {NCCL_IMAGE_2024}, that of 2024)"
    converting.add_argument("--image", type=filled, default=NCCL_IMAGE_2024, metavar="IMAGE", help=image)
    converting.set_defaults(do=_convert)


def add_files(parser: argparse._ActionsContainer, *, required: bool) -> None:
    """Add the options of which system and scenario is meant, as CloudAI has them."""
    system = "the system's file (default: $CLOUDAI_SYSTEM_CONFIG)"
    parser.add_argument("--system-config", type=path_of, metavar="FILE", help=system)
    parser.add_argument("--test-scenario", type=path_of, required=required, metavar="FILE", help="the scenario's file")
    add_folders(parser)
    output = "where the scenario's folder is made (default: output_path of the system)"
    parser.add_argument("--output-dir", type=path_of, metavar="DIR", help=output)
    cache = "run: submit without a look at whether install_path has what install puts there"
    parser.add_argument("--enable-cache-without-check", action="store_true", help=cache)
    parser.add_argument("--single-sbatch", action="store_true", help="refused: Slurm gets a job for each test")
    add_log_options(parser)


class _NoLog(argparse.Action):
    def __call__(self, _parser: object, _names: object, value: Any, option: str | None = None) -> None:
        rule = "there is no log file: the generated commands are in cloudai_sbatch_script.sh of each job's folder"
        raise InputError([f"{option} {value}: {rule}. Hint: leave it out; `| tee FILE` keeps what is printed"])


def add_log_options(parser: argparse._ActionsContainer) -> None:
    """Add CloudAI's options of its log. They are refused by name, before the command and after it."""
    parser.add_argument("--log-file", "--log-level", action=_NoLog, metavar="LOG", help="refused: there is no log file")


def add_run_options(run: argparse.ArgumentParser) -> None:
    """Add the options of `acceptance run` for a scenario of CloudAI."""
    group = run.add_argument_group("a scenario of CloudAI (with --test-scenario)")
    add_files(group, required=False)
    group.add_argument("--no-wait", action="store_true", help="submit the jobs and end; --resume goes on")
    bound = f"cancel the jobs that have not ended after this time, such as 2h (default: {DEFAULT_TIMEOUT})"
    group.add_argument("--timeout", metavar="TIME", help=bound)


DEFAULT_TIMEOUT = "1d"
_OPTIONS = (
    *("system_config", "tests_dir", "hook_dir", "output_dir", "enable_cache_without_check", "single_sbatch"),
    *("no_wait", "timeout"),
)


def unused_options(arguments: argparse.Namespace) -> list[str]:
    """Return a fault for each option of a scenario of CloudAI that was given to `run` without one."""
    rule = "is for a scenario of CloudAI. Hint: leave it out, or name the scenario with --test-scenario FILE"
    return [f"--{name.replace('_', '-')}: {rule}" for name in _OPTIONS if getattr(arguments, name) not in (None, False)]


def timeout_of(arguments: argparse.Namespace) -> int:
    """Return `--timeout` in seconds. Raises InputError."""
    seconds = seconds_of(DEFAULT_TIMEOUT if arguments.timeout is None else arguments.timeout)
    if seconds is None:
        raise InputError([f'--timeout {arguments.timeout}: {TIME_RULE}. Hint: write "2h"'])
    return seconds


def write_scenario(arguments: argparse.Namespace, ask: Callable[[str], Sequence[Node]] | None = None) -> Plan:
    """Write the folder of the scenario that the options name. Raises InputError with every error of its files.

    ask: as in `make_plan`; with it the jobs will run, so what the tests need must be installed.
    """
    path = _system_file(arguments)
    system, scenario = _read_both(path, arguments)
    if system.scheduler in manifests.SCHEDULERS:
        rule = f'scheduler = "{system.scheduler}": its jobs are not submitted from here'
        hint = "acceptance dry-run with the same files writes their specifications and the commands that submit them"
        raise InputError([f"{path}: {rule}. Hint: {hint}"])
    if ask and not arguments.enable_cache_without_check:
        _refuse_missing(path, system, scenario, arguments)
    return _written(system, scenario, arguments, ask)


def _written(
    system: System,
    scenario: TestScenario,
    arguments: argparse.Namespace,
    ask: Callable[[str], Sequence[Node]] | None = None,
) -> Plan:
    plan = make_plan(scenario, system, arguments.output_dir or Path(system.values["output_path"]), _stamp(), ask)
    write_plan(plan)
    return plan


def _stamp() -> str:
    return time.strftime("%Y-%m-%d_%H-%M-%S")


def _system_file(arguments: argparse.Namespace) -> Path:
    """Return the system's file. Raises InputError, also for an option that is not done here."""
    named = arguments.system_config or os.environ.get("CLOUDAI_SYSTEM_CONFIG", "")
    faults = [] if named else ["--system-config: is missing, and CLOUDAI_SYSTEM_CONFIG is not set. Hint: give the file"]
    if arguments.single_sbatch:
        rule = "is not done here: Slurm gets a job for each test, which holds dependencies, iterations and time limits"
        faults.append(f"--single-sbatch: {rule}. Hint: leave it out")
    if faults:
        raise InputError(faults)
    return Path(named)


def _refuse_missing(path: Path, system: System, scenario: TestScenario, arguments: argparse.Namespace) -> None:
    """Raise InputError for each piece that the tests need and that is not installed."""
    pieces, folder = _pieces(system, _tests_of(scenario))
    words = ["acceptance", "install", "--system-config", path, "--test-scenario", arguments.test_scenario]
    words += ["--tests-dir", arguments.tests_dir] if arguments.tests_dir else []
    words += ["--hook-dir", arguments.hook_dir] if arguments.hook_dir else []
    hint = f"Hint: {shlex.join(map(str, words))}"
    missing = not_installed(pieces, folder)
    if missing:
        rule = "is not installed"
        raise InputError([f"{piece.text()}: {rule}: {folder / piece.name} does not exist. {hint}" for piece in missing])


def _pieces(system: System, tests: Sequence[TestDefinition]) -> tuple[list[Piece], Path]:
    return pieces_of(tests, system.values), Path(system.values["install_path"]).absolute()


def _tests_of(scenario: TestScenario) -> list[TestDefinition]:
    """The tests of a scenario and of its hooks."""
    parts = [one for one in (scenario, scenario.pre_test, scenario.post_test) if one]
    return [run.test for part in parts for run in part.runs]


def _install(do: Callable[..., None], arguments: argparse.Namespace) -> int:
    """Install or uninstall what a scenario needs, or all tests of a folder, as the guide of 2024 does."""
    signal.signal(signal.SIGTERM, _interrupt)
    path = _system_file(arguments)
    if not arguments.test_scenario and not arguments.tests_dir:
        rule = "is missing, and --tests-dir is not given, whose tests would all be meant"
        raise InputError([f"--test-scenario: {rule}. Hint: give one of them"])
    if arguments.test_scenario:
        system, scenario = _read_both(path, arguments)
        tests = _tests_of(scenario)
    else:
        system, tests = _read_tests(path, arguments)
    pieces, folder = _pieces(system, tests)
    do(pieces, folder, partial(print, flush=True))
    print(f"{folder}: {plural(len(pieces), 'piece')} for {plural(len(tests), 'test')}")
    return EXIT_GOOD


def _download(arguments: argparse.Namespace) -> int:
    path = _system_file(arguments)
    tree = load_tree([path], None, None)
    faults = [remark.text() for remark in tree.relevant(tree.remarks.errors, path)] or list(_not_a_system(tree, path))
    if faults:
        raise InputError(faults)
    return download(arguments, tree.systems[0])


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _read_tests(path: Path, arguments: argparse.Namespace) -> tuple[System, list[TestDefinition]]:
    """Read system and all tests of `--tests-dir`. Raises InputError with every error of these files."""
    tree = load_tree([path], arguments.tests_dir, arguments.hook_dir)
    files = (path, *(test.file.path for test in tree.tests))
    faults = [remark.text() for remark in tree.relevant(tree.remarks.errors, *files)]
    faults += _not_a_system(tree, path)
    if not tree.tests and not faults:
        faults.append(f"{arguments.tests_dir}: has no test. Hint: give the folder of CloudAI's test files")
    if faults:
        raise InputError(faults)
    return tree.systems[0], [definition(test.fields, test.template) for test in tree.tests]


def _not_a_system(tree: Tree, path: Path) -> Iterator[str]:
    if path in tree.kinds and tree.kinds[path] != "system":
        yield f"{path}: is no system. Hint: give a file with scheduler"


def add_folders(parser: argparse._ActionsContainer) -> None:
    """Add the options of where tests and hooks are."""
    tests = "the test files of this folder (default: the nearest ones of PATH)"
    parser.add_argument("--tests-dir", type=path_of, metavar="DIR", help=tests)
    hooks = "the hooks' scenarios, their tests in its folder test (default: folders `hook` of PATH, else conf/hook)"
    parser.add_argument("--hook-dir", type=path_of, metavar="DIR", help=hooks)


LISTS = ("agents", "reports", "templates")


def list_names(what: str) -> None:
    """Print the names of one of LISTS, one a line."""
    if what == "templates":
        names = [
            *(f"{name}: read" for name in TEMPLATES),
            *(f"{name}: refused ({why})" for name, why in REFUSED.items()),
        ]
    else:
        names = ["grid_search"] if what == "agents" else list(REPORTS)
    print("\n".join(names))


def read_one_scenario(path: Path, tests_dir: Path | None, hook_dir: Path | None) -> TestScenario:
    """Return the scenario of a file. Raises InputError with every error of it and of its tests and hooks."""
    near, hooks = folders_of(path)
    tree = load_tree([path], tests_dir or (near if near.is_dir() else None), hook_dir or hooks)
    errors = tree.relevant(tree.remarks.errors, path)
    if errors:
        raise InputError([remark.text() for remark in errors])
    if not tree.scenarios:
        raise InputError([f"{path}: is no scenario. Hint: give a file with [[Tests]]"])
    return tree.scenarios[0][1]


def list_runs(scenario: TestScenario, as_json: bool) -> None:
    """Print what a scenario runs."""
    if as_json:
        print(json.dumps({"scenario": scenario.name, "runs": [_run_json(run) for run in scenario.runs]}, indent=1))
        return
    for kind, hook in (("pre_test", scenario.pre_test), ("post_test", scenario.post_test)):
        if hook:
            print(f"{kind}: {hook.name} ({', '.join(run.test.name for run in hook.runs)})")
    for run in scenario.runs:
        print(f"{run.id}: {run.test.name} ({run.test.template}){''.join(f', {part}' for part in _parts(run))}")
    if scenario.job_status_check:
        print("the first failed job ends all others (job_status_check)")


def _parts(run: TestRun) -> list[str]:
    steps = point_count(run)
    parts = [" ".join(run.nodes) if run.nodes else _count(run)]
    parts += [f"without {' '.join(run.exclude_nodes)}"] if run.exclude_nodes else []
    parts += [f"{run.iterations} iterations"] if run.iterations > 1 else []
    parts += [f"a sweep of {steps} points"] if steps > 1 else []
    parts += [f"{slurm_time(run.time_limit_s)} at most"] if run.time_limit_s else []
    parts += [f"{one.kind} {one.id}" for one in run.dependencies]
    parts += [f"srun {run.srun_arguments}"] if run.srun_arguments else []
    parts += [f"sol {run.sol:g}"] if run.sol is not None else []
    urls = [without_password(one["url"]) for one in run.test.repositories]
    parts += [f"repositories {', '.join(urls)}"] if urls else []
    return [*parts, *_measured(run)]


def _count(run: TestRun) -> str:
    return f"{'|'.join(map(str, run.counts))} nodes" if len(run.counts) > 1 else plural([*run.counts, 1][0], "node")


def _measured(run: TestRun) -> list[str]:
    """What the runner of acceptance.json would measure, where the run is such a sweep."""
    try:
        sweep = as_sweep(run)
    except (ValueError, TypeError):
        return []
    return [f"{sweep.collective} of {size_text(sweep.min_bytes)} to {size_text(sweep.max_bytes)}"]


def _run_json(run: TestRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "test": run.test.name,
        "template": run.test.template,
        "num_nodes": list(run.counts),
        "nodes": list(run.nodes),
        "exclude_nodes": list(run.exclude_nodes),
        "iterations": run.iterations,
        "points": [point for point, _ in points(run)],
        "time_limit_s": run.time_limit_s,
        "dependencies": [{"type": one.kind, "id": one.id} for one in run.dependencies],
        "weight": run.weight,
        "ideal_perf": run.ideal_perf,
    }


def _verify(arguments: argparse.Namespace) -> int:
    tree = load_tree(arguments.paths, arguments.tests_dir, arguments.hook_dir)
    if arguments.json:
        remarks = [remark.as_json() for remark in tree.remarks.all]
        files = {str(path): kind for path, kind in tree.kinds.items()}
        print(json.dumps({"valid": not tree.remarks.errors, "files": files, "remarks": remarks}, indent=1))
    else:
        print_remarks(tree.remarks)
        print(_summary(tree))
    return EXIT_INPUT if tree.remarks.errors else EXIT_GOOD


def _convert(arguments: argparse.Namespace) -> int:
    changes = 0
    for line in convert(arguments.source, arguments.target, arguments.image):
        print(line)
        changes += "comments are not kept" not in line
    print(f"{arguments.target}: {plural(changes, 'change')}")
    return EXIT_GOOD


def _dry_run(arguments: argparse.Namespace) -> int:
    path = _system_file(arguments)
    system, scenario = _read_both(path, arguments)
    if system.scheduler in manifests.SCHEDULERS:
        output = arguments.output_dir or Path(system.values["output_path"])
        folder, commands = manifests.write_manifests(scenario, system, output, _stamp())
        print("\n".join([f"{folder}: specifications, not submitted. To submit ({manifests.COMMANDS}):", *commands]))
        return EXIT_GOOD
    plan = _written(system, scenario, arguments)
    for one in plan.jobs:
        where = one.directory.relative_to(plan.folder)
        needs = "" if one.needs == "-" else f", {one.needs}"
        point = "".join(f", {name}={value}" for name, value in one.point.items())
        print(f"job {one.number}: {where}{point}{needs}")
    for line in plan.skipped:
        print(f"skipped: {line}")
    for path in launchers(plan):
        print(f"run on the head node, it submits a job itself: {path}")
    if plan.system["scheduler"] == "standalone":
        script = shlex.quote(f"{plan.folder}/run.sh")
        print(f"{plan.folder}: {plural(len(plan.jobs), 'test')}, not run. To run: {script}")
    else:
        script = shlex.quote(f"{plan.folder}/submit.sh")
        print(f"{plan.folder}: {plural(len(plan.jobs), 'job')}, not submitted. To submit: {script}")
    return EXIT_GOOD


def _read_both(path: Path, arguments: argparse.Namespace) -> tuple[System, TestScenario]:
    """Read system and scenario; the errors of both and of the tests that are named are reported at once."""
    tree = load_tree([path, arguments.test_scenario], arguments.tests_dir, arguments.hook_dir)
    files = (path, arguments.test_scenario)
    faults = [remark.text() for remark in tree.relevant(tree.remarks.errors, *files)]
    faults += _not_a_system(tree, path)
    if arguments.test_scenario in tree.kinds and tree.kinds[arguments.test_scenario] != "scenario":
        faults.append(f"{arguments.test_scenario}: is no scenario. Hint: give a file with [[Tests]]")
    if faults:
        raise InputError(faults)
    for remark in tree.relevant(tree.remarks.warnings, *files):
        print(remark.text(), file=sys.stderr)
    return tree.systems[0], tree.scenarios[-1][1]


def print_remarks(remarks: Remarks) -> None:
    """Print each remark, sorted by file and place."""
    for remark in sorted(remarks.all, key=lambda one: (one.file, one.line, one.column)):
        print(remark.text())


def _summary(tree: Tree) -> str:
    kinds = list(tree.kinds.values())
    counts = [plural(kinds.count(kind), kind) for kind in ("system", "test", "scenario")]
    counts += [plural(kinds.count("template"), "own template")] if "template" in kinds else []
    remarks = tree.remarks
    return f"{', '.join(counts)}: {plural(len(remarks.errors), 'error')}, {plural(len(remarks.warnings), 'warning')}"
