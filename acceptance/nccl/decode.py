"""Files that are not plain text: UTF-16, the JSON lines of container engines, colour codes."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator

_ESCAPE = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_TEXT_KEYS = ("log", "message", "msg", "MESSAGE", "line")  # Docker; CloudWatch, Fluent Bit; journald; Loki
_JSON_LINE = re.compile(rb'\s*\{.*"(?:log|message|msg|MESSAGE|line)"\s*:\s*"')
_LONGEST_LINE = 1 << 20  # bytes of a line of JSON; Docker cuts a program's lines at 16 kB


def plain_chunks(first: bytes, chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return a log's first chunk and the others as plain text, whatever wrote the file."""
    encoding = _utf_16(first)
    if encoding:
        chunks = _decoded(encoding, first, chunks)
        first = next(chunks, b"")
    line = first.partition(b"\n")[0]
    if _JSON_LINE.match(line) and _text_of(line) is not None:
        chunks = _from_json_lines(first, chunks)
        first = next(chunks, b"")
    return first, chunks


def without_escapes(block: bytes) -> bytes:
    """Return a block without the codes that colour a terminal."""
    return _ESCAPE.sub(b"", block) if b"\x1b" in block else block


def _utf_16(first: bytes) -> str | None:
    """The encoding, if the file is UTF-16: by its mark, else by the zero in every other byte."""
    if first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    head = first[:64]
    if len(head) < 16:
        return None
    even, odd = head[0::2].count(0), head[1::2].count(0)
    return "utf-16-le" if not even and odd > 24 else "utf-16-be" if not odd and even > 24 else None


def _decoded(encoding: str, first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first).replace("\r\n", "\n").encode()
    for chunk in chunks:
        yield decoder.decode(chunk).replace("\r\n", "\n").encode()


def _from_json_lines(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = first
    while True:
        *lines, rest = rest.split(b"\n")
        if lines:
            yield b"".join(map(_plain_line, lines))
        chunk = next(chunks, None)
        if chunk is None:
            break
        rest = rest[:_LONGEST_LINE] + chunk
    if rest:
        yield _plain_line(rest)


def _plain_line(line: bytes) -> bytes:
    text = _text_of(line)
    return line + b"\n" if text is None else text.encode("utf-8", "replace")


def _text_of(line: bytes) -> str | None:
    """The program's text in a line of JSON; None if the line is something else.

    Docker keeps the line's end in its text, and writes a part of a long line without one; others leave it out.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    key = next((key for key in _TEXT_KEYS if isinstance(value.get(key), str)), None)
    if key is None:
        return None
    return value[key] if key == "log" and "stream" in value else f"{value[key].rstrip()}\n"
