"""Scenario files: every fault at once, with place, value, rule and repair; and the scripts made from a good one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from acceptance_runs import make_scenario

from acceptance.cli import main
from acceptance.errors import InputError
from acceptance.runner.gpus import image_values
from acceptance.runner.script import common_values, render, slurm_minutes
from acceptance.runner.slurm import Node, _node
from acceptance.scenario import load_scenario, read_scenario
from acceptance.suite import PROGRAMS

BRIEF = {
    "schema": 1,
    "cluster": "ml",
    "partition": "train",
    "instance_type": "p5.48xlarge",
    "nodes": 4,
    "gpus_per_node": 8,
    "network": {"provider": "efa", "nics": 32},
    "tests": make_scenario()["tests"],
    "limits": make_scenario()["limits"],
}


def faults_of(value: Any) -> list[str]:
    faults: list[str] = []
    read_scenario(value, faults)
    return faults


def test_the_least_file_is_enough() -> None:
    assert faults_of(BRIEF) == []


def changed(path: str, value: Any) -> dict[str, Any]:
    """A copy of the scenario with one value replaced; `path` like tests.0.timeout_s."""
    scenario: Any = json.loads(json.dumps(make_scenario()))
    at = scenario
    *parents, last = path.split(".")
    for key in parents:
        at = at[int(key)] if isinstance(at, list) else at[key]
    at[last] = value
    return dict(scenario)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schema", 2, "schema = 2: must be 1"),
        ("partition", "a b;rm", 'partition = "a b;rm": must be 1 to 64 letters'),
        ("partition", "$(id)", "partition"),
        ("nodes", True, "nodes = true"),
        ("nodes", "4", 'nodes = "4"'),
        ("partitoin", "x", 'partitoin = "x": is not a key of this file. Hint: did you mean partition?'),
        ("tests.0.collective", "all_reduec", "did you mean all_reduce?"),
        ("tests.0.timeout_s", 0, "tests[0].timeout_s = 0"),
        ("tests.0.max_bytes", 1, "tests[0].max_bytes = 1: is below min_bytes"),
        ("tests.0.name", "../x", "tests[0].name"),
        ("tests", [], "tests = []: must hold at least one test"),
        ("tests", {}, "tests = {}: must be a list"),
        ("limits.0.size_bytes", 3, "limits[0].size_bytes = 3: is not a size that the all_reduce test visits"),
        ("limits.0.warn_below_gb_per_s", 1, "limits[0].warn_below_gb_per_s = 1.0: is below fail_below"),
        ("limits.0.date", "soon", "limits[0].date"),
        ("network", {"provider": "EFA"}, "network.provider"),
        ("network", {"provider": "efa", "nic": 3}, "did you mean nics?"),
        ("environment", {"A B": "x"}, "environment.A B"),
        ("environment", {"A": "x\ny"}, "environment.A"),
        ("nccl_tests_paths", ["/opt/$(id)"], "nccl_tests_paths"),
        ("locate", {"factor": 7}, "locate.factor = 7"),
        ("mpi", "pmi9", "mpi"),
        ("file_system", {"mount": "fsx", "client_gb_per_s": 1.6, "source": "x"}, "file_system.mount"),
        ("file_system", {"mount": "/fsx", "client_gb_per_s": 0, "source": "x"}, "file_system.client_gb_per_s = 0"),
        (
            "file_system",
            {"mount": "/fsx", "client_gb_per_s": 1, "source": "x", "write": 1},
            "is not a key of this file",
        ),
    ],
)
def test_each_fault_names_its_place(path: str, value: Any, words: str) -> None:
    faults = faults_of(changed(path, value))
    assert len(faults) == 1, faults
    assert words in faults[0]
    assert "Hint: " in faults[0]


def test_all_faults_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = changed("nodes", 0)
    del scenario["cluster"]
    scenario["tests"][0]["timeout"] = 5
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(scenario))
    code = main(["run", "--scenario", str(path), "--output", str(tmp_path / "runs"), "--upload", "ftp://x"])
    said = capsys.readouterr()
    assert code == 2
    assert len(said.err.splitlines()) == 4
    assert said.out.startswith("[RESULT] FAILURE: 4 faults in the input, nothing was run")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"schema": 1', "\x00", '"x"'])
def test_what_is_no_scenario_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    assert str(path) in caught.value.faults[0]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_scenario(tmp_path / "none.json")


def sweep_script(**changes: Any) -> str:
    faults: list[str] = []
    scenario = read_scenario(make_scenario(gpu_image="/fsx/containers/x.sqsh", **changes), faults)
    assert faults == []
    nodes = [Node("gpu-1", "IDLE", None, None, "gpu:h100:8")]
    values = {
        **common_values(scenario, nodes, "all_reduce", Path("/fsx/results/run")),
        **{"title": "t", "job_name": "j", "nodes": 4, "nodelist": "", "minutes": 6, "timeout_s": 300},
        **{"arguments": "-b 8", "status_file": "x.status"},
        **image_values(scenario, scenario.tests[0], Path("/fsx/results/run")),
    }
    return render("sweep.sbatch.j2", values)


def test_script_quotes_values_and_asks_for_gpus(tmp_path: Path) -> None:
    script = sweep_script(environment={"NCCL_ALGO": "Ring; $(touch /tmp/x) 'y'"})
    assert "#SBATCH --gres=gpu:2\n" in script
    assert "export NCCL_DEBUG=INFO\n" in script
    path = tmp_path / "x.sbatch"
    path.write_text(script)
    subprocess.run(["bash", "-n", str(path)], check=True, timeout=60)
    line = next(line for line in script.splitlines() if line.startswith("export NCCL_ALGO"))
    argv = ["bash", "-c", f'{line}; printf %s "$NCCL_ALGO"']
    shown = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout == "Ring; $(touch /tmp/x) 'y'"


SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.mark.skipif(SHELLCHECK is None, reason="needs shellcheck")
def test_script_passes_shellcheck(tmp_path: Path) -> None:
    path = tmp_path / "x.sbatch"
    path.write_text(sweep_script())
    subprocess.run([str(SHELLCHECK), "--exclude=SC1091", str(path)], check=True, timeout=30)


def test_slurm_limit_comes_after_the_scripts_own() -> None:
    for seconds in (1, 59, 60, 61, 300):
        assert slurm_minutes(seconds) * 60 >= seconds + 60


@pytest.mark.parametrize(
    ("state", "trouble"),
    [
        ("IDLE", None),
        ("MIXED", None),
        ("ALLOCATED", None),
        ("IDLE+CLOUD+POWERED_DOWN", None),
        ("IDLE+DRAIN", "drained"),
        ("DOWN*+NOT_RESPONDING", "down and not responding"),
        ("IDLE*", "not responding"),
        ("IDLE+RESERVED", "held by a reservation"),
        ("IDLE+CLOUD+MAINTENANCE", "in maintenance"),
    ],
)
@pytest.mark.parametrize(
    "after",
    [
        "",
        " ",
        " Comment=slipway-drains=1764400000",
        " Extra={} InstanceId=i-0123456789abcdef0 InstanceType=p5.48xlarge ReservationName=block-end",  # 25.05 and newer
        " InstanceType=p5.48xlarge",
    ],
)
def test_node_states(state: str, trouble: str | None, after: str) -> None:
    line = f"NodeName=gpu-1 Arch=x86_64 State={state} Gres=(null) Partitions=train,all Reason=bad fan [root@2026-11-27]"
    node = _node(line + after)
    assert (node.trouble, node.reason, node.gres) == (trouble, "bad fan", "")


def test_the_budget_of_a_search_bounds_each_launch() -> None:
    faults: list[str] = []
    scenario = read_scenario(make_scenario(locate={"budget_s": 420}), faults)
    assert (scenario.locate.pair_timeout_s, scenario.locate.max_rounds, faults) == (50, 6, [])
    assert read_scenario(make_scenario(locate={"budget_s": 60}), faults).locate.pair_timeout_s == 1
    read_scenario(make_scenario(locate={"budget_s": 0}), faults)
    assert faults == ["locate.budget_s = 0: must be a whole number from 1 to 86400. Hint: correct the number"]


def test_each_command_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    commands = set(re.findall(r"^    ([a-z]\S*)", capsys.readouterr().out, re.MULTILINE)) - set(PROGRAMS)
    assert {"run", "locate", "verify-configs"} <= commands
    for command in commands:
        with pytest.raises(SystemExit) as end:
            main([command, "--help"])
        assert end.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: acceptance {command} ")
