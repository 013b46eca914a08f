"""Every example, and files with every part, rehearsed without hosts and without root.

One file goes the whole way of `slipway rehearse FILE --cloud-only`. For the others the engine runs in this process, and
the CDK CLI deploys the assembly that was synthesised here. `clusters/rehearsal.yaml` is not among them:
tests/rehearsal/test_road.py rehearses it with hosts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from rehearsal.engine import cdk
from rehearsal.engine.run import Engine
from rehearsal.engine.specification import Specification
from slipway.settings import load_settings
from tests.stacks.assembly import synthesised

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(set((REPOSITORY / "clusters").glob("*.yaml")) - {REPOSITORY / "clusters/rehearsal.yaml"})
SITE_PARTS = REPOSITORY / "tests/stacks/site-parts.yaml"
EVERY_KIND = REPOSITORY / "tests/rehearsal/every-kind.yaml"
LIMIT_S = 300

pytestmark = pytest.mark.slow


def test_the_command_deploys_to_the_embedded_aws(tmp_path: Path) -> None:
    """Check, synthesis, every stack, ParallelCluster's validators; nothing is left in the temporary folder."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [str(Path(sys.executable).parent / "slipway"), "rehearse", str(SITE_PARTS), "--cloud-only", "--json"]
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


@pytest.mark.parametrize("file", [*EXAMPLES, EVERY_KIND], ids=lambda file: file.stem)
def test_every_example_deploys_to_the_embedded_aws(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, follow = load_settings(file), cdk._follow

    def deploy(
        command: list[str], environment: dict[str, str], take: Callable[[str], None]
    ) -> tuple[int | None, list[str]]:
        assembly = Path(command[command.index("--output") + 1])
        synthesised(settings, assembly)
        return follow([*command, "--app", str(assembly)], {**environment, "HOME": str(tmp_path)}, take)

    monkeypatch.setattr(cdk, "_follow", deploy)
    (tmp_path / "work").mkdir()
    spec = Specification(
        settings=file,
        original=file,
        cloud_only=True,
        breaks=(),
        port=0,
        max_hosts=0,
        output=tmp_path / "out",
        as_json=True,
        work=tmp_path / "work",
        began=time.monotonic(),
    )
    code = Engine(spec, settings, (), Console(file=sys.stderr)).run()
    out, err = capsys.readouterr()
    assert code == 0, out[-3000:] + err[-3000:]
    assert json.loads(out)["accepted"]
    assert "[RESULT] SUCCESS" in err
    assert "Traceback" not in out + err
