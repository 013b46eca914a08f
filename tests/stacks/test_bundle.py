"""The bundle: whole, deterministic, and its program runs on a bare Python."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from acceptance.scenario import check_scenario
from slipway import bundle
from slipway.errors import EnvironmentFault
from slipway.fsx_throughput import file_system_facts
from slipway.places import FILES
from slipway.settings import Settings, load_settings
from slipway.settings.model import Fsx
from tests.stacks.assembly import EXAMPLES


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings(EXAMPLES["every-part"])


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small checkout with everything that a bundle needs, and some things that must stay out."""
    root = tmp_path / "checkout"
    for name in (*bundle.NODE_DIRECTORIES, "acceptance/report", "acceptance/__pycache__"):
        (root / name).mkdir(parents=True)
    (root / "nodes/run.sh").write_text("#!/bin/bash\n", encoding="utf-8")
    (root / "nodes/run.sh").chmod(0o600)
    (root / "headnode/notes.txt").write_text("text\n", encoding="utf-8")
    (root / "templates/text.j2").touch()
    (root / "acceptance/__init__.py").touch()
    (root / "acceptance/report/__init__.py").touch()
    (root / "acceptance/__pycache__/x.pyc").write_bytes(b"compiled")
    (root / "acceptance/cli.py").write_text(PROGRAM, encoding="utf-8")
    plotly = root / bundle.PLOTLY
    plotly.parent.mkdir(parents=True)
    plotly.write_text("/* plotly */", encoding="utf-8")
    return root


PROGRAM = """\
import pkgutil

import jinja2


def main():
    script = pkgutil.get_data("acceptance.report", "plotly-basic.min.js").decode()
    print(jinja2.Template("{{ words }} & {{ script }}", autoescape=True).render(words="<ran>", script=script))
    return 7
"""


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive}


def test_same_input_same_bytes(settings: Settings, checkout: Path, tmp_path: Path) -> None:
    first = bundle.write_bundle(settings, tmp_path / "first.tar.gz", checkout)
    for file in checkout.rglob("*"):
        os.utime(file, (1, 1))
    (checkout / "nodes/run.sh").chmod(0o755)
    (checkout / "nodes/__pycache__").mkdir()
    (checkout / "nodes/__pycache__/later.pyc").write_bytes(b"compiled")
    second = bundle.write_bundle(settings, tmp_path / "second.tar.gz", checkout)
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.sha256 == second.sha256 == hashlib.sha256(second.path.read_bytes()).hexdigest()


def test_every_change_changes_the_hash(settings: Settings, checkout: Path, tmp_path: Path) -> None:
    before = bundle.write_bundle(settings, tmp_path / "bundle.tar.gz", checkout).sha256
    (checkout / "headnode/notes.txt").write_text("other\n", encoding="utf-8")
    assert bundle.write_bundle(settings, tmp_path / "bundle.tar.gz", checkout).sha256 != before


def test_contents(settings: Settings, checkout: Path, tmp_path: Path) -> None:
    found = members(bundle.write_bundle(settings, tmp_path / "bundle.tar.gz", checkout).path.read_bytes())
    assert list(found) == [
        "acceptance.json",
        "acceptance.pyz",
        "containers.txt",
        "headnode/notes.txt",
        "instances.json",
        "node.env",
        "nodes/run.sh",
        "templates/text.j2",
    ]
    assert {name for name, member in found.items() if member.mode == 0o755} == {"nodes/run.sh", "acceptance.pyz"}
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in found.values()} == {(0, 0, 0, "")}


def test_program_is_pure_python_and_runs_from_the_archive_alone(
    settings: Settings, checkout: Path, tmp_path: Path
) -> None:
    program = tmp_path / "acceptance.pyz"
    program.write_bytes(bundle.acceptance_program(checkout))
    names = zipfile.ZipFile(program).namelist()
    assert not [name for name in names if Path(name).suffix in bundle.COMPILED]
    assert [name for name in names if "LICENSE" in name]
    done = subprocess.run(  # -I and -S: no site-packages, no environment
        [sys.executable, "-I", "-S", str(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (7, "&lt;ran&gt; & /* plotly */\n"), done.stderr


def test_node_env_is_literal_lines_with_every_key(settings: Settings) -> None:
    lines = bundle.node_env(settings).splitlines()
    found = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert found == bundle.node_env_values(settings)
    assert found["NGC_SECRET_ARN"].startswith("arn:aws:secretsmanager:")
    assert found["REGION"] == "eu-central-1"


def test_images_one_a_line(settings: Settings) -> None:
    lines = bundle.bundle_files(settings)["containers.txt"].decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["docker://nvcr.io#nvidia/pytorch:24.01-py3"]
    assert "sudo nano /fsx/config/containers.txt" in lines[1]


FSX = {
    "mount": "/fsx",
    "write_gb_per_s": 0.1465,  # 1200 GiB x 125 MB/s per TiB
    "read_gb_per_s": 0.1465,
    "burst_gb_per_s": 0.5859,
    "client_gb_per_s": 1.6,
    "source": "persistent-2, 1200 GiB, 125 MB/s per TiB",
}


@pytest.mark.parametrize(
    ("changes", "gbit", "rates"),
    [
        ({"capacity_gib": 9600, "throughput_mb_s_per_tib": 1000}, None, (9.375, 9.375, None, 1.6)),
        (
            {"capacity_gib": 1200, "deployment": "persistent-1", "throughput_mb_s_per_tib": 50},
            10,
            (0.0586, 0.0586, None, 1.25),
        ),
        ({"capacity_gib": 2400, "deployment": "scratch-2"}, 3200, (0.4688, 0.2344, None, 1.6)),
        ({"deployment": "scratch-1"}, None, None),
        ({"file_system_id": "fs-0123456789abcdef0"}, None, None),
    ],
)
def test_throughput_of_the_file_system(
    changes: dict[str, Any], gbit: int | None, rates: tuple[float | None, ...] | None
) -> None:
    facts = file_system_facts(Fsx(**changes), "/fsx", gbit)
    keys = ("read_gb_per_s", "write_gb_per_s", "burst_gb_per_s", "client_gb_per_s")
    assert (tuple(facts[key] for key in keys) if facts else None) == rates


def test_acceptance_scenario_of_the_rehearsal() -> None:
    found = bundle.acceptance_scenario(load_settings(EXAMPLES["rehearsal"]))
    assert json.loads(json.dumps(found)) == {
        "schema": 1,
        "cluster": "rehearsal",
        "partition": "train",
        "instance_type": "p5.48xlarge",
        "gpu_image": None,
        "file_system": FSX,
        "nodes": 4,
        "gpus_per_node": 8,
        "network": {"provider": "efa", "nics": 32},
        "tests": [
            {
                "name": "all_reduce",
                "collective": "all_reduce",
                "min_bytes": 1 << 20,
                "max_bytes": 16 << 30,
                "step_factor": 2,
                "iterations": 20,
                "warmup_iterations": 5,
                "timeout_s": 420,
            },
            {
                "name": "alltoall",
                "collective": "alltoall",
                "min_bytes": 2 << 30,
                "max_bytes": 2 << 30,
                "iterations": 20,
                "warmup_iterations": 5,
                "timeout_s": 60,
                "missing_limit": "warn",
            },
        ],
        "nccl_tests_paths": ["/fsx/nccl/nccl-tests"],
        "queue_timeout_s": 180,
        "locate": {"budget_s": 420, "drain_percent": 10},
        "limits": [],
    }


@pytest.mark.parametrize("file", sorted((FILES / "clusters").glob("*.yaml")), ids=lambda file: file.stem)
def test_a_hang_is_located_before_the_time_is_over(file: Path) -> None:
    settings = load_settings(file)
    found = bundle.acceptance_scenario(settings)
    needed_s = found["queue_timeout_s"] + found["tests"][0]["timeout_s"] + found["locate"]["budget_s"]
    assert needed_s < settings.acceptance.timeout_minutes * 60
    assert check_scenario(found, "the bundle").locate.pair_timeout_s >= 20


def test_limits_of_the_settings_are_in_the_scenario() -> None:
    (limit,) = bundle.acceptance_scenario(load_settings(FILES / "clusters/g6-sandbox.yaml"))["limits"]
    assert (limit["size_bytes"], limit["fail_below_gb_per_s"], limit["date"]) == (1 << 30, 0.15, "2026-11-27")


def test_no_gpu_queue_no_tests(settings: Settings) -> None:
    cpu_only = settings.model_copy(update={"queues": settings.queues[1:2]})
    found = bundle.acceptance_scenario(cpu_only)
    assert (found["tests"], found["nodes"], found["network"]) == ([], 0, None)


@pytest.mark.parametrize("gone", ["nodes", "acceptance", "templates", str(bundle.PLOTLY)])
def test_what_is_missing_is_named(settings: Settings, checkout: Path, tmp_path: Path, gone: str) -> None:
    part = checkout / gone
    shutil.rmtree(part) if part.is_dir() else part.unlink()
    with pytest.raises(EnvironmentFault, match=f"{gone}.* is missing.*Hint:"):
        bundle.write_bundle(settings, tmp_path / "bundle.tar.gz", checkout)
