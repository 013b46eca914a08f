"""Roots of other distributions, for hosts (host.py) that are not this machine's: made by mmdebstrap, kept between runs.

They lie in .cache/distributions/SUITE. One is made once, under another name that is then changed, so a run that is
killed leaves none; of two runs at once one makes it and the other waits.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from email import message_from_string
from pathlib import Path

import pytest

from .host import missing

SUITES = {"bullseye": "3.9", "trixie": "3.13"}
"""Debian's name of the suite -> its Python. The oldest first: that one is always tested, the others when asked for."""
PLACE = Path(__file__).resolve().parents[2] / ".cache/distributions"
PACKAGES = ("systemd", "systemd-sysv", "dbus", "python3", "curl", "iproute2", "procps", "passwd")
ANSWER_TIMEOUT_S = 15
MAKE_TIMEOUT_S = 330  # of the 400 s that a test has; 40 to 60 s when nothing is in the way
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Mounts and processes of their own: they end with mmdebstrap, and that with the process of the tests, however it ends.
ALONE = ("setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
ALONE += ("--propagation", "private")
NO_DOWNLOAD = re.compile(r"^E: (Failed to fetch|Unable to fetch|The repository|Release file) .*", re.MULTILINE)


def chosen() -> list[str]:
    """The suites to test: the oldest, or with SLIPWAY_DISTRIBUTIONS=all every one."""
    return list(SUITES) if os.environ.get("SLIPWAY_DISTRIBUTIONS") == "all" else list(SUITES)[:1]


def root_of(suite: str) -> Path:
    """Return the root of a suite, made now if it is not there; skips the test where it cannot be had."""
    reason = missing() or ("" if shutil.which("mmdebstrap", path=SEARCH) else "needs mmdebstrap")
    if reason:
        pytest.skip(reason)
    root, fresh = PLACE / suite, PLACE / f".{suite}.new"
    PLACE.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (PLACE / f".{suite}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _whole(root):
            for left in (root, fresh):
                if left.exists():
                    shutil.rmtree(left)
            _make(suite, fresh, lock.fileno())
            fresh.rename(root)
    return root


def _whole(root: Path) -> bool:
    """Whether a root is there and has all the packages: the list may have grown since it was made."""
    status = root / "var/lib/dpkg/status"
    return status.is_file() and set(PACKAGES) <= set(re.findall(r"^Package: (\S+)$", status.read_text(), re.MULTILINE))


def _make(suite: str, directory: Path, lock: int) -> None:
    """Run mmdebstrap, which holds the lock as long as it lives."""
    mirror = _answering(suite)
    # A third of the CPU time that debootstrap takes: apt resolves and unpacks in place of shell and perl.
    command = [*ALONE, "mmdebstrap", "--mode=root", "--variant=apt", f"--include={','.join(PACKAGES)}"]
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    try:
        done = subprocess.run(
            [*command, suite, str(directory), *([mirror] if mirror else [])],
            env={"PATH": SEARCH, "LC_ALL": "C", "HOME": "/root", **proxies},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAKE_TIMEOUT_S,
            pass_fds=(lock,),
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{mirror or 'the mirror'} did not give {suite} in {MAKE_TIMEOUT_S} s")
    said = "\n".join(done.stdout.splitlines()[-10:])
    if done.returncode and (failure := NO_DOWNLOAD.search(said)):
        pytest.skip(f"{mirror or 'the mirror'} did not give {suite}: {failure[0]}")
    assert done.returncode == 0, (
        f"mmdebstrap of {suite} from {mirror or 'its own mirror'}: exit {done.returncode}\n{said}"
    )


def _answering(suite: str) -> str:
    """The first mirror that has the suite; empty leaves it to mmdebstrap, skips the test when those known have not."""
    tried: list[str] = []
    for mirror in mirrors():
        try:
            with urllib.request.urlopen(f"{mirror}/dists/{suite}/Release", timeout=ANSWER_TIMEOUT_S):  # noqa: S310  (mirrors() gives http and https only)
                return mirror
        except (OSError, urllib.error.URLError) as error:
            tried.append(f"{mirror}: {error}")
    if tried:
        pytest.skip(f"no mirror has {suite}: {'; '.join(tried)}")
    return ""


def mirrors(etc: Path = Path("/etc")) -> list[str]:
    """The mirrors that this machine's apt takes its own distribution from."""
    release = (etc / "os-release").read_text() if (etc / "os-release").is_file() else ""
    codename = re.search(r"^VERSION_CODENAME=(\S+)$", release, re.MULTILINE)
    found = []
    for uris, suites, components in _sources(etc / "apt") if codename else ():
        if codename and codename[1] in suites and "main" in components:
            found += [uri.rstrip("/") for uri in uris if uri.startswith(("http://", "https://"))]
    return list(dict.fromkeys(found))


def _sources(apt: Path) -> list[tuple[list[str], list[str], list[str]]]:
    """Addresses, suites and components of apt's sources, in both of their forms."""
    found = []
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))]:
        lines = path.read_text() if path.is_file() else ""
        for uri, suite, components in re.findall(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)$", lines, re.MULTILINE):
            found.append(([uri], [suite], components.split()))
    for path in sorted((apt / "sources.list.d").glob("*.sources")):
        text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
        for paragraph in re.split(r"\n\s*\n", text):
            fields = message_from_string(paragraph.strip())
            if "deb" in fields.get("Types", "").split() and fields.get("Enabled", "yes") != "no":
                found.append(tuple(fields.get(name, "").split() for name in ("URIs", "Suites", "Components")))
    return found
