"""Scenarios: the file that says what is measured, and the limits."""

from __future__ import annotations

from acceptance.scenario.load import (
    check_scenario,
    load_own,
    load_scenario,
    read_scenario,
    read_values,
    search_values,
)
from acceptance.scenario.model import (
    COLLECTIVES,
    Baseline,
    Container,
    Limit,
    LocateSettings,
    NetworkWanted,
    Scenario,
    ScenarioFile,
    Test,
)

__all__ = [
    "COLLECTIVES",
    "Baseline",
    "Container",
    "Limit",
    "LocateSettings",
    "NetworkWanted",
    "Scenario",
    "ScenarioFile",
    "Test",
    "check_scenario",
    "load_own",
    "load_scenario",
    "read_scenario",
    "read_values",
    "search_values",
]
