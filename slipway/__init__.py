"""Slipway: one settings file becomes a checked, rehearsed, deployed and accepted GPU training cluster on AWS."""

from __future__ import annotations

__version__ = "0.1.0"
