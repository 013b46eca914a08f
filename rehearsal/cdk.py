"""The real CDK CLI against the embedded AWS."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from rehearsal.specification import REPOSITORY

CDK = REPOSITORY / "node_modules/.bin/cdk"
JSII_CACHE = REPOSITORY / ".cache/jsii"  # without it every synth unpacks aws-cdk-lib again
TIMEOUT_S = 900
CONCURRENCY = 2  # storage and observability do not wait for each other
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class DeployFailed(Exception):
    """``cdk deploy`` did not end well; ``tail`` holds its last lines."""

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
    """Deploy ``stacks`` with the CDK CLI; its output goes to ``log``.

    ``--method=direct``: with change sets moto ends a failed resource in a complete stack. Raises DeployFailed.
    """
    command = [
        *(str(CDK), "deploy", *stacks, "--context", f"settings={settings}", "--output", str(cdk_out)),
        *("--method=direct", "--require-approval=never", "--progress=events", "--no-color", "--ci"),
        *(f"--concurrency={CONCURRENCY}", "--no-notices", "--no-version-reporting", "--no-path-metadata"),
    ]
    lines: list[str] = []
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is for us to handle: the CLI would end in the middle of a line
        )
        try:
            for raw in process.stdout or ():
                line = ANSI.sub("", raw.rstrip())
                stream.write(f"{line}\n")
                lines.append(line)
                on_line(line)
            code = process.wait(timeout=TIMEOUT_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the CLI and the app that it runs
                process.wait()
    if code != 0:
        raise DeployFailed(f"cdk deploy ended with exit code {code}", [line for line in lines if line][-15:])


def _environment(aws: Mapping[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        **aws,
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(JSII_CACHE),
        # aws-cdk-lib's own template validation costs 4 to 7 s; `make check-cloud` and a real deployment run it.
        "CDK_VALIDATION": "false",
        "CDK_DISABLE_VERSION_CHECK": "1",
    }
