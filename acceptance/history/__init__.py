"""What earlier runs measured: kept in one SQLite file, read for baselines, trends and comparisons."""

from __future__ import annotations

from acceptance.history.command import add_history_command
from acceptance.history.keep import HISTORY_FILE, known_baselines, remember, send_history, with_baselines
from acceptance.history.store import HistoryFault

__all__ = [
    "HISTORY_FILE",
    "HistoryFault",
    "add_history_command",
    "known_baselines",
    "remember",
    "send_history",
    "with_baselines",
]
