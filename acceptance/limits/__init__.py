"""Limits, and the judgement of a measurement against them."""

from __future__ import annotations

from acceptance.limits.bandwidth import bus_factor, fine_busbw, measured_busbw, rank_range
from acceptance.limits.judge import Check, judge_log, worst
from acceptance.limits.lookup import find_limits, known_limits

__all__ = [
    "Check",
    "bus_factor",
    "find_limits",
    "fine_busbw",
    "judge_log",
    "known_limits",
    "measured_busbw",
    "rank_range",
    "worst",
]
