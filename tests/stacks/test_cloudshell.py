"""AWS CloudShell: the set-up fits its home of 1 GB, and the first deployment after it fits 1 GB of its 2 GiB of memory.

The limit of memory is a control group's. What exceeds it is killed by the kernel, and the deployment fails. Source of
the home's size: AWS CloudShell user guide, "Service quotas and restrictions".
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal.cloud.model import ResourceRequest, ResourceResult
from rehearsal.cloud.seed import DEPLOYER
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.engine.account import seed_of
from slipway.settings import load_settings
from tests.stacks.assembly import ROOT
from tests.stacks.standing import REGION

CONTROL_GROUPS = Path("/sys/fs/cgroup")
LIMIT_BYTES = 10**9
SETUP_BYTES = 8 * 10**8  # the Makefile's promise; the rest of the home is the user's
CDK = ROOT / "node_modules/.bin/cdk"
SETTINGS = ROOT / "clusters/rehearsal.yaml"
TIMEOUT_S = 380

needs_setup = pytest.mark.skipif(not CDK.exists() or not (ROOT / ".venv/.stamp").exists(), reason="needs make setup")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with the limit."""
    version_1 = CONTROL_GROUPS / "memory"
    parent = version_1 if version_1.is_dir() else CONTROL_GROUPS
    made = parent / f"slipway-cloudshell-{os.getpid()}"
    try:
        made.mkdir()
        (made / ("memory.limit_in_bytes" if version_1.is_dir() else "memory.max")).write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    yield made
    deadline = time.monotonic() + 90
    while made.is_dir():  # the CDK CLI leaves processes that end a moment later
        with contextlib.suppress(OSError):
            made.rmdir()
        assert time.monotonic() < deadline, (made / "cgroup.procs").read_text()
        time.sleep(0.1)


def accepted(request: ResourceRequest) -> ResourceResult:
    """What ParallelCluster and acceptance answer."""
    data = {"headNode.instanceId": "i-0123456789abcdef0", "headNode.privateIpAddress": "10.0.0.4",
            "validationMessages": "[]", "RunId": "1", "Summary": "good"}  # fmt: skip
    return ResourceResult(request.logical_id, data)


@pytest.mark.slow
@pytest.mark.timeout(500)
@needs_setup
def test_the_first_deployment_fits_one_gigabyte(group: Path, tmp_path: Path) -> None:
    """With an empty home, and CDK's library not unpacked yet."""
    home = tmp_path / "home"
    home.mkdir()
    command = [str(ROOT / ".venv/bin/slipway"), "deploy", str(SETTINGS), "--require-approval", "never", "--",
               "--method=direct", "--output", str(tmp_path / "out")]  # fmt: skip
    with EmbeddedAws(REGION, tmp_path / "aws", query_interval_s=0.05, settle_s=3.0) as aws:
        aws.seed(seed_of(load_settings(SETTINGS)))
        for kind in ("Custom::PclusterCluster", "Custom::ClusterAcceptance"):
            aws.register_custom_resource(kind, accepted)
        done = subprocess.run(
            ["bash", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(group), *command],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "HOME": str(home), **aws.env(aws.authority.session(DEPLOYER, "test"))},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert aws.stacks.find("rehearsal-acceptance").status == "CREATE_COMPLETE"
    kept = bytes_in(home)
    assert kept < 10 * 2**20, f"{kept >> 20} MiB in the home, of 1 GB"


@needs_setup
def test_the_set_up_fits_the_home() -> None:
    """The checkout with its history, and what `make setup` makes in it; tests/setup shows that it keeps no cache."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    history = subprocess.run(["git", "rev-parse", "--path-format=absolute", "--git-common-dir"], cwd=ROOT,
                             capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    checkout = sum((ROOT / name).lstat().st_blocks * 512 for name in names.split("\0") if name)
    parts = {name: bytes_in(Path(name)) for name in (history, str(ROOT / ".venv"), str(ROOT / "node_modules"))}
    assert checkout + sum(parts.values()) < SETUP_BYTES, f"{checkout} bytes of the checkout, {parts}"


def bytes_in(folder: Path) -> int:
    """What a folder's files take on the disk, in whole blocks; other processes make and remove some meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):
        for path in (Path(place), *(Path(place, name) for name in names)):
            with contextlib.suppress(FileNotFoundError):
                total += path.lstat().st_blocks * 512
    return total
