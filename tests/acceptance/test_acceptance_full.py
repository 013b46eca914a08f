"""`acceptance.scenario: full`: the network, then the GPU suite, then storage, in one report and with one verdict.

The suite's programs of GPUs are stand-ins here: they write a recorded report as that of their node. The storage test is
the real one, of few bytes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acceptance_runs import NODES, Finished, make_scenario
from suite_reports import STORAGE, recorded

from acceptance.errors import InputError
from acceptance.runner.follow import JobOutcome
from acceptance.runner.script import common_values, render
from acceptance.runner.suite import suite_jobs, why_ended
from acceptance.scenario import check_scenario
from gpusuite import storage_tests

Accept = Callable[..., Finished]
PROGRAM = """\
import json, os, sys
from pathlib import Path
node, words = os.environ["SLURMD_NODENAME"], sys.argv[1:]
report = json.loads(Path(__file__).with_name("{file}.json").read_text())
folder = Path(words[words.index("--report-dir") + 1].replace("%N", node))
folder.mkdir(parents=True)
{more}
(folder / "{file}.json").write_text(json.dumps({{**report, "node": node}}))
print("[RESULT]", report["result"])
"""
NO_TORCH = 'sys.exit("gpusuite: /usr/bin/python3 has no torch. Hint: run in an image with torch and NumPy")\n'
CHECKED = 'assert Path(words[words.index("--directory") + 1]).is_dir()\n'
STORAGE_FIGURES = [
    "checkpoint write",
    "checkpoint read",
    *(["fio randread 4 KiB", "fio randwrite 4 KiB"] if shutil.which("fio") else []),
]
REAL_STORAGE = """\
import runpy, sys
sys.argv += ["--size", "8M", "--threads", "1", "--files", "10", "--fio-seconds", "1"]
runpy.run_path({program!r}, run_name="__main__")
"""


def programs(folder: Path, *, torch: bool = True, storage: dict[str, Any] | None = None) -> Path:
    """The suite's three programs in a folder; `storage` is the report of a stand-in of the storage test."""
    folder.mkdir()
    gpus = recorded()
    for name, file, report, more in (
        ("run_all_tests", "gpu_tests_result", gpus, "" if torch else "import sys\n" + NO_TORCH),
        ("storage_tests", "storage_result", storage, CHECKED),
    ):
        (folder / f"{file}.json").write_text(json.dumps(report))
        (folder / f"{name}.py").write_text(PROGRAM.format(file=file, more=more))
    if storage is None:
        real = str(Path(storage_tests.__file__).resolve())
        (folder / "storage_tests.py").write_text(REAL_STORAGE.format(program=real))
    (folder / "fleet.py").write_text('import sys\nprint("fleet", *sys.argv[1:])\n')
    return folder


def full(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    places = {"programs": str(tmp_path / "gpusuite"), "storage_directory": str(tmp_path)}
    return make_scenario(suite={"timeout_s": 60, "storage_timeout_s": 60, **places, **changes})


def last_line(finished: Finished) -> str:
    return finished.out.rstrip().splitlines()[-1]


@pytest.mark.hosts
def test_network_suite_and_storage_are_one_report(accept: Accept, tmp_path: Path) -> None:
    programs(tmp_path / "gpusuite")
    done = accept(full(tmp_path))
    assert done.code == 0, done.out + done.err
    assert done.report["verdict"] == "accepted"
    assert done.report["tests"][0]["rows"]
    suite = done.report["gpus"]
    nodes = [f"gpu-{number}" for number in range(1, NODES + 1)]
    assert suite["nodes"] == nodes
    measured = {(figure["node"], figure["what"]) for figure in suite["storage"] if figure["value"] > 0}
    assert measured >= {(node, what) for node in nodes for what in STORAGE_FIGURES}
    assert {gpu["node"] for gpu in suite["gpus"]} == set(nodes)
    began = [done.out.index(f"{name}: job ") for name in ("all_reduce", "gpu-suite", "storage")]
    assert began == sorted(began)
    assert "--expect-nodes 4" in (done.directory / "gpu-suite.out").read_text()
    assert not list(tmp_path.glob("acceptance-storage.*"))
    whats = [command["what"] for command in done.report["commands"]]
    assert whats[:4] == ["the whole run", "all_reduce", "gpu-suite", "storage"]


@pytest.mark.hosts
def test_what_could_not_be_measured_is_a_failure_with_its_reason(accept: Accept, tmp_path: Path) -> None:
    failing = {**STORAGE, "failures": ["gpu-7 /fsx: checkpoint read back with wrong data"], "result": "FAILURE"}
    programs(tmp_path / "gpusuite", torch=False, storage=failing)
    done = accept(full(tmp_path))
    assert done.code == 1
    assert done.report["verdict"] == "not accepted"
    assert done.report["tests"][0]["verdict"] == "pass"  # the network itself is good
    failures = [failure["what"] for failure in done.report["failures"]]
    reason = "left no result: /usr/bin/python3 has no torch. Hint: run in an image with torch and NumPy (the job failed with exit"
    assert sum(f"GPU suite: {reason}" in what for what in failures) == NODES
    assert any("wrong data" in what for what in failures)
    assert last_line(done).startswith("[RESULT] FAILURE: ")


# ---- without Slurm ----


def test_the_scripts_are_sound_and_name_what_they_run(tmp_path: Path) -> None:
    scenario = check_scenario(full(tmp_path) | {"gpu_image": "/fsx/containers/a.sqsh"}, "test")
    suite, storage = suite_jobs(scenario)
    texts = {}
    for job in (suite, storage):
        values = {**common_values(scenario, [], "", tmp_path), **job.values(scenario, tmp_path, "name")}
        texts[job.name] = render("suite.sbatch.j2", values)
        subprocess.run(["bash", "-n"], input=texts[job.name], text=True, check=True)
    assert "--container-image=/fsx/containers/a.sqsh" in texts["gpu-suite"]
    assert "#SBATCH --ntasks-per-node=1\n" in texts["gpu-suite"]
    assert f"--expect-gpus {scenario.gpus_per_node} " in texts["gpu-suite"]
    assert "--quick" in texts["storage"]
    assert "container" not in texts["storage"]
    assert str(tmp_path / "gpus/storage") in texts["storage"]
    assert suite_jobs(check_scenario(make_scenario(), "test")) == []


@pytest.mark.parametrize(
    ("kind", "log", "reason"),
    [
        ("done", "acceptance: this is not asked for", None),
        (
            "failed",
            "srun: error\nacceptance: /fsx/a.sqsh is not imported. Hint: accept again\n",
            "/fsx/a.sqsh is not imported. Hint: accept again (why)",
        ),
        ("failed", "0: gpusuite: /bin/python3 has no torch. Hint: x\n[RESULT] y", "/bin/python3 has no torch. Hint: x (why)"),
        ("failed", "[RESULT] FAILURE: [gpu-1: CUDA does not start]\n", "[gpu-1: CUDA does not start] (why)"),
        ("failed", "bash: python3: command not found\n", "why"),
        ("hang", "[RESULT] FAILURE: [gpu-1: slow]\n", "why"),
    ],
)  # fmt: skip
def test_why_a_node_left_no_result(kind: str, log: str, reason: str | None, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(log)
    assert why_ended(JobOutcome(1, "X", 1, [], 1.0, kind, "why"), tmp_path / "log") == reason


def test_without_a_job_or_a_log() -> None:
    assert why_ended(None, Path("/none")) == "its job was not run"
    assert why_ended(JobOutcome(1, "X", 1, [], 1.0, "failed", "why"), Path("/none")) == "why"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"timeout_s": 0}, "suite.timeout_s = 0: must be a whole number from 1 to 86400"),
        ({"quick": "yes"}, 'suite.quick = "yes": must be true or false'),
        ({"storage_directory": "fsx"}, 'suite.storage_directory = "fsx": must be an absolute directory'),
        ({"storage": "/fsx"}, 'suite.storage = "/fsx": is not a key of this file. Hint: remove it'),
    ],
)  # fmt: skip
def test_a_wrong_suite_is_a_fault(change: dict[str, Any], fault: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_scenario(full(tmp_path, **change), "test")
    assert fault in str(caught.value)
