"""The scripts that users run: container images, the shared NCCL, and telling running nodes of it."""

from __future__ import annotations

import hashlib

import pytest

from .conftest import pack
from .host import Host

pytestmark = pytest.mark.hosts
HEAD = "/srv/fetch-bundle.sh head s3://assets/bundle.gz $(cat /srv/sha256)"
DOWNLOAD = "/fsx/scripts/download-ngc-containers.sh"
IMAGE = "nvcr.io_nvidia_pytorch-24.01-py3.sqsh"
# Behaves as enroot does: no overwriting, no word when the registry refuses the key, a truncated file after a kill.
ENROOT = rb"""#!/bin/bash
set -eu
[ "$1 $2" = 'import --output' ] || { echo "enroot: $*" >&2; exit 2; }
echo "$*" >>/srv/enroot.calls
[ ! -e "$3" ] || { echo '[ERROR] File already exists' >&2; exit 1; }
[[ $4 == 'docker://nvcr.io#'* ]] || { echo '[ERROR] Invalid image reference' >&2; exit 1; }
if [[ $4 == *private* ]]; then
  grep -qx 'machine nvcr.io login $oauthtoken password $NGC_API_KEY' "${ENROOT_CONFIG_PATH:-/nonexistent}/.credentials" || exit 1
  [ "${NGC_API_KEY:-}" = key-1 ] || exit 1
fi
printf 'half' >"$3"
[ ! -e /srv/enroot.slow ] || { echo $$ >/srv/enroot.pid; exec sleep 30; }
printf ' and the rest of %s' "$4" >>"$3"
"""


@pytest.fixture(scope="module")
def head(node: Host) -> Host:
    node.run(f"{HEAD}; systemctl disable --now slipway-containers slipway-slurm-targets.timer")
    node.put("/usr/local/bin/enroot", ENROOT, 0o755)
    return node


@pytest.fixture(autouse=True)
def _clean(head: Host) -> None:
    head.run(
        "rm -rf /fsx/containers/*.sqsh /fsx/containers/.*.partial.* /fsx/logs/container-downloads/* /srv/enroot.* /etc/slipway/site.env"
    )
    head.run("cp /opt/slipway/current/containers.txt /fsx/config/containers.txt")


def test_image_is_imported_once_under_the_name_of_the_guide(head: Host) -> None:
    head.run(f"{DOWNLOAD} /fsx/config/containers.txt; {DOWNLOAD}")
    assert head.run(f"cat /fsx/containers/{IMAGE}").stdout.startswith(
        "half and the rest of docker://nvcr.io#nvidia/pytorch"
    )
    assert len(head.run("cat /srv/enroot.calls").stdout.splitlines()) == 1
    listing = head.run("/fsx/containers/list-containers.sh").stdout
    assert f"/fsx/containers/{IMAGE}" in listing
    assert "1 images in /fsx/containers" in listing
    assert f"{IMAGE}\tready\t" in head.run("cat /fsx/logs/container-downloads/status.tsv").stdout
    assert "nvcr.io" in head.run("cat /fsx/logs/ngc-download.log").stdout


def test_slash_form_of_the_guide_works_and_bad_lines_are_left_out(head: Host) -> None:
    head.put("/srv/list", b"# JAX\ndocker://nvcr.io/nvidia/jax:24.01-py3\r\n$(touch /srv/canary)\ndocker://x;id\n")
    out = head.run(f"{DOWNLOAD} /srv/list; cat /fsx/logs/ngc-download.log").stdout
    assert head.run("test -s /fsx/containers/nvcr.io_nvidia_jax-24.01-py3.sqsh").returncode == 0
    assert "/srv/list:3: " in out
    assert "/srv/list:4: " in out
    assert head.run("test -e /srv/canary", check=False).returncode == 1


def test_refused_key_is_said_and_the_other_images_come_all_the_same(head: Host) -> None:
    head.put("/srv/list", b"docker://nvcr.io#nvidia/private:1\ndocker://nvcr.io#nvidia/open:1\n")
    done = head.run(f"sleep() {{ :; }}; export -f sleep; {DOWNLOAD} /srv/list", check=False)
    assert done.returncode == 1
    listing = head.run("/fsx/containers/list-containers.sh").stdout
    assert "failed" in listing
    assert "is the NGC key right" in listing
    assert head.run("ls /fsx/containers | grep sqsh").stdout == "nvcr.io_nvidia_open-1.sqsh\n"


def test_key_comes_from_the_secret_and_stays_out_of_files_and_arguments(head: Host) -> None:
    head.put("/srv/secret", b"key-1\n")
    head.put("/srv/list", b"docker://nvcr.io#nvidia/private:1\n")
    head.run(
        f"echo NGC_SECRET_ARN=arn:aws:secretsmanager:x >/etc/slipway/site.env; {HEAD}; systemctl disable --now slipway-containers"
    )
    head.run(f"{DOWNLOAD} /srv/list")
    assert head.run("test -s /fsx/containers/nvcr.io_nvidia_private-1.sqsh").returncode == 0
    assert "key-1" not in head.run("cat /srv/enroot.calls; cat /fsx/logs/*.log /fsx/logs/container-downloads/*").stdout
    head.run(
        f"rm /etc/slipway/site.env; {HEAD}; systemctl disable --now slipway-containers slipway-slurm-targets.timer"
    )


def test_killed_import_leaves_no_image_and_the_next_run_makes_it(head: Host) -> None:
    head.run(f"touch /srv/enroot.slow; timeout --signal=KILL 2 {DOWNLOAD}", check=False)
    head.run("kill $(cat /srv/enroot.pid); rm /srv/enroot.slow")
    assert head.run("ls /fsx/containers | grep -c sqsh", check=False).stdout == "0\n"
    head.run(DOWNLOAD)
    assert "and the rest" in head.run(f"cat /fsx/containers/{IMAGE}").stdout
    assert head.run("ls -d /fsx/containers/.*.partial.*", check=False).returncode == 2


def test_user_without_root_can_import(head: Host) -> None:
    head.run("chmod 755 /srv; touch /srv/enroot.calls; chmod 666 /srv/enroot.calls")
    out = head.run(f"setpriv --reuid=nobody --regid=nogroup --clear-groups {DOWNLOAD}").stdout
    assert "1 of 1 images are there" in out
    assert head.run(f"stat -c %U /fsx/containers/{IMAGE}").stdout == "nobody\n"


# --------------------------------------------------------------------------------------------------------- shared NCCL

MAKEFILE = b"""
.PHONY: src.build src.install all install
src.build:
\tmkdir -p build/lib && gcc -shared -o build/lib/libnccl.so -x c /dev/null
src.install: src.build
\tmkdir -p $(PREFIX)/lib && cp build/lib/libnccl.so $(PREFIX)/lib/
"""
# As a configured plugin source does, in small: remembers its options, builds a library, installs below the prefix.
CONFIGURE = rb"""#!/bin/bash
set -eu
printf '%s\n' "$*" >config.log
prefix=$(printf '%s\n' "$@" | sed -n 's/^--prefix=//p')
printf 'all:\n\tgcc -shared -o libnccl-net.so -x c /dev/null\ninstall: all\n\tmkdir -p %s/lib/x86_64-linux-gnu && cp libnccl-net.so %s/lib/x86_64-linux-gnu/\n' "$prefix" "$prefix" >Makefile
"""


TESTS_MAKEFILE = b"""
all:
\tmkdir -p build && printf '#!/bin/bash\\n' >build/all_reduce_perf && chmod 755 build/all_reduce_perf
"""


def sources(head: Host) -> None:
    nccl = pack({"nccl-2.28.7-1/Makefile": (MAKEFILE, 0o644)})
    plugin = pack({"p/autogen.sh": (b"#!/bin/bash\n", 0o755), "p/configure": (CONFIGURE, 0o755)})
    tests = pack({"t/Makefile": (TESTS_MAKEFILE, 0o644)})
    sums = head.run("cat /srv/s3/mirror/SHA256SUMS").stdout
    for name, content in (
        ("nccl-2.28.7-1.tar.gz", nccl),
        ("aws-ofi-nccl-1.17.2.tar.gz", plugin),
        ("nccl-tests-2.17.6.tar.gz", tests),
    ):
        head.put(f"/srv/s3/mirror/{name}", content)
        sums += f"{hashlib.sha256(content).hexdigest()}  {name}\n"
    head.put("/srv/s3/mirror/SHA256SUMS", sums.encode())
    head.put("/usr/local/cuda/bin/nvcc", b"#!/bin/bash\necho sm_90\n", 0o755)
    head.run(
        "mkdir -p /opt/amazon/efa; for t in autoreconf libtoolize; do command -v $t || ln -sf /bin/true /usr/local/bin/$t; done"
    )


def test_shared_nccl_is_built_checked_and_found_by_a_node(head: Host) -> None:
    sources(head)
    install = "bash /fsx/nccl/install-nccl-shared.sh v2.28.7-1 v1.17.2-aws /fsx"
    out = head.run(install).stdout
    assert "nccl 2.28.7-1 from mirror" in out
    assert head.run("cat /fsx/nccl/.nccl_version").stdout == "v2.28.7-1\n"
    assert head.run("readlink /fsx/nccl/current").stdout == "versions/2.28.7-1_1.17.2\n"
    head.run("test -x /fsx/nccl/current/nccl-tests/all_reduce_perf")
    head.run("/opt/slipway/current/compute/steps/30-nccl.sh")
    paths = head.run("source /etc/profile.d/nccl-shared.sh; echo $NCCL_VERSION $LD_LIBRARY_PATH").stdout
    assert (
        paths
        == "v2.28.7-1 /fsx/nccl/current/plugin/lib/x86_64-linux-gnu:/fsx/nccl/current/plugin/lib:/fsx/nccl/current/lib\n"
    )
    # Again: only checked, not built.
    assert "building" not in head.run(install).stdout


def test_unpinned_version_is_not_built(head: Host) -> None:
    sources(head)
    head.run(f"echo SOFTWARE_MIRROR= >/etc/slipway/site.env; {HEAD} || true")
    done = head.run(
        "sed -i '/^SOFTWARE_MIRROR=/d' /etc/slipway/node.env; bash /fsx/nccl/install-nccl-shared.sh v9.9.9-1",
        check=False,
    )
    head.run(
        f"rm /etc/slipway/site.env; {HEAD}; systemctl disable --now slipway-containers slipway-slurm-targets.timer"
    )
    assert done.returncode == 1
    assert "software.tsv does not know nccl 9.9.9-1" in done.stdout
    assert "--pin" in done.stdout


@pytest.mark.parametrize("version", ["latest", "v2.28.7", "$(id)", "../x"])
def test_bad_version_is_refused(head: Host, version: str) -> None:
    done = head.run(f"bash /fsx/nccl/install-nccl-shared.sh '{version}'", check=False)
    assert done.returncode == 1
    assert "not as v2.28.7-1" in done.stdout


def test_running_nodes_are_told_and_the_one_that_fails_is_named(head: Host) -> None:
    head.run("touch /fsx/nccl/setup-nccl-env.sh")
    head.put("/usr/local/bin/sinfo", b"#!/bin/bash\nprintf 'n-1 idle\\nn-2 mixed\\nn-3 idle~\\nn-4 down*\\n'\n", 0o755)
    head.put("/usr/local/bin/ssh", b'#!/bin/bash\n[[ $* == *n-1* ]] || exit 255\necho "$*" >>/srv/ssh.calls\n', 0o755)
    head.put(
        "/usr/local/bin/srun", b"#!/bin/bash\necho 'srun: error: Unable to allocate resources' >&2; exit 1\n", 0o755
    )
    done = head.run("bash /fsx/nccl/apply-nccl-to-running-nodes.sh", check=False)
    assert done.returncode == 1
    assert "ok      n-1" in done.stdout
    assert "FAILED  n-2: srun: error: Unable to allocate resources" in done.stdout
    assert "n-3" not in done.stdout
    assert "n-4" not in done.stdout
    assert "/opt/slipway/current/compute/steps/30-nccl.sh" in head.run("cat /srv/ssh.calls").stdout
