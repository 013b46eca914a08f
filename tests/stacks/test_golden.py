"""What CloudFormation will get, as readable files. ``SLIPWAY_UPDATE_GOLDEN=1`` rewrites them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slipway.settings import load_settings
from tests.stacks.assembly import EXAMPLES, Assemblies, synthesised

GOLDEN = Path(__file__).parent / "golden"
STACKS = ("network", "storage", "observability", "cluster", "acceptance")


@pytest.mark.parametrize("example", ["rehearsal", "p5-capacity-block", "site-parts"])
@pytest.mark.parametrize("stack", STACKS)
def test_golden(assemblies: Assemblies, example: str, stack: str) -> None:
    found = assemblies[example].readable(stack)
    golden = GOLDEN / example / f"{stack}.yaml"
    if os.environ.get("SLIPWAY_UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(found, encoding="utf-8")
    assert golden.is_file(), f"{golden} is missing. Hint: SLIPWAY_UPDATE_GOLDEN=1 pytest tests/stacks"
    assert found == golden.read_text(encoding="utf-8"), "if meant: SLIPWAY_UPDATE_GOLDEN=1 pytest tests/stacks"


def test_same_settings_same_assembly(assemblies: Assemblies, tmp_path: Path) -> None:
    """Unchanged sources are unchanged assets: a second deployment does nothing."""
    assert synthesised(load_settings(EXAMPLES["every-part"]), tmp_path).templates == assemblies["every-part"].templates
