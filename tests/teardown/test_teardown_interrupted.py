"""`slipway teardown` that is killed or interrupted, and two of them at once: the end is the same."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from slipway.aws.calls import Aws, Refused
from slipway.errors import EXIT_INTERRUPTED
from slipway.teardown import command, work
from slipway.teardown.command import teardown
from slipway.teardown.plan import STACK, Step
from tests.stacks.assembly import ROOT
from tests.teardown.conftest import NAME, SETTINGS, Deployed, slipway

PARTS = ("network", "storage", "observability", "cluster", "acceptance")
ALL = ("teardown", SETTINGS, "--delete-data", "--confirm", NAME)
CHANGES = ("delete_", "revoke_", "abort_")
MOST_RUNS = 40


class Killed(BaseException):
    """What `kill -9` is for a test in one process: nothing catches it and nothing is cleaned up."""


def fill(deployed: Deployed) -> None:
    deployed.deploy(*PARTS)
    s3 = deployed.aws.clients("s3")
    for text in (b"old", b"new"):
        s3.put_object(Bucket=deployed.buckets[0], Key="datasets/a", Body=text)
    s3.create_multipart_upload(Bucket=deployed.buckets[0], Key="broken")
    logs = deployed.aws.clients("logs")
    logs.create_log_group(logGroupName=f"/aws/parallelcluster/{NAME}-202611280900", tags={"project": NAME})


def nothing_is_left(deployed: Deployed) -> bool:
    logs = deployed.aws.clients("logs").describe_log_groups()["logGroups"]
    left = (deployed.statuses(), deployed.file_systems, deployed.buckets, deployed.vpcs, logs)
    assert not any(left), left
    assert deployed.aws.tracebacks() == []
    return True


def test_it_may_be_killed_after_each_change(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run is killed, or interrupted, right after its first change; the last one finds nothing left to change."""
    fill(deployed)
    act = Aws.act
    kinds = [Killed, KeyboardInterrupt]
    ended: list[str] = []

    def once(self: Aws, service: str, operation: str, **more: Any) -> dict[str, Any]:
        answer = act(self, service, operation, **more)
        if operation.startswith(CHANGES):
            ended.append(operation)
            raise kinds[len(ended) % 2]
        return answer

    monkeypatch.setattr(Aws, "act", once)
    code = -1
    for _ in range(MOST_RUNS):
        try:
            code = slipway(*ALL)
        except Killed:
            continue
        err = capsys.readouterr().err
        if code != EXIT_INTERRUPTED:
            break
        assert (
            ": interrupted; what AWS has begun goes on. Hint: run the same command again, it goes on from there" in err
        )
        assert "Traceback" not in err
    assert code == 0
    assert len(ended) > len(PARTS)
    assert {"delete_stack", "delete_file_system", "delete_bucket", "delete_security_group", "revoke_security_group_ingress",
            "abort_multipart_upload", "delete_log_group"} <= set(ended)  # fmt: skip
    assert nothing_is_left(deployed)


def test_real_processes_that_end_in_the_middle(deployed: Deployed) -> None:
    """The first one is killed, the second one gets Ctrl-C, each when it begins a step."""
    deployed.deploy("network", "storage")
    code, _ = signalled(signal.SIGKILL)
    assert code == -signal.SIGKILL
    code, err = signalled(signal.SIGINT)
    assert code == EXIT_INTERRUPTED
    assert "Traceback" not in err
    assert re.search(r"^\d/\d .*: interrupted; what AWS has begun goes on", err.splitlines()[-1])
    assert slipway(*ALL) == 0
    assert nothing_is_left(deployed)


def signalled(number: signal.Signals) -> tuple[int, str]:
    """Run a teardown that gets a signal when it begins its first step; return its exit code and standard error."""
    command_line = [sys.executable, "-m", "slipway", *map(str, ALL)]
    with subprocess.Popen(command_line, cwd=ROOT, env=dict(os.environ), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            if re.match(r"\d/\d ", line) and not any(re.match(r"\d/\d ", one) for one in lines):
                process.send_signal(number)
            lines.append(line)
        return process.wait(60), "".join(lines)


def run(ask: Callable[[str], str]) -> int:
    return teardown(SETTINGS, ask=ask, delete_data=True, minutes=5)


def test_another_teardown_did_all_of_it_while_this_one_asked(
    deployed: Deployed, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(deployed)

    def ask(_: str) -> str:
        assert run(lambda _: NAME) == 0
        return NAME

    assert run(ask) == 0
    assert capsys.readouterr().err.count(f"{NAME} is taken down; nothing is left") == 2
    assert nothing_is_left(deployed)


def test_two_at_once_end_the_same(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    fill(deployed)
    both = threading.Barrier(2, timeout=120)
    codes: list[int] = []

    def ask(_: str) -> str:
        both.wait()
        return NAME

    workers = [threading.Thread(target=lambda: codes.append(run(ask))) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(180)
    err = capsys.readouterr().err
    assert codes == [0, 0], err
    assert err.count(f"{NAME} is taken down; nothing is left") == 2
    assert "held" not in err
    assert nothing_is_left(deployed)


REFUSED = [
    # a kind with an operation, and what AWS answers when another request changes the thing: each API's reference
    ("log group", "delete_log_group", "OperationAbortedException"),
    ("Prometheus workspace", "delete_workspace", "ConflictException"),
    ("bucket", "delete_bucket", "OperationAborted"),
]


@pytest.mark.parametrize(("kind", "operation", "code"), REFUSED)
def test_what_another_request_changes_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, kind: str, operation: str, code: str
) -> None:
    monkeypatch.setattr(work, "POLL_S", 0.0)
    answers = [Refused(code, "a conflicting operation is in progress"), Refused("NoSuchBucket", "gone")]
    asked: list[str] = []

    class Two:
        def act(self, _: str, name: str, **__: Any) -> dict[str, Any]:
            asked.append(name)
            if name == operation:
                raise answers[asked.count(operation) - 1]
            return {}

    said: list[str] = []
    worker = work.Worker(Two(), said.append, 5.0)  # type: ignore[arg-type]
    worker.delete(Step(kind, "x"))
    assert asked.count(operation) == 2
    assert "another request changes it" in said[0]


def test_a_deletion_that_another_teardown_began_is_not_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both found DELETE_FAILED; the other one was quicker, and `RetainResources` is refused from then on."""
    monkeypatch.setattr(work, "POLL_S", 0.0)
    states = iter(["DELETE_FAILED", "DELETE_FAILED", "DELETE_FAILED", "DELETE_IN_PROGRESS", "DELETE_IN_PROGRESS", ""])

    def describe(*_: Any) -> dict[str, Any] | None:
        state = next(states, "")
        return {"StackId": "arn:x", "StackStatus": state} if state else None

    class Refusing:
        def act(self, *_: Any, **__: Any) -> dict[str, Any]:
            raise Refused(
                "ValidationError", "Invalid operation on stack. RetainResources is only valid for DELETE_FAILED."
            )

    monkeypatch.setattr(work, "describe", describe)
    work.Worker(Refusing(), lambda _: None, 5.0).delete(Step(STACK, "p5-cluster"))  # type: ignore[arg-type]
    assert list(states) == [], "it waited until the stack was gone"


def test_ctrl_c_before_the_work_deletes_nothing(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "read_stacks", interrupted)
    assert slipway(*ALL) == EXIT_INTERRUPTED
    assert capsys.readouterr().err == "interrupted: nothing was deleted\n"
