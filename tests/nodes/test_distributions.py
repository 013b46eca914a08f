"""The node scripts on other distributions: bash, Python and systemd of each, on a root that mmdebstrap made.

The whole set-up of a head node and of a compute node, by load-bundle.sh, with the real acceptance program. The GPUs, EFA
devices and NVMe of the compute node are the rehearsal's stand-ins; Slurm's commands give recorded answers. Prometheus
and the node exporter are this machine's own programs; where the distribution's C library is older than the one that they
need, they bring this machine's. Every step ends well. The step reports what the image lacks (enroot, the CloudWatch
agent), and the import of images fails in the background for want of enroot.

The oldest distribution is always tested, all of them with SLIPWAY_DISTRIBUTIONS=all.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rehearsal.standins import hardware
from slipway.bundle import acceptance_program
from slipway.node_steps import steps_of

from . import coverage_bash, distributions
from . import host as machine
from .conftest import AWS, ROOT, bundle_files, pack, program
from .host import Host
from .test_health_steps import FACTS, SPEC
from .test_metrics import SDIAG, SINFO, SINFO_USED, SQUEUE

CURRENT = "/opt/slipway/current"
LOAD = "/srv/load-bundle.sh {} us-east-1 /slipway/ml/bundle"
KINDS = {"head": "headnode", "compute": "compute"}
# What each kind's setup leaves to the background, and how that ends here.
BACKGROUND = {"head": {"containers": "failed", "nccl": "done"}, "compute": {"gpu-exporter": "done"}}
QUEUED = {"slipway-containers.service", "slipway-nccl.service"}  # done anew with each setup: they find what is there
PARAMETER = b"""#!/bin/bash
case "$*" in
  *' ssm get-parameter --name /slipway/ml/bundle '*) exec cat /srv/parameter ;;
  *) exec /usr/local/bin/aws.objects "$@" ;;
esac
"""
# Answers with what the tests of the collectors recorded, and with this node for the health checks and the status.
SLURM = b"""#!/bin/bash
case "${0##*/} $*" in
  sinfo*'%N|%o|%R|%T|%G') printf 'gpu-1|10.0.0.11|gpu|idle|gpu:8\\ngpu-2|10.0.0.12|gpu|idle~|gpu:8\\n' ;;
  sinfo*'%N|%o') printf 'gpu-1|10.0.0.11\\ngpu-2|10.0.0.12\\n' ;;
  sinfo*'%N|%R|%T|%G|%E') cat /srv/slurm/sinfo ;;
  sinfo*'NodeList:256,Comment:1024') printf '%-256s%-1024s\\n' head '(null)' ;;
  sinfo*GresUsed*) cat /srv/slurm/used ;;
  sinfo*'%N|%T|%E') echo 'head|idle|none' ;;
  sinfo*'%N|%P|%T|%a|%H|%E') echo 'head|gpu*|idle|up|Unknown|none' ;;
  squeue*'%P|%T') cat /srv/slurm/squeue ;;
  squeue*) ;;
  sdiag*) cat /srv/slurm/sdiag ;;
  'scontrol show config') echo 'MetricsType = (null)' ;;
  *) echo "$0 $*" >>/srv/slurm/unknown; exit 1 ;;
esac
"""
WITH_LIBRARY = '#!/bin/sh\nlib=${{0%/*}}/lib\nexec "$lib/{loader}" --library-path "$lib" "$lib/{name}" "$@"\n'
DEB822 = """\
Types: deb
# URIs: http://old.example/debian
URIs: https://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .

Types: deb
URIs: http://security.example/debian-security
Suites: bookworm-security
Components: main
"""
ONE_LINE = """\
deb [arch=amd64 signed-by=/usr/share/keyrings/a.gpg] http://one.example/debian bookworm main contrib
deb-src http://source.example/debian bookworm main
deb https://cloud.example/apt cloud-bookworm main
deb cdrom:[Debian]/ bookworm main
"""


@pytest.mark.parametrize(
    ("release", "name", "text", "expected"),
    [
        ("bookworm", "sources.list.d/debian.sources", DEB822, ["https://mirror.example/debian"]),
        ("bookworm", "sources.list", ONE_LINE, ["http://one.example/debian"]),
        ("bookworm", "sources.list.d/debian.sources", f"Enabled: no\n{DEB822}", []),
        ("jammy", "sources.list", ONE_LINE, []),
        ("", "sources.list", ONE_LINE, []),
    ],
)
def test_roots_come_from_the_mirror_of_the_machine(
    tmp_path: Path, release: str, name: str, text: str, expected: list[str]
) -> None:
    (tmp_path / "apt" / name).parent.mkdir(parents=True)
    (tmp_path / "apt" / name).write_text(text)
    if release:
        (tmp_path / "os-release").write_text(f"ID=some\nVERSION_CODENAME={release}\n")
    assert distributions.mirrors(tmp_path) == expected


def carrying(archive: bytes) -> bytes:
    """The same release, each program with the C library that it was linked to next to it."""
    told = subprocess.run(["ldd", "/usr/bin/prometheus"], capture_output=True, text=True, check=True).stdout
    libraries = [Path(path) for path in re.findall(r"(/\S+) \(0x", told)]
    loader = next(path.name for path in libraries if path.name.startswith("ld-"))
    files: dict[str, tuple[bytes, int]] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as release:
        for member in release:
            top, _, name = member.name.partition("/")
            content = release.extractfile(member)
            assert content
            files[f"{top}/lib/{name}"] = (content.read(), 0o755)
            files[member.name] = (WITH_LIBRARY.format(loader=loader, name=name).encode(), 0o755)
            files |= {f"{top}/lib/{path.name}": (path.read_bytes(), 0o755) for path in libraries}
    return pack(files)


@pytest.fixture(scope="module", autouse=True)
def untraced() -> Iterator[None]:
    """This module's bash counts for no coverage: it may run in another process than the judgement over it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "TRACE", None)
        yield


@pytest.fixture(scope="module", params=distributions.chosen())
def suite(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def node(suite: str, mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A machine of the distribution with the bundle and the mirror in its S3, before any setup."""
    booted = Host(tmp_path_factory.mktemp("host"), distributions.root_of(suite))
    try:
        furnish(booted, mirror)
        yield booted
    finally:
        booted.close()


def furnish(node: Host, mirror: Path) -> None:
    put_mirror(node, mirror)
    bundle = pack(
        {
            **bundle_files(),
            "acceptance.pyz": (acceptance_program(), 0o644),
            "instances.json": (json.dumps(FACTS).encode(), 0o644),
        }
    )
    parameter = f"BUNDLE_URL=s3://assets/bundle.gz\nBUNDLE_SHA256={hashlib.sha256(bundle).hexdigest()}\n"
    files = {
        "usr/local/bin/aws": (PARAMETER, 0o755),
        "usr/local/bin/aws.objects": (AWS, 0o755),
        "srv/s3/assets/bundle.gz": (bundle, 0o644),
        "srv/parameter": (f"{parameter}RESULTS_BUCKET=results-1\n".encode(), 0o644),
        "srv/load-bundle.sh": ((ROOT / "nodes/load-bundle.sh").read_bytes(), 0o755),
        "etc/parallelcluster/cfnconfig": (b"cfn_instance_type=p5.48xlarge\nscheduler_queue_name=train\n", 0o644),
        "usr/local/bin/dcgm-exporter": ((ROOT / "rehearsal/standins/dcgm-exporter").read_bytes(), 0o755),
        **hardware.files(SPEC),
    }
    files |= {f"usr/local/bin/{name}": (SLURM, 0o755) for name in ("sinfo", "squeue", "sdiag", "scontrol")}
    recorded = {"sinfo": SINFO, "used": SINFO_USED, "squeue": SQUEUE, "sdiag": SDIAG}
    files |= {f"srv/slurm/{name}": (text.encode(), 0o644) for name, text in recorded.items()}
    node.put("/srv/files.tgz", pack(files))
    node.run(
        "tar --extract --gzip --no-same-owner --file /srv/files.tgz --directory /; systemctl daemon-reload; "
        "touch /dev/nvidia{0..7}; mkdir /scratch; mount -t tmpfs none /scratch"
    )


def put_mirror(node: Host, mirror: Path) -> None:
    node.put("/srv/try", program("prometheus"), 0o755)
    runs = node.run("/srv/try --version; status=$?; rm /srv/try; exit $status", check=False).returncode == 0
    sums = ""
    for path in sorted([*mirror.glob("*.tar.gz"), *mirror.glob("*.deb")]):
        release = path.read_bytes() if runs or path.suffix == ".deb" else carrying(path.read_bytes())
        node.put(f"/srv/s3/mirror/{path.name}", release)
        sums += f"{hashlib.sha256(release).hexdigest()}  {path.name}\n"
    node.put("/srv/s3/mirror/SHA256SUMS", sums.encode())


def wait(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.2)


def setup(node: Host, kind: str) -> str:
    """Run the bootstrap action, and wait for what it leaves to the background."""
    said = node.run(LOAD.format(kind), timeout=200).stdout
    wait(lambda: BACKGROUND[kind].items() <= background(node).items(), f"background work {BACKGROUND[kind]}")
    return said


def status(node: Host) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node.run(f"{CURRENT}/nodes/status/node_status.py").stdout)
    return found


def background(node: Host) -> dict[str, str]:
    return {one["name"]: one["state"] for one in status(node)["background"]}


def steps(said: str, kind: str) -> list[tuple[str, str]]:
    """The steps that ended and how, in their order."""
    ended = re.findall(rf"^slipway: step {KINDS[kind]}/(\S+) ok|step={KINDS[kind]}/(\S+) ", said, re.MULTILINE)
    return [(good or bad, "ok" if good else "reported") for good, bad in ended]


def every(kind: str) -> list[tuple[str, str]]:
    return [(path.stem, "ok") for path, _ in steps_of(KINDS[kind])]


def units(node: Host) -> dict[str, str]:
    """The units of Slipway that are up -> which start of theirs it is."""
    listed = node.run("systemctl list-units --state=active --plain --no-legend 'slipway-*'").stdout.splitlines()
    names = sorted({line.split()[0] for line in listed} - QUEUED)
    shown = node.run(f"systemctl show --property InvocationID --value {' '.join(names)}").stdout.split()
    return dict(zip(names, shown, strict=True))


def files(node: Host) -> dict[str, str]:
    """What a set-up may change; not what timers write, nor directories: a file in them is compared under another name."""
    found = node.snapshot("/fsx/logs", "/etc/prometheus/targets")
    return {path: facts for path, facts in found.items() if not facts.startswith("d ")}


@pytest.fixture(scope="module")
def head(node: Host) -> tuple[Host, str]:
    """The machine after a head node's set-up, and what that said."""
    return node, setup(node, "head")


@pytest.fixture(scope="module")
def compute(head: tuple[Host, str]) -> tuple[Host, str]:
    """The machine after a compute node's set-up as well."""
    return head[0], setup(head[0], "compute")


def twice_the_same(node: Host, kind: str) -> None:
    before, running = files(node), units(node)
    assert steps(setup(node, kind), kind) == every(kind)
    after = files(node)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == set()
    assert units(node) == running


@pytest.mark.hosts
def test_distribution_is_the_one_it_is_called(suite: str, node: Host) -> None:
    said = node.run(". /etc/os-release; echo $VERSION_CODENAME; /usr/bin/python3 --version").stdout
    assert said.split()[0] == suite
    assert said.split()[2].startswith(f"{distributions.SUITES[suite]}.")


@pytest.mark.hosts
def test_head_nodes_setup_twice(head: tuple[Host, str]) -> None:
    node, said = head
    assert steps(said, "head") == every("head")
    twice_the_same(node, "head")
    expected = {"slipway-node-exporter.service", "slipway-prometheus.service", "slipway-slurm-targets.service"}
    names = ("node-metrics", "slurm-metrics", "remote-write", "retry", "block-end", "topology")
    timers = {f"slipway-{name}.timer" for name in names}
    assert units(node).keys() == expected | timers


@pytest.mark.hosts
def test_head_nodes_metrics(head: tuple[Host, str]) -> None:
    node, _ = head

    def targets() -> set[str]:
        answer = json.loads(node.run("curl -sf http://127.0.0.1:9090/api/v1/targets").stdout)
        return {target["labels"]["instance"] for target in answer["data"]["activeTargets"]}

    wait(lambda: {"head", "gpu-1"} <= targets(), "the targets that Slurm's nodes give")
    assert "gpu-2" not in targets()
    wait(lambda: 'collector="slurm"} 1' in node.run("curl -sf http://127.0.0.1:9100/metrics").stdout, "Slurm's metrics")
    metrics = node.run("curl -sf http://127.0.0.1:9100/metrics").stdout
    for line in ("slipway_efa_devices 0", 'slipway_collector_up{collector="lustre"} 1', "node_textfile_scrape_error 0"):
        assert line in metrics
    # It runs by its timer too, on a busy machine before this test.
    node.run("systemctl start slipway-topology.service", check=False)
    assert node.run("cat /srv/slurm/unknown", check=False).returncode == 1, "Slurm was asked what nobody recorded"


@pytest.mark.hosts
def test_images_without_enroot_are_told(head: tuple[Host, str]) -> None:
    said = head[0].run("/fsx/containers/list-containers.sh").stdout
    assert "nvcr.io_nvidia_pytorch-24.01-py3.sqsh (enroot is not installed on this node)" in said


@pytest.mark.hosts
def test_compute_nodes_setup_twice(compute: tuple[Host, str]) -> None:
    node, said = compute
    assert steps(said, "compute") == every("compute")
    log = node.run("cat /var/log/slipway/14-gpu-state.log").stdout
    assert "turned persistence mode on" in log
    assert "started nvidia-fabricmanager.service" in log
    twice_the_same(node, "compute")
    assert {"slipway-gpu-exporter.service", "slipway-health.timer"} <= units(node).keys()
    assert "DCGM_FI_DEV_GPU_TEMP" in node.run("curl -sf http://127.0.0.1:9400/metrics").stdout


@pytest.mark.hosts
def test_compute_node_is_judged(compute: tuple[Host, str]) -> None:
    node, _ = compute
    node.run("systemctl start slipway-health.service")
    told = json.loads(node.run("cat /var/lib/slipway/health.json").stdout)
    # The clock: a machine in a namespace cannot know whether the kernel's is held to any other.
    judged = {one["check"]: (one["status"], one["evidence"]) for one in told["checks"] if one["check"] != "clock"}
    assert {check: found for check, found in judged.items() if found[0] != "ok"} == {}
    assert {"gpu-count", "nvlink", "efa", "fsx", "scratch", "gpu-xid"} <= judged.keys()


@pytest.mark.hosts
def test_node_tells_its_state(compute: tuple[Host, str]) -> None:
    told = status(compute[0])
    assert {(one["step"], one["status"]) for one in told["steps"]} >= {
        (f"compute/{name}", "ok") for name, _ in every("compute")
    }
    node = compute[0]
    sha256 = node.run("sha256sum /srv/s3/assets/bundle.gz").stdout.split()[0]
    assert node.run(f"{CURRENT}/nodes/status/node_status.py --expect {sha256}", check=False).returncode == 0


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("slipway-health --explain", "gpu-count"),
        (f"/usr/bin/python3 {CURRENT}/headnode/fsx-layout.py /fsx", ""),
        (f"/usr/bin/python3 {CURRENT}/headnode/slurm-targets.py --output /srv && cat /srv/node.json", "10.0.0.11:9100"),
        ("/opt/slipway/current/nodes/metrics/slurm_metrics.py --targets /srv/slurm.json && cat /srv/slurm.json", "[]"),
        ("/opt/slipway/current/nodes/metrics/node_metrics.py", ""),
        ("/fsx/scripts/download-ngc-containers.sh --help", "Import the container images of a list."),
        ("acceptance list", "all_reduce"),
    ],
)
def test_program_runs(compute: tuple[Host, str], command: str, said: str) -> None:
    assert said in compute[0].run(command).stdout


@pytest.mark.hosts
def test_every_script_and_program_is_understood(compute: tuple[Host, str]) -> None:
    """Also the lines that nothing here comes to: by this bash, and by this Python."""
    node, _ = compute
    scripts = [f"{CURRENT}/{path}" for path in coverage_bash.scripts(ROOT)]
    assert node.run(f"for script in {' '.join(scripts)}; do bash -n $script || echo $script; done").stdout == ""
    programs = [path for folder in KINDS.values() for path in (ROOT / folder).rglob("*.py")]
    names = [f"{CURRENT}/{path.relative_to(ROOT)}" for path in [*programs, *(ROOT / "nodes").rglob("*.py")]]
    compile_all = "import sys; [compile(open(name).read(), name, 'exec') for name in sys.argv[1:]]"
    node.run(f'/usr/bin/python3 -c "{compile_all}" {" ".join(names)}')
