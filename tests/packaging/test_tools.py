"""The tools of `make check` find what they are there for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import circles  # noqa: E402 - a folder of programs, not a package
import report  # noqa: E402


def test_a_circle_of_imports_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rounds").mkdir()
    for name, text in (
        ("__init__", ""),
        ("a", "from rounds import b\n"),
        ("b", "def late():\n    from rounds import a\n"),
    ):
        (tmp_path / "rounds" / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert sorted(set(circles.circle("rounds"))) == ["rounds.a", "rounds.b"]
    (tmp_path / "rounds/b.py").write_text("import json\n", encoding="utf-8")
    assert circles.circle("rounds") == []


def test_a_circle_of_packages_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No two modules import each other, but their packages do."""
    for name, text in (
        ("pairs/__init__.py", ""),
        ("pairs/one/__init__.py", ""),
        ("pairs/one/facts.py", ""),
        ("pairs/one/work.py", "from pairs.two import use\n"),
        ("pairs/two/__init__.py", ""),
        ("pairs/two/use.py", "from pairs.one import facts\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert sorted(set(circles.circle("pairs"))) == ["pairs.one", "pairs.two"]
    monkeypatch.setattr(circles, "PAIRS", ({"pairs.one", "pairs.two"},))
    assert circles.circle("pairs") == []


def test_a_repeated_block_and_a_long_function_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "ROOT", tmp_path)
    body = "".join(f"    x{number} = compute({number})\n" for number in range(10))
    texts = {tmp_path / "a.py": f"def one():\n{body}", tmp_path / "b.py": f"# new\ndef two():\n{body}"}
    assert list(report.repeated(texts)) == [(10, "b.py:3 and a.py:2")]
    assert list(report.functions(tmp_path / "a.py", texts[tmp_path / "a.py"])) == [(11, "a.py:1 one")]
    assert list(report.functions(tmp_path / "c.sh", "a::b() {\n  true\n}\n")) == [(3, "c.sh:1 a::b")]


@pytest.mark.slow
def test_the_report_of_the_product_fails_nothing() -> None:
    ended = subprocess.run([sys.executable, str(ROOT / "tools/report.py")], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count(" lines  ") >= 16


def test_dead_code_is_found(tmp_path: Path) -> None:
    (tmp_path / "dead.py").write_text("def never():\n    return 1\n", encoding="utf-8")
    command = [sys.executable, "-m", "vulture", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 3
    assert "unused function 'never'" in ended.stdout
