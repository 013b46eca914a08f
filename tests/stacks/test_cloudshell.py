"""AWS CloudShell: `make setup` and a synthesis in an empty home of 1 GB, and a first deployment with 1 GB of its 2 GiB.

The limits of memory are a control group's. What exceeds it is killed by the kernel, and the command fails. The home is
an ext4 file system in a file, as CloudShell's is a disk: files in a tmpfs would count as memory. Source of the home's
size: AWS CloudShell user guide, "Service quotas and restrictions".
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rehearsal.cloud.seed import DEPLOYER
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud_model import ResourceRequest, ResourceResult
from rehearsal.engine.account import seed_of
from slipway.settings import load_settings
from tests.stacks.assembly import ROOT
from tests.stacks.standing import REGION

CONTROL_GROUPS = Path("/sys/fs/cgroup")
MEMORY_BYTES = 2 * 2**30
DEPLOYMENT_BYTES = 10**9
HOME_BYTES = 10**9
SETUP_BYTES = 8 * 10**8  # the Makefile's promise; the rest of the home is the user's
SYNTHESIS_BYTES = 10**8  # compiled Python files; with CDK's library it would be 210 MB more
SETTINGS = "clusters/rehearsal.yaml"
CDK = "node_modules/.bin/cdk"
TIMEOUT_S = 380
# How this machine reaches the indices of pip and npm; an index that cannot be reached fails the set-up, and the test.
INDEX_VARIABLES = ("pip_", "npm_config_", "http_proxy", "https_proxy", "no_proxy", "ssl_cert_", "node_extra_ca_certs")
INDEX_FILES = {"PIP_CONFIG_FILE": "~/.config/pip/pip.conf", "NPM_CONFIG_USERCONFIG": "~/.npmrc"}
# The mount is seen in this namespace only, and ends with its last process. The last line is the home's use in blocks.
INSIDE = """set -euo pipefail
mount -o loop "$1" "$2"
echo $$ >"$3/cgroup.procs"
cd "$2"
mkdir -p slipway
cd slipway
"${@:4}"
sync --file-system .
stat --file-system --format '%b %f %S' .
"""


@contextlib.contextmanager
def group_of(limit_bytes: int) -> Iterator[Path]:
    """A control group with the limit, and without swap; skips the test where none can be made."""
    version_1 = CONTROL_GROUPS / "memory"
    made = (version_1 if version_1.is_dir() else CONTROL_GROUPS) / f"slipway-cloudshell-{os.getpid()}"
    try:
        made.mkdir()
        (made / ("memory.limit_in_bytes" if version_1.is_dir() else "memory.max")).write_text(str(limit_bytes))
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    for name, text in (("memory.memsw.limit_in_bytes", str(limit_bytes)), ("memory.swap.max", "0")):
        if (made / name).exists():
            (made / name).write_text(text)
    try:
        yield made
    finally:
        remove(made)


@dataclass(frozen=True)
class Shell:
    """An empty home in a file, a control group, and a folder for what CloudShell keeps outside the home."""

    group: Path
    folder: Path

    def run(self, *command: str, env: Mapping[str, str]) -> tuple[subprocess.CompletedProcess[str], int]:
        """Run the command in the checkout's folder; return how it ended, and what is used of the home in bytes."""
        alone = ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc")
        places = (str(self.folder / "disk"), str(self.folder / "home"), str(self.group))
        done = subprocess.run(
            [*alone, "bash", "-c", INSIDE, "bash", *places, *command],
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            return done, 0
        blocks, free, size = map(int, done.stdout.splitlines()[-1].split())
        return done, (blocks - free) * size

    def env(self) -> dict[str, str]:
        """Return an environment with nothing of the user's own home but how the indices are reached."""
        kept = {name: text for name, text in os.environ.items() if name.lower().startswith(INDEX_VARIABLES)}
        files = {name: Path(place).expanduser() for name, place in INDEX_FILES.items()}
        named = {name: str(place) for name, place in files.items() if place.is_file()}
        places = {"HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "tmp")}
        return {**named, **kept, **places, "PATH": os.environ["PATH"]}


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "mkfs.ext4", "mount"))):
        pytest.skip("needs root, unshare and mkfs.ext4")
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(HOME_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(disk)], check=True)
    with group_of(MEMORY_BYTES) as group:
        made = Shell(group, tmp_path)
        probe, _ = made.run("true", env=os.environ)
        if probe.returncode:
            pytest.skip(f"no file can be mounted here: {probe.stderr.strip()}")
        yield made
    disk.unlink()


def remove(group: Path) -> None:
    """Wait for the end of its processes: the CDK CLI leaves some that end a moment later."""
    deadline = time.monotonic() + 90
    while group.is_dir():
        with contextlib.suppress(OSError):
            group.rmdir()
        assert time.monotonic() < deadline, (group / "cgroup.procs").read_text()
        time.sleep(0.1)


def accepted(request: ResourceRequest) -> ResourceResult:
    """What ParallelCluster and acceptance answer."""
    data = {"headNode.instanceId": "i-0123456789abcdef0", "headNode.privateIpAddress": "10.0.0.4",
            "validationMessages": "[]", "RunId": "1", "Summary": "good"}  # fmt: skip
    return ResourceResult(request.logical_id, data)


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.skipif(not (ROOT / CDK).exists() or not (ROOT / ".venv/.stamp").exists(), reason="needs make setup")
def test_the_first_deployment_fits_one_gigabyte(tmp_path: Path) -> None:
    """With an empty home, and CDK's library not unpacked yet."""
    home = tmp_path / "home"
    home.mkdir()
    command = (".venv/bin/slipway", "deploy", SETTINGS, "--require-approval", "never", "--", "--method=direct",
               "--output", str(tmp_path / "out"))  # fmt: skip
    with EmbeddedAws(REGION, tmp_path / "aws", query_interval_s=0.05, settle_s=3.0) as aws:
        aws.seed(seed_of(load_settings(ROOT / SETTINGS)))
        for kind in ("Custom::PclusterCluster", "Custom::ClusterAcceptance"):
            aws.register_custom_resource(kind, accepted)
        session = aws.env(aws.authority.session(DEPLOYER, "test"))
        with group_of(DEPLOYMENT_BYTES) as group:
            done = subprocess.run(
                ["bash", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(group), *command],
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], "HOME": str(home), **session},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        assert done.returncode == 0, done.stderr[-2000:]
        assert aws.stacks.find("rehearsal-acceptance").status == "CREATE_COMPLETE"
    kept = sum(path.lstat().st_blocks * 512 for path in home.rglob("*"))
    assert kept < 10 * 2**20, f"{kept >> 20} MiB in the home, of 1 GB"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_set_up_and_a_synthesis_fit_the_home(shell: Shell) -> None:
    """A clone with its history, `make setup` from the real indices, and `cdk synth`."""
    cloned, _ = shell.run("git", "clone", "--quiet", str(ROOT), ".", env=os.environ)
    assert cloned.returncode == 0, cloned.stderr
    done, used = shell.run("make", "setup", env=shell.env())
    assert done.returncode == 0, done.stderr[-2000:]
    assert used < SETUP_BYTES, f"{used} bytes of the home after the set-up"
    done, after = shell.run(CDK, "synth", "--quiet", "--context", f"settings={SETTINGS}", env=shell.env())
    assert done.returncode == 0, done.stderr[-2000:]
    assert after - used < SYNTHESIS_BYTES, f"{used} bytes of the home after the set-up, {after} after the synthesis"
