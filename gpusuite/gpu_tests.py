"""Test every GPU of this machine: computing, memory, training, inference, silent corruption, full load.

    python gpu_tests.py --quick

Exit codes: gpusuite/reports.py.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from gpusuite import reports
from gpusuite.checks import FAILED, check_samples, check_stage
from gpusuite.devices import CudaError, Gpu, find_gpus, smi_list
from gpusuite.judgement import Check, confirmed, judge, number
from gpusuite.options import FAULTS, Options, fault_of, with_fault
from gpusuite.readings import Reading, figures, pair_readings, readings_of
from gpusuite.smi import Sample, watched
from gpusuite.workers import Workers

REPORT = "gpu_tests_result.json"
# Stages in their order, with the seconds after which a GPU hangs: quick, full.
STAGES = {
    "compute": (120, 600),
    "memory": (90, 240),
    "pattern": (120, 240),
    "peers": (180, 600),
    "train": (60, 120),
    "inference": (120, 300),
    "screen": (120, 600),
    "stress": (60, 60),  # and the time of the test itself
}
PREFIXES = {"compute": "COMPUTE", "train": "TRAIN"}  # of the lines; else the stage in capitals
_START_S = 300  # importing torch from a cold shared file system
_STRESS_S = (20.0, 600.0)  # quick, full
_MOST_REPEATS = 4  # GPUs of one stage that are measured again


@dataclass
class Run:
    """One run of the program: what it knows and has measured so far."""

    arguments: argparse.Namespace
    gpus: list[Gpu]
    environment: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    peers: dict[str, Any] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    sample_s: float = 1.0  # from one sample of a GPU to the next
    checks: list[Check] = field(default_factory=list)

    def label(self, gpu: int) -> str:
        """Node, index and bus id."""
        return f"{reports.node_name()} {next(str(one) for one in self.gpus if one.index == gpu)}"

    def as_json(self) -> dict[str, Any]:
        """Return the report."""
        failures = reports.failures_of(self.checks)
        values = {
            "schema": 1,
            "program": "gpu_tests",
            "node": reports.node_name(),
            "date": reports.now(),
            "quick": self.arguments.quick,
            "environment": self.environment,
            "gpus": [gpu.as_json() for gpu in self.gpus],
            "stages": {name: {str(gpu): one for gpu, one in found.items()} for name, found in self.stages.items()},
            "peers": self.peers,
            "samples": [sample.as_json() for sample in self.samples],
            "sample_s": self.sample_s,
        }
        values["readings"] = [one.as_json() for one in _readings(values)]
        values["checks"] = [check.as_json() for check in self.checks]
        outcome = reports.FAILURE if failures else reports.SUCCESS if self.gpus else reports.SKIPPED
        return {**values, "result": outcome, "failures": failures}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stages on all GPUs at once and judge them."""
    arguments = _parser().parse_args(argv)
    try:
        stages = _stages(arguments.stages)
        fault = fault_of(arguments.inject, stages) if arguments.inject else None
    except ValueError as error:
        reports.complain(str(error))
        return reports.EXIT_INPUT
    run = Run(arguments, [])
    _print_environment(run)
    try:
        run.gpus = _gpus(arguments)
    except CudaError as error:
        run.checks.append(Check("gpus", "fail", f"{reports.node_name()}: {error}"))
    for gpu in run.gpus:
        reports.say("ENV", f"{gpu} {gpu.name}, {gpu.memory_bytes >> 20} MiB, {gpu.uuid}")
    reports.say("ENV", f"cuda_device_count {len(run.gpus)}")
    try:
        if fault and (run.gpus or not (arguments.expect_gpus or run.checks)):
            fault = fault_of(arguments.inject, stages, len(run.gpus))
    except ValueError as error:
        reports.complain(str(error))
        return reports.EXIT_INPUT
    run.checks += _enough(len(run.gpus), arguments.expect_gpus)
    if run.gpus and reports.unfit():
        return reports.EXIT_ENVIRONMENT
    if run.gpus:
        _measure(run, stages, fault)
    reports.print_checks(run.checks, arguments.verbose)
    written = reports.write(arguments.report_dir, arguments.report_name, run.as_json())
    skipped = "" if run.gpus else "no GPU on this machine: no test was run"
    code = reports.result(reports.failures_of(run.checks), skipped)
    return code if written else code or reports.EXIT_ENVIRONMENT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Test every GPU of this machine.")
    reports.add_common(parser, REPORT)
    parser.add_argument("--expect-gpus", type=reports.whole(0, 1_000_000), metavar="N", help="fewer GPUs are a failure")
    stages = f"some stages only, separated by commas: {','.join(STAGES)}"
    parser.add_argument("--stages", default=",".join(STAGES), metavar="LIST", help=stages)
    seconds = "length of the stress test (default: 600, with --quick 20)"
    parser.add_argument("--stress-seconds", type=reports.above_zero, metavar="S", help=seconds)
    faults = "; ".join(f"{kind} {text} (stage {', '.join(stages) or 'any'})" for kind, (text, stages) in FAULTS.items())
    inject = f"a fault on purpose on one GPU, which the checks must find: KIND:GPU. {faults}"
    parser.add_argument("--inject", type=reports.filled, metavar="KIND:GPU", help=inject)
    cpu = "for tests: run the stages in N processes on the CPU instead, with tiny sizes; the figures mean nothing"
    parser.add_argument("--cpu-devices", type=reports.whole(1, 64), metavar="N", help=cpu)
    return parser


def _stages(text: str) -> list[str]:
    names = text.split(",")
    wrong = [name for name in names if name not in STAGES]
    if wrong:
        raise ValueError(f"--stages {text}: {wrong[0]!r} is no stage. Hint: {', '.join(STAGES)}")
    return [name for name in STAGES if name in names]


def _print_environment(run: Run) -> None:
    run.environment = {"python": platform.python_version(), "system": platform.platform(), "nvidia_smi": smi_list()}
    reports.say("ENV", f"node {reports.node_name()}, python {platform.python_version()}, {platform.platform()}")
    for line in run.environment["nvidia_smi"]:
        reports.say("ENV", f"nvidia-smi -L: {line}")


def _gpus(arguments: argparse.Namespace) -> list[Gpu]:
    if arguments.cpu_devices is None:
        return find_gpus()
    return [Gpu(index, "CPU", f"cpu:{index}") for index in range(arguments.cpu_devices)]


def _enough(count: int, expected: int | None) -> list[Check]:
    if expected is None or count >= expected:
        return []
    hint = "Hint: compare nvidia-smi -L on the host; dmesg shows a GPU that fell off the bus"
    return [Check("gpus", "fail", f"{reports.node_name()}: {count} GPUs, expected {expected}. {hint}")]


def _measure(run: Run, stages: Sequence[str], fault: tuple[str, int] | None) -> None:
    tiny = run.arguments.cpu_devices is not None
    names = {gpu.index: "cpu" if tiny else str(gpu.index) for gpu in run.gpus}
    with Workers(names) as workers:
        ready = workers.ready(_START_S)
        run.checks += [one for one in check_stage("start", ready, run.label) if one.outcome == "fail"]
        run.environment["overridden"] = workers.overridden
        run.environment.update(next((one for one in ready.values() if "error" not in one), {}))
        versions = (f"{name} {run.environment.get(name)}" for name in ("torch", "cuda", "cudnn", "nccl"))
        reports.say("ENV", ", ".join(versions))
        for name, value in workers.overridden.items():
            reports.say("ENV", f"{name}={value} is taken away: it would change what fp32 is")
        for stage in stages:
            if stage == "peers" and len(run.gpus) == 1:
                reports.say("PEERS", "one GPU: there is no other to copy to")
                continue
            _stage(run, workers, stage, fault)


def _stage(run: Run, workers: Workers, stage: str, fault: tuple[str, int] | None) -> None:
    """Run one stage on all GPUs at once, and again on those that are too slow."""
    arguments = run.arguments
    stress_s = arguments.stress_seconds or _STRESS_S[0 if arguments.quick else 1]
    basis = Options(arguments.quick, arguments.cpu_devices is not None, stress_s if stage == "stress" else 0.0)
    chosen = run.gpus[:1] if stage == "peers" else run.gpus
    options = {gpu.index: with_fault(basis, fault, gpu.index) for gpu in chosen}
    timeout_s = STAGES[stage][0 if arguments.quick else 1] + 1.01 * basis.seconds  # a window may begin at the end

    def measure(gpus: Sequence[int]) -> dict[int, dict[str, Any]]:
        return workers.run(stage, {gpu: options[gpu] for gpu in gpus}, timeout_s)

    if stage == "stress":
        run.sample_s = max(1.0, basis.window_s)
        with watched(run.sample_s) as samples:
            results = measure(list(options))
        run.samples = samples
    else:
        results = measure(list(options))
    run.checks += [] if basis.tiny and stage == "stress" else check_stage(stage, results, run.label)
    good = {gpu: one for gpu, one in results.items() if "error" not in one}
    if stage == "peers":
        run.peers = next(iter(good.values()), {})
        run.checks += judge(pair_readings(run.as_json()))
    else:
        run.stages[stage] = good
        run.checks += _judged(run, stage, measure)
    if stage == "stress" and not basis.tiny:
        run.checks += check_samples(run.samples, {gpu.bus: gpu.index for gpu in run.gpus}, run.label)
    for gpu, one in good.items():
        for line in lines_of(stage, one):
            reports.say(PREFIXES.get(stage, stage.upper()), f"{run.label(gpu)}: {line}")


def _judged(run: Run, stage: str, measure: Callable[[Sequence[int]], dict[int, dict[str, Any]]]) -> list[Check]:
    """Judge a stage's figures; measure GPUs that are too slow once more, alone, before they fail."""
    readings = [] if run.arguments.cpu_devices is not None else _readings(run.as_json(), stage)
    checks = judge(readings)
    slow = sorted({one.gpu for one in checks if one.outcome == "fail" and one.gpu is not None})
    if not slow or len(slow) > _MOST_REPEATS:
        return checks
    repeated: dict[tuple[int, str], float] = {}
    for gpu in slow:
        reports.say(PREFIXES.get(stage, stage.upper()), f"{run.label(gpu)}: too slow, measured once more")
        again = measure([gpu]).get(gpu, {"error": "the GPU is asked no more"})
        if "error" in again:
            checks.append(
                Check(stage, "fail", f"{run.label(gpu)}: {stage}, repeated: {again['error']}", gpu, kind=FAILED)
            )
            continue
        run.stages[stage][gpu]["repeated"] = again
        values = {metric: value for _, metric, value, _ in figures(stage, again)}
        replaced = [_with_value(one, values) if one.gpu == gpu else one for one in readings]
        still = {one.metric for one in judge(replaced) if one.gpu == gpu and one.outcome == "fail"}
        repeated.update({(gpu, metric): value for metric, value in values.items() if metric not in still})
    return confirmed(checks, repeated)


def _readings(report: Mapping[str, Any], stage: str = "") -> list[Reading]:
    """The readings of a report; of one stage if it is named."""
    stages = {stage: report["stages"].get(stage, {})} if stage else report["stages"]
    return readings_of({**report, "stages": stages})


def _with_value(reading: Reading, values: Mapping[str, float]) -> Reading:
    return replace(reading, value=values.get(reading.metric, reading.value))


def lines_of(stage: str, result: Mapping[str, Any]) -> list[str]:
    """Return the lines that are printed of one GPU's result of a stage."""
    if stage == "compute":
        lines = [
            f"{one['dtype']} {one['n']}: {one['gflops']:.0f} GFLOP/s ({number(one['tflops'])} TFLOP/s, median"
            f" of {len(one['windows_tflops'])} windows after {one['warm_up_s']} s), error {one['error']:.1e},"
            f" exact={not one['wrong_rows']}"
            for one in result["gemms"]
        ]
        return lines + [f"{dtype}: not measured: {why}" for dtype, why in result["skipped"].items()]
    if stage == "train":
        losses = f"start_loss={result['start_loss']:.5f} end_loss={result['end_loss']:.5f}"
        flags = f"improved={result['improved']} finite={result['gradients_finite']} repeatable={result['repeatable']}"
        return [f"{losses} steps={result['steps']} {flags}"]
    if stage == "pattern":
        return [f"{result['tested_bytes']} bytes of {result['free_bytes']} tested, {result['wrong_words']} wrong words"]
    if stage == "peers":
        return [
            f"gpu {one['from']} -> gpu {one['to']}: {number(one['gb_per_s'])} GB/s{'' if one['direct'] else ' (host)'}"
            for one in result["pairs"]
        ]
    if stage == "screen":
        text = f"{len(result['hashes'])} products, {result['repeats']} repeats each, {result['differing']} differ"
        return [text]
    if stage == "stress" and result["windows_tflops"]:
        ends = [number(result["windows_tflops"][place]) for place in (0, len(result["windows_tflops"]) // 2, -1)]
        return [f"bf16 for {result['seconds']:.0f} s: first, middle, last second {', '.join(ends)} TFLOP/s"]
    return [", ".join(f"{metric} {number(value)} {unit}" for _, metric, value, unit in figures(stage, result))]


if __name__ == "__main__":
    sys.exit(reports.run(main))
