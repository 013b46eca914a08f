"""The end of a capacity block: what Slurm and login shells are given, and when; and a real Slurm that holds jobs."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.loopback_slurm import loopback_slurm

from .host import Host
from .installed import install, step
from .programs import load_program

ROOT = Path(__file__).resolve().parents[2]
END = 1_800_000_000.0  # of the block: 2027-01-15 08:00 UTC; EC2 ends its instances 1800 s before
MINUTE = 60.0
ID, OTHER = "cr-0123456789abcdef0", "cr-0123456789abcdef1"
NAME = f"slipway-end-{ID}"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    return load_program(ROOT / "headnode/block-end.py")


def answer(state: str = "active", end: str | None = "2027-01-15T08:00:00+00:00") -> dict[str, object]:
    return {"CapacityReservations": [{"CapacityReservationId": ID, "State": state, "EndDate": end}]}


def test_the_blocks_of_node_env(program: ModuleType) -> None:
    assert program.blocks("") == []
    assert program.blocks(f"train={ID}=60 old-2={OTHER}=0") == [("train", ID, 60), ("old-2", OTHER, 0)]


@pytest.mark.parametrize("text", [f"train={ID}", f"train={ID}=-1", "train=cr-x=60", f"Train={ID}=60", f"a b={ID}=6"])
def test_another_form_is_refused(program: ModuleType, text: str) -> None:
    with pytest.raises(ValueError, match="not QUEUE=RESERVATION=MINUTES"):
        program.blocks(text)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (answer(), {ID: END}),
        (answer(end="2027-01-15T08:00:00Z"), {ID: END}),
        (answer(end="2027-01-15T09:00:00+01:00"), {ID: END}),
        (answer("scheduled"), {}),  # ParallelCluster reserves its nodes
        (answer("expired"), {}),
        (answer(end=None), {}),
        ({}, {}),
    ],
)
def test_the_ends_that_ec2_reports(program: ModuleType, asked: dict[str, object], expected: dict[str, float]) -> None:
    assert program.ends(asked) == expected


@pytest.mark.parametrize(
    ("before_end", "minutes", "held", "noticed"),
    [
        (26 * 60, 60, False, False),
        (24 * 60 + 30, 60, False, True),
        (91, 60, False, True),
        (90, 60, True, True),  # 60 minutes before the instances end
        (90, 0, False, True),
        (30, 0, True, True),
        (5, 60, True, True),
        (26 * 60, 1600, True, False),
    ],
)
def test_when_jobs_are_held_and_users_are_notified(
    program: ModuleType, before_end: float, minutes: int, held: bool, noticed: bool
) -> None:
    wanted, now = [program.Block("train", ID, minutes)], END - before_end * MINUTE
    due = program.holds(wanted, {ID: END}, now)
    assert due == ([(NAME, "train", END - 1800, END + 3600)] if held else [])
    text = program.notices(wanted, {ID: END}, now)
    assert ("partition train ends: EC2 ends its nodes from 2027-01-15 07:30 UTC on" in text) == noticed
    assert program.holds(wanted, {}, now) == []
    assert program.notices(wanted, {}, now) == ""


def test_reservations_are_made_moved_and_deleted(program: ModuleType) -> None:
    due = program.holds([program.Block("train", ID, 60)], {ID: END}, END - 3600)
    made = program.commands(due, {}, [])
    assert made[0][:3] == ["scontrol", "create", "reservation"]
    assert {f"reservationname={NAME}", "partitionname=train", "flags=maint,ignore_jobs,part_nodes"} < set(made[0])
    times = tuple(part.partition("=")[2] for part in made[0][4:6])
    assert program.commands(due, {NAME: times}, []) == []  # nothing is changed at the next run
    (moved,) = program.commands(due, {NAME: ("2027-01-14T07:30:00", times[1])}, [])
    assert moved[:2] == ["scontrol", "update"]
    gone = [["scontrol", "delete", f"reservationname={NAME}"]]
    assert program.commands([], {NAME: times}, []) == gone  # the block was extended, or is of the settings before
    assert program.commands([], {NAME: times}, [ID]) == []  # the block is over: Slurm removes it at its end


def test_slurm_starts_only_jobs_that_can_finish(program: ModuleType) -> None:
    """A real Slurm: a running job goes on and is notified; a longer job and one without a limit wait; a short one runs."""
    with loopback_slurm(1, "SchedulerParameters=sched_interval=1") as slurm:
        now = time.time()
        wanted, ending = [program.Block("train", ID, 60)], {ID: now + 1800 + 20 * 60}
        script = slurm.root / "job.sh"
        script.write_text("#!/bin/sh\nsleep 60\n")
        log = slurm.root / "running.out"
        submit = ("sbatch", "--parsable", "--ntasks=1", "--cpus-per-task=1", "--mem=10")
        running = slurm.call(*submit, f"--output={log}", str(script)).strip()
        _until(lambda: "RUNNING" in slurm.call("scontrol", "show", "job", running))
        (fresh,) = program.hold(wanted, ending, now, slurm.call)
        assert program.hold(wanted, ending, now, slurm.call) == []
        program.notify(fresh, slurm.call)
        jobs = {
            name: slurm.call(*submit, "--output=/dev/null", *limit, str(script)).strip()
            for name, limit in (("endless", ()), ("long", ("--time=30",)), ("short", ("--time=5",)))
        }
        _until(lambda: "JobState=RUNNING" in slurm.call("scontrol", "show", "job", jobs["short"]))
        for name in ("endless", "long"):
            asked = ("scontrol", "show", "job", jobs[name])
            _until(lambda asked=asked: re.search("ReqNodeNotAvail|Reservation", slurm.call(*asked)))
            assert "JobState=PENDING" in slurm.call(*asked)
        assert "JobState=RUNNING" in slurm.call("scontrol", "show", "job", running)
        _until(lambda: "slipway: the capacity block of partition train ends" in log.read_text())
        extended = {ID: now + 86_400}
        program.hold(wanted, extended, now, slurm.call)
        assert NAME not in slurm.call("scontrol", "show", "reservation")
        _until(lambda: "JobState=RUNNING" in slurm.call("scontrol", "show", "job", jobs["endless"]))
        subprocess.run(["scancel", running, *jobs.values()], env=slurm.env, check=True, timeout=30)


def _until(seen: Callable[[], object], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < until
        time.sleep(0.2)


AWS = b"""#!/bin/sh
printf '{"CapacityReservations": [{"CapacityReservationId": "%s", "State": "active", "EndDate": "%s"}]}\n' \\
  cr-0123456789abcdef0 "$(date --utc --date='+80 min' +%Y-%m-%dT%H:%M:%SZ)"
"""
SLURM = b'#!/bin/sh\necho "$0 $*" >>/srv/calls\n'


@pytest.mark.hosts
def test_the_head_node_announces_the_end_in_shells_and_to_slurm(host: Host) -> None:
    install(host)
    host.put("/usr/local/bin/aws", AWS, 0o755)
    for name in ("scontrol", "squeue"):
        host.put(f"/usr/local/bin/{name}", SLURM, 0o755)
    host.run(f"echo CAPACITY_BLOCKS=train={ID}=60 >>/etc/slipway/node.env")
    step(host, "headnode/steps/29-block-end")
    assert host.run("systemctl is-active slipway-block-end.timer").stdout == "active\n"
    host.run("systemctl start slipway-block-end.service")
    calls = host.run("cat /srv/calls").stdout
    assert f"scontrol create reservation reservationname={NAME} starttime=" in calls
    assert "squeue --noheader --states=running --partition=train" in calls
    shown = host.run("bash --login -i -c true 2>/dev/null; bash --login -c 'echo no more'").stdout
    assert shown.count("slipway: the capacity block of partition train ends") == 1
    host.put("/usr/local/bin/aws", b"#!/bin/sh\necho 'Unable to locate credentials' >&2\nexit 253\n", 0o755)
    host.run("systemctl start slipway-block-end.service; test -s /run/slipway/block-end")
    journal = host.run("journalctl --sync; journalctl --unit slipway-block-end.service --output cat").stdout
    assert "is not announced anew: Unable to locate credentials" in journal
