"""How much CPU this machine gives a rehearsal: on a starved machine measured bandwidths say nothing about the nodes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable

LEAST_CPUS = 0.8
"""Below this many CPUs healthy local hosts were measured near the limit: 0.5 CPUs gave 0.0079 of 0.025 GB/s."""
WANTED_CPUS = 2  # what docs/rehearsal.md asks for; the trial keeps as many busy
TRIAL_S = 0.5
TRIAL_TIMEOUT_S = 60
TIMED_OUT = re.compile(r"exceeded|(?:not (?:up|done)|no answer|not idle).* (?:after|in) [0-9]+ s|after [0-9]+ s")
# Prints the CPUs that one busy process got.
TRIAL = """
import sys, time
begin, used = time.monotonic(), time.process_time()
while time.monotonic() < begin + float(sys.argv[1]):
    pass
print((time.process_time() - used) / (time.monotonic() - begin))
"""


def available_cpus() -> float:
    """Return how many CPUs `WANTED_CPUS` busy processes get now; quotas, other programs and the hypervisor count."""
    trials = [
        subprocess.Popen([sys.executable, "-S", "-c", TRIAL, str(TRIAL_S)], stdout=subprocess.PIPE, text=True)
        for _ in range(WANTED_CPUS)
    ]
    try:
        return sum(float(trial.communicate(timeout=TRIAL_TIMEOUT_S)[0]) for trial in trials)
    except (subprocess.TimeoutExpired, ValueError):
        return 0.0
    finally:
        for trial in trials:
            trial.kill()
            trial.wait()


def starvation(cpus: float) -> str:
    """Return what to report for so many CPUs; empty when they suffice."""
    if cpus >= LEAST_CPUS:
        return ""
    return (
        f"this machine gave the rehearsal {cpus:.1f} CPUs, and it needs {WANTED_CPUS}: what was measured says nothing "
        "about the nodes. Hint: end other programs, or raise the CPU limit of this machine or container"
    )


def timed_out(faults: Iterable[str]) -> bool:
    """Whether one of the faults is a time that was over."""
    return any(TIMED_OUT.search(fault) for fault in faults)


def keeps_its_name(faults: Iterable[str], on_purpose: bool, user_scenario: bool) -> bool:
    """Whether faults on a slow machine are still reported as they are.

    Those of a breakage on purpose are, and those of a user's scenario: its tests may fail for reasons of their own.
    """
    return on_purpose or (user_scenario and not timed_out(faults))
