"""Talking to Slurm with sbatch, squeue, scontrol and scancel: no accounting database is needed.

sacct is asked only for a job that slurmctld has forgotten, and only where there is one.

Every call is bounded. Values go into command lines as single arguments, never through a shell.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from acceptance.errors import ExternalError
from acceptance.programs import call
from acceptance.runner.topology import leaves

_CALL_TIMEOUT_S = 60
_KEPT = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SLURM_CONF", "SHELL", "TMPDIR", "TZ", "USER")
_BAD_STATES = {
    "DOWN": "down",
    "DRAIN": "drained",
    "DRAINED": "drained",
    "DRAINING": "drained",
    "ERROR": "in error",
    "FAIL": "failing",
    "FAILING": "failing",
    "FUTURE": "not yet defined",
    "INVALID_REG": "registered with the wrong hardware",
    "MAINT": "in maintenance",
    "MAINTENANCE": "in maintenance",
    "NOT_RESPONDING": "not responding",
    "NO_RESPOND": "not responding",
    "RESERVED": "held by a reservation",
    "UNKNOWN": "unknown to Slurm",
}
# `scontrol show node` prints some fields after the reason (src/api/node_info.c of Slurm 22.05 to 25.11).
_AFTER_REASON = r"(?:\s+(?:Comment|Extra|InstanceId|InstanceType|ReservationName)=.*)?\s*$"
_REASON = re.compile(r"\sReason=(.*?)(?: \[[^\]]*\])?" + _AFTER_REASON)
FINAL_STATES = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
)


@dataclass(frozen=True)
class Node:
    """A node of the partition as Slurm sees it. trouble: None if jobs can run on it, else why not."""

    name: str
    state: str
    trouble: str | None
    reason: str | None
    gres: str


@dataclass(frozen=True)
class JobInfo:
    """What `scontrol show job` says. exit_code and signal of the batch script; nodes as a Slurm host list.

    started, ended: Unix times, None if Slurm reports none; limit_s: Slurm's time limit, None without one.
    """

    state: str
    reason: str
    exit_code: int
    signal: int
    nodes: str
    started: float | None = None
    ended: float | None = None
    limit_s: int | None = None

    @property
    def final(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL_STATES


_CLOSED = "Required partition not available"  # sbatch of a partition whose state is INACTIVE or DRAIN
_PROTECTED = (
    "the partition takes no jobs: ParallelCluster stops it after ten nodes that failed to boot (protected mode), or the"
    " fleet was stopped. Hint: `slipway status` reports why; repair it, then"
    " `pcluster update-compute-fleet --cluster-name NAME --status START_REQUESTED`"
)


_TOO_MUCH = "Requested node configuration is not available"


def _asked_for(script: Path) -> str:
    """What a script asks of each node, and where to compare it: for a job that no node can run."""
    lines = script.read_text("utf-8", errors="replace").splitlines()
    wanted = ("--nodes", "--ntasks-per-node", "--gres", "--nodelist")
    asked = [
        line.split(" ", 1)[1]
        for line in lines
        if line.startswith("#SBATCH ") and line.split(" ", 1)[1].startswith(wanted)
    ]
    return (
        f"no nodes of the partition have what {script.name} asks for ({' '.join(asked)})."
        " Hint: compare gpus_per_node and nodes of the scenario with Gres and CPUTot of `scontrol show node`"
    )


class Slurm:
    """The few commands this program needs. Raises ExternalError where one does not answer."""

    def __init__(self) -> None:
        self._env = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._env["PATH"] = f"{self._env.get('PATH', '/usr/bin:/bin')}:/opt/slurm/bin"

    def call(self, argv: list[str]) -> str:
        """Run one command and return its output."""
        missing = " nor in /opt/slurm/bin. Hint: run this on the head node"
        return call(argv, _CALL_TIMEOUT_S, missing, "Hint: try `scontrol ping` and `sinfo`", self._env)

    def nodes(self, partition: str) -> list[Node]:
        """Return the nodes of `partition`, in Slurm's order."""
        found = []
        for line in self.call(["scontrol", "show", "node", "--oneliner"]).splitlines():
            if partition in _field(line, "Partitions").split(","):
                found.append(_node(line))
        if not found:
            raise ExternalError(f"partition {partition}: Slurm knows no node of it. Hint: compare with `sinfo`")
        return found

    def submit(self, script: Path, directory: Path, output: Path) -> int:
        """Submit a script; return the job's id."""
        try:
            said = self.call(submit_argv(script, directory, output))
        except ExternalError as fault:
            if _CLOSED in str(fault):
                raise ExternalError(f"sbatch: {_CLOSED}: {_PROTECTED}") from None
            if _TOO_MUCH in str(fault):
                raise ExternalError(f"sbatch: {_TOO_MUCH}: {_asked_for(script)}") from None
            raise
        found = re.match(r"(\d{1,10})(?:;|\s|$)", said)
        if found is None:
            raise ExternalError(f"sbatch: answered {said[:100]!r}, not a job id. Hint: is sbatch a wrapper?")
        return int(found[1])

    def job(self, job_id: int) -> JobInfo | None:
        """Return a job's state; None if Slurm has forgotten it, its accounting too where there is one."""
        try:
            text = self.call(["scontrol", "show", "job", str(job_id), "--oneliner"])
        except ExternalError as fault:
            if "Invalid job id" in str(fault):
                return self._accounted(job_id)
            raise
        return _job(text)

    def jobs(self) -> dict[int, JobInfo]:
        """Return all jobs that slurmctld has not forgotten, by id, with one question."""
        text = self.call(["scontrol", "show", "jobs", "--oneliner"])
        return {int(_field(line, "JobId")): _job(line) for line in text.splitlines() if _field(line, "JobId").isdigit()}

    def _accounted(self, job_id: int) -> JobInfo | None:
        """What the accounting knows of a job; None without an accounting, or where it does not know how the job ended.

        Slurm does not repair the record of a job that ended while slurmdbd was away (a "runaway job"): it says RUNNING
        for ever.
        """
        try:
            text = self.call(["sacct", "-X", "-n", "-P", "-j", str(job_id), "-o", "State,ExitCode,NodeList,Start,End"])
        except ExternalError:
            return None
        found = re.match(r"([A-Z_]+)[^|]*\|(\d+):(\d+)\|([^|\n]*)\|?([^|\n]*)\|?([^|\n]*)", text)
        if found is None or found[1] not in FINAL_STATES:
            return None
        nodes = "" if found[4].startswith("None") else found[4].strip()
        return JobInfo(found[1], "", int(found[2]), int(found[3]), nodes, _unix(found[5]), _unix(found[6]))

    def find(self, job_name: str) -> int | None:
        """The id of the job of this name that is queued or runs, or ended a moment ago, or None."""
        said = self.call(["squeue", "--noheader", "--states=all", f"--name={job_name}", "--format=%A"]).split()
        return max((int(one) for one in said if one.isdigit()), default=None)

    def controller_is_down(self) -> bool:
        """Whether slurmctld does not answer."""
        try:
            return " is UP" not in self.call(["scontrol", "ping"])
        except ExternalError:
            return True

    def groups(self) -> dict[str, str]:
        """Node -> the switch or block it hangs on by Slurm's topology, else by EC2's; empty where neither is known."""
        return self._switches() or leaves(self._addresses())

    def _addresses(self) -> dict[str, str]:
        lines = self.call(["scontrol", "show", "node", "--oneliner"]).splitlines()
        return {_field(line, "NodeName"): _field(line, "NodeAddr") for line in lines}

    def _switches(self) -> dict[str, str]:
        try:
            text = self.call(["scontrol", "show", "topology"])
        except ExternalError:
            return {}
        groups: dict[str, str] = {}
        for line in text.splitlines():
            name = _field(line, "SwitchName") or _field(line, "BlockName")
            if name and _field(line, "Level") in ("0", "") and _field(line, "Nodes"):
                groups.update(dict.fromkeys(self.expand(_field(line, "Nodes")), name))
        return groups

    def drain(self, node: str, reason: str) -> None:
        """Drain one node: what runs on it goes on, and nothing new starts. Raises ExternalError."""
        self.call(["scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}"])

    def cancel(self, job_id: int) -> None:
        """Cancel one job. Only ever called with ids that this run submitted."""
        self.call(["scancel", str(job_id)])

    def expand(self, hostlist: str) -> list[str]:
        """'gpu-[1-3]' -> ['gpu-1', 'gpu-2', 'gpu-3']."""
        return self.call(["scontrol", "show", "hostnames", hostlist]).split() if hostlist else []

    def version(self) -> str:
        """Slurm's version, such as 'slurm 25.11.8'."""
        return self.call(["scontrol", "--version"]).strip()


def submit_argv(script: Path, directory: Path, output: Path) -> list[str]:
    """The command line that submits a script; the same one is printed for repeating it by hand."""
    return ["sbatch", "--parsable", f"--chdir={directory}", f"--output={output}", str(script)]


def _field(line: str, name: str) -> str:
    found = re.search(rf"(?:^|\s){name}=(\S*)", line)
    return found[1] if found else ""


def _job(line: str) -> JobInfo:
    code, _, signal = _field(line, "ExitCode").partition(":")
    return JobInfo(
        state=_field(line, "JobState"),
        reason=_field(line, "Reason"),
        exit_code=int(code) if code.isdigit() else 0,
        signal=int(signal) if signal.isdigit() else 0,
        nodes=_field(line, "NodeList").replace("(null)", ""),
        started=_unix(_field(line, "StartTime")),
        ended=_unix(_field(line, "EndTime")),
        limit_s=_seconds(_field(line, "TimeLimit")),
    )


def _unix(text: str) -> float | None:
    """Slurm's local time such as 2026-11-29T05:00:00 as Unix time; None for Unknown, N/A and the like."""
    try:
        return time.mktime(time.strptime(text.strip(), "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def _seconds(text: str) -> int | None:
    """Slurm's time limit such as 1-02:03:04 in seconds; None for UNLIMITED and the like."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _node(line: str) -> Node:
    state = _field(line, "State")
    words = re.split(r"[+*]", state)
    troubles = [_BAD_STATES[word] for word in words if word in _BAD_STATES]
    if "*" in state and not troubles:
        troubles = ["not responding"]
    found = _REASON.search(line)
    return Node(
        name=_field(line, "NodeName"),
        state=state,
        trouble=" and ".join(dict.fromkeys(troubles)) or None,
        reason=found[1] if found else None,
        gres=_field(line, "Gres").replace("(null)", ""),
    )
