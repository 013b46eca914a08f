"""docs/seeds.md: every test that it names is there, and every command of the guides is on it."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs/seeds.md"
GUIDES = Path(os.environ.get("SLIPWAY_SEEDS", REPOSITORY.parent / "shared/seeds"))
NAMES = ("pcluster-observability-runbook.md", "headnode-configuration.md")
ROW = re.compile(r"\| `(?P<command>.+?)` \| (?P<here>.+) \| `(?P<test>tests/[^`]+)` \|")


def rows() -> list[tuple[str, str]]:
    """Command and test of each row of the tables of commands."""
    found = [ROW.fullmatch(line) for line in PAGE.read_text(encoding="utf-8").splitlines()]
    return [(row["command"].replace("\\|", "|"), row["test"]) for row in found if row]


def commands(text: str) -> list[str]:
    """What a reader of a guide types: the lines of its blocks of shell, and those behind a prompt in the others."""
    told: list[str] = []
    language, goes_on = None, False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("```"):
            language = line[3:] if language is None else None
        elif language is not None and (language or line.startswith("$ ") or goes_on):
            if goes_on:
                told[-1] += " " + line
            else:
                told.append(line.removeprefix("$ "))
            goes_on = told[-1].endswith("\\")
            told[-1] = told[-1].removesuffix("\\").rstrip()
    told = [re.sub(r"\s+", " ", re.sub(r"\s+#.*$", "", line)) for line in told]
    no_command = re.compile(r"$|[#{}\"]|https?://|[A-Z_]+=")  # blank, comment, answer, address, list of variables
    return [line for line in dict.fromkeys(told) if not no_command.match(line)]


def test_commands_of_a_guide_are_told_from_answers() -> None:
    text = (
        '```bash\n# first\nsrun -N 2 \\\n     --x=y \\\n     a.py  # now\nA=1\n```\ntext\n```\n  $ cat f | grep "x y"\nanswer\n```\n'
        '```bash\n{\n  "command": "ssh"\n}\nhttp://localhost\n```\nsrun no\n'
    )
    assert commands(text) == ["srun -N 2 --x=y a.py", 'cat f | grep "x y"']


def test_every_test_on_the_page_is_there() -> None:
    named = set(re.findall(r"`(tests/[^`]+)`", PAGE.read_text(encoding="utf-8")))
    assert {test for _, test in rows()} <= named
    missing = []
    for name in sorted(named):
        file, _, function = name.partition("::")
        path = REPOSITORY / file
        body = ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []
        if function not in {node.name for node in body if isinstance(node, ast.FunctionDef)}:
            missing.append(name)
    assert missing == []


def test_no_command_stands_on_the_page_twice() -> None:
    told = [command for command, _ in rows()]
    assert len(told) > 40
    assert sorted(told) == sorted(set(told))


@pytest.mark.parametrize("name", NAMES)
def test_every_command_of_the_guides_is_on_the_page(name: str) -> None:
    guide = GUIDES / name
    if not guide.is_file():
        pytest.skip("the guides are not part of the repository: SLIPWAY_SEEDS names their folder")
    wanted = commands(guide.read_text(encoding="utf-8"))
    assert len(wanted) > 15
    told = {command for command, _ in rows()}
    assert [command for command in wanted if command not in told] == []
