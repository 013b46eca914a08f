"""What is wrong with a cluster, in which words, and with which exit code: without AWS."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from slipway.settings.rules.place import STACKS
from slipway.status import head as status_head
from slipway.status.head import HeadNode, unpack
from slipway.status.judge import Findings, exit_code, problems, state
from slipway.status.stacks import PARALLELCLUSTER, Stack, Step
from slipway.text import duration

RELEASE = "aaaaaaaaaaaa"
NODE: dict[str, Any] = {
    "kind": "headnode",
    "release": {"in_use": RELEASE, "good": RELEASE, "failed": None},
    "steps": [{"step": "headnode/10-fsx-layout", "status": "ok", "seconds": 1.0}],
    "background": [{"name": "containers", "state": "done", "detail": "8 of 8 images"}],
    "health": None,
    "slurm": {"error": "", "nodes": [{"name": "gpu-1", "partition": "train", "state": "idle"}], "jobs": {}},
    "fsx_error": "",
    "nodes": [{"host": "gpu-1", "release": RELEASE, "steps": {"ok": 9}, "seconds": 3.0, "bad_steps": []}],
    "acceptance": {"run_id": "r1", "verdict": "accepted", "summary": "all good", "directory": "/fsx/results/r1"},
}
COMPUTE = NODE["nodes"][0]


def findings(**changes: Any) -> Findings:
    """Of a cluster that is well, with changes: to its stacks by part, the head node, what the head node says."""
    stacks = [Stack(part, f"ml-{part}", "CREATE_COMPLETE", 60.0) for part in STACKS]
    stacks.append(Stack(PARALLELCLUSTER, "ml", "CREATE_COMPLETE", 60.0))
    parts: dict[str, Stack] = changes.pop("stacks", {})
    head = HeadNode("i-0123456789abcdef0", "running", "m5.8xlarge", 60.0, {**NODE, **changes.pop("node", {})})
    return Findings(
        stacks=[parts.get(stack.part, stack) for stack in stacks],
        optional=frozenset({PARALLELCLUSTER}),
        head=changes.pop("head", head),
        **changes,
    )


def gone(part: str) -> dict[str, Stack]:
    return {part: Stack(part, f"ml-{part}")}


def stack(part: str, status: str, reason: str = "", **more: Any) -> dict[str, Stack]:
    failed = Step("Cluster", "CREATE_FAILED", None, reason) if reason else None
    return {part: Stack(part, f"ml-{part}", status, 60.0, failed=failed, **more)}


def compute(**changes: Any) -> dict[str, Any]:
    return {"nodes": [{**COMPUTE, **changes}]}


def slurm(**changes: Any) -> dict[str, Any]:
    return {"slurm": {**NODE["slurm"], **changes}}


def in_slurm(word: str, reason: str = "") -> dict[str, Any]:
    return slurm(nodes=[{"name": "gpu-1", "partition": "train", "state": word, "reason": reason}])


STEP = {"step": "compute/30-nccl", "status": "failed", "exit": 1, "log": "/var/log/x.log", "hint": "mend it"}

CASES: list[tuple[Findings, str, str]] = [
    (findings(), "good", ""),
    (findings(stacks=gone("acceptance")), "failed", "ml-acceptance: there is no such stack"),
    (findings(stacks=gone(PARALLELCLUSTER)), "good", ""),
    (findings(stacks=gone("acceptance") | stack("cluster", "CREATE_IN_PROGRESS")), "busy", "ml-cluster: CREATE_IN_"),
    (findings(stacks=stack("cluster", "ROLLBACK_COMPLETE", "too few")), "failed", "first failure: Cluster: too few"),
    (findings(stacks=stack("cluster", "ROLLBACK_IN_PROGRESS", "too few")), "failed", "first failure: Cluster: too few"),
    (findings(stacks=stack("acceptance", "UPDATE_ROLLBACK_COMPLETE", "slow")), "degraded", "Cluster: slow"),
    (
        findings(stacks=stack("cluster", "UPDATE_ROLLBACK_FAILED", "x")),
        "failed",
        "continue-update-rollback --stack-name ml-cluster --resources-to-skip Cluster",
    ),
    (findings(logged=["host=head step=headnode/20-prometheus exit=1"]), "failed", "log of the nodes: host=head"),
    (findings(head=HeadNode("i-1", "stopped")), "failed", "the head node: the instance is stopped"),
    (findings(head=HeadNode("i-1", "running", why_not="it sleeps")), "degraded", "does not say how it is: it sleeps"),
    (findings(head=HeadNode("i-1", "running", why_not="not allowed", unasked=True)), "unknown", ""),
    (findings(node={"steps": [STEP]}), "failed", "the head node: step compute/30-nccl failed (exit 1"),
    (findings(node={"steps": [{**STEP, "status": "reported"}]}), "degraded", "mend it"),
    (
        findings(node={"release": {"in_use": RELEASE, "failed": {"release": "bbbbbbbbbbbb", "step": STEP}}}),
        "degraded",
        "release bbbbbbbbbbbb failed here and is not in use: step compute/30-nccl",
    ),
    (findings(node=slurm(error="no answer", nodes=[])), "failed", "Slurm: no answer"),
    (findings(node=in_slurm("drained", "health: 7 of 8 GPUs")), "degraded", "gpu-1: drained in Slurm: health: 7 of 8"),
    (findings(node=in_slurm("down*")), "degraded", "gpu-1: down* in Slurm"),
    (findings(node=in_slurm("idle*")), "degraded", "gpu-1: idle* in Slurm"),
    (findings(node=in_slurm("allocated")), "good", ""),
    (findings(node=in_slurm("idle~")), "good", ""),
    (findings(node=in_slurm("down~")), "good", ""),
    (findings(node={"fsx_error": "/fsx did not answer within 10 s"}), "degraded", "/fsx did not answer"),
    (findings(node=compute(bad_steps=[STEP])), "failed", "gpu-1: step compute/30-nccl failed"),
    (
        findings(node={"background": [{"name": "nccl", "state": "running", "detail": "builds NCCL"}]}),
        "busy",
        "the head node: background nccl: builds NCCL",
    ),
    (findings(node=compute(background=[{"name": "gpu-exporter", "state": "waiting", "detail": "x"}])), "busy", "gpu-1"),
    (findings(node={**compute(release="bbbbbbbbbbbb"), **in_slurm("idle~")}), "good", ""),  # it takes it at its boot
    (findings(node=compute(release="bbbbbbbbbbbb")), "busy", "gpu-1: another release than the head node's"),
    (findings(node={**compute(bad_steps=[STEP]), **in_slurm("x")}), "failed", "gpu-1"),
    (
        findings(node={**compute(bad_steps=[STEP]), **slurm(nodes=[{"name": "gpu-2", "state": "idle"}])}),
        "good",  # gpu-1 was taken away: what it once reported counts no more
        "",
    ),
    (
        findings(node=compute(background=[{"name": "nccl", "state": "failed", "detail": "no nvcc", "log": "/l"}])),
        "degraded",
        "gpu-1: background nccl: no nvcc (log /l)",
    ),
    (
        findings(node=compute(health={"status": "fail", "bad": ["gpus: fail (7 of 8)"]})),
        "degraded",
        "gpu-1: health: gpus: fail (7 of 8)",
    ),
    (
        findings(node={"acceptance": {"run_id": "r2", "verdict": "not accepted", "summary": "gpu-3 slow"}}),
        "degraded",
        "acceptance: run r2: not accepted: gpu-3 slow",
    ),
    (findings(node={"acceptance": None}), "good", ""),
    (findings(reservations=[{"id": "cr-1", "state": "expired"}]), "failed", "reservation cr-1: it is expired"),
    (findings(reservations=[{"id": "cr-1", "state": "active"}]), "good", ""),
]


@pytest.mark.parametrize(("found", "word", "said"), CASES, ids=[f"{n}-{word}" for n, (_, word, _) in enumerate(CASES)])
def test_problems(found: Findings, word: str, said: str) -> None:
    told = problems(found)
    assert state(told, found) == word
    text = "\n".join(f"{one.where}: {one.text} {one.hint}" for one in told)
    assert said in text if said else not told, text


def test_nothing_is_deployed() -> None:
    found = Findings([Stack(part, f"ml-{part}") for part in STACKS], frozenset(), HeadNode())
    assert (problems(found), state([], found), exit_code("absent")) == ([], "absent", 1)


def test_exit_codes() -> None:
    words = ("good", "busy", "degraded", "failed", "absent", "unknown")
    assert [exit_code(word) for word in words] == [0, 1, 1, 1, 1, 3]


def test_many_bad_nodes_are_counted() -> None:
    bad = [{"name": f"gpu-{number}", "state": "down"} for number in range(40)]
    told = problems(findings(node={**slurm(nodes=bad), "nodes": []}))
    assert [one.text for one in told][-1] == "32 more nodes are out of service"
    old = [{**COMPUTE, "host": f"gpu-{number}", "release": "b"} for number in range(40)]
    (one,) = problems(findings(node={**slurm(nodes=[]), "nodes": old}))
    assert "and 32 more" in one.where


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.6, "1 min"),
        (95, "1 min 35 s"),
        (3600, "1 h"),
        (90061, "1 d 1 h"),
        (None, "unknown time"),
        (-5, "0 s"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def packed(value: Any) -> str:
    return "slipway-status:" + base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


def test_the_packed_answer_is_found_among_other_lines() -> None:
    assert unpack(f"motd\n{packed({'host': 'head'})}\n") == {"host": "head"}


@pytest.mark.parametrize(
    "output",
    [
        "",
        "slipway-status:",
        "slipway-status:!!!",
        "slipway-status:aGVsbG8=",
        packed([1]),
        packed({"a": "b" * 5000})[:-20] + "\n---Output truncated---",
    ],
)
def test_what_is_no_answer_is_told(output: str) -> None:
    with pytest.raises(status_head._NoAnswer, match="cannot be read"):
        unpack(output)


def test_an_answer_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_head, "MAX_BYTES", 1000)
    with pytest.raises(status_head._NoAnswer):
        unpack(packed({"a": "b" * 5000}))
