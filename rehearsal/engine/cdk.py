"""The real CDK CLI against the embedded AWS."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from slipway.places import FILES

CDK = FILES / "node_modules/.bin/cdk"
JSII_CACHE = FILES / ".cache/jsii"  # without it every synth unpacks aws-cdk-lib again
TIMEOUT_S = (
    1500  # the acceptance of the example files ends itself after 20 to 30 minutes at most; a rehearsal far sooner
)
TAIL_LINES = 15
CONCURRENCY = 2  # storage and observability do not wait for each other
ERROR = re.compile(r"\b(?:\w*Error|\w*Exception|EACCES|EROFS|ENOSPC)\b.*[:,] ?\S")
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class DeployFailed(Exception):
    """`cdk deploy` did not end well; `tail` holds its last lines."""

    def __init__(self, reason: str, tail: list[str]) -> None:
        self.tail = tail
        super().__init__(reason)


def deploy(
    settings: Path,
    stacks: list[str],
    cdk_out: Path,
    log: Path,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
) -> None:
    """Deploy `stacks` with the CDK CLI; its output goes to `log`.

    `--method=direct`: with change sets moto ends a failed resource in a complete stack. Raises DeployFailed.
    """
    command = [
        *(str(CDK), "deploy", *stacks, "--context", f"settings={settings}", "--output", str(cdk_out)),
        *("--method=direct", "--require-approval=never", "--progress=events", "--no-color", "--ci"),
        *(f"--concurrency={CONCURRENCY}", "--no-notices", "--no-version-reporting", "--no-path-metadata"),
    ]
    with log.open("w", encoding="utf-8") as stream:

        def take(line: str) -> None:
            stream.write(f"{line}\n")
            on_line(line)

        code, tail = _follow(command, _environment(environment), take)
    if code != 0:
        reason = (
            f"cdk deploy ended with exit code {code}: {_cause(tail)}"
            if code is not None
            else f"cdk deploy not done after {TIMEOUT_S} s"
        )
        raise DeployFailed(reason, tail)


def _cause(tail: list[str]) -> str:
    """The line that says why: the last error of the app or the CLI, else the last line."""
    errors = [line for line in tail if ERROR.search(line)]
    return (errors or tail or ["it printed nothing"])[-1].strip()


def _follow(
    command: list[str], environment: dict[str, str], take: Callable[[str], None]
) -> tuple[int | None, list[str]]:
    """Run the CLI, each line to `take`; its exit code (None: out of time) and its last lines."""
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    process = subprocess.Popen(
        command,
        cwd=FILES,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C is for us to handle: the CLI would end in the middle of a line
    )
    overdue = threading.Event()

    def end() -> None:
        overdue.set()
        os.killpg(process.pid, signal.SIGKILL)  # the CLI and the app that it runs

    timer = threading.Timer(TIMEOUT_S, end)
    timer.start()
    try:
        for raw in process.stdout or ():
            line = ANSI.sub("", raw.rstrip())
            tail += [line] if line else []
            take(line)
        process.wait()
    finally:
        timer.cancel()
        if process.poll() is None:
            end()
            process.wait()
    return None if overdue.is_set() else process.returncode, list(tail)


def _environment(aws: Mapping[str, str]) -> dict[str, str]:
    return {
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(JSII_CACHE),  # `slipway rehearse` may have chosen another folder
        **os.environ,
        **aws,
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
        # aws-cdk-lib's own template validation costs 4 to 7 s; `make check-cloud` and a real deployment run it.
        "CDK_VALIDATION": "false",
        "CDK_DISABLE_VERSION_CHECK": "1",
    }
