"""Runs Slipway and pcluster: which faults are reported, and how long it takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.check import base
from rehearsal.cloud.pcluster import ValidationMessage, validate
from rehearsal.cloud.server import EmbeddedAws
from slipway.settings.bad_files import FOLDER

PATIENCE_S = 120
CASES_PATIENCE_S = 1800


class Bench:
    """One embedded AWS and one folder for all runs."""

    def __init__(self, aws: EmbeddedAws, work: Path) -> None:
        self.aws = aws
        self.work = work
        self.endpoint = aws.address_endpoint

    def check_control(self) -> None:
        """End the benchmark if settings without a fault are refused: every other result would be worthless."""
        base.prepare(self.aws)
        (answer,) = self.check(base.CONTROL)
        asked = self.slipway("preflight", base.CONTROL)["questions"]
        reported = [item["rule_name"] for item in (*answer["faults"], *answer["warnings"])]
        reported += [one["name"] for one in asked if {"warning", "fault"} & {item["status"] for item in one["answers"]}]
        messages = [*reported, *self.pcluster(base.configuration(base.CONTROL))]
        if messages:
            sys.exit(f"the settings without a fault have faults: {messages}")

    def rules_found(self) -> tuple[int, int]:
        """How many of the rules' bad files give the fault that they are named after, and how many files there are."""
        files = sorted(FOLDER.glob("*.yaml"))
        missed = []
        for file, answer in zip(files, self.check(*files), strict=True):
            if file.stem not in {item["rule_name"] for item in (*answer["faults"], *answer["warnings"])}:
                missed.append(file.stem)
                print(f"NOT FOUND: {file.stem}")
        return len(files) - len(missed), len(files)

    def check(self, *files: Path) -> list[dict[str, Any]]:
        """Run `slipway check` once on `files` and return its answer for each."""
        answer = self.slipway("check", *files)
        several: list[dict[str, Any]] = answer.get("files", [answer])
        return several

    def slipway(self, command: str, *files: Path) -> dict[str, Any]:
        """Run the program as it is installed and return its JSON."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.work), **self.aws.env()}
        done = subprocess.run(
            [str(base.SLIPWAY), command, *map(str, files), "--json"],
            env={**environment, "AWS_ENDPOINT_URL": self.endpoint},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            sys.exit(f"slipway {command} printed no JSON: {done.stdout[-300:]}{done.stderr[-300:]}")
        return answer

    def pcluster(self, cluster: dict[str, Any]) -> list[ValidationMessage]:
        """Return warnings and errors of pcluster's dry run."""
        messages = validate(cluster, "bench", self.aws.region, self.endpoint, base.PCLUSTER, self.work / "pcluster")
        return [message for message in messages if message.level != "INFO"]


def questions_found() -> tuple[int, int]:
    """How many of preflight's own tests, most of them cases of one fault, pass, and how many there are."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/preflight"]
    done = subprocess.run(command, cwd=base.ROOT, capture_output=True, text=True, timeout=CASES_PATIENCE_S, check=False)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
    if not counts.get("passed"):
        sys.exit(f"preflight's tests did not run: {done.stdout[-500:]}{done.stderr[-300:]}")
    return counts["passed"], sum(counts.values())
