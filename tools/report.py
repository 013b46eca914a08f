"""Print the longest functions, the longest files and the repeated blocks of the product: `make check`.

Nothing here fails: the lists are for a reader, who decides whether a length or a repetition is worth a change.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "slipway",
    "stacks",
    "rehearsal",
    "acceptance",
    "gpusuite",
    "nodes",
    "headnode",
    "compute",
    "templates",
    "bench",
    "tools",
)
SHOWN = 8  # rows of each list
BLOCK = 8  # lines of code from which on a repetition is reported
BASH_FUNCTION = re.compile(r"^(?P<name>[\w:]+)\(\) \{\n(?P<body>.*?)^\}", re.MULTILINE | re.DOTALL)
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def files() -> list[Path]:
    """The Python and bash of the product."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    scripts = [path for path in paths if path.suffix in ("", ".py", ".sh") and "__pycache__" not in path.parts]
    return [ROOT / "app.py", *(path for path in scripts if path.suffix or path.read_bytes().startswith(b"#!"))]


def functions(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Lines, place and name of each function."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                yield node.end_lineno - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        return
    for match in BASH_FUNCTION.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield match["body"].count("\n") + 2, f"{path.relative_to(ROOT)}:{line} {match['name']}"


def code_lines(path: Path, text: str) -> list[tuple[int, str]]:
    """Number and code of each line, without comments, blanks and imports."""
    if path.suffix != ".py":
        lines = enumerate((line.strip() for line in text.splitlines()), 1)
        return [(number, line) for number, line in lines if line and not line.startswith("#")]
    words: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE and token.string:
            words[token.start[0]].append(token.string)
    lines_of_code = [(number, " ".join(words[number])) for number in sorted(words)]
    return [(number, line) for number, line in lines_of_code if not line.startswith(("import ", "from "))]


def repeated(texts: dict[Path, str]) -> Iterator[tuple[int, str]]:
    """Lines and both places of each block that is in the product twice, taken as long as it is."""
    lines = {path: code_lines(path, text) for path, text in texts.items()}
    first: dict[tuple[str, ...], tuple[Path, int]] = {}
    for path, here in lines.items():
        index = 0
        while index + BLOCK <= len(here):
            block = tuple(line for _, line in here[index : index + BLOCK])
            other, start = first.setdefault(block, (path, index))
            if (other, start) == (path, index) or (other == path and start + BLOCK > index):
                index += 1
                continue
            length = BLOCK
            there = lines[other]
            while (
                index + length < len(here)
                and start + length < len(there)
                and here[index + length][1] == there[start + length][1]
            ):
                length += 1
            place = f"{path.relative_to(ROOT)}:{here[index][0]}"
            yield length, f"{place} and {other.relative_to(ROOT)}:{there[start][0]}"
            index += length


def show(title: str, rows: list[tuple[int, str]]) -> None:
    """Print the longest rows under a title."""
    print(f"{title}:")
    for length, what in sorted(rows, key=lambda row: -row[0])[:SHOWN]:
        print(f"  {length:5} lines  {what}")


def main() -> int:
    """Print the three lists, and how many lines there are in all."""
    texts = {path: path.read_text(encoding="utf-8") for path in files()}
    show("longest functions", [row for path, text in texts.items() for row in functions(path, text)])
    sizes = [(text.count("\n"), str(path.relative_to(ROOT))) for path, text in texts.items()]
    show(f"longest files (of {len(sizes)}, {sum(size for size, _ in sizes):,} lines together)", sizes)
    show(f"blocks of {BLOCK} lines or more that are there twice", list(repeated(texts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
