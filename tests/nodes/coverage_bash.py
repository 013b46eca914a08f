"""Line coverage of the node scripts' bash: what can run, what ran, and whether that is enough.

What can run is found by a scanner of bash that knows quotes, substitutions, arrays, conditions, here-documents and
continued lines. What ran comes from bash itself: trace.sh makes each one write file and line of every command (xtrace
to a file of its own). A command over several lines is one unit; bash reports its first or its last line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDERS = ("nodes", "headnode", "compute")
LEAST_PERCENT = 95.0
SOMETIMES = "sometimes: "
_TRACED = re.compile(rb"\+@@([^@\n]+)@(\d+)@ ")
_HEREDOC = re.compile(r"<<(-?)\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")
_FUNCTION = re.compile(r"(?:function\s+)?[A-Za-z_][\w:.-]*\s*\(\s*\)|function\s+[\w:.-]+")
_OPENS = re.compile(r"(?:if|elif|while|until|then|do|else|time|!|\{|\(|;;&|;;|;&|;)(?=\s|$|\()")
_CLOSES = re.compile(r"(?:fi|done|esac|\}|\))(?=\W|$)")
_SEPARATOR = re.compile(r"\|\||&&|\||;|(?<![<>])&(?!>)")
# Inside these a newline ends no command.
_JOINING = frozenset({"'", '"', "array", "arithmetic", "substitution", "condition", "parameter"})


@dataclass(frozen=True)
class Unit:
    """Commands that bash may report by any of the lines first to last (counted from 1); text is the first line's."""

    first: int
    last: int
    text: str


@dataclass
class Scanner:
    """Splits bash text into units. ValueError: text that it cannot follow, or whose lines bash would misreport."""

    text: str
    place: int = 0
    line: int = 1
    stack: list[str] = field(default_factory=list)
    pending: list[tuple[str, bool]] = field(default_factory=list)
    code: str = ""

    def units(self) -> Iterator[tuple[int, int, str]]:
        """Each stretch of joined lines: first line, last line, its text without comments and here-documents."""
        first = self.line
        while self.place < len(self.text):
            if self._newline_ends_unit():
                yield first, self.line - 1, self.code
                first, self.code = self.line, ""
        if self.stack and self.stack != ["paren"] * len(self.stack):
            raise ValueError(f"line {first}: {self.stack[-1]} is never closed")
        if self.code.strip():
            yield first, self.line, self.code

    def _newline_ends_unit(self) -> bool:
        """Take one token; True when it was a newline between two units."""
        rest = self.text[self.place :]
        top = self.stack[-1] if self.stack else ""
        if rest[0] == "\n":
            return self._newline(top)
        if top == "'":
            self._until_quote(rest)
        elif rest[0] == "\\":
            self.line += rest[1:2] == "\n"
            self._take(2)
        elif top == '"':
            self._in_double_quotes(rest)
        else:
            self._in_code(rest, top)
        return False

    def _take(self, count: int) -> None:
        self.code += self.text[self.place : self.place + count]
        self.place += count

    def _newline(self, top: str) -> bool:
        self._take(1)
        self.line += 1
        for word, tabs in self.pending:
            self._skip_document(word, tabs)
        self.pending.clear()
        if top == "substitution":
            raise ValueError(
                f"line {self.line - 1}: bash misreports the lines of a $(...) over several lines: use a function"
            )
        return top not in _JOINING

    def _skip_document(self, word: str, tabs: bool) -> None:
        while self.place < len(self.text):
            end = self.text.find("\n", self.place)
            end = len(self.text) if end < 0 else end
            body = self.text[self.place : end]
            self.place, self.line = end + 1, self.line + 1
            if (body.lstrip("\t") if tabs else body) == word:
                return
        raise ValueError(f"line {self.line}: the here-document {word} is never closed")

    def _until_quote(self, rest: str) -> None:
        if rest[0] == "'":
            self.stack.pop()
        self._take(1)

    def _in_double_quotes(self, rest: str) -> None:
        if rest[0] == '"':
            self.stack.pop()
            self._take(1)
        elif not self._expansion(rest):
            self._take(1)

    def _expansion(self, rest: str) -> bool:
        for opening, kind in (("$((", "arithmetic"), ("$(", "substitution"), ("${", "parameter")):
            if rest.startswith(opening):
                self.stack.append(kind)
                self._take(len(opening))
                return True
        return False

    def _in_code(self, rest: str, top: str) -> None:
        before = self.code[-1:]
        word_starts = before in ("", "\n") or before in " \t;&|("
        if rest[0] == "#" and word_starts and top not in ("arithmetic", "parameter"):
            end = self.text.find("\n", self.place)
            self.place = len(self.text) if end < 0 else end
        elif rest[0] in "'\"":
            self.stack.append(rest[0])
            self._take(1)
        elif rest.startswith("$'"):
            self._ansi_quote()
        elif self._expansion(rest) or self._closing(rest, top):
            pass
        elif top not in ("arithmetic", "parameter") and (found := _HEREDOC.match(rest)) and before != "<":
            self.pending.append((found[3], found[1] == "-"))
            self._take(found.end())
        else:
            self._opening(rest, before, word_starts)

    def _ansi_quote(self) -> None:
        end = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL).match(self.text, self.place)
        if end is None:
            raise ValueError(f"line {self.line}: $' is never closed")
        self.line += end[0].count("\n")
        self._take(len(end[0]))

    def _closing(self, rest: str, top: str) -> bool:
        ends = {
            "arithmetic": "))",
            "parameter": "}",
            "condition": "]]",
            "substitution": ")",
            "array": ")",
            "paren": ")",
        }
        if top in ends and rest.startswith(ends[top]):
            self.stack.pop()
            self._take(len(ends[top]))
            return True
        return False

    def _opening(self, rest: str, before: str, word_starts: bool) -> None:
        kind, count = "", 1
        if rest.startswith("((") and word_starts:
            kind, count = "arithmetic", 2
        elif rest.startswith("[[") and word_starts and rest[2:3].isspace():
            kind, count = "condition", 2
        elif rest[:2] in ("<(", ">("):
            kind, count = "substitution", 2
        elif rest[0] == "(":
            # "name()" is a function's head; the brackets of patterns and of arithmetic close as they open.
            kind = "array" if before == "=" else "paren"
        if kind:
            self.stack.append(kind)
        self._take(count)


def _label_end(code: str) -> int:
    """Where the label of a case branch ends (behind its bracket), or 0: the first bracket is a closing one."""
    quote = ""
    for position, letter in enumerate(code):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "(" and position:
            return 0
        elif letter == ")":
            return position + 1
    return 0


def can_run(code: str) -> bool:
    """Whether a unit holds a command: more than words of structure, labels, redirections and function heads."""
    code = code.strip()
    while code:
        closing = _CLOSES.match(code)
        opening = _FUNCTION.match(code) or _OPENS.match(code)
        if closing is not None:
            separator = _SEPARATOR.search(code, closing.end())
            code = code[separator.end() :].strip() if separator else ""
        elif opening is not None:
            code = code[opening.end() :].strip()
        elif end := _label_end(code):
            code = code[end:].strip()
        else:
            return True
    return False


def units(text: str) -> list[Unit]:
    """The units of a script that hold a command."""
    lines = text.splitlines()
    found = []
    for first, last, code in Scanner(text).units():
        if can_run(code):
            # Comment lines in front of a command belong to no unit: each ends at its own newline.
            found.append(Unit(first, last, lines[first - 1].strip()))
    return found


def scripts(root: Path) -> list[Path]:
    """Every bash or sh file below the three folders, by suffix or by its first line."""
    found = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if not path.is_file() or "__pycache__" in path.parts:
                continue
            head = path.read_bytes()[:40].partition(b"\n")[0]
            if path.suffix == ".sh" or re.search(rb"^#!.*\b(ba)?sh$|shellcheck shell=", head):
                found.append(path.relative_to(root))
    return found


def executed(trace: Path, known: list[Path]) -> dict[Path, set[int]]:
    """The lines that ran, a file; installed copies count for the script they are a copy of, by path or by name."""
    seen = set(_TRACED.findall(trace.read_bytes()))
    names: dict[str, list[Path]] = {}
    for script in known:
        names.setdefault(script.name, []).append(script)
    ran: dict[Path, set[int]] = {script: set() for script in known}
    for place, line in seen:
        path = Path(place.decode(errors="replace"))
        same = names.get(path.name, [])
        exact = [script for script in same if str(path).endswith(f"/{script}")]
        for script in exact or (same if len(same) == 1 else []):
            ran[script].add(int(line))
    return ran


def exclusions(table: Path) -> dict[tuple[Path, str], str]:
    """The lines of uncovered.tsv: (file, text of the line) -> reason."""
    found = {}
    for number, line in enumerate(table.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        cells = line.split("\t")
        if len(cells) != 3 or not all(cells):
            raise ValueError(f"{table}:{number}: not FILE, TEXT OF THE LINE, REASON separated by tabs")
        found[Path(cells[0]), cells[1]] = cells[2]
    return found


@dataclass
class Verdict:
    """What the traces say. missed: file -> units that did not run and have no reason; excluded: how many have one;
    unused: reasons of lines that ran or are gone."""

    total: dict[Path, int]
    missed: dict[Path, list[Unit]]
    excluded: int
    unused: list[str]

    @property
    def percent(self) -> float:
        """Units that ran, in percent of all, also of those that have a reason not to."""
        total = sum(self.total.values())
        return 100.0 * (total - self.excluded - sum(map(len, self.missed.values()))) / total if total else 100.0

    def table(self) -> str:
        """One line a file, then what did not run, then the whole."""
        lines = []
        for script, total in self.total.items():
            missed = self.missed.get(script, [])
            lines.append(
                f"{100 * (total - len(missed)) / max(total, 1):5.1f} %  {total - len(missed):4d}/{total:<4d} {script}"
            )
            lines += [f"           {script}:{unit.first}: {unit.text}" for unit in missed]
        whole = (
            f"bash coverage {self.percent:.1f} % of {sum(self.total.values())} lines (at least {LEAST_PERCENT:.0f} %)"
        )
        missed = sum(map(len, self.missed.values()))
        return "\n".join([*lines, f"{whole}, {self.excluded} not run with a reason, {missed} without"])


def judge(root: Path, trace: Path, table: Path) -> Verdict:
    """Hold the traces against every script of the three folders and against the exclusions."""
    known = scripts(root)
    ran, allowed = executed(trace, known), exclusions(table)
    total: dict[Path, int] = {}
    missed: dict[Path, list[Unit]] = {}
    used: set[tuple[Path, str]] = set()
    there: set[tuple[Path, str]] = set()
    excluded = 0
    for script in known:
        found = units((root / script).read_text(encoding="utf-8"))
        total[script] = len(found)
        there |= {(script, unit.text) for unit in found}
        for unit in found:
            if not ran[script].isdisjoint(range(unit.first, unit.last + 1)):
                continue
            if (script, unit.text) in allowed:
                used.add((script, unit.text))
                excluded += 1
            else:
                missed.setdefault(script, []).append(unit)
    # A line that only some runs come to has a reason that says so.
    unused = [
        f"{script}: {text}"
        for (script, text), reason in allowed.items()
        if (script, text) not in used and not (reason.startswith(SOMETIMES) and (script, text) in there)
    ]
    return Verdict(total, missed, excluded, unused)
