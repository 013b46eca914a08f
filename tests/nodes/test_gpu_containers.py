"""Containers with GPUs: the step that brings nvidia-container-cli, and what an image does with and without it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT, bash
from .host import Host
from .installed import install, step

STEP = "compute/steps/16-gpu-containers"
CLI = "/usr/bin/nvidia-container-cli"
UNPACK = ROOT / "compute/unpack-deb.py"
SMI = b"#!/bin/bash\n[ \"$1\" = -L ] && printf 'GPU %d: NVIDIA H100 80GB HBM3 (UUID: GPU-%d)\\n' 0 0 1 1\n"
# An image as NVIDIA's are: a shell, and the variable that enroot's hook looks at.
IMAGE = """
root=$(mktemp -d) && mkdir -p $root/bin $root/etc
cp "$(readlink -f /bin/sh)" $root/bin/sh
ldd $root/bin/sh | grep -o '/[^ ]*' | while read -r library; do mkdir -p $root${library%/*}; cp -n $library $root$library; done
echo NVIDIA_VISIBLE_DEVICES=all >$root/etc/environment
mksquashfs $root /srv/image.sqsh -quiet -no-progress -all-root -noappend >/dev/null; rm -rf $root
"""
START = "cd /; ENROOT_DATA_PATH=/srv/data ENROOT_TEMP_PATH=/tmp enroot start /srv/image.sqsh nvidia-smi -L"


@pytest.fixture(scope="module")
def gpu_node(node: Host) -> Host:
    install(node)
    node.put("/usr/local/bin/enroot", (ROOT / "rehearsal/standins/enroot").read_bytes(), 0o755)
    node.put("/usr/local/bin/nvidia-smi", SMI, 0o755)
    node.run(f"touch /dev/nvidia0; {IMAGE}")
    return node


@pytest.mark.hosts
def test_image_does_not_start_before_the_step_and_has_its_gpus_after_it(gpu_node: Host) -> None:
    before = gpu_node.run(START, check=False)
    assert before.returncode == 1
    assert "[ERROR] Command not found: nvidia-container-cli, see https://github.com/NVIDIA/libnvidia-container" in (
        before.stdout
    )
    assert "[ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1" in before.stdout
    done = step(gpu_node, STEP)
    assert "libnvidia-container-tools 1.19.1-1 from mirror" in done.stdout
    assert "cli-version: 1.19.1" in done.stdout
    assert gpu_node.run(START).stdout.count("GPU ") == 2
    assert "/usr/lib/x86_64-linux-gnu" in gpu_node.run("cat /etc/ld.so.conf.d/slipway-libnvidia-container.conf").stdout
    again = step(gpu_node, STEP)
    assert "wrote" not in again.stdout
    assert "from mirror" not in again.stdout


@pytest.mark.hosts
def test_program_that_the_image_brings_is_left_alone(gpu_node: Host) -> None:
    gpu_node.run(f"cp -L {CLI} /usr/local/bin/nvidia-container-cli")
    done = step(gpu_node, STEP)
    gpu_node.run("rm /usr/local/bin/nvidia-container-cli")
    assert done.stdout == "slipway: the image has /usr/local/bin/nvidia-container-cli: nothing to install\n"


@pytest.mark.hosts
def test_program_that_does_not_start_is_reported(gpu_node: Host) -> None:
    gpu_node.run(
        f"mv $(readlink -f {CLI}) /srv/cli; printf '#!/bin/sh\\nexit 127\\n' >$(readlink {CLI}); chmod +x {CLI}"
    )
    done = step(gpu_node, STEP, check=False)
    gpu_node.run(f"mv /srv/cli $(readlink {CLI})")
    assert done.returncode == 1
    assert f"slipway: {CLI} does not start" in done.stdout


@pytest.mark.hosts
def test_mirror_without_the_packages_is_reported(gpu_node: Host) -> None:
    gpu_node.run(f"rm -rf {CLI} /opt/slipway/software/libnvidia-container /var/cache/slipway; mkdir /srv/away")
    gpu_node.run("cp /srv/s3/mirror/SHA256SUMS /srv/away; sed -i /libnvidia/d /srv/s3/mirror/SHA256SUMS")
    done = step(gpu_node, STEP, check=False)
    gpu_node.run("cp /srv/away/SHA256SUMS /srv/s3/mirror/; cd /srv/s3/mirror; cp libnvidia-container1* /srv/away")
    assert done.returncode == 1
    assert "SHA256SUMS has no line of libnvidia-container1_1.19.1-1_amd64.deb" in done.stdout
    # A file that is not a package, with the sum that the mirror says.
    gpu_node.run(
        "cd /srv/s3/mirror; echo text >libnvidia-container1_1.19.1-1_amd64.deb; sha256sum *.gz *.deb >SHA256SUMS"
    )
    done = step(gpu_node, STEP, check=False)
    gpu_node.run("cp /srv/away/* /srv/s3/mirror/; rm -rf /srv/away")
    assert "it is not a Debian package" in done.stdout
    assert "slipway-hint: the files in the mirror are not NVIDIA's packages" in done.stdout
    step(gpu_node, STEP)


@pytest.mark.hosts
def test_table_without_a_package_is_reported(gpu_node: Host) -> None:
    table = "/opt/slipway/current/nodes/software.tsv"
    gpu_node.run(f"cp {table} /srv/table; sed -i /^libnvidia-container-tools/d {table}")
    done = step(gpu_node, STEP, check=False)
    gpu_node.run(f"mv /srv/table {table}")
    assert done.returncode == 1
    assert "slipway: software.tsv has no line of libnvidia-container-tools" in done.stdout


@pytest.mark.hosts
def test_node_without_gpus_needs_none(gpu_node: Host) -> None:
    gpu_node.run("mv /dev/nvidia0 /srv/nvidia0")
    done = step(gpu_node, STEP)
    gpu_node.run("mv /srv/nvidia0 /dev/nvidia0")
    assert done.stdout == "slipway: no GPU on this node: containers need no nvidia-container-cli\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not an archive", "it is not a Debian package"),
        (b"!<arch>\n", "it has no member data.tar"),
        (b"!<arch>\n" + b"data.tar.xz/".ljust(48) + b"4".ljust(10) + b"`\nhalf", "could not be opened successfully"),
    ],
)
def test_file_that_is_not_a_package_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.deb").write_bytes(content)
    command = [sys.executable, str(UNPACK), str(tmp_path / "out"), str(tmp_path / "x.deb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert said in done.stderr


def test_both_packages_are_pinned_to_one_version() -> None:
    said = bash(
        "declare -A pin; for name in libnvidia-container1 libnvidia-container-tools; do software::find pin $name; "
        'printf \'{"version": "%s", "url": "%s"}\\n\' "${pin[version]}" "${pin[url]}"; done'
    ).stdout
    pins = [json.loads(line) for line in said.splitlines()]
    assert len({pin["version"] for pin in pins}) == 1
    assert all(pin["url"].endswith("_amd64.deb") and pin["version"] in pin["url"] for pin in pins)
