"""Start a rehearsal in its own namespaces, wait for it, and leave nothing of it behind but its output.

The engine (package `rehearsal`) runs in another Python environment and, with local hosts, in its own mount, pid and
network namespaces. When this process ends, for whatever reason, the namespaces end, and with them every process, mount
and address of the rehearsal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slipway import __version__, kept
from slipway.breakage import check_breakages
from slipway.errors import EnvironmentFault, Fault, Interrupted, SettingsError, UsageError
from slipway.keeper import ENGINE_LOG, Keeper, in_background
from slipway.machine import ENGINE_PYTHON, NAMESPACES, missing_parts, search_path
from slipway.places import CHECKOUT, FILES, PACKAGES
from slipway.settings import Settings, examine_source
from slipway.settings.scenario import read_user_scenario
from slipway.settings.scenario_fit import misfits
from slipway.settings.source import read_source
from slipway.settings.write import set_at
from slipway.text import visible
from slipway.work_folder import END_FILE, GROUP_PREFIX, OUTPUT_FILE, SHELL_FILE, WORK_PREFIX

NO_SETTINGS = Path()
NEEDED_DISK_MB = 300  # working files of the CDK CLI and jsii; the hosts' files are in memory
OWNER_FILE = "owner.pid"
GRACE_S = 45
"""After the first Ctrl-C the engine has this long to write what it knows; then the namespaces are ended."""
POLL_S = 0.2


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """The arguments of the command, with its defaults. `output` gets one folder per rehearsal.

    With `keep` the cluster stays for `hours` (None: kept.DEFAULT_HOURS) after the verdict. `test_scenario` is the
    CloudAI scenario that acceptance runs instead of what the settings name. With `end` the kept cluster of this name is
    ended, and nothing is rehearsed.
    """

    settings: Path = NO_SETTINGS
    cloud_only: bool = False
    breaks: tuple[str, ...] = ()
    port: int = 0
    max_hosts: int = 8
    output: Path = Path("rehearsals")
    test_scenario: Path | None = None
    shell: bool = False
    keep: bool = False
    hours: float | None = None
    end: str | None = None
    as_json: bool = False


def rehearse(options: Rehearsal) -> int:
    """Run one rehearsal; returns its exit code.

    Raises EnvironmentFault, SettingsError or UsageError before anything is started.
    """
    name = _check_use(options)
    if options.end is not None:
        return kept.end(options.end, as_json=options.as_json)
    missing = missing_parts(cloud_only=options.cloud_only)
    if missing:
        raise EnvironmentFault("\n".join(missing))
    if options.keep:
        return in_background(name, functools.partial(_rehearse, options, name))
    return _rehearse(options, name, None)


def _rehearse(options: Rehearsal, name: str, keeper: Keeper | None) -> int:
    with _output_folder(options.output) as hand_back, _work_folder() as work:
        return _run_engine(_command(options, name, work), options, work, keeper, hand_back)


def _check_use(options: Rehearsal) -> str:
    """Return the cluster's name. Raises for arguments that do not fit together, the settings or this machine."""
    if options.end is not None:
        if options != Rehearsal(end=options.end, as_json=options.as_json):
            raise UsageError("--end NAME rehearses nothing. Hint: leave FILE and the other options out")
        return options.end
    if options.settings == NO_SETTINGS:
        raise UsageError("Missing argument FILE. Hint: slipway rehearse clusters/rehearsal.yaml")
    if options.hours is not None and not options.keep:
        raise UsageError("--hours belongs to --keep. Hint: add --keep")
    if CHECKOUT is None:
        raise EnvironmentFault(
            f"a rehearsal needs a checkout of Slipway: its hosts and its cloud are not in the package. "
            f"Hint: clone the repository at v{__version__}, then: make rehearse SETTINGS={options.settings.resolve()}"
        )
    of_hosts = {
        "--break": options.breaks,
        "--shell": options.shell,
        "--keep": options.keep,
        "--test-scenario": options.test_scenario,
        "--max-hosts": options.max_hosts != Rehearsal.max_hosts,
    }
    for option, given in of_hosts.items():
        if options.cloud_only and given:
            raise UsageError(f"{option} needs local hosts, --cloud-only has none. Hint: leave one of them out")
    if options.shell and options.keep:
        raise UsageError(
            "--shell ends the cluster with the shell, --keep leaves it running. Hint: leave one of them out"
        )
    if options.shell and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("--shell needs a terminal for its input and output. Hint: leave it out here")
    settings = _settings_of(options)
    check_breakages(options.breaks, settings, options.max_hosts)
    if options.port and not options.cloud_only:
        raise UsageError("--port belongs to --cloud-only: with local hosts the embedded AWS has its own network")
    if options.port:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", options.port))
            except OSError as error:
                raise UsageError(
                    f"--port {options.port}: {error.strerror}. Hint: another port, or 0 for a free one"
                ) from None
    if os.path.lexists(options.output) and not options.output.is_dir():
        kind = "a file" if options.output.exists() else "a link that leads nowhere"
        raise UsageError(f"--output {visible(str(options.output))}: is {kind}. Hint: name a folder")
    return settings.name


# ---- folders ----


@contextlib.contextmanager
def _output_folder(output: Path) -> Iterator[Callable[[], None]]:
    """Make the folder for the output. Under sudo, what is new in it is given to the user who called sudo.

    That is done at the end, and by each call of what this yields.
    """
    was_there = output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
        before = set(output.iterdir())
        tempfile.TemporaryFile(dir=output).close()
    except OSError as error:
        place, user = visible(str(output)), os.environ.get("USER", "YOU")
        raise EnvironmentFault(
            f"--output {place}: {error.strerror}. Hint: name another folder with --output, or, if root made this one: "
            f"sudo chown -R {user} {place}"
        ) from None

    def hand_back() -> None:
        with contextlib.suppress(OSError):
            _hand_back([path for path in output.iterdir() if path not in before] if was_there else [output])

    try:
        yield hand_back
    finally:
        hand_back()


def _hand_back(output: list[Path]) -> None:
    """Give root's new files to the user who called sudo, in a checkout of that user also caches and bytecode."""
    owner, group = (os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID"))
    if os.geteuid() != 0 or not (owner.isdecimal() and group.isdecimal()):
        return
    places = list(output)
    if FILES.stat().st_uid == int(owner):
        places.append(FILES / ".cache")
        for package in ("slipway", "stacks", "rehearsal", "acceptance"):
            places += (PACKAGES / package).rglob("__pycache__")
    for place in places:
        for folder, folders, names in os.walk(place):
            for path in (folder, *(f"{folder}/{name}" for name in (*folders, *names))):  # folders: links to some
                with contextlib.suppress(OSError):
                    if os.lstat(path).st_uid == 0:
                        os.chown(path, int(owner), int(group), follow_symlinks=False)


@contextlib.contextmanager
def _work_folder() -> Iterator[Path]:
    """A private folder for everything that does not outlive the rehearsal."""
    work = _new_work_folder()
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _new_work_folder() -> Path:
    chosen = os.environ.get("TMPDIR")
    if chosen and not os.access(chosen, os.W_OK | os.X_OK):
        raise EnvironmentFault(f"TMPDIR={chosen}: is not a writable folder. Hint: another TMPDIR, or none")
    try:
        where = Path(chosen or tempfile.gettempdir())
    except OSError as error:
        raise EnvironmentFault(f"{error.strerror}. Hint: set TMPDIR to a writable folder") from None
    try:
        free_mb = shutil.disk_usage(where).free // 1_000_000
        if free_mb < NEEDED_DISK_MB:
            raise EnvironmentFault(
                f"{where}: {free_mb} MB free, the rehearsal needs {NEEDED_DISK_MB}. Hint: make room, or set TMPDIR"
            )
        _remove_leftovers(where)
        work = Path(tempfile.mkdtemp(prefix=WORK_PREFIX, dir=where))
        (work / OWNER_FILE).write_text(str(os.getpid()), encoding="ascii")
        return work
    except OSError as error:
        raise EnvironmentFault(f"{where}: {error.strerror}. Hint: make room, or set TMPDIR to another folder") from None


def _remove_leftovers(where: Path) -> None:
    """Remove the folders of rehearsals whose process was killed."""
    for folder in where.glob(f"{WORK_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int((folder / OWNER_FILE).read_text(encoding="ascii"))
            if folder.stat().st_uid == os.geteuid() and not Path(f"/proc/{owner}").exists():
                shutil.rmtree(folder, ignore_errors=True)


# ---- the engine ----


def _command(options: Rehearsal, name: str, work: Path) -> list[str]:
    specification = {
        "name": name,
        "settings": str(_copy_of(options, work)),
        "original": str(options.settings.resolve()),
        "cloud_only": options.cloud_only,
        "breaks": options.breaks,
        "port": options.port,
        "max_hosts": options.max_hosts,
        "shell": options.shell,
        "keep_hours": (options.hours or kept.DEFAULT_HOURS) if options.keep else 0.0,
        "as_json": options.as_json,
        "output": str(options.output.absolute()),
        "work": str(work),
        "began": time.monotonic(),
    }
    engine = [str(ENGINE_PYTHON), "-m", "rehearsal", json.dumps(specification)]
    return engine if options.cloud_only else [*NAMESPACES, *engine]


def _copy_of(options: Rehearsal, work: Path) -> Path:
    """Copy settings and scenario: engine and app read the same text, also when a file is edited meanwhile."""
    copy = work / options.settings.name
    user = read_user_scenario(_settings_of(options))
    if user is None:
        shutil.copyfile(options.settings, copy)
        return copy
    for name, data in user.files.items():
        file = work / "scenario" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    settings = read_source(options.settings).data
    set_at(settings, ("acceptance", "scenario"), f"scenario/test_scenario/{user.file}")
    copy.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    return copy


def _settings_of(options: Rehearsal) -> Settings:
    """Return the settings with the scenario of the options. Raises SettingsError or UsageError if it cannot run."""
    source = read_source(options.settings)
    if options.test_scenario is not None:
        set_at(source.data, ("acceptance", "scenario"), str(options.test_scenario.absolute()))
    examination = examine_source(source)
    if examination.settings is None:
        raise SettingsError([_of_option(fault, options) for fault in examination.faults])
    settings, queue = examination.settings, examination.settings.gpu_queue
    user = read_user_scenario(settings)
    if user and user.scenario and queue and queue.max_count > options.max_hosts:
        counts = {"min_count": min(queue.min_count, options.max_hosts), "max_count": options.max_hosts}
        fewer = queue.model_copy(update=counts)
        for text, _ in misfits(user.scenario, settings, fewer):
            raise UsageError(f"{settings.acceptance.scenario}: {text} here. Hint: --max-hosts {queue.max_count}")
    return settings


def _of_option(fault: Fault, options: Rehearsal) -> Fault:
    """Return a fault of the scenario of `--test-scenario` as one of this option: it is not in the settings file."""
    if options.test_scenario is None or fault.path != "acceptance.scenario":
        return fault
    rule, hint = fault.rule, fault.hint
    if fault.rule_name == "acceptance-scenario":
        rule = "must be the path of a TOML file, of at most 206 letters, digits and ./_@+- from the root"
        hint = "copy it, with its tests, to such a path"
    place = f"--test-scenario {visible(str(options.test_scenario))}"
    return dataclasses.replace(
        fault, file=place, line=0, column=0, path="", value=None, source_line="", rule=rule, hint=hint
    )


def _environment(work: Path) -> dict[str, str]:
    """No variable of the user's AWS set-up and no home directory: a rehearsal can reach no real account."""
    kept = {
        name: os.environ[name]
        for name in ("TERM", "LANG", "LC_ALL", "COLUMNS", "LINES", "NO_COLOR", "CI")
        if name in os.environ
    }
    home, temporary = work / "home", work / "tmp"
    home.mkdir()
    temporary.mkdir()
    return {
        **kept,
        "PATH": search_path(),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PYTHONPATH": str(PACKAGES),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "",
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(_jsii_cache(work)),
    }


def _jsii_cache(work: Path) -> Path:
    """Where jsii keeps aws-cdk-lib unpacked: the checkout, else the user's cache, else a folder of this rehearsal."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    for folder in (FILES / ".cache/jsii", user / "slipway/jsii"):
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            return folder
    return work / "jsii"


def _run_engine(
    command: list[str], options: Rehearsal, work: Path, keeper: Keeper | None, hand_back: Callable[[], None]
) -> int:
    """Start the engine and wait for it. It stops when its standard input, from this process, is closed."""
    try:
        process = _start(command, work, keeper)
    except OSError as error:
        raise EnvironmentFault(f"the rehearsal did not start: {error.strerror}") from None
    previous = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    interrupted = False
    try:
        _wait(process, work, keeper, hand_back)
    except KeyboardInterrupt:
        interrupted = True
        _stop(process)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if not options.cloud_only:
            _remove_groups(work)
    end = work / END_FILE
    if end.exists() and (code := end.read_text(encoding="ascii")):
        return int(code)
    if keeper and (said := (work / ENGINE_LOG).read_text(encoding="utf-8", errors="replace")):
        print(said, file=sys.stderr)
    output = work / OUTPUT_FILE
    if output.exists():
        with contextlib.suppress(OSError):  # the terminal may be closed
            print(f"Logs:   {output.read_text(encoding='utf-8')}", file=sys.stderr if options.as_json else sys.stdout)
    if interrupted:
        raise Interrupted("interrupted")
    raise EnvironmentFault("the rehearsal was ended from outside, before its end (out of memory?)")


def _start(command: list[str], work: Path, keeper: Keeper | None) -> subprocess.Popen[bytes]:
    # The engine has another process group: Ctrl-C and a closed terminal reach only this process, which ends it.
    environment = _environment(work)
    if keeper:
        return keeper.start(command, work, environment, FILES)
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, cwd=FILES, start_new_session=True)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the engine to stop and wait a bounded time, then kill it; a second Ctrl-C kills it at once."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: process.kill())  # no exception, which could skip the wait
    with contextlib.suppress(BrokenPipeError):  # it may have just ended
        if process.stdin:
            process.stdin.write(b".")  # the engine knows that this process lives and removes the folders
            process.stdin.close()
    try:
        process.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _remove_groups(work: Path) -> None:
    """Remove the control groups that a killed engine left; its processes have ended or are about to."""
    name = GROUP_PREFIX + work.name.removeprefix(WORK_PREFIX)
    deadline = time.monotonic() + 5
    # os.walk passes over the groups of other rehearsals that go while it looks.
    for top in [Path(at, name) for at, names, _ in os.walk("/sys/fs/cgroup") if name in names]:
        while top.exists() and time.monotonic() < deadline:
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            if top.exists():
                time.sleep(0.05)


# ---- a shell on the head node, a kept cluster ----


def _wait(process: subprocess.Popen[bytes], work: Path, keeper: Keeper | None, hand_back: Callable[[], None]) -> None:
    """Wait for the engine; when it offers a shell on the head node or to keep the cluster, do that.

    What has not ended GRACE_S after the engine wrote its result is killed.
    """
    offer, end, deadline = work / SHELL_FILE, work / END_FILE, math.inf
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
        if end.exists():
            deadline = min(deadline, time.monotonic() + GRACE_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=POLL_S)
        if keeper:
            keeper.look(process.pid, work, hand_back)
        if offer.exists():
            try:
                kept.enter(process.pid, json.loads(offer.read_text(encoding="utf-8")))
            finally:
                offer.unlink(missing_ok=True)  # the engine goes on
