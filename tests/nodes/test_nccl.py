"""install-nccl-shared.sh: real builds of stand-in sources, put in use by one rename; what fails changes nothing."""

from __future__ import annotations

import json

import pytest

from . import nccl_host
from .host import Host
from .nccl_host import GUIDE, INSTALL, LOG, STATE, VERSIONS, mirror, setting, variant

pytestmark = pytest.mark.hosts
LISTING = "cd /fsx/nccl/versions && find . -printf '%p %y %m\\n' | sort"
RELEASE = "/fsx/nccl/versions/2.28.7-1_1.17.2"
LEFT = "ls -d /var/tmp/slipway-nccl.* /scratch/slipway-nccl.* /fsx/nccl/versions/.new.* 2>/dev/null"


@pytest.fixture(scope="module")
def head(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Host:
    nccl_host.prepare(host, tmp_path_factory.mktemp("nccl"))
    return host


@pytest.fixture
def fresh(head: Host) -> Host:
    nccl_host.reset(head)
    return head


@pytest.fixture(scope="module")
def built(head: Host) -> Host:
    """The guide's command was run once."""
    nccl_host.reset(head)
    head.put("/srv/said", head.run(GUIDE).stdout.encode())
    head.run(f"{LISTING} >/srv/listing")
    return head


def state(host: Host) -> dict[str, str]:
    found: dict[str, str] = json.loads(host.run(f"cat {STATE}").stdout)
    return found


def test_the_guides_command_builds_and_puts_in_use(built: Host) -> None:
    said = built.run("cat /srv/said").stdout
    assert "nccl 2.28.7-1 from mirror" in said
    assert f"loaded: NCCL 2.28.7, plugin {RELEASE}/plugin/lib/libnccl-net-ofi.so (interface v10)" in said
    assert built.run("readlink /fsx/nccl/current; cat /fsx/nccl/.nccl_version").stdout == (
        "versions/2.28.7-1_1.17.2\nv2.28.7-1\n"
    )
    assert state(built)["state"] == "done"
    assert built.run(LEFT, check=False).stdout == ""


def test_only_the_gpus_of_the_queues_get_code(built: Host) -> None:
    assert (
        "device code for sm_90\0"
        in built.run(f"cat {RELEASE}/lib/libnccl.so.2.28.7 | grep -a -o 'device code for [^g]*'").stdout
    )


def test_the_tests_find_their_nccl_and_plugin_whatever_the_environment_says(built: Host) -> None:
    header = built.run(f"readelf -d {RELEASE}/nccl-tests/all_reduce_perf | grep PATH").stdout
    assert "(RPATH)" in header  # RUNPATH would come after LD_LIBRARY_PATH, and would not hold for NCCL's own loading
    assert f"[{RELEASE}/lib:{RELEASE}/plugin/lib:/opt/amazon/openmpi/lib:" in header
    out = built.run(f"LD_LIBRARY_PATH=/nowhere NCCL_DEBUG=VERSION ldd {RELEASE}/nccl-tests/alltoall_perf").stdout
    assert f"libnccl.so.2 => {RELEASE}/lib/libnccl.so.2" in out


def test_the_plugin_is_aws_own_and_knows_its_final_place(built: Host) -> None:
    words = built.run(
        f"grep -a -o -e 'aws-ofi-nccl 1.17.2 [a-z0-9/._-]*' -e p5.4xlarge {RELEASE}/plugin/lib/libnccl-net.so"
    ).stdout
    assert f"aws-ofi-nccl 1.17.2 {RELEASE}/plugin/share/aws-ofi-nccl/xml\n" in words
    assert "p5.4xlarge\n" in words
    built.run(f"test -s {RELEASE}/plugin/share/aws-ofi-nccl/xml/p4d-24xl-topo.xml")


def test_what_nothing_loads_is_not_copied(built: Host) -> None:
    assert built.run(
        f"cd {RELEASE} && ls lib && cd plugin/lib && find . -type f && find . -type l -printf '%f %l\\n' | sort"
    ).stdout == (
        "libnccl.so\nlibnccl.so.2\nlibnccl.so.2.28.7\n./libnccl-net-ofi.so\n"
        "libnccl-net.so libnccl-net-ofi.so\nlibnccl-ofi-tuner.so libnccl-net-ofi.so\n"
        "libnccl-tuner-ofi.so libnccl-net-ofi.so\n"
    )


def test_a_version_that_is_whole_is_not_built_again(built: Host) -> None:
    before = built.run(f"find {RELEASE} -printf '%p %T@\\n' | sort").stdout
    out = built.run(GUIDE).stdout
    assert "building" not in out
    assert built.run(f"find {RELEASE} -printf '%p %T@\\n' | sort").stdout == before


def test_list_says_what_there_is_to_everyone(built: Host) -> None:
    lines = built.run(f"setpriv --reuid=nobody --regid=nogroup --clear-groups {INSTALL} --list").stdout.splitlines()
    in_use = next(line for line in lines if line.startswith("*"))
    assert in_use.split()[:7] == ["*", "2.28.7-1_1.17.2", "2.28.7-1", "1.17.2", "2.17.6", "90", "13.0"]
    assert "sudo rm -r /fsx/nccl/versions/VERSION" in lines[-1]


def test_other_gpus_get_a_version_of_their_own_beside_it(built: Host) -> None:
    setting(built, NCCL_GPU_ARCHS="90 100")
    built.put("/usr/local/bin/ccache", b'#!/bin/bash\necho "$CCACHE_BASEDIR $*" >>/srv/ccache\nexec "$@"\n', 0o755)
    inode = built.run(f"stat -c %i {RELEASE}/lib/libnccl.so.2.28.7").stdout
    built.run(GUIDE)
    built.run("cp /opt/slipway/current/node.env /etc/slipway/; rm /usr/local/bin/ccache")
    assert built.run("readlink /fsx/nccl/current").stdout == "versions/2.28.7-1_1.17.2.2\n"
    assert built.run(f"stat -c %i {RELEASE}/lib/libnccl.so.2.28.7").stdout == inode
    assert "sm_90 sm_100" in built.run("grep -a -o 'device code for [^g]*' /fsx/nccl/current/lib/libnccl.so").stdout
    # Without a base directory the random name of the build directory would be part of what ccache looks up.
    base, compiler = built.run("head -1 /srv/ccache").stdout.split()[:2]
    assert (base.partition("/slipway-nccl.")[1], compiler) == ("/slipway-nccl.", "/usr/local/cuda/bin/nvcc")
    # Back to the first one, and forward again.
    assert built.run(f"{INSTALL} --rollback; readlink /fsx/nccl/current").stdout.endswith("versions/2.28.7-1_1.17.2\n")
    assert state(built)["detail"] == f"NCCL 2.28.7-1 with the plugin 1.17.2 in {RELEASE}"
    assert built.run(f"{INSTALL} --rollback; readlink /fsx/nccl/current").stdout.endswith("1.17.2.2\n")
    built.run(f"{INSTALL} --rollback")


def test_what_runs_keeps_its_version_and_a_job_has_one(built: Host) -> None:
    mirror(built, {**VERSIONS, "nccl": "2.27.7-1"})
    out = built.run(
        "source /etc/profile.d/nccl-shared.sh; first=$LD_LIBRARY_PATH; "
        f"{INSTALL} v2.27.7-1 v1.17.2 /fsx >/dev/null; echo $first; ls ${{first%%:*}} | head -1; "
        "source /etc/profile.d/nccl-shared.sh; echo $NCCL_VERSION; echo $LD_LIBRARY_PATH; echo $LIBRARY_PATH; "
        "export SLURM_JOB_ID=7; source /etc/profile.d/nccl-shared.sh; "
        f"{INSTALL} --rollback >/dev/null; "
        "bash -c 'source /etc/profile.d/nccl-shared.sh; echo step $NCCL_VERSION'; "
        "SLURM_JOB_ID=8 bash -c 'source /etc/profile.d/nccl-shared.sh; echo job $NCCL_VERSION $LD_LIBRARY_PATH'"
    ).stdout.splitlines()
    new = "/fsx/nccl/versions/2.27.7-1_1.17.2"
    assert out[0].startswith(f"{RELEASE}/plugin/lib:{RELEASE}/lib")  # no "current" in it
    assert out[1].startswith("libnccl-net")
    assert out[2:5] == ["v2.27.7-1", f"{new}/plugin/lib:{new}/lib", f"{new}/lib"]
    assert out[5] == "step v2.27.7-1"
    assert out[6] == f"job v2.28.7-1 {RELEASE}/plugin/lib:{RELEASE}/lib"


# ------------------------------------------------------------------------------------------------- what goes wrong

BROKEN = {
    "compiler": (
        "nccl",
        "src/init.cc",
        b"return ncclSuccess",
        b"return nonsense",
        "building NCCL 2.28.7-1 for sm_90",
        "read /var/log",
    ),
    "loading": (
        "aws-ofi-nccl",
        "src/plugin.cpp",
        b"p4d.24xlarge",
        b"other",
        "built without --enable-platform-aws",
        "read /var/log",
    ),
    "ghost": (
        "nccl-tests",
        "src/Makefile",
        b"-lm -lnccl",
        b"-lm -lnccl -L. -lghost $(shell $(NVCC) -shared -Wl,-soname,libghost.so -o libghost.so -x c /dev/null)",
        "libghost.so => not found",
        "the library it needs",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_sources_that_fail_change_nothing(built: Host, case: str) -> None:
    name, path, old, new, message, hint = BROKEN[case]
    mirror(built, VERSIONS, {name: variant(name, path, old, new)})
    built.run("rm -rf /var/cache/slipway")
    setting(built, NCCL_GPU_ARCHS="90 103")  # so that it is built
    before = built.run("ls -A /fsx/nccl/versions; readlink /fsx/nccl/current").stdout
    told = state(built)["detail"]
    done = built.run(GUIDE, check=False)
    after = built.run("ls -A /fsx/nccl/versions; readlink /fsx/nccl/current").stdout
    setting(built)
    assert done.returncode == 1
    assert message in done.stdout
    assert f"slipway-hint: {hint}" in done.stdout
    assert (after, built.run(LEFT, check=False).stdout) == (before, "")
    # Typed by hand: the NCCL in use is whole, and its state stays.
    assert (state(built)["state"], state(built)["detail"]) == ("done", told)


def test_nothing_to_go_back_to_is_said(fresh: Host) -> None:
    done = fresh.run(f"{INSTALL} --rollback", check=False)
    assert done.returncode == 1
    assert "there is no version to go back to from 'none'" in done.stdout


def test_a_compiler_that_hangs_is_ended_and_said(fresh: Host) -> None:
    # timeout(1) itself is what the build waits with: it answers 124.
    fresh.put(
        "/usr/local/bin/timeout",
        b'#!/bin/bash\ncase "$*" in *src.build*) exit 124 ;; esac\nexec /usr/bin/timeout "$@"\n',
        0o755,
    )
    done = fresh.run(GUIDE, check=False)
    fresh.run("rm /usr/local/bin/timeout")
    assert "it took more than 5400 s" in done.stdout
    # There is no NCCL in use that the state could be of: it repeats the reason, and the command.
    found = state(fresh)
    assert found["state"] == "failed"
    assert found["detail"].startswith("building NCCL 2.28.7-1 for sm_90 with ")
    assert found["detail"].endswith(" failed (exit 124)")
    assert found["hint"].endswith("; then: sudo bash /fsx/nccl/install-nccl-shared.sh v2.28.7-1 v1.17.2-aws /fsx")


@pytest.mark.parametrize("place", ["work", "shared"])
def test_a_full_disk_is_called_a_full_disk(fresh: Host, place: str) -> None:
    mount = {"work": "/scratch", "shared": "/small"}[place]
    fresh.run(f"mkdir -p {mount}; mount -t tmpfs -o size=96k small {mount}")
    done = fresh.run(GUIDE if place == "work" else f"{INSTALL} v2.28.7-1 v1.17.2 /small", check=False)
    left = fresh.run(f"find {mount} -name '*nccl*.so*' -o -name 'slipway-nccl.*'").stdout
    fresh.run(f"umount {mount}; rmdir {mount}")
    assert done.returncode == 1
    assert f"the disk is full: make room, see 'df -h {mount}" in done.stdout
    assert left == ""


def test_a_work_place_that_cannot_be_written_is_named(fresh: Host) -> None:
    fresh.run("mkdir -p /scratch; mount -t tmpfs -o ro none /scratch")
    done = fresh.run(GUIDE, check=False)
    fresh.run("umount /scratch; rmdir /scratch")
    assert done.returncode == 1
    assert "cannot write in /scratch" in done.stdout


def test_all_that_is_missing_is_said_at_once(head: Host) -> None:
    head.run(
        "mkdir /srv/away; mv /usr/bin/autoreconf /usr/include/hwloc.h /srv/away/; mv /opt/amazon /srv/away/; mv /usr/local/cuda /srv/away/"
    )
    apt = head.run(GUIDE, check=False).stdout
    head.put("/usr/local/bin/dnf", b"#!/bin/bash\n", 0o755)
    dnf = head.run(f"{INSTALL} --tests-only", check=False).stdout
    head.run(
        "rm /usr/local/bin/dnf; mv /srv/away/autoreconf /usr/bin/; mv /srv/away/hwloc.h /usr/include/; mv /srv/away/amazon /opt/; mv /srv/away/cuda /usr/local/; rmdir /srv/away"
    )
    assert (
        "not on this node: /usr/local/cuda/bin/nvcc (the CUDA toolkit, or set CUDA_HOME), /opt/amazon/openmpi (Open MPI of the "
        "EFA installer, or set MPI_HOME), /opt/amazon/efa (the EFA software), autoreconf, /usr/include/hwloc.h\n" in apt
    )
    assert "sudo apt-get install gcc g++ make autoconf automake libtool libhwloc-dev; CUDA" in apt
    assert "not on this node: /usr/local/cuda/bin/nvcc (the CUDA toolkit, or set CUDA_HOME), /opt/amazon/openmpi" in dnf
    assert "autoreconf" not in dnf  # only the plugin needs it
    assert "sudo dnf install gcc gcc-c++ make" in dnf


@pytest.mark.parametrize(
    ("archs", "message"),
    [
        ("90 104 117", "does not know sm_104 sm_117"),
        ("", "NCCL_GPU_ARCHS = '': no compute capabilities"),
        ("sm_90", "no compute capabilities such as '90 100'"),
    ],
)
def test_gpus_that_cannot_be_built_for(head: Host, archs: str, message: str) -> None:
    setting(head, NCCL_GPU_ARCHS=archs)
    done = head.run(GUIDE, check=False)
    setting(head)
    assert done.returncode == 1
    assert message in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("latest", "nccl version 'latest': not of the form v2.28.7-1"),
        ("v2.28.7", "not of the form v2.28.7-1"),
        ("'$(id)'", "not of the form v2.28.7-1"),
        ("v2.28.7-1 ../x", "aws-ofi-nccl version '../x': not of the form v1.17.2-aws"),
        ("v2.28.7-1 v1.17.2 relative", "'relative': not a directory"),
        ("v2.28.7-1 v1.17.2 /absent", "'/absent': not a directory"),
        ("--remove", "unknown option '--remove'"),
    ],
)
def test_bad_arguments_are_refused(head: Host, arguments: str, message: str) -> None:
    done = head.run(f"{INSTALL} {arguments}", check=False)
    assert done.returncode == 1
    assert message in done.stdout


def test_only_root_builds(head: Host) -> None:
    done = head.run(f"setpriv --reuid=nobody --regid=nogroup --clear-groups {INSTALL} v2.28.7-1", check=False)
    assert "this needs root\nslipway-hint: run: sudo bash /fsx/nccl/install-nccl-shared.sh v2.28.7-1" in done.stdout


def test_file_with_another_checksum_is_refused(fresh: Host) -> None:
    fresh.run("echo x >>/srv/s3/mirror/nccl-2.28.7-1.tar.gz")
    done = fresh.run(GUIDE, check=False)
    assert done.returncode == 1
    assert "do not use it" in done.stdout
    assert fresh.run("ls /fsx/nccl/versions; ls /fsx/nccl/current", check=False).returncode == 2


def test_failure_of_the_unit_is_a_fault_and_one_by_hand_leaves_the_state_of_before(fresh: Host) -> None:
    fresh.run("echo x >>/srv/s3/mirror/nccl-2.28.7-1.tar.gz")
    fresh.put(STATE, json.dumps({"name": "nccl", "state": "done", "detail": "of before"}).encode())
    fresh.run(GUIDE, check=False)
    assert (state(fresh)["state"], state(fresh)["detail"]) == ("done", "of before")
    fresh.run(f"SLIPWAY_AGAIN='sudo systemctl restart slipway-nccl' {GUIDE}", check=False)
    found = state(fresh)
    assert found["state"] == "failed"
    assert "has sha256" in found["detail"]
    assert found["hint"].endswith("; then: sudo systemctl restart slipway-nccl")


def test_archive_that_is_none_is_refused(fresh: Host) -> None:
    mirror(fresh, VERSIONS, {"nccl": b"no archive"})
    done = fresh.run(GUIDE, check=False)
    assert "unpacking /var/cache/slipway/" in done.stdout


def test_unpinned_version_is_not_built_until_it_is_pinned(fresh: Host) -> None:
    setting(fresh, SOFTWARE_MIRROR="")
    done = fresh.run(f"{INSTALL} v2.28.3-1 v1.17.2-aws /fsx", check=False)
    assert "software.tsv has no line of nccl 2.28.3-1" in done.stdout
    assert "--pin" in done.stdout
    # Upstream, as far as this machine can reach it.
    fresh.put(
        "/usr/local/bin/curl",
        b'#!/bin/bash\nshift $(($# - 3))\n[[ $3 == */v2.28.3-1.tar.gz || $3 == */v1.18.0.tar.gz ]] || exit 22\ncp /srv/s3/mirror/nccl-2.28.7-1.tar.gz "$1"\n',
        0o755,
    )
    said = fresh.run(f"{INSTALL} --pin v2.28.3-1 v1.17.2; {INSTALL} --pin v2.28.3-1 v1.18.0").stdout
    failed = fresh.run(f"sleep() {{ :; }}; export -f sleep; {INSTALL} --pin v2.30.1-1 v1.17.2", check=False)
    fresh.run("rm /usr/local/bin/curl")
    lines = [line.split("\t") for line in fresh.run("cat /etc/slipway/software.tsv").stdout.splitlines()]
    sha256 = fresh.run("sha256sum </srv/s3/mirror/nccl-2.28.7-1.tar.gz").stdout.split()[0]
    assert lines == [
        ["nccl", "2.28.3-1", sha256, "https://github.com/NVIDIA/nccl/archive/v2.28.3-1.tar.gz"],
        ["aws-ofi-nccl", "1.18.0", sha256, "https://github.com/aws/aws-ofi-nccl/archive/v1.18.0.tar.gz"],
    ]
    assert "compare it with a second source before you build" in said
    assert "aws-ofi-nccl 1.17.2 is pinned already" in said
    assert (failed.returncode, "is there such a tag" in failed.stdout) == (1, True)


# ------------------------------------------------------------------------------------------ killed, and two at once

BLOCK = b'#!/bin/bash\n[[ " $* " != *" -c "* ]] || { echo $$ >/srv/blocked; cat /srv/gate; }\nexec /usr/local/cuda/bin/nvcc.real "$@"\n'


def test_killed_midway_then_run_again_is_as_if_nothing_had_been(built: Host, fresh: Host) -> None:
    fresh.run("mkfifo /srv/gate; mv /usr/local/cuda/bin/nvcc /usr/local/cuda/bin/nvcc.real")
    fresh.put("/usr/local/cuda/bin/nvcc", BLOCK, 0o755)
    fresh.run(f"systemd-run --quiet --collect --unit=build {GUIDE}")
    fresh.run("for i in $(seq 800); do [ ! -s /srv/blocked ] || break; sleep 0.1; done; test -s /srv/blocked")
    assert state(fresh)["state"] == "running"
    fresh.run("systemctl kill --signal=KILL build; mv /usr/local/cuda/bin/nvcc.real /usr/local/cuda/bin/nvcc")
    assert fresh.run(LEFT, check=False).stdout != ""
    fresh.run(
        "mkdir -p /fsx/nccl/versions/2.28.7-1_1.17.2/lib /fsx/nccl/versions/.new.x"
    )  # as a kill while copying leaves it
    fresh.run(GUIDE)
    assert fresh.run(LISTING).stdout == fresh.run("cat /srv/listing").stdout
    assert fresh.run(LEFT, check=False).stdout == ""
    fresh.run("rm /srv/gate /srv/blocked")


def test_waiting_for_another_install_is_bounded(fresh: Host) -> None:
    fresh.put("/usr/local/bin/flock", b"#!/bin/bash\nexit 1\n", 0o755)
    done = fresh.run(GUIDE, check=False)
    fresh.run("rm /usr/local/bin/flock")
    assert done.returncode == 1
    assert "another install ran for more than 7200 s" in done.stdout


def test_two_at_once_build_once(fresh: Host) -> None:
    fresh.run(f"{GUIDE} >/srv/one 2>&1 & {GUIDE} >/srv/two 2>&1; wait $!", check=False)
    out = fresh.run("cat /srv/one /srv/two").stdout
    assert out.count("slipway: building NCCL") == 1, out
    assert f"another install runs (see {LOG}): waiting for it" in out
    assert out.count("is in use") == 2


# --------------------------------------------------------------------------------------------------- for acceptance


def test_tests_only_leaves_the_environment_alone(fresh: Host) -> None:
    out = fresh.run(f"{INSTALL} --tests-only v2.28.7-1 v1.17.2 /fsx").stdout
    assert "loaded: NCCL 2.28.7\n" in out
    assert set(fresh.run("ls -A /fsx/nccl").stdout.split()) == {
        "apply-nccl-to-running-nodes.sh",
        "install-nccl-shared.sh",
        "nccl-tests",
        "versions",
    }
    assert fresh.run("test -e /etc/profile.d/nccl-shared.sh", check=False).returncode == 1
    assert fresh.run("readlink /fsx/nccl/nccl-tests").stdout == "versions/2.28.7-1_tests/nccl-tests\n"
    header = fresh.run("readelf -d /fsx/nccl/nccl-tests/all_reduce_perf | grep PATH").stdout
    assert "/versions/2.28.7-1_tests/lib:/opt/amazon/ofi-nccl/lib:/opt/amazon/openmpi/lib:" in header
    assert fresh.run(f"{INSTALL} --list").stdout.splitlines()[1].split()[:3] == ["2.28.7-1_tests", "2.28.7-1", "image"]
    # A version for the jobs takes their place, and keeps it.
    fresh.run(f"{GUIDE}; {INSTALL} --tests-only v2.28.7-1")
    assert fresh.run("readlink /fsx/nccl/nccl-tests; cat /fsx/nccl/nccl-tests/../.nccl_version").stdout == (
        "current/nccl-tests\nv2.28.7-1\n"
    )
