"""Reading what nccl-tests printed: text of every era, or JSON. Nothing here raises because of what a file holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from acceptance.nccl.jsonlog import read_json
from acceptance.nccl.model import BadRow, Device, Failure, HostNetwork, Log, Network, Row, Side, Table
from acceptance.nccl.network import is_dull
from acceptance.nccl.text import TextReader

__all__ = [
    "BadRow",
    "Device",
    "Failure",
    "HostNetwork",
    "Log",
    "Network",
    "Row",
    "Side",
    "Table",
    "parse_bytes",
    "parse_file",
    "parse_stream",
]

_CHUNK = 1 << 20  # bytes read at once
_LONGEST_LINE = 1 << 16  # bytes of a line that are kept; nothing of interest stands behind them
_LONGEST_JSON = 64 << 20  # bytes; a sweep's JSON file has some ten thousand


def parse_file(path: Path) -> Log:
    """Read one file, text or JSON. Raises OSError where it cannot be read."""
    with path.open("rb") as stream:
        return parse_stream(stream)


def parse_bytes(data: bytes) -> Log:
    """Read a log that is in memory."""
    if data.lstrip()[:1] == b"{":
        log = read_json(data[:_LONGEST_JSON].decode("utf-8", "replace"))
        if log is not None:
            return log
    reader = TextReader()
    for line, ended in _lines(iter([data])):
        reader.line(line, ended)
    return reader.end()


def parse_stream(stream: BinaryIO) -> Log:
    """Read a log from a binary stream with constant memory (JSON: up to 64 MiB)."""
    first = stream.read(_CHUNK)
    if first.lstrip()[:1] == b"{":
        first += stream.read(_LONGEST_JSON - len(first))
        log = read_json(first.decode("utf-8", "replace"))
        if log is not None:
            return log
    reader = TextReader()
    for line, ended in _lines(_chunks(first, stream)):
        reader.line(line, ended)
    return reader.end()


def _chunks(first: bytes, stream: BinaryIO) -> Iterator[bytes]:
    yield first
    while True:
        chunk = stream.read(_CHUNK)
        if not chunk:
            return
        yield chunk


def _lines(chunks: Iterator[bytes]) -> Iterator[tuple[str, bool]]:
    """Split chunks into lines; give each with whether it had its line end. Overlong lines lose their tail.

    Lines of a debug log that say nothing of interest, nearly all of it, are passed over here.
    """
    rest = b""
    for chunk in chunks:
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        for line in lines:
            if is_dull(line):
                continue
            yield line[:_LONGEST_LINE].decode("utf-8", "replace"), len(line) <= _LONGEST_LINE
        rest = rest[:_LONGEST_LINE]
    if rest:
        yield rest.decode("utf-8", "replace"), False
