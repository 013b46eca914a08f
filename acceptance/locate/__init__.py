"""Finding the node to blame."""

from __future__ import annotations

from acceptance.locate.planner import NodeVerdict, PairResult, Rules, next_round, schedule, threshold, verdicts

__all__ = ["NodeVerdict", "PairResult", "Rules", "next_round", "schedule", "threshold", "verdicts"]
