"""The suite's judgement without torch: outliers, limits, checks of each stage, votes, samples of nvidia-smi."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from gpusuite.checks import check_samples, check_stage, droop, vote
from gpusuite.judgement import Check, confirmed, judge, judge_nodes
from gpusuite.limits import find_limit, known_limits, model_of
from gpusuite.outliers import gap_of_two, slow_ones
from gpusuite.readings import Reading, figures, pair_readings, readings_of
from gpusuite.smi import Sample, parse, slowdowns

DATA = Path(__file__).parent / "data"
H200 = "NVIDIA H200"


def bf16(values: list[float], model: str = H200, node: str = "n1") -> list[Reading]:
    name = "gemm bf16 8192"
    return [
        Reading(node, gpu, f"0000:{gpu:02x}:00", model, "gemm", name, one, "TFLOP/s") for gpu, one in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("values", "floor", "positions"),
    [
        ([700, 702, 698, 701, 699, 700, 703, 600], 0.05, [7]),
        ([700, 702, 698, 701, 699, 700, 703, 680], 0.05, []),  # below by the score, but by less than 5 %
        ([700, 700, 700, 700, 700, 700, 700, 640], 0.05, [7]),  # MAD 0
        ([700, 700, 700, 700, 700, 700, 700, 690], 0.05, []),
        ([700, 650, 600, 750, 800, 560, 640, 720], 0.05, []),  # spread by 12 %: 560 is below, but not by the score
        ([700, 350], 0.05, []),
        ([700, 705, 350], 0.05, [2]),
        ([0.0, 0.0, 0.0], 0.05, []),
    ],
)
def test_outliers_need_score_and_floor(values: list[float], floor: float, positions: list[int]) -> None:
    assert [one.position for one in slow_ones(values, floor)] == positions


def test_healthy_sets_of_eight_are_seldom_flagged() -> None:
    """GPU-sized sets with 1 % of spread: the score alone flags 7.6 %, with the floor of 5 % next to none."""
    dice = random.Random(1)  # noqa: S311
    sets = [[dice.gauss(700, 7) for _ in range(8)] for _ in range(2000)]
    assert sum(bool(slow_ones(one, 0.0)) for one in sets) > 80
    assert sum(bool(slow_ones(one, 0.05)) for one in sets) <= 2
    assert all(slow_ones([*one[:7], 0.90 * 700], 0.05) for one in sets[:200])


def test_two_gpus_cannot_outvote_each_other() -> None:
    assert gap_of_two([700, 690], 0.1) is None
    assert gap_of_two([700, 350], 0.1) == 1
    (check,) = [one for one in judge(bf16([700, 600])) if one.name == "peers"]
    assert check.outcome == "warn"
    assert check.message.startswith("n1 gpu 1 (0000:01:00): gemm bf16 8192 600 TFLOP/s, 14% below n1 gpu 0")


def test_a_slow_gpu_is_named_by_node_index_and_bus() -> None:
    failed = [one for one in judge(bf16([690, 692, 688, 691, 689, 690, 693, 560])) if one.outcome == "fail"]
    assert [(one.name, one.gpu) for one in failed] == [("peers", 7)]
    start = "n1 gpu 7 (0000:07:00): gemm bf16 8192 560 TFLOP/s, 19% below the median 690 of 8 (modified z -"
    assert failed[0].message.startswith(start)


def test_only_a_limit_sees_that_all_eight_are_slow() -> None:
    checks = judge(bf16([400.0] * 8))
    assert {(one.name, one.outcome) for one in checks} == {("limit", "fail"), ("peers", "pass")}
    assert "expected" in checks[0].message
    assert "source" not in checks[0].message  # the source itself is there
    assert "docs/measurements.md" in checks[0].message


def test_a_model_without_limits_is_compared_with_its_peers_only() -> None:
    checks = judge(bf16([700, 702, 698, 350], model="NVIDIA X9"))
    assert {(one.name, one.outcome) for one in checks} == {("limit", "no limit"), ("peers", "fail")}


def test_mixed_cards_are_not_compared_with_each_other() -> None:
    assert not [one for one in judge(bf16([690, 691, 692]) + bf16([66, 67, 66], "NVIDIA L4")) if one.outcome == "fail"]


def test_peers_have_one_model_and_size_also_across_nodes() -> None:
    """Three nodes of each of three kinds, at levels that their own kind has: no GPU and no node is slow."""
    kinds = [(H200, 132, 690.0), (H200, 60, 310.0), ("NVIDIA L4", 58, 66.0)]
    readings = []
    for number, (model, size, level) in enumerate(kinds * 3):
        made = bf16([level + 0.001 * number] * 4, model, f"n{number}")
        readings += [dataclasses.replace(one, multiprocessors=size) for one in made]
    assert judge_nodes(readings) == []
    assert not [one for one in judge(readings) if one.name == "peers" and one.outcome != "pass"]
    slow = [dataclasses.replace(one, value=250.0) if one.node == "n4" else one for one in readings]
    (node,) = judge_nodes(slow)
    assert node.message.startswith("n4: gemm bf16 8192 250 TFLOP/s, 19% below the median of 3 nodes (310")
    named = {(one.gpu, one.message[:2]) for one in judge(slow) if one.name == "peers" and one.outcome == "fail"}
    assert named == {(gpu, "n4") for gpu in range(4)}


def test_copies_between_two_models_have_no_limit_and_other_peers() -> None:
    cards = [(H200, 132), (H200, 132), ("NVIDIA L4", 58)]
    gpus = [
        {"index": gpu, "bus": f"{gpu}", "name": name, "multiprocessors": size} for gpu, (name, size) in enumerate(cards)
    ]
    pairs = [
        {"from": a, "to": b, "direct": True, "gb_per_s": 393.0 if a + b == 1 else 20.0}
        for a, b in ((0, 1), (1, 0), (0, 2), (1, 2), (2, 0), (2, 1))
    ]
    report = {"node": "n1", "gpus": gpus, "peers": {"pairs": pairs}, "stages": {"memory": {}}}
    checks = judge(pair_readings(report))
    assert {one.outcome for one in checks} == {"pass", "no limit"}
    report["stages"] = {"memory": {"2": {"gb_per_s": {"memory copy": 235.0}}}}
    sizes = [(one.gpu, one.multiprocessors) for one in pair_readings(report) + readings_of(report)]
    assert sizes == [(0, 132), (1, 132), (0, 132), (1, 132), (2, 58), (2, 58), (2, 58)]


def test_a_slow_node_is_named() -> None:
    readings = [
        one for node, level in (("a", 690), ("b", 692), ("c", 691), ("d", 600)) for one in bf16([level] * 8, node=node)
    ]
    (check,) = judge_nodes(readings)
    assert check.message.startswith("d: gemm bf16 8192 600 TFLOP/s, 13% below the median of 4 nodes")
    assert judge_nodes(readings[:16]) == []


def test_a_failure_needs_a_bad_repetition() -> None:
    first = [Check("peers", "fail", "n1 gpu 7: slow", 7, "gemm bf16 8192"), Check("compute", "fail", "wrong", 7)]
    kept = confirmed(first, {(7, "gemm bf16 8192"): 689.0})
    assert [one.outcome for one in kept] == ["warn", "fail"]
    assert kept[0].message == "n1 gpu 7: slow; repeated: 689, which is good: slow once"
    assert confirmed(first, {}) == first


def test_two_real_cards_agree_bit_for_bit() -> None:
    """Two different H200: the full screen has the quick one's products."""
    found = [json.loads((DATA / name).read_text()) for name in ("h200-quick.json", "h200-full.json")]
    hashes = {place: report["stages"]["screen"]["0"]["hashes"] for place, report in enumerate(found)}
    assert set(hashes[0]) < set(hashes[1])
    assert vote(hashes, str) == []
    assert len(found[1]["samples"]) == 60
    assert check_samples([Sample(**one) for one in found[1]["samples"]], {"0000:00:06": 0}, str) == []


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
    ],
)
def test_models_are_exact(name: str, model: str | None) -> None:
    assert model_of(name) == model


def test_every_limit_has_source_and_bounds() -> None:
    data = json.loads((Path(__file__).parents[2] / "gpusuite/limits.json").read_text())
    models = {one["name"] for one in data["models"]}
    assert models == {"A100 80GB", "A100 40GB", "H100", "H200", "B200", "L4", "L40S", "A10G"}
    used = {name for one in data["limits"] for name in one["sources"]}
    assert used == set(data["sources"])
    assert all(re.fullmatch(r"(read )?20\d\d-\d\d-\d\d", one["date"]) for one in data["sources"].values())
    rows = {(one["gpu"], one["metric"]) for one in data["limits"]}
    assert len(rows) == len(data["limits"])
    assert {(model, f"gemm {dtype} 8192") for model in models for dtype in ("fp32", "bf16")} <= rows
    for limit in known_limits():
        assert limit.gpu in models
        assert 0 < limit.fail_below < limit.warn_below < limit.typical, limit
        assert limit.source
    found = find_limit("NVIDIA H100 80GB HBM3", "gemm bf16 8192")
    assert found is not None
    assert [found.outcome(one) for one in (770, 600, 300, float("nan"))] == ["pass", "warn", "fail", "fail"]
    assert find_limit("NVIDIA H200", "gemm int8 8192") is None


GOOD: dict[str, dict[str, Any]] = {
    "compute": {
        "gemms": [{"dtype": "fp32", "n": 8192, "tflops": 50, "error": 1e-6, "error_bound": 1e-5, "wrong_rows": []}]
    },
    "memory": {"wrong": []},
    "pattern": {"tested_bytes": 90, "free_bytes": 100, "wrong_words": 0},
    "peers": {"pairs": [{"from": 0, "to": 1, "direct": True, "wrong": False}]},
    "train": {
        "start_loss": 1.0,
        "end_loss": 0.1,
        "steps": 60,
        "improved": True,
        "gradients_finite": True,
        "repeatable": True,
    },
    "inference": {"models": [{"model": "resnet50", "cosine": 0.999, "close": True}]},
    "screen": {"hashes": {"bf16 0": "a"}, "differing": 0},
    "stress": {"windows_tflops": [700.0] * 20, "seconds": 20.0},
}


def changed(stage: str, changes: dict[str, Any]) -> dict[str, Any]:
    result = json.loads(json.dumps(GOOD[stage]))
    row = result["gemms"][0] if stage == "compute" else result["pairs"][0] if stage == "peers" else result
    row = result["models"][0] if stage == "inference" else row
    row.update(changes)
    return dict(result)


@pytest.mark.parametrize(
    ("stage", "changes", "outcome", "said"),
    [
        *((stage, {}, "pass", "right on 1 GPU") for stage in GOOD if stage != "screen"),
        ("compute", {"wrong_rows": [17]}, "fail", "wrong result: an integer product is not exact in rows [17]"),
        ("compute", {"error": 3e-4}, "fail", "TF32 is on although it was switched off"),
        ("compute", {"error": float("nan")}, "fail", "relative error nan"),
        ("compute", {"tflops": 0.0}, "fail", "did no work"),
        ("memory", {"wrong": ["memory copy"]}, "fail", "memory copy: the data differ"),
        ("pattern", {"wrong_words": 2}, "fail", "2 words of 8 bytes read back differently"),
        ("pattern", {"tested_bytes": 0}, "fail", "only 0 of 100 free bytes"),
        ("peers", {"wrong": True}, "fail", "copy from gpu 0 to gpu 1: the data differ"),
        ("train", {"improved": False}, "fail", "the loss does not fall: from 1 to 0.1 in 60 steps"),
        ("train", {"gradients_finite": False}, "fail", "gradients are not finite"),
        ("train", {"repeatable": False}, "warn", "the same seed gave other losses"),
        ("inference", {"close": False, "cosine": 0.5}, "fail", "the fp16 output differs from fp32 (cosine 0.5000)"),
        ("stress", {"windows_tflops": [700.0] * 10 + [600.0] * 10}, "fail", "droops by 14%"),
        ("stress", {"windows_tflops": [700.0] * 10 + [650.0] * 10}, "warn", "droops by 7%"),
        ("stress", {"windows_tflops": [700.0]}, "fail", "too little work"),
    ],
)
def test_checks_of_each_stage(stage: str, changes: dict[str, Any], outcome: str, said: str) -> None:
    checks = check_stage(stage, {3: changed(stage, changes)}, lambda gpu: f"n1 gpu {gpu} (0000:53:00)")
    assert [one.outcome for one in checks] == [outcome]
    assert said in checks[0].message
    if outcome != "pass":
        gpu = 0 if stage == "peers" else 3  # one process makes all copies: a pair belongs to its source
        assert checks[0].message.startswith(f"n1 gpu {gpu} (0000:53:00): ")
        assert checks[0].gpu == gpu


def test_the_kind_of_each_finding() -> None:
    cases = [
        ("compute", {"wrong_rows": [1]}, "wrong result"),
        ("train", {"improved": False}, "wrong result"),
        ("peers", {"wrong": True}, "wrong result"),
        ("pattern", {"tested_bytes": 0}, "failed"),
        ("stress", {"windows_tflops": [700.0] * 10 + [600.0] * 10}, "droop"),
    ]
    for stage, changes, kind in cases:
        assert [one.kind for one in check_stage(stage, {3: changed(stage, changes)}, str)] == [kind]
    assert [one.kind for one in check_stage("train", {3: {"error": "it hangs"}}, str)] == ["failed"]
    slow = judge(bf16([400.0] + [700.0 + gpu for gpu in range(7)]))
    assert {one.kind for one in slow if one.outcome == "fail"} == {"slow"}


def test_a_stage_that_ended_with_an_error_fails_and_the_others_are_checked() -> None:
    checks = check_stage("memory", {0: {"error": "it hangs"}, 1: {"wrong": ["triad"]}}, str)
    assert [(one.gpu, one.outcome) for one in checks] == [(0, "fail"), (1, "fail")]


def test_the_warm_up_of_a_gpu_is_no_droop() -> None:
    assert droop([770.0, 760.0] + [690.0] * 18) == pytest.approx(0.0)
    assert droop([]) is None


def test_the_vote_names_the_minority_and_a_tie_names_all() -> None:
    right = {"bf16 0": "a", "fp32 0": "b"}
    (check,) = vote({0: right, 1: right, 2: {**right, "fp32 0": "x"}}, lambda gpu: f"gpu {gpu}")
    assert check.message == "gpu 2: corruption screen: other bytes than the majority in fp32 0"
    (tie,) = vote({0: right, 1: {**right, "bf16 0": "x"}}, lambda gpu: f"gpu {gpu}")
    assert (tie.outcome, "gpu 0 and gpu 1 disagree in bf16 0" in tie.message) == ("fail", True)
    assert vote({0: right, 1: right}, str) == []


def screens(kinds: list[tuple[str, int]], wrong: int) -> dict[int, dict[str, Any]]:
    """The screen's results of GPUs of these models and sizes; each kind has bytes of its own, and one GPU other ones."""
    return {
        gpu: {
            "hashes": {"bf16 0": "wrong" if gpu == wrong else f"{kind}"},
            "differing": 0,
            "model": kind[0],
            "multiprocessors": kind[1],
        }
        for gpu, kind in enumerate(kinds)
    }


def test_the_vote_is_within_one_model_and_size() -> None:
    whole, part, other = (H200, 132), (H200, 60), ("NVIDIA L4", 58)
    found = screens([whole, whole, whole, part, part, part, other], wrong=4)
    wrong, alone = check_stage("screen", found, lambda gpu: f"gpu {gpu}")
    assert (wrong.outcome, wrong.gpu) == ("fail", 4)
    assert wrong.message == "gpu 4: corruption screen: other bytes than the majority in bf16 0"
    assert (alone.outcome, alone.gpu, alone.kind) == ("no limit", None, None)
    line = "corruption screen: there is no other GPU of the same kind to compare with: gpu 6 (NVIDIA L4, 58 multiprocessors)"
    assert alone.message == line
    assert [one.outcome for one in check_stage("screen", screens([whole, whole], wrong=9), str)] == ["pass"]


def test_a_gpu_without_a_peer_is_compared_with_its_own_repetitions() -> None:
    (one,) = screens([(H200, 132)], wrong=9).values()
    assert [check.outcome for check in check_stage("screen", {3: one}, str)] == ["no limit"]
    checks = check_stage("screen", {3: {**one, "differing": 3}}, lambda gpu: f"gpu {gpu}")
    assert [(check.outcome, check.gpu, check.kind) for check in checks] == [
        ("fail", 3, "wrong result"),
        ("no limit", None, None),
    ]
    assert checks[0].message == "gpu 3: corruption screen: 3 repeated products differ from their first result"
    many = check_stage("screen", screens([(f"model {gpu}", 1) for gpu in range(10)], wrong=99), lambda gpu: f"g{gpu}")
    assert many[0].message.endswith("g7 (model 7, 1 multiprocessors) and 2 more")


LINE = "00000000:53:00.0, 1455, 1980, 692.46, 700.00, 60, 100, 0, 0, 5, 16, 0x0000000000000004"
NAMES = {"0000:53:00": 0}


def samples(**changes: Any) -> list[Sample]:
    (basis,) = parse(LINE)
    return [
        Sample(**{**basis.as_json(), **{k: (v(i) if callable(v) else v) for k, v in changes.items()}})
        for i in range(40)
    ]


def test_lines_of_nvidia_smi() -> None:
    (sample,) = parse(f"{LINE}\n00000000:54:00.0, 14")  # the second line is cut
    assert (sample.bus, sample.sm_mhz, sample.power_w, sample.ecc_uncorrected, sample.reasons) == (
        "0000:53:00",
        1455,
        692.46,
        0,
        4,
    )
    (old,) = parse(LINE.replace(" 0, 0, 5", " [N/A], [Not Supported], 5"))
    assert (old.ecc_uncorrected, old.ecc_corrected, old.pcie_gen) == (None, None, 5)
    assert slowdowns(0x4) == []
    assert slowdowns(0x4 | 0x8 | 0x40) == ["hardware slowdown", "too hot (hardware)"]


@pytest.mark.parametrize(
    ("watched", "outcome", "said"),
    [
        (samples(), None, ""),  # the power cap of a busy GPU is no finding
        (samples(reasons=0x44), "fail", "too hot (hardware) in 40 of 40 samples under load"),
        (samples(reasons=lambda i: 0x20 if i == 5 else 4), "warn", "too hot (software) in 1 of 40 samples"),
        (samples(reasons=0x80), "fail", "power brake"),
        (samples(ecc_uncorrected=lambda i: i // 20), "fail", "1 uncorrected ECC errors under load"),
        (samples(ecc_corrected=lambda i: i // 20), "warn", "1 corrected ECC errors under load"),
        (samples(power_w=140.0, reasons=0), "warn", "draws 20% of its power limit under full load"),
        ([], "warn", "was not watched under load"),
    ],
)
def test_findings_under_load(watched: list[Sample], outcome: str | None, said: str) -> None:
    checks = check_samples(watched, NAMES, lambda gpu: f"n1 gpu {gpu}")
    assert [one.outcome for one in checks] == ([outcome] if outcome else [])
    assert all(said in one.message and one.message.startswith("n1 gpu 0") for one in checks)


def test_a_link_that_is_narrower_than_its_peers_is_named() -> None:
    narrow = [Sample(**{**one.as_json(), "bus": "0000:54:00", "pcie_width": 8.0}) for one in samples()]
    checks = check_samples([*samples(), *narrow], {**NAMES, "0000:54:00": 1}, lambda gpu: f"n1 gpu {gpu}")
    assert [one.message for one in checks] == [
        "n1 gpu 1: PCIe generation 5 x8, other GPUs of the node have generation 5 x16"
    ]


def two_gpus() -> dict[str, Any]:
    """Two H200 with 18 NVLinks between them: the whole suite without --quick (docs/measurements.md)."""
    parts: dict[str, Any] = json.loads((DATA / "h200x2-full.json").read_text())["parts"]
    return {name: part["report"] for name, part in parts.items()}


def test_the_recorded_reports_of_two_real_gpus_are_good() -> None:
    report = two_gpus()["gpu_tests"]
    pairs = pair_readings(report)
    assert [(one.gpu, one.kind, round(one.value)) for one in pairs] == [(0, "peer", 395), (1, "peer", 395)]
    assert pairs[0].where == "vm gpu 0 (0000:00:06 to gpu 1 0000:00:07)"
    outcomes = {one.outcome for one in judge(readings_of(report)) + judge(pairs)}
    assert outcomes == {"pass", "no limit"}
    buses = {gpu["bus"]: gpu["index"] for gpu in report["gpus"]}
    assert check_samples([Sample(**one) for one in report["samples"]], buses, str) == []
    for stage, results in report["stages"].items():
        checks = check_stage(stage, {int(gpu): one for gpu, one in results.items()}, str)
        assert [one.outcome for one in checks] == ["pass"], stage
    other_card = json.loads((DATA / "h200-full.json").read_text())["stages"]["screen"]["0"]["hashes"]
    hashes = {int(gpu): one["hashes"] for gpu, one in report["stages"]["screen"].items()}
    assert len(other_card) == len(hashes[0]) == 32
    assert vote({**hashes, 2: other_card}, str) == []


def test_a_fault_in_the_record_of_two_gpus_is_found() -> None:
    report = two_gpus()["gpu_tests"]
    report["peers"]["pairs"][1].update(gb_per_s=180.0, wrong=True)
    (check,) = check_stage("peers", {0: report["peers"]}, lambda gpu: f"gpu {gpu}")
    assert (check.outcome, check.message) == ("fail", "gpu 1: copy from gpu 1 to gpu 0: the data differ")
    limit = next(one for one in judge(pair_readings(report)) if one.outcome == "fail")
    assert limit.message.startswith("vm gpu 1 (0000:00:07 to gpu 0 0000:00:06): peer 180 GB/s, expected 393")
    hashes = {int(gpu): dict(one["hashes"]) for gpu, one in report["stages"]["screen"].items()}
    hashes[1]["fp16 0"] = "other"
    assert "disagree in fp16 0, and no majority says which is wrong" in vote(hashes, str)[0].message


def test_two_real_gpus_one_of_them_slow_on_purpose() -> None:
    """`--inject slow:1`: measured twice, every rate of GPU 1 is below its limit; GPU 0 is judged good beside it."""
    report = json.loads((DATA / "h200x2-slow.json").read_text())
    bad = [one for one in judge(readings_of(report)) if one.outcome in ("warn", "fail")]
    assert {one.gpu for one in bad} == {1}
    rates = {"memory copy", "memory triad", "host to device", "device to host"}
    assert {one.metric for one in bad if one.outcome == "fail"} == rates
    failures = [one.message for one in bad if one.outcome == "fail"]
    assert sorted(failures) == sorted(report["failures"])
    assert {metric for _, metric, _, _ in figures("memory", report["stages"]["memory"]["1"]["repeated"])} == rates


def test_two_real_gpus_one_of_them_flips_bits_on_purpose() -> None:
    """`--inject flip:1`: GPU 1 alone differs from itself; the two together cannot say which is right."""
    report = json.loads((DATA / "h200x2-flip.json").read_text())
    results = {int(gpu): one for gpu, one in report["stages"]["screen"].items()}
    checks = check_stage("screen", results, lambda gpu: f"vm gpu {gpu} (0000:00:0{6 + gpu})")
    assert [one.message for one in checks] == report["failures"]
    assert [one.gpu for one in checks] == [1, None]


def test_the_recorded_collectives_of_two_real_gpus() -> None:
    """Bus bandwidth is as nccl-tests defines it, and the groups' reports of trainings are good."""
    reports = two_gpus()
    rows = reports["ddp_tests"]["allreduce"] + reports["ddp_tests"]["collectives"]
    assert {(one["collective"], one["ok"], one["wrong"]) for one in rows} == {(name, True, 0) for name in FACTORS}
    assert {one["bytes"] for one in rows} == {1 << 20, 64 << 20, 1 << 30, 8 << 30}
    for one in rows:
        assert one["busbw_gb_per_s"] == pytest.approx(FACTORS[one["collective"]] * one["algbw_gb_per_s"], rel=1e-4)
        assert one["algbw_gb_per_s"] == pytest.approx(one["bytes"] / one["time_us"] / 1000, rel=1e-4)
    for part, mode in (("ddp_train", "DDP"), ("fsdp_train", "FSDP")):
        report = reports[part]
        assert (report["mode"], report["improved"], report["weights_equal"], report["ok"]) == (mode, True, True, True)


FACTORS = {"all_reduce": 1.0, "all_gather": 0.5, "reduce_scatter": 0.5, "alltoall": 0.5, "sendrecv": 1.0}


def test_the_recorded_report_of_a_real_gpu_is_good() -> None:
    """One H200, torch 2.11, measured by the suite itself (docs/measurements.md)."""
    report = json.loads((DATA / "h200-quick.json").read_text())
    readings = {one.metric: one for one in readings_of(report)}
    assert readings["gemm bf16 8192"].value == pytest.approx(662.8, abs=0.1)
    assert readings["memory copy"].where == "vm gpu 0 (0000:00:06)"
    outcomes = [one.outcome for one in judge(list(readings.values()))]
    assert set(outcomes) <= {"pass", "no limit"}
    assert pair_readings(report) == []
    recorded = [Sample(**one) for one in report["samples"]]
    assert check_samples(recorded, {"0000:00:06": 0}, str) == []
    for stage, results in report["stages"].items():
        checks = check_stage(stage, {int(gpu): one for gpu, one in results.items()}, str)
        assert [one.outcome for one in checks] == ["no limit" if stage == "screen" else "pass"], stage
