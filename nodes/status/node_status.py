#!/usr/bin/python3 -B
"""What this node knows of itself, as one JSON object: release, steps, background work, health; on the head node also
Slurm, the other nodes and the last acceptance. Reads only, in bounded time.

    node_status.py                   the object, for people
    node_status.py --packed          in one line, small enough for Run Command's 24,000 characters
    node_status.py --share           puts this node's own part on the shared file system, for the head node
    node_status.py --expect SHA256   exit 0 when the release in use is the one of that bundle and its set-up ended well

Sources: /var/lib/slipway/{steps,background}/*.json and health.json, written by the node's scripts; `sinfo`, `squeue`.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the bundle

from nodes.lib import env
from nodes.lib.state import put
from nodes.metrics import remote_write
from nodes.status import accounting, fleet
from nodes.status.versions import shared_nccl, versions, with_shared_nccl

SCHEMA = 1
STATE = Path("/var/lib/slipway")
CURRENT = Path("/opt/slipway/current")
NODE_ENV = env.NODE_ENV
SLURM_CONF = Path("/opt/slurm/etc/slurm.conf")
FSX = "/fsx"
SHARED_PLACE = "logs/slipway/nodes"
OWN_STEP = "90-report"  # runs this program: its record is that of the set-up before
SLURM_TIMEOUT_S = 10
FSX_TIMEOUT_S = 10  # a file system that hangs must not take the answer with it
RUN_TIME = re.compile(r"[0-9]{8}T[0-9]{6}|[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}")
MOST = 64 << 20  # characters of one file; a report of 1,000 nodes has some millions
TEXT = 300  # characters of a hint or a reason
UPDATE_JOB = "slipway-update"
PACKED = "slipway-status:"
OK, NO = 0, 1


def main(arguments: list[str] | None = None) -> int:
    """Do what the arguments say; returns the exit code."""
    parser = argparse.ArgumentParser(description="The state of this node as JSON.")
    parser.add_argument("--packed", action="store_true", help="one line: zlib, then base64")
    parser.add_argument("--share", action="store_true", help="write this node's part to the shared file system")
    parser.add_argument("--expect", metavar="SHA256", help="is the release of this bundle in use?")
    parser.add_argument("--shared", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.shared:
        print(json.dumps(shared(fsx())))
        return OK
    if given.share:
        return share()
    if given.expect:
        return expect(given.expect)
    found = whole()
    text = json.dumps(found, separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    print(PACKED + packed if given.packed else json.dumps(found, indent=1))
    return OK


def whole() -> dict[str, Any]:
    """This node; of the head node with all that only it knows."""
    found = own()
    if found["kind"] == "headnode":
        found["slurm"] = slurm()
        found["accounting_error"] = accounting.problem(_slurm, _why) if not found["slurm"]["error"] else ""
        found["remote_write"] = remote_write.read()
        found |= _shared_in_time()
    return found


def own() -> dict[str, Any]:
    """This node alone. Times in seconds and UTC."""
    steps = [_step(one) for one in _objects(STATE / "steps")]
    kinds = [step["step"].partition("/")[0] for step in steps]
    return {
        "schema": SCHEMA,
        "host": os.uname().nodename,
        "kind": kinds[0] if kinds else "unknown",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "release": release(),
        "steps": steps,
        "background": [
            {key: one.get(key) for key in ("name", "state", "detail", "percent", "eta_s", "log", "hint", "updated")}
            for one in _objects(STATE / "background")
        ],
        "health": health(),
        "versions": versions(),
    }


def release() -> dict[str, Any]:
    """Releases by the first 12 digits of their bundle's sha256; `failed`: a release that was tried after `good`."""
    good = _text(STATE / "good-release").partition("\n")[0]
    tried = STATE / "failed-release"
    failed = _text(tried / "release").strip()
    steps = [_step(one) for one in _objects(tried)]
    bad = next((step for step in steps if step["status"] == "failed"), None)
    return {
        "in_use": CURRENT.readlink().name if CURRENT.is_symlink() else None,
        "good": Path(good).name or None,
        "failed": {"release": Path(failed).name, "step": bad} if failed else None,
    }


def _step(one: dict[str, Any]) -> dict[str, Any]:
    step = {key: one.get(key) for key in ("step", "status", "exit", "seconds", "finished")}
    step["step"] = str(step["step"] or "")
    if one.get("status") != "ok":
        step |= {"hint": str(one.get("hint", ""))[:TEXT], "log": one.get("log")}
    return step


def health() -> dict[str, Any] | None:
    """The last run of the health checks, with what was not good; None when they never ran."""
    found = _object(STATE / "health.json")
    if not found:
        return None
    bad = [
        f"{one.get('check')}: {one.get('status')} ({str(one.get('evidence', ''))[:TEXT]})"
        for one in found.get("checks", [])
        if one.get("status") != "ok"
    ]
    return {"status": found.get("status"), "time": found.get("time"), "action": found.get("action"), "bad": bad}


def slurm() -> dict[str, Any]:
    """The fleet, and jobs counted; `error` when Slurm does not answer."""
    try:
        found = fleet.read(_slurm)
        jobs: dict[str, int] = {}
        updating = []
        for line in _slurm("squeue", "--noheader", "--format=%T|%j|%n|%N"):
            state, name, wanted, where = (*line.split("|", 3), "", "", "")[:4]
            if name == UPDATE_JOB:
                updating.append(where or wanted)
            else:
                jobs[state.lower()] = jobs.get(state.lower(), 0) + 1
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": _why(error), "nodes": [], "jobs": {}, "updating": []}
    return {"error": "", **found, "jobs": jobs, "updating": sorted(updating)}


def _slurm(*command: str) -> Iterable[str]:
    environment = {**os.environ, "PATH": f"/opt/slurm/bin:{os.environ.get('PATH', '/usr/bin:/bin')}"}
    if "SLURM_CONF" not in environment and SLURM_CONF.exists():
        environment["SLURM_CONF"] = str(SLURM_CONF)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SLURM_TIMEOUT_S, check=True, errors="replace"
    )
    return done.stdout.splitlines()


def _why(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"{error.cmd[0]} did not answer within {SLURM_TIMEOUT_S} s"
    said = str(getattr(error, "stderr", "") or error).strip()
    return (said.splitlines() or [type(error).__name__])[0][:TEXT]


# ---- the shared file system ----


def fsx() -> Path:
    """Where it is mounted, by node.env."""
    return Path(env.read(NODE_ENV).get("FSX_MOUNT") or FSX)


def share() -> int:
    """Put `own` at FSX/logs/slipway/nodes/HOST.json, whole or not at all."""
    root = fsx()
    if not os.path.ismount(root):  # else the file would be hidden below the mount point
        print(f"slipway: {root} is not mounted: the state of this node is known on this node alone", file=sys.stderr)
        return NO
    place = root / SHARED_PLACE
    place.mkdir(mode=0o755, parents=True, exist_ok=True)
    found = own()
    found["steps"] = [step for step in found["steps"] if not step["step"].endswith(f"/{OWN_STEP}")]
    if _same(_object(place / f"{found['host']}.json"), found):
        return OK
    put(place / f"{found['host']}.json", json.dumps(found) + "\n")
    return OK


def _same(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether nothing but times differs: a thousand nodes need not write each minute."""
    return _timeless(before) == _timeless(now)


def _timeless(node: dict[str, Any]) -> dict[str, Any]:
    health = node.get("health")
    return {**node, "time": None, "health": {**health, "time": None} if isinstance(health, dict) else health}


def shared(root: Path) -> dict[str, Any]:
    """What the nodes put there, and the last verdict of acceptance."""
    nccl = shared_nccl(root)
    nodes = [compact(one, nccl) for one in _objects(root / SHARED_PLACE) if one.get("kind") != "headnode"]
    return {"nodes": nodes, "acceptance": acceptance(root / "results")}


def compact(node: dict[str, Any], nccl: str = "") -> dict[str, Any]:
    """One node of many: counts, and in words only what is not good. `nccl`: the version of the shared NCCL."""
    steps = node.get("steps", [])
    states = [step.get("status") for step in steps]
    return {
        "host": node.get("host"),
        "time": node.get("time"),
        "release": node.get("release", {}).get("in_use"),
        "failed_release": node.get("release", {}).get("failed"),
        "steps": {state: states.count(state) for state in ("ok", "reported", "failed")},
        "seconds": round(sum(float(step.get("seconds") or 0) for step in steps), 1),
        "bad_steps": [step for step in steps if step.get("status") != "ok"],
        "background": [one for one in node.get("background", []) if _still_true(one, node)],
        "versions": with_shared_nccl(node.get("versions") or {}, nccl),
        "health": node.get("health") if (node.get("health") or {}).get("status") not in (None, "ok") else None,
    }


def _still_true(work: dict[str, Any], node: dict[str, Any]) -> bool:
    """Whether this is worth telling. The health timer shares a node's state again and again; without it what was going
    on at the node's set-up may be done by now."""
    return work.get("state") == "failed" or (bool(node.get("health")) and work.get("state") != "done")


def acceptance(results: Path) -> dict[str, Any] | None:
    """The newest run of root's (or one's own) that has a report, by its start: everyone may write to this folder."""
    for run in sorted((path for path in results.glob("*") if path.is_dir()), key=_begun, reverse=True):
        found = _object(run / "report.json")
        if found and run.lstat().st_uid in (0, os.getuid()):
            keys = ("run_id", "verdict", "summary", "finished", "directory")
            return {key: found.get(key) for key in keys}
    return None


def _begun(run: Path) -> tuple[str, str]:
    """The time in a run's name, as digits: 20261129T040000Z-train, or nightly_2026-11-29_04-00-00 of a scenario."""
    times = RUN_TIME.findall(run.name)
    return re.sub(r"\D", "", times[-1]) if times else "", run.name


def _shared_in_time() -> dict[str, Any]:
    """`shared` by a separate process: a process that waits for a dead file system cannot be ended, only left alone."""
    reader = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--shared"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        out, _ = reader.communicate(timeout=FSX_TIMEOUT_S)
        return {"fsx_error": "", **json.loads(out)}
    except (ValueError, subprocess.TimeoutExpired) as error:
        reader.kill()
        late = isinstance(error, subprocess.TimeoutExpired)
        why = f"{fsx()} did not answer within {FSX_TIMEOUT_S} s" if late else f"{fsx()} cannot be read"
        return {"fsx_error": why, "nodes": [], "acceptance": None}


# ---- is the release in use the expected one? ----


def expect(sha256: str) -> int:
    """Whether the release of the bundle with this sha256 is in use and good; when it is not, a line says why."""
    found = release()
    wanted = sha256[:12]
    if found["in_use"] == found["good"] == wanted:
        return OK
    failed = found["failed"] or {}
    step = failed.get("step") or {}
    why = f": step {step['step']} failed: {step['hint']}" if failed.get("release") == wanted and step else ""
    print(f"[RESULT] FAILURE: the head node uses release {found['in_use']}, not {wanted}{why}")
    return NO


# ---- reading ----


def _objects(directory: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a directory, in the order of their names; other files are left out."""
    found = (_object(path) for path in sorted(directory.glob("*.json")))
    return [one for one in found if one]


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_text(path) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(path: Path) -> str:
    """Of a plain file, the first `MOST` characters; users may have put a link or a pipe in the place of a report."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "r", encoding="utf-8", errors="replace") as stream:
            return stream.read(MOST) if stat.S_ISREG(os.fstat(handle).st_mode) else ""
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
