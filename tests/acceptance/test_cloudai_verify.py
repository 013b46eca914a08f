"""CloudAI's files: both dialects are read, and each fault has place, value, rule and repair, all at once."""

from __future__ import annotations

import io
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from acceptance_runs import make_scenario
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptance.__main__ import main as program
from acceptance.cli import main
from acceptance.cloudai.hostlist import NodesError, choose, expand
from acceptance.cloudai.load import load_tree
from acceptance.cloudai.remarks import Remarks
from acceptance.cloudai.sweep import dimensions, points
from acceptance.cloudai.time_limit import seconds_of, slurm_time
from acceptance.cloudai.toml_file import TomlFile
from acceptance.scenario import check_scenario
from acceptance.scenario.runs import TestDefinition, TestRun, as_sweep, as_test_scenario, bytes_of
from tests.cloudai_toml import bash_file

DATA = Path(__file__).parent / "data/cloudai"
SYSTEM = """\
name = "s"
scheduler = "slurm"
install_path = "i"
output_path = "o"
default_partition = "p"
[[partitions]]
name = "p"
"""
RING = """\
name = "ring"
description = "d"
test_template_name = "NcclTest"
[cmd_args]
docker_image_url = "img"
"""
ONE = """\
name = "n"
[[Tests]]
id = "a"
test_name = "ring"
"""


def remarks(folder: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return [remark.text().replace(f"{folder}/", "") for remark in load_tree([folder]).remarks.all]


def test_no_remark_repeats_a_secret(tmp_path: Path) -> None:
    more = 'api_token = "s3cret"\n[data_repository]\ntoken = "s3cret"\nendpoint = ["https://ann:s3cret@host/"]\n'
    lines = remarks(tmp_path, {"system.toml": SYSTEM.replace("[[", f"{more}[[", 1)})
    assert "s3cret" not in "".join(lines)
    assert "system.toml:6:1: api_token = (not shown): is not a field of this table. Hint: remove it" in lines
    assert any('data_repository.endpoint = ["https://host/"]: must be a text' in line for line in lines)


OPEN = (
    "has a placeholder in <>, in whose place the guide wants a value of your own."
    " Hint: write that value; `sinfo` lists partitions and nodes"
)
IMAGE = "nvcr.io/nvidia/pytorch:24.02-py3"
# A file that is added to RING (ring.toml), and the whole line that it must give. Lines and columns count from 1.
SYSTEMS = [
    (
        SYSTEM + "account = 'a'\n",
        'x.toml:8:1: partitions[0].account = "a": is not a field of this table. Hint: remove it',
    ),
    (
        SYSTEM.replace("install_path", "instal_path"),
        'x.toml:3:1: instal_path = "i": is not a field of this table. Hint: did you mean install_path?',
    ),
    (SYSTEM.replace("install_path", "instal_path"), "x.toml:1:1: install_path: is missing. Hint: add it"),
    (
        SYSTEM.replace('"p"', '"<YOUR PARTITION NAME>"'),
        f'x.toml:5:1: default_partition = "<YOUR PARTITION NAME>": {OPEN}',
    ),
    (
        SYSTEM.replace('"p"', '"<YOUR PARTITION NAME>"'),
        f'x.toml:7:1: partitions[0].name = "<YOUR PARTITION NAME>": {OPEN}',
    ),
    (SYSTEM.replace('"o"', '"/fsx/<user>/out"'), f'x.toml:4:1: output_path = "/fsx/<user>/out": {OPEN}'),
    (
        SYSTEM.replace('"slurm"', '"slrum"'),
        'x.toml:2:1: scheduler = "slrum": must be one of slurm, standalone, kubernetes, runai, lsf.'
        " Hint: did you mean slurm?",
    ),
    (
        SYSTEM.replace('default_partition = "p"', 'default_partition = "q"'),
        'x.toml:5:1: default_partition = "q": is not one of the partitions of this file. Hint: its partitions: p',
    ),
    (
        SYSTEM.replace('"i"', '"~/x"'),
        'x.toml:3:1: install_path = "~/x": must not begin with ~, which no shell expands here. Hint: write the whole'
        ' path: "/home/NAME/..."',
    ),
    (
        "gpus_per_node = 'eight'\n" + SYSTEM,
        'x.toml:1:1: gpus_per_node = "eight": must be a whole number from 1 to 1024. Hint: correct the number',
    ),
    (
        "cache_docker_images_locally = 'yes'\n" + SYSTEM,
        'x.toml:1:1: cache_docker_images_locally = "yes": must be true or false. Hint: write true or false',
    ),
    (
        'extra_sbatch_args = ["--a\\n#SBATCH --b"]\n' + SYSTEM,
        'x.toml:1:22: extra_sbatch_args[0] = "--a\\n#SBATCH --b": must be one option of sbatch on one line.'
        ' Hint: write "--option=value"',
    ),
    (
        SYSTEM + '[[partitions.groups]]\nname = "g"\nnodes = ["n[2-1]"]\n',
        'x.toml:10:10: partitions[0].groups[0].nodes[0] = "n[2-1]": has the range 2-1, which ends before it begins.'
        " Hint: write 1-2",
    ),
    (
        SYSTEM + '[global_env_vars]\n"A B" = "1"\n',
        'x.toml:9:1: global_env_vars."A B" = "1": has a name that cannot be used here.'
        " Hint: rename it: letters, digits and _",
    ),
    (
        SYSTEM + "[reports.status]\nenabled = true\n",
        "x.toml:9:1: reports.status.enabled = true: is not a field of this table. Hint: did you mean enable?",
    ),
]
TESTS = [
    (
        "nam = 'x'",
        "x.toml:1:1: is neither a system, a test nor a scenario. Hint: a system has scheduler, a test"
        " test_template_name, a scenario [[Tests]], an own template [template]",
    ),
    ("tests = 1", "x.toml:1:1: is neither a system, a test nor a scenario. Hint: did you mean Tests for tests?"),
    ("a = [1\nb = 2", "x.toml:2:1: is not TOML: unclosed array. Hint: correct the file at this place"),
    ("a = 1\na = 2", "x.toml:2:1: is not TOML: cannot overwrite a value. Hint: correct the file at this place"),
    (RING, 'x.toml:1:1: name = "ring": is also the name of ring.toml. Hint: give each test of a folder its own name'),
    (
        RING.replace("NcclTest", "Nccltest"),
        'x.toml:3:1: test_template_name = "Nccltest": is not a template of CloudAI. Hint: did you mean NcclTest?',
    ),
    (
        RING.replace("NcclTest", "Fio"),
        'x.toml:3:1: test_template_name = "Fio": is a template of CloudAI (the program fio; `acceptance storage`'
        " measures storage) for which no command is generated here. Hint: run it as SlurmContainer or BashCmd, or"
        " with CloudAI",
    ),
    (
        RING + 'subtest_name = "all_reduce"',
        'x.toml:6:1: cmd_args.subtest_name = "all_reduce": must be COLLECTIVE_perf_mpi, COLLECTIVE_perf, or the'
        " absolute path of such a program in the image. Hint: did you mean all_reduce_perf?",
    ),
    (
        RING + "minbyte = 1",
        "x.toml:6:1: warning: cmd_args.minbyte = 1: is passed on as an option of the program."
        " Hint: did you mean minbytes?",
    ),
    (
        RING + 'maxbytes = "4 GB"',
        'x.toml:6:1: cmd_args.maxbytes = "4 GB": must be a size in bytes, such as 128, 8M or 16G. Hint: write "8M"',
    ),
    (
        RING + "iters = [1, 'x']",
        'x.toml:6:13: cmd_args.iters[1] = "x": must be a whole number, 0 or more. Hint: correct the number',
    ),
    (RING + "iters = []", "x.toml:6:1: cmd_args.iters = []: must be a list of 1 or more. Hint: write [...]"),
    (
        RING.replace("[cmd_args]", 'extra_cmd_args = "2 --x"\n[cmd_args]'),
        'x.toml:4:1: extra_cmd_args = "2 --x": must be a table. Hint: write a [table]',
    ),
    (
        "dse_excluded_args = ['iters']\n" + RING,
        'x.toml:1:22: dse_excluded_args[0] = "iters": must be a path below cmd_args. Hint: write "cmd_args.NAME"',
    ),
    (
        'agent = "bo"\n' + RING,
        'x.toml:1:1: agent = "bo": is an agent that is not run here: a sweep is a grid. Hint: write grid_search',
    ),
    (
        'extra_container_mounts = ["/a:/a,/b:/b"]\n' + RING,
        'x.toml:1:27: extra_container_mounts[0] = "/a:/a,/b:/b": must be SOURCE:TARGET[:OPTIONS] without a comma.'
        ' Hint: write "/data:/data"',
    ),
    (
        RING + '[nsys]\nouput = "x"',
        'x.toml:7:1: nsys.ouput = "x": is not a field of this table. Hint: did you mean output?',
    ),
    (
        RING.replace("NcclTest", "Sleep") + "second = 5",
        "x.toml:6:1: cmd_args.second = 5: is not a field of this table. Hint: did you mean seconds?",
    ),
    (
        RING + '[extra_env_vars]\nHOSTS = "$(scontrol show hostnames)"',
        'x.toml:7:1: warning: extra_env_vars.HOSTS = "$(scontrol show hostnames)": has a command of the shell, which'
        " is passed on as text and not run. Hint: write the value itself; $NAME is replaced in the job",
    ),
    (
        RING.replace("docker_image_url", '"iters"').replace('"img"', '"9"').replace("ring", "old"),
        f"x.toml:4:1: warning: cmd_args: has no docker_image_url, which NcclTest needs since 2025. Hint: write"
        f' docker_image_url = "{IMAGE}", the image of 2024, or another one',
    ),
]
SCENARIOS = [
    (
        ONE + "nmu_nodes = 2",
        "x.toml:5:1: Tests[0].nmu_nodes = 2: is not a field of this table. Hint: did you mean num_nodes?",
    ),
    (
        ONE.replace('"ring"', '"rign"'),
        'x.toml:4:1: Tests[0].test_name = "rign": is not the name of a test that was read. Hint: did you mean ring?',
    ),
    (
        ONE.replace('test_name = "ring"', ""),
        "x.toml:2:1: Tests[0]: has no test_name, and of a test that is written"
        " here it lacks name, description, test_template_name. Hint: name a test with test_name, or write these fields",
    ),
    (
        ONE + "num_nodes = 0",
        "x.toml:5:1: Tests[0].num_nodes = 0: must be a whole number from 1 to 100000. Hint: correct the number",
    ),
    (
        ONE + 'test_template_name = "Sleep"',
        'x.toml:5:1: Tests[0].test_template_name = "Sleep": must not be given next'
        " to test_name, which names a test with a template. Hint: remove one of the two",
    ),
    (
        ONE + "extra_cmd_args = {}",
        "x.toml:5:1: Tests[0].extra_cmd_args = {}: is not a field of a test in a scenario."
        " Hint: write it into the test's file",
    ),
    (
        ONE + 'time_limit = "soon"',
        'x.toml:5:1: Tests[0].time_limit = "soon": must be a time limit: HH:MM:SS,'
        ' D-HH:MM:SS, or a number with s, m, h, d or w. Hint: write "00:20:00" for 20 minutes',
    ),
    (
        ONE + 'time_limit = "10:30"',
        'x.toml:5:1: warning: Tests[0].time_limit = "10:30": is read as hours:minutes'
        ' (10:30:00), as CloudAI does; sbatch would read 00:10:30. Hint: write "10:30:00"',
    ),
    (
        ONE + 'time_limit = "90"',
        'x.toml:5:1: warning: Tests[0].time_limit = "90": is read as Slurm reads it; CloudAI'
        ' refuses this form. Hint: write "01:30:00"',
    ),
    (
        ONE + 'nodes = ["p:g:0"]',
        'x.toml:5:10: Tests[0].nodes[0] = "p:g:0": asks for no node. Hint: write a number from 1, or max_avail',
    ),
    (
        ONE + 'nodes = ["p:g"]',
        'x.toml:5:10: Tests[0].nodes[0] = "p:g": is not a name of a node, a range of names, or'
        ' PARTITION:GROUP:N. Hint: write "gpu-1", "gpu-[01-16]", "PARTITION:GROUP:4" or "PARTITION:GROUP:max_avail"',
    ),
    (
        ONE + 'num_nodes = 2\nnodes = ["a"]',
        "x.toml:5:1: warning: Tests[0].num_nodes = 2: is not used: nodes names them. Hint: remove one of the two",
    ),
    (
        ONE + '[Tests.cmd_args]\niters = "x"',
        'x.toml:6:1: Tests[0].cmd_args.iters = "x": must be a whole number, 0 or more. Hint: correct the number',
    ),
    (ONE + ONE[11:], 'x.toml:6:1: Tests[1].id = "a": is already the id of Tests[0]. Hint: give each test its own id'),
    (
        ONE + '[[Tests.dependencies]]\ntype = "start_post_comp"\nid = "a"',
        "x.toml:7:1: Tests[0].dependencies[0].id ="
        ' "a": is the test\'s own id. Hint: name another test, or remove the dependency',
    ),
    (
        ONE + '[[Tests.dependencies]]\ntype = "start_post_comp"\nid = "A"',
        'x.toml:7:1: Tests[0].dependencies[0].id = "A": is not the id of a test of this scenario. Hint: correct it',
    ),
    (
        ONE + '[[Tests.dependencies]]\ntype = "start_post_cmp"\nid = "a"',
        "x.toml:6:1: Tests[0].dependencies[0].type ="
        ' "start_post_cmp": must be one of start_post_comp, start_post_init, end_post_comp. Hint: did you mean'
        " start_post_comp?",
    ),
    ('name = "n"\nTests = []', "x.toml:2:1: Tests = []: must be a list of 1 or more. Hint: write [...]"),
    (
        'name = "n"\n[Tests.1]\nname = "ring"',
        'x.toml:2:1: Tests = ["1"]: must be a list of tables. Hint: write each test as [[Tests]] with its id',
    ),
    (
        'pre_test = "gate"\n' + ONE,
        'x.toml:1:1: pre_test = "gate": is not the name of a hook\'s scenario. Hint: put its scenario into conf/hook',
    ),
]


@pytest.mark.parametrize(("text", "line"), [*SYSTEMS, *TESTS, *SCENARIOS])
def test_each_fault_has_place_value_rule_and_repair(text: str, line: str, tmp_path: Path) -> None:
    assert line in remarks(tmp_path, {"ring.toml": RING, "x.toml": text})


def test_what_the_faults_are_made_of_has_none(tmp_path: Path) -> None:
    assert remarks(tmp_path, {"s.toml": SYSTEM, "ring.toml": RING, "x.toml": ONE}) == []


def dependencies(*edges: str) -> str:
    """'a<b c' is: a depends on b and on c."""
    text = 'name = "n"\n'
    for edge in edges:
        name, _, others = edge.partition("<")
        text += f'[[Tests]]\nid = "{name}"\ntest_name = "ring"\n'
        for other in others.split():
            text += f'[[Tests.dependencies]]\ntype = "start_post_comp"\nid = "{other}"\n'
    return text


def test_a_placeholder_is_named_where_a_command_may_redirect(tmp_path: Path) -> None:
    texts = {"image": RING.replace('"img"', '"<IMAGE>"'), "command": bash_file("c", "sort <in >out")}
    lines = remarks(tmp_path, {f"{name}.toml": text for name, text in texts.items()})
    assert lines == [f'image.toml:5:1: cmd_args.docker_image_url = "<IMAGE>": {OPEN}']


def test_a_circle_is_named(tmp_path: Path) -> None:
    text = dependencies("a<b", "b<c", "c<a", "d<a")
    assert remarks(tmp_path, {"ring.toml": RING, "x.toml": text}) == [
        'x.toml:5:1: Tests[0].dependencies = ["b"]: is part of a circle of dependencies: a -> b -> c -> a.'
        " Hint: remove one of them"
    ]


def test_two_paths_to_one_test_are_no_circle(tmp_path: Path) -> None:
    assert remarks(tmp_path, {"ring.toml": RING, "x.toml": dependencies("a<b c", "b<d", "c<d", "d<")}) == []


def test_a_dependency_that_is_given_twice(tmp_path: Path) -> None:
    text = dependencies("a<b b", "b<")
    rule = "is given twice with the type start_post_comp. Hint: remove one"
    assert remarks(tmp_path, {"ring.toml": RING, "x.toml": text}) == [
        f'x.toml:10:1: Tests[0].dependencies[1].id = "b": {rule}'
    ]


def test_all_faults_of_all_files_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {
        "s.toml": SYSTEM + "x = 1\n",
        "ring.toml": RING + "iters = -1\n",
        "x.toml": ONE + "y = 1\n",
    }.items():
        (tmp_path / name).write_text(text)
    assert main(["verify-configs", str(tmp_path)]) == 2
    lines = capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines()
    assert [line.split(" = ")[0] for line in lines[:-1]] == [
        "ring.toml:6:1: cmd_args.iters",
        "s.toml:8:1: partitions[0].x",
        "x.toml:5:1: Tests[0].y",
    ]
    assert lines[-1] == "1 system, 1 test, 1 scenario: 3 errors, 0 warnings"


def test_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.toml").write_text(SYSTEM + "x = 1\n")
    assert main(["verify-configs", str(tmp_path), "--json"]) == 2
    printed = json.loads(capsys.readouterr().out)
    assert printed["valid"] is False
    assert printed["files"] == {str(tmp_path / "s.toml"): "system"}
    assert printed["remarks"] == [
        {
            "file": str(tmp_path / "s.toml"),
            "line": 8,
            "column": 1,
            "where": "partitions[0].x",
            "value": "1",
            "rule": "is not a field of this table",
            "hint": "remove it",
            "severity": "error",
        }
    ]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _: None, "does not exist. Hint: give TOML files, or folders of them"),
        (lambda path: path.mkdir(), "has no TOML file. Hint: give the folder of CloudAI's files"),
    ],
)
def test_a_path_without_files(make: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "conf")
    assert main(["verify-configs", str(tmp_path / "conf")]) == 2
    assert capsys.readouterr().err == f"acceptance: {tmp_path / 'conf'}: {words}\n"


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b'name = "a"\nb = "\xff"\n')
    assert remarks(tmp_path, {}) == ["x.toml:2:1: is not UTF-8. Hint: save the file as UTF-8"]


RUN_OF_RING = ONE + "{}\n"
EXTREMES = [
    (f"a = {'1' * 5000}\n", "x.toml:1:1: has a number of more than 64 bits. Hint: correct the number"),
    (f"\n[b]\na = 0x{'f' * 5000}\n", "x.toml:3:1: b.a: has more than 64 bits. Hint: correct the number"),
    (
        f"a{'.a' * 60} = 1\n",
        "x.toml:1:1: a.a.a.a: is nested deeper than 40 tables and lists. Hint: is it the right file?",
    ),
    (
        f"[a{'.a' * 60}]\n",
        "x.toml:1:1: a.a.a.a: is nested deeper than 40 tables and lists. Hint: is it the right file?",
    ),
    (f"a{'.a' * 90_000} = 1\n", "x.toml: has a key of more than 1000 parts. Hint: is it the right file?"),
    (
        "\ufeff" + SYSTEM,
        "x.toml:1:1: begins with a byte order mark, which TOML refuses. Hint: save the file as UTF-8 without it",
    ),
    (
        RUN_OF_RING.format("nodes = ['n[1-99999]x[1-99999]']"),
        'x.toml:5:10: Tests[0].nodes[0] = "n[1-99999]x[1-99999]": names more than 100000 nodes. Hint: correct the range',
    ),
    (
        RUN_OF_RING.format(f"nodes = ['n[{','.join(['1-99999'] * 9999)}]']"),
        'x.toml:5:10: Tests[0].nodes[0] = "n[1-99999,1-99999,1-99999,1-99999,1-99999,1-99999,1-9999...: names more than'
        " 100000 nodes. Hint: correct the range",
    ),
    (
        RUN_OF_RING.format(f"nodes = ['n[{'9' * 5000}]']"),
        f'x.toml:5:10: Tests[0].nodes[0] = "n[{"9" * 54}...: is not a name of a node, a range of names, or'
        ' PARTITION:GROUP:N. Hint: write "gpu-1", "gpu-[01-16]", "PARTITION:GROUP:4" or "PARTITION:GROUP:max_avail"',
    ),
    (
        RUN_OF_RING.format('extra_srun_args = "--comment=it\'s"'),
        'x.toml:5:1: Tests[0].extra_srun_args = "--comment=it\'s": has a quote that does not end, or a backslash as its'
        " last character. Hint: close the quote",
    ),
    (
        RUN_OF_RING.format("ideal_perf = nan"),
        "x.toml:5:1: Tests[0].ideal_perf = NaN: must be a number. Hint: correct the number",
    ),
    (
        ONE.replace('"a"', '"submit.sh"'),
        'x.toml:3:1: Tests[0].id = "submit.sh": is a name that the scenario\'s folder needs itself.'
        " Hint: give the test another id",
    ),
    (
        ONE.replace('"a"', r'"a\u202e"'),
        r'x.toml:3:1: Tests[0].id = "a\u202e": must be 1 to 200 characters on one line, '
        "without '/', '$', quotes and"
        " backslashes. Hint: correct the name",
    ),
    (
        ONE.replace('"n"', f'"{"名" * 70}"'),
        f'x.toml:1:1: name = "{"名" * 56}...: is longer than 200 bytes. Hint: correct the name',
    ),
    (
        RUN_OF_RING.format(
            "iterations = 10\n[Tests.cmd_args]\n" + "".join(f"v{i} = {[*range(99)]}\n" for i in range(9))
        ),
        f"x.toml:2:1: Tests: are {99**9 * 10} jobs, more than 10000; a has {99**9 * 10} of them."
        " Hint: shorten the lists of the sweeps, or lower iterations",
    ),
    (
        RUN_OF_RING.format("[Tests.cmd_args]\nv = []"),
        "x.toml:2:1: Tests: a has a sweep without a point: one of its lists is empty. Hint: remove the empty list",
    ),
    (
        SYSTEM + '[[partitions.groups]]\nname = "g"\nnodes = "n["\n',
        'x.toml:10:1: partitions[0].groups[0].nodes = "n[": is not a name of a node, a range of names, or'
        ' PARTITION:GROUP:N. Hint: write "gpu-1", "gpu-[01-16]", "PARTITION:GROUP:4" or "PARTITION:GROUP:max_avail"',
    ),
]


@pytest.mark.parametrize(("text", "line"), EXTREMES, ids=map(str, range(len(EXTREMES))))
def test_extremes_are_faults_and_take_neither_time_nor_memory(text: str, line: str, tmp_path: Path) -> None:
    assert line in remarks(tmp_path, {"ring.toml": RING, "x.toml": text})


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.toml")
    assert remarks(tmp_path, {}) == ["x.toml: is not a file. Hint: give the path of a TOML file"]


def test_hints_are_looked_for_among_many_names_for_a_bounded_time() -> None:
    words, found = [f"name{number}" for number in range(1000)], Remarks()
    hints = [found.did_you_mean("nam7", words, "otherwise") for _ in range(1000)]
    assert hints[0].startswith("did you mean")
    assert hints[-1] == "otherwise"


def test_a_table_that_only_the_run_has_gets_its_defaults(tmp_path: Path) -> None:
    (tmp_path / "ring.toml").write_text(RING)
    (tmp_path / "x.toml").write_text(ONE + '[Tests.nsys]\noutput = "o"\n')
    nsys = load_tree([tmp_path]).scenarios[0][1].runs[0].test.nsys
    assert nsys == {"enable": True, "nsys_binary": "nsys", "task": "profile", "output": "o", "extra_args": []}


def test_a_file_that_cannot_be_read_is_reported_with_the_test_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "ring.toml").write_text("=")
    scenario = tmp_path / "x.toml"
    scenario.write_text(ONE)
    tree = load_tree([scenario], tmp_path)
    assert [Path(remark.file).name for remark in tree.relevant(tree.remarks.errors, scenario)] == [
        "ring.toml",
        "x.toml",
    ]


def test_today_s_tree_is_accepted() -> None:
    tree = load_tree([DATA / "head"])
    assert tree.remarks.errors == []
    scenario = next(scenario for file, scenario in tree.scenarios if file.path.name == "scenario.toml")
    ring, background, grid, probe = scenario.runs
    assert ring.test.arguments["minbytes"] == "8M"
    assert ring.test.arguments["warmup_iters"] == 5  # the template's default
    assert (ring.counts, ring.iterations, ring.time_limit_s) == ((4,), 2, 1200)
    assert [(one.kind, one.id) for one in background.dependencies] == [
        ("start_post_init", "ring"),
        ("end_post_comp", "ring"),
    ]
    assert grid.test.environment == {"NCCL_ALGO": ["Ring", "Tree"]}
    assert probe.test.arguments == {"cmd": "hostname"}  # the scenario's value, merged over the test's file
    assert scenario.pre_test is not None
    assert scenario.pre_test.runs[0].test.name == "quick_ring"


def test_the_dialect_of_2024_is_read_with_a_warning_for_each_old_field() -> None:
    tree = load_tree([DATA / "guide"])
    assert tree.remarks.errors == []
    assert [remark.where for remark in tree.remarks.warnings] == [
        "partitions",
        "partitions[0].nodes",
        "partitions[0].groups",
        "cmd_args.dynamo.num_prefill_nodes",
        "cmd_args.dynamo.num_decode_nodes",
        "cmd_args.genai_perf.served_model_name",
        "cmd_args.genai_perf.endpoint",
        "cmd_args.genai_perf.synthetic_input_tokens_mean",
        "extra_cmd_args",
        "cmd_args",
        "Tests[1].templat_test",
        "Tests[1].dependencies[0].time",
    ]
    assert tree.systems[0].values["cache_docker_images_locally"] is True  # it is the text "True"
    assert tree.systems[0].groups == {"train": {"rack1": ["gpu-[01-08]"], "rack2": ["gpu-[09-16]"]}}
    one, two = tree.scenarios[0][1].runs
    assert one.counts == (2,)
    assert one.test.options == {"--stepfactor": "2"}
    assert one.test.arguments["docker_image_url"] == IMAGE
    assert two.nodes == ("train:rack1:4",)
    chat = next(test for test in tree.tests if test.name == "chat").fields["cmd_args"]
    assert chat["dynamo"]["decode_worker"]["num_nodes"] == 2
    assert chat["dynamo"]["model"] == "acme/small-8B"
    assert chat["genai_perf"]["args"] == {"synthetic-input-tokens-mean": 2000}


def test_names_may_repeat_across_folders_and_the_nearest_is_taken(tmp_path: Path) -> None:
    files = {
        "a/test/ring.toml": RING + "iters = 1\n",
        "b/test/ring.toml": RING + "iters = 2\n",
        "a/test_scenario/x.toml": ONE,
        "b/test_scenario/x.toml": ONE,
    }
    assert remarks(tmp_path, files) == []
    tree = load_tree([tmp_path])
    assert [scenario.runs[0].test.arguments["iters"] for _, scenario in tree.scenarios] == [1, 2]
    given = load_tree([tmp_path / "a/test_scenario"], tests_dir=tmp_path / "b/test")
    assert given.scenarios[0][1].runs[0].test.arguments["iters"] == 2


def test_a_test_of_a_refused_template_is_not_reported_as_missing(tmp_path: Path) -> None:
    files = {"ring.toml": RING.replace("NcclTest", "vllm"), "x.toml": ONE}
    rule = "names a test of the template vllm, which is refused"
    assert f'x.toml:4:1: Tests[0].test_name = "ring": {rule}. Hint: see ring.toml' in remarks(tmp_path, files)


def test_keys_may_be_quoted_or_have_hyphens_and_numbers_may_be_texts(tmp_path: Path) -> None:
    text = RING.replace("[cmd_args]", '[cmd_args]\n"iters" = "7"\nwarmup-iters = "3"')
    assert remarks(tmp_path, {"ring.toml": text}) == []
    arguments = load_tree([tmp_path]).tests[0].fields["cmd_args"]
    assert (arguments["iters"], arguments["warmup_iters"]) == (7, 3)


def test_a_list_in_a_scenario_replaces_the_list_of_the_test(tmp_path: Path) -> None:
    base = 'extra_container_mounts = ["/a:/a", "/b:/b"]\n' + RING
    text = ONE + 'extra_container_mounts = ["/c:/c"]\n'
    assert remarks(tmp_path, {"ring.toml": base, "x.toml": text}) == []
    assert load_tree([tmp_path]).scenarios[0][1].runs[0].test.mounts == ("/c:/c",)


def test_a_place_is_found_behind_everything_that_toml_has(tmp_path: Path) -> None:
    text = '''a = """x = [ "]\\"""" # y
" """ # c = 1
b."c d".e = {f = [1, {g = 2}], 'h' = 3}
[[t]]
[[t.u]]
v = 1979-05-27 07:32:00
[[t]]
[t.u.w]
z = [
  1.5, # ]
  ["q", [2]]]
"y" = 1
'''
    text = text.replace('"]\\"""" # y\n" """', '"]\\"" y\n" """')
    file = TomlFile(tmp_path / "x.toml", text)
    places = {
        ("b", "c d", "e", "f", 1, "g"): (3, 23),
        ("b", "c d", "e", "h"): (3, 32),
        ("t", 0, "u", 0, "v"): (6, 1),
        ("t", 1, "u", "w", "z", 1, 1, 0): (11, 10),
        ("t", 1, "u", "w", "y"): (12, 1),
        ("t", 1, "u", "w", "unknown"): (8, 1),
    }
    assert {path: file.place(path) for path in places} == places


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:20:00", 1200),
        ("30m", 1800),
        ("2h", 7200),
        ("1d", 86_400),
        ("1w", 604_800),
        ("45s", 45),
        ("1-02:03:04", 93_784),
        ("10:30", 37_800),
        ("90", 5400),
        ("2-12", 216_000),
        ("00:60:00", 3600),
        ("", None),
        ("1:2:3:4", None),
        ("-5", None),
        ("0", None),
        ("00:00:00", None),
        ("1.5h", None),
        ("9999999w", None),
    ],
)
def test_time_limits(text: str, seconds: int | None) -> None:
    assert seconds_of(text) == seconds


def test_a_time_for_sbatch() -> None:
    assert [slurm_time(seconds) for seconds in (45, 1200, 93_784)] == ["00:00:45", "00:20:00", "1-02:03:04"]


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("a", ["a"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[8-10]", ["n8", "n9", "n10"]),
        ("n[01-02,7]x", ["n01x", "n02x", "n7x"]),
        ("a,b[1-2]", ["a", "b1", "b2"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_ranges(expression: str, names: list[str]) -> None:
    assert expand(expression) == names


@pytest.mark.parametrize(
    "expression", ["", "n[", "n[]", "n[1-]", "a b", "a;b", "n[2-1]", "n[1-999999]", "$(x)", "a,,b"]
)
def test_what_is_no_range(expression: str) -> None:
    with pytest.raises(NodesError):
        expand(expression)


GROUPS = {"p": {"g": ["n[1-4]"], "h": ["m1"]}}


def test_nodes_of_groups_are_different_and_excluded_ones_are_left_out() -> None:
    chosen = choose(["p:g:1", "p:g:max_avail", "x"], 9, ["n2"], GROUPS)
    assert (chosen.count, chosen.names, chosen.from_groups) == (4, ("n1", "n3", "n4", "x"), True)
    assert choose([], 3, ["n2"], GROUPS).exclude == ("n2",)


@pytest.mark.parametrize(
    ("expressions", "words"),
    [
        (["p:g:5"], "asks for 5 nodes of the group g, which has 4 left"),
        (["p:g:4", "p:g:1"], "asks for 1 node of the group g, which has 0 left"),
        (["p:k:1"], "names the group k, which the partition p has not"),
        (["q:g:1"], "names the partition q, which the system's file has not"),
    ],
)
def test_groups_that_do_not_suffice(expressions: list[str], words: str) -> None:
    with pytest.raises(NodesError, match=words):
        choose(expressions, 1, [], GROUPS)


def test_acceptance_json_is_one_form_of_the_same_scenario() -> None:
    scenario = check_scenario(make_scenario(), "x")
    general = as_test_scenario(scenario)
    for run, test in zip(general.runs, scenario.tests, strict=True):
        sweep = as_sweep(run)
        names = (
            "name",
            "collective",
            "min_bytes",
            "max_bytes",
            "step_factor",
            "iterations",
            "warmup_iterations",
            "timeout_s",
        )
        assert {name: getattr(sweep, name) for name in names} == {name: getattr(test, name) for name in names}


def test_a_toml_test_gives_the_sweep_that_the_runner_measures() -> None:
    tree = load_tree([DATA / "head"])
    scenario = next(scenario for file, scenario in tree.scenarios if file.path.name == "scenario.toml")
    sweep = as_sweep(scenario.runs[0])
    assert (sweep.collective, sweep.min_bytes, sweep.max_bytes, sweep.step_factor) == (
        "all_reduce",
        8 << 20,
        4 << 30,
        2,
    )
    assert (sweep.name, sweep.timeout_s, sweep.sizes()[1]) == ("ring", 1200, 16 << 20)
    with pytest.raises(ValueError, match="probe: is not a collective"):
        as_sweep(scenario.runs[3])


@pytest.mark.parametrize(("text", "size"), [("128", 128), ("8M", 8 << 20), ("16g", 16 << 30), ("1K", 1024)])
def test_sizes(text: str, size: int) -> None:
    assert bytes_of(text) == size


@settings(max_examples=40, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.sampled_from(["head/system.toml", "head/scenario.toml", "guide/tests/chat.toml"]),
)
def test_a_file_that_was_damaged_never_ends_in_a_traceback(chance: random.Random, name: str) -> None:
    """Each file loses or doubles a line, or gets a value of another type."""
    lines = (DATA / name).read_text().splitlines()
    for _ in range(3):
        at = chance.randrange(len(lines))
        change = chance.choice(["drop", "double", "value"])
        if change == "value" and " = " in lines[at]:
            lines[at] = (
                lines[at].split(" = ")[0]
                + " = "
                + chance.choice(["[]", "{}", "-1", '""', "true", "[[1]]", "[{a = 1}]"])
            )
        else:
            lines[at : at + 1] = [lines[at]] * 2 if change == "double" else []
            lines = lines or [""]
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        (Path(folder) / "x.toml").write_text("\n".join(lines))
        for remark in load_tree([Path(folder)]).remarks.all:
            assert remark.rule
            assert remark.hint


def folders(name: str) -> list[str]:
    return ["--tests-dir", str(DATA / name / "tests"), "--hook-dir", str(DATA / name / "hook")]


def test_list_prints_what_a_scenario_runs(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = str(DATA / "head/scenario.toml")
    assert main(["list", "--test-scenario", scenario, *folders("head")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "pre_test: gate (quick_ring)",
        "post_test: tidy (sweep_up)",
        "ring: ring (NcclTest), 4 nodes, 2 iterations, 00:20:00 at most, all_reduce of 8 MiB to 4 GiB",
        "background: train (SlurmContainer), gpu-[01-02] gpu-09, without gpu-02, 1-00:00:00 at most, start_post_init"
        " ring, end_post_comp ring, srun --label, repositories https://git.example/team/code.git",
        "grid: grid (NcclTest), 2 nodes, a sweep of 4 points, 00:10:00 at most, start_post_comp ring, start_post_comp"
        " background",
        "probe: probe (BashCmd), train:rack1:2",
        "the first failed job ends all others (job_status_check)",
    ]
    assert main(["list", "--test-scenario", scenario, *folders("head"), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert runs[2]["points"] == [
        {"maxbytes": size, "extra_env_vars.NCCL_ALGO": ring} for size in ("1G", "2G") for ring in ("Ring", "Tree")
    ]
    assert runs[1]["dependencies"][1] == {"type": "end_post_comp", "id": "ring"}


def test_list_finds_the_tests_next_to_a_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("test", "."):
        folder = tmp_path / place.replace(".", "alone")
        (folder / "test_scenario" / place).mkdir(parents=True)
        (folder / "test_scenario/a.toml").write_text(ONE)
        (folder / "test_scenario" / place / "ring.toml").write_text(RING)
        assert main(["list", "--test-scenario", str(folder / "test_scenario/a.toml")]) == 0
        assert capsys.readouterr().out.startswith("a: ring (NcclTest), 1 node, ")


def test_list_prints_an_acceptance_json_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "acceptance.json").write_text(json.dumps(make_scenario()))
    assert main(["list", "--test-scenario", str(tmp_path / "acceptance.json")]) == 0
    assert "(NcclTest), " in capsys.readouterr().out


def test_list_refuses_what_has_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.toml").write_text(ONE)
    assert main(["list", "--test-scenario", str(tmp_path / "x.toml")]) == 2
    rule = "is not the name of a test that was read. Hint: give the folder of its file: --tests-dir DIR"
    assert capsys.readouterr().err == f'acceptance: {tmp_path}/x.toml:4:1: Tests[0].test_name = "ring": {rule}\n'
    (tmp_path / "s.toml").write_text(SYSTEM)
    assert main(["list", "--test-scenario", str(tmp_path / "s.toml")]) == 2
    assert (
        capsys.readouterr().err == f"acceptance: {tmp_path}/s.toml: is no scenario. Hint: give a file with [[Tests]]\n"
    )


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("agents", "grid_search"),
        ("reports", "nccl_comparison"),
        ("templates", "NcclTest: read"),
        ("templates", "vllm: refused (a server of vLLM)"),
    ],
)
def test_list_of_names(what: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", what]) == 0
    assert line in capsys.readouterr().out.splitlines()


def run_of(**changes: Any) -> TestRun:
    test = TestDefinition(
        "t",
        "d",
        "NeMoRun",
        changes.pop("arguments", {}),
        changes.pop("environment", {}),
        literal=changes.pop("literal", ()),
    )
    return TestRun("t", test, **changes)


def test_a_sweep_has_arguments_then_variables_then_nodes_and_the_last_is_the_fastest() -> None:
    run = run_of(
        arguments={"a": 1, "b": {"c": [1, 2]}, "phases": [{"x": 1}]},
        environment={"V": ["p", "q"], "W": "r"},
        literal=("cmd_args.phases",),
        counts=(2, 4),
        counts_swept=True,
    )
    assert list(dimensions(run)) == ["b.c", "extra_env_vars.V", "NUM_NODES"]
    found = points(run)
    assert [tuple(values.values()) for values, _ in found[:3]] == [(1, "p", 2), (1, "p", 4), (1, "q", 2)]
    assert len(found) == 8
    last = found[-1][1]
    assert last.test.arguments == {"a": 1, "b": {"c": 2}, "phases": [{"x": 1}]}
    assert (last.test.environment, last.counts) == ({"V": "q", "W": "r"}, (4,))
    assert dimensions(last) == {}


def test_a_list_of_one_is_a_sweep_and_a_key_may_contain_dots() -> None:
    ((values, run),) = points(run_of(arguments={"p": {"x.y": [3]}}))
    assert (values, run.test.arguments) == ({"p.x.y": 3}, {"p": {"x.y": 3}})
    assert points(run_of(arguments={"p": 1}))[0][0] == {}


def test_a_terminal_that_is_not_utf_8_gets_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, "ascii")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "argv", ["acceptance", "verify-configs", "名"])
    assert program() == 2
    stream.flush()
    assert rb"\u540d: does not exist" in written.getvalue()
