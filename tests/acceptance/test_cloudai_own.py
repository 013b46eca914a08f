"""Own templates: the page docs/cloudai.md followed word by word on a real Slurm, and every fault of such a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from acceptance_runs import REPOSITORY, LoopbackSlurm

from acceptance.cli import main
from acceptance.cloudai import load
from acceptance.cloudai.own import own_results
from tests.cloudai_toml import SRUN

SYSTEM = """name = "s"
scheduler = "{scheduler}"
install_path = "install"
output_path = "results"
"""
SLURM = """default_partition = "train"
mpi = "none"
extra_sbatch_args = ["--no-requeue"]
[[partitions]]
name = "train"
"""
# Stands in for the page's program: it prints its words.
PROGRAM = """#!/bin/bash
printf '<%s>' "$@"
printf '\\nthroughput: %s GB/s\\nall good\\n' "${3#--size=}"
"""
TEMPLATE = """[template]
name = "MyTest"
command = ["my_test", "{a}"]
[arguments.a]
type = "text"
"""
Capture = pytest.CaptureFixture[str]


def of_the_page() -> tuple[dict[str, str], list[str]]:
    """The files and the commands with their output of the section on own templates."""
    page = (REPOSITORY / "docs/cloudai.md").read_text("utf-8").split("### Own templates", 1)[1].split("\n## ", 1)[0]
    files = dict(re.findall(r"```toml\n# (\S+)\n(.*?)```", page, re.DOTALL))
    return files, re.findall(r"```console\n(.*?)```", page, re.DOTALL)[0].splitlines()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for path, text in of_the_page()[0].items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    (tmp_path / "myconfig/system.toml").write_text(SYSTEM.format(scheduler="slurm") + SLURM)
    (tmp_path / "bin").mkdir()
    for name, text in (("srun", SRUN), ("my_test", PROGRAM)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    return tmp_path


@pytest.mark.hosts
def test_the_page_is_followed(
    tree: Path, slurm: LoopbackSlurm, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    slurm.wait_idle()
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    _, (verify, summary, run) = of_the_page()
    assert main(verify.removeprefix("$ acceptance ").split()) == 0
    assert capsys.readouterr().out == f"{summary}\n"
    assert main([*run.removeprefix("$ acceptance ").split(), "--history", "history.sqlite"]) == 0
    folder = next((tree / "results").iterdir())
    assert (folder / "Tests.1/0/2/stdout.txt").read_text().splitlines()[0] == "<--an-arg><it's $(data)><--size=16>"
    script = (folder / "Tests.1/0/1/cloudai_sbatch_script.sh").read_text()
    assert "--container-image=nvcr.io#nvidia/pytorch:24.02-py3" in script
    report = json.loads((folder / "report.json").read_text())
    assert [test["verdict"] for test in report["tests"]] == ["pass", "pass"]
    assert [test["figures"][0]["value"] for test in report["tests"]] == [8, 16]
    assert main(["generate-report", "--result-dir", str(folder)]) == 0  # from the folder alone
    assert [path.name for path in map(Path, load.load_tree([tree / "myconfig"]).used)].count("my_template.toml") == 1


def test_an_own_template_of_one_machine_and_written_in_the_scenario(tree: Path, capsys: Capture) -> None:
    (tree / "myconfig/system.toml").write_text(SYSTEM.format(scheduler="standalone"))
    text = (tree / "myconfig/tests/my_template.toml").read_text()
    (tree / "myconfig/tests/my_template.toml").write_text(
        re.sub(r"\[arguments.docker_image_url\].*?\n\n", "", text, flags=re.DOTALL)
    )
    inline = 'name = "x"\ndescription = "d"\ntest_template_name = "MyTest"\ncmd_args = {an_arg = "$HOME `id`"}\n'
    (tree / "myconfig/scenario.toml").write_text(f'name = "mine"\n[[Tests]]\nid = "one"\n{inline}')
    files = ["--system-config", "myconfig/system.toml", "--test-scenario", "myconfig/scenario.toml"]
    assert main(["run", *files, "--tests-dir", "myconfig/tests", "--history", "h.sqlite"]) == 0
    stdout = next((tree / "results").glob("*/one/0/stdout.txt")).read_text()
    assert stdout.startswith(f"<--an-arg><{Path.home()} `id`><--size=8>\n")


def test_a_program_that_did_not_print_what_the_template_asks_for(tmp_path: Path) -> None:
    own = {"success": "all good", "figures": [{"name": "n", "after": "n=", "unit": "s", "higher_is_better": False}]}
    (tmp_path / "stdout.txt").write_text("n=x\nall goo\n")
    figures, checks = own_results(own, tmp_path)
    assert figures == []
    assert [check.message for check in checks] == [
        "stdout.txt has no number after 'n=', the n: the program ended well, but left no result",
        "stdout.txt does not have the text 'all good'",
    ]
    assert {check.outcome for check in checks} == {"fail"}


@pytest.mark.parametrize(
    ("line", "value"),
    [("loss: -1.5e-1", -0.15), ("loss = +2,", 2), ("loss 1,234.5", None), ("loss 1.2.3", None), ("loss 1e999", None)],
)
def test_numbers_of_figures(line: str, value: float | None, tmp_path: Path) -> None:
    own = {"success": "", "figures": [{"name": "n", "after": "loss", "unit": "", "higher_is_better": False}]}
    (tmp_path / "stdout.txt").write_text(f"{line}\n")
    figures, checks = own_results(own, tmp_path)
    assert [figure.value for figure in figures] == ([] if value is None else [value])
    assert len(checks) == (value is None)


def test_a_variable_of_the_job_is_no_argument(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(TEMPLATE.replace('"{a}"', '"${HOME}/{a}"'))
    assert load.load_tree([tmp_path]).remarks.errors == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('"MyTest"', '"sleep"'),
            '2:1: template.name = "sleep": is the name of a template of CloudAI. Hint: give it an',
        ),
        (
            ('"MyTest"', '"a b"'),
            "2:1: template.name = \"a b\": must be a letter, then letters, digits and '_'. Hint: ren",
        ),
        (
            ('"{a}"', '"{b}"'),
            '3:23: template.command[1] = "{b}": b is no argument of this file. Hint: add [arguments.b]',
        ),
        (('"{a}"', '"x"'), '4:1: arguments.a: is in no word of command. Hint: write "{a}" into it'),
        (
            ('"text"', '"txt"'),
            '5:1: arguments.a.type = "txt": must be one of text, whole, number, boolean. Hint: did you m',
        ),
        (('"text"', '"whole"\ndefault = "x"'), '6:1: arguments.a.default = "x": must be a whole number'),
        (('["my_test", "{a}"]', "[]"), "3:1: template.command = []: must be a list of 1 or more. Hint: write [...]"),
        (
            ("[arguments.a]", '[arguments.docker_image_url]\ntype = "whole"\n[arguments.a]'),
            "5:1: arguments.docker_image_u",
        ),
        (('"my_test"', '" "'), '3:12: template.command[0] = " ": must be a program. Hint: write its name or path'),
        (
            ('"text"', '"text"\n[[figures]]\nname = "n"\nafter = "x"\n[[figures]]\nname = "n"\nafter = "y"'),
            '10:1: figures[1].name = "n": is also the name of another figure. Hint: give it another name',
        ),
        (
            ("command", "comand"),
            '3:1: template.comand = ["my_test", "{a}"]: is not a field of this table. Hint: did you me',
        ),
    ],
)
def test_faults_of_the_file(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(TEMPLATE.replace(*change))
    said = [remark.text() for remark in load.load_tree([tmp_path]).remarks.errors]
    assert any(one.startswith(f"{tmp_path}/t.toml:{message}") for one in said), said


def test_two_templates_of_a_name_and_tests_of_them(tmp_path: Path) -> None:
    test = 'name = "x"\ndescription = "d"\ntest_template_name = "{}"\n[cmd_args]\n{}\n'
    for name, text in {
        "a": TEMPLATE,
        "b": TEMPLATE,
        "t": test.format("MyTest", "b = 1"),
        "u": test.replace('"x"', '"u"').format("MyTes", ""),
    }.items():
        (tmp_path / f"{name}.toml").write_text(text)
    said = [remark.text().replace(f"{tmp_path}/", "") for remark in load.load_tree([tmp_path]).remarks.errors]
    assert said == [
        'b.toml:2:1: template.name = "MyTest": is also the name of a.toml. Hint: give each template its own name',
        "t.toml:4:1: cmd_args.a: is missing. Hint: add it",
        "t.toml:5:1: cmd_args.b = 1: is not a field of this table. Hint: remove it",
        'u.toml:3:1: test_template_name = "MyTes": is not a template of CloudAI. Hint: did you mean MyTest?',
    ]
