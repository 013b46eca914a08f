"""``slipway status`` against the embedded AWS: stacks made, failed and under way, and a head node that answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipway.errors import EnvironmentFault
from slipway.settings import load_settings
from slipway.settings.rules.place import STACKS
from slipway.status.command import policy, status
from tests.aws.deployed_site import HEAD, SETTINGS, Site


def shown(capsys: pytest.CaptureFixture[str], code: int, **options: Any) -> str:
    assert status(SETTINGS, **options) == code
    return capsys.readouterr().out


def test_the_screen_fits_a_narrow_terminal(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.deploy(*STACKS)
    monkeypatch.setenv("COLUMNS", "60")
    lines = shown(capsys, 1).splitlines()
    assert max(map(len, lines)) <= 60
    at = lines.index("stacks      network, storage, observability, cluster,")
    assert lines[at + 1] == "            acceptance CREATE_COMPLETE"


def test_a_cluster_that_is_well(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.deploy(*STACKS)
    out = shown(capsys, 1)  # images are still being imported
    lines = out.splitlines()
    assert lines[0] == "rehearsal in us-east-1a: busy"
    assert "stacks      network, storage, observability, cluster, acceptance CREATE_COMPLETE" in lines
    assert f"head node   {site.instance} m5.2xlarge running" in out
    assert "release aaaaaaaaaaaa; steps: 1 ok, 1.2 s" in out
    assert "fleet       train: 4 idle; jobs: 2 running" in lines
    assert "nodes       4 set up; steps: 36 ok; the slowest gpu-3 in 3.0 s" in lines
    assert "background  containers running, 38 %, 3 of 8 images, about 12 min left" in lines
    assert "acceptance  accepted (run r1): 4 nodes good" in lines
    assert "reservation cr-0123456789abcdef1 active, " in out
    assert "USD a month" in out
    assert site.commands == ["/opt/slipway/current/nodes/status/node_status.py --packed"]
    assert site.aws.tracebacks() == []

    done = {"name": "containers", "state": "done", "percent": 100, "detail": "8 of 8 images"}
    site.answer = (0, site.packed({**HEAD, "background": [done]}), "")
    found = json.loads(shown(capsys, 0, as_json=True))
    assert (found["state"], found["problems"], found["not_asked"]) == ("good", [], [])
    assert found["head_node"]["node"]["release"]["in_use"] == "aaaaaaaaaaaa"
    assert {stack["part"]: stack["status"] for stack in found["stacks"]} == dict.fromkeys(STACKS, "CREATE_COMPLETE")
    assert found["reservations"][0]["seconds_left"] > 0


def test_nothing_is_deployed(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, 1)
    assert out.splitlines() == ["rehearsal in us-east-1a: absent", "stacks      none: it is not deployed"]


def test_a_deployment_under_way(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.deploy("network", "storage", "observability")
    site.gate.clear()
    site.deploy("cluster", wait=False)
    out = shown(capsys, 1)
    assert out.startswith("rehearsal in us-east-1a: busy\n")
    assert "rehearsal-cluster: CREATE_IN_PROGRESS for " in out
    assert "; now: Cluster 0 s" in out or "; now: Cluster 1 s" in out
    assert "busy        rehearsal-acceptance: there is no such stack" in out


def test_a_creation_that_failed_says_what_failed_first_and_what_the_node_logged(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.deploy("network", "storage", "observability")
    logs = site.aws.clients("logs")
    logs.create_log_stream(logGroupName="nodes", logStreamName="head.i-1.slipway-setup")
    site.failure = "rehearsal: OnNodeConfiguredExecutionFailure"
    site.gate.clear()
    site.deploy("cluster", wait=False)
    line = "2026-11-28T05:00:00Z slipway: FAULT host=head step=headnode/20-prometheus exit=1 log=/l hint=mend it"
    events = [{"timestamp": _now_ms(), "message": text} for text in ("slipway: step a ok", line)]
    logs.put_log_events(logGroupName="nodes", logStreamName="head.i-1.slipway-setup", logEvents=events)
    site.gate.set()
    site.aws.stacks.wait_idle(10)
    out = shown(capsys, 1)
    assert "failed      rehearsal-cluster: ROLLBACK_COMPLETE; first failure: Cluster: rehearsal: OnNodeConf" in out
    assert "failed      log of the nodes: host=head step=headnode/20-prometheus exit=1 log=/l hint=mend it" in out
    assert "step a ok" not in out


def _now_ms() -> int:
    import time

    return int(time.time() * 1000)


ANSWERS = (
    ((127, "", "sh: not found"), "its bootstrap has not put Slipway's scripts there yet"),
    ((1, "", "Traceback\nKeyError: 'x'"), "the command ended with Failed: KeyError: 'x'"),
    ((0, "hello\n", ""), "its answer cannot be read"),
)


def test_a_head_node_that_gives_no_answer(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.deploy(*STACKS)
    for answer, said in ANSWERS:
        site.answer = answer
        assert f"degraded    the head node: does not say how it is: {said}" in shown(capsys, 1)
    site.aws.set_ssm_runner(lambda *_: (0, "", "") if site.gate.wait(30) else (1, "", ""))
    site.gate.clear()
    assert "it did not answer within 1 s" in shown(capsys, 1, timeout_s=1)
    site.aws.commands.unregister(site.instance)
    assert "its Systems Manager agent does not report" in shown(capsys, 1)


def test_without_permission_for_run_command_the_stacks_are_shown(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.deploy(*STACKS)
    site.aws.misbehave("ssm:SendCommand", deny=True)
    out = shown(capsys, 3)
    assert out.startswith("rehearsal in us-east-1a: unknown\n")
    assert "not asked   the head node: ssm:SendCommand is not allowed" in out
    assert "acceptance CREATE_COMPLETE" in out


def test_without_permission_for_the_stacks_there_is_nothing_to_show(site: Site) -> None:
    site.aws.misbehave("cloudformation:DescribeStacks", deny=True)
    with pytest.raises(EnvironmentFault, match="cloudformation:DescribeStacks is not allowed"):
        status(SETTINGS)


def test_the_policy_names_what_is_asked_and_nothing_else(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    statements = policy(load_settings(SETTINGS))["Statement"]
    allowed = {action for statement in statements for action in statement["Action"]}
    assert not [action for action in allowed if "*" in action]
    (sending,) = [one for one in statements if one["Sid"] == "AskHeadNode"]
    assert sending["Condition"]["StringEquals"]["ssm:resourceTag/parallelcluster:cluster-name"] == "rehearsal"
