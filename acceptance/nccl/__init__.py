"""Reading what nccl-tests printed: text of every era, or JSON. Nothing here raises because of what a file holds."""

from __future__ import annotations

import errno
import io
import os
import queue
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from acceptance.nccl.decode import plain_chunks, without_escapes
from acceptance.nccl.jsonlog import looks_like_json, read_json
from acceptance.nccl.model import (
    BadRow,
    Device,
    Failure,
    HostNetwork,
    IterationTimes,
    Log,
    Network,
    Row,
    Side,
    Table,
    merged,
)
from acceptance.nccl.textlog import TextReader

__all__ = [
    "BadRow",
    "Device",
    "Failure",
    "HostNetwork",
    "IterationTimes",
    "Log",
    "Network",
    "Row",
    "Side",
    "Table",
    "merged",
    "parse_bytes",
    "parse_file",
    "parse_stream",
]

_CHUNK = 1 << 18  # bytes read at once; larger ones leave the processor's cache
_LONGEST_REST = (1 << 16) + 2  # bytes of a line that are kept from chunk to chunk: more than are read of one
WRITER_S = 10.0  # the longest wait for a program that opens a named pipe to write


def parse_file(path: Path) -> Log:
    """Read one file, text or JSON; `-` is standard input. Raises OSError where it cannot be read, or has no end."""
    if str(path) == "-":
        if sys.stdin is None:
            raise OSError(errno.EBADF, "standard input is closed")
        return _parse_open(sys.stdin.buffer)
    is_pipe = stat.S_ISFIFO(path.stat().st_mode)
    with _open_pipe(path) if is_pipe else path.open("rb", buffering=0) as stream:
        return _parse_open(stream)


def _parse_open(stream: BinaryIO | io.RawIOBase) -> Log:
    """Read what is open. A device, as /dev/zero, may have no end; a terminal has, and /dev/null is empty."""
    kind = os.fstat(stream.fileno())
    if stat.S_ISCHR(kind.st_mode) and not stream.isatty() and kind.st_rdev != Path(os.devnull).stat().st_rdev:
        raise OSError(errno.EINVAL, "a device, which has no end")
    return parse_stream(stream)


def _open_pipe(path: Path) -> io.FileIO:
    """Open a named pipe, which waits for a program that writes. Raises OSError if none does within WRITER_S."""
    opened: queue.Queue[io.FileIO] = queue.Queue()
    threading.Thread(target=lambda: opened.put(io.FileIO(path)), daemon=True).start()
    try:
        return opened.get(timeout=WRITER_S)
    except queue.Empty:
        raise OSError(errno.ENXIO, f"no program opened this pipe to write within {WRITER_S:.0f} s") from None


def parse_bytes(data: bytes) -> Log:
    """Read a log that is in memory."""
    return parse_stream(io.BytesIO(data))


def parse_stream(*streams: BinaryIO | io.RawIOBase) -> Log:
    """Read a log from a binary stream, of any size, with constant memory; or from several, one after another.

    Where the streams can be read again, a complete log is read once and quickly; any other is read again, thoroughly.
    """
    starts = [stream.tell() for stream in streams] if all(stream.seekable() for stream in streams) else None
    first, chunks = _plain(streams)
    if looks_like_json(first):
        return read_json(_again(first, chunks))
    reader = _read_text(_again(first, chunks), thorough=starts is None)
    log = reader.end()
    if starts is not None and (reader.doubtful or not log.complete):
        for stream, start in zip(streams, starts):
            stream.seek(start)
        log = _read_text(_again(*_plain(streams)), thorough=True).end()
    return log


def _plain(streams: Sequence[BinaryIO | io.RawIOBase]) -> tuple[bytes, Iterator[bytes]]:
    chunks = _joined(streams)
    return plain_chunks(next(chunks, b""), chunks)


def _joined(streams: Sequence[BinaryIO | io.RawIOBase]) -> Iterator[bytes]:
    """Read one stream after another; each begins a new line."""
    for number, stream in enumerate(streams):
        if number:
            yield b"\n"
        yield from _chunks(stream)


def _read_text(chunks: Iterator[bytes], thorough: bool) -> TextReader:
    reader = TextReader()
    for block, ended in _blocks(chunks):
        reader.block(without_escapes(block), ended, thorough)
    return reader


def _chunks(stream: BinaryIO | io.RawIOBase) -> Iterator[bytes]:
    """Read a stream; a pipe gives little at a time, so what it gives is gathered."""
    pieces, length = [], 0
    while True:
        piece = stream.read(_CHUNK)
        if not piece:
            break
        pieces.append(piece)
        length += len(piece)
        if length >= _CHUNK:
            yield pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces, length = [], 0
    if pieces:
        yield b"".join(pieces)


def _again(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from chunks


def _blocks(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Cut chunks at line ends; return blocks for `telling_lines`, and whether their last line had its line end.

    An overlong line, one longer than a chunk even, keeps its first part only.
    """
    rest = b"\n"
    for chunk in chunks:
        end = chunk.rfind(b"\n")
        if end < 0:
            rest = (rest + chunk)[:_LONGEST_REST]
            continue
        yield b"".join((rest, memoryview(chunk)[:end])), True
        rest = chunk[end : end + _LONGEST_REST]
    if len(rest) > 1:
        yield rest, False
