"""The JSON file that nccl-tests 2.17.3 and newer writes with `-J`.

It has habits of its own: booleans are the words "true" and "false", the root is a padded string, inf and nan are bare,
and a program that dies leaves the file open. Its `env` list is the whole environment, secrets included: it is not read.
"""

from __future__ import annotations

import json
import re
from typing import Any

from acceptance.nccl.model import Device, Failure, Log, Row, Side, Table

_BARE = re.compile(r"(?<=[:,\[])(\s*)(-?)(inf|nan)(?=\s*[,}\]])")
_RESULTS = re.compile(r'"results"\s*:\s*\[')
_DEVICES = re.compile(r'"devices"\s*:\s*\[')
_NAME = re.compile(r"([a-z_]+)_perf$")


def read_json(text: str) -> Log | None:
    """Give the log of a `-J` file, or None if `text` is not one. Never raises."""
    if text.lstrip()[:1] != "{" or '"results"' not in text:
        return None
    text = _BARE.sub(lambda m: f"{m[1]}{m[2]}{'Infinity' if m[3] == 'inf' else 'NaN'}", text)
    log = Log(form="json")
    whole = _loads(text)
    if isinstance(whole, dict):
        results, devices = _objects(whole.get("results")), _devices(whole)
    else:
        whole = _head(text)
        results, devices = _scan(text, _RESULTS), _scan(text, _DEVICES)
    log.devices = [device for device in map(_device, devices) if device]
    table = Table(_collective(whole))
    table.rows = [row for row in map(_row, results) if row]
    _footer(whole, table)
    log.tables.append(table)
    log.failures = [Failure("other", None, e[:400]) for e in _strings(whole.get("errors")) if e.strip()][:1000]
    if isinstance(whole.get("nccl_version"), int):
        log.versions["nccl"] = _nccl_version(whole["nccl_version"])
    return log


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _scan(text: str, start: re.Pattern[str]) -> list[dict[str, Any]]:
    """Read whole objects of a list in a file that was left open; stop at the first that is not whole."""
    found = start.search(text)
    decoder, objects = json.JSONDecoder(), []
    position = found.end() if found else len(text)
    while position < len(text):
        while text[position : position + 1] in (" ", "\n", "\r", "\t", ","):
            position += 1
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            break
        if isinstance(value, dict):
            objects.append(value)
    return objects


def _head(text: str) -> dict[str, Any]:
    """Read the program's arguments from an open file: enough to know the collective."""
    found = re.search(r'"args"\s*:\s*(\[[^\]]{0,20000}\])', text)
    return {"args": _loads(found[1])} if found else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _devices(whole: dict[str, Any]) -> list[dict[str, Any]]:
    config = whole.get("config")
    return _objects(config.get("devices")) if isinstance(config, dict) else []


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,18}\s*", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _word(value: Any) -> str | None:
    return value.strip()[:128] or None if isinstance(value, str) else None


def _side(value: Any) -> Side | None:
    if not isinstance(value, dict):
        return None
    time_us, algbw, busbw = (_number(value.get(key)) for key in ("time", "alg_bw", "bus_bw"))
    if time_us is None or algbw is None or busbw is None:
        return None
    return Side(time_us, algbw, busbw, wrong=_number(value.get("nwrong")))


def _row(result: dict[str, Any]) -> Row | None:
    size, count = _whole(result.get("size")), _whole(result.get("count"))
    first = _side(result.get("out_of_place"))
    if size is None or size < 0 or first is None:
        return None
    kind = _word(result.get("type")) or ""
    root = _whole(result.get("root"))
    return Row(size, count or 0, kind, _word(result.get("redop")), root, first, _side(result.get("in_place")))


def _device(value: dict[str, Any]) -> Device | None:
    rank, index, host = _whole(value.get("rank")), _whole(value.get("device")), _word(value.get("hostname"))
    if rank is None or index is None or host is None:
        return None
    return Device(rank, host, index, _word(value.get("device_hex")) or "", _word(value.get("device_info")) or "")


def _collective(whole: dict[str, Any]) -> str | None:
    arguments = _strings(whole.get("args"))
    found = _NAME.search(arguments[0]) if arguments else None
    return found[1] if found else None


def _footer(whole: dict[str, Any], table: Table) -> None:
    bounds, average = whole.get("out_of_bounds"), whole.get("average_bus_bandwidth")
    if isinstance(bounds, dict):
        table.out_of_bounds = _whole(bounds.get("count"))
        table.out_of_bounds_ok = bounds.get("okay") in ("true", True)
    if isinstance(average, dict):
        table.average_busbw = _number(average.get("bandwidth"))
        okay = average.get("okay")
        table.average_ok = None if okay == "unchecked" else okay in ("true", True)
        table.closed = table.average_busbw is not None


def _nccl_version(code: int) -> str:
    """22807 -> 2.28.7 (NCCL's own coding since 2.9)."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
