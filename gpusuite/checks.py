"""Whether the GPUs computed right and steadily: the checks of each stage's results. Pure: from JSON to checks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from gpusuite.judgement import Check
from gpusuite.smi import POWER_CAP, Sample, slowdowns

Results = Mapping[int, Mapping[str, Any]]  # of one stage, by GPU
# What GPUs must share for the same bytes: model, multiprocessors, and in a fleet the versions of torch and CUDA.
Kind = tuple[str, ...]
DROOP_FAIL, DROOP_WARN = 0.10, 0.05  # loss of speed from the first to the last fifth under load
_SLOWDOWN_SHARE = 0.05  # of the samples: one short thermal event is no failure
_LOW_POWER = 0.5  # of the card's limit, under full load
_TESTED = 0.5  # of the free memory that the pattern test must reach
_NAMED = 8  # GPUs in the line of those that have no peer


def check_stage(stage: str, results: Results, label: Callable[[int], str]) -> list[Check]:
    """Return the checks of one stage. label: node, index and bus id of a GPU."""
    checks: list[Check] = []
    done: dict[int, Mapping[str, Any]] = {}
    for gpu, result in results.items():
        if "error" in result:
            checks.append(Check(stage, "fail", f"{label(gpu)}: {stage}: {result['error']}", gpu, kind=FAILED))
        else:
            done[gpu] = result
    done = _by_source(done) if stage == "peers" else done
    of_one = _OF_ONE.get(stage)
    for gpu, result in done.items():
        for kind, outcome, text in of_one(result) if of_one else ():
            checks.append(Check(stage, outcome, f"{label(gpu)}: {text}", gpu, kind=kind))
    if stage == "screen":
        groups: dict[Kind, dict[int, Mapping[str, str]]] = defaultdict(dict)
        for gpu, result in done.items():
            size = f"{result.get('multiprocessors', 0)} multiprocessors"
            groups[result.get("model", "unknown model"), size][gpu] = result["hashes"]
        checks += vote_by_kind(groups, label)
    if not checks and done:
        checks.append(Check(stage, "pass", f"{stage}: right on {len(done)} GPU{'s' * (len(done) > 1)}"))
    return checks


WRONG, DROOP, FAILED = "wrong result", "droop", "failed"  # kinds of findings
_Findings = Iterable[tuple[str, str, str]]  # kind, outcome and text


def _compute(result: Mapping[str, Any]) -> _Findings:
    for one in result["gemms"]:
        what = f"{one['dtype']} product of {one['n']}"
        if one["wrong_rows"]:
            yield WRONG, "fail", f"{what}: wrong result: an integer product is not exact in rows {one['wrong_rows']}"
        if not one["error"] <= one["error_bound"]:
            tf32 = "; TF32 is on although it was switched off" if one["dtype"] == "fp32" and one["error"] < 2e-3 else ""
            yield (
                WRONG,
                "fail",
                f"{what}: relative error {one['error']:.2g}, expected at most {one['error_bound']:.2g}{tf32}",
            )
        if not one["tflops"] > 0:
            yield FAILED, "fail", f"{what}: did no work"


def _memory(result: Mapping[str, Any]) -> _Findings:
    for name in result["wrong"]:
        yield WRONG, "fail", f"{name}: the data differ after the copy"


def _pattern(result: Mapping[str, Any]) -> _Findings:
    tested, free = result["tested_bytes"], result["free_bytes"]
    if result["wrong_words"]:
        yield WRONG, "fail", f"memory pattern: {result['wrong_words']} words of 8 bytes read back differently"
    if tested < _TESTED * free:
        yield FAILED, "fail", f"memory pattern: only {tested} of {free} free bytes could be allocated and tested"


def _by_source(results: Results) -> dict[int, Mapping[str, Any]]:
    """One process makes all copies of a node: a pair belongs to the GPU that it is copied from."""
    pairs = [pair for result in results.values() for pair in result["pairs"]]
    direct = any(pair["direct"] for pair in pairs)
    found: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for pair in pairs:
        found[pair["from"]].append(pair)
    return {gpu: {"pairs": mine, "some_direct": direct} for gpu, mine in found.items()}


def _peers(result: Mapping[str, Any]) -> _Findings:
    for pair in result["pairs"]:
        if pair["wrong"]:
            yield WRONG, "fail", f"copy from gpu {pair['from']} to gpu {pair['to']}: the data differ"
        if not pair["direct"] and result["some_direct"]:
            text = f"gpu {pair['from']} cannot access gpu {pair['to']} directly: copies go through the host"
            yield FAILED, "warn", text


def _train(result: Mapping[str, Any]) -> _Findings:
    losses = f"from {result['start_loss']:.4g} to {result['end_loss']:.4g} in {result['steps']} steps"
    if not result["improved"]:
        yield WRONG, "fail", f"training: the loss does not fall: {losses}"
    if not result["gradients_finite"]:
        yield WRONG, "fail", "training: gradients are not finite"
    if not result["repeatable"]:
        yield WRONG, "warn", "training: the same seed gave other losses the second time"


def _inference(result: Mapping[str, Any]) -> _Findings:
    for one in result["models"]:
        if not one["close"]:
            yield WRONG, "fail", f"{one['model']}: the fp16 output differs from fp32 (cosine {one['cosine']:.4f})"


def _screen(result: Mapping[str, Any]) -> _Findings:
    if result["differing"]:
        yield (
            WRONG,
            "fail",
            f"corruption screen: {result['differing']} repeated products differ from their first result",
        )


def _stress(result: Mapping[str, Any]) -> _Findings:
    share = droop(result["windows_tflops"])
    if share is None:
        yield (
            FAILED,
            "fail",
            f"stress: {len(result['windows_tflops'])} windows in {result['seconds']:.0f} s: too little work",
        )
    elif share > DROOP_WARN:
        outcome = "fail" if share > DROOP_FAIL else "warn"
        yield (
            DROOP,
            outcome,
            f"stress: droops by {share:.0%} from the first to the last fifth of {result['seconds']:.0f} s",
        )


_OF_ONE: dict[str, Callable[[Mapping[str, Any]], _Findings]] = {
    "compute": _compute,
    "memory": _memory,
    "pattern": _pattern,
    "peers": _peers,
    "train": _train,
    "inference": _inference,
    "screen": _screen,
    "stress": _stress,
}


def droop(windows: Sequence[float]) -> float | None:
    """Return the loss of speed from the first to the last fifth, without the first tenth; None with too few windows."""
    steady = windows[-(-len(windows) // 10) :]
    fifth = len(steady) // 5
    if fifth < 1 or median(steady[:fifth]) <= 0:
        return None
    return 1 - median(steady[-fifth:]) / median(steady[:fifth])


def vote_by_kind(groups: Mapping[Kind, Mapping[int, Mapping[str, str]]], label: Callable[[int], str]) -> list[Check]:
    """Vote within each kind of GPU: others may differ bit for bit without a fault. One line names who has no peer."""
    checks = [check for hashes in groups.values() for check in vote(hashes, label)]
    alone = [
        f"{label(gpu)} ({', '.join(kind)})" for kind, hashes in groups.items() if len(hashes) == 1 for gpu in hashes
    ]
    if alone:
        names = ", ".join(alone[:_NAMED]) + (f" and {len(alone) - _NAMED} more" if len(alone) > _NAMED else "")
        message = f"corruption screen: there is no other GPU of the same kind to compare with: {names}"
        checks.append(Check("screen", "no limit", message))
    return checks


def vote(hashes: Mapping[int, Mapping[str, str]], label: Callable[[int], str]) -> list[Check]:
    """Compare the results of GPUs of one kind bit for bit. The majority is right; without one all are suspects."""
    accused: dict[int, list[str]] = defaultdict(list)
    split: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for product in sorted({name for found in hashes.values() for name in found}):
        values = {gpu: found[product] for gpu, found in hashes.items() if product in found}
        counts = Counter(values.values()).most_common()
        if len(counts) < 2:
            continue
        if 2 * counts[0][1] <= len(values):
            split[tuple(values)].append(product)
            continue
        for gpu, value in values.items():
            if value != counts[0][0]:
                accused[gpu].append(product)
    checks = []
    for gpu, products in accused.items():
        message = f"{label(gpu)}: corruption screen: other bytes than the majority in {', '.join(products)}"
        checks.append(Check("screen", "fail", message, gpu, kind=WRONG))
    for gpus, products in split.items():
        names = " and ".join(label(gpu) for gpu in gpus)
        message = f"corruption screen: {names} disagree in {', '.join(products)}, and no majority says which is wrong"
        checks.append(Check("screen", "fail", f"{message}. Hint: compare with a third GPU (fleet.py)", kind=WRONG))
    return checks


def check_samples(samples: Sequence[Sample], buses: Mapping[str, int], label: Callable[[int], str]) -> list[Check]:
    """Return what nvidia-smi showed under load. buses: bus id -> GPU. The software power cap is no finding."""
    by_gpu: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.bus in buses:
            by_gpu[buses[sample.bus]].append(sample)
    checks = []
    for gpu in sorted(buses.values()):
        if not by_gpu[gpu]:
            message = f"{label(gpu)}: was not watched under load: nvidia-smi gave no samples"
            checks.append(Check("watch", "warn", message, gpu))
        for kind, outcome, text in _watched(by_gpu[gpu]):
            checks.append(Check("watch", outcome, f"{label(gpu)}: {text}", gpu, kind=kind))
    return checks + _links(by_gpu, label)


def _watched(samples: Sequence[Sample]) -> _Findings:
    reasons = Counter(name for sample in samples for name in slowdowns(sample.reasons))
    for name, count in reasons.items():
        failed = count > 1 and count > _SLOWDOWN_SHARE * len(samples)
        yield FAILED, "fail" if failed else "warn", f"{name} in {count} of {len(samples)} samples under load"
    for field, outcome in (("ecc_uncorrected", "fail"), ("ecc_corrected", "warn")):
        values = [value for value in (getattr(sample, field) for sample in samples) if value is not None]
        if values and values[-1] > values[0]:
            yield FAILED, outcome, f"{values[-1] - values[0]:.0f} {field[4:]} ECC errors under load"
    drawn = [one.power_w / one.power_limit_w for one in samples if one.power_w is not None and one.power_limit_w]
    capped = any((sample.reasons or 0) & POWER_CAP for sample in samples)
    if drawn and not capped and median(drawn) < _LOW_POWER:
        yield (
            FAILED,
            "warn",
            f"draws {median(drawn):.0%} of its power limit under full load: the load does not reach the card",
        )


def _links(by_gpu: Mapping[int, Sequence[Sample]], label: Callable[[int], str]) -> list[Check]:
    """Compare PCIe generation and width under load with the best of the node: idle links are slower."""
    best = {
        gpu: max((one.pcie_gen or 0, one.pcie_width or 0) for one in samples)
        for gpu, samples in by_gpu.items()
        if samples
    }
    top = max(best.values(), default=(0, 0))
    return [
        Check("watch", "warn", f"{label(gpu)}: PCIe {_link(link)}, other GPUs of the node have {_link(top)}", gpu)
        for gpu, link in best.items()
        if link < top
    ]


def _link(link: tuple[float, float]) -> str:
    return f"generation {link[0]:.0f} x{link[1]:.0f}"
