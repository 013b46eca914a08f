"""Errors for programs (--json) and for terminals, on every command that reads a file."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from slipway import cli
from slipway.errors import UsageError
from slipway.text import nearest

pytestmark = pytest.mark.slow

SLIPWAY = Path(sys.executable).parent / "slipway"
READERS = ("check", "export pcluster", "export env", "import pcluster", "import env", "preflight", "cost --offline")
PASSWORD = "hunter2-Sup3rS3cret"


def slipway(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(SLIPWAY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder, check=False)


@pytest.mark.parametrize("command", READERS)
def test_an_error_is_one_json_object_too(tmp_path: Path, command: str) -> None:
    done = slipway(tmp_path, *command.split(), "nowhere", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 2
    if "error" in answer:  # check and preflight have a form of their own for a wrong file
        assert answer["error"]["exit_code"] == 2
        assert "no such file" in answer["error"]["text"]
        assert [fault["rule"] for fault in answer["error"]["faults"]] == ["no such file"]
    else:
        assert command in ("check", "preflight")


@pytest.mark.parametrize("arguments", [("cost", "--bad", "--json"), ("check", "--explain", "nothing", "--json")])
def test_wrong_use_is_one_json_object_too(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = slipway(tmp_path, *arguments)
    assert (done.returncode, json.loads(done.stdout)["error"]["exit_code"]) == (2, 2)


@pytest.mark.parametrize("command", READERS)
def test_a_files_name_and_keys_do_not_steer_the_terminal(tmp_path: Path, command: str) -> None:
    file = tmp_path / "na\x1b[31m\u009bme.yaml"
    file.write_text('"k\\e[2J": 1\n', encoding="utf-8")
    done = slipway(tmp_path, *command.split(), file.name)
    assert done.returncode == 2
    assert not {"\x1b", "\u009b"} & set(done.stdout + done.stderr)


def test_faults_of_a_wrong_file_are_not_told_without_end(tmp_path: Path) -> None:
    (tmp_path / "much.yaml").write_text("".join(f"k{number}: 1\n" for number in range(500)), encoding="utf-8")
    done = slipway(tmp_path, "import", "pcluster", "much.yaml")
    faults = [line for line in done.stderr.splitlines() if line.startswith("much.yaml:")]
    assert (done.returncode, len(faults)) == (2, 100)  # each with its source line and a caret below it
    assert done.stderr.splitlines()[-1] == "and 400 more"


def test_a_password_in_an_address_is_not_repeated(tmp_path: Path) -> None:
    text = (
        f"software_mirror: https://user:{PASSWORD}@example.com/x\nimages: ['docker://user:{PASSWORD}@nvcr.io#a/b:1']\n"
    )
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    done = slipway(tmp_path, "check", "a.yaml")
    assert PASSWORD not in done.stdout + done.stderr
    assert done.stderr.count("looks like a secret") == 2


def test_an_output_with_an_impossible_name_is_wrong_use(tmp_path: Path) -> None:
    done = slipway(tmp_path, "init", "--yes", "--json", "--output", "x" * 300)
    assert done.returncode == 2
    assert "cannot be a file: File name too long" in json.loads(done.stdout)["error"]["text"]


def test_a_question_without_an_answer_is_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input ends at once, as in a pipeline; Ctrl-C at the question stays an interruption."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(UsageError, match=r"standard input ended before the answer: Name\. Hint: the option"):
        cli._ask("Name", "ml")

    class Interrupted(io.StringIO):
        def readline(self, *_: object) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupted())
    with pytest.raises(typer.Abort):
        cli._ask("Name", "ml")


def test_an_interrupted_wait_says_so() -> None:
    """Ctrl-C while AWS keeps silent."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        server.settimeout(90)
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        keys = {"AWS_ACCESS_KEY_ID": "rehearsal", "AWS_SECRET_ACCESS_KEY": "rehearsal", "AWS_ENDPOINT_URL": address}
        command = [str(SLIPWAY), "cost", str(Path(__file__).parents[2] / "clusters/p5-capacity-block.yaml"), "--json"]
        process = subprocess.Popen(command, env={**os.environ, **keys}, stdout=-1, stderr=-1, text=True)
        server.accept()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=90)
    assert (process.returncode, json.loads(out)["error"]["exit_code"], err) == (130, 130, "interrupted\n")


@pytest.mark.parametrize(
    "arguments",
    [
        "check --explain all",
        "check --explain all --json",
        "cost --offline clusters/g6-sandbox.yaml",
        "version",
        "--help",
        "rehearse --end none-of-this-name",
        "rehearse nowhere.yaml",
        "cost nowhere.yaml --json",
    ],
)
def test_a_reader_that_leaves_is_no_error(arguments: str) -> None:
    """`| head`: silent, and what a shell gives for SIGPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [str(SLIPWAY), *arguments.split()],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_version_as_an_option(tmp_path: Path) -> None:
    assert slipway(tmp_path, "--version").stdout == slipway(tmp_path, "version").stdout != ""


def test_a_rule_is_found_in_any_case(tmp_path: Path) -> None:
    assert slipway(tmp_path, "check", "--explain", "IMAGE").stdout.startswith("image (")


@pytest.mark.parametrize("command", ["cost", "export env --deployed", "export pcluster --deployed", "init --yes"])
def test_a_profile_that_is_not_there(tmp_path: Path, command: str) -> None:
    file = [] if command.startswith("init") else [str(Path(__file__).parents[2] / "clusters/g6-sandbox.yaml")]
    done = slipway(tmp_path, *command.split(), *file, "--profile", "nobody")
    assert (done.returncode, "--profile nobody: there is no such profile" in done.stderr) == (2, True)
    assert not list(tmp_path.iterdir())


def test_the_nearest_of_equals_begins_alike() -> None:
    for order in (["us-west-1", "us-east-1"], ["us-east-1", "us-west-1"]):
        assert nearest("us-est-1", order) == "us-east-1"
    assert nearest("moon", ["us-east-1"]) is None
