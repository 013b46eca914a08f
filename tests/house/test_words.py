"""Plain technical English: words that this project's prose does not use, over code, messages and documents."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTEAD = {
    r"stands?|stood": "is, are",
    r"held against": "compared with",
    r"told|tells?": "report, print, say",
    r"[Ww]hoever|[Ss]omebody|[Nn]obody": "name the subject",
    r"is none": "is not one",
    r"beside": "next to, in addition to",
}
RIGHT = re.compile(r"stand-?ins?\b|standing|stand-alone|\.tell\(|(?<=user )nobody|nobody(?=['\":])")
FILES = (
    *("*.py", "*.sh", "*.md", "*.toml", "*.j2", "*.tsv", "Makefile", "clusters/*.yaml", "slipway/settings/bad"),
    *(":!tests", ":!CHANGELOG.md", ":!slipway/data"),
)


def prose() -> list[Path]:
    """The files of the repository with text that a person reads; not the data of tests."""
    command = ["git", "ls-files", "--", *FILES]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def findings(text: str, words: str) -> list[int]:
    """The lines of `text` that have one of `words` in another meaning than the ones in RIGHT."""
    pattern = re.compile(rf"\b(?:{words})\b")
    return [number for number, line in enumerate(text.splitlines(), 1) if pattern.search(RIGHT.sub("", line))]


@pytest.mark.parametrize("words", INSTEAD)
def test_no_prose_has_these_words(words: str) -> None:
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in prose()
        for number in findings(path.read_text(encoding="utf-8", errors="replace"), words)
    ]
    assert places == [], f"{len(places)} lines have {words}; write: {INSTEAD[words]}"


def test_the_search_finds_a_word_and_leaves_a_stand_in() -> None:
    assert findings("a stand-in\nit stands here\nNobody\nunderstands\n", r"stands?|[Nn]obody") == [2, 3]
    assert len(prose()) > 200


def long_lines(text: str) -> list[int]:
    """The lines of a document that are longer than 120 characters; not those of tables, headings, code and images."""
    found, code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        if len(line) > 120 and not code and not line.startswith(("|", "#", "    ", "!")):
            found.append(number)
    return found


def test_lines_of_documents_have_120_characters_at_most() -> None:
    assert long_lines(f"{'a ' * 70}\n| {'b ' * 70}\n```\n{'c ' * 70}\n```\n{'d ' * 70}") == [1, 6]
    pages = [path for path in (*prose(), ROOT / "CHANGELOG.md") if path.suffix == ".md"]
    places = [f"{path.relative_to(ROOT)}:{line}" for path in pages for line in long_lines(path.read_text("utf-8"))]
    assert places == []


def test_each_part_of_the_product_is_in_the_architecture() -> None:
    """The table names each folder, and each module directly in slipway/; `*_page.py` is a row for all pages."""
    table = (ROOT / "docs/architecture.md").read_text("utf-8").split("## The parts")[1].split("\n\n## ")[0]
    named = re.findall(r"`([^`]+)`", table)
    command = ["git", "ls-files", "--", "slipway", "acceptance", "rehearsal"]
    files = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    folders = {file.split("/")[1] for file in files if file.count("/") > 1}
    modules = {Path(file).name for file in files if re.fullmatch(r"slipway/[a-z]\w*\.py", file)}
    missing = {f"{name}/" for name in folders if not any(each.endswith(f"{name}/") for each in named)}
    missing |= {
        name for name in modules if not name.endswith("_page.py") and not any(each.endswith(name) for each in named)
    }
    assert missing == set()
