"""`slipway rehearse` before anything starts: what is wrong with the use or the machine is one clear line each."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from slipway import machine
from slipway import rehearse as module
from slipway.errors import EnvironmentFault

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
SLIPWAY = Path(sys.executable).parent / "slipway"


def without(capability: str) -> list[str]:
    return ["setpriv", "--bounding-set", f"-{capability}", "--inh-caps", f"-{capability}"]


def rehearse(*arguments: str, start: Sequence[str] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*start, str(SLIPWAY), "rehearse", "clusters/rehearsal.yaml", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def test_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = rehearse("--cloud-only", "--port", str(port))
    assert (done.returncode, done.stderr) == (
        2,
        f"--port {port}: Address already in use. Hint: another port, or 0 for a free one\n",
    )


def test_temporary_folder_that_is_not_there() -> None:
    done = rehearse("--cloud-only", TMPDIR="/nowhere")
    assert (done.returncode, done.stderr) == (
        3,
        "TMPDIR=/nowhere: is not a writable folder. Hint: another TMPDIR, or none\n",
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "small", str(place)], check=True, timeout=60)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True, timeout=60)


@pytest.mark.hosts
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_full_temporary_folder(small_disk: Path) -> None:
    done = rehearse("--cloud-only", TMPDIR=str(small_disk))
    assert done.returncode == 3
    assert f"{small_disk}: 10 MB free, the rehearsal needs 300. Hint: make room, or set TMPDIR" in done.stderr
    assert list(small_disk.iterdir()) == []


@pytest.mark.hosts
@pytest.mark.skipif(os.geteuid() != 0, reason="local hosts need root")
def test_fault_that_does_not_exist(tmp_path: Path) -> None:
    """Every kind of bad fault: tests/hosts/test_parts.py."""
    done = rehearse("--break", "slow-nod=gpu-3", "--output", str(tmp_path))
    assert done.returncode == 2
    assert "Did you mean slow-node?" in done.stdout.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
    answer = rehearse("--break", "slow-node=gpu-9", "--output", str(tmp_path), "--json")
    assert "no such node. Nodes: train-st-gpu-1" in json.loads(answer.stdout)["error"]["text"]
    assert answer.stderr.splitlines()[-1].startswith("[RESULT] FAILURE: --break ")


def test_without_root_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    lines = machine.missing_parts(cloud_only=False)
    assert any("local hosts need root" in line and "--cloud-only" in line for line in lines)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(machine, "SYSTEM_PATH", "/nowhere")
    assert any("commands are missing: unshare, nsenter" in line for line in machine.missing_parts(cloud_only=False))


@pytest.mark.hosts
@pytest.mark.skipif(os.geteuid() != 0, reason="capabilities are root's")
@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (without("net_admin"), "this root lacks CAP_NET_ADMIN (the hosts' network), which local hosts need"),
        (without("sys_admin"), "this root lacks CAP_SYS_ADMIN (namespaces and mounts), which local hosts need"),
        (["unshare", "--map-root-user"], "local hosts need root of the machine, and this is root of a user namespace"),
    ],
    ids=["net_admin", "sys_admin", "user-namespace"],
)
def test_root_of_a_container_is_told_which_right_is_missing(start: list[str], reason: str, tmp_path: Path) -> None:
    done = rehearse("--output", str(tmp_path), start=start)
    assert done.returncode == 3
    assert done.stderr.startswith(reason)
    assert "Hint: start the container with --privileged, or add --cloud-only" in done.stderr
    assert done.stdout.startswith(f"[RESULT] FAILURE: {reason}")


@pytest.mark.hosts
@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_what_the_trial_of_namespaces_says_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.missing_rights() == []
    monkeypatch.setattr(machine, "PROBE", "echo mount: /run: permission denied >&2; exit 32")
    (line,) = machine.missing_rights()
    assert line.startswith("namespaces cannot be made here: mount: /run: permission denied. Hint: ")
    monkeypatch.setattr(machine, "PROBE", "exit 1")
    assert machine.missing_rights()[0].startswith("namespaces cannot be made here: exit 1. Hint: ")


def test_an_output_that_cannot_be_written_is_named_with_a_repair() -> None:
    done = rehearse("--cloud-only", "--output", "/proc/rehearsals")
    assert done.returncode == 3
    assert done.stderr.startswith("--output /proc/rehearsals: No such file or directory. Hint: name another folder")


def test_a_shell_needs_a_terminal_and_hosts() -> None:
    assert rehearse("--shell").stderr.startswith("--shell needs a terminal")
    assert rehearse("--shell", "--cloud-only").stderr.startswith("--shell needs local hosts")


@pytest.mark.hosts
@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users")
def test_under_sudo_new_files_are_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root's new files in the output; what was there before stays as it is."""
    old = tmp_path / "old"
    old.mkdir()
    monkeypatch.setenv("SUDO_UID", "4242")
    monkeypatch.setenv("SUDO_GID", "4243")
    with module._output_folder(tmp_path):
        (tmp_path / "new/logs").mkdir(parents=True)
        (tmp_path / "new/logs/cdk.log").write_text("x")
        (tmp_path / "new/link").symlink_to(old)
        (tmp_path / "new/theirs").write_text("x")
        os.chown(tmp_path / "new/theirs", 7, 7)
    owners = {path.name: (path.lstat().st_uid, path.lstat().st_gid) for path in tmp_path.rglob("*")}
    sudo = (4242, 4243)
    assert owners == {"old": (0, 0), "new": sudo, "logs": sudo, "cdk.log": sudo, "link": sudo, "theirs": (7, 7)}


def test_the_cache_of_jsii_is_where_it_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILES", Path("/proc/checkout"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert module._jsii_cache(tmp_path / "work") == tmp_path / "cache/slipway/jsii"
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/cache")
    assert module._jsii_cache(tmp_path / "work") == tmp_path / "work/jsii"


def test_an_engine_that_hangs_after_its_result_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.2)
    (tmp_path / module.END_FILE).write_text("0", encoding="ascii")
    with subprocess.Popen(["sleep", "60"]) as process:
        module._wait(process, tmp_path, None, lambda: None)
        assert process.returncode == -signal.SIGKILL


def test_a_killed_engine_leaves_a_line_that_names_its_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sh", "-c", f"printf /r/demo-1 >{tmp_path / module.OUTPUT_FILE}; kill -9 $$"]
    options = module.Rehearsal(cloud_only=True)
    with pytest.raises(EnvironmentFault, match=r"^the rehearsal was ended from outside, before its end"):
        module._run_engine(command, options, tmp_path, None, lambda: None)
    assert capsys.readouterr().out == "Logs:   /r/demo-1\n"
