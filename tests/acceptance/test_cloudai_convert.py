"""`acceptance convert`: a tree of 2024 in today's dialect, and the TOML that is written."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptance.cli import main
from acceptance.cloudai.load import load_tree
from acceptance.cloudai.toml_text import toml_text
from acceptance.runner.files import new_folder

DATA = Path(__file__).parent / "data/cloudai"


def test_a_tree_of_2024_becomes_one_without_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "old", tmp_path / "new"
    shutil.copytree(DATA / "guide", source)
    (source / "notes.txt").write_text("kept")
    assert main(["convert", str(source), str(target), "--image", "my.registry/pytorch:1"]) == 0
    printed = capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines()
    assert printed == [
        "old/scenario.toml:11: Tests[1].templat_test is the guide's old name; now: test_name",
        "old/scenario.toml:17: Tests[1].dependencies[0].time is a field of 2024; a dependency has no delay; removed",
        "old/scenario.toml:6: Tests[0].num_nodes was a text; now: num_nodes = 2",
        "old/system.toml:12: partitions is a table of tables, the form of 2024; now: each as [[partitions]] with its name",
        "old/system.toml:15: partitions[0].nodes is a field of 2024: Slurm itself knows the nodes of a partition; removed",
        "old/system.toml:17: partitions[0].groups is a table of tables, the form of 2024; now: each as"
        " [[partitions.groups]] with its name",
        "old/system.toml:6: cache_docker_images_locally was a text; now: cache_docker_images_locally = true",
        "new/system.toml: comments are not kept; they are in old/system.toml",
        "old/tests/chat.toml:9: cmd_args.dynamo.num_prefill_nodes is a field of 2024; "
        "now: [cmd_args.dynamo.prefill_worker] num_nodes = 1",
        "old/tests/chat.toml:10: cmd_args.dynamo.num_decode_nodes is a field of 2024; "
        "now: [cmd_args.dynamo.decode_worker] num_nodes = 2",
        "old/tests/chat.toml:13: cmd_args.genai_perf.served_model_name is at a place of 2024; now: [cmd_args.dynamo]"
        " model = 'acme/small-8B'",
        "old/tests/chat.toml:14: cmd_args.genai_perf.endpoint is at a place of 2024; now: [cmd_args.dynamo] endpoint ="
        " 'v1/chat/completions'",
        "old/tests/chat.toml:15: cmd_args.genai_perf.synthetic_input_tokens_mean is at a place of 2024; now:"
        " [cmd_args.genai_perf.args] synthetic-input-tokens-mean = 2000",
        'old/tests/ring.toml:4: extra_cmd_args is a text, the form of 2024; now: [extra_cmd_args] "--stepfactor" = "2"',
        "old/tests/ring.toml:6: cmd_args has no docker_image_url, which NcclTest needs since 2025; now:"
        ' docker_image_url = "my.registry/pytorch:1", the image of 2024, or another one',
        "new: 14 changes",
    ]
    before, after = load_tree([source]), load_tree([target])
    assert after.remarks.all == []
    assert (target / "notes.txt").read_text() == "kept"
    assert [run.time_limit_s for run in after.scenarios[0][1].runs] == [1200, 1200]
    assert after.systems[0].values == before.systems[0].values
    ring = tomllib.loads((target / "tests/ring.toml").read_text())
    assert ring["cmd_args"]["docker_image_url"] == "my.registry/pytorch:1"


def test_what_needs_no_change_is_copied_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(DATA / "head"), str(tmp_path / "new")]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/new: 0 changes\n"
    for path in (DATA / "head").rglob("*.toml"):
        assert (tmp_path / "new" / path.relative_to(DATA / "head")).read_bytes() == path.read_bytes()


def test_a_link_of_the_copy_is_not_followed_into_the_source(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.toml"
    shutil.copytree(DATA / "guide", tmp_path / "old")
    (tmp_path / "old/system.toml").rename(elsewhere)
    (tmp_path / "old/system.toml").symlink_to(elsewhere)
    before = elsewhere.read_text()
    assert main(["convert", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    assert elsewhere.read_text() == before
    assert "[[partitions]]" in (tmp_path / "new/system.toml").read_text()


def test_nothing_remains_where_the_copy_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(DATA / "guide", tmp_path / "old")
    os.mkfifo(tmp_path / "old/pipe")
    assert main(["convert", str(tmp_path / "old"), str(tmp_path / "new")]) == 3
    assert "old/pipe: cannot be copied: " in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: str, copy: str, **__: object) -> None:
        raise OSError(28, "No space left on device", copy)

    monkeypatch.setattr(shutil.copytree, "__defaults__", (False, None, full, False, False))
    assert main(["convert", str(DATA / "guide"), str(tmp_path / "made/new")]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"acceptance: {tmp_path}/made/new: {DATA}/guide/")
    assert said.endswith(
        " cannot be copied: No space left on device. Hint: is the file system of the target full or read-only? "
        "Only files, folders and links are copied\n"
    )
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_new_folder_on_a_full_disk_is_named_as_it_will_be(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as caught, new_folder(tmp_path / "made/new") as folder:
        raise OSError(28, "No space left on device", str(folder / "x"))
    assert caught.value.filename == str(tmp_path / "made/new/x")
    assert list(tmp_path.iterdir()) == []


def test_a_time_limit_with_two_readings_is_written_out(tmp_path: Path) -> None:
    shutil.copytree(DATA / "guide", tmp_path / "old")
    scenario = tmp_path / "old/scenario.toml"
    scenario.write_text(scenario.read_text().replace('"00:20:00"', '"1:30"', 1))
    assert main(["convert", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    assert tomllib.loads((tmp_path / "new/scenario.toml").read_text())["Tests"][0]["time_limit"] == "01:30:00"


def test_nothing_is_written_over_or_from_a_tree_with_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, link = tmp_path / "old", tmp_path / "link"
    shutil.copytree(DATA / "guide", source)
    link.symlink_to("nowhere")
    cases = [
        (
            [source / "system.toml", tmp_path / "new"],
            f"{source}/system.toml: is not a folder. Hint: give the folder of CloudAI's files",
        ),
        ([source, tmp_path], f"{tmp_path}: exists and is not an empty folder. Hint: give another folder"),
        ([source, link], f"{link}: exists and is not an empty folder. Hint: give another folder"),
        ([source, source / "new"], f"{source}/new: is in the folder that is converted. Hint: give a folder outside it"),
    ]
    for arguments, words in cases:
        assert main(["convert", *map(str, arguments)]) == 2
        assert capsys.readouterr().err == f"acceptance: {words}\n"
    (source / "system.toml").write_text('scheduler = "pbs"\n')
    assert main(["convert", str(source), str(tmp_path / "new")]) == 2
    assert 'scheduler = "pbs": must be one of' in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
SCALARS = st.one_of(KEYS, st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_what_is_written_is_read_back(value: dict[str, object]) -> None:
    assert tomllib.loads(toml_text(value)) == value
