"""`slipway export cloudai`: files that `acceptance` reads without a warning, and the scripts that follow from them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from acceptance.cli import main
from slipway import command_line
from slipway.cli import app

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
    assert export(settings(tmp_path, more, type=type, efa=efa), tmp_path / "out") == 2
    assert capsys.readouterr().err.startswith(message)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_files_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(P5, tmp_path) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert export(P5, tmp_path) == 2
    assert capsys.readouterr().err == f"{tmp_path}: exists and is not an empty folder. Hint: name another folder\n"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert export(P5, "/proc/out") == 1
    assert "Hint: name another folder" in capsys.readouterr().err
