"""What is wrong with a cluster, in which words, and with which exit code: without AWS."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from slipway.settings.rules.place import STACKS
from slipway.stack_repairs import BEGUN_ANEW, REPAIRS, repair
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


def fsx_row(state: str, kind: str = "file system") -> dict[str, Any]:
    return {"kind": kind, "id": "x-1", "what": "w", "state": state, "reason": "why", "repair": "mend it"}


def block(minutes: float) -> dict[str, Any]:
    return {"id": "cr-1", "state": "active", "is_block": True, "seconds_left": 60.0 * minutes + 1}


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
        "/cdk rollback ml-cluster --context settings=FILE",
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
    (
        findings(node={"accounting_error": "slurmdbd at x:6819 does not answer"}),
        "degraded",
        "accounting: slurmdbd at x",
    ),
    (findings(node={"remote_write": {"sent": 9, "refused": 0, "retried": 2}}), "good", ""),
    (
        findings(node={"remote_write": {"sent": 9, "refused": 753, "retried": 0, "why": "HTTP status 400: limit"}}),
        "degraded",
        "metrics: Managed Prometheus refused 753 samples in 15 min, they are lost; 9 sent: HTTP status 400: limit",
    ),
    (findings(node={"remote_write": {"sent": 0, "refused": 0, "retried": 8}}), "degraded", "8 were sent again"),
    (findings(node={"remote_write": {"error": "Prometheus does not say"}}), "degraded", "status slipway-prometheus"),
    (findings(node={"remote_write": None}), "good", ""),
    (findings(file_systems=[fsx_row("AVAILABLE"), fsx_row("AVAILABLE", "association")]), "good", ""),
    (findings(file_systems=[fsx_row("UPDATING")]), "busy", "file system x-1: it is UPDATING"),
    (findings(file_systems=[fsx_row("MISCONFIGURED_UNAVAILABLE")]), "failed", "w is MISCONFIGURED_UNAVAILABLE: why"),
    (findings(file_systems=[fsx_row("MISCONFIGURED", "association")]), "degraded", "MISCONFIGURED: why mend it"),
    (findings(reservations=[block(71)]), "good", ""),
    (
        findings(reservations=[block(69)]),
        "degraded",
        "EC2 ends the block's instances in 39 min 1 s, 30 min before its end",
    ),
    (findings(reservations=[block(31)]), "degraded", "in 1 min"),
    (findings(reservations=[block(25)]), "failed", "the last 30 minutes of the block have begun"),
    (findings(reservations=[{**block(25), "is_block": False}]), "good", ""),
    (findings(reservations=[{**block(25), "state": "scheduled"}]), "good", ""),
]


ICE = "(Code:InsufficientInstanceCapacity)Failure when resuming nodes"
TIMEOUT = "ResumeTimeout reached"
MAINTENANCE = "Static node maintenance: unhealthy node is being replaced"
STATIC, DYNAMIC = "train-st-gpu-1", "train-dy-gpu-1"


def fleet(state: str, reason: str = "", *, name: str = STATIC, age_s: float | None = 100, **more: Any) -> Findings:
    """A fleet of one node, as fleet.py of the head node says it."""
    one = {"name": name, "partition": "train", "state": state}
    one |= {"reason": reason, "reason_age_s": age_s} if reason else {}
    full = {"nodes": [one], "partitions": {"train": "up"}, "fleet": "RUNNING", "up_s": 86400.0, **more}
    return findings(node={**slurm(**full), "nodes": []})


START = "pcluster update-compute-fleet --cluster-name ml --status START_REQUESTED"
FLEET_CASES: list[tuple[Findings, str, tuple[str, ...]]] = [
    (fleet("idle", partitions={"train": "inact"}, fleet="PROTECTED"), "failed", ("protected mode", "INACTIVE", START)),
    (fleet("idle~", partitions={"train": "inactive"}), "failed", ("partition train: it is INACTIVE", START)),
    (fleet("idle~", partitions={"train": "inact"}, fleet="STOPPED"), "failed", ("the fleet was stopped", START)),
    (fleet("idle", fleet="STARTING"), "busy", ("the fleet is being started",)),
    (fleet("idle", partitions={"train": "down"}), "degraded", ("it is down: its jobs wait", "partitionname=train")),
    (fleet("down~", ICE, name=DYNAMIC), "degraded", ("EC2 has no capacity: (Code:Insuff", "slipway preflight")),
    (fleet("down~", "(Code:UnauthorizedOperation)Failure"), "degraded", ("EC2 launched no machine: (Code:Unauth",)),
    (fleet("down~", TIMEOUT), "degraded", ("did not join Slurm in time", f"--node {STATIC}")),
    (fleet("down*", MAINTENANCE, age_s=600), "busy", ("replaces its machine for 10 min",)),
    (fleet("down~", MAINTENANCE, age_s=2200), "degraded", ("replaces its machine for 36 min", "evidence")),
    (fleet("down~", MAINTENANCE, age_s=None), "degraded", ("replaces its machine: Static",)),
    (fleet("down~", "Scheduler health check failed", name=DYNAMIC), "degraded", ("ParallelCluster gave it up",)),
    (fleet("down*", "Not responding"), "degraded", ("its slurmd does not answer: Not responding",)),
    (fleet("down~", "bad cable"), "degraded", ("down~ in Slurm: bad cable",)),
    (fleet("drained~", "slipway: gpu 3: x"), "degraded", ("slipway: gpu 3: x",)),
    (fleet("down~"), "degraded", ("down~ in Slurm",)),
    (fleet("down#", "resume"), "good", ()),
    (fleet("idle~"), "degraded", ("a static node without a machine",)),
    (fleet("idle~", up_s=900.0), "busy", ("it has no machine yet, 15 min after the head node's start",)),
    (fleet("idle~", up_s=None), "degraded", ("a static node without a machine",)),
    (fleet("idle~", name=DYNAMIC), "good", ()),
    (fleet("idle%", name=DYNAMIC), "good", ()),
    (fleet("mixed#"), "good", ()),
    (fleet("maint~"), "good", ()),  # a block that has not begun: the reservation's line says so
    (fleet("idle", launches={STATIC: 2}), "good", ()),
    (fleet("idle", launches={STATIC: 3}, drains={STATIC: 2}), "degraded", ("3 times in 24 h, 2 of them after",)),
    (fleet("idle", launches={f"train-st-gpu-{n}": 5 for n in range(12)}), "degraded", ("4 more nodes are replaced",)),
]


@pytest.mark.parametrize("status", sorted({*REPAIRS, *BEGUN_ANEW} - {"REVIEW_IN_PROGRESS"}))
def test_a_failed_stack_has_the_repair_that_preflight_names(status: str) -> None:
    (found,) = problems(findings(stacks=stack("network", status, "x")))
    assert found.hint == repair(status, "ml-network")
    (found,) = problems(findings(stacks=stack(PARALLELCLUSTER, status, "x")))
    assert found.hint == ""  # `cdk` does nothing with ParallelCluster's own stack


@pytest.mark.parametrize(("found", "word", "parts"), FLEET_CASES, ids=range(len(FLEET_CASES)))
def test_a_fleet_that_does_not_work_is_not_good(found: Findings, word: str, parts: tuple[str, ...]) -> None:
    told = problems(found)
    text = "\n".join(f"{one.where}: {one.text} {one.hint}" for one in told)
    assert state(told, found) == word, text
    for part in parts:
        assert part in text
    assert bool(told) == bool(parts), text
    assert exit_code(state(told, found)) == (0 if word == "good" else 1)


def test_a_brake_that_keeps_a_broken_node_in_service_is_said() -> None:
    health = {"status": "fail", "bad": ["gpu-ecc: fail (x)"], "action": "not drained: 1 of 4 nodes were drained"}
    (one,) = problems(findings(node=compute(health=health)))
    assert one.text == "health: gpu-ecc: fail (x); not drained: 1 of 4 nodes were drained"


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
