"""`acceptance install` and `uninstall`, and what `run` says of pieces that are missing."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from acceptance.cli import main
from acceptance.cloudai import install
from acceptance.cloudai.cli import write_scenario
from acceptance.cloudai.template_commands import shared_name
from acceptance.errors import InputError
from headnode.containers.images import parse

SYSTEM = """name = "s"
scheduler = "slurm"
install_path = "{folder}/install"
output_path = "{folder}/out"
default_partition = "train"
cache_docker_images_locally = "True"
[[partitions]]
name = "train"
"""
TEST = """name = "{name}"
description = "d"
test_template_name = "SlurmContainer"
cmd_args = {{docker_image_url = "{image}", cmd = "true"}}
"""
IMAGE = "reg.example/team/img:1"
CACHED = "reg.example_team__img__1.sqsh"
# Stands in for the head node's importer: one file for each line but those with `bad`; counts its runs.
IMPORTER = """#!/bin/bash
into=$4
echo "$*" >>"$(dirname "$0")/imports"
while read -r line; do
  name=${line#docker://}
  name=${name//[\\/#]/_}
  [[ $line == *bad* ]] || echo image >"$into/${name//[:@]/-}.sqsh"
done <"$5"
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system, a scenario of one test with an image and a repository, and the stand-in of the importer."""
    for name, mail in (("AUTHOR", "a"), ("COMMITTER", "c")):
        monkeypatch.setenv(f"GIT_{name}_NAME", mail)
        monkeypatch.setenv(f"GIT_{name}_EMAIL", f"{mail}@example.com")
    (tmp_path / "tests").mkdir()
    (tmp_path / "source").mkdir()
    (tmp_path / "source/data.txt").write_text("1\n")
    git = ["git", "-c", "init.defaultBranch=main", "-C", str(tmp_path / "source")]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["branch", "fix/it"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "importer.sh").write_text(IMPORTER)
    (tmp_path / "shared").mkdir()
    monkeypatch.setattr(install, "IMPORTER", tmp_path / "importer.sh")
    monkeypatch.setattr(install, "SHARED_IMAGES", tmp_path / "shared")
    (tmp_path / "system.toml").write_text(SYSTEM.format(folder=tmp_path))
    write_test(tmp_path)
    (tmp_path / "scenario.toml").write_text('name = "n"\n[[Tests]]\nid = "a"\ntest_name = "one"\n')
    return tmp_path


def write_test(tree: Path, image: str = IMAGE, commit: str = "fix/it", url: str = "") -> None:
    repository = f'[[git_repos]]\nurl = "{url or tree}/source"\ncommit = "{commit}"\n'
    (tree / "tests/one.toml").write_text(TEST.format(name="one", image=image) + repository)


def command(tree: Path, name: str, *options: str) -> int:
    files = ["--system-config", str(tree / "system.toml"), "--tests-dir", str(tree / "tests")]
    return main([name, *files, *(options or ("--test-scenario", str(tree / "scenario.toml")))])


def printed(capsys: pytest.CaptureFixture[str], tree: Path) -> list[str]:
    captured = capsys.readouterr()
    return (captured.out + captured.err).replace(str(tree), "").splitlines()


def test_install_twice_and_uninstall(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, repository = f"image {IMAGE}", "repository /source at fix/it"
    assert command(tree, "install") == 0
    assert printed(capsys, tree) == [
        f"{image}: installed: /install/{CACHED}",
        f"{repository}: installed: /install/source__fix/it",
        "/install: 2 pieces for 1 test",
    ]
    assert (tree / f"install/{CACHED}").read_text() == "image\n"
    assert (tree / "install/source__fix/it/data.txt").read_text() == "1\n"
    assert command(tree, "install", "--enable-cache-without-check") == 0  # the guide of 2024: all tests of the folder
    assert printed(capsys, tree)[:2] == [
        f"{image}: is there: /install/{CACHED}",
        f"{repository}: is there: /install/source__fix/it",
    ]
    assert len((tree / "imports").read_text().splitlines()) == 1
    assert command(tree, "uninstall") == 0
    assert printed(capsys, tree)[0] == f"{repository}: removed: /install/source__fix/it"
    assert [path for path in (tree / "install").rglob("*") if not path.is_dir()] == []
    assert command(tree, "uninstall") == 0
    assert printed(capsys, tree)[1] == f"{image}: is not installed: /install/{CACHED}"


def test_what_install_did_not_make_stays(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "install/source__fix/it").mkdir(parents=True)
    (tree / f"install/{CACHED}").write_text("by hand")
    (tree / "install/notes").write_text("mine")
    assert command(tree, "install") == command(tree, "uninstall") == 0
    assert f"image {IMAGE}: is there, but install did not make it: kept: /install/{CACHED}" in printed(capsys, tree)
    assert (tree / f"install/{CACHED}").read_text() == "by hand"
    assert (tree / "install/source__fix/it").is_dir()


def test_an_image_that_was_there_before_install_stays(tree: Path) -> None:
    image = tree / "install" / shared_name(IMAGE)
    image.parent.mkdir()
    image.write_text("mine")
    assert command(tree, "install") == command(tree, "install") == command(tree, "uninstall") == 0
    assert not os.path.lexists(tree / f"install/{CACHED}")
    assert image.exists()


def test_what_came_to_the_place_of_a_piece_that_failed_stays(tree: Path) -> None:
    write_test(tree, image="reg.example/bad:1", commit="none")
    assert command(tree, "install") == 3
    image = tree / "install" / shared_name("reg.example/bad:1")
    image.write_text("by hand, as the hint says")
    (tree / "install/source__none").mkdir()
    assert command(tree, "uninstall") == 0
    assert image.exists()
    assert (tree / "install/source__none").is_dir()


def test_a_link_out_of_install_path_is_refused(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_test(tree, commit="main")
    (tree / "install").mkdir()
    (tree / "install/source__main").symlink_to(tree / "outside")
    assert command(tree, "install") == 3
    assert "source__main: is a link to " in capsys.readouterr().err
    assert not (tree / "outside").exists()


def test_no_password_in_messages_and_records(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_test(tree, url="http://user:token@127.0.0.1:9")
    assert command(tree, "install") == 3
    captured = capsys.readouterr()
    assert "repository http://127.0.0.1:9/source at fix/it: git clone" in captured.err
    records = "".join(path.read_text() for path in (tree / "install").rglob("*.json"))
    assert "token" not in captured.out + captured.err + records


def test_an_image_of_the_cluster_is_linked_and_never_removed(tree: Path) -> None:
    shared = tree / "shared" / shared_name(IMAGE)
    shared.write_text("shared")
    assert command(tree, "install") == 0
    assert (tree / f"install/{CACHED}").readlink() == shared
    assert not (tree / "imports").exists()
    assert command(tree, "uninstall") == 0
    assert shared.read_text() == "shared"
    assert not os.path.lexists(tree / f"install/{CACHED}")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": "reg.example/bad:1"}, "image reg.example/bad:1: was not imported; the reason is in the lines"),
        ({"commit": "none"}, "source__none: git -C"),
        ({"commit": "data.txt"}, "source__data.txt: git -C"),
        ({"url": "/nowhere"}, "repository /nowhere/source at fix/it: git clone --quiet -- /nowhere/source"),
    ],
)
def test_a_piece_that_fails_does_not_stop_the_others_and_leaves_nothing(
    change: dict[str, str], words: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_test(tree, **change)
    assert command(tree, "install") == 3
    lines = printed(capsys, tree)
    assert lines[-1] == "acceptance: /install: 1 piece not installed"
    assert sum("installed: /install/" in line for line in lines) == 1
    if "commit" not in change:
        assert any(line.startswith(f"acceptance: {words}") for line in lines), lines
    assert not list((tree / "install").rglob("*.part"))


def test_install_that_is_killed_leaves_nothing_half_made(tree: Path) -> None:
    """git is a stand-in that kills the command after it wrote half of a repository."""
    (tree / "bin").mkdir()
    git = tree / "bin/git"
    git.write_text('#!/bin/bash\nmkdir -p "${!#}/half"\nkill -KILL "$PPID"\n')
    git.chmod(0o755)
    path = f"{tree}/bin:{os.environ['PATH']}"
    words = "from acceptance.cloudai import install; install._clone(install.Piece('repository', 'r', 'u', 'c'), P)"
    program = f"from pathlib import Path; P = Path({str(tree / 'install')!r}); {words}"
    argv = [sys.executable, "-c", program]
    killed = subprocess.run(argv, env={**os.environ, "PATH": path}, cwd=Path(__file__).parents[2], check=False)
    assert killed.returncode == -9
    assert [path.suffix for path in (tree / "install").iterdir()] == [".part"]
    assert command(tree, "install") == 0
    assert not list((tree / "install").glob("*.part"))


def test_two_at_once_end_the_same(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = install._git

    def slow(*words: str) -> None:
        original(*words)
        if "checkout" in words and not (tree / "second").exists():
            (tree / "second").touch()
            assert command(tree, "install") == 0  # the other one ends first

    monkeypatch.setattr(install, "_git", slow)
    assert command(tree, "install") == 0
    assert (tree / "install/source__fix/it/data.txt").is_file()
    assert not list((tree / "install").rglob("*.part"))


@pytest.mark.parametrize("commit", ["-f", "../../x", "a//b", "."])
def test_a_commit_that_names_another_folder(commit: str, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_test(tree, commit=commit)
    assert command(tree, "install") == 2
    rule = "must not begin with '-' and must have no empty part, '.' and '..': it names a folder. Hint: correct it"
    assert printed(capsys, tree) == [f"acceptance: one: commit {commit!r} of /source: {rule}"]
    assert not (tree / "install").exists()


def test_two_repositories_of_one_place(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / "tests/one.toml"
    path.write_text(path.read_text() + '[[git_repos]]\nurl = "https://x/source.git"\ncommit = "fix/it"\n')
    assert command(tree, "install") == 2
    assert "have one place in install_path: source__fix/it. Hint: give one of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--system-config", "SYSTEM"], "--test-scenario: is missing, and --tests-dir is not given, whose tests"),
        (["--tests-dir", "TESTS"], "--system-config: is missing, and CLOUDAI_SYSTEM_CONFIG is not set"),
        (["--system-config", "SCENARIO", "--tests-dir", "TESTS"], "scenario.toml: is no system. Hint: give a file"),
        (["--system-config", "SYSTEM", "--tests-dir", "EMPTY"], "shared: has no test. Hint: give the folder of"),
        (["--system-config", "SYSTEM", "--tests-dir", "NONE"], "none: is not a folder. Hint: give the folder"),
    ],
)
@pytest.mark.parametrize("name", ["install", "uninstall"])
def test_misuse(
    name: str,
    options: list[str],
    words: str,
    tree: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CLOUDAI_SYSTEM_CONFIG", raising=False)
    places = {"SYSTEM": "system.toml", "SCENARIO": "scenario.toml", "TESTS": "tests", "EMPTY": "shared", "NONE": "none"}
    argv = [str(tree / places[word]) if word in places else word for word in options]
    assert main([name, *argv]) == 2
    assert words in capsys.readouterr().err


def test_no_importer(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "importer.sh").unlink()
    assert command(tree, "install") == 3
    rule = "is not there, and it imports the images. Hint: run install on the head node of a cluster of Slipway"
    assert f"acceptance: /importer.sh: {rule}" in printed(capsys, tree)


def options_of_run(tree: Path, without_check: bool = False) -> argparse.Namespace:
    return argparse.Namespace(
        system_config=tree / "system.toml",
        test_scenario=tree / "scenario.toml",
        tests_dir=tree / "tests",
        hook_dir=None,
        output_dir=None,
        single_sbatch=False,
        enable_cache_without_check=without_check,
    )


def test_run_names_what_is_not_installed_and_how_to_install_it(tree: Path) -> None:
    with pytest.raises(InputError) as refused:
        write_scenario(options_of_run(tree), lambda _: [])
    files = f"--system-config {tree}/system.toml --test-scenario {tree}/scenario.toml --tests-dir {tree}/tests"
    assert refused.value.faults[0] == (
        f"image {IMAGE}: is not installed: {tree}/install/{CACHED} does not exist. Hint: acceptance install {files}"
    )
    assert len(refused.value.faults) == 2
    assert not (tree / "out").exists()
    assert write_scenario(options_of_run(tree, without_check=True), lambda _: []).folder.is_dir()
    shutil.rmtree(tree / "out")
    assert write_scenario(options_of_run(tree)).folder.is_dir()  # dry-run looks for nothing


def test_the_pieces_of_the_templates() -> None:
    def pieces(template: str, **more: object) -> list[tuple[str, str]]:
        test = install.TestDefinition("t", "d", template, {"docker_image_url": "i:1", **more})
        return [(piece.kind, piece.name) for piece in install.pieces_of([test], {})]

    assert pieces("NeMoRun") == [("repository", "cloudai__5b5c0f72"), ("program", "cloudai_nemorun.py")]
    launcher = "NeMo-Framework-Launcher__599ecfcbbd64fd2de02f2cc093b1610d73854022"
    assert pieces("NeMoLauncher") == [("repository", launcher), ("environment", f"{launcher}-venv")]
    repository = {"url": "https://x/perf.git", "commit": "c"}
    assert pieces("AIDynamo", aiperf={"repo": repository}, aiperf_phases=[{"repo": repository}])[1:3] == [
        ("repository", "perf__c"),
        ("repository", "cloudai__5b5c0f72"),
    ]
    assert pieces("NcclTest") == []


def test_a_program_of_a_repository_and_an_environment(tree: Path) -> None:
    folder = tree / "install"
    (folder / "repo/src").mkdir(parents=True)
    (folder / "repo/src/tool.py").write_text("x")
    tool = install.Piece("program", "tool.py", "src/tool.py", within="repo")
    none = install.Piece("program", "none.py", "src/none.py", within="repo")
    alone = install.Piece("environment", "gone-venv", "of gone", within="gone")
    with pytest.raises(install.ExternalError) as failed:
        install.install([tool, none, alone], folder, lambda _: None)
    assert (folder / "tool.py").read_text() == "x"
    assert str(failed.value).splitlines() == [
        f"program src/none.py: {folder}/repo/src/none.py: does not exist."
        f" Hint: remove {folder}/repo, and run install again",
        f"environment of gone: needs {folder}/gone, which is not installed",
        f"{folder}: 2 pieces not installed",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "nvcr.io/nvidia/pytorch:24.02-py3",
        "nvcr.io#nvidia/pytorch:24.02-py3",
        "ubuntu:22.04",
        "a.b:5000/x/y",
        f"x/y@sha256:{'0' * 64}",
    ],
)
def test_the_importer_and_install_name_an_image_alike(url: str) -> None:
    assert shared_name(url) == shared_name(f"docker://{url}") == f"{parse(f'docker://{url}').stem}.sqsh"
