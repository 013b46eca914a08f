"""`slipway export cloudai`: files that `acceptance` reads without a warning, and the scripts that follow from them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from acceptance.cli import main
from slipway import command_line
from slipway.cli import app
from slipway.errors import SlipwayError, UsageError
from slipway.exchange.cloudai_export import MARK, cloudai_files
from slipway.files import write_folder
from slipway.settings import load_settings

REPOSITORY = Path(__file__).resolve().parents[2]
P5 = REPOSITORY / "clusters/p5-reservation.yaml"
GOLDEN = Path(__file__).parent / "cloudai"
SMALL = """\
name: small
region: us-east-1
zone: us-east-1a
queues:
  - {{name: train, instance_type: {type}, count: 2{efa}}}
{more}"""


def export(*words: object) -> int:
    return command_line.run(app, ["export", "cloudai", *map(str, words)])


def settings(folder: Path, more: str = "", *, type: str = "p5.48xlarge", efa: str = ", efa: true") -> Path:
    file = folder / "small.yaml"
    file.write_text(SMALL.format(type=type, efa=efa, more=more), encoding="utf-8")
    return file


def read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def test_the_files_have_no_warning_and_become_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert export(P5, out, "--json") == 0
    names = ["system.toml", "test/all_reduce.toml", "test/alltoall.toml", "test_scenario/acceptance.toml"]
    assert json.loads(capsys.readouterr().out) == {"files": [str(out / name) for name in names]}
    assert {name: (out / name).read_text("utf-8") for name in names} == {
        name: (GOLDEN / name).read_text("utf-8") for name in names
    }
    assert main(["verify-configs", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 system, 2 tests, 1 scenario: 0 errors, 0 warnings"
    system, scenario = out / "system.toml", out / "test_scenario/acceptance.toml"
    files = ["--system-config", str(system), "--test-scenario", str(scenario), "--tests-dir", str(out / "test")]
    assert main(["dry-run", *files, "--output-dir", str(tmp_path / "scripts")]) == 0
    (script,) = (tmp_path / "scripts").glob("*/alltoall/0/cloudai_sbatch_script.sh")
    assert "alltoall_perf_mpi" in script.read_text(encoding="utf-8")


def test_what_is_written(tmp_path: Path) -> None:
    more = "images: ['docker://nvcr.io#nvidia/pytorch:24.02-py3']\nacceptance: {min_bytes: 8 MiB}\n"
    assert export(settings(tmp_path, more), tmp_path / "out") == 0
    system = read(tmp_path / "out/system.toml")
    assert (system["default_partition"], system["partitions"]) == ("train", [{"name": "train"}])
    assert (system["gpus_per_node"], system["ntasks_per_node"], system["mpi"]) == (8, 8, "pmix")
    arguments = read(tmp_path / "out/test/all_reduce.toml")["cmd_args"]
    assert arguments["docker_image_url"] == "/fsx/containers/nvcr.io_nvidia_pytorch-24.02-py3.sqsh"
    assert (arguments["minbytes"], arguments["maxbytes"], arguments["stepfactor"]) == ("8388608", "17179869184", 2)
    first, second = read(tmp_path / "out/test_scenario/acceptance.toml")["Tests"]
    assert (first["id"], first["num_nodes"]) == ("all_reduce", 2)
    assert second["dependencies"] == [{"type": "start_post_comp", "id": "all_reduce"}]
    assert export(settings(tmp_path), tmp_path / "named", "--image", "a/b:1") == 0
    assert read(tmp_path / "named/test/all_reduce.toml")["cmd_args"]["docker_image_url"] == "a/b:1"


@pytest.mark.parametrize(
    ("more", "type", "message"),
    [
        ("", "p5.48xlarge", "images: is empty, and NcclTest needs an image. Hint: list one, or --image nvcr.io/"),
        ("acceptance: {scenario: none}\n", "p5.48xlarge", "acceptance.scenario = none: there is no test to write"),
        ("acceptance: {scenario: none}\n", "c6i.xlarge", "queues = train: none has GPUs, and NcclTest needs them"),
    ],
)
def test_nothing_to_write(
    more: str, type: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    efa = ", efa: true" if type.startswith("p5") else ""
    file = settings(tmp_path, more, type=type, efa=efa)
    assert export(file, tmp_path / "out") == 2
    assert capsys.readouterr().err.startswith(f"{file}: {message}")
    assert not (tmp_path / "out").exists()


# What CloudAI's own verify-configs refuses, read and tried at NVIDIA/cloudai 5b5c0f72: a key that is not one of these
# (systems/slurm/slurm_system.py, models/workload.py, models/scenario.py), a value of another type, a subtest_name or a
# type of dependency that it does not list (workloads/nccl_test/nccl.py), and a file whose kind is not plain from its
# text (cli/handlers.py, load_tomls_by_type). It accepted the exports of all seven files of clusters/.
CLOUDAI = {
    "system": {
        **dict.fromkeys(("name", "scheduler", "install_path", "output_path", "default_partition", "mpi"), str),
        **dict.fromkeys(("gpus_per_node", "ntasks_per_node"), int),
        "partitions": list,
    },
    "test": {**dict.fromkeys(("name", "description", "test_template_name"), str), "cmd_args": dict},
    "cmd_args": {
        **dict.fromkeys(("docker_image_url", "subtest_name", "minbytes", "maxbytes"), str),
        **dict.fromkeys(("ngpus", "stepfactor", "iters", "warmup_iters", "check"), int),
    },
    "scenario": {"name": str, "job_status_check": bool, "Tests": list},
    "run": {**dict.fromkeys(("id", "test_name", "time_limit"), str), "num_nodes": int, "dependencies": list},
}


@pytest.mark.parametrize("name", ["p5-reservation", "p5en", "g6-sandbox"])
def test_cloudai_reads_what_is_written(name: str) -> None:
    texts = cloudai_files(load_settings(REPOSITORY / f"clusters/{name}.yaml"), "a/b:1")
    system, scenario = tomllib.loads(texts["system.toml"]), tomllib.loads(texts["test_scenario/acceptance.toml"])
    tests = {path: tomllib.loads(text) for path, text in texts.items() if path.startswith("test/")}
    tables = [("system", system), ("scenario", scenario), *(("run", run) for run in scenario["Tests"])]
    tables += [table for test in tests.values() for table in (("test", test), ("cmd_args", test["cmd_args"]))]
    for kind, table in tables:
        assert {key: type(value) for key, value in table.items()}.items() <= CLOUDAI[kind].items()
    assert all(set(partition) <= {"name", "groups"} for partition in system["partitions"])
    assert system["default_partition"] in {partition["name"] for partition in system["partitions"]}
    names = [test["name"] for test in tests.values()]
    assert [run["test_name"] for run in scenario["Tests"]] == names
    assert all(test["cmd_args"]["subtest_name"] == f"{test['name']}_perf_mpi" for test in tests.values())
    assert set(names) <= {"all_reduce", "alltoall"}
    needs = [need for run in scenario["Tests"] for need in run.get("dependencies", ())]
    assert all(need.keys() == {"type", "id"} and need["type"] == "start_post_comp" for need in needs)
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", run["time_limit"]) for run in scenario["Tests"])
    assert all("test_template_name =" in texts[path] and "[[Tests]]" not in texts[path] for path in tests)
    assert "[[Tests]]" in texts["test_scenario/acceptance.toml"]


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_only_an_export_is_replaced_and_only_with_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert export(P5, out) == 0  # an empty folder may be there
    before = files_in(out)
    assert export(P5, out) == 2
    hint = "--force replaces an export, or name another folder"
    assert capsys.readouterr().err == f"{out}: exists and is not empty. Hint: {hint}\n"
    (out / "test/all_reduce.toml").write_text(f"{MARK}old")
    (out / "test/of_an_older_export.toml").write_text(f"{MARK}old")
    assert export(P5, out, "--force") == 0
    assert files_in(out) == before
    (out / "notes.txt").write_text("mine")
    assert export(P5, out, "--force") == 2
    assert "has notes.txt, which no export wrote. Hint: name another folder" in capsys.readouterr().err
    assert files_in(out) == {**before, "notes.txt": b"mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert export(P5, "/proc/out") == 1
    assert "/proc/out: cannot be written: " in capsys.readouterr().err
    assert export(P5, out / "notes.txt") == 2


@pytest.mark.parametrize("mine", ["test/mine.toml", "system.toml", "link", ".git/refs/"])
def test_what_no_export_wrote_stays(mine: str, tmp_path: Path) -> None:
    """Also in a folder of CloudAI's own layout, which has the names of an export."""
    out = tmp_path / "out"
    (out / mine).parent.mkdir(parents=True)
    if mine == "link":
        (out / mine).symlink_to("/etc", target_is_directory=True)
    elif mine.endswith("/"):
        (out / mine).mkdir()
    else:
        (out / mine).write_text("mine")
    force = not mine.endswith("/")  # --force may remove empty folders; without it they stay
    with pytest.raises(UsageError, match="which no export wrote" if force else "exists and is not empty"):
        write_folder(out, {"system.toml": "new"}, MARK, force=force)
    assert (out / mine).exists()


def test_an_export_that_a_kill_moved_away_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, moved = tmp_path / "out", tmp_path / f".out.{2**22 + 1}.old"  # no process has this id
    write_folder(out, {"system.toml": "old"}, MARK)
    out.rename(moved)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(SlipwayError, match="No space left"):
            write_folder(out, {"system.toml": "new"}, MARK, force=True)
    assert files_in(tmp_path) == {"out/system.toml": f"{MARK}old".encode()}


class Killed(BaseException):
    """In the place of a kill: nothing after it is done."""


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 5])
def test_a_killed_export_leaves_all_or_nothing(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, files = tmp_path / "out", {"system.toml": "new", "test/a.toml": "new", "test_scenario/b.toml": "new"}
    write_folder(out, {"system.toml": "old"}, MARK)
    steps = iter(range(10))

    def dying(real: Any) -> Any:
        def step(*words: Any, **more: Any) -> Any:
            if next(steps) == at:
                raise Killed
            return real(*words, **more)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", dying(Path.write_text))
        patch.setattr(Path, "rename", dying(Path.rename))
        patch.setattr("slipway.files.shutil.rmtree", lambda *_, **__: None)  # a killed process cleans nothing
        with contextlib.suppress(Killed):
            write_folder(out, files, MARK, force=True)
    whole = {name: (MARK + text).encode() for name, text in files.items()}
    assert (files_in(out) if out.exists() else {}) in ({"system.toml": f"{MARK}old".encode()}, {}, whole)
    for left in tmp_path.glob(".out.*"):
        left.rename(left.with_name(left.name.replace(str(os.getpid()), str(2**22 + 1))))  # no process has this id
    write_folder(out, files, MARK, force=True)
    assert files_in(out) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
