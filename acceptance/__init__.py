"""Acceptance: measure a GPU cluster through Slurm, judge the measurement, name the node that is to blame."""

from __future__ import annotations

__version__ = "0.1.0"
