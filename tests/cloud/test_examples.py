"""`slipway rehearse FILE --cloud-only` of every example, and of files with every part: without hosts and without root.

`clusters/rehearsal.yaml` is not among them: tests/rehearsal/test_road.py rehearses it with hosts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(set((REPOSITORY / "clusters").glob("*.yaml")) - {REPOSITORY / "clusters/rehearsal.yaml"})
EVERY_PART = [REPOSITORY / "tests/stacks/site-parts.yaml", REPOSITORY / "tests/rehearsal/every-kind.yaml"]
LIMIT_S = 300

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("file", [*EXAMPLES, *EVERY_PART], ids=lambda file: file.stem)
def test_every_example_deploys_to_the_embedded_aws(file: Path, tmp_path: Path) -> None:
    """Check, synthesis, every stack, ParallelCluster's validators; nothing is left in the temporary folder."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [str(Path(sys.executable).parent / "slipway"), "rehearse", str(file), "--cloud-only", "--json"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "out")],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "[RESULT] SUCCESS" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert list(temporary.iterdir()) == []
