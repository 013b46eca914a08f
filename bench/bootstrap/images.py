"""How long the import of eight container images takes, compared with the largest of them alone, and how many overlap.

The head node's importer runs with the stand-in of enroot and a real docker-registry, in a separate network. Each layer
is sent at RATE, however many are sent at the same time, as from a distant registry over a fast line. Two processors
could not pack eight images of NVIDIA's size at a time, so these are small: the figures measure the importer's overlap,
its locks and its slots, not mksquashfs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.bootstrap.foreground import NoFigures
from tests.registry import images as standin

ROOT = Path(__file__).resolve().parents[2]
SIZES_MB = (12, 10, 9, 9, 8, 8, 6, 6)
RATE = 1_000_000  # bytes a second of each layer
AT_ONCE, FEWER_AT_ONCE = 8, 3
LIMIT_RATIO = 1.3
KEY = "key-of-the-benchmark"
LOCAL_DISK = "/var/tmp"  # noqa: S108  (a directory of our own is mounted over it)
STATES = ("/var/lib", "/var/log")
TIMEOUT_S = 600.0
START_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Run:
    """One import: how many at a time were allowed and seen, and its seconds."""

    what: str
    allowed: int
    seen: int
    seconds: float


def images() -> tuple[list[str], dict[str, float]]:
    """Measure; return the lines of a table, and the figures: images, ratio, most at a time.

    Raises:
        NoFigures: this machine lacks what it needs, or an import failed.
    """
    lacking = standin.missing() + [tool for tool in ("unshare", "ip") if shutil.which(tool) is None]
    if lacking or os.geteuid() != 0:
        raise NoFigures(f"needs {', '.join([*lacking, 'root'])}. Hint: make setup-test as root")
    argv = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable]
    with tempfile.TemporaryDirectory(prefix="slipway-images-") as work:
        argv += ["-m", "bench.bootstrap.images", work]
        done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise NoFigures(f"the import ended with {done.returncode}: see above")
    fields = [line.split("\t") for line in done.stdout.splitlines()]
    runs = [Run(what, int(allowed), int(seen), float(seconds)) for what, allowed, seen, seconds in fields]
    return table(runs), figures(runs)


def figures(runs: Sequence[Run]) -> dict[str, float]:
    """The ratio of eight images, eight at a time, to the largest alone; the most at a time when fewer may."""
    alone, together, fewer = runs
    return {
        "count": float(len(SIZES_MB)),
        "ratio": together.seconds / alone.seconds,
        "allowed": float(fewer.allowed),
        "seen": float(fewer.seen),
    }


def table(runs: Sequence[Run]) -> list[str]:
    """One line a run."""
    lines = [f"{'images':<28} {'allowed':>8} {'seen':>6} {'seconds':>9}"]
    lines += [f"{run.what:<28} {run.allowed:>8} {run.seen:>6} {run.seconds:>9.1f}" for run in runs]
    return lines


# ------------------------------------------------------------------------------------------- inside, in a network alone


def _inside(work: Path) -> None:
    """Serve, import, and print one line a run; everything ends with this process's namespace."""
    _own_places(work)
    storage, names = work / "storage", [f"nvidia/image-{number}:1" for number in range(len(SIZES_MB))]
    with standin.serving(storage, work) as port:
        for name, size in zip(names, SIZES_MB, strict=True):
            standin.push(work, port, name, [standin.layer({name: os.urandom(size * 1_000_000)})])
    standin.certificate(work / "certificate", ["nvcr.io", "authn.nvidia.com"])
    (work / "faults").write_text(f'{{"rate": {RATE}}}')
    lines = [f"docker://nvcr.io#{name}" for name in names]
    with standin.serving(storage, work) as port, _front(work, port):
        runs = [_import(work, "the largest alone", lines[:1], AT_ONCE), _import(work, "eight", lines, AT_ONCE)]
        runs.append(_import(work, f"eight, {FEWER_AT_ONCE} at a time", lines, FEWER_AT_ONCE))
    for run in runs:
        print(f"{run.what}\t{run.allowed}\t{run.seen}\t{run.seconds}")


def _own_places(work: Path) -> None:
    """A local disk, a shared file system, names, states and logs of our own; nothing of it outlives the namespace."""
    for name in ("disk", "fsx", "own", "bin"):
        (work / name).mkdir()
    (work / "hosts").write_text("127.0.0.1 localhost nvcr.io authn.nvidia.com\n")
    shutil.copy(ROOT / "rehearsal/standins/enroot", work / "bin")
    for command in (
        ["mount", "--bind", str(work / "disk"), LOCAL_DISK],
        ["mount", "-t", "tmpfs", "fsx", str(work / "fsx")],
        ["mount", "-t", "tmpfs", "own", str(work / "own")],
        ["mount", "--bind", str(work / "hosts"), "/etc/hosts"],
        ["ip", "link", "set", "lo", "up"],
    ):
        subprocess.run(command, check=True)
    # What the nodes' scripts write there is not for this machine, which may have no such directory: so a layer above.
    for number, place in enumerate(STATES):
        upper, scratch = work / f"own/upper-{number}", work / f"own/work-{number}"
        (upper / "slipway").mkdir(parents=True)
        os.setxattr(upper / "slipway", "trusted.overlay.opaque", b"y")
        scratch.mkdir()
        layers = f"lowerdir={place},upperdir={upper},workdir={scratch}"
        subprocess.run(["mount", "-t", "overlay", "own", "-o", layers, place], check=True)


@contextlib.contextmanager
def _front(work: Path, port: int) -> Iterator[None]:
    argv = [sys.executable, str(ROOT / "tests/registry/ngc.py"), "--upstream", str(port), "--key", KEY]
    for name in ("certificate", "faults", "log"):
        argv += [f"--{name}", str(work / name)]
    server = subprocess.Popen(argv)
    ask = ["curl", "-ks", "-o", "/dev/null", "https://nvcr.io/"]
    try:
        end = time.monotonic() + START_TIMEOUT_S
        while subprocess.run(ask, check=False).returncode:
            if time.monotonic() > end:
                raise NoFigures("the registry did not start")
            time.sleep(0.1)
        yield
    finally:
        server.kill()
        server.wait()


def _import(work: Path, what: str, lines: Sequence[str], at_once: int) -> Run:
    """Import to an empty file system from an empty store of layers."""
    fsx, log = work / "fsx", work / "enroot.log"
    for left in (fsx / "containers", fsx / "logs", Path(LOCAL_DISK, f"slipway-containers-{os.getuid()}")):
        shutil.rmtree(left, ignore_errors=True)
    for folder in ("containers", "logs/container-downloads"):
        (fsx / folder).mkdir(parents=True)
    log.unlink(missing_ok=True)
    (work / "list").write_text("".join(f"{line}\n" for line in lines))
    certificate = str(work / "certificate.crt")
    env = {**os.environ, "PATH": f"{work / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(work)}
    env |= {"SSL_CERT_FILE": certificate, "CURL_CA_BUNDLE": certificate, "NGC_API_KEY": KEY}
    env["ENROOT_REHEARSAL_LOG"] = str(log)
    argv = ["/usr/bin/python3", "-B", "-m", "headnode.containers", "--fsx", str(fsx), "--at-once", str(at_once)]
    started = time.monotonic()
    subprocess.run([*argv, str(work / "list")], env=env, check=True, stdout=sys.stderr)
    return Run(what, at_once, most_at_once(log.read_text()), time.monotonic() - started)


def most_at_once(log: str) -> int:
    """The most imports at a time, from the stand-in's lines WHAT NANOSECONDS IMAGE."""
    events = sorted((int(line.split()[1]), 1 if line.startswith("start") else -1) for line in log.splitlines())
    running = most = 0
    for _, change in events:
        running += change
        most = max(most, running)
    return most


if __name__ == "__main__":
    _inside(Path(sys.argv[1]))
