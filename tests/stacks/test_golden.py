"""What CloudFormation will get, as readable files. ``SLIPWAY_UPDATE_GOLDEN=1`` rewrites them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.stacks.assembly import EXAMPLES, Assembly, synthesise

GOLDEN = Path(__file__).parent / "golden"
STACKS = ("network", "storage", "observability", "cluster", "acceptance")


@pytest.mark.parametrize("example", ["rehearsal", "p5-capacity-block", "site-parts"])
@pytest.mark.parametrize("stack", STACKS)
def test_golden(assemblies: dict[str, Assembly], example: str, stack: str) -> None:
    if example not in assemblies:
        pytest.skip(f"clusters/{example}.yaml is not there")
    found = assemblies[example].readable(stack)
    golden = GOLDEN / example / f"{stack}.yaml"
    if os.environ.get("SLIPWAY_UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(found, encoding="utf-8")
    assert golden.is_file(), f"{golden} is missing. Hint: SLIPWAY_UPDATE_GOLDEN=1 pytest tests/stacks"
    assert found == golden.read_text(encoding="utf-8"), "if meant: SLIPWAY_UPDATE_GOLDEN=1 pytest tests/stacks"


def test_same_settings_same_assembly(assemblies: dict[str, Assembly], tmp_path: Path) -> None:
    """Unchanged sources are unchanged assets: a second deployment does nothing."""
    assert synthesise(EXAMPLES["every-part"], tmp_path).returncode == 0
    assert Assembly(tmp_path).templates == assemblies["every-part"].templates
