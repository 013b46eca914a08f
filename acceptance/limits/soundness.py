"""Whether a measurement is sound: what is wrong here fails a test whatever its bandwidth is."""

from __future__ import annotations

from acceptance.limits.bandwidth import proves_ranks, rank_range
from acceptance.limits.check import Check
from acceptance.limits.data import network_cards
from acceptance.limits.releases import bad_releases
from acceptance.nccl.model import Log, Table
from acceptance.scenario.model import NetworkWanted, Scenario, Test
from acceptance.text import plural, size_text


def sound(scenario: Scenario, test: Test, log: Log, ranks: int) -> list[Check]:
    """Answer the questions that have nothing to do with speed."""
    checks = [_tool(log), _one_table(log), *bad_releases(scenario.instance_type, log)]
    if log.tables:
        table = log.tables[0]
        checks += [_whole(table), _ranks(test, log, table, ranks), _data(table)]
        if table.average_ok is False:
            checks.append(Check("minimum bandwidth", "fail", table.refused[-1]))
        if scenario.network is not None:
            checks.append(_network(scenario.network, scenario.instance_type, log))
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
        less = ""
        if table.reduced_max_bytes is not None:
            less = f"; nccl-tests left out sizes above {table.reduced_max_bytes} bytes for lack of memory"
        return Check("complete", "pass", f"the table is complete: {plural(len(table.rows), 'size')}{less}")
    cut = [bad.size for bad in table.bad_rows] + [row.size for row in table.rows if not row.complete]
    where = f"at size {size_text(cut[0])}" if cut else "before its last lines"
    return Check("complete", "fail", f"the table is truncated {where}: the job ended early or the log was cut")


def _ranks(test: Test, log: Log, table: Table, ranks: int) -> Check:
    if log.form == "text" and log.devices and len(log.devices) != ranks:
        return Check("ranks", "fail", f"{plural(len(log.devices), 'GPU')} took part, expected {ranks}")
    if log.network.ranks is not None and log.network.ranks != ranks:
        message = f"NCCL joined {plural(log.network.ranks, 'rank')} in one communicator at most, expected {ranks}"
        return Check("ranks", "fail", message)
    rows = [row for row in table.rows if row.size > 0]
    row = max(rows, key=lambda row: row.out_of_place.busbw, default=None)
    bounds = rank_range(test.collective, row) if row is not None else None
    if bounds is None:
        if not proves_ranks(test.collective) and log.devices:
            return Check("ranks", "pass", f"{len(log.devices)} ranks are listed")
        if row is not None and row.out_of_place.time_us > 0 and len(log.devices) == ranks:
            words = "the bandwidth is too small for its printed digits to prove that they took part"
            return Check("ranks", "pass", f"{ranks} ranks are listed; {words}")
        return Check("ranks", "fail", f"nothing in the log proves that {ranks} ranks took part")
    least, most = bounds
    if least <= ranks and (most is None or ranks <= most):
        span = f"{least}" if most == least else f"{least} to {most or 'any'}"
        return Check("ranks", "pass", f"busbw / algbw fits {ranks} ranks (it allows {span})")
    seen = f"at least {least}" if most is None else (f"{least}" if least >= most else f"{least} to {most}")
    return Check("ranks", "fail", f"busbw / algbw proves {seen} ranks, expected {ranks}: not every GPU took part")


def _data(table: Table) -> Check:
    if table.wrong_data:
        return Check("data", "fail", f"{table.wrong_data}. A result that is wrong has no bandwidth")
    if any(row.out_of_place.wrong is not None or row.out_of_place.error is not None for row in table.rows):
        return Check("data", "pass", "every result was checked and is right")
    return Check("data", "unjudged", "nccl-tests did not check its results (every #wrong is N/A)")


def _network(wanted: NetworkWanted, instance_type: str, log: Log) -> Check:
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
    right = f"provider {wanted.provider} on {plural(len(providers), 'host')} that reported"
    return _cards(wanted, log) or _protocol(wanted, instance_type, log) or Check("network", "pass", right)


def _cards(wanted: NetworkWanted, log: Log) -> Check | None:
    if wanted.nics is None:
        return None
    for name, host in sorted(log.network.hosts.items()):
        if host.nics is not None and host.nics < wanted.nics:
            return Check("network", "fail", f"too few network cards on {name}: {host.nics}, expected {wanted.nics}")
    if not log.network.values("nics"):
        return Check("network", "unjudged", f"no host says how many network cards it found, expected {wanted.nics}")
    return None


def _protocol(wanted: NetworkWanted, instance_type: str, log: Log) -> Check | None:
    """SENDRECV where the plugin should use RDMA; the reverse does not occur."""
    cards = network_cards(instance_type)
    if wanted.provider != "efa" or cards is None or cards.protocol != "RDMA":
        return None
    for name, host in sorted(log.network.hosts.items()):
        if host.protocol is not None and host.protocol != "RDMA":
            message = f"wrong transport on {name}: protocol {host.protocol}, expected RDMA on {instance_type}"
            return Check("network", "fail", message)
    return None
