"""Coverage of the node scripts' bash: the scanner that finds what can run, and the judgement over all tests here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from . import coverage_bash, host
from .conftest import ROOT

UNCOVERED = Path(__file__).with_name("uncovered.tsv")
TABLE = ROOT / ".cache/bash-coverage.txt"

SCRIPT = r"""#!/bin/bash
f() { # a function's head cannot run   -
  local a=$1 \
    b="two
lines"
  case $a in
    *[~%#\*] | down) ;;
    up) echo up ;;
    other)
      echo other
      ;;
  esac
}
ARRAY=(
  'one'   # comment
  "two $(f up)"
)
if ! {
  [ -e /nonexistent ] &&
    f up
}; then
  f other
else
  f never
fi
cat <<TEXT >/dev/null
fi is text here $(f other)
TEXT
while read -r line; do
  [[ $line == a &&
    -n $line ]] || f never
done < <(printf 'a\n')
{
  f up
} | cat | sort
g() { f up; }
: "${x:=${y:-#}}" $((1 << 2)) 'it''s' $'a\'b'
for ((i = 0; i < 1; i++)); do :; done
(
  f up
)
[ 1 = 1 ] || {
  f never
}
"""
CAN_RUN = [3, 6, 8, 10, 14, 19, 20, 22, 24, 26, 29, 30, 34, 35, 36, 37, 38, 40, 42, 43]


def test_units_are_the_lines_that_hold_a_command() -> None:
    assert [unit.first for unit in coverage_bash.units(SCRIPT)] == CAN_RUN


def test_bash_reports_every_unit_that_ran_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "headnode").mkdir()
    script = tmp_path / "headnode/script.sh"
    script.write_text(SCRIPT)
    (tmp_path / "env.sh").write_text(Path(__file__).with_name("trace.sh").read_text())
    trace = tmp_path / "trace"
    trace.touch()
    env = {"PATH": "/usr/bin:/bin", "BASH_ENV": str(tmp_path / "env.sh")}
    done = subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=True)
    assert "+@@" not in done.stdout + done.stderr
    table = tmp_path / "uncovered.tsv"
    rows = (
        "f never\treason",
        "gone\treason",
        "echo other\treason",
        "f other\tsometimes: reason",
        "lost\tsometimes: reason",
    )
    table.write_text("".join(f"headnode/script.sh\t{row}\n" for row in rows))
    verdict = coverage_bash.judge(tmp_path, trace, table)
    # Behind a condition that is not met, and in a function that is never called; the others that never run are excluded.
    assert [unit.first for unit in verdict.missed[Path("headnode/script.sh")]] == [20, 36]
    assert verdict.excluded == 2
    assert verdict.unused == [f"headnode/script.sh: {text}" for text in ("gone", "echo other", "lost")]
    assert verdict.percent == pytest.approx(100 * (len(CAN_RUN) - 4) / len(CAN_RUN))


def test_a_trace_without_a_run_covers_nothing(tmp_path: Path) -> None:
    (tmp_path / "trace").touch()
    assert coverage_bash.judge(ROOT, tmp_path / "trace", UNCOVERED).percent == 0


@pytest.mark.parametrize("text", ["x=$(\n  f 1\n  f 2\n)\n", "echo 'open\n", "cat <<END\nopen\n", "A=(\n"])
def test_text_that_cannot_be_followed_is_a_fault(text: str) -> None:
    with pytest.raises(ValueError, match="line "):
        coverage_bash.units(text)


def test_exclusion_without_a_reason_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("a.sh\ttext\n")
    with pytest.raises(ValueError, match="table:1: not FILE"):
        coverage_bash.exclusions(tmp_path / "table")


def partial(config: pytest.Config, items: list[pytest.Item]) -> str:
    """Why this run is not one of all tests here, or an empty text."""
    if config.option.keyword or config.option.markexpr or any("::" in argument for argument in config.args):
        return "only some of the tests were asked for"
    modules = {item.path for item in items}
    left_out = sorted(path.name for path in Path(__file__).parent.glob("test_*.py") if path not in modules)
    return f"{', '.join(left_out)} did not run" if left_out else host.missing()


@pytest.mark.hosts
def test_enough_of_the_bash_ran(request: pytest.FixtureRequest, bash_trace: Path) -> None:
    """After all other tests here (conftest.py): at least 95 % of the lines ran, each of the others has its reason."""
    reason = partial(request.config, request.session.items)
    if reason:
        pytest.skip(reason)
    verdict = coverage_bash.judge(ROOT, bash_trace, UNCOVERED)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(f"{verdict.table()}\n")
    assert verdict.unused == [], "uncovered.tsv names lines that a test runs, or that are gone"
    assert verdict.missed == {}, f"test these lines, or give each a reason in uncovered.tsv\n{verdict.table()}"
    assert verdict.percent >= coverage_bash.LEAST_PERCENT, f"\n{verdict.table()}"
