"""Runs Slipway and pcluster on one case and tells who found the fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.check import account, base
from bench.check.cases import Case
from rehearsal.cloud.pcluster import ValidationMessage, validate
from tests.aws.preflight_aws import PreflightAws

PATIENCE_S = 120
SCRIPT_URL = f"s3://{account.BUCKET}/{account.SCRIPT}"
NAME_KEY = "name of the cluster"  # how a case changes the name, which stands beside the configuration


class Bench:
    """One embedded AWS and one folder for all cases."""

    def __init__(self, aws: PreflightAws, work: Path) -> None:
        self.aws = aws
        self.work = work
        self.endpoint = aws.address_endpoint

    def check_control(self) -> None:
        """Without a fault nobody may complain: else everything would be "found"."""
        site = account.prepare(self.aws)
        file = base.write(base.settings(site), self.work / "control.yaml")
        said = [
            *self.names_of_check(file),
            *self.names_of_preflight(file),
            *self.pcluster(base.configuration(file, site, SCRIPT_URL), "bench"),
        ]
        if said:
            sys.exit(f"the settings without a fault are not without: {said}")
        print(f"{'fault':<64} {'Slipway':<26} pcluster")

    def try_case(self, case: Case) -> bool:
        """Whether Slipway found the case's fault; prints its line."""
        site = account.prepare(self.aws)
        good = base.write(base.settings(site), self.work / "good.yaml")
        settings = base.settings(site)
        case.settings(settings)
        file = base.write(settings, self.work / "bad.yaml")
        refused = bool(self.slipway("check", file)["faults"])  # such settings never become a configuration
        cluster = base.configuration(good if refused else file, site, SCRIPT_URL)
        if case.cluster:
            case.cluster(cluster)
        case.account(self.aws)
        names = self.names_of_check(file) | (set() if refused else self.names_of_preflight(file))
        found = case.found_by in names
        messages = self.pcluster(cluster, cluster.pop(NAME_KEY, "bench"))
        word = case.found_by if found else f"NOT FOUND ({', '.join(sorted(names)) or 'silent'})"
        print(f"{case.name:<64} {word:<26} {messages[0].level.lower() if messages else 'passes'}", flush=True)
        if bool(messages) != case.pcluster_finds:
            print(f"  pcluster was seen to do otherwise: {messages}", flush=True)
        return found

    def names_of_check(self, file: Path) -> set[str]:
        """The rules that ``slipway check`` says are broken, warnings too."""
        answer = self.slipway("check", file)
        return {item["rule_name"] for item in (*answer["faults"], *answer["warnings"])}

    def names_of_preflight(self, file: Path) -> set[str]:
        """The questions of ``slipway preflight`` with an answer that is not ok."""
        answer = self.slipway("preflight", file)
        return {
            question["name"]
            for question in answer["questions"]
            if any(item["status"] in ("warning", "fault") for item in question["answers"])
        }

    def slipway(self, command: str, file: Path) -> dict[str, Any]:
        """One run of the program as it is installed, and its JSON."""
        done = subprocess.run(
            [str(base.SLIPWAY), command, str(file), "--json"],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.work),
                **self.aws.env(),
                "AWS_ENDPOINT_URL": self.endpoint,
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            sys.exit(f"slipway {command} gave no JSON: {done.stdout[-300:]}{done.stderr[-300:]}")
        return answer

    def pcluster(self, cluster: dict[str, Any], name: str) -> list[ValidationMessage]:
        """Warnings and errors of pcluster's dry run."""
        messages = validate(cluster, name, account.REGION, self.endpoint, base.PCLUSTER, self.work / "pcluster")
        return [message for message in messages if message.level != "INFO"]
