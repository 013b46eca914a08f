"""The JSON file that nccl-tests 2.17.3 and newer writes with `-J`, read piece by piece: with `-I 1` it has no bound.

It differs from ordinary JSON: booleans are the words "true" and "false", the root is a padded string, inf is bare and
nan a word, `-C 1` renames the time, and a program that dies leaves the file open. Its `env` list is the whole
environment, secrets included: see environment.py.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from acceptance.causes import CauseReader, nccl_version
from acceptance.nccl.environment import kept_environment
from acceptance.nccl.model import BadRow, Device, Failure, IterationTimes, Log, Row, Side, Table, count_sizes

_BARE = re.compile(r"(?<=[:,\[])(\s*)(-?)(inf|nan)(?=\s*[,}\]])")
_KEYS = re.compile(rb'"(?:start_time|nccl_version|config|results)"\s*:')
_NAME = re.compile(r"([a-z_]+)_perf$")
_BETWEEN = " \t\r\n,"
_LONGEST_VALUE = 64 << 20  # characters of one value; a result with the times of 1,000 ranks x 1,000 iterations: 20 MB
_MOST_FAILURES = 1_000


class _Open(Exception):
    """The file ends, or ceases to be JSON, before the value does."""


def looks_like_json(first: bytes) -> bool:
    """Whether a file that begins with `first` is one of `-J`."""
    return first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and _KEYS.search(first) is not None


def read_json(chunks: Iterator[bytes]) -> Log:
    """Return the log of a `-J` file. Never raises because of what the file holds."""
    log, table = Log(form="json"), Table(headed=True)
    log.begin(table)
    reader = _Reader(chunks)
    try:
        _read_file(reader, log, table)
    except _Open:
        table.closed = False
    return log


def _read_file(reader: _Reader, log: Log, table: Table) -> None:
    reader.expect("{")
    while reader.peek() != "}":
        key = reader.value()
        reader.expect(":")
        if key == "results" and reader.peek() == "[":
            for result in reader.items():
                _add_result(result, log, table)
        elif key == "env" and reader.peek() == "[":
            log.environment = kept_environment(reader.items())
        else:
            _read_key(key, reader.value(), log, table)
    table.closed = table.average_busbw is not None


def _read_key(key: Any, value: Any, log: Log, table: Table) -> None:
    if key == "args":
        arguments = _strings(value)
        found = _NAME.search(arguments[0]) if arguments else None
        table.collective = found[1] if found else None
    elif key == "nccl_version" and _whole(value) is not None:
        log.versions["nccl"] = nccl_version(value)
    elif key == "config" and isinstance(value, dict):
        log.devices = [device for device in map(_device, _objects(value.get("devices"))) if device]
        table.sizes = _sizes(value)
    elif key == "out_of_bounds" and isinstance(value, dict):
        table.out_of_bounds = _whole(value.get("count"))
        table.out_of_bounds_ok = value.get("okay") in ("true", True)
    elif key in ("average_bus_bandwidth", "average_bus_bandwidith") and isinstance(value, dict):
        # nccl-tests 2.17.3 to 2.17.8 print the second spelling of both words
        table.average_busbw = _number(value.get("bandwidth", value.get("bandwidith")))
        okay = value.get("okay")
        table.average_ok = None if okay == "unchecked" else okay in ("true", True)
    elif key == "errors":
        log.failures = [Failure("other", None, text[:400]) for text in _strings(value) if text.strip()][:_MOST_FAILURES]
        causes = CauseReader()
        for failure in log.failures:
            causes.line(failure.message)
        log.causes = causes.end({}, set())


class _Reader:
    """A window on the file's text that takes one value at a time and forgets what it took."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._text, self._position, self._ended = "", 0, False
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._decoder = json.JSONDecoder(parse_int=_integer)

    def peek(self) -> str:
        """Return the next character that is neither blank nor a comma. Raises _Open at the end."""
        while True:
            while self._position < len(self._text):
                if self._text[self._position] not in _BETWEEN:
                    return self._text[self._position]
                self._position += 1
            self._more()

    def expect(self, character: str) -> None:
        """Step over `character`. Raises _Open if the next one is another."""
        if self.peek() != character:
            raise _Open
        self._position += 1

    def value(self) -> Any:
        """Return the next value. Raises _Open if it is not whole."""
        self.peek()
        wanted = 0
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._position)
            except RecursionError:
                raise _Open from None
            except ValueError:
                value, end = None, -1
            if end >= 0 and (end < len(self._text) or self._ended):  # else a number may go on in the next chunk
                self._position = end
                return value
            if end < 0 and self._mend():
                continue
            if len(self._text) - self._position > _LONGEST_VALUE:
                raise _Open
            wanted = max(wanted, len(self._text) - self._position)
            self._more()
            while len(self._text) - self._position < 2 * wanted and not self._ended:  # few tries for a long value
                self._more()

    def items(self) -> Iterator[Any]:
        """Return the items of a list, one by one. Raises _Open if it is not whole."""
        self.expect("[")
        while self.peek() != "]":
            yield self.value()
        self._position += 1

    def _mend(self) -> bool:
        """Return bare inf and nan the form that Python reads; whether there were any."""
        rest, count = _BARE.subn(_python_number, self._text[self._position :])
        if count:
            self._text, self._position = rest, 0
        return count > 0

    def _more(self) -> None:
        """Read on. Raises _Open at the end of the file, once all of it was tried."""
        if self._ended:
            raise _Open
        chunk = next(self._chunks, None)
        self._ended = chunk is None
        self._text = self._text[self._position :] + self._decode(chunk or b"", self._ended)
        self._position = 0


def _python_number(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{'Infinity' if found[3] == 'inf' else 'NaN'}"


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < 20 else float(digits)  # Python's own has no bound on time or refuses


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    if value in ("nan", "-nan"):
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,18}\s*", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _word(value: Any) -> str | None:
    return value.strip()[:128] or None if isinstance(value, str) else None


def _sizes(config: dict[str, Any]) -> int | None:
    least, most = _whole(config.get("minimum_bytes")), _whole(config.get("maximum_bytes"))
    is_factor = "step_factor" in config
    step = _whole(config.get("step_factor" if is_factor else "step_bytes"))
    if least is None or most is None or step is None:
        return None
    return count_sizes(least, most, step, is_factor)


def _iterations(value: Any) -> IterationTimes | None:
    if not isinstance(value, dict):
        return None
    least, most, p99, cv = (_number(value.get(key)) for key in ("min_us", "max_us", "p99_us", "cv_pct"))
    if least is None or most is None or p99 is None or cv is None:
        return None
    return IterationTimes(least, most, p99, cv)


def _side(result: dict[str, Any], name: str) -> Side | None:
    value = result.get(name)
    if not isinstance(value, dict):
        return None
    time_us = _number(value.get("time", value.get("cpu_time")))
    algbw, busbw = _number(value.get("alg_bw")), _number(value.get("bus_bw"))
    if time_us is None or algbw is None or busbw is None:
        return None
    iterations = _iterations(result.get(f"{name}_per_iter"))
    return Side(time_us, algbw, busbw, wrong=_number(value.get("nwrong")), iterations=iterations)


def _add_result(result: Any, log: Log, table: Table) -> None:
    size = _whole(result.get("size")) if isinstance(result, dict) else None
    if size is None or size < 0:
        log.keep(table, BadRow(0, "it has no size"))
    else:
        log.keep(table, _row(result, size))


def _row(result: dict[str, Any], size: int) -> Row | BadRow:
    first, second = _side(result, "out_of_place"), _side(result, "in_place")
    if first is None:
        return BadRow(size, "its out-of-place side is missing")
    if not first.measured:
        return BadRow(size, "its time or bandwidth is not a number")
    second = second if second is not None and second.measured else None
    count, kind = _whole(result.get("count")) or 0, _word(result.get("type")) or ""
    return Row(size, count, kind, _word(result.get("redop")), _whole(result.get("root")), first, second)


def _device(value: dict[str, Any]) -> Device | None:
    rank, index, host = _whole(value.get("rank")), _whole(value.get("device")), _word(value.get("hostname"))
    if rank is None or index is None or host is None:
        return None
    return Device(rank, host, index, _word(value.get("device_hex")) or "", _word(value.get("device_info")) or "")
