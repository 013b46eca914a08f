"""Timing of work on a device: warm-up until the speed is steady, then the median of several windows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from gpusuite.options import Options


@dataclass(frozen=True)
class Speed:
    """Calls per second: the median of windows after the warm-up, and each window."""

    per_s: float
    windows: tuple[float, ...]
    warm_up_s: float


def synchronize(device: Any) -> None:
    """Wait until the device has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(device: Any, work: Callable[[], Any], calls: int) -> float:
    """Return the seconds that `calls` calls take back to back, by the device's own clock."""
    if device.type != "cuda":
        started = time.perf_counter()
        for _ in range(calls):
            work()
        return max(time.perf_counter() - started, 1e-9)
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    for _ in range(calls):
        work()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after)) / 1000


def speed(device: Any, work: Callable[[], Any], options: Options, *, brief: bool = False) -> Speed:
    """Measure how often a second `work` can be done.

    The first windows are thrown away until two neighbours agree, because a cold GPU is 10 to 15 % faster than a warm
    one. quick: at most 2 s of warm-up and 1.5 s of measuring; else 20 s and 8 s. brief: at most 0.3 s and 0.15 s, for
    copies and single requests, which do not heat the GPU.
    """
    window_s, windows, most_s, near = (0.3, 5, 2.0, 0.01) if options.quick else (1.0, 8, 20.0, 0.005)
    if brief:
        window_s, windows, most_s = 0.03, 5, 0.3
    if options.tiny:
        window_s, most_s = 0.005, 0.01
    work()
    synchronize(device)
    calls = max(1, round(window_s / seconds(device, work, 2) * 2))
    started, last = time.monotonic(), 0.0
    while time.monotonic() - started < most_s:
        rate = _rate(device, work, calls, options)
        if abs(rate - last) <= near * rate:
            break
        last = rate
    warm_up_s = time.monotonic() - started
    rates = tuple(_rate(device, work, calls, options) for _ in range(windows))
    return Speed(median(rates), rates, warm_up_s)


def _rate(device: Any, work: Callable[[], Any], calls: int, options: Options) -> float:
    extra = calls // 2 + 1 if options.fault == "slow" else 0
    return calls / seconds(device, work, calls + extra)
