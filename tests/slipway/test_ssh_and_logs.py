"""`slipway ssh` and `slipway logs` against the embedded AWS, with an AWS CLI that writes down how it was started."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from slipway import completion
from slipway.logs import GROUPS, Reader
from tests.aws.deployed_site import SETTINGS, Site, slipway


def programs(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text('#!/bin/bash\nprintf "%s\\n" "$@"\nexit 42\n', encoding="utf-8")
        (folder / name).chmod(0o755)


def test_ssh_becomes_a_session_on_the_head_node(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.deploy("cluster")
    bin = tmp_path / "bin"
    programs(bin, "aws", "session-manager-plugin")
    environment = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "slipway", "ssh", str(SETTINGS)]
    plain = ["ssm", "start-session", "--region", "us-east-1", "--target", site.instance]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (42, plain)
    assert done.stderr.splitlines()[-1] == f"+ aws {' '.join(plain)}"

    assert slipway("ssh", SETTINGS, "--json", "--", "sinfo", "-N", "a b") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["instance_id"] == site.instance
    assert answer["command"][-4:-1] == ["--document-name", "AWS-StartInteractiveCommand", "--parameters"]
    assert json.loads(answer["command"][-1]) == {"command": ["sinfo -N 'a b'"]}


@pytest.mark.parametrize(("present", "missing"), [((), "aws"), (("aws",), "session-manager-plugin")])
def test_ssh_without_its_programs(
    site: Site, present: tuple[str, ...], missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    site.deploy("cluster")
    programs(tmp_path / "bin", *present)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert slipway("ssh", SETTINGS) == 3
    assert re.search(f"^{missing} is not on PATH.*Hint: install it: https://", capsys.readouterr().err, re.MULTILINE)


def test_ssh_without_a_head_node(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert slipway("ssh", SETTINGS) == 1
    assert "rehearsal has no running head node: there is no instance of it" in capsys.readouterr().err
    site.deploy("cluster")
    site.aws.clients("ec2").stop_instances(InstanceIds=[site.instance])
    assert slipway("ssh", SETTINGS, "--json") == 1
    assert f"the instance {site.instance} is stop" in json.loads(capsys.readouterr().out)["error"]["text"]


def put(site: Site, group: str, stream: str, *lines: str, age_s: int = 60) -> None:
    logs = site.aws.clients("logs")
    logs.create_log_stream(logGroupName=group, logStreamName=stream)
    began = int((time.time() - age_s) * 1000)
    events = [{"timestamp": began + number, "message": line} for number, line in enumerate(lines)]
    logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)


def test_logs_by_group_node_and_time(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.deploy("observability", "cluster")
    put(site, "nodes", f"ip-10-0-0-4.{site.instance}.slipway-setup", "step a ok", "step \x1b[31mb ok")
    put(site, "nodes", "train-st-gpu-1.i-2.slipway-setup", "old line", age_s=7200)
    put(site, "nodes", "train-st-gpu-1.i-2.slipway.health.log", "gpu 3 is lost")
    assert slipway("logs", SETTINGS) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[2] for line in lines] == [
        "ip-10-0-0-4 slipway-setup: step a ok",
        "ip-10-0-0-4 slipway-setup: step ?[31mb ok",
    ]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", lines[0].partition(" ")[0])
    assert slipway("logs", SETTINGS, "--since", "3h", "--node", "train-st-gpu-1") == 0
    assert capsys.readouterr().out.endswith("train-st-gpu-1 slipway-setup: old line\n")
    assert slipway("logs", SETTINGS, "--node", "head", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert [event["message"] for event in answer["events"]] == ["step a ok", "step \x1b[31mb ok"]
    assert slipway("logs", SETTINGS, "--group", "health", "--node", "i-2") == 0
    assert "gpu 3 is lost" in capsys.readouterr().out


def test_logs_of_parallelcluster_are_those_of_the_newest_creation(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slipway("logs", SETTINGS, "--group", "slurm") == 1
    assert "there is no log group /aws/parallelcluster/rehearsal-..." in capsys.readouterr().err
    for name in ("rehearsal-202601010000", "rehearsal-202602020000", "rehearsal-two-202603030000"):
        site.aws.clients("logs").create_log_group(logGroupName=f"/aws/parallelcluster/{name}")
        put(site, f"/aws/parallelcluster/{name}", "ip-1.i-1.slurmctld", f"of {name}")
        put(site, f"/aws/parallelcluster/{name}", "ip-1.i-1.syslog", "kernel")
    assert slipway("logs", SETTINGS, "--group", "slurm") == 0
    assert capsys.readouterr().out.endswith("slurmctld: of rehearsal-202602020000\n")


def test_no_match_says_what_there_is(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.deploy("observability")
    assert slipway("logs", SETTINGS) == 1
    assert "the log group has no streams yet" in capsys.readouterr().err
    put(site, "nodes", "gpu-1.i-2.slipway-setup", "old", age_s=7200)
    assert slipway("logs", SETTINGS, "--node", "gpu-9") == 1
    assert "no stream of --group setup matches. There are: gpu-1.i-2.slipway-setup" in capsys.readouterr().err
    assert slipway("logs", SETTINGS, "--json") == 1
    out, err = capsys.readouterr()
    assert (json.loads(out)["events"], "no line in the last 1h in gpu-1.i-2" in err) == ([], True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--since", "yesterday"), "--since yesterday: must be a number and s, m, h or d"),
        (("--since", "-1h"), "--since -1h"),
        (("--group", "setups"), "--group setups: unknown. Hint: one of setup,"),
    ],
)
def test_wrong_use_of_logs(options: tuple[str, str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert slipway("logs", SETTINGS, *options) == 2
    assert text in capsys.readouterr().err


def test_logs_of_a_cluster_that_is_not_deployed(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert slipway("logs", SETTINGS) == 1
    assert "stack rehearsal-observability does not exist in us-east-1" in capsys.readouterr().err


def test_a_long_answer_is_cut_and_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.deploy("observability")
    put(site, "nodes", "gpu-1.i-2.slipway-setup", *(f"line {number}" for number in range(30)))
    monkeypatch.setattr("slipway.logs.MOST_EVENTS", 20)
    assert slipway("logs", SETTINGS) == 0
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), "only the first 20 lines are shown" in err) == (20, True)


def test_many_pages_without_a_line_are_given_up_and_that_is_printed(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CloudWatch may answer a page without events and a token for the next, as long as it likes."""
    site.deploy("observability")
    put(site, "nodes", "gpu-1.i-2.slipway-setup", "line")
    ask, asked = Reader._ask, []

    def endless(self: Reader, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        answer = ask(self, service, operation, **parameters)
        if operation == "filter_log_events":
            asked.append(operation)
            answer = {"events": answer["events"][:0], "nextToken": "more"}
        return answer

    monkeypatch.setattr(Reader, "_ask", endless)
    assert slipway("logs", SETTINGS, "--json") == 1
    assert (json.loads(capsys.readouterr().out)["cut"], len(asked)) == (True, 50)


def test_follow_prints_new_lines_once_until_ctrl_c(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.deploy("observability")
    put(site, "nodes", "gpu-1.i-2.slipway-setup", "first")
    polls: list[float] = []

    def sleep(seconds: float) -> None:
        polls.append(seconds)
        if len(polls) == 3:
            raise KeyboardInterrupt
        now = [{"timestamp": int(time.time() * 1000), "message": f"poll {len(polls)}"}]
        site.aws.clients("logs").put_log_events(
            logGroupName="nodes", logStreamName="gpu-1.i-2.slipway-setup", logEvents=now
        )

    # Only the module's own clock: the threads of the embedded AWS sleep too.
    monkeypatch.setattr("slipway.logs.time", types.SimpleNamespace(**{**vars(time), "sleep": sleep}))
    assert slipway("logs", SETTINGS, "--follow", "--json") == 130
    messages = [json.loads(line).get("message") for line in capsys.readouterr().out.splitlines()]
    assert messages == ["first", "poll 1", "poll 2", None]


def test_completion_knows_every_group() -> None:
    assert tuple(GROUPS) == completion.LOG_GROUPS
