"""A round's exit codes, as the job that holds the nodes writes them (acceptance/runner/allocation.py)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acceptance.runner import allocation


def test_a_round_that_ends_between_two_looks_has_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the script wrote all codes and its end after the runner had looked for codes."""
    status, read = tmp_path / "locate-1.status", allocation.exit_codes

    def read_then_end(path: Path) -> dict[int, int]:
        found = read(path)
        path.write_text("part=0 exit=0\npart=1 exit=1\nended=0\n")
        return found

    monkeypatch.setattr(allocation, "exit_codes", read_then_end)
    follower: Any = SimpleNamespace(stop=SimpleNamespace(sleep=lambda _: None))
    held = allocation.Allocation(tmp_path, "job", follower)
    assert held.run(tmp_path / "locate-1.sbatch", status, parts=2, timeout_s=5) == {0: 0, 1: 1}
    assert (tmp_path / allocation.ROUNDS).read_text() == "locate-1.sbatch\n"
