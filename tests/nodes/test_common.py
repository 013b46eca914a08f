"""common.sh on its own: the parser that never evaluates, retry, whole files, software.tsv."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from slipway.node_steps import KINDS, steps_of

from .conftest import ROOT, bash

NASTY = [
    "plain",
    "",
    "a=b=c",
    "$(touch {canary})",
    "`touch {canary}`",
    "${{HOME}} $HOME",
    "'; touch {canary}; '",
    "\"double\" 'single'",
    "back\\slash \\n \\",
    " spaces around ",
    "# no comment",
    "* ? [a-z]",
    "$(<{canary})",
    "ünïcode ✓",
]


@pytest.mark.parametrize("value", NASTY)
def test_value_is_taken_as_it_is(value: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    value = value.format(canary=canary)
    env = tmp_path / "node.env"
    env.write_text(f"# comment\n\nOTHER=1\nKEY={value}\n", encoding="utf-8")
    done = bash(f"env::load {shlex.quote(str(env))}; env::get KEY")
    assert (done.returncode, done.stdout) == (0, value)
    assert not canary.exists()


@pytest.mark.parametrize(
    "line",
    [
        "key=1",
        "KEY",
        "=1",
        "1KEY=1",
        "KEY =1",
        " KEY=1",
        "KEY=a\tb",
        "KEY=a\rb",
        "KEY=\x1b[31m",
        "export KEY=1",
        "$(id)=1",
    ],
)
def test_bad_line_is_refused_with_its_place(line: str, tmp_path: Path) -> None:
    env = tmp_path / "node.env"
    env.write_bytes(b"GOOD=1\n" + line.encode() + b"\n")
    done = bash(f"env::load {shlex.quote(str(env))}; echo loaded")
    assert done.returncode == 1
    assert f"{env}:2: " in done.stderr
    assert "loaded" not in done.stdout


def test_last_line_of_a_key_holds_and_needs_no_line_end(tmp_path: Path) -> None:
    env = tmp_path / "node.env"
    env.write_text("KEY=first\nKEY=last")
    assert bash(f"env::load {env}; env::get KEY").stdout == "last"


def test_missing_key_is_named(tmp_path: Path) -> None:
    env = tmp_path / "node.env"
    env.write_text("A=1\n")
    done = bash(f"env::load {env}; value=$(env::get WANTED); echo went on")
    assert done.returncode == 1
    assert "has no WANTED" in done.stderr
    assert "went on" not in done.stdout


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "abc", "9999999", "1 2"])
def test_number_out_of_range_is_refused(value: str, tmp_path: Path) -> None:
    env = tmp_path / "node.env"
    env.write_text(f"DAYS={value}\n")
    done = bash(f"env::load {env}; value=$(env::get_number DAYS 30); echo went on")
    assert done.returncode == 1
    assert f"DAYS = '{value}'" in done.stderr


@pytest.mark.parametrize("value", ["fsx", "/", "/a b", "/fsx/../etc", "/fsx;id", "/$(id)", "/fsx/"])
def test_path_of_other_characters_is_refused(value: str, tmp_path: Path) -> None:
    env = tmp_path / "node.env"
    env.write_text(f"FSX_MOUNT={value}\n")
    done = bash(f"env::load {env}; value=$(env::get_path FSX_MOUNT /fsx); echo went on")
    assert done.returncode == 1
    assert "went on" not in done.stdout


def test_retry_repeats_until_it_works_and_then_stops(tmp_path: Path) -> None:
    count = tmp_path / "count"
    done = bash(
        f'sleep() {{ echo pause >&2; }}; again() {{ echo x >>{count}; [ "$(wc -l <{count})" -ge 3 ]; }}; retry::run 5 1 again'
    )
    assert done.returncode == 0
    assert done.stderr.count("pause") == 2


def test_retry_gives_up_with_the_commands_exit_code() -> None:
    done = bash("sleep() { :; }; retry::run 3 1 bash -c 'exit 7'")
    assert done.returncode == 7
    assert done.stderr.count("try ") == 2


@pytest.mark.hosts
def test_put_leaves_equal_files_alone_and_replaces_others_whole(tmp_path: Path) -> None:
    target = tmp_path / "file"
    assert "wrote" in bash(f"echo one | file::put - {target} 0640").stdout
    first = target.stat()
    assert bash(f"echo one | file::put - {target} 0640").stdout == ""
    assert target.stat().st_ino == first.st_ino
    bash(f"echo two | file::put - {target} 0600")
    assert target.read_text() == "two\n"
    assert target.stat().st_ino != first.st_ino
    assert target.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.hosts
def test_put_that_cannot_read_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    done = bash(f"file::put {tmp_path}/absent {target} 0644 || true; echo went on")
    assert done.returncode == 1
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("url", ["ftp://x/y", "file:///etc/passwd", "/etc/passwd", ""])
def test_only_s3_and_http_are_fetched(url: str) -> None:
    done = bash(f"fetch::once '{url}' /dev/null")
    assert done.returncode == 1
    assert "neither s3:// nor http(s)://" in done.stderr


def test_software_table_is_well_formed() -> None:
    lines = [line for line in (ROOT / "nodes/software.tsv").read_text().splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        name, version, sha256, url = line.split("\t")
        assert version in url, name
        assert len(bytes.fromhex(sha256)) == 32
        assert url.startswith(("https://github.com/", "https://nvidia.github.io/libnvidia-container/"))


def test_software_find_tells_versions_apart() -> None:
    done = bash(
        'declare -A pin=(); software::find pin nccl 2.27.7-1; echo "${pin[version]}"; software::find pin nccl 9.9.9-1 || echo none'
    )
    assert done.stdout == "2.27.7-1\nnone\n"


def test_head_comments_are_complete() -> None:
    steps = [path for kind in KINDS for path, _ in steps_of(kind)]
    assert len(steps) >= 13
    for step in steps:
        script = f"for name in needs permission 'how often' 'on failure' timeout takes; do steps::head {step} \"$name\"; echo; done"
        done = bash(script)
        assert done.returncode == 0, done.stderr
        values = done.stdout.splitlines()
        assert values[3] in {"stop", "report"} or values[3].startswith(("stop", "report")), step
        assert step.stat().st_mode & 0o111, step


@pytest.mark.hosts
def test_put_over_a_directory_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken/inside").mkdir(parents=True)
    done = bash(f"echo x | file::put - {tmp_path}/taken 0644")
    assert done.returncode == 1
    assert f"cannot write {tmp_path}/taken" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.hosts
def test_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = bash(f"file::directory {tmp_path}/file/below 0755")
    assert done.returncode == 1
    assert f"cannot write {tmp_path}/file/below" in done.stderr


def test_plain_http_is_fetched_from_a_mirror_without_tls(tmp_path: Path) -> None:
    done = bash(f"fetch::once http://127.0.0.1:1/file {tmp_path}/file")
    assert done.returncode == 7  # curl's exit code of a refused connection: it went there
    assert "127.0.0.1" in done.stderr


def test_head_without_a_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "10-step.sh").write_text("#!/bin/bash\n# Does it.\n# needs: nothing\nset -e\n")
    done = bash(f"steps::limit {tmp_path}/10-step.sh")
    assert done.returncode == 1
    assert "10-step.sh: its head comment has no line '# timeout: ...'" in done.stderr
