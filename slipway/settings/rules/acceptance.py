"""Rules of acceptance, monitoring and the budget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from slipway.places import ACCEPTANCE
from slipway.settings.model import Queue, Settings
from slipway.settings.rules.rule import COUNT_KEYS, Finding, rule, warning
from slipway.settings.scenario_fit import has_pyxis
from slipway.text import plural

LIMITS_FILE = ACCEPTANCE / "limits/limits.json"
WARM_UP = 4  # measured iterations for each warm-up iteration; slipway/bundle.py uses it too
MIB, GIB = 1 << 20, 1 << 30
BUFFERS = 3  # to send, to receive, to compare with
NETWORK_BOUND, MOST_APART = 4, 4  # nodes of an all_reduce, factor; acceptance/limits/interpolate.py
SIDES = 2  # nccl-tests measures out of place and in place
QUEUE_KEYS = ("queues.instance_type", *COUNT_KEYS, "acceptance.nodes", "acceptance.scenario")
SWEEP_KEYS = ("acceptance.min_bytes", "acceptance.max_bytes")
LIMIT_KEYS = ("acceptance.limits",)


@lru_cache(maxsize=1)
def _limits_file() -> dict[str, Any]:
    """Return the limits of acceptance, read as data: `acceptance` itself is the head node's program."""
    data: dict[str, Any] = json.loads(LIMITS_FILE.read_text(encoding="utf-8"))
    return data


def _judged(s: Settings) -> Queue | None:
    """The queue whose network acceptance measures; None when it measures none."""
    queue = s.gpu_queue if s.measures_network else None
    return queue if queue and s.judged_nodes >= 1 else None


def _limited(s: Settings) -> Queue | None:
    """The queue that the settings' limits are for; a CloudAI scenario has NcclTests that are judged by them too."""
    queue = s.gpu_queue if s.acceptance.scenario != "none" else None
    return queue if queue and s.judged_nodes >= 1 else None


def _visited(s: Settings, size: int) -> bool:
    """Whether the sweep stops at `size`: min_bytes doubled again and again."""
    steps, rest = divmod(size, s.acceptance.min_bytes)
    return rest == 0 and size <= s.acceptance.max_bytes and steps > 0 and steps & (steps - 1) == 0


def _last_size(s: Settings) -> int:
    """The largest size of the sweep, in bytes: min_bytes doubled as often as max_bytes allows."""
    doublings = (s.acceptance.max_bytes // s.acceptance.min_bytes).bit_length() - 1
    return s.acceptance.min_bytes << max(doublings, 0)


def _largest_buffer(memory: int) -> int:
    """Bytes of a buffer that nccl-tests takes on a GPU of `memory` bytes."""
    spare = min(-(-memory // (16 * GIB)), 4) * GIB + GIB
    return (memory - spare) // BUFFERS


@warning(
    why="nccl-tests keeps three buffers of the largest size, spares up to 5 GiB, and cuts a larger sweep: what "
    "was to be measured at the end is not.",
    source="nccl-tests src/common.cu, memMaxBytes; nccl-tests issue 322",
    keys=(*QUEUE_KEYS, *SWEEP_KEYS),
)
def sweep_memory(s: Settings) -> Iterator[Finding]:
    queue = _judged(s)
    most = _largest_buffer(queue.instance.gpu_memory_mib * MIB) if queue else 0
    if queue and _last_size(s) > most:
        text = f"a GPU of {queue.instance_type} has room for {most // MIB} MiB a buffer, and nccl-tests stops there"
        yield ("acceptance", "max_bytes"), text, "take a smaller size, and limits at sizes that are measured"


@rule(
    why="A sweep goes from the small size to the large one; this one would measure nothing.",
    source="nccl-tests README: -b, -e, -f",
    keys=SWEEP_KEYS,
)
def sweep_order(s: Settings) -> Iterator[Finding]:
    if s.acceptance.min_bytes > s.acceptance.max_bytes:
        yield ("acceptance", "min_bytes"), "is larger than max_bytes", "swap them"


@rule(
    why="nccl-tests runs on GPUs.",
    source="nccl-tests README",
    keys=("queues.instance_type", "acceptance.scenario"),
)
def acceptance_gpus(s: Settings) -> Iterator[Finding]:
    if s.acceptance.scenario != "none" and s.gpu_queue is None:
        text = "needs a queue with GPUs"
        yield ("acceptance", "scenario"), text, "set scenario: none for a cluster without GPUs"


@rule(
    why="Acceptance judges the nodes that are there when the cluster is ready; dynamic ones start, and cost, only "
    "when they are asked for by number.",
    source="Slipway: stacks/acceptance.py",
    keys=(*QUEUE_KEYS, "queues.name"),
)
def acceptance_nodes(s: Settings) -> Iterator[Finding]:
    queue = s.gpu_queue
    if s.measures_network and queue and s.judged_nodes < 1 <= queue.max_count:
        text = f"queue {queue.name} has no static node to judge"
        hint = "give it count or min_count, set acceptance.nodes (so many start, and cost), or set scenario: none"
        yield ("acceptance", "scenario"), text, hint


@rule(
    why="More nodes than there can be are never there; static nodes that are left out would be accepted unseen.",
    source="Slipway: stacks/acceptance.py",
    keys=(*QUEUE_KEYS, "queues.name"),
)
def acceptance_node_count(s: Settings) -> Iterator[Finding]:
    queue, nodes = s.gpu_queue, s.acceptance.nodes
    if queue and nodes and not queue.min_count <= nodes <= queue.max_count:
        text = f"queue {queue.name} has {queue.min_count} to {queue.max_count} nodes"
        yield ("acceptance", "nodes"), text, "take a number from that range, or leave it out for the static ones"


@warning(
    why="The nodes' images have no torch; without it the suite is reported as not measured, and acceptance fails.",
    source="docs/gpu-suite.md",
    keys=("acceptance.scenario", "images", "containers.pyxis", "containers.format"),
)
def full_image(s: Settings) -> Iterator[Finding]:
    if s.acceptance.scenario == "full" and not (s.images and has_pyxis(s)):
        text = "runs the GPU suite with the python3 of the nodes: no image is listed, or no node has pyxis"
        yield ("acceptance", "scenario"), text, "list an image with torch first in images, with containers.pyxis: true"


@rule(
    why="No measurement is ever compared with such a limit.",
    source="Slipway: acceptance/limits",
    keys=(*QUEUE_KEYS, *LIMIT_KEYS, "queues.name"),
)
def limit_nodes(s: Settings) -> Iterator[Finding]:
    queue = _limited(s)
    for index, limit in enumerate(s.acceptance.limits):
        if queue and limit.nodes > queue.max_count:
            text = f"is more than the {queue.max_count} nodes of queue {queue.name}"
            yield ("acceptance", "limits", index, "nodes"), text, "limits are for this cluster's node counts"


@rule(
    why="No measurement is compared with a limit at a size that is not measured.",
    source="nccl-tests README: -f 2 doubles the size",
    keys=(*QUEUE_KEYS, *LIMIT_KEYS, *SWEEP_KEYS),
)
def limit_size(s: Settings) -> Iterator[Finding]:
    queue = _limited(s)
    for index, limit in enumerate(s.acceptance.limits):
        if queue and limit.nodes == s.judged_nodes and not _visited(s, limit.size):
            text = "is not a size that the sweep visits: min_bytes doubled again and again"
            yield ("acceptance", "limits", index, "size"), text, "take such a size"


@rule(
    why="Below the lower of the two a cluster has failed; a warning level below it is never reached.",
    source="Slipway: acceptance/limits",
    keys=LIMIT_KEYS,
)
def limit_order(s: Settings) -> Iterator[Finding]:
    for index, limit in enumerate(s.acceptance.limits):
        if limit.warn_below_gb_per_s is not None and limit.warn_below_gb_per_s < limit.fail_below_gb_per_s:
            text = f"is below fail_below_gb_per_s ({limit.fail_below_gb_per_s})"
            yield ("acceptance", "limits", index, "warn_below_gb_per_s"), text, "a warning comes before a failure"


def _limits_of(s: Settings, queue: Queue) -> list[tuple[int, float]]:
    """Size in bytes and the least bus bandwidth in GB/s of every all_reduce limit that the sweep is compared with."""
    limits = [
        (limit.size, limit.fail_below_gb_per_s)
        for limit in s.acceptance.limits
        if limit.nodes == s.judged_nodes and limit.collective == "all_reduce"
    ]
    limits += [
        (row["size_bytes"], row["fail_below_gb_per_s"])
        for row in _known_rows(queue)
        if row["nodes"][0] <= s.judged_nodes <= row["nodes"][1]
    ]
    limits += _between(_known_rows(queue), s.judged_nodes)
    return [(size, least) for size, least in limits if _visited(s, size)] or _derived(s, queue)


def _derived(s: Settings, queue: Queue) -> list[tuple[int, float]]:
    """The largest size, and the least limit that acceptance/limits/derived.py derives from the rates for it."""
    rates = _limits_file()["network"]["instance_types"].get(queue.instance_type)
    if rates is None or (s.judged_nodes > 1 and rates["cards"] > 1 and not queue.efa):
        return []
    shares = _limits_file()["derived"]["nvlink" if rates["nvlink_gb_per_s"] else "pcie"]
    neighbour = rates["nvlink_gb_per_s"] / 2 if rates["nvlink_gb_per_s"] else _limits_file()["derived"]["pcie_gb_per_s"]
    bounds = [shares["gpu_share"] * neighbour] if rates["gpus"] > 1 else []
    bounds += [shares["network_share"] * rates["network_gbit_per_s"] / 8] if s.judged_nodes > 1 else []
    return [(_last_size(s), min(bounds))] if bounds and _last_size(s) >= shares["from_size_bytes"] else []


def _known_rows(queue: Queue) -> list[dict[str, Any]]:
    return [
        row
        for row in _limits_file()["limits"]
        if (row["instance_type"], row["collective"]) == (queue.instance_type, "all_reduce")
    ]


def _between(rows: list[dict[str, Any]], nodes: int) -> list[tuple[int, float]]:
    """Sizes whose limit acceptance interpolates between fewer and more nodes, with the lower of the two limits."""
    limits = []
    for size in {row["size_bytes"] for row in rows}:
        fewer = [row for row in rows if row["size_bytes"] == size and NETWORK_BOUND <= row["nodes"][1] < nodes]
        more = [row for row in rows if row["size_bytes"] == size and row["nodes"][0] > nodes]
        few = max(fewer, key=lambda row: int(row["nodes"][1]), default=None)
        many = min(more, key=lambda row: int(row["nodes"][0]), default=None)
        if few and many and many["nodes"][0] <= MOST_APART * few["nodes"][1]:
            limits.append((size, min(few["fail_below_gb_per_s"], many["fail_below_gb_per_s"])))
    return limits


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


@rule(
    why="A measurement without a limit to compare with is not accepted; without this rule that is reported at the "
    "very end.",
    source="acceptance/limits/limits.json",
    keys=(*QUEUE_KEYS, "queues.efa", *LIMIT_KEYS, *SWEEP_KEYS),
)
def limit_unknown(s: Settings) -> Iterator[Finding]:
    queue = _judged(s)
    if queue and s.judged_nodes * queue.instance.gpus == 1:
        text = "one node with one GPU exchanges data with no other: its bus bandwidth is 0, and no limit can be met"
        yield ("acceptance",), text, "take 2 nodes or more, or set scenario: none"
        return
    has_limit = queue and any(
        limit.nodes == s.judged_nodes and _visited(s, limit.size) for limit in s.acceptance.limits
    )
    if queue is None or has_limit or _limits_of(s, queue):
        return
    counts = ", ".join(dict.fromkeys(_range(*row["nodes"]) for row in _known_rows(queue)))
    yield (
        ("acceptance", "limits") if s.acceptance.limits else ("acceptance",),
        f"no limit is known for an all_reduce on {s.judged_nodes} x {queue.instance_type} at a size of this sweep",
        f"give acceptance.limits one for {plural(s.judged_nodes, 'node')}, or set scenario: none"
        + (f" (known are {counts} nodes of this type)" if counts else ""),
    )


@warning(
    why="The time-out would fail a cluster whose measurement is good. Counted are two sides of every size, "
    "with warm-up, at the speed of the lowest limit.",
    source="nccl-tests PERFORMANCE.md: bus bandwidth of all_reduce; slipway/bundle.py",
    keys=(
        *QUEUE_KEYS,
        "queues.efa",
        *LIMIT_KEYS,
        *SWEEP_KEYS,
        "acceptance.iterations",
        "acceptance.timeout_minutes",
    ),
)
def acceptance_time(s: Settings) -> Iterator[Finding]:
    queue = _judged(s)
    limits = _limits_of(s, queue) if queue else []
    if queue is None or not limits:
        return
    ranks = s.judged_nodes * queue.instance.gpus
    slowest = min(least for _, least in limits) * 1e9
    rounds = s.acceptance.iterations + max(1, s.acceptance.iterations // WARM_UP)
    moved = 2 * _last_size(s) * 2 * (ranks - 1) / ranks  # all sizes of a doubling sweep are twice the last
    minutes = moved * rounds * SIDES / slowest / 60
    if minutes > s.acceptance.timeout_minutes:
        text = f"a cluster that just passes its limit needs about {minutes:.0f} minutes for the sweep"
        yield ("acceptance", "timeout_minutes"), text, "a smaller max_bytes or fewer iterations"


@warning(
    why="The dashboards read from Amazon Managed Prometheus alone.",
    source="Slipway: stacks/observability.py",
    keys=("observability.grafana", "observability.prometheus"),
)
def grafana_without_prometheus(s: Settings) -> Iterator[Finding]:
    if s.observability.grafana and not s.observability.prometheus:
        text = "Grafana would have nothing to show"
        yield ("observability", "grafana"), text, "set prometheus: true, or grafana: false"


@rule(
    why="A budget only sends messages; AWS Budgets needs an address for each notification.",
    source="AWS Budgets API reference, Subscriber",
    keys=("budget", "observability.alert_email"),
)
def budget_reader(s: Settings) -> Iterator[Finding]:
    if s.budget and not s.observability.alert_email:
        yield ("budget",), "needs an address to report to", "set observability.alert_email"
