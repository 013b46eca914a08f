"""The throw-away machine, the bundle and the mirror that the tests of the node scripts share."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.bundle import node_env_values
from slipway.settings import load_settings

from . import host as machine

ROOT = Path(__file__).resolve().parents[2]
LOAD = "/srv/load-bundle.sh {kind} us-east-1 /slipway/ml/bundle"  # the bootstrap action, of head or compute
NODE_ENV = node_env_values(load_settings(ROOT / "clusters/rehearsal.yaml")) | {
    "CLUSTER_NAME": "ml",
    "REGION": "us-east-1",
    "NODE_KIND": "compute",
    "LOG_GROUP": "/aws/parallelcluster/ml",
    "PROMETHEUS_RETENTION_DAYS": "30",
    "NCCL_VERSION": "v2.28.7-1",
    "OFI_VERSION": "v1.17.2-aws",
    "ACCEPTANCE_BUILD_WAIT_S": "360",
    "SOFTWARE_MIRROR": "s3://mirror",
    "ACCEPTANCE_SCENARIO": "none",
    "STEP_TIMEOUT_S": "300",
}
# Acts as `aws` does for what the scripts use: copies objects out of a directory, fails on what is not there; every
# parameter is that of the bundle.
AWS = b"""#!/bin/bash
set -eu
[ -e /srv/s3/.slow ] && sleep 0.3
[[ " $* " != *' ssm get-parameter '* ]] || exec cat /srv/parameter
case "$1 $2" in
  's3 cp')
    source=${*: -2:1}
    echo "$source" >>/run/aws.calls || :
    [ -f "/srv/s3/${source#s3://}" ] || { echo "fatal error: An error occurred (404): Key does not exist: $source" >&2; exit 1; }
    cp "/srv/s3/${source#s3://}" "${*: -1}" ;;
  'secretsmanager get-secret-value') cat /srv/secret ;;
  *) echo "aws: $* is not served here" >&2; exit 252 ;;
esac
"""


def pack(files: dict[str, tuple[bytes, int]]) -> bytes:
    """Return a gzipped tar of path -> (content, mode): the same bytes at any time, since tests are named after its hash."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), compresslevel=1, mtime=0)


def acceptance_pyz() -> bytes:
    """Return a zipapp of one line in acceptance's place."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("__main__.py", "print('acceptance of the tests')\n")
    return buffer.getvalue()


def bundle_files() -> dict[str, tuple[bytes, int]]:
    """Return the files of a bundle, made of this repository's own scripts."""
    files: dict[str, tuple[bytes, int]] = {}
    for folder in ("nodes", "headnode", "compute", "templates"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                files[str(path.relative_to(ROOT))] = (path.read_bytes(), path.stat().st_mode & 0o755)
    files["node.env"] = ("".join(f"{key}={value}\n" for key, value in NODE_ENV.items()).encode(), 0o644)
    files["containers.txt"] = (b"# images\ndocker://nvcr.io#nvidia/pytorch:24.01-py3\n", 0o644)
    files["acceptance.json"] = (b"{}\n", 0o644)
    files["instances.json"] = (b'{"schema": 1, "queues": {}, "instance_types": {}}\n', 0o644)
    files["acceptance.pyz"] = (acceptance_pyz(), 0o644)
    return files


def program(name: str) -> bytes:
    return Path("/usr/bin", name).read_bytes()


@pytest.fixture(scope="package", autouse=True)
def bash_trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file to which every bash of these tests writes the lines it runs (trace.sh); gone after them."""
    folder = tmp_path_factory.mktemp("trace")
    shutil.copy(Path(__file__).with_name("trace.sh"), folder / "env.sh")
    trace = folder / "trace"
    trace.touch()
    # Accounts without rights write to it too, and reach it here as well.
    trace.chmod(0o666)
    before, machine.TRACE = os.environ.get("BASH_ENV"), folder
    os.environ["BASH_ENV"] = str(folder / "env.sh")
    try:
        yield trace
    finally:
        machine.TRACE = None
        os.environ.pop("BASH_ENV")
        if before is not None:
            os.environ["BASH_ENV"] = before
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What judges all the others' traces comes after them."""
    last = [item for item in items if item.name == "test_enough_of_the_bash_ran"]
    if last:
        items[:] = [item for item in items if item not in last]
        inside = [place for place, item in enumerate(items) if Path(__file__).parent in item.path.parents]
        place = inside[-1] + 1 if inside else len(items)
        items[place:place] = last


@pytest.fixture(scope="session")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the pinned file names, made of this machine's own programs, and SHA256SUMS."""
    for name in ("prometheus", "promtool", "prometheus-node-exporter"):
        if not Path("/usr/bin", name).exists():
            pytest.skip(f"needs /usr/bin/{name}")
    folder = tmp_path_factory.mktemp("mirror")
    top = "prometheus-3.5.0.linux-amd64"
    (folder / f"{top}.tar.gz").write_bytes(
        pack({f"{top}/{name}": (program(name), 0o755) for name in ("prometheus", "promtool")})
    )
    top = "node_exporter-1.9.1.linux-amd64"
    (folder / f"{top}.tar.gz").write_bytes(pack({f"{top}/node_exporter": (program("prometheus-node-exporter"), 0o755)}))
    subprocess.run([str(ROOT / "rehearsal/standins/gpu-packages.sh"), str(folder)], check=True, timeout=60)
    files = sorted([*folder.glob("*.gz"), *folder.glob("*.deb")])
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return folder


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machine.Host]:
    """A booted machine with the `aws` of the tests."""
    reason = machine.missing()
    if reason:
        pytest.skip(reason)
    booted = machine.Host(tmp_path_factory.mktemp("host"))
    try:
        booted.put("/usr/local/bin/aws", AWS, 0o755)
        booted.run("mkdir -p /srv/s3/mirror /srv/s3/assets")
        yield booted
    finally:
        booted.close()


@pytest.fixture(scope="module")
def node(host: machine.Host, mirror: Path) -> machine.Host:
    """The machine with the mirror and the bundle in its S3, and the parameter that names it."""
    for path in mirror.iterdir():
        host.put(f"/srv/s3/mirror/{path.name}", path.read_bytes())
    bundle = pack(bundle_files())
    name_bundle(host, "bundle", bundle)
    return host


def name_bundle(host: machine.Host, name: str, content: bytes, *values: str) -> None:
    """Put a bundle into the machine's S3, and let the parameter name it; next to it the bootstrap action."""
    host.put(f"/srv/s3/assets/{name}.gz", content)
    lines = [f"BUNDLE_URL=s3://assets/{name}.gz", f"BUNDLE_SHA256={hashlib.sha256(content).hexdigest()}"]
    host.put("/srv/parameter", "".join(f"{line}\n" for line in (*lines, "RESULTS_BUCKET=results-1", *values)).encode())
    host.put("/srv/load-bundle.sh", (ROOT / "nodes/load-bundle.sh").read_bytes(), 0o755)


def bash(script: str) -> subprocess.CompletedProcess[str]:
    """Run a bash script here, with nodes/lib sourced."""
    text = f"source '{ROOT}/nodes/lib/all.sh'\n{script}"
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=30, check=False)
