"""What earlier runs measured: kept in one SQLite file, read for baselines, trends and comparisons."""

from __future__ import annotations

from acceptance.history.command import add_history_command
from acceptance.history.recording import (
    HISTORY_FILE,
    keep_gpu_baselines,
    known_baselines,
    remember,
    send_history,
    with_baselines,
)
from acceptance.history.store import HistoryError

__all__ = [
    "HISTORY_FILE",
    "HistoryError",
    "add_history_command",
    "keep_gpu_baselines",
    "known_baselines",
    "remember",
    "send_history",
    "with_baselines",
]
