"""Limits, and the judgement of a measurement against them."""

from __future__ import annotations

from acceptance.limits.bandwidth import bus_factor, fine_busbw, measured_busbw, rank_range
from acceptance.limits.baseline import BASELINE_RUNS, GOOD_RUNS, baseline_limit, middle, spread
from acceptance.limits.card_bandwidth import network_limit, through_cards
from acceptance.limits.check import ACCEPTED, Check, worst
from acceptance.limits.data import Reference, known_limits, measured_by_others, network_cards
from acceptance.limits.derived import derived_limit
from acceptance.limits.interpolate import limit_at
from acceptance.limits.judge import baselines_of, judge_log, references
from acceptance.limits.lookup import find_limits

__all__ = [
    "ACCEPTED",
    "BASELINE_RUNS",
    "GOOD_RUNS",
    "Check",
    "Reference",
    "baseline_limit",
    "baselines_of",
    "bus_factor",
    "derived_limit",
    "find_limits",
    "fine_busbw",
    "judge_log",
    "known_limits",
    "limit_at",
    "measured_busbw",
    "measured_by_others",
    "middle",
    "network_cards",
    "network_limit",
    "rank_range",
    "references",
    "spread",
    "through_cards",
    "worst",
]
