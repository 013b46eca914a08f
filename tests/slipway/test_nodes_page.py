"""docs/nodes.md: from the heads of the scripts; a head that lacks a line is a fault with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipway.node_steps import KINDS, seconds, steps_of
from slipway.nodes_page import HeadFault, nodes_page
from slipway.places import FILES

STEP = """#!/bin/bash
# Starts the thing (port 1),
# and one more.
# needs: systemd
# permission: root
# how often: once a node; safe to run again,
#   as often as you like | really
# on failure: report
# timeout: 60 s
# takes: about 0.4 s
set -euo pipefail
file::put slipway-thing.service
"""
SCRIPT = """#!/bin/bash
# user.sh [LIST]: shows the thing.
#
#   LIST  what to show
#
# needs:       nothing
# permission:  any user
# how often:   at any time
# on failure:  exit 1
# where:       logs/thing.log
set -euo pipefail
"""
UNIT = (
    "[Unit]\nDescription=The thing of {{ PLACE }}\n\n[Service]\nType=oneshot\nExecStart=/bin/true\nTimeoutStartSec=20\n"
)
TIMER = "[Unit]\nDescription=The thing again\n\n[Timer]\nOnUnitActiveSec=15\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one step of each kind, one script of users, a unit and its timer."""
    files = {
        "headnode/steps/10-thing.sh": STEP,
        "compute/steps/10-thing.sh": STEP.replace("slipway-thing.service", "slipway-other.service"),
        "headnode/user/user.sh": SCRIPT,
        "headnode/user/sourced.sh": "# no program\n",
        "nodes/metrics/units/slipway-thing.service": UNIT,
        "templates/slipway-thing.timer.j2": TIMER,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "headnode/user/user.sh").chmod(0o755)
    return tmp_path


def test_a_row_a_step_script_and_unit(tree: Path) -> None:
    page = nodes_page(tree)
    row = "| `10-thing` | Starts the thing (port 1), and one more. | systemd | root | once a node; safe to run again, as often as"
    assert f"{row} you like \\| really | 60 s | 0.4 s | `10-thing.log` | goes on, reported |\n" in page
    assert "| `user.sh [LIST]` | Shows the thing. | nothing | any user | at any time | exit 1 |\n" in page
    assert "| `slipway-thing.service` | The thing of `PLACE` | once, at most 20 s | head node |\n" in page
    assert "| `slipway-thing.timer` | The thing again | every 15 s | head node |\n" in page
    assert page.index("## Head node") < page.index("## Compute nodes") < page.index("## Scripts that users run")


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        (
            "headnode/steps/10-thing.sh",
            "# needs: systemd\n",
            "",
            "headnode/steps/10-thing.sh:9: its head has no line '# needs: ...'",
        ),
        (
            "compute/steps/10-thing.sh",
            "# takes: about 0.4 s\n",
            "",
            "compute/steps/10-thing.sh:9: its head has no line '# takes: about",
        ),
        (
            "headnode/steps/10-thing.sh",
            "60 s",
            "1 min",
            "headnode/steps/10-thing.sh: timeout = '1 min': not <number> s",
        ),
        (
            "headnode/steps/10-thing.sh",
            "failure: report",
            "failure: ignore",
            "on failure = 'ignore': not stop or report",
        ),
        (
            "headnode/steps/10-thing.sh",
            "and one more.",
            "and one",
            "headnode/steps/10-thing.sh:2: 'Starts the thing (port 1), and one'",
        ),
        (
            "headnode/user/user.sh",
            "# permission:  any user\n",
            "",
            "headnode/user/user.sh:9: its head has no line '# permission:",
        ),
        (
            "nodes/metrics/units/slipway-thing.service",
            "Description=",
            "Note=",
            "nodes/metrics/units/slipway-thing.service:1: no Description=",
        ),
        (
            "headnode/steps/10-thing.sh",
            "slipway-thing",
            "slipway-none",
            "nodes/metrics/units/slipway-thing.service:1: no step names",
        ),
    ],
)
def test_a_head_that_lacks_something_is_named(tree: Path, file: str, old: str, new: str, told: str) -> None:
    path = tree / file
    assert old in path.read_text(encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(HeadFault) as fault:
        nodes_page(tree)
    assert any(line.startswith(told) or told in line for line in str(fault.value).splitlines())
    assert "Hint: " in str(fault.value)


def test_all_faults_at_once(tree: Path) -> None:
    for kind in ("headnode", "compute"):
        (tree / kind / "steps/10-thing.sh").write_text("#!/bin/bash\nset -e\n", encoding="utf-8")
    with pytest.raises(HeadFault) as fault:
        nodes_page(tree)
    assert len(str(fault.value).splitlines()) == 2 * 7 + 2  # sentence and six keys each; the unit and its timer


def test_every_step_of_the_repository_has_its_row() -> None:
    page = nodes_page(FILES)
    for kind in KINDS:
        found_steps = list(steps_of(kind))
        assert found_steps, kind
        for step, found in found_steps:
            assert f"| `{step.stem}` | {found.does}" in page


SHARED = STEP.replace("# permission", "# runs on: headnode compute\n# permission")


def test_a_step_of_both_kinds_runs_in_the_order_of_its_number_on_the_kinds_that_it_names(tree: Path) -> None:
    (tree / "nodes/steps").mkdir()
    (tree / "nodes/steps/05-first.sh").write_text(SHARED, encoding="utf-8")
    (tree / "nodes/steps/50-last.sh").write_text(SHARED.replace("headnode compute", "compute"), encoding="utf-8")
    assert [path.stem for path, _ in steps_of("headnode", tree)] == ["05-first", "10-thing"]
    assert [path.stem for path, _ in steps_of("compute", tree)] == ["05-first", "10-thing", "50-last"]
    assert seconds("compute", tree) == 3 * 60
    page = nodes_page(tree)
    assert page.count("| `05-first` |") == 2
    assert page.count("| `50-last` |") == 1


@pytest.mark.parametrize("line", ["", "# runs on: login\n", "# runs on:\n"])
def test_a_shared_step_names_the_kinds_that_it_runs_on(tree: Path, line: str) -> None:
    (tree / "nodes/steps").mkdir()
    step = SHARED.replace("# runs on: headnode compute\n", line)
    (tree / "nodes/steps/05-first.sh").write_text(step, encoding="utf-8")
    with pytest.raises(HeadFault, match=r"nodes/steps/05-first\.sh.*runs on"):
        nodes_page(tree)
