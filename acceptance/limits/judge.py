"""Judging one test: first whether the measurement is sound, then whether it is fast enough.

The average over a sweep is never judged: the same healthy pair of nodes averages 124 GB/s over one range of sizes and
463 over another. What is judged is the out-of-place bus bandwidth at a limit's own size.
"""

from __future__ import annotations

from dataclasses import replace

from acceptance.limits.bandwidth import measured_busbw
from acceptance.limits.baseline import baseline_limit
from acceptance.limits.card_bandwidth import network_limit
from acceptance.limits.check import Check
from acceptance.limits.data import Reference, known_limits, measured_by_others, network_cards
from acceptance.limits.derived import BASIS
from acceptance.limits.lookup import find_limits
from acceptance.limits.soundness import sound
from acceptance.nccl.model import Log, Row, Table
from acceptance.scenario.model import Baseline, Limit, Scenario, Test
from acceptance.text import gb_text, plural, size_text


def judge_log(scenario: Scenario, test: Test, log: Log, nodes: int) -> list[Check]:
    """Answer every question about a finished log of `test` on `nodes` nodes."""
    ranks = nodes * scenario.gpus_per_node
    checks = sound(scenario, test, log, ranks)
    if log.tables:
        checks += _fast(scenario, test, log.tables[0], nodes)
    return checks


def _largest_row(table: Table) -> Row | None:
    """The row of the largest size, None for an empty table."""
    return max(table.rows, key=lambda row: row.size, default=None)


def baselines_of(scenario: Scenario, collective: str, nodes: int) -> dict[int, Baseline]:
    """The site's baselines for a collective on so many nodes, by size in bytes."""
    fitting = (one for one in scenario.baselines if (one.collective, one.nodes) == (collective, nodes))
    return {one.size_bytes: one for one in fitting}


def references(scenario: Scenario, collective: str, nodes: int) -> list[Reference]:
    """What others measured with the same collective, instance type and number of nodes, smallest size first."""
    wanted = (scenario.instance_type, collective, nodes)
    found = [one for one in measured_by_others() if (one.instance_type, one.collective, one.nodes) == wanted]
    return sorted(found, key=lambda one: one.size_bytes)


def _fast(scenario: Scenario, test: Test, table: Table, nodes: int) -> list[Check]:
    """Compare the bandwidths with the network cards' rate, the limits and the site's baseline."""
    ranks = nodes * scenario.gpus_per_node
    limits = _limits(scenario, test, table, nodes)
    baselines = baselines_of(scenario, test.collective, nodes)
    checks = _left_out(test, table)
    if all(limit.basis != BASIS for limit in limits):  # a derived limit is at least as high as this one
        checks += _through_cards(scenario, test, table, nodes)
    for limit in limits:
        # A baseline takes the place of a limit that we brought along. Its fail bound stays as the floor: a baseline
        # follows the site's runs, and could sink a little with each of them.
        ours = limit.instance_type is not None and limit.size_bytes in baselines
        checks.append(_against(replace(limit, warn_below_gb_per_s=None) if ours else limit, test, table, ranks))
    held = _against_baselines(baselines, limits, test, table, ranks)
    if not limits and not held:
        return [*checks, _no_limit(scenario, test, table, nodes)]
    return checks + held


def _limits(scenario: Scenario, test: Test, table: Table, nodes: int) -> list[Limit]:
    """The limits of the sizes of the sweep; a derived one holds for the largest size that was measured."""
    limits, top = find_limits(scenario, test.collective, nodes, test.sizes()), _largest_row(table)
    if top is not None and any(limit.basis == BASIS for limit in limits):
        return find_limits(scenario, test.collective, nodes, [top.size])
    return limits


def _left_out(test: Test, table: Table) -> list[Check]:
    """Report the sizes that nccl-tests left out because its buffers did not fit into the GPUs' memory."""
    most = table.reduced_max_bytes
    left_out = [size for size in test.sizes() if most is not None and size > most]
    if not left_out:
        return []
    message = (
        f"{plural(len(left_out), 'size')} from {size_text(left_out[0])} on left out: nccl-tests reduced its largest"
        f" size to {most} bytes for lack of GPU memory, and the run is judged on the sizes that were measured"
    )
    return [Check("sizes", "pass", message)]


def _through_cards(scenario: Scenario, test: Test, table: Table, nodes: int) -> list[Check]:
    cards, row = network_cards(scenario.instance_type), _largest_row(table)
    if cards is None or row is None or scenario.network is None or scenario.network.provider != "efa":
        return []
    limit = network_limit(cards, test.collective, nodes, scenario.gpus_per_node, row.size)
    if limit is None:
        return []
    return [_against(limit, test, table, nodes * scenario.gpus_per_node, "bandwidth through the network cards")]


def _against_baselines(
    baselines: dict[int, Baseline], limits: list[Limit], test: Test, table: Table, ranks: int
) -> list[Check]:
    """One check a size that has a limit, and one for the largest; small sizes vary too much from run to run."""
    top = _largest_row(table)
    sizes = dict.fromkeys([*(limit.size_bytes for limit in limits), *([top.size] if top else [])])
    held = [size for size in sizes if size in baselines and table.row(size) is not None]
    name = "bandwidth against the baseline at"
    return [_against(baseline_limit(baselines[one]), test, table, ranks, f"{name} {size_text(one)}") for one in held]


def _no_limit(scenario: Scenario, test: Test, table: Table, nodes: int) -> Check:
    ranks = nodes * scenario.gpus_per_node
    row = _largest_row(table)
    value = measured_busbw(test.collective, ranks, row) if row else None
    where = f"{gb_text(value)} GB/s at {size_text(row.size)}" if row else "nothing"
    message = (
        f"no limit is known for {test.collective} on {plural(nodes, 'node')} of {scenario.instance_type}:"
        f" measured {where}, not judged. {_what_is_known(scenario, test, nodes)}. Add a limit to the scenario"
    )
    if ranks < 2:
        message = (
            "one GPU exchanges data with no other: its bus bandwidth is 0 by definition, and no limit can be met."
            " Measure 2 nodes or more, or a node with several GPUs"
        )
    missing = test.missing_limit or scenario.missing_limit
    return Check("bandwidth", "unjudged" if missing == "fail" else "no limit", message, value)


def _what_is_known(scenario: Scenario, test: Test, nodes: int) -> str:
    """Of this instance type: limits elsewhere, what others measured, or nothing at all."""
    measured = [one for one in references(scenario, test.collective, nodes) if one.size_bytes in test.sizes()]
    if measured:
        last = measured[-1]
        return f"Others measured {gb_text(last.gb_per_s)} GB/s at {size_text(last.size_bytes)} ({last.source})"
    known = [limit for limit in known_limits() if limit.instance_type == scenario.instance_type]
    own = [limit for limit in known if limit.collective == test.collective]
    if own:
        counts = dict.fromkeys(limit.node_counts for limit in sorted(own, key=lambda one: one.nodes_min))
        sizes = dict.fromkeys(size_text(limit.size_bytes) for limit in sorted(own, key=lambda one: one.size_bytes))
        return f"Limits are known on {', '.join(counts)} nodes at {', '.join(sizes)}"
    if known:
        names = ", ".join(sorted({limit.collective for limit in known}))
        return f"Limits of this instance type are known for {names} only"
    return "Nothing is known of this instance type"


def _against(limit: Limit, test: Test, table: Table, ranks: int, name: str | None = None) -> Check:
    name = name or f"bandwidth at {size_text(limit.size_bytes)}"
    row = table.row(limit.size_bytes)
    if row is None:
        why = ""
        if table.reduced_max_bytes is not None and table.reduced_max_bytes < limit.size_bytes:
            why = f": nccl-tests reduced its largest size to {table.reduced_max_bytes} bytes for lack of memory"
        return Check(name, "fail", f"{size_text(limit.size_bytes)} was not measured{why}", None, limit)
    value = measured_busbw(test.collective, ranks, row)
    warn = limit.warn_below_gb_per_s
    expected = limit.fail_below_gb_per_s if warn is None else warn
    bounds = f"{limit.basis}: " if limit.basis in ("provisional", "derived") else ""
    bounds += f"fail below {gb_text(limit.fail_below_gb_per_s)}"
    bounds += f", warn below {gb_text(warn)}" if warn is not None else ""
    bounds += f"; {limit.note}" if limit.note else ""
    text = f"busbw={gb_text(value)} GB/s, expected >= {gb_text(expected)} ({bounds}; {limit.source}, {limit.date})"
    if not value >= limit.fail_below_gb_per_s:
        return Check(name, "fail", f"too slow: {text}", value, limit)
    if warn is not None and not value >= warn:
        return Check(name, "warn", f"slower than it should be: {text}", value, limit)
    return Check(name, "pass", text, value, limit)
