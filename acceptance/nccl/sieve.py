"""Finding the few telling lines of a debug log without touching each line.

A log written with NCCL_DEBUG=INFO has millions of lines such as `HOST:PID:TID [0] NCCL INFO Channel 00/0 : 1[1] -> ...`
that say nothing of the tests and next to nothing of the network. A handful of searches over a whole block, each at half
a GB/s to four, name the lines that are not of that kind. A block has its line ends in front of its lines:
b"\\nfirst\\nsecond".

A dull line can hide something: where processes write through pipes, a buffer's size can cut a line, and the text after
the cut is another process's. `quick_lines` finds failures there, but not every row. Then rows are missing, or the rest
of the cut line is on a separate line; in either case the caller reads the log again with `thorough_lines`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from acceptance.nccl.network import OTHER_MESSAGE, SIZE_MESSAGE

# A line: host, size and message of NCCL where it says something about the network; or the line itself, if not dull.
Entry = tuple[bytes, bytes, bytes, bytes]

# Dull by their first letter; dull and very many; and dull because they are none of the telling messages.
_DULL = (
    rb"\[\d+\] NCCL INFO (?:[^UNcn\n]|NET/OFI (?:Libfabric provider a|NIC group)"
    rb"|(?!comm |ncclComm|" + OTHER_MESSAGE + rb"))"
)
_TRACE = rb"\[\d+\] \S+ \S+ NCCL TRACE "
# What launchers put before a line: srun -l, kubectl --prefix or NCCL's own time, mpirun --timestamp-output, ISO times.
_PREFIX = (
    rb"(?: *\d+: |\[[^]\n]{1,199}\] |[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}(?=<)"
    rb"|\d{4}-\d\d-\d\dT[\d:.]+\S* |[A-Za-z][\w.-]*(?:: | +\| ))?"
)
_SAYS = rb"(\S+?):\d+:\d+ \[\d+\] NCCL INFO (?:" + SIZE_MESSAGE + rb"|(" + OTHER_MESSAGE + rb"[^\n]*))|([^\n]*))"
# A dull line has no text before the host's name and its words apart by one space; a row's pieces begin with two.
_PLAIN = re.compile(rb"\n(?!\S+ " + _DULL + rb")(?:" + _SAYS)
_PREFIXED = re.compile(rb"\n(?!" + _PREFIX + rb"\S+ (?:" + _DULL + rb"|" + _TRACE + rb"))(?:" + _PREFIX + _SAYS)
# What another process may have written behind a cut line: a failure, a word of srun.
_MARKS = (b"error: ", b"Test ")
# And further: "Collective test ...", the count of wrong values, the lead of a row, a device, a footer.
_MORE_MARKS = (*_MARKS, b"est ", b"Out of bounds", b"Invalid number")
_SEARCHES = tuple(re.compile(mark) for mark in _MARKS)  # up to 1.6 times as fast as `in`
_WIDE = re.compile(rb"  [bcdfhiuRs:]")
_NOT_CLEAN = re.compile(rb"\n(?!\S+ \[\d+\] NCCL INFO )")


def hides_a_failure(block: bytes) -> bool:
    """Whether `block` may contain a failure, perhaps after a cut line: then it is read thoroughly."""
    return any(mark.search(block) for mark in _SEARCHES)


def quick_lines(block: bytes) -> list[Entry]:
    """Return the lines of `block` that say something, in order; for a block in which nothing is hidden."""
    entries: list[Entry] = _PLAIN.findall(block)
    if len(entries) > 200 and sum(not host for host, _, _, _ in entries) > len(entries) // 2:
        entries = _PREFIXED.findall(block)  # the lines have a prefix: look past it
    return entries


def thorough_lines(block: bytes) -> Iterator[bytes]:
    """Return the lines of `block` that are about the tests, in order, and the text after a cut dull line."""
    starts = {found.start() for found in _NOT_CLEAN.finditer(block)}
    starts.update(block.rfind(b"\n", 0, found.start()) for found in _WIDE.finditer(block))
    for mark in _MORE_MARKS:
        at = block.find(mark)
        while at >= 0:
            starts.add(block.rfind(b"\n", 0, at))
            end = block.find(b"\n", at)
            at = block.find(mark, end) if end >= 0 else -1
    for start in sorted(starts):
        end = block.find(b"\n", start + 1)
        yield block[start + 1 :] if end < 0 else block[start + 1 : end]
