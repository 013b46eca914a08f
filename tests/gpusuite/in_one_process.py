"""Runs parts of the suite with one import of torch, which takes 5 s of CPU: the stages' faults, and groups of ranks.

Reads a JSON list of cases on standard input; prints one line of JSON for each. A case is `{"stage": S, "fault": F}`, or
`{"argv": [...], "ranks": [environment, ...]}`: ddp_tests.py in a forked process for each environment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch._dynamo  # an optimizer imports it: 5 s of CPU in each process that does

from gpusuite import ddp_tests, stress, timing, worker
from gpusuite.options import Options


def main() -> None:
    torch.set_num_threads(1)  # no threads before a fork
    ddp_tests.ANSWER_S = 2.0
    for case in json.load(sys.stdin):
        print(json.dumps(stage(case) if "stage" in case else group(case)), flush=True)


def stage(case: dict[str, str]) -> dict[str, Any]:
    stress.seconds = lambda *arguments: arguments[2] * 1e-3  # as `steady`, without work
    stress.time = Clock()
    timing.seconds = steady
    options = Options(quick=True, tiny=True, seconds=0.05, fault=case["fault"])
    return worker._result(case["stage"], torch.device("cpu"), options)


class Clock:
    """A millisecond passes between two looks: on a busy machine a pause would leave no window after it."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 1e-3
        return self.now


def steady(_: Any, work: Callable[[], Any], calls: int) -> float:
    """A machine whose speed is steady: a call takes a millisecond."""
    for _ in range(calls):
        work()
    return calls * 1e-3


def group(case: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output:
        ranks = [fork(case["argv"], environment, output.fileno()) for environment in case["ranks"]]
        states = [os.waitpid(rank, os.WUNTRACED)[1] for rank in ranks]
        for number, rank in enumerate(ranks):
            if os.WIFSTOPPED(states[number]):
                os.kill(rank, signal.SIGKILL)
                states[number] = os.waitpid(rank, 0)[1]
        output.seek(0)
        return {"codes": [os.waitstatus_to_exitcode(state) for state in states], "output": output.read().decode()}


def fork(argv: list[str], environment: dict[str, str], output: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.dup2(output, 1)
    os.environ.update(environment)
    os._exit(ddp_tests.main(argv))


main()
