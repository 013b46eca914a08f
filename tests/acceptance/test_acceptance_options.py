"""Wrong options and paths: refused with one line before anything is read, written or run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from recorded import run_directory

from acceptance.cli import main
from acceptance.cloudai.stored import read_ids, read_plan
from acceptance.errors import InputError
from acceptance.runner.record import read_record

Capture = pytest.CaptureFixture[str]


def refused(words: list[str]) -> None:
    """Run a command that argparse refuses."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    "words",
    [
        ["report", "PATH"],
        ["generate-report", "--result-dir", "PATH"],
        ["run", "--resume", "PATH"],
        ["run", "--output", "PATH"],
        ["run", "--scenario", "PATH"],
        ["run", "--site", "PATH"],
        ["run", "--history", "PATH"],
        ["run", "--test-scenario", "x.toml", "--output-dir", "PATH"],
        ["convert", "PATH", "new"],
        ["convert", "old", "PATH"],
        ["dry-run", "--test-scenario", "x.toml", "--output-dir", "PATH"],
        ["dry-run", "--test-scenario", "x.toml", "--system-config", "PATH"],
        ["download", "hf://a/b", "--local-dir", "PATH"],
        ["verify-configs", "PATH"],
        ["verify-configs", "x", "--tests-dir", "PATH"],
        ["list", "--scenario", "PATH"],
        ["history", "--output", "PATH"],
        ["parse", "PATH"],
        ["explain", "PATH"],
    ],
    ids=" ".join,
)
def test_a_path_that_is_empty_or_a_link_to_itself(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    for path, rule in (("", "must not be empty"), (str(loop), f"{loop}: is a link that points to itself. Hint: ")):
        refused([path if word == "PATH" else word for word in words])
        last = capsys.readouterr().err.splitlines()[-1]
        assert rule in last
        assert last.startswith(f"acceptance {words[0]}: error: argument ")


@pytest.mark.parametrize("value", ["", " ", "a\nb"])
@pytest.mark.parametrize(
    "words",
    [
        ["locate", "--nodes"],  # an unset variable would mean every node, which --drain could then drain
        ["locate", "--partition"],
        ["run", "--upload"],
        ["history", "--cluster"],
        ["convert", "old", "new", "--image"],
        ["download", "hf://a/b", "--include"],
    ],
    ids=" ".join,
)
def test_a_text_that_is_empty_or_has_two_lines(words: list[str], value: str, capsys: Capture) -> None:
    refused([*words, value])
    assert f"error: argument {words[-1]}: {value!r}: must " in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--timeout", "x"],
        ["--timeout", ""],
        ["--no-wait"],
        ["--output-dir", "x"],
        ["--tests-dir", "x"],
        ["--hook-dir", "x"],
        ["--system-config", "x"],
        ["--enable-cache-without-check"],
        ["--single-sbatch"],
    ],
    ids=" ".join,
)
def test_options_of_a_scenario_of_cloudai_without_one(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    run = run_directory(tmp_path / "runs")
    for what in (["--scenario", str(run / "scenario.json"), "--output", str(tmp_path / "new")], ["--resume", str(run)]):
        assert main(["run", *what, *words]) == 2
        assert capsys.readouterr().err.startswith(f"acceptance: {words[0]}: is for a scenario of CloudAI. Hint: ")
    assert not (tmp_path / "new").exists()


def test_the_network_alone_of_a_run_that_has_begun(tmp_path: Path, capsys: Capture) -> None:
    run = run_directory(tmp_path / "runs")
    assert main(["run", "--network", "--resume", str(run)]) == 2
    assert "--network: is for a new run" in capsys.readouterr().err
    assert main(["run", "--network", "--test-scenario", "x.toml"]) == 2
    assert "--network: is for an acceptance.json" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["list", "run"])
def test_a_scenario_that_is_a_pipe_or_a_folder(command: str, tmp_path: Path, capsys: Capture) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        assert main([command, "--scenario", str(path)]) == 2
        assert (
            capsys.readouterr().err
            == f"acceptance: {path}: is not a regular file. Hint: give the path of a scenario file\n"
        )


def test_a_scenario_with_a_byte_order_mark_and_one_of_another_schema(tmp_path: Path, capsys: Capture) -> None:
    path = run_directory(tmp_path / "runs") / "scenario.json"
    text = path.read_text()
    path.write_text(text, encoding="utf-8-sig")
    assert main(["list", "--scenario", str(path)]) == 0
    path.write_text(json.dumps({**json.loads(text), "schema": 99}))
    assert main(["list", "--scenario", str(path)]) == 2
    assert "schema = 99: must be 1. Hint: " in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"a\t1\t1\t\xff\n", None], ids=["not UTF-8", "a folder"])
def test_a_list_of_jobs_that_cannot_be_read(content: bytes | None, tmp_path: Path) -> None:
    if content is None:
        (tmp_path / "jobs.tsv").mkdir()
    else:
        (tmp_path / "jobs.tsv").write_bytes(content)
    with pytest.raises(InputError, match=r"jobs\.tsv: is not .*\. Hint: "):
        read_ids(tmp_path)


def test_a_line_of_jobs_that_is_no_job(tmp_path: Path) -> None:
    (tmp_path / "jobs.tsv").write_text("a\tx\t1\t7\na\t1\t1\t8\n")
    assert read_ids(tmp_path) == {("a", 1, 1): 8}


def test_what_is_not_a_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    (tmp_path / "file").touch()
    assert main(["report", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith(
        f"acceptance: {tmp_path}/none: is not a run directory: it does not exist. Hint: "
    )
    assert main(["report", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith(f"acceptance: {tmp_path}/file: is not a run directory. Hint: ")
    monkeypatch.setattr("acceptance.report.gpus._MOST_FILES", 5)
    for number in range(6):
        (tmp_path / f"{number}.json").write_text("{}")
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(
        f"acceptance: {tmp_path}: is not a run directory: it has more than 5 files. Hint"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not JSON: Expecting property name"),
        ("\udcff", "it is not UTF-8"),
        ("[]", "it must be an object"),
        ("null", "it must be an object"),
        ("{}", "tests is missing"),
        ('{"tests": 5}', "a value has another form"),
        ("[" * 100_000, "it has too many nested values"),
    ],
    ids=lambda text: text[:9],
)
def test_records_of_another_form(text: str, reason: str, tmp_path: Path) -> None:
    for name, read, what in (("plan.json", read_plan, "a plan"), ("run.json", read_record, "the record of a run")):
        (tmp_path / name).write_text(text, errors="surrogateescape")
        with pytest.raises(InputError) as caught:
            read(tmp_path)
        assert str(caught.value).startswith(f"{tmp_path}/{name}: is not {what}: {reason}")
