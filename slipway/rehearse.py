"""Starting a rehearsal: look whether this machine can, give it namespaces of its own, and see that nothing stays.

The engine (package ``rehearsal``) runs in another Python environment and, with local hosts, in mount, pid and network
namespaces of its own. When this process ends, however it ends, the namespaces end, and with them every process, mount
and address of the rehearsal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from slipway import __version__
from slipway.errors import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, EnvironmentFault, UsageError
from slipway.places import CHECKOUT, FILES

ENGINE_PYTHON = FILES / ".venv-rehearsal/bin/python"
ENVIRONMENTS = (
    (ENGINE_PYTHON, "the rehearsal's environment"),
    (FILES / ".venv-pcluster/bin/pcluster", "ParallelCluster's environment"),
    (FILES / "node_modules/.bin/cdk", "the CDK CLI"),
)
HOST_TOOLS = FILES / ".rehearsal-tools"
COMMANDS = (
    "unshare",
    "nsenter",
    "systemd-nspawn",
    "ip",
    "tc",
    "mount",
    "slurmctld",
    "slurmd",
    "srun",
    "munged",
    "mpirun",
)
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NEEDED_DISK_MB = 300  # the CDK CLI's and jsii's working files; the hosts' files lie in memory
NEEDED_MEMORY_MB = 4000
END_FILE = "ended"  # the engine wrote its result
WORK_PREFIX, OWNER_FILE = "slipway-", "owner.pid"
GRACE_S = 45
"""After the first Ctrl-C the engine has this long to write what it knows; then the namespaces are ended."""


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """What to rehearse and how. ``settings`` is absolute; ``output`` gets one folder a rehearsal."""

    settings: Path
    cloud_only: bool
    breaks: tuple[str, ...]
    port: int
    max_hosts: int
    output: Path
    as_json: bool


def rehearse(options: Rehearsal) -> int:
    """Run one rehearsal; returns its exit code. Raises EnvironmentFault or UsageError before anything is started."""
    if CHECKOUT is None:
        raise EnvironmentFault(
            f"a rehearsal needs a checkout of Slipway: its hosts and its cloud are not in the package. "
            f"Hint: clone the repository at v{__version__}, then: make rehearse SETTINGS={options.settings}"
        )
    _check_use(options)
    missing = missing_parts(options)
    if missing:
        raise EnvironmentFault("\n".join(missing))
    work = _work_folder()
    try:
        return _run_engine(options, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def missing_parts(options: Rehearsal) -> list[str]:
    """What this machine lacks, one line each with its repair; empty when the rehearsal can start."""
    setup = "make setup-cloud" if options.cloud_only else "make setup-rehearsal"
    lines = [f"{what} is missing: {path}. Hint: {setup}" for path, what in ENVIRONMENTS if not path.exists()]
    if options.cloud_only:
        return lines
    if os.geteuid() != 0:
        lines.append("local hosts need root (namespaces, mounts). Hint: sudo make rehearse, or add --cloud-only")
    commands = [
        name for name in COMMANDS if shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}") is None
    ]
    if commands:
        lines.append(
            f"commands are missing: {', '.join(commands)}. Hint: make setup-rehearsal as root, or add --cloud-only"
        )
    if not HOST_TOOLS.is_dir():
        lines.append(
            f"the tools of the local hosts are missing: {HOST_TOOLS}. Hint: make setup-rehearsal, or add --cloud-only"
        )
    available = _available_memory_mb()
    if available is not None and available < NEEDED_MEMORY_MB:
        lines.append(
            f"memory: {available} MB free, local hosts need {NEEDED_MEMORY_MB}. Hint: free some, or add --cloud-only"
        )
    return lines


def _check_use(options: Rehearsal) -> None:
    if options.cloud_only and options.breaks:
        raise UsageError("--break needs local hosts, --cloud-only has none. Hint: leave one of them out")
    if options.port and not options.cloud_only:
        raise UsageError("--port belongs to --cloud-only: with local hosts the embedded AWS has a network of its own")
    if options.port:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", options.port))
            except OSError as error:
                raise UsageError(
                    f"--port {options.port}: {error.strerror}. Hint: another port, or 0 for a free one"
                ) from None
    if options.output.exists() and not options.output.is_dir():
        raise UsageError(f"--output {options.output}: is a file. Hint: name a folder")


def _available_memory_mb() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _work_folder() -> Path:
    """A private folder for everything that does not outlive the rehearsal."""
    chosen = os.environ.get("TMPDIR")
    if chosen and not os.access(chosen, os.W_OK | os.X_OK):
        raise EnvironmentFault(f"TMPDIR={chosen}: is no folder that can be written to. Hint: another TMPDIR, or none")
    try:
        where = Path(chosen or tempfile.gettempdir())
    except OSError as error:
        raise EnvironmentFault(f"{error.strerror}. Hint: set TMPDIR to a folder that can be written to") from None
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
    """Remove the folders of our own rehearsals that were killed: their process is gone."""
    for folder in where.glob(f"{WORK_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int((folder / OWNER_FILE).read_text(encoding="ascii"))
            if folder.stat().st_uid == os.geteuid() and not Path(f"/proc/{owner}").exists():
                shutil.rmtree(folder, ignore_errors=True)


def _command(options: Rehearsal, work: Path) -> list[str]:
    specification = {
        **dataclasses.asdict(options),
        "settings": str(_copy_of(options.settings, work)),
        "original": str(options.settings),
        "output": str(options.output.absolute()),
        "work": str(work),
        "began": time.monotonic(),
    }
    engine = [str(ENGINE_PYTHON), "-m", "rehearsal", json.dumps(specification)]
    if options.cloud_only:
        return engine
    return [
        *("unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"),
        *("--propagation", "private", *engine),
    ]


def _copy_of(settings: Path, work: Path) -> Path:
    """The settings as they are now: the engine and the app read the same, whatever is edited meanwhile."""
    copy = work / settings.name
    shutil.copyfile(settings, copy)
    return copy


def _environment(work: Path) -> dict[str, str]:
    """No variable of the user's AWS set-up and no home of theirs: a rehearsal can meet no real account."""
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
        "PATH": f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}",
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PYTHONPATH": str(FILES),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "",
    }


def _run_engine(options: Rehearsal, work: Path) -> int:
    """The engine reads its standard input to the end: when this process is gone, it knows and stops."""
    try:
        process = subprocess.Popen(_command(options, work), stdin=subprocess.PIPE, env=_environment(work), cwd=FILES)
    except OSError as error:
        raise EnvironmentFault(f"the rehearsal did not start: {error.strerror}") from None
    previous = signal.signal(signal.SIGTERM, _interrupt)
    interrupted = False
    try:
        code = process.wait()
    except KeyboardInterrupt:
        interrupted = True
        code = _stop(process)
    finally:
        signal.signal(signal.SIGTERM, previous)
    if (work / END_FILE).exists():
        return code
    if interrupted:
        print("[RESULT] FAILURE: interrupted", flush=True)
        return EXIT_INTERRUPTED
    print("[RESULT] FAILURE: the rehearsal was ended from outside, before its end (out of memory?)", flush=True)
    return EXIT_ENVIRONMENT


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _stop(process: subprocess.Popen[bytes]) -> int:
    """Close the lifeline, wait a bounded time, then end it; a second Ctrl-C ends it at once."""
    try:
        if process.stdin:
            process.stdin.close()
        return process.wait(timeout=GRACE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        return process.wait(timeout=GRACE_S)
