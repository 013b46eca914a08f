"""Where the suite runs: the image, the Jobs of Kubernetes, and every command line of docs/gpu-suite.md."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import ValidationError, validate

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "gpusuite"
DOCS = (ROOT / "docs/gpu-suite.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```console\n(.*?)```", DOCS, re.DOTALL) for line in block.splitlines()]
JOBS = sorted((SUITE / "kubernetes").glob("*.yaml"))
PROGRAM = re.compile(r"(?:/app/gpusuite|/app/src|src|gpusuite|)/?(\w+)\.py")
KUBERNETES = "1.37"


def parser_of(program: str) -> ArgumentParser:
    module = importlib.import_module(f"gpusuite.{program}")
    return module._parser()  # type: ignore[no-any-return]


def check_program(words: list[str]) -> str:
    """Parse the flags behind the program of a command line as the program does; returns its name."""
    place, match = next((place, match) for place, word in enumerate(words) if (match := PROGRAM.fullmatch(word)))
    parser_of(match[1]).parse_args(words[place + 1 :])
    return match[1]


def test_the_guide_s_programs_have_a_line_in_each_place() -> None:
    starts = {" ".join(shlex.split(line)[:2]) for line in LINES}
    assert {"docker build", "docker run", "apptainer exec", "kubectl apply", "sbatch --nodes=4"} <= starts
    assert any("ddp_tests.py --train-smoke --epochs 1 --steps 10" in line for line in LINES)


@pytest.mark.parametrize("line", LINES)
def test_command_lines_of_the_documentation(line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[0] in ("sbatch", "kubectl"):
        assert (ROOT / words[-1]).is_file()
    elif words[0] == "acceptance":
        assert words[1] == "suite"
        parser_of("run_all_tests").parse_args(words[2:])
    elif words[:2] == ["docker", "build"]:
        assert (ROOT / words[-1] / "Dockerfile").is_file()
    elif "bash" in words:
        assert check_program(shlex.split(words[-1].replace("$(nvidia-smi -L | wc -l)", "8"))) == "ddp_tests"
    elif words[-1] != "gpu-suite":  # the image's own command
        check_program(words)


def limits_table() -> str:
    data = json.loads((SUITE / "limits.json").read_text(encoding="utf-8"))
    models = [model["name"] for model in data["models"]]
    cells = {(one["metric"], one["gpu"]): f"{one['typical']:g} ({', '.join(one['sources'])})" for one in data["limits"]}
    metrics = dict.fromkeys(one["metric"] for one in data["limits"])
    rows = [["figure", *models], ["---"] * (len(models) + 1)]
    rows += [[metric, *(cells.get((metric, model), "") for model in models)] for metric in metrics]
    sources = [[name, one["where"], one["date"], one["what"]] for name, one in data["sources"].items()]
    tables = (rows, [["source", "where", "date", "what"], ["---"] * 4, *sources])
    return "\n\n".join("\n".join(f"| {' | '.join(row)} |" for row in table) for table in tables) + "\n"


def test_the_page_has_the_limits() -> None:
    before, _, rest = DOCS.partition("<!-- table of gpusuite/limits.json -->\n")
    found, _, after = rest.partition("<!-- end of table -->")
    if os.environ.get("SLIPWAY_UPDATE_GOLDEN"):
        found = limits_table()
        text = f"{before}<!-- table of gpusuite/limits.json -->\n{found}<!-- end of table -->{after}"
        (ROOT / "docs/gpu-suite.md").write_text(text, encoding="utf-8")
    assert found == limits_table(), "if meant: SLIPWAY_UPDATE_GOLDEN=1 pytest tests/gpusuite"


def test_each_row_of_the_guide_names_tests_that_exist() -> None:
    table = DOCS.partition("| there | here | test |\n")[2].partition("\n\n")[0].splitlines()[1:]
    assert len(table) == 20
    for row in table:
        tests = re.findall(r"`(tests/[^`]+)::(\w+)`", row.rpartition(" | ")[2])
        assert tests, row
        for file, name in tests:
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), row


@pytest.mark.parametrize(
    "line", ["python src/gpu_tests.py --fast", "python src/none.py", "python src/ddp_tests.py --iters=x"]
)
def test_a_wrong_line_is_found(line: str) -> None:
    with pytest.raises((SystemExit, ModuleNotFoundError)):
        check_program(shlex.split(line))


def instructions() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    text = (SUITE / "Dockerfile").read_text().replace("\\\n", "")
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if name.isupper():
            found.setdefault(name, []).append(rest.strip())
    return found


def test_the_image() -> None:
    image = instructions()
    (base,) = image["ARG"]
    assert re.fullmatch(r"BASE=[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}", base)
    assert image["FROM"] == ["${BASE}"]
    assert image["USER"] == ["10001:10001"]
    assert image["ENTRYPOINT"] == ['["/usr/bin/tini", "--"]']
    assert check_program(yaml.safe_load(image["CMD"][0])) == "gpu_tests"
    runs = " ".join(image["RUN"])
    assert " tini" in runs
    (torch,) = re.findall(r"torch==(\S+)", runs)
    assert f"torch {torch}+cu130" in (ROOT / "docs/measurements.md").read_text()
    left_out = (SUITE / ".dockerignore").read_text().split()
    assert {"Dockerfile", "kubernetes", "sbatch"} < set(left_out)
    assert not [name for name in left_out if (SUITE / name).suffix == ".py"]


def job(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load(path.read_text())
    return value


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_jobs_are_those_of_the_api(path: Path) -> None:
    assert validate(job(path), KUBERNETES, strict=True) == KUBERNETES
    spec = job(path)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    program = check_program(container["command"])
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    assert (spec["restartPolicy"], job(path)["spec"]["backoffLimit"]) == ("Never", 0)
    assert spec["securityContext"]["runAsUser"] == int(instructions()["USER"][0].partition(":")[0])
    assert container["command"][:2] == yaml.safe_load(instructions()["ENTRYPOINT"][0])
    if path.stem == "single-gpu":
        assert (job(path)["metadata"]["name"], program, gpus) == ("gpu-accept", "gpu_tests", 1)
    else:
        assert program == "run_all_tests"
        assert f"--expect-gpus={gpus}" in container["command"]
        assert any(mount["mountPath"] == "/dev/shm" for mount in container["volumeMounts"])


def test_a_field_that_the_api_does_not_have_is_found() -> None:
    wrong = job(JOBS[0])
    wrong["spec"]["template"]["spec"]["restartpolicy"] = "Never"
    with pytest.raises(ValidationError):
        validate(wrong, KUBERNETES, strict=True)
