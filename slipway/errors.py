"""A fault names place, value, rule and repair; all faults are reported at once.

Exception tree:

    SlipwayError            an error that Slipway reports on purpose; its text is for the user
    |-- SettingsError       the settings file is wrong; carries every Fault
    |-- UsageError          the command was used wrongly (exit code 2)
    |-- EnvironmentFault    AWS, a tool or this machine did not answer (exit code 3)
    `-- Interrupted         the user pressed Ctrl-C (exit code 130)
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence

from slipway.text import visible, width_on_screen

EXIT_GOOD = 0
"""The answer is yes."""
EXIT_NO = 1
"""The answer is no: failed checks, failed acceptance, failed rehearsal."""
EXIT_USAGE = 2
"""Wrong use or bad input."""
EXIT_ENVIRONMENT = 3
"""The environment (AWS, a tool, this machine) did not answer."""
EXIT_INTERRUPTED = 130
"""The user pressed Ctrl-C."""
EXIT_PIPE = 141
"""The reader of the output has closed it: 128 and the number of SIGPIPE, as shells count it."""

MOST_FAULTS = 100
"""So many faults are shown on the screen; `--json` has all of them."""
NARROWEST = 24  # columns for a source line; on a narrower terminal it wraps
AROUND = 12  # characters of a long source line that are shown before the value


@dataclasses.dataclass(frozen=True)
class Fault:
    """An error in a settings file, or, with severity "warning", a doubt about it.

    `file`, `line` and `column` (1-based, 0 for the file as a whole) are the place, `path` is the key
    (`queues[0].count`), `value` its value (None: nothing), `rule` what is wrong, `hint` the repair. `rule_name` names
    the row of docs/checks.md. `source_line` is the text of the line with `length` characters to underline; it is empty
    if the line must not be shown.
    """

    file: str
    line: int
    path: str
    value: str | None
    rule: str
    hint: str = ""
    rule_name: str = ""
    severity: str = "fault"
    column: int = 0
    length: int = dataclasses.field(default=0, compare=False)
    source_line: str = dataclasses.field(default="", compare=False, repr=False)

    @property
    def message(self) -> str:
        """Everything but the place in the file and the rule's name."""
        subject = f"{self.path} = {self.value}" if self.value is not None and self.path else self.path
        text = ": ".join(part for part in (subject, self.rule) if part)
        return f"{text}. Hint: {self.hint}" if self.hint else text

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        kind = "warning: " if self.severity == "warning" else ""
        name = f" [{self.rule_name}]" if self.rule_name else ""
        return f"{place}: {kind}{self.message}{name}"

    def as_dict(self) -> dict[str, str | int | None]:
        """The fault for `--json`."""
        shown = dataclasses.asdict(self)
        del shown["length"], shown["source_line"]
        return shown

    def excerpt(self, columns: int) -> list[str]:
        """The line of the file and a line that underlines the value, at most `columns` wide; empty without a line."""
        text = visible(self.source_line)
        if not text.strip() or not self.column:
            return []
        margin = f"{self.line:>5} | "
        room = max(columns - len(margin), NARROWEST)
        start, length = self.column - 1, max(self.length, 1)
        cut = max(0, start - AROUND) if start + length > room else len(text) - len(text.lstrip())
        before, marked = text[cut:start], text[start : start + length]
        shown, underline = text[cut : cut + room], "^" * max(width_on_screen(marked), 1)
        indent = " " * width_on_screen(before)
        return [f"{margin}{shown}".rstrip(), f"{'|':>7} {indent}{underline}"[: len(margin) + room]]


def order(fault: Fault) -> tuple[int, int, str]:
    """The sort key that puts faults in the order of the file."""
    return (fault.line, fault.column, fault.path)


def fault_lines(faults: Sequence[Fault], columns: int | None = None) -> list[str]:
    """Return the faults as every command prints them: one line each, and the line of the file below it.

    `columns` is the width of the terminal; None asks the terminal.
    """
    columns = columns or shutil.get_terminal_size().columns
    lines = [line for fault in faults[:MOST_FAULTS] for line in (visible(str(fault)), *fault.excerpt(columns))]
    more = len(faults) - MOST_FAULTS
    return [*lines, f"and {more} more"] if more > 0 else lines


class SlipwayError(Exception):
    """An error that Slipway reports on purpose; the text is complete and for the user."""

    exit_code = EXIT_NO


class SettingsError(SlipwayError):
    """The settings file is wrong. `faults` holds every fault, in the order of the file."""

    exit_code = EXIT_USAGE

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(faults, key=order))
        super().__init__("\n".join(str(fault) for fault in self.faults))


class UsageError(SlipwayError):
    """The command was used wrongly."""

    exit_code = EXIT_USAGE


class EnvironmentFault(SlipwayError):
    """AWS, a tool or this machine did not answer, or lacks something; the text says what and how to get it."""

    exit_code = EXIT_ENVIRONMENT


class Interrupted(SlipwayError):
    """The user pressed Ctrl-C while the command ran."""

    exit_code = EXIT_INTERRUPTED


def error_lines(error: Exception | str) -> list[str]:
    """Return the lines that a command prints for `error`."""
    if isinstance(error, SettingsError):
        return fault_lines(error.faults)
    return [visible(line) for line in str(error).split("\n")][:MOST_FAULTS]
