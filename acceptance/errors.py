"""The exceptions of this package. Each carries the exit code that the command line gives for it."""

from __future__ import annotations


class AcceptanceError(Exception):
    """Anything that ends a command with a message for the user. The message says place, value, rule and repair."""

    exit_code = 3


class InputError(AcceptanceError):
    """The scenario, an argument or a run directory is wrong. Holds every fault that was found, one line each."""

    exit_code = 2

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class ExternalError(AcceptanceError):
    """Slurm, the file system or another tool did not do its part."""


class Interrupted(ExternalError):
    """The runner was told to stop (SIGINT or SIGTERM); its own jobs are cancelled on the way out."""
