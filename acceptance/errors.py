"""The exceptions of this package. Each carries the exit code that the command line gives for it."""

from __future__ import annotations

EXIT_GOOD = 0
EXIT_NO = 1  # the answer is no: not accepted, degraded, not complete
EXIT_INPUT = 2
EXIT_ENVIRONMENT = 3
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141  # the reader of the output is gone


class AcceptanceError(Exception):
    """Anything that ends a command with a message for the user. The message says place, value, rule and repair."""

    exit_code = EXIT_ENVIRONMENT


class InputError(AcceptanceError):
    """The scenario, an argument or a run directory is wrong. Contains every fault, one line each."""

    exit_code = EXIT_INPUT

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class ExternalError(AcceptanceError):
    """Slurm, the file system or another tool did not do its part."""


class Interrupted(ExternalError):
    """The runner received SIGINT, SIGTERM or SIGHUP; it cancels its jobs before it ends."""

    exit_code = EXIT_INTERRUPTED
