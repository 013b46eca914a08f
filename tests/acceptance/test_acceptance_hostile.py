"""Run directories and histories that another user prepared: nothing is followed, waited for, or run as another user."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from recorded import run_directory

from acceptance import nccl
from acceptance.cli import main
from acceptance.errors import InputError
from acceptance.history import known_baselines, store
from acceptance.report import build_report, write_report
from acceptance.scenario import load_scenario

VICTIM = "what no other user may change\n"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text(VICTIM)
    return path


def test_a_report_is_written_through_no_link(tmp_path: Path, victim: Path) -> None:
    directory = run_directory(tmp_path / "runs")
    for name in ("report.json", "junit.xml", "report.html", "summary.md"):
        (directory / f".{name}.part").symlink_to(victim)
        (directory / name).symlink_to(victim)
    write_report(directory)
    assert victim.read_text() == VICTIM
    assert json.loads((directory / "report.json").read_text())["verdict"]
    assert not (directory / "report.json").is_symlink()


@pytest.mark.parametrize("name", ["run.json", "scenario.json"])
def test_a_pipe_in_the_place_of_a_record_is_not_waited_for(tmp_path: Path, name: str) -> None:
    directory = run_directory(tmp_path / "runs")
    (directory / name).unlink()
    os.mkfifo(directory / name)
    with pytest.raises(InputError, match="is not a plain file"):
        build_report(directory)
    assert main(["run", "--resume", str(directory)]) == 2
    assert main(["history", "--output", str(tmp_path / "runs"), "--rebuild"]) == 0


@pytest.mark.parametrize("command", ["parse", "explain"])
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_device_without_an_end_is_refused(command: str, device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, device]) == 2
    assert f"{device}: a device, which has no end. Hint: give the path of a log" in capsys.readouterr().err


def test_the_empty_device_is_a_log_without_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", "/dev/null"]) == 1
    assert "/dev/null: no table" in capsys.readouterr().out


def test_a_pipe_is_read_if_a_program_writes_it_and_not_waited_for_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    log = (Path(__file__).parent / "data/90-SYNTH-v2.19-plain.txt").read_bytes()
    writer = threading.Thread(target=pipe.write_bytes, args=(log,))
    writer.start()
    assert main(["parse", str(pipe)]) == 0
    writer.join()
    monkeypatch.setattr(nccl, "WRITER_S", 0.1)
    assert main(["parse", str(pipe)]) == 2
    assert f"{pipe}: no program opened this pipe to write within" in capsys.readouterr().err
    pipe.write_bytes(b"")  # ends the reader that still waits


def test_a_log_that_is_a_pipe_or_elsewhere_is_not_read(tmp_path: Path, victim: Path) -> None:
    directory = run_directory(tmp_path / "runs")
    record: dict[str, Any] = json.loads((directory / "run.json").read_text())
    log = directory / record["tests"][0]["log"]
    log.unlink()
    os.mkfifo(log)
    assert build_report(directory).tests[0].rows == ()
    lost = json.loads(json.dumps(record))
    lost["tests"][0]["outcome"].update(kind="lost", exit_code=127)
    (directory / "run.json").write_text(json.dumps(lost))
    assert build_report(directory).tests[0].verdict == "fail"
    log.unlink()
    log.symlink_to(victim)
    assert build_report(directory).tests[0].rows == ()
    record["tests"][0]["log"] = str(victim)
    (directory / "run.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="is not in its directory"):
        build_report(directory)


def test_another_users_run_is_not_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: gives a directory to another user")
    directory = run_directory(tmp_path / "runs")
    shutil.chown(directory, 65534)
    assert main(["run", "--resume", str(directory)]) == 2
    said = capsys.readouterr()
    assert "belongs to the user 65534; resuming it would execute its job scripts as you" in said.err
    assert f"sudo -u '#65534' acceptance run --resume {directory}" in said.err


def test_a_history_whose_schema_never_ends_holds_no_run_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "WORK_S", 0.3)
    path, said = tmp_path / "history.sqlite", list[str]()
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS cluster, x AS run_id FROM n"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE VIEW runs AS {endless} WHERE x < 0")
        columns = "test, collective, size_bytes, busbw_gb_per_s, outcome, sound, warned, cluster, run_id"
        connection.execute(f"CREATE VIEW measures AS SELECT {', '.join(f'1 AS {c}' for c in columns.split(', '))}")
        connection.execute(f"PRAGMA user_version = {len(store.MIGRATIONS)}")
    monkeypatch.setattr("acceptance.history.read._POINTS", "SELECT * FROM runs WHERE ? IS NULL OR cluster = ?")
    scenario = load_scenario(run_directory(tmp_path / "runs") / "scenario.json")
    assert known_baselines(path, scenario, said.append) == ()
    assert "reading it takes more than 0.3 s: is it one of ours?" in said[0]
