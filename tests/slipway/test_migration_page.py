"""docs/migration.md: every test that it names exists, and no command is on it twice."""

from __future__ import annotations

import ast
import re

from slipway.places import FILES

PAGE = FILES / "docs/migration.md"
ROW = re.compile(r"\| `(?P<command>.+?)` \| (?P<here>.+) \| `(?P<test>tests/[^`]+)` \|")
# The programs that the guides' commands start with.
PROGRAMS = {
    *(
        "/fsx/containers/list-containers.sh",
        "bash",
        "cat",
        "cd",
        "df",
        "enroot",
        "export",
        "git",
        "ls",
        "mountpoint",
        "pcluster",
        "sbatch",
        "source",
    ),
    *("srun", "ssh", "sudo", "tail", "watch"),
}


def rows() -> list[tuple[str, str]]:
    """Command and test of each row of the tables of commands."""
    matches = map(ROW.fullmatch, PAGE.read_text(encoding="utf-8").splitlines())
    return [(row["command"].replace("\\|", "|"), row["test"]) for row in matches if row]


def test_every_test_on_the_page_exists() -> None:
    named = set(re.findall(r"`(tests/[^`]+)`", PAGE.read_text(encoding="utf-8")))
    assert {test for _, test in rows()} <= named
    missing = []
    for name in sorted(named):
        file, _, function = name.partition("::")
        path = FILES / file
        body = ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []
        if function not in {node.name for node in body if isinstance(node, ast.FunctionDef)}:
            missing.append(name)
    assert missing == []


def test_no_command_is_on_the_page_twice() -> None:
    commands = [command for command, _ in rows()]
    assert len(commands) > 40
    assert sorted(commands) == sorted(set(commands))


def test_the_page_has_a_row_for_each_program_of_the_guides() -> None:
    assert {command.split()[0] for command, _ in rows()} == PROGRAMS
