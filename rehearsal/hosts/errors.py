"""Errors of the local hosts: one tree, each message with place, value and what to do."""

from __future__ import annotations


class HostsError(Exception):
    """Base of every fault of the local hosts."""


class MachineUnfit(HostsError):
    """This machine cannot carry local hosts: a tool, a right or a mount is missing."""


class BootFailed(HostsError):
    """A local host did not come up. Carries the host's name and the last lines of its console."""

    def __init__(self, host: str, reason: str, console_tail: str) -> None:
        self.host = host
        self.console_tail = console_tail
        super().__init__(f"{host}: {reason}. Last lines of its console:\n{console_tail or '(nothing was printed)'}")


class SlurmNotReady(HostsError):
    """Slurm's services or nodes did not become ready in time."""


class NodeFailed(HostsError):
    """A custom action failed on a host.

    host: name of the host; script: its S3 address; rc: exit code (124: it ran out of time); step: the failing step,
    from the script's `slipway: FAULT` line, or None; tail: the last lines it printed; reason: what happened to it.
    """

    def __init__(self, host: str, script: str, rc: int, step: str | None, tail: list[str], reason: str) -> None:
        self.host = host
        self.script = script
        self.rc = rc
        self.step = step
        self.tail = tail
        self.reason = reason
        where = f"{host}: step {step}" if step else host
        lines = "\n".join(tail)
        super().__init__(f"{where}: {reason} ({script}, exit {rc}). Last lines:\n{lines or '(nothing was printed)'}")


def failure_line(error: HostsError) -> str:
    """The failure in one line, with the node's own words where it printed some: step or script, exit code, logs."""
    if not isinstance(error, NodeFailed):
        return str(error)
    logs = f"its logs: hosts/{error.host}.log"
    words = next((line.split("slipway: FAULT ", 1)[1] for line in error.tail if "slipway: FAULT " in line), "")
    if not words:
        printed = f"; it said: {error.tail[-1]}" if error.tail else ""
        return f"{error.host}: {error.script}: {error.reason} (exit {error.rc}){printed}; {logs}"
    details = " ".join(word for word in words.split(" ") if not word.startswith(("host=", "step=")))
    lines = [line.removeprefix("  | ") for line in error.tail if line.startswith("  | ") and "-hint: " not in line]
    reason = f"; it said: {lines[-1]}" if lines else ""
    return f"{error.host}: step {error.step}: {details}{reason}; {logs}"
