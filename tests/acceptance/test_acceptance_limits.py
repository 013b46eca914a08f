"""Judging: each way in which a measurement can be unsound or too slow has its own words."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from acceptance_runs import HERE, make_scenario

import acceptance.limits as limits_package
from acceptance.limits import (
    baseline_limit,
    bus_factor,
    derived_limit,
    find_limits,
    judge_log,
    known_limits,
    limit_at,
    measured_busbw,
    measured_by_others,
    network_cards,
    network_limit,
    rank_range,
    through_cards,
    worst,
)
from acceptance.nccl import Log, Row, Side, parse_bytes, parse_file
from acceptance.scenario import COLLECTIVES, Baseline, Limit, Scenario, read_scenario
from slipway.errors import SettingsError
from slipway.instances import INSTANCE_TYPES
from slipway.settings import load_settings

SYNTH = (HERE / "data" / "90-SYNTH-v2.19-plain.txt").read_text()  # 16 ranks on 2 nodes, 465.87 GB/s at 4 GiB
NETWORK = "gpu-st-p5-1:1:1 [0] NCCL INFO NET/OFI Selected provider is {}, fabric is x (found {} nics)\n"


def scenario_of(limit: dict[str, Any] | None = None, **changes: Any) -> Scenario:
    """Two nodes of 8 ranks and one limit at 4 GiB."""
    one = {"collective": "all_reduce", "nodes": 2, "size_bytes": 1 << 32, "fail_below_gb_per_s": 400}
    one.update({"warn_below_gb_per_s": 450, "source": "test", "date": "2026-11-27"}, **(limit or {}))
    value = make_scenario(nodes=2, gpus_per_node=8, limits=[one])
    value["tests"][0].update(min_bytes=1 << 30, max_bytes=max(1 << 32, one["size_bytes"]))
    value.update(changes)
    faults: list[str] = []
    scenario = read_scenario(value, faults)
    assert faults == []
    return scenario


def outcomes(scenario: Scenario, text: str) -> dict[str, tuple[str, str]]:
    checks = judge_log(scenario, scenario.tests[0], parse_bytes(text.encode()), scenario.nodes)
    return {check.name: (check.outcome, check.message) for check in checks}


def failed(scenario: Scenario, text: str) -> dict[str, str]:
    return {name: message for name, (outcome, message) in outcomes(scenario, text).items() if outcome == "fail"}


def test_healthy_log_passes() -> None:
    assert {outcome for outcome, _ in outcomes(scenario_of(), SYNTH).values()} == {"pass"}


def test_just_below_a_bound() -> None:
    scenario = scenario_of({"warn_below_gb_per_s": 466})
    assert outcomes(scenario, SYNTH)["bandwidth at 4 GiB"][0] == "warn"
    scenario = scenario_of({"fail_below_gb_per_s": 465.88, "warn_below_gb_per_s": 466})
    assert "busbw=465.9 GB/s, expected >= 466 (fail below 465.9" in failed(scenario, SYNTH)["bandwidth at 4 GiB"]
    scenario = scenario_of({"fail_below_gb_per_s": 465.87, "warn_below_gb_per_s": 465.87})
    assert failed(scenario, SYNTH) == {}


def test_the_average_is_never_judged() -> None:
    text = SYNTH.replace("Avg bus bandwidth    : 448.85", "Avg bus bandwidth    : 0.01")
    assert text != SYNTH
    assert failed(scenario_of(), text) == {}


@pytest.mark.parametrize(
    ("old", "new", "check", "words"),
    [
        ("values : 0 OK", "values : 3 FAILED", "data", "wrong data: 3 values out of bounds"),
        ("464.94       0", "464.94       9", "data", "wrong data at 4 GiB"),
        ("# Avg bus bandwidth", "# ", "complete", "truncated before its last lines"),
        ("  4294967296    1073741824", " 42949672960    1073741824", "bandwidth at 4 GiB", "4 GiB was not measured"),
    ],
)
def test_unsound_logs(old: str, new: str, check: str, words: str) -> None:
    assert old in SYNTH
    assert words in failed(scenario_of(), SYNTH.replace(old, new))[check]


def test_a_gpu_that_took_no_part() -> None:
    lines = [line for line in SYNTH.splitlines(keepends=True) if "Rank 15" not in line]
    assert failed(scenario_of(), "".join(lines))["ranks"] == "15 GPUs took part, expected 16"


def test_a_table_of_fewer_ranks_is_found_by_its_factor() -> None:
    text = "\n".join(line for line in SYNTH.splitlines() if "Rank" not in line) + "\n"
    message = failed(scenario_of(nodes=4, limits=[]), text)["ranks"]
    assert message == "busbw / algbw proves 16 ranks, expected 32: not every GPU took part"


def test_two_tables_are_processes_that_never_met() -> None:
    assert "the processes never met" in failed(scenario_of(), SYNTH + SYNTH)["processes"]


def test_cuda_failure_is_blamed_before_an_nccl_failure() -> None:
    text = SYNTH + "a: Test NCCL failure x.cu:1 'remote'\nb: Test CUDA failure x.cu:2 'uncorrectable ECC'\n"
    assert failed(scenario_of(), text)["nccl-tests"].startswith("nccl-tests failed on b:")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "does not say which network"),
        (NETWORK.format("tcp", 32), "wrong provider on gpu-st-p5-1: tcp, expected efa"),
        (NETWORK.format("efa", 24), "too few network cards on gpu-st-p5-1: 24, expected 32"),
        (NETWORK.format("efa", 32) + "n2:1:1 [0] NCCL INFO Using network Socket\n", "wrong transport: n2"),
        ("n2:1:1 [0] NCCL WARN NET/OFI No eligible providers were found\n", "wrong transport: n2"),
    ],
)
def test_wrong_network(lines: str, words: str) -> None:
    scenario = scenario_of(network={"provider": "efa", "nics": 32})
    assert words in failed(scenario, lines + SYNTH)["network"]


def test_a_network_that_is_not_told() -> None:
    scenario = scenario_of(network={"provider": "efa", "nics": 32})
    no_provider = "n1:1:1 [0] NCCL INFO Using network AWS Libfabric\n"
    assert failed(scenario, no_provider + SYNTH)["network"] == "no host names its provider, expected efa"
    no_cards = "n1:1:1 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is x\n"
    found = outcomes(scenario, no_cards + SYNTH)["network"]
    assert found == ("unjudged", "no host says how many network cards it found, expected 32")
    assert failed(scenario_of(network={"provider": "efa"}), no_cards + SYNTH) == {}


def test_results_that_were_not_checked() -> None:
    text = re.sub(r"( {3,})0(?= |$)", r"\1N/A", SYNTH, flags=re.MULTILINE)
    assert outcomes(scenario_of(), text)["data"] == (
        "unjudged",
        "nccl-tests did not check its results (every #wrong is N/A)",
    )


def test_ranks_of_a_collective_that_does_not_prove_them() -> None:
    text = SYNTH.replace("all_reduce", "broadcast")
    scenario = scenario_of(limits=[], missing_limit="warn")
    scenario = replace(scenario, tests=(replace(scenario.tests[0], collective="broadcast"),))
    assert outcomes(scenario, text)["ranks"] == ("pass", "16 ranks are listed")
    bare = "\n".join(line for line in text.splitlines() if "Rank" not in line) + "\n"
    assert failed(scenario, bare)["ranks"] == "nothing in the log proves that 16 ranks took part"


def test_ranks_at_a_bandwidth_below_the_printed_digits() -> None:
    """Links of 0.2 Gbit/s, as a rehearsal has: 0.00 GB/s, although every rank took part."""
    text = re.sub(
        r"^( +\d+ +\d+ +float +sum +-1 +)[\d.]+ +[\d.]+ +[\d.]+", r"\g<1>9e+08    0.00    0.00", SYNTH, flags=re.M
    )
    assert text != SYNTH
    scenario = scenario_of(limits=[], missing_limit="warn")
    outcome, message = outcomes(scenario, text)["ranks"]
    assert (outcome, message.split(";")[0]) == ("pass", "16 ranks are listed")
    fewer = re.sub(r"^# +Rank +15 .*\n", "", text, flags=re.M)
    assert failed(scenario, fewer)["ranks"] == "15 GPUs took part, expected 16"


def test_right_network() -> None:
    scenario = scenario_of(network={"provider": "efa", "nics": 32})
    assert failed(scenario, NETWORK.format("efa", 32) + SYNTH) == {}


def test_missing_limit_is_said_and_not_passed() -> None:
    scenario = scenario_of(limits=[], instance_type="g4dn.metal")
    outcome, message = outcomes(scenario, SYNTH)["bandwidth"]
    assert outcome == "unjudged"
    assert "no limit is known for all_reduce on 2 nodes of g4dn.metal: measured 465.9 GB/s at 4 GiB" in message


def test_reduced_largest_size_is_said() -> None:
    text = SYNTH.replace(
        "# Using devices", "# Reducing maxBytes to 2147483648 due to memory limitation\n# Using devices"
    )
    rows = [line for line in text.splitlines() if not line.startswith("  4294967296")]
    message = failed(scenario_of(), "\n".join(rows) + "\n")["bandwidth at 4 GiB"]
    assert "reduced its largest size to 2147483648 bytes" in message


def test_nan_is_never_fast_enough() -> None:
    assert "bandwidth at 4 GiB" in failed(scenario_of(), SYNTH.replace("465.87", "   nan"))


def test_scenario_limits_come_before_the_data_file() -> None:
    own = scenario_of({"size_bytes": 1 << 34, "fail_below_gb_per_s": 1, "warn_below_gb_per_s": None})
    assert [limit.fail_below_gb_per_s for limit in find_limits(own, "all_reduce", 2, [1 << 34])] == [1]
    none = scenario_of(limits=[])
    assert [limit.fail_below_gb_per_s for limit in find_limits(none, "all_reduce", 2, [1 << 34])] == [450]
    assert [limit.fail_below_gb_per_s for limit in find_limits(none, "all_reduce", 8, [1 << 33])] == [325]
    assert find_limits(none, "all_reduce", 40, [1 << 33]) == []


def test_every_known_limit_has_source_date_and_sense() -> None:
    assert known_limits()
    for limit in known_limits():
        assert limit.collective in COLLECTIVES
        assert limit.basis in ("measured", "provisional")
        datetime.date.fromisoformat(limit.date)
        assert 0 < limit.fail_below_gb_per_s < (limit.warn_below_gb_per_s or 1e9)
        assert limit.instance_type in INSTANCE_TYPES
    kinds = [(one.instance_type, one.collective, one.nodes_min, one.size_bytes) for one in known_limits()]
    assert len(set(kinds)) == len(kinds)


GIB = 1 << 30


def test_figures_of_others_have_source_and_date_and_pass_our_limits() -> None:
    held = 0
    for one in measured_by_others():
        assert one.source
        datetime.date.fromisoformat(one.date)
        limits = [limit for limit in known_limits() if (limit.instance_type, limit.collective) == _kind(one)]
        limit = limit_at(limits, one.nodes, one.size_bytes)
        if limit is not None:
            held += 1
            assert one.gb_per_s >= (limit.warn_below_gb_per_s or 0), one
            assert limit.fail_below_gb_per_s >= 0.6 * one.gb_per_s, one
    assert held > 20


def _kind(one: Any) -> tuple[str, str]:
    return one.instance_type, one.collective


def test_provisional_limits_are_those_shares_of_what_was_measured() -> None:
    figures = {(*_kind(one), one.nodes, one.size_bytes): one.gb_per_s for one in measured_by_others()}
    provisional = [limit for limit in known_limits() if limit.source.startswith("90 % and 95 % of")]
    assert len(provisional) > 10
    assert {limit.basis for limit in provisional} == {"provisional"}
    for limit in provisional:
        healthy = figures[(*_kind(limit), limit.nodes_min, limit.size_bytes)]
        assert limit.fail_below_gb_per_s == pytest.approx(0.90 * healthy, abs=0.6)
        assert limit.warn_below_gb_per_s == pytest.approx(0.95 * healthy, abs=1.4)


POINTS = [
    Limit("alltoall", 2, 2, GIB, 60, 70, "a", "2026-11-02"),
    Limit("alltoall", 4, 4, GIB, 50, 60, "a", "2026-11-02"),
    Limit("alltoall", 8, 16, GIB, 40, None, "b", "2026-11-01"),
    Limit("alltoall", 8, 8, 4 * GIB, 60, 64, "b", "2026-11-01"),
    Limit("alltoall", 128, 128, GIB, 20, None, "c", "2026-11-01"),
    Limit("alltoall", 2, 2, 64 * GIB, 90, 95, "c", "2026-11-01"),
]


@pytest.mark.parametrize(
    ("nodes", "size", "fail", "warn", "note"),
    [
        (4, GIB, 50, 60, None),
        (12, GIB, 40, None, None),
        (3, GIB, 60 - 10 * 0.58496, 70 - 10 * 0.58496, "interpolated between 2 and 4 nodes"),
        (6, GIB, 50 - 10 * 0.58496, None, "interpolated between 4 and 8 nodes"),
        (8, 2 * GIB, 50, None, "interpolated between 1 GiB and 4 GiB"),
        (1, GIB, None, None, None),  # fewer nodes than any limit
        (256, GIB, None, None, None),  # more
        (32, GIB, None, None, None),  # 16 and 128 are too far apart
        (8, 8 * GIB, None, None, None),  # a larger size than any limit of 8 nodes
        (2, 4 * GIB, None, None, None),  # 1 and 64 GiB are too far apart
        (8, GIB // 2, None, None, None),
    ],
)
def test_limits_between_known_ones(nodes: int, size: int, fail: float | None, warn: float | None, note: str) -> None:
    found = limit_at(POINTS, nodes, size)
    if fail is None:
        assert found is None
        return
    assert found is not None
    assert found.fail_below_gb_per_s == pytest.approx(fail, abs=1e-3)
    assert found.warn_below_gb_per_s == (None if warn is None else pytest.approx(warn, abs=1e-3))
    assert (found.note, found.size_bytes) == (note, size)
    assert found.nodes_min <= nodes <= found.nodes_max


def test_interpolated_in_both_ways_names_both_and_every_source() -> None:
    points = [*POINTS, Limit("alltoall", 4, 4, 4 * GIB, 80, 90, "d", "2026-11-02")]
    found = limit_at(points, 6, 2 * GIB)
    assert found is not None
    assert found.note == "interpolated between 1 GiB and 4 GiB, interpolated between 4 and 8 nodes"
    assert (found.source, found.date) == ("a; d; b", "2026-11-01")
    assert found.fail_below_gb_per_s == pytest.approx(65 - 15 * 0.58496, abs=1e-3)


def test_two_nodes_of_an_all_reduce_say_nothing_about_three() -> None:
    points = [Limit("all_reduce", n, n, GIB, 500 / n, None, "a", "2026-11-01") for n in (1, 2, 4, 8)]
    assert limit_at(points, 3, GIB) is None
    assert limit_at(points, 6, GIB) is not None


def test_an_interpolated_limit_is_said_to_be_one() -> None:
    limits = [
        {**_limit(collective="all_reduce", nodes=nodes, size_bytes=1 << 32), "fail_below_gb_per_s": fail}
        for nodes, fail in ((4, 480), (16, 460))
    ]
    log = SYNTH.replace("Rank", "Gone")
    scenario = scenario_of(limits=limits, nodes=8, gpus_per_node=2)
    outcome, message = outcomes(scenario, log)["bandwidth at 4 GiB"]
    assert outcome == "fail"
    assert "(fail below 470; interpolated between 4 and 16 nodes; test, 2026-11-27)" in message


def _limit(**values: Any) -> dict[str, Any]:
    return {"warn_below_gb_per_s": None, "source": "test", "date": "2026-11-27", **values}


def test_exact_limits_leave_no_room_for_interpolated_ones() -> None:
    none = scenario_of(limits=[])
    found = find_limits(none, "alltoall", 2, [1 << power for power in range(20, 35)])
    assert [limit.size_bytes for limit in found] == [2 * GIB, 16 * GIB]
    found = find_limits(none, "alltoall", 2, [4 * GIB])
    assert [limit.note for limit in found] == ["interpolated between 2 GiB and 16 GiB"]


KNOWN = [  # instance type, EFA, largest power of two of the sweep, whether there is a limit on 1, 2, 3 and 32 nodes
    ("p5.48xlarge", True, 34, (True, True, True, True)),
    ("p5.48xlarge", True, 30, (False, False, False, False)),
    ("p5en.48xlarge", True, 34, (True, True, True, True)),
    ("p4d.24xlarge", True, 31, (True, True, True, True)),
    ("p4d.24xlarge", False, 31, (True, False, False, False)),  # sockets use one of its network cards
    ("p5.4xlarge", True, 31, (False, True, True, True)),  # one GPU
    ("g5.12xlarge", False, 28, (True, True, True, True)),
    ("g6.xlarge", False, 28, (False, False, False, False)),  # its network bursts
    ("g6.8xlarge", False, 28, (False, True, True, True)),
    ("g6e.48xlarge", True, 27, (False, False, False, False)),
]


@pytest.mark.parametrize(("instance_type", "efa", "power", "known"), KNOWN)
def test_slipway_check_knows_the_same_limits(
    instance_type: str, efa: bool, power: int, known: tuple[bool, ...], tmp_path: Path
) -> None:
    for nodes, has_limit in zip((1, 2, 3, 32), known, strict=True):
        file = tmp_path / "demo.yaml"
        queue = f"{{name: train, instance_type: {instance_type}, count: {nodes}, efa: {str(efa).lower()}}}"
        text = f"name: demo\nregion: us-east-1\nzone: us-east-1a\nqueues: [{queue}]\nacceptance: {{max_bytes: {1 << power}}}"
        file.write_text(text)
        try:
            load_settings(file)
            rules = []
        except SettingsError as error:
            rules = [fault.rule_name for fault in error.faults if fault.rule_name != "efa-off"]
        gpus = INSTANCE_TYPES[instance_type].gpus
        network = {"provider": "efa"} if efa else None
        scenario = scenario_of(limits=[], instance_type=instance_type, gpus_per_node=gpus, network=network)
        found = find_limits(scenario, "all_reduce", nodes, [1 << size for size in range(20, power + 1)])
        assert (bool(found), rules) == (has_limit, [] if has_limit else ["limit-unknown"]), nodes


DERIVED = [  # instance type, EFA, collective, nodes, fail and warn below in GB/s, what it is a share of
    ("p4d.24xlarge", True, "all_reduce", 1, 150, 180, "50% of the 300 GB/s of a GPU's NVLink"),
    (
        "p4d.24xlarge",
        True,
        "all_reduce",
        2,
        37.5,
        None,
        "40 % of the 6.25 GB/s that the network cards have for each GPU",
    ),
    ("p4d.24xlarge", True, "all_reduce", 4, 25.8333, 30, "40 % of the 6.25 GB/s"),
    ("p4d.24xlarge", True, "all_gather", 16, 25, 30, "50% of the 50 GB/s that the network lets through"),
    ("p4d.24xlarge", True, "alltoall", 2, 5.8594, 7.0312, "50% of the 11.72 GB/s that the network lets through"),
    ("p4d.24xlarge", True, "sendrecv", 2, None, None, ""),
    ("p4d.24xlarge", False, "all_reduce", 2, None, None, ""),
    ("p5en.48xlarge", True, "alltoall", 2, 46.875, 56.25, "50% of the 93.75 GB/s"),
    ("p6-b300.48xlarge", True, "alltoall", 16, 52.9167, 63.5, "50% of the 105.8 GB/s"),
    ("p6-b300.48xlarge", True, "all_reduce", 4, 400, 480, "50% of the 800 GB/s"),
    ("g5.48xlarge", True, "all_reduce", 1, 3.2, None, "10% of the 32 GB/s of a GPU's PCIe"),
    ("g5.48xlarge", False, "all_reduce", 4, 3.125, None, "25% of the 12.5 GB/s"),
    ("g6e.48xlarge", True, "all_reduce", 4, 3.2, None, "10% of the 32 GB/s of a GPU's PCIe"),
    ("g6.12xlarge", False, "all_reduce", 2, 1.25, None, "25% of the 5 GB/s"),
    ("p5.4xlarge", True, "all_reduce", 1, None, None, ""),
    ("p6e-gb200.36xlarge", True, "alltoall", 4, 31.25, 37.5, "50% of the 62.5 GB/s that the network lets through"),
]


@pytest.mark.parametrize(("instance_type", "efa", "collective", "nodes", "fail", "warn", "words"), DERIVED)
def test_derived_limits(
    instance_type: str, efa: bool, collective: str, nodes: int, fail: float | None, warn: float | None, words: str
) -> None:
    cards = network_cards(instance_type)
    assert cards is not None
    network = {"provider": "efa"} if efa else None
    scenario = scenario_of(limits=[], instance_type=instance_type, gpus_per_node=cards.gpus, network=network)
    found = find_limits(scenario, collective, nodes, [1 << 20, 4 * GIB])
    if fail is None:
        assert found == []
        return
    (limit,) = found
    assert (limit.basis, limit.size_bytes, limit.source) == ("derived", 4 * GIB, limit.source)
    assert limit.fail_below_gb_per_s == pytest.approx(fail, abs=1e-4)
    assert limit.warn_below_gb_per_s == (None if warn is None else pytest.approx(warn, abs=1e-4))
    assert limit.source.startswith(words)


def test_what_others_measured_passes_every_derived_limit() -> None:
    held = 0
    for one in measured_by_others():
        cards = network_cards(one.instance_type)
        assert cards is not None
        scenario = scenario_of(instance_type=one.instance_type, gpus_per_node=cards.gpus, network={"provider": "efa"})
        limit = derived_limit(scenario, one.collective, one.nodes, one.size_bytes)
        if limit is not None:
            held += 1
            assert one.gb_per_s >= (limit.warn_below_gb_per_s or limit.fail_below_gb_per_s), one
    assert held > 25


def test_all_gpus_of_a_node_or_no_derived_limit() -> None:
    scenario = scenario_of(limits=[], instance_type="p4d.24xlarge", gpus_per_node=4, network={"provider": "efa"})
    assert find_limits(scenario, "all_reduce", 2, [4 * GIB]) == []


def test_a_p4d_cluster_is_judged_by_a_derived_limit() -> None:
    scenario = scenario_of(limits=[], instance_type="p4d.24xlarge", network={"provider": "efa"})
    log = NETWORK.format("efa", 4) + SYNTH
    found = outcomes(scenario, log)
    assert found["bandwidth at 4 GiB"] == (
        "pass",
        "busbw=465.9 GB/s, expected >= 37.5 (derived: fail below 37.5; 40 % of the 6.25 GB/s that the network cards"
        " have for each GPU, 2026-11-28)",
    )
    assert "bandwidth through the network cards" not in found  # the derived limit is at least as high
    assert failed(scenario, log.replace("17286.0  248.47  465.87", "3660460    1.17    2.20")).keys() >= {
        "bandwidth at 4 GiB"
    }


def test_sizes_that_were_left_out_are_reported_and_the_rest_is_judged() -> None:
    reduced = "# Reducing maxBytes to 2147483648 due to memory limitation\n# Using devices"
    text = NETWORK.format("efa", 4) + SYNTH.replace("# Using devices", reduced)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("  4294967296")) + "\n"
    scenario = scenario_of(limits=[], instance_type="p4d.24xlarge", network={"provider": "efa"})
    found = outcomes(scenario, text)
    assert found["bandwidth at 2 GiB"][0] == "pass"
    assert found["sizes"] == (
        "pass",
        "1 size from 4 GiB on left out: nccl-tests reduced its largest size to 2147483648 bytes for lack of GPU memory,"
        " and the run is judged on the sizes that were measured",
    )
    assert "sizes" not in outcomes(scenario, SYNTH)


def test_one_gpu_meets_no_limit_and_the_message_says_why() -> None:
    scenario = scenario_of({"nodes": 1}, nodes=1, gpus_per_node=1, instance_type="p5.4xlarge")
    outcome, message = outcomes(scenario, SYNTH.replace("465.87", "  0.00"))["bandwidth"]
    assert (outcome, message.partition(":")[0]) == ("unjudged", "one GPU exchanges data with no other")
    assert message.endswith("Measure 2 nodes or more, or a node with several GPUs")


BASELINE = Baseline("all_reduce", 2, 1 << 32, 480.0, 0.1, 5, "2026-11-01T00:00:00Z", "2026-11-20T00:00:00Z")


def test_a_baseline_has_a_floor_of_one_percent() -> None:
    limit = baseline_limit(BASELINE)
    assert limit.warn_below_gb_per_s == pytest.approx(480 * 0.97)
    assert limit.fail_below_gb_per_s == pytest.approx(480 * 0.94)
    wide = baseline_limit(replace(BASELINE, mad_gb_per_s=10.0))
    assert wide.warn_below_gb_per_s == pytest.approx(480 - 3 * 14.826)
    assert wide.fail_below_gb_per_s == pytest.approx(480 - 6 * 14.826)
    assert limit.source == "this site's median 480, MAD 0.1 of 5 good runs since 2026-11-01"
    assert baseline_limit(replace(BASELINE, mad_gb_per_s=1e3)).fail_below_gb_per_s == 0


@pytest.mark.parametrize(
    ("level", "outcome"), [(470.0, "pass"), (481.0, "warn"), (495.0, "warn"), (497.0, "fail"), (600.0, "fail")]
)
def test_measured_against_the_baseline(level: float, outcome: str) -> None:
    scenario = replace(scenario_of(limits=[]), baselines=(replace(BASELINE, median_gb_per_s=level),))
    found = outcomes(scenario, SYNTH)
    assert found["bandwidth against the baseline at 4 GiB"][0] == outcome
    assert "bandwidth" not in found  # a baseline is something to hold it against


def test_a_baseline_takes_the_place_of_our_limit_but_for_its_floor() -> None:
    values: dict[str, Any] = {"limits": [], "instance_type": "p6-b200.48xlarge", "nodes": 4, "gpus_per_node": 4}
    scenario = scenario_of(**values)
    scenario = replace(scenario, tests=(replace(scenario.tests[0], max_bytes=16 * GIB),))
    text = SYNTH.replace("  4294967296    1073741824", " 17179869184    4294967296").replace("17286.0", "94188.0")
    text = text.replace("17320.6", "94464.0").replace("248.47", "182.40").replace("247.97", "181.87")
    text = text.replace("465.87", "342.00").replace("464.94", "341.00")
    text = text.replace("Rank", "Gone")
    assert outcomes(scenario, text)["bandwidth at 16 GiB"][0] == "warn"
    own = replace(BASELINE, nodes=4, size_bytes=16 * GIB, median_gb_per_s=345.0)
    found = outcomes(replace(scenario, baselines=(own,)), text)
    assert found["bandwidth at 16 GiB"][0] == "pass"
    assert found["bandwidth against the baseline at 16 GiB"][0] == "pass"
    slow = text.replace("342.00", "338.00").replace("182.40", "180.27").replace("94188.0", "95301.0")
    found = outcomes(replace(scenario, baselines=(own,)), slow)
    assert found["bandwidth against the baseline at 16 GiB"][0] == "pass"
    assert found["bandwidth at 16 GiB"][0] == "fail"  # below 339, however low the site's runs have sunk


def test_limits_of_the_scenario_hold_beside_a_baseline() -> None:
    scenario = replace(scenario_of({"warn_below_gb_per_s": 470}), baselines=(replace(BASELINE, median_gb_per_s=465.0),))
    found = outcomes(scenario, SYNTH)
    assert found["bandwidth at 4 GiB"][0] == "warn"
    assert found["bandwidth against the baseline at 4 GiB"][0] == "pass"


def test_a_baseline_of_another_kind_is_not_used() -> None:
    others = (replace(BASELINE, nodes=4), replace(BASELINE, collective="alltoall"), replace(BASELINE, size_bytes=GIB))
    found = outcomes(replace(scenario_of(limits=[], instance_type="g4dn.metal"), baselines=others), SYNTH)
    assert found["bandwidth"][0] == "unjudged"
    assert not [name for name in found if "baseline" in name]


SHARES = [
    # nodes, collective, instance type, bus bandwidth in GB/s at a large size, whether it is healthy; docs/acceptance.md
    (2, "all_reduce", "p5.48xlarge", 487, True),
    (4, "all_reduce", "p5.48xlarge", 357, True),
    (32, "all_reduce", "p5.48xlarge", 321, True),
    (2, "all_gather", "p5.48xlarge", 329, True),
    (2, "alltoall", "p5.48xlarge", 79.2, True),
    (32, "alltoall", "p5.48xlarge", 40.8, True),
    (2, "all_reduce", "p4de.24xlarge", 78.3, True),
    (4, "all_reduce", "p5en.48xlarge", 365, True),
    (4, "all_reduce", "p6-b200.48xlarge", 377, True),
    (2, "all_reduce", "p6-b300.48xlarge", 654, True),
    (2, "all_reduce", "p5.48xlarge", 2.2, False),  # over TCP
    (2, "all_reduce", "p5en.48xlarge", 257, False),  # half the rails
]


@pytest.mark.parametrize(("nodes", "collective", "instance_type", "busbw", "healthy"), SHARES)
def test_share_of_the_network_cards(
    nodes: int, collective: str, instance_type: str, busbw: float, healthy: bool
) -> None:
    cards = network_cards(instance_type)
    assert cards is not None
    limit = network_limit(cards, collective, nodes, 8, 16 * GIB)
    assert limit is not None
    assert (busbw >= limit.fail_below_gb_per_s) == healthy


def test_share_of_the_network_cards_is_what_leaves_the_node() -> None:
    assert through_cards("all_reduce", 2, 8) == pytest.approx(1 / 15)
    assert through_cards("alltoall", 2, 8) == pytest.approx(8 / 15)
    assert through_cards("all_reduce", 1, 8) is None
    assert through_cards("sendrecv", 2, 8) is None
    cards = network_cards("p5.48xlarge")
    assert cards is not None
    assert cards.gb_per_s == 50
    assert network_limit(cards, "all_reduce", 2, 4, 16 * GIB) is None  # not all GPUs of the type: another share
    assert network_limit(cards, "all_reduce", 2, 8, GIB) is None  # too small to be bound by the network
    cards = network_cards("g6.48xlarge")
    assert cards is not None
    assert network_limit(cards, "all_reduce", 2, 8, 16 * GIB) is None  # without NVLink the network may not be the bound
    assert network_cards("g4dn.metal") is None


def test_the_network_is_that_of_the_instance_type() -> None:
    for name, facts in INSTANCE_TYPES.items():
        cards = network_cards(name)
        assert (cards is not None) == (facts.network_gbit_s is not None)
        if cards is not None:
            assert (cards.gpus, cards.cards) == (facts.gpus, facts.network_cards)
            assert cards.protocol == facts.plugin_protocol
            assert facts.network_gbit_s is not None
            assert cards.gb_per_s == pytest.approx(facts.network_gbit_s / 8 / facts.gpus)
            assert cards.nvlink_gb_per_s == (facts.nvlink_gb_s / 2 if facts.nvlink_gb_s else None)


def test_too_little_through_the_network_cards_fails_beside_any_other_limit() -> None:
    scenario = scenario_of(network={"provider": "efa"})
    lines = NETWORK.format("efa", 32)
    check = outcomes(scenario, lines + SYNTH)["bandwidth through the network cards"]
    assert check == (
        "pass",
        "busbw=465.9 GB/s, expected >= 300 (derived: fail below 300; 40 % of the 50 GB/s that the network cards have for"
        " each GPU, 2026-11-28)",
    )
    slow = SYNTH.replace("465.87", "257.00").replace("248.47", "137.07").replace("17286.0", "31334.0")
    assert outcomes(scenario, lines + slow)["bandwidth through the network cards"][0] == "fail"
    assert "bandwidth through the network cards" not in outcomes(scenario_of(), slow)
    assert "bandwidth through the network cards" not in outcomes(scenario_of(network={"provider": "tcp"}), slow)


@pytest.mark.parametrize(
    ("instance_type", "protocol", "words"),
    [
        ("p5.48xlarge", "SENDRECV", "wrong transport on n1: protocol SENDRECV, expected RDMA on p5.48xlarge"),
        ("p5.48xlarge", "RDMA", ""),
        ("p4d.24xlarge", "SENDRECV", ""),
        ("g6.48xlarge", "SENDRECV", ""),
    ],
)
def test_wrong_protocol(instance_type: str, protocol: str, words: str) -> None:
    scenario = scenario_of(network={"provider": "efa"}, instance_type=instance_type)
    said = f"n1:1:1 [0] NCCL INFO NET/OFI Using transport protocol {protocol}\n" + NETWORK.format("efa", 32)
    assert failed(scenario, said + SYNTH).get("network", "") == words


def test_a_communicator_of_fewer_ranks() -> None:
    said = "n1:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 8 cudaDev 0 nNodes 1\n"
    line = "n1:1:1 [0] NCCL INFO comm 0x55d1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0\n"
    assert "ranks" in failed(scenario_of(), said + line + SYNTH)
    message = failed(scenario_of(), said + line + SYNTH)["ranks"]
    assert message == "NCCL joined 8 ranks in one communicator at most, expected 16"


@pytest.mark.parametrize(
    ("instance_type", "collective", "nodes", "words"),
    [
        ("g4dn.metal", "all_reduce", 2, "Nothing is known of this instance type"),
        ("g5.48xlarge", "alltoall", 4, "Nothing is known of this instance type"),
        ("p4de.24xlarge", "alltoall", 2, "Limits of this instance type are known for all_reduce only"),
        ("p5.48xlarge", "all_reduce", 3, "Limits are known on 1, 2, 4-16, 32 nodes at 8 GiB, 16 GiB"),
        (
            "p5.48xlarge",
            "all_reduce",
            8,
            "Others measured 351.3 GB/s at 4 GiB (crazyguitar/aws-gpu-communication-benchmark data/nccl_all_reduce.csv at a77f70d",
        ),
    ],
)
def test_a_missing_limit_says_what_is_known(instance_type: str, collective: str, nodes: int, words: str) -> None:
    scenario = scenario_of(limits=[], instance_type=instance_type, nodes=nodes, gpus_per_node=16 // nodes)
    scenario = replace(scenario, tests=(replace(scenario.tests[0], collective=collective),))
    outcome, message = outcomes(scenario, SYNTH)["bandwidth"]
    assert outcome == "unjudged"
    assert words in message
    assert message.endswith("Add a limit to the scenario")


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "alltoall"])
@pytest.mark.parametrize("ranks", [2, 8, 16, 32, 64])
def test_rank_range_holds_the_true_number(collective: str, ranks: int) -> None:
    for size, time_us in ((1 << 30, 4567.8), (1 << 24, 652000.0), (1 << 34, 66108.0)):
        busbw = round(size / time_us / 1e3 * bus_factor(collective, ranks), 2)
        row = Row(size, size // 4, "float", "sum", -1, Side(time_us, size / time_us / 1e3, busbw, 0), None)
        bounds = rank_range(collective, row)
        assert bounds is not None
        assert bounds[0] <= ranks <= (bounds[1] or 10**9)


def test_small_bandwidths_keep_their_digits() -> None:
    row = Row(1 << 24, 1 << 22, "float", "sum", -1, Side(652_000, 0.03, 0.05, 0), None)
    assert measured_busbw("all_reduce", 32, row) == pytest.approx(0.04985, abs=1e-5)
    odd = Row(1 << 24, 1 << 22, "float", "sum", -1, Side(652_000, 0.03, 0.07, 0), None)
    assert measured_busbw("all_reduce", 32, odd) == 0.07


def test_worst() -> None:
    assert worst(["pass", "warn"]) == "warn"
    assert worst(["unjudged", "warn", "fail"]) == "fail"
    assert worst([]) == "unjudged"


def test_log_without_a_table() -> None:
    log = parse_file(HERE / "data" / "own-h200x4-too_many_gpus.txt")
    checks = judge_log(scenario_of(), scenario_of().tests[0], log, 2)
    assert [check.outcome for check in checks] == ["fail", "fail"]
    assert judge_log(scenario_of(), scenario_of().tests[0], Log(), 2)[1].outcome == "fail"


# ---- releases that are known to be bad ----

NCCL_SAYS = "gpu-st-p5-1:1:1 [0] NCCL INFO NCCL version {}\n"
PLUGIN_SAYS = "gpu-st-p5-1:1:1 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl {}\n"
LIBFABRIC_SAYS = "gpu-st-p5-1:1:1 [0] NCCL INFO NET/OFI Using Libfabric version {}\n"
# NCCL, plugin, Libfabric as a log names them; beginnings of what is reported
RELEASES = [
    (("2.29.2+cuda13.0", "1.18.0", "2.1"), ["aws-ofi-nccl 1.18.0 is known to be bad: large broadcasts"]),
    (("2.29.7+cuda13.0", "1.19.0", "2.4"), ["aws-ofi-nccl 1.19.0 is known to be bad: large broadcasts"]),
    (
        ("2.29.7+cuda13.0", "1.19.1", "2.4"),
        ["aws-ofi-nccl 1.19.1 is known to be bad: large broadcasts", "aws-ofi-nccl 1.19.1 is known to be bad: grouped"],
    ),
    (("2.30.4+cuda13.0", "1.20.0", "2.4"), ["aws-ofi-nccl 1.20.0 is known to be bad: grouped receives"]),
    (("2.28.9+cuda13.0", "1.17.3", "2.3"), ["NCCL 2.28.9 is known to be bad: it deadlocks on EFA"]),
    (("2.19.3+cuda12.1", "1.9.2-aws", "1.18"), ["NCCL 2.19.3 with Libfabric 1.18 is known to be bad"]),
    (("2.19.3+cuda12.1", "1.9.2-aws", "1.19"), []),
    (("2.18.5+cuda12.1", "1.9.2-aws", "1.18"), []),
    (("2.28.7+cuda13.0", "1.17.3", "2.3"), []),
    (("2.30.7+cuda13.0", "1.21.1", "2.6"), []),
    (("2.29.2+cuda13.0", "unknown", "2.6"), []),
]


@pytest.mark.parametrize(("versions", "expected"), RELEASES, ids=[" ".join(versions) for versions, _ in RELEASES])
def test_releases_that_are_known_to_be_bad(versions: tuple[str, str, str], expected: list[str]) -> None:
    nccl, plugin, libfabric = versions
    text = SYNTH.replace("2.28.7+cuda13.0", nccl) + "".join(
        form.format(version)
        for form, version in ((NCCL_SAYS, nccl), (PLUGIN_SAYS, plugin), (LIBFABRIC_SAYS, libfabric))
    )
    scenario = scenario_of()
    checks = judge_log(scenario, scenario.tests[0], parse_bytes(text.encode()), scenario.nodes)
    found = [check for check in checks if check.name == "software"]
    assert [check.outcome for check in found] == ["warn"] * len(expected)
    assert all(check.message.startswith(words) for check, words in zip(found, expected, strict=True))
    assert all(". Hint: take " in check.message and "repaired in" in check.message for check in found)


def test_every_entry_of_bad_releases_has_what_a_reader_needs() -> None:
    data = json.loads((Path(limits_package.__file__).parent / "bad_releases.json").read_text(encoding="utf-8"))
    assert data["entries"]
    for entry in data["entries"]:
        assert entry.keys() >= {"severity", "symptom", "fixed_in", "repair", "source", "date"}
        assert entry["severity"] in ("fault", "warning")
        assert {"nccl", "plugin", "libfabric"} & entry.keys()
        assert set(entry.get("instance_types", ())) <= set(INSTANCE_TYPES)
        assert re.fullmatch(r"\d{4}-\d{2}", entry["date"])
