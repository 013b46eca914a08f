"""What the wheel has besides the files of the repository: the plot library of the acceptance report.

npm puts the library into node_modules, which a fresh clone does not have: a wheel built there has no plots, and Slipway
says so when it needs them. `make wheel` runs npm first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLOTLY = "node_modules/plotly.js-basic-dist-min/plotly-basic.min.js"


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling for each wheel; an editable install has the files where they are."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the plot library to the files of the wheel."""
        if version != "editable" and (Path(self.root) / PLOTLY).is_file():
            build_data["force_include"][PLOTLY] = f"slipway/files/{PLOTLY}"
