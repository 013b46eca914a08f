"""What a job leaves on a node, and what Slurm's Prolog and Epilog of Slipway make of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from .host import Host
from .installed import install, step

pytestmark = pytest.mark.hosts
UID, OTHER = 4321, 4322
END = f"SLURM_JOB_ID=7 SLURM_JOB_UID={UID} SLURMD_NODENAME=n1 /opt/slurm/etc/scripts/epilog.d/50_slipway"
BEGIN = f"SLURM_JOB_ID=7 SLURM_JOB_UID={UID} SLURM_JOB_GID={UID} /opt/slurm/etc/scripts/prolog.d/50_slipway"
STORAGE = "/var/lib/enroot"
DATA = f"{STORAGE}/enroot-user-{UID}/data"
PLUGINS = "/opt/slurm/etc/plugstack.conf.d"
AS_USER = f"setpriv --reuid={UID} --regid={UID} --clear-groups"


@pytest.fixture(scope="module")
def node(host: Host) -> Host:
    install(host)
    host.run(
        "mkdir -p /opt/slurm/etc/scripts/{prolog,epilog}.d /etc/enroot /var/log/slipway; mkdir -p -m 1777 /scratch; "
        f"mkdir -p -m 1777 {STORAGE} /run/enroot; echo 'ENROOT_TEMP_PATH           {STORAGE}' >/etc/enroot/enroot.conf; "
        "touch /opt/slurm/etc/scripts/epilog.d/90_pcluster_noop /dev/nvidia0; chmod 666 /dev/nvidia0"
    )
    step(host, "headnode/steps/45-job-scripts")
    return host


@pytest.fixture
def job(node: Host) -> Iterator[Host]:
    """The node after job 7 of the user, which left what is listed here; no other job of the user is on the node."""
    node.put("/usr/local/bin/squeue", b"#!/bin/sh\necho 7\n", 0o755)
    node.run(
        f"{BEGIN}; {AS_USER} mkdir -p {DATA}/pyxis_7.0/usr {DATA}/pyxis_7_mine {DATA}/pyxis_6.0 {DATA}/pyxis_6_old {DATA}/pyxis_kept "
        f"{DATA}/mine /scratch/job-7 /scratch/dataset {STORAGE}/enroot.abcdefghij; {AS_USER} touch /dev/shm/nccl-x; "
        f"chmod 500 {DATA}/pyxis_7.0; mkdir -p {PLUGINS}; echo 'required x container_scope=job' >{PLUGINS}/pyxis.conf; "
        f"setpriv --reuid={OTHER} --regid={OTHER} --clear-groups mkdir -p /scratch/other; touch /dev/shm/root"
    )
    yield node
    node.run(f"pkill -KILL --uid {UID}; rm -rf {STORAGE}/enroot* /scratch/* /dev/shm/nccl-x /dev/shm/root", check=False)


def left(host: Host) -> set[str]:
    places = f"{DATA} /scratch {STORAGE} /dev/shm"
    return set(host.run(f"find {places} -mindepth 1 -maxdepth 1 -printf '%f\\n'").stdout.split())


def leave_process(host: Host, script: str) -> None:
    """Start a script of the user, and wait until it has opened the GPU, or become `sleep` without one."""
    ready = '[ -e /proc/$!/fd/5 ] || [ "$(cat /proc/$!/comm)" = sleep ]'
    host.run(f"{AS_USER} setsid bash -c '{script}' >/dev/null 2>&1 </dev/null & until {ready}; do sleep 0.05; done")


def processes(host: Host) -> int:
    return len(host.run(f"pgrep --uid {UID}", check=False).stdout.split())


def test_what_the_last_job_of_a_user_left_is_removed_and_the_rest_is_kept(job: Host) -> None:
    job.run(END)
    assert left(job) >= {"pyxis_kept", "mine", "dataset", "other", "root"}
    gone = {"pyxis_7.0", "pyxis_7_mine", "pyxis_6.0", "pyxis_6_old", "job-7", "enroot.abcdefghij", "nccl-x"}
    assert not left(job) & gone
    assert "slipway: removed /scratch/job-7" in job.run("cat /var/log/slipway/jobs.log").stdout
    assert "90_pcluster_noop" in job.run("ls /opt/slurm/etc/scripts/epilog.d").stdout


def test_names_of_all_jobs_are_kept_also_those_that_begin_with_a_number(job: Host) -> None:
    job.run(f"sed -i s/=job/=global/ {PLUGINS}/pyxis.conf; {END}")
    assert {"pyxis_7_mine", "pyxis_6_old", "pyxis_kept"} <= left(job)
    assert not left(job) & {"pyxis_7.0", "pyxis_6.0"}


def test_another_job_of_the_user_loses_nothing(job: Host) -> None:
    job.put("/usr/local/bin/squeue", b"#!/bin/sh\nprintf '7\\n8\\n'\n", 0o755)
    leave_process(job, "exec 5</dev/nvidia0; exec sleep 60")
    job.run(END)
    assert processes(job) == 1
    assert {"pyxis_6.0", "enroot.abcdefghij", "nccl-x"} <= left(job)
    assert not left(job) & {"pyxis_7.0", "pyxis_7_mine", "job-7"}


@pytest.mark.parametrize("squeue", ["exit 1", "sleep 60"])
def test_slurm_that_does_not_answer_ends_nothing_and_the_epilog_is_good(job: Host, squeue: str) -> None:
    job.put("/usr/local/bin/squeue", f"#!/bin/sh\n{squeue}\n".encode(), 0o755)
    leave_process(job, "exec 5</dev/nvidia0; exec sleep 60")
    begun = time.monotonic()
    job.run(END)
    assert time.monotonic() - begun < 45  # 10 s for squeue; it would sleep 60 s
    assert processes(job) == 1
    assert "nccl-x" in left(job)


def test_orphans_that_hold_a_gpu_are_ended_also_those_that_ignore_the_signal(job: Host) -> None:
    leave_process(job, 'trap "" TERM; exec 5</dev/nvidia0; while :; do sleep 1; done')
    leave_process(job, "exec sleep 61")  # holds no GPU: such as a shell of the user
    assert processes(job) >= 2
    job.run(END)
    assert "left process" in job.run("cat /var/log/slipway/jobs.log").stdout
    deadline = time.monotonic() + 60
    while job.run("pgrep --full 'while :; do sleep 1'", check=False).stdout and time.monotonic() < deadline:
        time.sleep(0.2)
    assert job.run("pgrep --full 'while :; do sleep 1'", check=False).stdout == ""
    assert job.run("pgrep --full 'sleep 61'").stdout
    assert "nccl-x" in left(job)  # a process of the user is left, which may use it


def test_users_directory_that_another_user_made_first_is_moved_aside(job: Host) -> None:
    place = f"{STORAGE}/enroot-user-{UID}"
    job.run(f"rm -rf {place}; setpriv --reuid={OTHER} --regid={OTHER} --clear-groups mkdir -m 777 {place}; {BEGIN}")
    assert job.run(f"stat -c '%a %u' {place} /run/enroot/user-{UID}").stdout == f"700 {UID}\n700 {UID}\n"
    assert job.run(f"stat -c %u {place}.foreign").stdout == f"{OTHER}\n"


def test_link_of_a_user_leads_nowhere(job: Host) -> None:
    job.run("rm -rf /scratch/job-7; mkdir /srv/outside; touch /srv/outside/file")
    job.run(
        f"{AS_USER} ln -s /srv/outside /scratch/job-7 && {END} && test -e /srv/outside/file; code=$?; rm -rf /srv/outside; exit $code"
    )
    assert "job-7" not in left(job)


def test_prolog_and_epilog_of_a_node_without_a_release_are_good(node: Host) -> None:
    node.run("mv /opt/slipway/current /opt/slipway/away")
    node.run(f"{BEGIN} && {END}; code=$?; mv /opt/slipway/away /opt/slipway/current; exit $code")
    node.run("SLURM_JOB_ID=x /opt/slurm/etc/scripts/epilog.d/50_slipway")


def test_head_node_without_the_directories_says_so(node: Host) -> None:
    node.run("mv /opt/slurm /opt/away")
    done = step(node, "headnode/steps/45-job-scripts")
    node.run("mv /opt/away /opt/slurm")
    assert "leftovers of ended jobs are not removed" in done.stdout
