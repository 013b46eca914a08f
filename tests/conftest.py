"""How the whole suite is spread over processes (`make test`: pytest -n 4 --dist loadgroup), and its closing line.

Three groups take most of the time, and each runs in one process, one test after another: the node scripts' (whose bash
coverage is summed up at their end), what boots a fleet or looks for what a rehearsal left, and acceptance's runs on a
Slurm of its own. All three wait half of their time: four processes keep two cores busy. Each other module stays
whole in one process as well, so that its fixtures are made once.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
BASH_COVERAGE = TESTS.parent / ".cache/bash-coverage.txt"
MACHINE = "machine"
"""The group of what needs the machine to itself."""
MACHINE_FOLDERS = ("hosts", "rehearsal")
SCRIPTS = "nodes"
"""The group of the node scripts: their throw-away machines have namespaces of their own."""
OWN_GROUP = tuple(
    f"test_{name}.py"
    for name in (
        *("cloudwatch", "command", "containers_units", "distributions", "drained_nodes", "health", "metrics"),
        *("remote_write", "state", "status_node", "targets", "templates", "topology"),
    )
)
"""Modules among them that run no bash of the nodes, or whose bash counts for no coverage: each is a group, as every
module elsewhere."""
MACHINE_MODULES = ("test_rehearse.py",)
MACHINE_MARKS = ("hosts", "road")
SLURM = "slurm"
"""The group of acceptance's jobs on a loopback Slurm, whose ports and folders no other test meets."""
FLEETS = ("test_acceptance_hosts.py",)
"""Modules of acceptance that boot a fleet instead."""
LONG_MODULES = tuple(
    f"test_{name}.py"
    for name in ("distributions", "gpusuite_torch", "health", "examples", "standing", "cloudshell", "setup")
)
"""Modules of a minute or more: begun late, one of them would run alone at the end."""
# What is measured, and so wants a quiet machine, comes when the other processes have run out of work.
LATE_FOLDERS = ("acceptance", "rehearsal")
_STARTED = time.time()
COLLECTED_OBJECTS = 50_000
"""More than Python's 700: what was imported and the 6,700 tests stay, and looking for garbage there took a third of the
collection's time."""
gc.disable()
# The readline library of the first process sets these, and what a test prints would be folded for a terminal.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
# CDK's own validation and cdk-nag take ten seconds of the first synthesis; tests/stacks/test_checks.py turns them on.
os.environ["CDK_VALIDATION"] = "false"


def pytest_configure() -> None:
    """Take SIGINT again where the suite was started in the background or under nohup, which ignore it.

    An ignored signal stays ignored in every program that a test starts, and some tests end programs with it.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@functools.cache
def _name(path: Path) -> str:
    return str(path.relative_to(TESTS))


def _folder(item: pytest.Item) -> str:
    return _name(item.path).partition(os.sep)[0]


def _runs_slurm_only(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(mark) for mark in MACHINE_MARKS)
    return marked and _folder(item) == "acceptance" and item.path.name not in FLEETS


def _needs_the_machine(item: pytest.Item) -> bool:
    if _folder(item) == SCRIPTS or _runs_slurm_only(item):
        return False
    named = _folder(item) in MACHINE_FOLDERS or item.path.name in MACHINE_MODULES
    return named or any(item.get_closest_marker(mark) for mark in MACHINE_MARKS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its group. The long groups begin first; the measuring tests end theirs."""
    together = {item.path for item in items if _needs_the_machine(item)}
    jobs = {item.path for item in items if _runs_slurm_only(item)}

    def group(item: pytest.Item) -> str:
        if _folder(item) == SCRIPTS and item.path.name not in OWN_GROUP:
            return SCRIPTS
        if item.path in together:
            return MACHINE
        return SLURM if item.path in jobs else _name(item.path)

    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    order = {SCRIPTS: 0, MACHINE: 1, SLURM: 2}

    def place(item: pytest.Item) -> tuple[int, bool]:
        other = 3 if item.path.name in LONG_MODULES else 4
        return order.get(group(item), other), group(item) == MACHINE and _folder(item) in LATE_FOLDERS

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Look for garbage in what the tests make, and not in what was there before."""
    gc.freeze()
    gc.set_threshold(COLLECTED_OBJECTS)
    gc.enable()


def pytest_unconfigure() -> None:
    """Python's end would look for garbage too."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Keep the temporary files of all others away from the tests that look for what was left in /tmp."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    if "@" not in item.nodeid:
        raise pytest.UsageError("the groups of tests are lost: run with --dist loadgroup, and the pinned pytest")
    if _needs_the_machine(item):
        return (yield)
    folder = item.session.config.stash.get(_FOLDER, None)
    if folder is None:
        folder = item.config._tmp_path_factory.mktemp("others")  # type: ignore[attr-defined]
        item.session.config.stash[_FOLDER] = folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr("tempfile.tempdir", None)
        return (yield)


_FOLDER = pytest.StashKey[Path]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much of the nodes' bash the tests ran, when they were all run."""
    if BASH_COVERAGE.is_file() and BASH_COVERAGE.stat().st_mtime >= _STARTED:
        whole = BASH_COVERAGE.read_text(encoding="utf-8").splitlines()[-1]
        terminalreporter.write_line(f"{whole}: {BASH_COVERAGE.relative_to(TESTS.parent)}")
