#!/usr/bin/python3 -B
"""Runs `acceptance` with its arguments; before a measurement it waits for a build of nccl-tests that is under way.

It waits at most ACCEPTANCE_BUILD_WAIT_S of node.env and says so. When the build failed, or is not done by then, it
measures with nccl-tests that are there already; without any it prints the reason and the build's log, and exits 3.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BUNDLE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(BUNDLE))

from headnode.nccl.of_image import of_image, runs  # noqa: E402
from nodes.lib import env, state  # noqa: E402

BUILD = "nccl"
PLACE = Path("/opt/nccl-tests/build")  # what users type; a link to the shared build where the image has none
LOCK = Path("/run/slipway/nccl.lock")
DEFAULT_WAIT_S = 360
SAY_EVERY_S = 30
MEASURING = (["run"], ["locate"])
ENVIRONMENT_FAULT = 3  # the exit code of acceptance when nothing was measured
LOG_LINES = 10


def main(command: list[str]) -> int:
    """Run `acceptance` in place of this process, or return the exit code when nothing can be measured."""
    reason = wait() if command[:1] in MEASURING else ""
    if reason and not (runs_in_images(command) or of_image() or runs(PLACE)):
        return refuse(reason, to=sys.stderr if "--json" in command else sys.stdout)
    if reason:
        print(f"acceptance: WARNING {reason}; going on with the nccl-tests that are there", file=sys.stderr, flush=True)
    return os.execv(sys.executable, [sys.executable, str(BUNDLE / "acceptance.pyz"), *command])  # noqa: S606


def runs_in_images(command: list[str]) -> bool:
    """Return whether the command runs a scenario of CloudAI, whose tests need no nccl-tests of the head node."""
    named = "--test-scenario" in command or env.read().get("ACCEPTANCE_SCENARIO") == "cloudai"
    return command[:1] == ["run"] and named and "--network" not in command


def wait() -> str:
    """Wait for a build that is under way. Return why nccl-tests are not built; empty when they are, or need not be."""
    limit_s = env.number("ACCEPTANCE_BUILD_WAIT_S", DEFAULT_WAIT_S)
    began, next_line_s = time.monotonic(), 0
    while (build := state.read(BUILD)).get("state") in state.GOING_ON:
        waited_s = int(time.monotonic() - began)
        if not under_way(build):
            return f"the build of nccl-tests was interrupted ({build.get('detail')})"
        if waited_s >= limit_s:
            return f"nccl-tests are not built after {limit_s} s more ({build.get('detail')})"
        if waited_s >= next_line_s:
            next_line_s = waited_s + SAY_EVERY_S
            line = f"acceptance: waiting for {build.get('detail')} ({waited_s} s, at most {limit_s} s)"
            print(line, file=sys.stderr, flush=True)
        time.sleep(1)
    return f"the build of nccl-tests failed: {build.get('detail')}" if build.get("state") == "failed" else ""


def under_way(build: dict[str, Any]) -> bool:
    """Return whether a process works on the build: a queued one will start; else the unit, or an install by hand."""
    unit = ["systemctl", "is-active", "--quiet", f"slipway-{BUILD}"]
    return build["state"] == "waiting" or subprocess.run(unit, check=False).returncode == 0 or lock_is_held()


def lock_is_held() -> bool:
    """Return whether an install holds its lock.

    /proc/locks is world-readable. The lock file is 0600, because a process that can open it can lock it.
    """
    try:
        end = f":{LOCK.stat().st_ino} 0 EOF"
        return any("FLOCK" in line and end in line for line in Path("/proc/locks").read_text().splitlines())
    except OSError:
        return False


def refuse(reason: str, to: Any) -> int:
    """Print the end of the build's log and the verdict; return the exit code."""
    build = state.read(BUILD)
    log = str(build.get("log"))
    subprocess.run(
        ["tail", f"--lines={LOG_LINES}", "--", log], stdout=sys.stderr, stderr=subprocess.DEVNULL, check=False
    )
    print(f"[RESULT] FAILURE: nothing was measured: {reason}; log: {log}. Hint: {build.get('hint')}", file=to)
    return ENVIRONMENT_FAULT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
