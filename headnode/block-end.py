#!/usr/bin/python3
"""Announce the end of capacity blocks to the users of the cluster, and hold jobs that could not finish.

Usage: `block-end.py`. Reads CAPACITY_BLOCKS of node.env (`QUEUE=RESERVATION=MINUTES`, separated by blanks), asks EC2
for the blocks' ends, and does the same again at each run, so that an extended block moves everything:
- EC2 ends the instances of a block 30 minutes before the block's end (EC2 user guide, Capacity Blocks). From then on
  the queue's nodes have a Slurm reservation for maintenance, `slipway-end-RESERVATION`. It exists from MINUTES before
  that time: from then on Slurm starts no job whose time limit passes it (squeue: `Reserved for maintenance`). A job
  without a time limit counts as endless: made earlier, the reservation would hold such jobs while the block is paid.
- NOTICE_S before that time /run/slipway/block-end has a line for login shells (/etc/profile.d/slipway-block-end.sh).
- When the reservation is made, the running jobs of the queue get a line (`scontrol notify`).
ParallelCluster's own reservations (`pcluster-RESERVATION`, while a block is not active) stay as they are; both have the
flag MAINT, which lets reservations overlap (aws-parallelcluster-node, slurm_reservation_commands.py).
Exit 0; 1 with a message when EC2 or Slurm does not answer: what was announced stays. Python 3.9, standard library.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the bundle

from nodes.lib import env
from nodes.lib.command import Run, reason, run
from nodes.lib.state import put

MESSAGE = Path("/run/slipway/block-end")
PREFIX = "slipway-end-"
TAIL_S = 1800.0  # EC2 ends the instances so long before the block's end
AFTER_S = 3600.0  # and ParallelCluster, which asks every 10 minutes, has its own reservation when the block is over
NOTICE_S = 86_400.0
BLOCK = re.compile(r"([a-z][a-z0-9-]*)=(cr-[0-9a-f]+)=([0-9]+)")
NAME = re.compile(rf"ReservationName=({PREFIX}\S+) StartTime=(\S+) EndTime=(\S+)")


class Block(NamedTuple):
    """The block of a queue, and how many minutes before its instances end Slurm begins to hold jobs."""

    queue: str
    reservation: str
    minutes: int


class Hold(NamedTuple):
    """A reservation of Slurm; times in seconds since 1970."""

    name: str
    queue: str
    start: float
    end: float


def blocks(text: str) -> list[Block]:
    """Return the blocks of CAPACITY_BLOCKS. Raises ValueError for another form."""
    matches = [(word, BLOCK.fullmatch(word)) for word in text.split()]
    wrong = [word for word, match in matches if match is None]
    if wrong:
        raise ValueError(f"CAPACITY_BLOCKS has {wrong[0]!r}, not QUEUE=RESERVATION=MINUTES")
    return [Block(match[1], match[2], int(match[3])) for _, match in matches if match]


def ends(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return the end of each block that is active, from EC2's DescribeCapacityReservations."""
    found = {}
    for one in answer.get("CapacityReservations", ()):
        if one.get("State") == "active" and one.get("EndDate"):
            end = datetime.datetime.fromisoformat(str(one["EndDate"]).replace("Z", "+00:00"))
            found[str(one["CapacityReservationId"])] = end.timestamp()
    return found


def holds(wanted: Iterable[Block], ending: Mapping[str, float], now: float) -> list[Hold]:
    """Return the reservations that Slurm is to have now."""
    return [
        Hold(PREFIX + one.reservation, one.queue, ending[one.reservation] - TAIL_S, ending[one.reservation] + AFTER_S)
        for one in wanted
        if one.reservation in ending and now >= ending[one.reservation] - TAIL_S - one.minutes * 60
    ]


def notices(wanted: Iterable[Block], ending: Mapping[str, float], now: float) -> str:
    """Return the lines for login shells; empty when no block ends soon."""
    return "".join(
        f"{notice(one.queue, ending[one.reservation] - TAIL_S)}\n"
        for one in wanted
        if one.reservation in ending and now >= ending[one.reservation] - TAIL_S - NOTICE_S
    )


def notice(queue: str, stop: float) -> str:
    """Return one line about a queue whose instances end at `stop`."""
    when = datetime.datetime.fromtimestamp(stop, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"slipway: the capacity block of partition {queue} ends: EC2 ends its nodes from {when} on, jobs on them fail."
        " Save checkpoints to /fsx before. Submit jobs with a --time that ends before: Slurm holds other jobs"
    )


def commands(due: Iterable[Hold], present: Mapping[str, tuple[str, str]], kept: Iterable[str]) -> list[list[str]]:
    """Return the commands of scontrol that make, move and delete reservations.

    `present`: name -> start and end; `kept`: blocks that are not active: Slurm removes their reservations at the end.
    """
    found = []
    names = {PREFIX + one for one in kept}
    for one in due:
        names.add(one.name)
        times = (_local(one.start), _local(one.end))
        span = [f"reservationname={one.name}", f"starttime={times[0]}", f"endtime={times[1]}"]
        if one.name not in present:
            place = [f"partitionname={one.queue}", "nodes=ALL", "user=root", "flags=maint,ignore_jobs,part_nodes"]
            found.append(["scontrol", "create", "reservation", *span, *place])
        elif present[one.name] != times:
            found.append(["scontrol", "update", *span])
    return found + [["scontrol", "delete", f"reservationname={name}"] for name in sorted(set(present) - names)]


def _local(stamp: float) -> str:
    """A time as scontrol reads and prints it: this machine's own, without a zone."""
    return datetime.datetime.fromtimestamp(stamp).strftime("%Y-%m-%dT%H:%M:%S")


def reservations(text: str) -> dict[str, tuple[str, str]]:
    """Return name -> start and end of Slipway's reservations, from `scontrol show reservation --oneliner`."""
    return {match[1]: (match[2], match[3]) for match in NAME.finditer(text)}


def hold(wanted: Iterable[Block], ending: Mapping[str, float], now: float, run: Run) -> list[Hold]:
    """Bring Slurm's reservations up to date; return those that are new."""
    present = reservations(run("scontrol", "show", "reservation", "--oneliner"))
    due = holds(wanted, ending, now)
    for command in commands(due, present, {one.reservation for one in wanted} - set(ending)):
        print(f"slipway: {' '.join(command)}")
        run(*command)
    return [one for one in due if one.name not in present]


def notify(one: Hold, run: Run) -> None:
    """Write a line into the output of each job that runs in the queue; a job that has just ended gets none."""
    jobs = run("squeue", "--noheader", "--states=running", f"--partition={one.queue}", "--format=%A").split()
    for job in jobs:
        try:
            run("scontrol", "notify", job, notice(one.queue, one.start))
        except subprocess.SubprocessError as error:
            print(f"slipway: job {job} was not notified: {reason(error)}")


def main() -> int:
    """Do all of it once; return the exit code."""
    values = env.read(env.NODE_ENV)
    try:
        wanted = blocks(values.get("CAPACITY_BLOCKS", ""))
        ending = ends(_ask_ec2(values.get("REGION", ""), [one.reservation for one in wanted])) if wanted else {}
        MESSAGE.parent.mkdir(mode=0o755, exist_ok=True)
        put(MESSAGE, notices(wanted, ending, time.time()))
        for fresh in hold(wanted, ending, time.time(), run):
            notify(fresh, run)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        print(f"slipway: the end of the capacity blocks is not announced anew: {reason(error)}")
        print("slipway-hint: on the head node: aws ec2 describe-capacity-reservations; scontrol show reservation")
        return 1
    return 0


def _ask_ec2(region: str, ids: Iterable[str]) -> dict[str, Any]:
    command = ["aws", "ec2", "describe-capacity-reservations", "--region", region, "--output", "json"]
    answer: dict[str, Any] = json.loads(run(*command, "--capacity-reservation-ids", *ids))
    return answer


if __name__ == "__main__":
    sys.exit(main())
