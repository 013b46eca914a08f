"""The command line: exit codes, JSON, and no traceback whatever is typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SLIPWAY = Path(sys.executable).parent / "slipway"


def slipway(*arguments: str, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(SLIPWAY), *arguments], capture_output=True, text=True, timeout=60, cwd=cwd, check=False)


def test_check_says_good() -> None:
    done = slipway("check", "clusters/rehearsal.yaml")
    assert done.returncode == 0
    assert done.stdout == "clusters/rehearsal.yaml: good (rehearsal in us-east-1a; train: 4 x p5.48xlarge)\n"


def test_check_counts_faults(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: demo\n", encoding="utf-8")
    done = slipway("check", str(file))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"3 faults, 0 warnings in {file}"
    assert "region: is missing" in done.stderr


def test_check_json(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: demo\nregion: us-east-1\nzone: us-east-1a\nqueues: []\n", encoding="utf-8")
    done = slipway("check", "--json", str(file))
    answer = json.loads(done.stdout)
    assert done.returncode == 2
    assert answer["valid"] is False
    assert answer["faults"][0]["path"] == "queues"
    assert answer["faults"][0]["line"] == 4


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "Usage"),
        (("chek",), 2, "Did you mean 'check'?"),
        (("check",), 2, "Missing argument"),
        (("check", "nowhere.yaml"), 2, "nowhere.yaml: no such file"),
        (("check", "clusters"), 2, "is a folder"),
        (("rehearse", "nowhere.yaml"), 2, "no such file"),
        (("rehearse", "clusters/rehearsal.yaml", "--cloud-only", "--break", "hang"), 2, "--break needs local hosts"),
        (("rehearse", "clusters/rehearsal.yaml", "--port", "5000"), 2, "--port belongs to --cloud-only"),
        (("rehearse", "clusters/rehearsal.yaml", "--output", "README.md"), 2, "is a file"),
        (("export", "pcluster", "nowhere.yaml"), 2, "no such file"),
        (("export", "pcluster", "clusters/rehearsal.yaml", "-o", "/nowhere/at/all.yaml"), 2, "there is no folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_use_is_one_clear_line(arguments: tuple[str, ...], code: int, words: str) -> None:
    done = slipway(*arguments)
    assert done.returncode == code
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


HEAVY = {"aws_cdk", "boto3", "botocore", "jsii", "moto", "rehearsal"}
LOADED = f"""
import atexit, subprocess, sys
atexit.register(lambda: print("loaded:", sorted({HEAVY} & set(sys.modules)), file=sys.stderr))
sys.addaudithook(lambda event, _: print("loaded: a process", file=sys.stderr) if event == "subprocess.Popen" else None)
from slipway.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "arguments",
    [
        "rehearse clusters/rehearsal.yaml --break nonsens",
        "rehearse clusters/rehearsal.yaml --break slow-node=gpu-99",
        "rehearse clusters/rehearsal.yaml --max-hosts 1 --break slow-node=gpu-2",
        "rehearse clusters/rehearsal.yaml --break hang=1",
        "rehearse clusters/rehearsal.yaml --scenario none.toml",
        "preflight nowhere.yaml",
        "preflight clusters/p5-capacity-block.yaml --timeout 0",
        "status clusters/p5-capacity-block.yaml --timeout x",
        "logs clusters/p5-capacity-block.yaml --since x",
        "deploy nowhere.yaml",
        "deploy clusters/p5-capacity-block.yaml --require-approval x",
    ],
)
def test_wrong_use_loads_neither_the_engine_nor_aws(arguments: str) -> None:
    command = [sys.executable, "-c", LOADED, *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=False)
    said = [line for line in done.stderr.splitlines() if line.startswith("loaded: ")]
    assert (done.returncode, said) == (2, ["loaded: []"]), done.stderr


@pytest.mark.parametrize(
    "arguments", ["check clusters/rehearsal.yaml", "export pcluster clusters/rehearsal.yaml", "version"]
)
@pytest.mark.parametrize("sink", [">/dev/full", ">&-", "| head -c 0"])
def test_output_that_cannot_be_written_is_no_traceback(arguments: str, sink: str) -> None:
    command = ["bash", "-c", f"{SLIPWAY} {arguments} {sink}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    if sink == ">/dev/full":
        assert (done.returncode, "cannot write: No space left on device" in done.stderr) == (3, True)


GOOD = (REPOSITORY / "clusters/rehearsal.yaml").read_text(encoding="utf-8")


def checked(*arguments: str, text: str) -> subprocess.CompletedProcess[str]:
    command = [str(SLIPWAY), "check", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=False)


def test_check_reads_standard_input() -> None:
    assert checked("-", text=GOOD).stdout.startswith("<stdin>: good (rehearsal in us-east-1a")
    bad = checked("-", "--json", text="a: [")
    assert (bad.returncode, json.loads(bad.stdout)["faults"][0]["file"]) == (2, "<stdin>")


def test_check_of_several_files_says_what_is_wrong_with_each(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: demo\n", encoding="utf-8")
    done = slipway("check", "clusters/rehearsal.yaml", str(bad))
    assert (done.returncode, f"3 faults, 0 warnings in {bad}" in done.stderr) == (2, True)
    assert done.stdout.startswith("clusters/rehearsal.yaml: good")
    answer = json.loads(slipway("check", "clusters/rehearsal.yaml", str(bad), "--json").stdout)
    assert (answer["valid"], [file["valid"] for file in answer["files"]]) == (False, [True, False])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("rehearse nowhere.yaml", "nowhere.yaml: no such file"),
        ("rehearse --port x clusters/rehearsal.yaml", "--port x: must be a whole number, 0 to 65535"),
        ("rehearse clusters/rehearsal.yaml --cloud-only --break hang", "--break needs local hosts"),
    ],
)
def test_a_rehearsal_that_does_not_start_still_ends_in_a_result(arguments: str, reason: str) -> None:
    done = slipway(*arguments.split())
    assert (done.returncode, done.stdout.count("\n")) == (2, 1)
    assert done.stdout.startswith(f"[RESULT] FAILURE: {reason}")
    answer = slipway(*arguments.split(), "--json")
    assert json.loads(answer.stdout)["error"]["text"].startswith(reason)
    assert answer.stderr.splitlines()[-1].startswith(f"[RESULT] FAILURE: {reason}")


@pytest.mark.parametrize(
    "arguments", ["chek --json", "--json check", "export --json", "cost --bad --json", "cost FILE --hours x --json"]
)
def test_wrong_use_is_json_when_json_was_asked_for(arguments: str) -> None:
    done = slipway(*arguments.split())
    assert (done.returncode, json.loads(done.stdout)["error"]["exit_code"]) == (2, 2)


@pytest.mark.parametrize("arguments", ["cost nowhere.yaml", "cost nowhere.yaml --profile --json"])
def test_a_value_that_looks_like_the_option_is_no_request_for_json(arguments: str) -> None:
    done = slipway(*arguments.split())
    assert (done.returncode, done.stdout) == (2, "")


def test_version_in_both_forms() -> None:
    text = slipway("version").stdout.strip()
    assert json.loads(slipway("version", "--json").stdout) == {"version": text}
    assert slipway("--version").stdout.strip() == text


def test_export_json_is_the_same_configuration(tmp_path: Path) -> None:
    text = slipway("export", "pcluster", "clusters/rehearsal.yaml", "--json").stdout
    assert json.loads(text)["Scheduling"]["SlurmQueues"][0]["CapacityType"] == "CAPACITY_BLOCK"


def test_export_pcluster_is_whole_and_repeatable(tmp_path: Path) -> None:
    target = tmp_path / "cluster.yaml"
    first = slipway("export", "pcluster", "clusters/p5-capacity-block.yaml", "--output", str(target))
    text = target.read_text(encoding="utf-8")
    again = slipway("export", "pcluster", "clusters/p5-capacity-block.yaml")
    assert (first.returncode, again.returncode) == (0, 0)
    assert again.stdout == text
    assert "CapacityType: CAPACITY_BLOCK" in text
    assert "placeholders for values" in first.stderr
