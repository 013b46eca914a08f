"""Finding the node, link or switch to blame: a pure planner, and the measuring of what it asks for."""

from __future__ import annotations

from acceptance.locate.evidence import Evidence, evidence_of
from acceptance.locate.model import (
    Fleet,
    FullScale,
    GroupVerdict,
    Launch,
    LinkVerdict,
    NodeVerdict,
    Result,
    Round,
    Rules,
    Verdict,
)
from acceptance.locate.planner import decide
from acceptance.locate.round_builder import ring
from acceptance.locate.verdict import verdict_of

__all__ = [
    "Evidence",
    "Fleet",
    "FullScale",
    "GroupVerdict",
    "Launch",
    "LinkVerdict",
    "NodeVerdict",
    "Result",
    "Round",
    "Rules",
    "Verdict",
    "decide",
    "evidence_of",
    "ring",
    "verdict_of",
]
