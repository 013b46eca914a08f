"""Submitting a job where Slurm refuses it: the message has the cause and the repair."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceptance.errors import ExternalError
from acceptance.runner.slurm import Slurm

# What sbatch of Slurm 22.05 to 25.11 prints (slurm_errno.c), and what the user reads.
REFUSALS = [
    (
        "sbatch: error: Batch job submission failed: Required partition not available (inactive or drain)",
        ["Required partition not available: the partition takes no jobs", "protected mode", "slipway status",
         "pcluster update-compute-fleet --cluster-name NAME --status START_REQUESTED"],
    ),
    (
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        ["Unable to contact slurm controller", "Hint: try `scontrol ping` and `sinfo`"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("said", "words"), REFUSALS, ids=["inactive", "no controller"])
def test_refused_job_is_reported_with_its_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, words: list[str]
) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ExternalError) as caught:
        Slurm().submit(tmp_path / "job.sbatch", tmp_path, tmp_path / "out")
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert ("scontrol ping" in str(caught.value)) == ("scontrol ping" in " ".join(words))
