"""How a fault is told: place, value, rule and repair, all faults at once.

Exception tree::

    SlipwayError            anything Slipway says on purpose; its text is for the user
    |-- SettingsError       the settings file is wrong; carries every Fault found
    |-- UsageError          the command was used wrongly (exit code 2)
    `-- EnvironmentFault    AWS, a tool or this machine did not answer (exit code 3)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

EXIT_GOOD = 0
"""The answer is yes."""
EXIT_NO = 1
"""The answer is no: failed checks, failed acceptance, failed rehearsal."""
EXIT_USAGE = 2
"""Wrong use or bad input."""
EXIT_ENVIRONMENT = 3
"""The environment (AWS, a tool, this machine) did not answer."""
EXIT_INTERRUPTED = 130
"""Somebody pressed Ctrl-C."""
EXIT_PIPE = 141
"""Whoever read the output has closed it: 128 and the number of SIGPIPE, as shells count it."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing wrong with a settings file, or, with severity "warning", one thing to know.

    ``file`` and ``line`` (1-based, 0 when the file as a whole is meant) give the place, ``path`` the key
    (``queues[0].count``), ``value`` what stands there (None: nothing), ``rule`` what should, ``hint`` the repair.
    ``rule_name`` names the row of ``slipway.settings.rules.RULES`` that says why.
    """

    file: str
    line: int
    path: str
    value: str | None
    rule: str
    hint: str = ""
    rule_name: str = ""
    severity: str = "fault"

    @property
    def message(self) -> str:
        """Everything but the place in the file and the rule's name."""
        subject = f"{self.path} = {self.value}" if self.value is not None and self.path else self.path
        text = ": ".join(part for part in (subject, self.rule) if part)
        return f"{text}. Hint: {self.hint}" if self.hint else text

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        kind = "warning: " if self.severity == "warning" else ""
        name = f" [{self.rule_name}]" if self.rule_name else ""
        return f"{place}: {kind}{self.message}{name}"

    def as_dict(self) -> dict[str, str | int | None]:
        """The fault for ``--json``."""
        return dataclasses.asdict(self)


class SlipwayError(Exception):
    """Anything Slipway says on purpose; the text is complete and for the user."""

    exit_code = EXIT_NO


class SettingsError(SlipwayError):
    """The settings file is wrong. ``faults`` holds every fault found, in the order of the file."""

    exit_code = EXIT_USAGE

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: (fault.line, fault.path)))
        super().__init__("\n".join(str(fault) for fault in self.faults))


class UsageError(SlipwayError):
    """The command was used wrongly."""

    exit_code = EXIT_USAGE


class EnvironmentFault(SlipwayError):
    """AWS, a tool or this machine did not answer, or lacks something; the text says what and how to get it."""

    exit_code = EXIT_ENVIRONMENT
