"""The register of kept clusters, its commands, and the process that keeps one: without a rehearsal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway import command_line, keeper, kept
from slipway.cli import app
from slipway.errors import EXIT_NO, EnvironmentFault, UsageError

REPOSITORY = Path(__file__).resolve().parents[2]
KEEPER = """
import os, sys, time
from pathlib import Path
from slipway import kept
kept.FOLDER = Path(sys.argv[1])
with kept.reserved(sys.argv[2]) as file:
    if sys.argv[3]:
        kept.register(file, kept.Kept(sys.argv[2], os.getpid(), 1, time.time() + 60, sys.argv[3]))
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "kept")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path / "kept"


@pytest.fixture
def small(folder: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The keeper of a cluster `small` with a head node and two nodes."""
    enter = {name: ["echo", name] for name in ("head", "a-st-gpu-1", "b-st-gpu-1")}
    hosts = {"user": "ubuntu", "head": "head", "enter": enter}
    (tmp_path / kept.HOSTS_FILE).write_text(json.dumps(hosts), encoding="utf-8")
    with _keeper(folder, "small", str(tmp_path)) as process:
        yield process
        process.kill()


def _keeper(folder: Path, name: str, work: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", KEEPER, str(folder), name, work]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_name_is_kept_once_and_free_after_a_killed_keeper(folder: Path, small: subprocess.Popen[str]) -> None:
    with (
        pytest.raises(UsageError, match=r"^a cluster small is kept until 20.*\. Hint: slipway rehearse --end small$"),
        kept.reserved("small"),
    ):
        pass
    small.kill()
    small.wait()
    with pytest.raises(UsageError, match=r"^no cluster is kept on this machine\. Hint: slipway rehearse FILE --keep$"):
        kept.end("small")
    with kept.reserved("small"):
        assert (folder / "small.json").read_text(encoding="utf-8") == ""
        with (
            pytest.raises(UsageError, match=r"^a cluster small is being rehearsed with --keep\. Hint: wait for its"),
            kept.reserved("small"),
        ):
            pass
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("together", "options"), [(True, ()), (False, ("--json",))])
def test_an_error_is_printed_once_where_the_result_repeats_it(together: bool, options: tuple[str, ...]) -> None:
    """On a terminal, or with `2>&1`, both streams are one; with --json the result is on standard error."""
    errors = subprocess.STDOUT if together else subprocess.PIPE
    command = [sys.executable, "-m", "slipway", "rehearse", "--end", "none-of-this-name", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=60, cwd=REPOSITORY)
    assert done.returncode == 2
    (line,) = (done.stdout if together else done.stderr).splitlines()
    assert line.startswith("[RESULT] FAILURE: no cluster ")


def test_end_waits_until_the_keeper_has_ended(small: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"^no cluster other is kept\. Hint: kept on this machine: small$"):
        kept.end("other")
    assert kept.end("small") == 0
    assert capsys.readouterr().out == "ended: small\n[RESULT] SUCCESS\n"
    assert small.wait(timeout=60) == -15


def test_a_keeper_that_does_not_end_is_named(small: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "END_LIMIT_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda *_: None)
        with pytest.raises(kept.SlipwayError, match=f"Hint: kill -9 {small.pid}$") as raised:
            kept.end("small")
    assert raised.value.exit_code == EXIT_NO


@pytest.mark.parametrize(
    ("node", "entered"),
    [(None, "head"), ("a-st-gpu-1", "a-st-gpu-1"), ("b-st-gpu-1", "b-st-gpu-1"), ("st-gpu-1", ""), ("gpu-7", "")],
)
@pytest.mark.usefixtures("small")
def test_which_node_a_shell_enters(node: str | None, entered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(kept, "enter", lambda _, command: commands.append(command) or 7)
    if entered:
        assert kept.shell(node, ["sh", "-c", "echo $HOME"]) == 7
        assert commands == [["echo", entered, "su", "-", "ubuntu", "-c", "sh -c 'echo $HOME'"]]
    else:
        problem = (
            "several nodes of small end so: a-st" if node == "st-gpu-1" else "no such node runs in small. Hint: running"
        )
        with pytest.raises(UsageError, match=f"^{node}: {problem}"):
            kept.shell(node)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], (None, [], None)),
        (["gpu-1"], ("gpu-1", [], None)),
        (["--", "ls", "-l"], ("", ["ls", "-l"], None)),
        (["gpu-1", "--", "ls", "--", "x"], ("gpu-1", ["ls", "--", "x"], None)),
        (["--cluster", "small", "--", "sinfo"], ("", ["sinfo"], "small")),
    ],
)
def test_what_stands_after_two_hyphens_is_the_command(
    words: list[str], asked: tuple[str | None, list[str], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str | None, list[str], str | None]] = []

    def shell(node: str | None, command: list[str], *, cluster: str | None) -> int:
        calls.append((node, list(command), cluster))
        return 0

    monkeypatch.setattr(kept, "shell", shell)
    assert command_line.run(app, ["shell", *words]) == 0
    assert calls == [asked]


@pytest.mark.usefixtures("small")
def test_several_kept_clusters_need_a_name(folder: Path, tmp_path: Path) -> None:
    with _keeper(folder, "large", str(tmp_path)) as large:
        with pytest.raises(UsageError, match=r"^several clusters are kept: large, small\. Hint: --cluster large$"):
            kept.shell()
        large.kill()


def test_a_kept_cluster_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EnvironmentFault, match="needs root"):
        kept.shell()


def test_a_shell_on_a_terminal_has_one_of_its_host() -> None:
    assert kept.login_command("ubuntu") == ["script", "--quiet", "--return", "--command", "su - ubuntu", "/dev/null"]


def test_the_keeper_registers_leaves_the_terminal_and_ends_in_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, notice = os.pipe()
    handed_back: list[bool] = []
    monkeypatch.setattr(os, "dup2", lambda *_: None)  # pytest's own output stays
    with kept.reserved("small") as register:
        one = keeper.Keeper(register, "small", notice)
        one.look(7, tmp_path, lambda: handed_back.append(True))
        assert not handed_back
        until = time.time() + 0.2
        offer = {"until": until, "exit_code": 1}
        (tmp_path / kept.HOSTS_FILE).write_text(json.dumps(offer), encoding="utf-8")
        one.look(7, tmp_path, lambda: handed_back.append(True))
        assert handed_back
        assert os.read(waiting, 8) == b"1"
        os.close(waiting)
        entry = json.loads((folder / "small.json").read_text(encoding="utf-8"))
        assert entry == {"name": "small", "keeper": os.getpid(), "engine": 7, "until": until, "work": str(tmp_path)}
        time.sleep(0.25)
        with pytest.raises(KeyboardInterrupt):
            one.look(7, tmp_path, lambda: None)


def test_the_keeper_ends_with_the_command_before_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "register").open("w", encoding="utf-8") as register:
        one = keeper.Keeper(register, "small", 0)
        monkeypatch.setattr(os, "getppid", lambda: 1)
        with pytest.raises(KeyboardInterrupt):
            one.look(7, tmp_path, lambda: None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rehearse"], "Missing argument FILE. Hint: slipway rehearse clusters/rehearsal.yaml"),
        (["rehearse", "FILE", "--hours", "1"], "--hours belongs to --keep. Hint: add --keep"),
        (["rehearse", "FILE", "--end", "a"], "--end NAME rehearses nothing. Hint: leave FILE and the other"),
        *(
            (
                ["rehearse", "--end", "a", *option],
                "--end NAME rehearses nothing. Hint: leave FILE and the other options",
            )
            for option in (
                ["--test-scenario", "x.toml"],
                ["--port", "8080"],
                ["--max-hosts", "2"],
                ["--output", "x"],
                ["--hours", "1"],
                ["--break", "hang"],
                ["--keep"],
                ["--shell"],
                ["--cloud-only"],
            )
        ),
        (["rehearse", "FILE", "--keep", "--cloud-only"], "--keep needs local hosts, --cloud-only has none"),
        (
            ["rehearse", "FILE", "--keep", "--shell"],
            "--shell ends the cluster with the shell, --keep leaves it running",
        ),
        (["rehearse", "FILE", "--keep", "--hours", "100"], "less than or equal to 72"),
    ],
)
def test_wrong_use(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(REPOSITORY / "clusters/rehearsal.yaml") if word == "FILE" else word for word in arguments]
    assert command_line.run(app, words) == 2
    assert message in capsys.readouterr().err
