#!/usr/bin/python3
"""The state that a node keeps in /var/lib/slipway: one JSON file for each step of the set-up and each background work.

    state.py steps                                         records how steps ended, as they end: it reads
                                                           KIND/NAME STATUS EXIT SECONDS LOG HINT from standard input,
                                                           a NUL after each, and prints `ok` after each record
    state.py background NAME STATE DETAIL LOG [HINT]       records how far a background work is
    state.py field NAME KEY                                prints one text of a background work's state
    state.py ended NAME                                    after the end of slipway-NAME.service (ExecStopPost):
                                                           a work that was killed would otherwise stay "running"

Exit 0; 1 with a message and a hint when the file cannot be written. Python 3.9, standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATE = Path("/var/lib/slipway")
SETUP_LOG = Path("/var/log/slipway/setup.log")
STEP = ("step", "status", "exit", "seconds", "log", "hint")
GOING_ON = ("waiting", "running")


def put(path: Path, text: str) -> None:
    """Put a file in place by one rename, readable by all. Raises OSError."""
    for left in path.parent.glob(f".{path.name}.slipway-new.*"):
        if not Path("/proc", left.name.rpartition(".")[2]).exists():  # left by a killed process
            left.unlink(missing_ok=True)
    fresh = path.with_name(f".{path.name}.slipway-new.{os.getpid()}")
    try:
        with fresh.open("w", encoding="utf-8") as stream:
            stream.write(text)
            os.fchmod(stream.fileno(), 0o644)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def record(folder: str, name: str, values: dict[str, Any]) -> None:
    """Write one state. Control characters become blanks. Raises OSError."""
    plain = {key: _plain(value) if isinstance(value, str) else value for key, value in values.items()}
    (STATE / folder).mkdir(parents=True, exist_ok=True)
    put(STATE / folder / f"{name}.json", json.dumps(plain) + "\n")


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)


def now() -> str:
    """Return the time in UTC, as the logs have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def step(kind_and_name: str, status: str, code: str, seconds: str, log: str, hint: str) -> None:
    """Record how a step ended."""
    values = (kind_and_name, status, int(code), float(seconds), log, hint)
    record("steps", kind_and_name.rpartition("/")[2], {**dict(zip(STEP, values)), "finished": now()})


def steps() -> None:
    """Record each step that standard input describes. One process serves a whole setup: python3 takes time to start."""
    pending = b""
    while byte := sys.stdin.buffer.read(1):
        pending += byte
        if pending.count(b"\0") == len(STEP):
            step(*pending.decode(errors="replace").split("\0")[:-1])
            print("ok", flush=True)
            pending = b""


def background(
    name: str, state: str, detail: str, log: str, hint: str = "", percent: int | None = None, eta_s: int | None = None
) -> None:
    """Record how far a background work is; a change of its state is also a line of setup.log.

    state: waiting, running, done or failed. percent: 0 to 100; None when it is not known, like eta_s.
    """
    before = read(name).get("state")
    values = {"name": name, "state": state, "detail": detail, "percent": percent, "eta_s": eta_s, "log": log}
    record("background", name, {**values, "hint": hint, "updated": now()})
    if before != state:
        line = f"slipway: background {name} {state}: {_plain(detail)}"
        print(line, flush=True)
        SETUP_LOG.parent.mkdir(parents=True, exist_ok=True)
        with SETUP_LOG.open("a", encoding="utf-8") as setup:
            setup.write(f"{now()} {line}\n")


def read(name: str) -> dict[str, Any]:
    """Return the state of a background work; empty when it has none or it is not readable."""
    try:
        values = json.loads((STATE / "background" / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def ended(name: str) -> None:
    """Record that a background work failed, if systemd killed it while it was under way."""
    result, last = os.environ.get("SERVICE_RESULT", "success"), read(name)
    if result != "success" and last.get("state") in GOING_ON:
        unit = f"slipway-{name}"
        hint = f"see 'journalctl -u {unit}', repair, then: sudo systemctl restart {unit}"
        background(name, "failed", f"ended ({result}) while: {last.get('detail')}", str(last.get("log")), hint)


COMMANDS: dict[str, Callable[..., None]] = {"steps": steps, "background": background, "ended": ended}


def main(arguments: list[str]) -> int:
    """Do what the arguments say; return the exit code."""
    command, *values = arguments
    os.umask(0o022)
    try:
        if command == "field":
            print(read(values[0]).get(values[1], ""))
        else:
            COMMANDS[command](*values)
    except OSError as error:
        place = error.filename or STATE
        print(f"slipway: cannot write {place}: {error.strerror}", file=sys.stderr)
        print(f"slipway-hint: is it read-only or full? see 'df -h {STATE}'", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
