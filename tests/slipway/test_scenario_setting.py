"""`acceptance.scenario: PATH`: what travels to the cluster, what the head node runs, and what cannot run there."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceptance import cli, preparation
from acceptance.cloudai.load import folders_of
from acceptance.errors import AcceptanceError
from acceptance.scenario import check_scenario
from slipway import command_line
from slipway.bundle import acceptance_basis, acceptance_scenario, bundle_files, node_env_values, scenario_files
from slipway.cli import app
from slipway.errors import SettingsError, SlipwayError, UsageError
from slipway.exchange.cloudai_export import MARK, cloudai_files
from slipway.files import write_folder
from slipway.rehearse import Rehearsal, _copy_of, _settings_of
from slipway.settings import Settings, examine, load_settings
from slipway.settings.rules import scenario as rules
from slipway.settings.scenario import read_user_scenario
from slipway.settings.scenario_fit import longest_s
from tests.cloudai_toml import bash, bash_file

HEAD = """\
name: demo
region: us-east-1
zone: us-east-1a
queues:
  - {{name: train, instance_type: p5.48xlarge, min_count: 2, max_count: 4, efa: true, placement_group: true}}
  - {{name: debug, instance_type: c6i.xlarge, count: 9}}
{more}acceptance: {{scenario: {scenario}}}
"""
RING = """
[[Tests]]
id = "ring"
name = "ring"
description = "d"
test_template_name = "NcclTest"
cmd_args = {docker_image_url = "a/b:1"}
"""
PATH = "conf/release/test_scenario/nightly.toml"
FILES = {
    PATH: 'name = "nightly"\npre_test = "gate"\n[[Tests]]\nid = "first"\ntest_name = "one"\n' + bash("b"),
    "conf/release/test/one.toml": bash_file("one"),
    "conf/release/test/unused.toml": bash_file("unused"),
    "conf/hook/gate.toml": 'name = "gate"\n[[Tests]]\nid = "g"\ntest_name = "gate-test"\n',
    "conf/hook/other.toml": 'name = "other"\nTests = 3\n',  # its fault does not matter here
    "conf/hook/wide.toml": 'name = "wide"\n[[Tests]]\nid = "g"\ntest_name = "gate-test"\nnum_nodes = 2\n',
    "conf/hook/test/gate-test.toml": bash_file("gate-test"),
}

Tree = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Write a tree of CloudAI and settings that name its scenario; return the settings file."""

    def write(scenario: str = PATH, more: str = "", **changed: str) -> Path:
        for name, text in {**FILES, PATH: changed.get("text", FILES[PATH])}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        file = tmp_path / "demo.yaml"
        file.write_text(HEAD.format(scenario=scenario, more=more), encoding="utf-8")
        return file

    return write


def test_the_files_that_travel_are_those_that_the_scenario_needs(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # nothing depends on where the command runs
    settings = load_settings(os.path.relpath(tree()))
    files = scenario_files(settings)
    assert sorted(files) == [
        *("hook/gate.toml", "hook/test/gate-test.toml", "system.toml", "test/one.toml", "test_scenario/nightly.toml")
    ]
    assert files["test_scenario/nightly.toml"].decode() == FILES[PATH]
    system = tomllib.loads(files["system.toml"].decode())
    assert (system["default_partition"], system["gpus_per_node"]) == ("train", 8)
    assert node_env_values(settings)["ACCEPTANCE_SCENARIO"] == "cloudai"
    bundle = bundle_files(settings)
    assert {f"scenario/{name}": data for name, data in files.items()}.items() <= bundle.items()
    assert not [name for name in bundle_files(load_settings(tree("all-reduce"))) if name.startswith("scenario/")]
    # The layout on the cluster is CloudAI's own: the head node finds tests and hooks as the workstation does.
    for name, data in files.items():
        (tmp_path / "on-head" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "on-head" / name).write_bytes(data)
    there = tmp_path / "on-head/test_scenario/nightly.toml"
    assert [one.resolve() for one in folders_of(there) if one] == [tmp_path / "on-head/test", tmp_path / "on-head/hook"]
    exported = cloudai_files(settings)
    assert exported == {name.replace("hook/", "conf/hook/", 1): data.decode() for name, data in files.items()}
    write_folder(tmp_path / "exported", exported, MARK)
    found = folders_of(tmp_path / "exported/test_scenario/nightly.toml")
    assert [one.resolve() for one in found if one] == [tmp_path / "exported/test", tmp_path / "exported/conf/hook"]


def test_acceptance_json_names_the_scenario_and_keeps_the_network_tests(tree: Tree) -> None:
    settings = load_settings(tree())
    written = json.loads(json.dumps(acceptance_scenario(settings)))
    assert written["test_scenario"] == {
        "file": "scenario/test_scenario/nightly.toml",
        "system": "scenario/system.toml",
        "timeout_s": 1350,
        "sha256": read_user_scenario(settings).sha256,  # type: ignore[union-attr]
    }
    scenario = check_scenario(written, "acceptance.json")
    assert scenario.test_scenario is not None
    assert [test.name for test in scenario.tests] == ["all_reduce", "alltoall"]
    # Another scenario, or another text of the same one, is another verdict; a file that it does not need is not.
    before = acceptance_basis(settings)
    tree(text=FILES[PATH].replace('id = "first"', 'id = "1st"'))
    assert acceptance_basis(settings) != before
    file = tree()
    file.with_name("conf").joinpath("release/test/unused.toml").write_text(bash_file("still-unused"))
    assert acceptance_basis(load_settings(file)) == before
    assert settings == load_settings(file)


def test_dynamic_nodes_alone_are_enough(tree: Tree) -> None:
    file = tree()
    file.write_text(file.read_text().replace("min_count: 2", "min_count: 0"))
    assert check_scenario(acceptance_scenario(load_settings(file)), "acceptance.json").nodes == 1


def test_a_scenario_of_the_cluster_is_named_and_not_read(tree: Tree) -> None:
    settings = load_settings(tree("/fsx/conf/test_scenario/a.toml"))
    assert acceptance_scenario(settings)["test_scenario"]["file"] == "/fsx/conf/test_scenario/a.toml"
    assert list(scenario_files(settings)) == ["system.toml"]
    with pytest.raises(UsageError, match=r"is a file of the cluster\. Hint: copy it next to the settings"):
        cloudai_files(settings)


@pytest.mark.parametrize(
    ("scenario", "text", "messages"),
    [
        ("conf/none.toml", "", ["conf/none.toml: does not exist. Hint: give TOML files, or folders of them"]),
        ("conf/release/test/one.toml", "", ["conf/release/test/one.toml: is a test. Hint: name a file with [[Tests]]"]),
        (PATH, "name = ", [f"{PATH}:1:1: is not TOML: invalid value. Hint: correct the file at this place"]),
        (PATH, 'name = "a b"' + bash("x"), ["the scenario's name is 'a b'. Hint: take letters, "]),
        (PATH, 'name = "n"' + bash("x", more="num_nodes = [1, 5]"), ["x needs 5 nodes, and queue train has 4"]),
        (
            PATH,
            'name = "n"' + bash("x", more='nodes = ["train:rack:2"]'),
            ["x asks for train:rack:2, and the cluster has no groups. Hint: write num_nodes, 4 at most"],
        ),
        (
            PATH,
            'name = "n"' + bash("x", more='nodes = ["train-dy-gpu-[2-3]"]'),
            ["x names train-dy-gpu-3, which is not a node of queue train. Hint: its nodes are train-st-gpu-[1-2], train-dy-gpu-[1-2]"],
        ),
        (PATH, 'name = "n"' + bash("x", more='nodes = ["train-st-gpu-2", "train-dy-gpu-[1-2]"]'), []),
        (
            PATH,
            'name = "n"' + bash("x", more='extra_srun_args = "--exclusive -p debug"'),
            ["x has the partition debug in extra_srun_args, and its job is in train. Hint: leave it out"],
        ),
        (PATH, 'name = "n"' + bash("x", more='extra_srun_args = "--partition=train"'), []),
        (
            PATH,
            'name = "n"\npost_test = "wide"' + bash("x"),
            ["x: its hook gate-test needs 2 nodes, the test has 1. Hint: correct the test"],
        ),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused(scenario: str, text: str, messages: list[str], tree: Tree) -> None:
    found = examine(tree(scenario, text=text or FILES[PATH]))
    assert len(found.faults) == len(messages)
    for fault, message in zip(found.faults, messages, strict=True):
        assert f"acceptance.scenario = '{scenario}': {message}" in fault.message


def test_a_file_name_that_no_archive_can_hold(tree: Tree, tmp_path: Path) -> None:
    file = tree()
    (tmp_path / "conf/release/test/one.toml").rename(tmp_path / "conf/release/test/one\udcff.toml")
    (fault,) = examine(file).faults
    assert "test/'one\\udcff.toml': no archive can hold this name. Hint: rename it" in fault.message


def test_images_need_pyxis(tree: Tree) -> None:
    text = 'name = "n"' + RING
    assert not examine(tree(text=text)).faults
    (fault,) = examine(tree(more="containers: {pyxis: false}\n", text=text)).faults
    assert "ring runs in the image a/b:1, and no node has pyxis" in fault.message


def test_a_scenario_that_breaks_after_the_check_is_a_fault(tree: Tree) -> None:
    file = tree()
    settings = load_settings(file)
    tree(text="name = ")
    with pytest.raises(SettingsError, match="is not TOML"):
        scenario_files(settings)


def test_the_longest_time_follows_the_dependencies(tree: Tree) -> None:
    def run(name: str, more: str, needs: str = "", kind: str = "start_post_comp") -> str:
        needed = f'dependencies = [{{type = "{kind}", id = "{needs}"}}]\n' if needs else ""
        return bash(name, more=f'time_limit = "{more}"\n{needed}')

    runs = [run("c", "2m", "b"), run("a", '10m"\niterations = 2\nextra_srun_args = "-v'), run("b", "1m", "a")]
    runs += [run("d", "20m", "a", "start_post_init"), run("e", "3m")]
    user = read_user_scenario(load_settings(tree(text='name = "n"' + "".join(runs))))
    assert user is not None
    assert user.scenario is not None
    assert longest_s(user.scenario) == (20 + 1 + 2) * 60


# ---- the head node ----


@pytest.fixture
def head(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the part of the bundle that acceptance reads, and no Slurm."""
    for name, data in bundle_files(load_settings(tree())).items():
        if name.startswith("scenario/") or name == "acceptance.json":
            (tmp_path / "current" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "current" / name).write_bytes(data)

    def started(self: Any, *_: Any) -> None:
        raise AcceptanceError(f"no Slurm here: {type(self).__name__}")

    monkeypatch.setattr(preparation.ScenarioRun, "run", started)
    monkeypatch.setattr(preparation.Campaign, "run", started)
    return tmp_path / "current"


def run(head: Path, *words: str) -> int:
    paths = ["--scenario", str(head / "acceptance.json"), "--output", str(head.parent / "results")]
    return cli.main(["run", *paths, *words])


def test_run_takes_the_scenario_that_acceptance_json_names(head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(head) == 3
    (folder,) = (head.parent / "results").glob("nightly_*")
    assert f"run directory {folder}" in capsys.readouterr().out
    assert (folder / "first/0/pre_test/gate-test").is_dir()  # tests and hooks were found
    assert json.loads((folder / "cluster.json").read_text())["instance_type"] == "p5.48xlarge"
    script = (folder / "first/0/cloudai_sbatch_script.sh").read_text()
    assert "#SBATCH --partition=train" in script


def test_the_network_can_still_be_measured(head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads((head / "acceptance.json").read_text())
    wanted = {"timeout_s": 9, "storage_timeout_s": 9}
    (head / "acceptance.json").write_text(json.dumps({**values, "suite": wanted}))
    assert run(head, "--network") == 3
    assert "no Slurm here: Campaign" in capsys.readouterr().out
    (folder,) = (head.parent / "results").iterdir()
    # Repeating this run measures the network again, not the scenario and not the suite.
    assert not {"test_scenario", "suite"}.intersection(json.loads((folder / "scenario.json").read_text()))


def test_a_scenario_that_is_gone_is_named(head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (head / "scenario/test_scenario/nightly.toml").unlink()
    assert run(head) == 2
    assert "[RESULT] FAILURE: 1 fault in the input, nothing was run: " in capsys.readouterr().out


# ---- slipway rehearse --test-scenario ----


def rehearsal(settings: Path, **more: Any) -> Rehearsal:
    return Rehearsal(settings, output=Path(), **more)


def copied(options: Rehearsal, work: Path) -> Settings:
    work.mkdir()
    return load_settings(_copy_of(options, work))


def test_a_rehearsal_copies_settings_and_scenario(tree: Tree, tmp_path: Path) -> None:
    own = copied(rehearsal(tree()), tmp_path / "one")
    assert own.scenario_file == tmp_path / "one/scenario/test_scenario/nightly.toml"
    file = tree("none")
    assert copied(rehearsal(file), tmp_path / "two").scenario_file is None
    named = copied(rehearsal(file, test_scenario=tmp_path / PATH), tmp_path / "three")
    assert sorted(scenario_files(named)) == sorted(scenario_files(own))
    assert named.model_dump(exclude={"acceptance"}) == load_settings(file).model_dump(exclude={"acceptance"})


def test_what_a_rehearsal_cannot_run(tree: Tree, tmp_path: Path) -> None:
    file = tree("none", text='name = "n"' + bash("x", more="num_nodes = 4"))
    with pytest.raises(UsageError, match=r"x needs 4 nodes, and queue train has 3 here. Hint: --max-hosts 4"):
        _settings_of(rehearsal(file, test_scenario=tmp_path / PATH, max_hosts=3))
    for name, words in (
        ("gone.toml", "does not exist"),
        ("a b.toml", "must be the path of a TOML file"),
        ("full", "must"),
    ):
        with pytest.raises(SettingsError) as caught:
            _settings_of(rehearsal(file, test_scenario=tmp_path / name))
        (fault,) = caught.value.faults
        assert str(fault).startswith(f"--test-scenario {tmp_path / name}: ")
        assert words in fault.rule


# ---- full ----


def test_full_adds_suite_and_storage_within_the_time(tree: Tree) -> None:
    settings = load_settings(tree("full"))
    written = json.loads(json.dumps(acceptance_scenario(settings)))
    scenario = check_scenario(written, "acceptance.json")
    assert scenario.suite is not None
    assert (scenario.suite.timeout_s, scenario.suite.storage_timeout_s, scenario.suite.quick) == (450, 180, True)
    assert [test.name for test in scenario.tests] == ["all_reduce", "alltoall"]
    sweeps = sum(test.timeout_s for test in scenario.tests)
    search = written["locate"]["budget_s"]
    whole = written["queue_timeout_s"] + sweeps + search + scenario.suite.timeout_s + scenario.suite.storage_timeout_s
    assert whole <= settings.acceptance.timeout_minutes * 60
    assert node_env_values(settings)["ACCEPTANCE_SCENARIO"] == "full"
    assert acceptance_basis(settings) != acceptance_basis(load_settings(tree("all-reduce")))


@pytest.mark.parametrize(("scenario", "counts"), [("all-reduce", False), (PATH, False), ("full", True)])
def test_another_image_is_another_verdict_where_the_suite_runs_in_it(scenario: str, counts: bool, tree: Tree) -> None:
    def basis(more: str) -> str:
        return acceptance_basis(load_settings(tree(scenario, more)))

    assert (basis("images: ['docker://a/b:1']\n") != basis("images: ['docker://a/b:2']\n")) is counts


@pytest.mark.parametrize("option", ["--test-scenario", "--scenario"])  # --scenario is the earlier name
def test_a_rehearsal_without_hosts_runs_no_scenario(
    option: str, tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["rehearse", str(tree("none")), "--cloud-only", option, str(tmp_path / PATH)]
    assert command_line.run(app, words) == 2
    assert capsys.readouterr().err.startswith(
        "--test-scenario needs local hosts, --cloud-only has none. Hint: leave one of"
    )


def test_check_reads_a_scenario_once(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Settings] = []
    monkeypatch.setattr(rules, "read_user_scenario", lambda s: read.append(s) or read_user_scenario(s))
    assert not examine(tree()).faults
    assert len(read) == 1


def test_a_path_that_leaves_fsx_is_no_file_of_the_cluster(tree: Tree) -> None:
    (fault,) = examine(tree("/fsx/../no-such.toml")).faults
    assert "no-such.toml" in fault.message


def test_a_failed_export_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SlipwayError, match="cannot be written"):
        write_folder(tmp_path / "a/b/c", {"x" * 300: ""}, MARK)
    assert list(tmp_path.iterdir()) == []
