"""What nodes and containers get of the shared NCCL: the environment, the links, the hook, and the nodes that are up."""

from __future__ import annotations

import pytest

from . import nccl_host
from .host import Host
from .nccl_host import GUIDE, setting

pytestmark = pytest.mark.hosts
STEP = "/opt/slipway/current/compute/steps/30-nccl.sh"
APPLY = "bash /fsx/nccl/apply-nccl-to-running-nodes.sh"
RELEASE = "/fsx/nccl/versions/2.28.7-1_1.17.2"
HOOK = "/opt/slipway/current/compute/enroot/60-slipway-nccl.sh"  # the step's copy is the same
CLEAN = 'env -i PATH="$PATH" BASH_ENV="${BASH_ENV:-}"'  # of what a user has; bash still writes its trace


@pytest.fixture(scope="module")
def node(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A node, and the guide's build on the shared file system."""
    nccl_host.prepare(host, tmp_path_factory.mktemp("nccl"))
    host.run(GUIDE)
    host.run(
        "rm /etc/profile.d/nccl-shared.sh; printf '#!/bin/bash\\n' >/usr/local/bin/enroot; chmod 755 /usr/local/bin/enroot"
    )
    return host


def test_a_node_finds_the_shared_nccl_when_it_starts(node: Host) -> None:
    out = node.run(STEP).stdout
    assert "NCCL on the shared file system: v2.28.7-1" in out
    assert "EFA: Version of efa-installer: stand-in" in out
    assert "NCCL plugin of the image: /opt/amazon/ofi-nccl/lib/libnccl-net.so" in out
    assert "wrote" not in node.run(STEP).stdout


def test_the_guides_verification_as_written(node: Host) -> None:
    node.run(STEP)
    version = node.run("bash -c 'source /etc/profile.d/nccl-shared.sh && echo $NCCL_VERSION'").stdout
    assert version == "v2.28.7-1\n"
    names = node.run("bash -c 'source /etc/profile.d/nccl-shared.sh && env | grep NCCL'").stdout
    assert f"NCCL_HOME={RELEASE}\n" in names
    assert "NCCL_SOCKET_IFNAME=^docker,lo,veth\n" in names
    assert "NCCL_PROTO" not in names
    assert node.run("ls /opt/nccl-tests/build/").stdout == "all_reduce_perf\nalltoall_perf\n"
    out = node.run(
        "NCCL_DEBUG=VERSION /opt/nccl-tests/build/all_reduce_perf -b 8 -e 128M -f 2 -g 1", check=False
    ).stdout
    assert out.startswith("NCCL version 2.28.7+standin\n")


def test_legacy_environment_is_the_guides_list(node: Host) -> None:
    setting(node, NCCL_ENVIRONMENT="legacy")
    show = "set -eu; . /etc/profile.d/nccl-shared.sh; . /etc/profile.d/nccl-shared.sh; env"
    lines = node.run(f"{STEP} >/dev/null; {CLEAN} bash -c '{show}'").stdout.splitlines()
    setting(node)
    assert {
        f"LD_LIBRARY_PATH=/usr/local/lib:{RELEASE}/plugin/lib:{RELEASE}/lib",
        f"LIBRARY_PATH=/usr/local/lib:{RELEASE}/lib",
        "FI_PROVIDER=efa",
        "FI_EFA_USE_DEVICE_RDMA=1",
        "NCCL_PROTO=simple",
        "NCCL_DEBUG=INFO",
        "NCCL_ALGO=Ring",
        "NCCL_MIN_NRINGS=8",
    } <= set(lines)
    assert "NCCL_SOCKET_IFNAME" not in " ".join(lines)


def test_the_users_own_values_stay(node: Host) -> None:
    node.run(STEP)
    own = "LD_LIBRARY_PATH=/mine:/fsx/nccl/versions/other/lib NCCL_SOCKET_IFNAME=eth0"
    out = node.run(
        f"{CLEAN} {own} bash -c '. /etc/profile.d/nccl-shared.sh; echo $LD_LIBRARY_PATH $NCCL_SOCKET_IFNAME'"
    ).stdout
    assert out == f"{RELEASE}/plugin/lib:{RELEASE}/lib:/mine eth0\n"  # another version's directory would win, or mix


def test_with_efa_a_missing_plugin_is_no_way_to_sockets(node: Host) -> None:
    show = '. /etc/profile.d/nccl-shared.sh; echo "${NCCL_NET:-any}"'
    efa = "mount -t tmpfs none /sys/class; mkdir -p /sys/class/infiniband/rdmap79s0"
    out = node.run(f"{STEP} >/dev/null; {CLEAN} bash -c '{show}'; unshare --mount bash -c '{efa}; {show}'").stdout
    assert out == "any\nAWS Libfabric\n"


def test_without_a_shared_nccl_the_image_is_left_alone(node: Host) -> None:
    node.run("mv /fsx/nccl/setup-nccl-env.sh /srv/; rm -rf /etc/profile.d/nccl-shared.sh /etc/enroot")
    out = node.run(STEP).stdout
    there = node.run("ls /etc/profile.d/nccl-shared.sh /etc/enroot", check=False).stdout
    node.run("mv /srv/setup-nccl-env.sh /fsx/nccl/")
    assert "jobs use the NCCL of their image" in out
    assert there.count("No such file") == 2


def test_node_that_started_before_the_build_was_done_finds_it_afterwards(node: Host) -> None:
    node.run("mv /fsx/nccl/setup-nccl-env.sh /fsx/nccl/current /srv/; rm -rf /etc/profile.d/nccl-shared.sh /etc/enroot")
    setting(node, NCCL_SOURCE="shared")
    show = ". /etc/profile.d/nccl-shared.sh; echo ${NCCL_HOME:-none} ${NCCL_VERSION:-none} $NCCL_SOCKET_IFNAME"
    before = node.run(f"{STEP} >/dev/null; env -i sh -euc '{show}'").stdout
    # The environment is there for a moment before its version, while an NCCL is being put in place or taken away.
    half = node.run(f"mv /srv/setup-nccl-env.sh /fsx/nccl/; env -i sh -euc '{show}'").stdout
    after = node.run(f"mv /srv/current /fsx/nccl/; env -i sh -euc '{show}'").stdout
    setting(node)
    assert before == half == "none none ^docker,lo,veth\n"
    assert after == f"{RELEASE} v2.28.7-1 ^docker,lo,veth\n"
    node.run("test -x /etc/enroot/hooks.d/60-slipway-nccl.sh")


def test_a_directory_of_the_image_is_never_replaced(node: Host) -> None:
    node.run("rm -rf /opt/nccl-tests; mkdir -p /opt/nccl-tests/build; touch /opt/nccl-tests/build/mine")
    assert "/opt/nccl-tests/build is the image's own: kept" in node.run(STEP).stdout
    assert node.run("ls /opt/nccl-tests/build").stdout == "mine\n"
    node.run(f"rm -rf /opt/nccl-tests; {STEP}")
    assert node.run("readlink /opt/nccl-tests/build").stdout == "/fsx/nccl/nccl-tests\n"


def test_bad_environment_is_refused(node: Host) -> None:
    setting(node, NCCL_ENVIRONMENT="$(id)")
    done = node.run(STEP, check=False)
    setting(node)
    assert done.returncode == 1
    assert "neither recommended nor legacy" in done.stdout


def test_node_without_enroot_gets_no_files_of_it(node: Host) -> None:
    node.run(f"rm -rf /etc/enroot; mv /usr/local/bin/enroot /srv/; {STEP}; mv /srv/enroot /usr/local/bin/")
    assert node.run("test -e /etc/enroot", check=False).returncode == 1
    node.run(STEP)


# ---------------------------------------------------------------------------------------------------------- containers


def start(node: Host, environment: str, *, libc: str = "GLIBC_2.2 GLIBC_2.99", job: str = "") -> tuple[str, str]:
    """Run the hook as enroot does; returns the container's environment and what was said."""
    needed = node.run(f"sed -n 's/^glibc=/GLIBC_/p' {RELEASE}/.complete").stdout.strip()
    node.put("/srv/rootfs/lib/x86_64-linux-gnu/libc.so.6", libc.replace("GLIBC_2.99", needed).encode())
    node.put("/srv/environ", environment.encode())
    # As in a job from a login shell.
    host = f"{RELEASE}/plugin/lib:{RELEASE}/lib:/host"
    enroot = f"ENROOT_ROOTFS=/srv/rootfs ENROOT_ENVIRON=/srv/environ LD_LIBRARY_PATH={host}"
    said = node.run(f"{STEP} >/dev/null; {CLEAN} {enroot} {job} {HOOK}")
    return node.run("cat /srv/environ").stdout, said.stdout


def test_containers_use_the_shared_nccl(node: Host) -> None:
    found, said = start(node, "LD_LIBRARY_PATH=/image/lib\nNCCL_VERSION=2.19.3\nNCCL_SOCKET_IFNAME=ib0\n")
    assert said == ""
    assert found.endswith(
        f"NCCL_HOME={RELEASE}\nNCCL_VERSION=v2.28.7-1\n"
        f"LD_LIBRARY_PATH={RELEASE}/plugin/lib:{RELEASE}/lib:/image/lib\nLIBRARY_PATH={RELEASE}/lib\n"
    )
    node.run(f"cmp {HOOK} /etc/enroot/hooks.d/60-slipway-nccl.sh && test -x /etc/enroot/hooks.d/60-slipway-nccl.sh")
    assert node.run("cat /etc/enroot/mounts.d/60-slipway-nccl.fstab").stdout.splitlines()[1:] == [
        "/fsx/nccl /fsx/nccl none x-create=dir,bind,ro,nosuid,nodev,nofail,silent",
        "/opt/amazon/efa /opt/amazon/efa none x-create=dir,bind,ro,nosuid,nodev,nofail,silent",
    ]


def test_containers_get_the_settings_that_they_do_not_have(node: Host) -> None:
    found, _ = start(node, "PATH=/bin\n", job="NCCL_SOCKET_IFNAME=of-the-job")
    assert "NCCL_SOCKET_IFNAME=^docker,lo,veth\n" in found
    assert "/host" not in found


@pytest.mark.parametrize("own", ["job", "image"])
def test_a_container_keeps_its_own_nccl_when_asked_to(node: Host, own: str) -> None:
    text = "PATH=/bin\n" + ("SLIPWAY_NCCL=image\n" if own == "image" else "")
    job = "SLIPWAY_NCCL=image" if own == "job" else ""
    # pyxis would keep the job's value otherwise.
    assert start(node, text, job=job) == (f"{text}LD_LIBRARY_PATH=/host\nNCCL_HOME=\n", "")
    text += "LD_LIBRARY_PATH=/image/lib\n"
    assert start(node, text, job=job) == (f"{text}NCCL_HOME=\n", "")


def test_an_image_with_an_older_c_library_keeps_its_own_nccl(node: Host) -> None:
    found, said = start(node, "PATH=/bin\n", libc="GLIBC_2.2 only")
    assert found == "PATH=/bin\nLD_LIBRARY_PATH=/host\nNCCL_HOME=\n"
    assert "slipway: this image is older than glibc 2." in said


def test_a_hook_that_fails_lets_the_container_start(node: Host) -> None:
    node.run(STEP)
    out = node.run(f"{CLEAN} ENROOT_ROOTFS=/srv/rootfs ENROOT_ENVIRON=/srv/absent {HOOK}").stdout
    assert "slipway: the shared NCCL was not added to this container" in out
    # An NCCL that was taken away since.
    node.run("mv /fsx/nccl/current /srv/; echo PATH=/bin >/srv/environ")
    node.run(f"{CLEAN} ENROOT_ROOTFS=/srv/rootfs ENROOT_ENVIRON=/srv/environ {HOOK}; mv /srv/current /fsx/nccl/")
    assert node.run("cat /srv/environ").stdout == "PATH=/bin\n"


# ----------------------------------------------------------------------------------------------------- running nodes

SINFO = rb"""#!/bin/bash
[[ $* != *--nodes=absent* ]] || exit 1
cat <<END
n-1 idle
n-1 idle
n-2 allocated
n-3 idle~
n-4 down*
n-5 mixed#
n-6 drained
n-7 down
n-8 idle%
n-9 mixed
END
"""
# n-1 lets us in and n-9 runs jobs alone; the others neither.
SSH = b'#!/bin/bash\necho "$(id -un) $*" >>/srv/ssh.calls\n[[ $* == *n-1* || $* == *n-6* ]] || { echo "ssh: no way" >&2; exit 255; }\n'
SRUN = b"#!/bin/bash\n[[ $* == *n-9* ]] || { echo 'srun: error: Unable to allocate resources' >&2; exit 1; }\n"


@pytest.fixture
def cluster(node: Host) -> Host:
    node.put("/usr/local/bin/sinfo", SINFO, 0o755)
    node.put("/usr/local/bin/ssh", SSH, 0o755)
    node.put("/usr/local/bin/srun", SRUN, 0o755)
    node.run("rm -f /srv/ssh.calls; touch /srv/ssh.calls; chmod 666 /srv/ssh.calls; chmod 755 /srv")
    return node


def test_every_node_gets_its_line(cluster: Host) -> None:
    done = cluster.run(APPLY, check=False)
    assert done.returncode == 1
    lines = [line for line in done.stdout.splitlines() if not line.startswith("slipway")]
    assert lines == [
        "ok      n-1: by ssh",
        "FAILED  n-2: allocated; srun: error: Unable to allocate resources",
        "off     n-3: powered down; it finds NCCL when it starts",
        "off     n-4: down*; it finds NCCL when its set-up runs again",
        "later   n-5: it is starting; run this again when it is up",
        "ok      n-6: by ssh",
        "off     n-7: down; it finds NCCL when its set-up runs again",
        "off     n-8: powered down; it finds NCCL when it starts",
        "ok      n-9: by a job",
    ]
    assert "not every node uses the NCCL in /fsx/nccl" in done.stdout


def test_root_goes_as_the_clusters_user_where_there_is_one(cluster: Host) -> None:
    cluster.run(
        "useradd --create-home someone; mkdir -p /etc/parallelcluster; echo cfn_cluster_user=someone >/etc/parallelcluster/cfnconfig"
    )
    cluster.run(APPLY, check=False)
    calls = cluster.run("cat /srv/ssh.calls").stdout.splitlines()
    cluster.run("rm /etc/parallelcluster/cfnconfig")
    assert {call.split()[0] for call in calls} == {"someone"}
    assert all(call.endswith(f" sudo -n {STEP}") for call in calls)
    cluster.run(f"{APPLY} || true")
    assert cluster.run("tail -n 1 /srv/ssh.calls").stdout.startswith("root ")


def test_more_nodes_than_go_at_once_without_ssh(cluster: Host) -> None:
    cluster.put("/usr/local/bin/sinfo", b"#!/bin/bash\nprintf 'm-%s idle\\n' $(seq 20)\n", 0o755)
    cluster.put("/usr/local/bin/srun", b"#!/bin/bash\nexit 0\n", 0o755)
    cluster.run("rm /usr/local/bin/ssh; [ ! -e /usr/bin/ssh ] || mv /usr/bin/ssh /srv/ssh.kept")
    out = cluster.run(APPLY).stdout
    cluster.run("[ ! -e /srv/ssh.kept ] || mv /srv/ssh.kept /usr/bin/ssh")
    assert out.count("by a job") == 20


def test_no_node_and_no_nccl_are_said(cluster: Host) -> None:
    assert "Slurm knows no such node" in cluster.run(f"{APPLY} absent", check=False).stdout
    cluster.run("mv /fsx/nccl/setup-nccl-env.sh /srv/")
    done = cluster.run(APPLY, check=False)
    cluster.run("mv /srv/setup-nccl-env.sh /fsx/nccl/")
    assert "there is no NCCL in /fsx/nccl" in done.stdout
