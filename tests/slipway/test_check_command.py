"""``slipway check``: warnings, JSON, --explain, and how fast it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.errors import UsageError
from slipway.explain import explain, explanations
from slipway.preflight.questions import QUESTIONS
from slipway.settings.bad_files import FOLDER as BAD
from slipway.settings.check import REASONS

REPOSITORY = Path(__file__).resolve().parents[2]
SLIPWAY = Path(sys.executable).parent / "slipway"
LIBRARIES = "import pydantic, typer, ruamel.yaml"
# The processor time of importing its libraries. A file with 16 queues takes 2.0 to 2.2 times that, 2.6 on a busy machine.
MOST_TIMES = 2.8
TRIES = 8


def slipway(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(SLIPWAY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=False)


def test_warnings_alone_are_told_and_exit_0() -> None:
    done = slipway("check", str(BAD / "image-slash.yaml"))
    assert done.returncode == 0
    assert done.stderr.splitlines()[0].endswith("[image-slash]")
    assert done.stderr.splitlines()[-1] == f"0 faults, 1 warning in {BAD / 'image-slash.yaml'}"
    assert ": good (demo in us-east-1a; train: 4 x p5.48xlarge)" in done.stdout


def test_faults_and_warnings_in_json() -> None:
    done = slipway("check", "--json", str(BAD / "slurmdbd-munge-key.yaml"))
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["valid"]) == (2, False)
    assert [fault["rule_name"] for fault in answer["faults"]] == ["slurmdbd-munge-key"]
    assert [(warning["rule_name"], warning["severity"]) for warning in answer["warnings"]] == [
        ("slurmdbd-in-clear", "warning")
    ]


def test_explain_needs_no_file() -> None:
    done = slipway("check", "--explain", "capacity-block-static")
    assert done.returncode == 0
    for words in (
        "capacity-block-static (fault; slipway check, offline)",
        "why: ",
        "source: ",
        "queues[0].max_count = 8: a capacity block",
    ):
        assert words in done.stdout
    (row,) = json.loads(slipway("check", "--explain", "capacity-block-static", "--json").stdout)["rules"]
    assert (row["name"], row["kind"], row["severity"]) == ("capacity-block-static", "offline", "fault")


def test_explain_all_lists_every_name() -> None:
    lines = slipway("check", "--explain", "all").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [row.name for row in (*REASONS, *QUESTIONS)]


def test_explain_an_unknown_name() -> None:
    done = slipway("check", "--explain", "capacity-block-statc")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "did you mean capacity-block-static?" in done.stderr
    with pytest.raises(UsageError, match="--explain all lists them"):
        explain("?")


def test_rules_and_questions_have_names_of_their_own() -> None:
    names = [row.name for row in explanations()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_every_question_is_explained(question: object) -> None:
    (row,) = explain(question.name)  # type: ignore[attr-defined]
    assert row.kind == "live"
    assert row.why
    assert row.source


def wide(tmp_path: Path, queues: int) -> Path:
    """A file of so many queues, with comments and every part, as large ones are."""
    head = "name: wide\nregion: us-east-1\nzone: us-east-1a\nos: ubuntu2204\nqueues:\n"
    queue = """\
  - name: train-{number}         # one team
    instance_type: p5.48xlarge
    count: 4
    reservation:
      kind: capacity-block
      id: cr-0123456789abcde{number:02x}
    efa: true
    slurm_settings: {{MaxTime: 2-00:00:00}}
"""
    tail = """\
storage:
  fsx: {capacity_gib: 9600, throughput_mb_s_per_tib: 500}
  associations:
    - {path: /datasets, prefix: datasets/}
observability: {alert_email: operators@example.com}
images: [docker://nvcr.io#nvidia/pytorch:24.01-py3]
"""
    file = tmp_path / "wide.yaml"
    file.write_text(head + "".join(queue.format(number=number) for number in range(queues)) + tail, encoding="utf-8")
    return file


def _processor_seconds(command: list[str]) -> float:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.read() == ""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def test_sixteen_queues_are_checked_at_once(tmp_path: Path) -> None:
    """Processor time next to that of the libraries' imports, the best of tries side by side: the same on a busy machine."""
    checks, imports = [], []
    for _ in range(TRIES):
        checks.append(_processor_seconds([str(SLIPWAY), "check", str(wide(tmp_path, 16))]))
        imports.append(_processor_seconds([sys.executable, "-c", LIBRARIES]))
        if min(checks) <= MOST_TIMES * min(imports):
            break
    assert min(checks) <= MOST_TIMES * min(imports), (checks, imports)


def test_check_imports_nothing_that_it_does_not_need() -> None:
    code = "import sys, slipway.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert {"boto3", "botocore", "jsonschema", "aws_cdk", "jinja2"} & set(done.stdout.split()) == set()
