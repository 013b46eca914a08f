"""enroot and pyxis turned on, with a real Slurm and the stand-ins of both: jobs run in the image, or it is said."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from acceptance.runner.script import BUILD_DIRECTORIES, FINDER, source

from .conftest import ROOT, bundle_files, pack
from .host import Host

pytestmark = pytest.mark.hosts
STANDINS = ROOT / "rehearsal/standins"
RUN = "sed -i s/^NODE_KIND=.*/NODE_KIND={}/ /etc/slipway/node.env; /opt/slipway/current/nodes/steps/35-container-runtime.sh"
STEP, COMPUTE = RUN.format("headnode"), RUN.format("compute")
CHECK = "bash /fsx/scripts/check-containers.sh"
IMAGE = "/fsx/containers/probe.sqsh"
PLUGIN = "/usr/local/lib/slurm/spank_pyxis.so"
SLURM_CONF = b"""\
ClusterName=probe
SlurmctldHost=head(10.9.9.1)
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurm.state
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
SlurmdParameters=config_overrides
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName=head NodeAddr=10.9.9.1 CPUs=4
PartitionName=all Nodes=head Default=YES
"""
IDLE = "for i in $(seq 300); do timeout 5 sinfo -h -o %t | grep -qx idle && exit; sleep 0.2; done; tail /var/log/slurm*; exit 1"
# srun may end before its slurmstepd has removed what the plug-in made.
LEFT = 'for i in $(seq 300); do [ -n "$(find /run/pyxis -mindepth 2)" ] || break; sleep 0.1; done; find /run/pyxis -mindepth 2'
# A small image: a shell, and what the check asks with.
MAKE_IMAGE = f"""
root=$(mktemp -d)
mkdir -p $root/bin $root/etc
for program in sh bash cat stat env; do
  file=$(readlink -f $(command -v $program))
  cp $file $root/bin/$program
  ldd $file | grep -o '/[^ ]*' | while read -r library; do mkdir -p $root${{library%/*}}; cp -n $library $root$library; done
done
printf 'ID=probe\\nPRETTY_NAME="The probe"\\n' >$root/etc/os-release
printf 'FROM_IMAGE=yes\\n' >$root/etc/environment
mkdir $root/work
mkdir -p $root/opt/nccl-tests/build
printf '#!/bin/sh\\necho "$0 $*"; cat /etc/os-release\\n' >$root/opt/nccl-tests/build/all_reduce_perf
chmod 755 $root/opt/nccl-tests/build/all_reduce_perf
printf 'cd "/work" && unset OLDPWD || exit 1\\n[ ! -s /etc/rc.local ] || . /etc/rc.local\\nexec "$@"\\n' >$root/etc/rc
mksquashfs $root {IMAGE} -quiet -no-progress -all-root -noappend >/dev/null
rm -rf $root
"""


@pytest.fixture(scope="module")
def head(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host with bundle, stand-ins and a Slurm of one node; the step has turned pyxis on."""
    if not Path("/usr/include/slurm/spank.h").exists():
        pytest.skip("needs libslurm-dev")
    plugin = tmp_path_factory.mktemp("pyxis") / "spank_pyxis.so"
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(plugin)]
    subprocess.run([*command, str(STANDINS / "spank_pyxis.c")], check=True, timeout=60)
    files = bundle_files()
    host.put("/srv/bundle.tgz", pack(files))
    host.put("/etc/slipway/node.env", files["node.env"][0])
    host.put("/usr/local/bin/enroot", (STANDINS / "enroot").read_bytes(), 0o755)
    host.put(PLUGIN, plugin.read_bytes(), 0o755)
    host.put("/opt/slurm/etc/slurm.conf", SLURM_CONF)
    host.put("/srv/munge.key", os.urandom(128))
    host.run(
        "mkdir -p /opt/slipway/current && tar xzf /srv/bundle.tgz -C /opt/slipway/current; "
        "for step in 10-fsx-layout 12-user-scripts; do /opt/slipway/current/headnode/steps/$step.sh; done; "
        "rm -rf /etc/slurm /etc/enroot; ln -s /opt/slurm/etc /etc/slurm; mkdir -p /var/spool/slurm.state /var/spool/slurmd; "
        "install -D -m 400 -o munge -g munge /srv/munge.key /etc/munge/munge.key; "
        "mkdir -p /run/munge /var/log/munge /var/lib/munge; chown munge:munge /run/munge /var/log/munge /var/lib/munge /etc/munge; "
        # Slurm looks names up for addresses that this host has, loopback not counted.
        "ip link add eth0 type veth peer name eth1; ip addr add 10.9.9.1/24 dev eth0; ip link set eth0 up; ip link set eth1 up; "
        "printf '127.0.0.1 localhost\\n10.9.9.1 head\\n' >/etc/hosts; "
        f"systemctl start munge slurmctld slurmd; {MAKE_IMAGE}"
    )
    host.run(IDLE)
    host.run(STEP)
    return host


def test_before_the_step_the_check_says_that_pyxis_is_off(head: Host) -> None:
    head.run("mv /opt/slurm/etc/plugstack.conf /srv/plugstack.conf")
    done = head.run(f"{CHECK} {IMAGE}", check=False)
    assert done.returncode == 1
    assert "srun does not know --container-image: pyxis is off on this node" in done.stdout
    head.run("mv /srv/plugstack.conf /opt/slurm/etc/plugstack.conf")


def test_job_runs_in_the_image_after_the_step(head: Host) -> None:
    inside = head.run(
        f"srun --quiet --container-image={IMAGE} --container-mounts=/fsx:/fsx sh -c 'cat /etc/os-release; pwd; env; cat /fsx/scripts/*.sh'"
    )
    assert inside.stdout.startswith("ID=probe\n")
    assert "\n/work\n" in inside.stdout  # the image's working directory, not the job's
    assert "\nFROM_IMAGE=yes\n" in inside.stdout
    assert "check::main" in inside.stdout
    assert "ID=probe" not in head.run("srun cat /etc/os-release").stdout
    # What the plug-in made for the job is gone with it.
    assert head.run(LEFT).stdout == ""
    # On a busy machine srun reports first that its job waits.
    checked = head.run(f"{CHECK} --partition all --nodes 1 {IMAGE}").stdout
    assert checked.splitlines()[-1] == "ok      head: inside the image (The probe)"


def test_nccl_tests_of_the_image_run_in_it(head: Host) -> None:
    """Each rank of an acceptance with `container` starts so (head.sbatch.j2), from a directory that only the image has."""
    head.put(f"/srv/run/{FINDER}", source(FINDER).encode())
    places = " ".join(BUILD_DIRECTORIES)
    out = head.run(
        f"srun --ntasks=2 --container-image={IMAGE} --container-mounts=/srv/run:/srv/run bash /srv/run/{FINDER} "
        f'all_reduce_perf "$(stat -c %d:%i /)" {places} -- -b 8 -g 1; ls /opt/nccl-tests 2>&1 || true'
    ).stdout
    assert out.count(f"{BUILD_DIRECTORIES[0]}/all_reduce_perf -b 8 -g 1\n") == 2
    assert out.count("ID=probe\n") == 2
    assert "cannot access" in out


def test_named_containers_are_the_jobs_own(head: Host) -> None:
    """A later step of the job finds what an earlier one wrote; another job does not find the name."""
    # --quiet: while a step completes, srun reports that it waits for the nodes.
    step = "srun --quiet --container-name=kept"
    kept = f"{step} --container-image={IMAGE} sh -c 'echo mine >/kept'; {step} cat /kept"
    head.put("/srv/job", f"#!/bin/bash\n{kept}\n".encode(), 0o755)
    assert head.run("salloc --quiet bash /srv/job").stdout == "mine\n"
    done = head.run("srun --container-name=kept true", check=False)
    assert done.returncode == 1
    assert '_kept" does not exist, and --container-image is not set' in done.stdout


def test_flags_of_a_containers_name(head: Host) -> None:
    """`create` makes a container, `exec` joins a running one, `no_exec` never does: args.c of pyxis 0.15 to 0.24."""
    start = f"srun --overlap --container-image={IMAGE} --container-mounts=/srv:/of-the-first --container-name=kept"
    wait = "for i in $(seq 300); do grep -q up /srv/up && break; sleep 0.1; done"
    commands = (
        f"{start}:create sh -c 'echo up >/of-the-first/up; read line </of-the-first/end' & {wait}",
        "srun --overlap --container-name=kept:exec --container-mounts=/etc:/more stat /of-the-first/up /more",
        "srun --overlap --container-name=kept:no_exec stat -c %n /kept /of-the-first/up",
        f"{start}:create true",
        "echo >/srv/end; wait",
        "srun --container-name=kept:exec true",
    )
    head.put("/srv/job", ("#!/bin/bash\nmkfifo /srv/end\n" + "\necho = $?\n".join(commands)).encode(), 0o755)
    parts = head.run("salloc --quiet bash /srv/job 2>&1", check=False).stdout.split("= ")
    assert "pyxis: ignoring --container-mounts when attaching to a running container" in parts[1]
    assert "File: /of-the-first/up" in parts[1]
    assert "'/more': No such file" in parts[1]
    assert "'/of-the-first/up'" in parts[2]
    assert '"create" flag was passed to --container-name but the container already exists' in parts[3]
    assert '"exec" flag was passed to --container-name but the container is not running' in parts[5]
    assert "printing enroot log file" not in parts[5]
    refused = head.run("srun --container-name=kept:run true; srun --container-name=:create true", check=False)
    assert refused.returncode != 0
    assert 'pyxis: --container-name: flag must be "auto", "create", "exec" or "no_exec"' in refused.stdout
    assert "pyxis: --container-name: empty name" in refused.stdout


# Each line: options, a command in the image, what is shown, the exit code. Run with pyxis 0.20.0 and 0.24.0; the words of /none:/x are 0.24.0's.
OPTIONS = (
    ("--container-mounts=/srv/m", "cat /srv/m/file", "mounted", 0),
    ("--container-mounts=/srv/m/file:/a/b:ro+rprivate", "sh -c 'echo x >/a/b'", "Read-only file system", 2),
    ("--container-mounts=tmpfs:/scratch,/srv/m:/m", "sh -c 'cat /m/file >/scratch/z; cat /scratch/z'", "mounted", 0),
    ("--container-mounts=/none:/x", "true", "pyxis: --container-mounts: source path does not exist: /none", 1),
    ("--container-mounts=none:/x", "true", "pyxis: could not add mount entry: none:/x", 255),
    ("--container-mounts=/srv:x", "true", "pyxis: mount target must be a relative path or an absolute path", 255),
    ("--container-mounts=/srv:/srv,,/m", "true", "pyxis: --container-mounts: invalid format: ", 255),
    ("--container-workdir=/none", "true", "pyxis: couldn't chdir to /none: No such file or directory", 1),
    ("--container-mount-home", "cat /root/m", "at home", 0),
    ("--no-container-mount-home", "cat /root/m", "No such file", 1),
    ("", "sh -c 'echo $FROM_IMAGE=$OTHER=$LANG.'", "yes=job=.", 0),
    ("--container-env=FROM_IMAGE,LANG", "sh -c 'echo $FROM_IMAGE=$LANG.'", "job=C.UTF-8.", 0),
    ("--container-env=OTHER,,LANG", "true", "pyxis: --container-env: invalid format: OTHER,,LANG", 255),
    ("--container-readonly", "sh -c 'echo 1 >/new'", "Read-only file system", 2),
    ("--container-writable --no-container-entrypoint", "sh -c 'echo 1 >/new; cat /new'", "1", 0),
    ("--container-remap-root", "stat -c %u /proc/self", "0", 0),
)


@pytest.mark.parametrize(("options", "command", "said", "code"), OPTIONS)
def test_option_of_pyxis(head: Host, options: str, command: str, said: str, code: int) -> None:
    """The stand-in takes, refuses and words these options as the real one."""
    head.put("/srv/m/file", b"mounted\n")
    head.put("/root/m", b"at home\n")
    done = head.run(
        f"export FROM_IMAGE=job OTHER=job; srun --quiet --container-image={IMAGE} {options} {command}", check=False
    )
    assert said in done.stdout
    assert done.returncode == code


def test_batch_script_runs_in_the_image(head: Host) -> None:
    head.put("/srv/batch", f"#!/bin/sh\n#SBATCH --container-image={IMAGE}\ncat /etc/os-release\n".encode(), 0o755)
    assert "ID=probe" in head.run("cd /srv; sbatch --quiet --wait --output=/srv/out batch; cat /srv/out").stdout


def test_options_without_an_image_are_named(head: Host) -> None:
    done = head.run("srun --container-workdir=/etc stat -c %n /srv")
    assert "ignoring --container-workdir because neither --container-image nor --container-name is set" in done.stdout
    assert "/srv\n" in done.stdout


def test_file_that_is_no_image_fails_the_job(head: Host) -> None:
    done = head.run("echo broken >/srv/no.sqsh; cd /srv; srun --container-image=./no.sqsh true", check=False)
    assert done.returncode == 1
    assert "pyxis:     [ERROR] Invalid image format: " in done.stdout


def test_image_that_is_not_there_fails_the_job(head: Host) -> None:
    done = head.run("srun --container-image=/fsx/containers/none.sqsh true", check=False)
    assert done.returncode == 1
    assert "pyxis: failed to create container filesystem for image: /fsx/containers/none.sqsh" in done.stdout
    assert "pyxis:     [ERROR] No such file or directory: /fsx/containers/none.sqsh" in done.stdout


def test_jobs_start_from_the_image_file_where_all_parts_can(head: Host) -> None:
    """An older pyxis ends every srun for an option that it does not know."""
    option = f"{STEP} >/dev/null; grep -c use_squashfuse=1 /opt/slurm/etc/plugstack.conf.d/pyxis.conf"
    for name in ("squashfuse", "fuse-overlayfs"):
        head.put(f"/usr/local/bin/{name}", b"#!/bin/sh\n", 0o755)
    assert head.run(option).stdout == "1\n"
    assert "ID=probe" in head.run(f"srun --container-image={IMAGE} cat /etc/os-release").stdout
    # A node with an older image next to such a head node, then a cluster of such nodes.
    head.run(f"cp -a {PLUGIN} /srv/pyxis-0.24; sed -i s/use_squashfuse=/use_squashfusf=/ {PLUGIN}")
    refused = head.run(COMPUTE, check=False)
    assert refused.returncode == 1
    assert "has use_squashfuse=1, which this node's pyxis or enroot does not know: jobs fail here" in refused.stdout
    assert head.run(f"srun --container-image={IMAGE} cat /etc/os-release", check=False).returncode != 0
    assert head.run(option, check=False).stdout == "0\n"
    assert "ID=probe" in head.run(f"srun --container-image={IMAGE} cat /etc/os-release").stdout
    head.run(f"mv /srv/pyxis-0.24 {PLUGIN}")
    for old in ("export ENROOT_REHEARSAL_VERSION=4.0.1", "echo CONTAINERS_SQUASHFUSE=false >>/etc/slipway/node.env"):
        assert head.run(f"{old}; {option}", check=False).stdout == "0\n"
    head.run("sed -i /CONTAINERS_SQUASHFUSE/d /etc/slipway/node.env; rm /usr/local/bin/{squashfuse,fuse-overlayfs}")
    head.run(STEP)


def test_hooks_of_slurm_are_switched_on_where_enroot_has_them(head: Host) -> None:
    head.put("/usr/share/enroot/hooks.d/50-slurm-pytorch.sh", b"#!/bin/sh\n", 0o755)
    head.put("/etc/enroot/hooks.d/50-slurm-pmi.sh", b"of the site\n", 0o755)
    head.put("/usr/share/enroot/hooks.d/50-slurm-pmi.sh", b"#!/bin/sh\n", 0o755)
    hidden = "mkdir -p /srv/hidden; mv /usr/bin/squashfuse /srv/hidden/ || true"  # this machine may have it
    assert "squashfuse is not in this image" in head.run(f"{hidden}; {COMPUTE}", check=False).stdout
    head.run("mv /srv/hidden/* /usr/bin/ || true")
    links = "cd /etc/enroot/hooks.d; readlink 50-slurm-pytorch.sh; cat 50-slurm-pmi.sh"
    assert head.run(links).stdout == "/usr/share/enroot/hooks.d/50-slurm-pytorch.sh\nof the site\n"
    head.run("rm -r /usr/share/enroot /etc/enroot/hooks.d")


def test_directories_are_memory_or_a_local_disk_and_everybodys(head: Host) -> None:
    assert head.run("stat -c %a /run/enroot /run/pyxis /var/lib/enroot").stdout == "1777\n755\n1777\n"
    assert head.run("stat -c '%a %u' /run/enroot/user-0 /var/lib/enroot/enroot-user-0").stdout == "700 0\n700 0\n"
    assert head.run("stat -f -c %T /run/enroot /run/pyxis").stdout == "tmpfs\ntmpfs\n"
    configuration = head.run("cat /etc/enroot/enroot.conf").stdout
    assert "ENROOT_DATA_PATH           /var/lib/enroot/enroot-user-$(id -u)/data\n" in configuration
    assert "/fsx" not in configuration
    command = f"cd /; enroot start {IMAGE} cat /etc/os-release"
    out = head.run(
        f"setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=/nonexistent bash -c '{command}'"
    ).stdout
    assert "ID=probe\n" in out
    # Both conditions: a disk where not everybody may write is no place for everybody's containers.
    head.run(f"mkdir -p /scratch; mount -t tmpfs -o mode=755 none /scratch; {COMPUTE}")
    assert "/scratch" not in head.run("cat /etc/enroot/enroot.conf").stdout
    head.run(f"chmod 1777 /scratch; {COMPUTE}")
    assert (
        "ENROOT_CACHE_PATH          /scratch/enroot-user-$(id -u)/cache\n"
        in head.run("cat /etc/enroot/enroot.conf").stdout
    )
    head.run(f"umount /scratch; rmdir /scratch; {STEP}")


def test_directory_of_root_that_a_user_made_first_is_moved_aside(head: Host) -> None:
    place = "/var/lib/enroot/enroot-user-0"
    head.run(f"rm -rf {place}; setpriv --reuid=4321 --regid=4321 --clear-groups mkdir -p -m 777 {place}/data/evil")
    done = head.run(STEP)
    assert f"WARNING {place} belonged to uid 4321 instead of 0: moved to {place}.foreign" in done.stdout
    assert head.run(f"stat -c '%a %u' {place}; ls -A {place}").stdout == "700 0\n"
    head.run(f"rm -rf {place}.foreign")


def test_second_run_changes_nothing_and_tells_slurm_nothing(head: Host) -> None:
    reconfigured = "grep -c 'Processing Reconfiguration Request' /var/log/slurmctld.log"
    files = "find /opt/slurm/etc /etc/enroot /etc/tmpfiles.d /fsx/scripts -type f -printf '%p %T@ %m\\n' | sort"
    before, count = head.run(files).stdout, head.run(reconfigured).stdout
    assert int(count) >= 1
    head.run(f"{STEP}; {COMPUTE}")
    assert head.run(files).stdout == before
    assert head.run(reconfigured).stdout == count
    # Killed between the file and the word to Slurm: the next run says it.
    head.run(f"rm /var/lib/slipway/pyxis.sha256; {STEP}")
    assert int(head.run(reconfigured).stdout) == int(count) + 1


def test_node_whose_slurmd_has_no_plugin_stack_is_found(head: Host) -> None:
    # As a configless slurmd: its own copy of the configuration, without plugstack.conf. The job then runs on the node.
    head.run(
        "mkdir -p /srv/own; cp /opt/slurm/etc/slurm.conf /srv/own; systemctl stop slurmd; "
        "systemd-run --quiet --unit=own-slurmd --setenv=SLURM_CONF=/srv/own/slurm.conf slurmd -D; "
        'for i in $(seq 300); do [ -z "$(ss -Hltn sport = :6818)" ] || break; sleep 0.1; done; ' + IDLE
    )
    done = head.run(f"{CHECK} {IMAGE}", check=False)
    head.run("systemctl stop own-slurmd; systemctl start slurmd")
    assert done.returncode == 1
    assert "FAILED  head: the job ran on the node itself" in done.stdout
    assert "jobs with --container-image do not run in it on the nodes above" in done.stdout
    assert "sudo scontrol reconfigure' on the head node" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "one image is needed"),
        ("/fsx/none", "/fsx/none is not there"),
        (f"--nodes two {IMAGE}", "--nodes two: not a number of nodes"),
        (f"--node 2 {IMAGE}", "unknown option --node"),
        ("--nodes", "--nodes without a value"),
        ("--partition", "--partition without a value"),
    ],
)
def test_wrong_use_of_the_check(head: Host, arguments: str, said: str) -> None:
    done = head.run(f"{CHECK} {arguments}", check=False)
    assert done.returncode == 2
    assert said in done.stdout


def test_help_of_the_check(head: Host) -> None:
    assert head.run(f"{CHECK} --help").stdout == "check-containers.sh [--partition P] [--nodes N] IMAGE\n"


def test_check_of_a_cluster_without_jobs_or_with_a_broken_image(head: Host) -> None:
    head.run("echo broken >/fsx/containers/broken.sqsh; scontrol update nodename=head state=drain reason=test")
    no_job = head.run(
        f"CHECK_CONTAINERS_QUEUE_S=1 {CHECK} {IMAGE}",
        check=False,
    )
    head.run("scontrol update nodename=head state=resume")
    assert "no job ran within 1 s, not even without an image" in no_job.stdout
    broken = head.run(f"{CHECK} /fsx/containers/broken.sqsh", check=False)
    assert "a job in /fsx/containers/broken.sqsh did not start on every node" in broken.stdout


GPUS_ON = (
    "mknod /dev/nvidia0 c 1 3; echo 'Name=gpu File=/dev/nvidia0' >/opt/slurm/etc/gres.conf; "
    "sed -i 's/^NodeName=.*/& Gres=gpu:1/' /opt/slurm/etc/slurm.conf; systemctl restart slurmctld slurmd; " + IDLE
)
GPUS_OFF = (
    "rm -f /dev/nvidia0 /opt/slurm/etc/gres.conf /usr/local/bin/nvidia-{smi,container-cli}; "
    "sed -i 's/ Gres=gpu:1//' /opt/slurm/etc/slurm.conf; systemctl restart slurmctld slurmd; " + IDLE
)


def test_check_asks_for_a_gpu_in_the_image_where_the_nodes_have_gpus(head: Host) -> None:
    head.put("/usr/local/bin/nvidia-smi", b"#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: GPU-0)'\n", 0o755)
    head.run(GPUS_ON)
    without = head.run(f"{CHECK} {IMAGE}", check=False)
    head.put("/usr/local/bin/nvidia-container-cli", (STANDINS / "nvidia-container-cli").read_bytes(), 0o755)
    with_it = head.run(f"{CHECK} {IMAGE}", check=False)
    head.put("/usr/local/bin/nvidia-container-cli", b"#!/bin/sh\n", 0o755)
    blind = head.run(f"{CHECK} {IMAGE}", check=False)
    head.run(GPUS_OFF)
    assert without.returncode == 1
    assert "if nvidia-container-cli is missing: /var/log/slipway/16-gpu-containers.log there" in without.stdout
    assert with_it.stdout.splitlines()[-1] == "ok      head: inside the image (The probe), GPUs: 1"
    assert blind.returncode == 1
    assert "FAILED  head: nvidia-smi in the image (The probe) lists no GPU" in blind.stdout


# ----------------------------------------------------------------------------------------------- what the steps refuse


def test_switched_off_and_on_again_beside_the_sites_own_plugins(head: Host) -> None:
    head.run("printf '# of the site\\n' >/opt/slurm/etc/plugstack.conf")
    head.run(f"sed -i s/CONTAINERS_PYXIS=true/CONTAINERS_PYXIS=false/ /etc/slipway/node.env; {STEP}; {COMPUTE}")
    assert head.run("ls /opt/slurm/etc/plugstack.conf.d/").stdout == ""
    assert head.run("srun --help | grep -c container-image", check=False).stdout == "0\n"
    head.run(f"sed -i s/CONTAINERS_PYXIS=false/CONTAINERS_PYXIS=true/ /etc/slipway/node.env; {STEP}")
    stack = head.run("cat /opt/slurm/etc/plugstack.conf").stdout
    assert stack == "# of the site\ninclude /opt/slurm/etc/plugstack.conf.d/*.conf\n"
    assert head.run("srun --help | grep -c container-image=").stdout == "1\n"


def test_faults_of_the_step_are_told_with_what_to_do(head: Host) -> None:
    head.run(f"mv {PLUGIN} /srv/plugin")
    for step in (STEP, COMPUTE):
        assert "spank_pyxis.so is on none of" in head.run(step, check=False).stdout
    head.run(
        f"mv /srv/plugin {PLUGIN}; cp /etc/slipway/node.env /srv/node.env; echo CONTAINERS_PYXIS=maybe >>/etc/slipway/node.env"
    )
    assert "CONTAINERS_PYXIS = 'maybe': neither true nor false" in head.run(STEP, check=False).stdout
    head.run("cp /srv/node.env /etc/slipway/node.env; echo CONTAINERS_SCOPE=user >>/etc/slipway/node.env")
    refused = head.run(STEP, check=False)
    assert refused.returncode == 1
    assert "CONTAINERS_SCOPE = 'user': neither job nor global" in refused.stdout
    head.run("mv /srv/node.env /etc/slipway/node.env; rm /var/lib/slipway/pyxis.sha256")
    head.put("/usr/local/bin/scontrol", b"#!/bin/bash\nexit 1\n", 0o755)
    done = head.run(STEP, check=False)
    head.run("rm /usr/local/bin/scontrol")
    assert done.returncode == 1
    assert "slurmctld did not read its configuration again" in done.stdout


def test_node_without_slurm_or_without_enroot(head: Host) -> None:
    head.run("mv /opt/slurm /srv/slurm")
    assert "no Slurm in /opt/slurm/etc: pyxis is not configured" in head.run(STEP).stdout
    head.run("mv /srv/slurm /opt/slurm; mv /usr/local/bin/enroot /srv/enroot")
    assert "enroot is not in this image: nothing to configure" in head.run(COMPUTE).stdout
    head.run("mv /srv/enroot /usr/local/bin/enroot")


def test_namespaces_of_users_are_allowed_where_ubuntu_forbids_them(head: Host) -> None:
    switch = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
    head.run(f"mount -t tmpfs none /proc/sys/kernel && echo 1 >{switch}")
    head.run(COMPUTE)
    value = head.run(f"cat {switch} /etc/sysctl.d/90-slipway-containers.conf; umount /proc/sys/kernel").stdout
    assert value.startswith("0\n")
    assert "kernel.apparmor_restrict_unprivileged_userns = 0" in value
