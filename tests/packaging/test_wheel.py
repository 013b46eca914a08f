"""The wheel in an environment that has its dependencies but not the checkout, used in an empty folder."""

from __future__ import annotations

import filecmp
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CDK = ROOT / "node_modules/.bin/cdk"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the backend of this environment: nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=120)
    (file,) = folder.glob("slipway-*.whl")
    return file


@pytest.fixture(scope="module")
def run(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a command in an empty folder, with the programs of the wheel first on PATH."""
    venv, folder = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=60)
    python = venv / "bin/python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, str(wheel)], check=True, timeout=120)
    # The dependencies are those of this environment; its .pth file, which names the checkout, is not read from here.
    site = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "PYTHON"))}
    environment = {**kept, "PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "HOME": str(folder)}
    environment |= {"JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(ROOT / ".cache/jsii")}

    def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=folder, env={**environment, **more}, capture_output=True, text=True, timeout=300
        )

    place = run("python", "-c", "import slipway, acceptance; print(slipway.__file__, acceptance.__file__)")
    assert place.stdout.count(str(venv)) == 2, place.stdout + place.stderr
    made = run("slipway", "init", "--yes", "--name", "mine", "-o", "mine.yaml")
    assert made.returncode == 0, made.stderr
    return run


def test_the_wheel_has_every_file_of_the_repository_that_the_package_uses(wheel: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "slipway", "acceptance", "stacks", "nodes", "headnode", "compute", "templates", "clusters"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    packages = ("slipway/", "acceptance/")
    wanted = {name if name.startswith(packages) else f"slipway/files/{name}" for name in tracked}
    names = set(zipfile.ZipFile(wheel).namelist())
    assert len(wanted) > 250
    assert {name for name in wanted - names if (ROOT / name.removeprefix("slipway/files/")).exists()} == set()
    assert {"slipway/files/app.py", "slipway/files/cdk.json"} <= names
    assert any(name.endswith("plotly-basic.min.js") for name in names)
    assert [name for name in names if "__pycache__" in name or name.startswith(("tests/", "rehearsal/"))] == []


def test_a_settings_file_is_checked_and_exported(run: Run) -> None:
    checked = run("slipway", "check", "mine.yaml")
    assert (checked.returncode, checked.stderr) == (0, "")
    exported = run("slipway", "export", "pcluster", "mine.yaml")
    assert exported.returncode == 0
    assert exported.stdout.startswith("Region: ")
    assert run("slipway", "export", "env", "mine.yaml").returncode == 0


def test_both_programs_answer(run: Run) -> None:
    assert run("acceptance", "--help").stdout.startswith("usage: acceptance ")
    assert run("slipway", "--version").stdout.strip()
    assert run("python", "-m", "slipway", "--help").returncode == 0


def test_a_rehearsal_needs_a_checkout(run: Run) -> None:
    ended = run("slipway", "rehearse", "mine.yaml")
    assert ended.returncode == 3
    assert "a rehearsal needs a checkout of Slipway" in ended.stderr
    assert "Hint: clone the repository" in ended.stderr


def test_cdk_makes_the_templates_of_the_checkout(run: Run, tmp_path: Path) -> None:
    made = run(str(CDK), "synth", "--quiet", "--app", "slipway app", "--output", str(tmp_path / "installed"),
               "--context", "settings=mine.yaml")  # fmt: skip
    assert made.returncode == 0, made.stderr[-2000:]
    context = json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"]
    from_the_cli = {"aws:cdk:enable-path-metadata": True, "aws:cdk:enable-asset-metadata": True}
    context |= {**from_the_cli, "aws:cdk:version-reporting": False, "settings": "mine.yaml"}
    here = run(sys.executable, str(ROOT / "app.py"), CDK_OUTDIR=str(tmp_path / "checkout"), CDK_CONTEXT_JSON=json.dumps(context))  # fmt: skip
    assert here.returncode == 0, here.stderr[-2000:]
    templates = sorted(path.name for path in (tmp_path / "checkout").glob("*.template.json"))
    assert len(templates) == 5
    same, *others = filecmp.cmpfiles(tmp_path / "checkout", tmp_path / "installed", templates, shallow=False)
    assert (same, others) == (templates, [[], []])


def test_a_fault_in_the_settings_ends_the_app(run: Run) -> None:
    ended = run("slipway", "app", CDK_CONTEXT_JSON=json.dumps({"settings": "absent.yaml"}))
    assert ended.returncode == 2
    assert "absent.yaml" in ended.stderr
