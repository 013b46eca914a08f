"""Judging one test: first whether the measurement is sound, then whether it is fast enough.

The average over a sweep is never judged: the same healthy pair of nodes averages 124 GB/s over one range of sizes and
463 over another. What is judged is the out-of-place bus bandwidth at a limit's own size.
"""

from __future__ import annotations

from dataclasses import dataclass

from acceptance.limits.bandwidth import measured_busbw, proves_ranks, rank_range
from acceptance.limits.lookup import find_limits
from acceptance.nccl.model import Log, Row, Table
from acceptance.scenario.model import Limit, NetworkWanted, Scenario, Test
from acceptance.units import gb_text, plural, size_text

ORDER = ("pass", "warn", "unjudged", "fail")


@dataclass(frozen=True)
class Check:
    """One question and its answer. outcome: pass, warn, unjudged or fail; the numbers are in GB/s."""

    name: str
    outcome: str
    message: str
    measured: float | None = None
    limit: Limit | None = None


def worst(outcomes: list[str]) -> str:
    """The worst of some outcomes; no outcome at all is 'unjudged'."""
    return max(outcomes, key=ORDER.index, default="unjudged")


def judge_log(scenario: Scenario, test: Test, log: Log, nodes: int) -> list[Check]:
    """Answer every question about a finished log of `test` on `nodes` nodes."""
    checks = [_tool(log), _one_table(log)]
    if log.tables:
        table = log.tables[0]
        ranks = nodes * scenario.gpus_per_node
        checks += [_whole(table), _ranks(test, log, table, ranks), _data(table)]
        if scenario.network is not None:
            checks.append(_network(scenario.network, log))
        checks += _bandwidth(scenario, test, table, nodes, ranks)
    return checks


def _tool(log: Log) -> Check:
    said = [failure for failure in log.failures if failure.kind != "chain"] or log.failures
    if not said:
        return Check("nccl-tests", "pass", "nccl-tests reported no failure")
    # The first host to report an NCCL failure is often the victim: one with a CUDA failure is nearer the cause.
    first = next((failure for failure in said if failure.kind == "cuda"), said[0])
    host = f" on {first.host}" if first.host else ""
    return Check("nccl-tests", "fail", f"nccl-tests failed{host}: {first.message}")


def _one_table(log: Log) -> Check:
    if len(log.tables) == 1:
        return Check("processes", "pass", "one table: the processes found each other")
    if not log.tables:
        return Check("processes", "fail", "the log holds no table: nccl-tests printed no result")
    message = (
        f"{len(log.tables)} tables in a job that prints one: the processes never met, each measured alone."
        " nccl-tests was built without MPI, or srun's --mpi does not fit it"
    )
    return Check("processes", "fail", message)


def _whole(table: Table) -> Check:
    if table.complete:
        return Check("complete", "pass", f"the table is complete: {plural(len(table.rows), 'size')}")
    cut = [bad.size for bad in table.bad_rows] + [row.size for row in table.rows if not row.complete]
    where = f"at size {size_text(cut[0])}" if cut else "before its last lines"
    return Check("complete", "fail", f"the table is truncated {where}: the job ended early or the log was cut")


def _ranks(test: Test, log: Log, table: Table, ranks: int) -> Check:
    if log.form == "text" and log.devices and len(log.devices) != ranks:
        return Check("ranks", "fail", f"{plural(len(log.devices), 'GPU')} took part, expected {ranks}")
    rows = [row for row in table.rows if row.size > 0]
    row = max(rows, key=lambda row: row.out_of_place.busbw, default=None)
    bounds = rank_range(test.collective, row) if row is not None else None
    if bounds is None:
        if not proves_ranks(test.collective) and log.devices:
            return Check("ranks", "pass", f"{len(log.devices)} ranks are listed")
        return Check("ranks", "fail", f"nothing in the log proves that {ranks} ranks took part")
    least, most = bounds
    if least <= ranks and (most is None or ranks <= most):
        span = f"{least}" if most == least else f"{least} to {most or 'any'}"
        return Check("ranks", "pass", f"busbw / algbw fits {ranks} ranks (it allows {span})")
    seen = f"at least {least}" if most is None else (f"{least}" if least >= most else f"{least} to {most}")
    return Check("ranks", "fail", f"busbw / algbw proves {seen} ranks, expected {ranks}: not every GPU took part")


def _data(table: Table) -> Check:
    wrong = [row.size for row in table.rows for side in (row.out_of_place, row.in_place) if side and side.wrong]
    if wrong or table.out_of_bounds or table.out_of_bounds_ok is False:
        where = f" at {size_text(wrong[0])}" if wrong else ""
        count = f"{table.out_of_bounds} values out of bounds" if table.out_of_bounds else "wrong elements were counted"
        return Check("data", "fail", f"wrong data{where}: {count}. A result that is wrong has no bandwidth")
    if any(row.out_of_place.wrong is not None or row.out_of_place.error is not None for row in table.rows):
        return Check("data", "pass", "every result was checked and is right")
    return Check("data", "unjudged", "nccl-tests did not check its results (every #wrong is N/A)")


def _network(wanted: NetworkWanted, log: Log) -> Check:
    network = log.network
    if not network.seen:
        return Check("network", "fail", "the log does not say which network NCCL used: NCCL_DEBUG=INFO had no effect")
    if network.red_flags and wanted.provider not in ("tcp", "sockets"):
        return Check("network", "fail", f"wrong transport: {network.red_flags[0]}, expected {wanted.provider}")
    providers = {name: host.provider for name, host in network.hosts.items() if host.provider}
    if not providers:
        return Check("network", "fail", f"no host names its provider, expected {wanted.provider}")
    for name, provider in sorted(providers.items()):
        if provider.split(";")[0] != wanted.provider:
            return Check("network", "fail", f"wrong provider on {name}: {provider}, expected {wanted.provider}")
    if wanted.nics is not None:
        for name, host in sorted(network.hosts.items()):
            if host.nics is not None and host.nics < wanted.nics:
                message = f"too few network cards on {name}: {host.nics}, expected {wanted.nics}"
                return Check("network", "fail", message)
        if not network.values("nics"):
            return Check("network", "unjudged", f"no host says how many network cards it found, expected {wanted.nics}")
    return Check("network", "pass", f"provider {wanted.provider} on {plural(len(providers), 'host')} that reported")


def _bandwidth(scenario: Scenario, test: Test, table: Table, nodes: int, ranks: int) -> list[Check]:
    limits = find_limits(scenario, test.collective, nodes, test.sizes())
    if not limits:
        return [_no_limit(scenario, test, table, nodes, ranks)]
    return [_against(limit, test, table, ranks) for limit in limits]


def _no_limit(scenario: Scenario, test: Test, table: Table, nodes: int, ranks: int) -> Check:
    row = largest_row(table)
    value = measured_busbw(test.collective, ranks, row) if row else None
    where = f"{gb_text(value)} GB/s at {size_text(row.size)}" if row else "nothing"
    message = (
        f"no limit is known for {test.collective} on {plural(nodes, 'node')} of {scenario.instance_type}:"
        f" measured {where}, not judged. Add a limit to the scenario"
    )
    return Check("bandwidth", "unjudged" if scenario.missing_limit == "fail" else "warn", message, value)


def largest_row(table: Table) -> Row | None:
    """The row of the largest size, None for an empty table."""
    return max(table.rows, key=lambda row: row.size, default=None)


def _against(limit: Limit, test: Test, table: Table, ranks: int) -> Check:
    name = f"bandwidth at {size_text(limit.size_bytes)}"
    row = table.row(limit.size_bytes)
    if row is None:
        why = ""
        if table.reduced_max_bytes is not None and table.reduced_max_bytes < limit.size_bytes:
            why = f": nccl-tests reduced its largest size to {table.reduced_max_bytes} bytes for lack of memory"
        return Check(name, "fail", f"{size_text(limit.size_bytes)} was not measured{why}", None, limit)
    value = measured_busbw(test.collective, ranks, row)
    warn = limit.warn_below_gb_per_s
    expected = limit.fail_below_gb_per_s if warn is None else warn
    bounds = f"fail below {gb_text(limit.fail_below_gb_per_s)}" + (f", warn below {gb_text(warn)}" if warn else "")
    text = f"busbw={gb_text(value)} GB/s, expected >= {gb_text(expected)} ({bounds}; {limit.source}, {limit.date})"
    if not value >= limit.fail_below_gb_per_s:
        return Check(name, "fail", f"too slow: {text}", value, limit)
    if warn is not None and not value >= warn:
        return Check(name, "warn", f"slower than it should be: {text}", value, limit)
    return Check(name, "pass", text, value, limit)
