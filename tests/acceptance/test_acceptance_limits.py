"""Judging: each way in which a measurement can be unsound or too slow has its own words."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from conftest import HERE, make_scenario

from acceptance.limits import bus_factor, find_limits, judge_log, known_limits, measured_busbw, rank_range, worst
from acceptance.nccl import Log, Row, Side, parse_bytes, parse_file
from acceptance.scenario import COLLECTIVES, Scenario, read_scenario

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
    text = SYNTH.replace("Avg bus bandwidth    : 448.85", "Avg bus bandwidth    : 0.01 FAILED")
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


def test_right_network() -> None:
    scenario = scenario_of(network={"provider": "efa", "nics": 32})
    assert failed(scenario, NETWORK.format("efa", 32) + SYNTH) == {}


def test_missing_limit_is_said_and_not_passed() -> None:
    scenario = scenario_of(limits=[], instance_type="g6.48xlarge")
    outcome, message = outcomes(scenario, SYNTH)["bandwidth"]
    assert outcome == "unjudged"
    assert "no limit is known for all_reduce on 2 nodes of g6.48xlarge: measured 465.9 GB/s at 4 GiB" in message


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
    assert find_limits(none, "all_reduce", 20, [1 << 33]) == []


def test_every_known_limit_has_source_date_and_sense() -> None:
    assert known_limits()
    for limit in known_limits():
        assert limit.collective in COLLECTIVES
        assert limit.source
        datetime.date.fromisoformat(limit.date)
        assert 0 < limit.fail_below_gb_per_s < (limit.warn_below_gb_per_s or 1e9)


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
