"""How CloudWatch reads space-delimited log lines and evaluates an alarm, for the tests of the remote-write alarm.

Sources: CloudWatch Logs user guide, "Filter pattern syntax" (space-delimited events: a field is a word, or what is in
brackets or double quotes; a pattern without `...` has as many fields as the line; `field="text"` compares the whole
field); CloudWatch user guide, "Evaluating an alarm" (M of the last N periods; missing data as TreatMissingData says).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

WORD = re.compile(r'\[([^\]]*)\]|"([^"]*)"|(\S+)')
FIELD = re.compile(r'(\w+)(?:="([^"]*)")?')


def fields(pattern: str, line: str) -> dict[str, str] | None:
    """Return the fields of a line that matches a space-delimited pattern; None for a line that does not."""
    wanted = [FIELD.fullmatch(part.strip()) for part in pattern.strip("[]").split(",")]
    assert all(wanted), f"{pattern}: not a pattern that is understood here"
    words = [next(filter(None, match.groups()), "") for match in WORD.finditer(line)]
    if len(words) != len(wanted):
        return None
    pairs = [(match[1], match[2], word) for match, word in zip(wanted, words, strict=True) if match]
    return None if any(text not in (None, word) for _, text, word in pairs) else {name: word for name, _, word in pairs}


def metric_value(pattern: str, value: str, line: str) -> float | None:
    """Return what a metric filter publishes for a line; None for nothing: no match, or a value that is not a number."""
    found = fields(pattern, line)
    try:
        return float(found[value.removeprefix("$")]) if found else None
    except ValueError:
        return None


def alarm_states(alarm: Mapping[str, Any], points: Sequence[tuple[float, float]], end_s: float) -> list[bool]:
    """Return for each period whether the alarm (Maximum, GreaterThanThreshold, notBreaching) is in ALARM at its end."""
    assert (alarm["Statistic"], alarm["ComparisonOperator"]) == ("Maximum", "GreaterThanThreshold")
    assert alarm["TreatMissingData"] == "notBreaching"
    period, last = alarm["Period"], alarm["EvaluationPeriods"]
    breaching = [
        any(value > alarm["Threshold"] for time, value in points if start <= time < start + period)
        for start in range(0, int(end_s), period)
    ]
    needed = alarm.get("DatapointsToAlarm", last)
    return [sum(breaching[max(0, end - last) : end]) >= needed for end in range(1, len(breaching) + 1)]
