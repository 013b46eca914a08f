"""The recipe "A step of a node" of CONTRIBUTING.md, followed in a copy of the node scripts."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from slipway.node_steps import KINDS, seconds, steps_of
from slipway.nodes_page import nodes_page

from .conftest import ROOT

RECIPE = (
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("### A step of a node\n")[2].partition("\n### ")[0]
)
STEP = textwrap.dedent(RECIPE.partition("```bash\n")[2].partition("   ```")[0])
NAME = RECIPE.partition("`nodes/steps/")[2].partition(".sh`")[0]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in ("nodes", "headnode", "compute", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / f"nodes/steps/{NAME}.sh"
    path.write_text(STEP, encoding="utf-8")
    path.chmod(0o755)
    return tmp_path


def run_order(copy: Path, kind: str) -> list[str]:
    script = f"source {copy}/nodes/lib/all.sh; steps::of {kind}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_runs_in_the_order_of_its_number_on_both_kinds(copy: Path, kind: str) -> None:
    order = run_order(copy, kind)
    assert order == [str(path) for path, _ in steps_of(kind, copy)]
    names = [Path(path).stem for path in order]
    assert NAME in names
    assert names == sorted(names)
    assert [name for name in names if name != NAME] == [path.stem for path, _ in steps_of(kind)]
    assert seconds(kind, copy) == seconds(kind) + 30


def test_a_step_runs_only_on_the_kinds_that_it_names(copy: Path) -> None:
    path = copy / f"nodes/steps/{NAME}.sh"
    path.write_text(STEP.replace("headnode compute", "compute"), encoding="utf-8")
    assert str(path) in run_order(copy, "compute")
    assert str(path) not in run_order(copy, "headnode")


def test_a_shared_step_without_its_kinds_stops_the_setup(copy: Path) -> None:
    path = copy / f"nodes/steps/{NAME}.sh"
    path.write_text(STEP.replace("# runs on: headnode compute\n", ""), encoding="utf-8")
    script = f"source {copy}/nodes/lib/all.sh; steps::of compute"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert f"{path}: its head comment has no line '# runs on: ...'" in done.stderr


def test_no_number_is_used_twice_on_a_kind_of_node() -> None:
    for kind in KINDS:
        numbers = [path.name[:2] for path, _ in steps_of(kind)]
        assert len(numbers) == len(set(numbers))


def test_the_step_has_its_row_on_the_page_of_both_kinds(copy: Path) -> None:
    assert nodes_page(copy).count(f"| `{NAME}` | Writes the message of the day. |") == 2


@pytest.mark.hosts
def test_the_step_works_and_changes_nothing_when_it_runs_again(copy: Path, tmp_path: Path) -> None:
    path, motd = copy / f"nodes/steps/{NAME}.sh", tmp_path / "motd"
    path.write_text(STEP.replace("/etc/motd", str(motd)), encoding="utf-8")
    outputs = [subprocess.run([str(path)], capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert outputs == [f"slipway: wrote {motd}\n", ""]
    assert motd.read_text(encoding="utf-8").startswith("This node is part of")
