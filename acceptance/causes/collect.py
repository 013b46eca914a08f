"""Collecting the causes of a whole log: each once, with the hosts that reported it and how often."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from acceptance.causes.table import Cause, cause_of, known_causes
from acceptance.text import named, printable

WARNING = "nccl-warning"  # the id of a finding that is an NCCL warning without a row in the table
_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,252}):(?:\d{1,10}:\d{1,10} \[\d{1,5}\] | Test \w+ failure )")
_WARN = re.compile(r"NCCL WARN (.{1,300})")
_MOST = 10_000  # different pairs of a cause and a host
_MOST_HOSTS = 3  # named in a sentence
_LONGEST_LINE = 400  # characters of a line that are kept


@dataclass(frozen=True)
class Finding:
    """A cause that a log contains. hosts: who reported it, or whom the line names; count: how many lines.

    weak, note: as in Cause. line: the first line that showed it.
    """

    id: str
    cause: str
    repair: str
    source: str
    hosts: tuple[str, ...]
    count: int
    line: str
    weak: bool = False
    note: bool = False

    @property
    def where(self) -> str:
        """The hosts, as the start of a sentence; empty if the cause itself names them, or no host is known."""
        if not self.hosts or (len(self.hosts) == 1 and self.hosts[0] in self.cause):
            return ""
        return f"{named(self.hosts, _MOST_HOSTS, 'more host')}: "

    @property
    def what(self) -> str:
        """The cause in one sentence, with the hosts and how often."""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.where}{self.cause}{times}"

    @property
    def text(self) -> str:
        """The cause and the repair."""
        return f"{self.what}. Hint: {self.repair}" if self.repair else self.what


@dataclass
class _Seen:
    """The lines of one cause: its row, the words of the first line, and the hosts."""

    cause: Cause | None
    what: str
    repair: str
    line: str
    hosts: dict[str, None] = field(default_factory=dict)
    count: int = 0


class CauseReader:
    """Takes the lines of a log one by one; `end` returns what they say about the cause of a failure."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen] = {}  # by id, and by the words of a warning without a row
        self._warned: set[str] = set()  # hosts whose first warning without a row is kept
        self._pairs: set[tuple[str, str]] = set()

    def line(self, text: str, host: str | None = None) -> None:
        """Note what a line says. host: who printed it, where that is known from elsewhere."""
        found = cause_of(text)
        if found is not None:
            self._note(found[0], found[1], text, host)
        elif "NCCL WARN" in text:
            self._warning(text)

    def _note(self, cause: Cause, match: re.Match[str], text: str, host: str | None) -> None:
        groups = match.groupdict()
        host = groups.get("host") or groups.get("host2") or host or _host_of(text)
        if cause.anonymous:
            host = None
        # Each rank repeats what NCCL says for information: such a line counts once a host.
        if (cause.first or "NCCL INFO" in text) and (cause.id, host or "") in self._pairs:
            return
        if "NCCL INFO" in text:
            text = f"{host or '?'}: {text[text.rindex('NCCL INFO') :]}"
        words = _fill(cause.cause, groups)
        key = (cause.id, words if "{" in cause.cause else "")
        self._add(key, _Seen(cause, words, _fill(cause.repair, groups), printable(text)[:_LONGEST_LINE]), host)

    def _warning(self, text: str) -> None:
        host, warn = _host_of(text) or "", _WARN.search(text)
        if warn is None or host in self._warned:
            return
        self._warned.add(host)
        words = f"NCCL warned: {printable(warn[1])}"
        self._add((WARNING, words), _Seen(None, words, "", printable(text)[:_LONGEST_LINE]), host or None)

    def _add(self, key: tuple[str, str], new: _Seen, host: str | None) -> None:
        if len(self._pairs) >= _MOST and (key[0], host or "") not in self._pairs:
            return
        self._pairs.add((key[0], host or ""))
        seen = self._seen.setdefault(key, new)
        if host and not seen.hosts:
            seen.line = new.line  # a line that names its host says more
        if host:
            seen.hosts[host] = None
        seen.count += 1

    def end(self, exits: Mapping[str, set[int]], with_provider: set[str]) -> list[Finding]:
        """Return the findings: roots first, then what follows from them, then notes; each in the table's order.

        exits: the exit codes of each host's tasks; with_provider: the hosts whose network plugin chose a provider.
        """
        kept = [seen for seen in self._seen.values() if not _is_void(seen, with_provider)]
        ids = {seen.cause.id for seen in kept if seen.cause}
        kept = [seen for seen in kept if seen.cause is None or not ids & set(seen.cause.implied_by)]
        order = {cause.id: number for number, cause in enumerate(known_causes())}
        findings = [_finding(seen, exits) for seen in kept]
        rank = {seen.cause.id: seen.cause.rank for seen in kept if seen.cause}
        return sorted(findings, key=lambda one: (rank.get(one.id, 0), order.get(one.id, len(order))))


def _is_void(seen: _Seen, with_provider: set[str]) -> bool:
    """Whether the network plugin chose a provider after all, on every host that reported the failure."""
    if seen.cause is None or not seen.cause.plugin or not with_provider:
        return False
    return not seen.hosts or set(seen.hosts) <= with_provider


def _finding(seen: _Seen, exits: Mapping[str, set[int]]) -> Finding:
    cause, hosts = seen.cause, list(seen.hosts)
    if cause is None:
        return Finding(WARNING, seen.what, "", "", tuple(hosts), seen.count, seen.line)
    if not hosts and cause.exit_code is not None:
        hosts = [host for host, codes in exits.items() if cause.exit_code in codes]
    return Finding(
        cause.id,
        seen.what,
        seen.repair,
        cause.source,
        tuple(hosts),
        seen.count,
        seen.line,
        cause.weak,
        cause.note,
    )


def _host_of(text: str) -> str | None:
    found = _HOST.search(text)
    return found[1] if found else None


def _fill(template: str, groups: Mapping[str, str | None]) -> str:
    """Put the groups of a match into a sentence; NCCL's number of a version (22707) becomes 2.27.7."""
    for name, value in groups.items():
        shown = value or "?"
        if name in ("version", "version2") and shown.isdigit():
            shown = nccl_version(int(shown))
        template = template.replace("{" + name + "}", printable(shown))
    return template


def nccl_version(code: int) -> str:
    """22807 -> 2.28.7 (NCCL's own coding since 2.9)."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
