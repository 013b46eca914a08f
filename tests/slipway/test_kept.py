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

from slipway import command_line, keeper, kept, rehearse
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
    assert list(folder.iterdir()) == []
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


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("ends_by", ["hosts", "engine", "nothing"])
def test_a_shell_whose_cluster_ends_says_so(ends_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopping engine removes the file of the hosts; with a killed one its processes go, and nsenter by SIGKILL."""

    def enter(engine: int, command: list[str]) -> int:
        if ends_by == "hosts":
            (tmp_path / kept.HOSTS_FILE).unlink()
            return 137
        return -9

    monkeypatch.setattr(kept, "enter", enter)
    monkeypatch.setattr(kept, "GONE_LIMIT_S", 0.1)
    if ends_by == "nothing":
        assert kept.shell("head", ["sleep", "300"]) == 137
        return
    if ends_by == "engine":
        gone = subprocess.Popen(["true"])
        gone.wait()
        monkeypatch.setattr(kept, "_find", lambda _: kept.Kept("small", 1, gone.pid, 0.0, str(tmp_path)))
    with pytest.raises(EnvironmentFault, match=r"^the cluster small has ended$"):
        kept.shell("head", ["sleep", "300"])


@pytest.mark.usefixtures("small")
def test_a_shell_in_a_cluster_that_has_just_ended(tmp_path: Path) -> None:
    (tmp_path / kept.HOSTS_FILE).unlink()
    with pytest.raises(EnvironmentFault, match=r"^the cluster small has ended$"):
        kept.shell("head")


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
        (["rehearse", "FILE", "--keep", "--hours", "100"], "--hours 100: must be 0.001 to 72\n"),
        (["rehearse", "FILE", "--keep", "--hours", "nan"], "--hours nan: must be 0.001 to 72\n"),
        (["rehearse", "FILE", "--port", "70000"], "--port 70000: must be a whole number, 0 to 65535\n"),
        (["rehearse", "FILE", "--max-hosts", "0"], "--max-hosts 0: must be a whole number, 1 to 32\n"),
        (["cost", "FILE", "--hours", "inf"], "--hours inf: must be 0 or more\n"),
        (
            ["rehearse", "FILE", "--cloud-only", "--max-hosts", "3"],
            "--max-hosts needs local hosts, --cloud-only has none",
        ),
        (["rehearse", "FILE", "--output", ""], "--output '': is empty. Hint: name a path\n"),
        (["rehearse", "FILE", "--test-scenario", ""], "--test-scenario '': is empty. Hint: name a path\n"),
        (["check", "FILE", ""], "FILE '': is empty. Hint: name a path\n"),
        (["rehearse", "FILE", "--break", "slow\nnode"], "--break slow?node: no such kind"),
        (
            ["rehearse", "FILE", "--break", "hang", "--break", "bootstrap=head"],
            "--break hang --break bootstrap=head: hang ends the deployment before another fault is seen. Hint: one",
        ),
        (
            ["rehearse", "FILE", "--break", "slow-node=gpu-1", "--break", "bootstrap=compute"],
            "bootstrap=compute ends the",
        ),
    ],
)
def test_wrong_use(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearse, "_run_engine", None)  # what is not refused ends here
    words = [str(REPOSITORY / "clusters/rehearsal.yaml") if word == "FILE" else word for word in arguments]
    assert command_line.run(app, words) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert len(said.err.splitlines()) == 1
    assert said.out == ("" if words[0] != "rehearse" else f"[RESULT] FAILURE: {said.err}")


def test_a_link_to_itself_is_no_output_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearse, "_run_engine", None)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    arguments = ["rehearse", str(REPOSITORY / "clusters/rehearsal.yaml"), "--cloud-only", "--output", str(loop)]
    assert command_line.run(app, arguments) == 2
    assert capsys.readouterr().err == f"--output {loop}: is a link that leads nowhere. Hint: name a folder\n"
