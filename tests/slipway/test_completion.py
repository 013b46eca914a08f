"""What the shell is offered at Tab, asked as bash and zsh ask, and docs/commands.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipway import breakage, commands_page, completion
from slipway.places import FILES
from slipway.settings import Settings

SLIPWAY = Path(sys.executable).parent / "slipway"


def offered(words: str, cwd: Path = FILES, asked_by: str = "bash") -> list[str]:
    """The answer to Tab at the end of `slipway WORDS`."""
    line = f"slipway {words}"
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words.split(" ")))}
    asked = asked if asked_by == "bash" else {"_TYPER_COMPLETE_ARGS": line}
    environment = {**os.environ, **asked, "_SLIPWAY_COMPLETE": f"complete_{asked_by}"}
    done = subprocess.run(
        [str(SLIPWAY)], env=environment, capture_output=True, text=True, timeout=60, cwd=cwd, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("chec", ["check"]),
        ("export ", ["pcluster", "env", "cloudai"]),
        ("check clusters/p5-", ["clusters/p5-capacity-block.yaml", "clusters/p5-reservation.yaml"]),
        ("check --explain limit-unk", ["limit-unknown"]),
        ("check --explain al", ["all"]),
        ("rehearse --break bo", ["bootstrap=head", "bootstrap=compute"]),
        ("init --region us-west-", ["us-west-1", "us-west-2"]),
        ("init --zone us-east-2", ["us-east-2a", "us-east-2b", "us-east-2c"]),
        ("init --instance-type p5e", ["p5e.48xlarge", "p5en.48xlarge"]),
        ("logs --group sl", ["slurm"]),
        ("deploy --require-approval n", ["never"]),
    ],
)
def test_bash_is_offered(words: str, expected: list[str]) -> None:
    assert offered(words) == expected


def test_zsh_is_offered_the_same() -> None:
    assert offered("check clusters/reh", asked_by="zsh") == ["""_arguments '*: :(("clusters/rehearsal.yaml"))'"""]


def test_files_are_yaml_files_and_a_single_folder_is_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site/clusters").mkdir(parents=True)
    for name in ("site/clusters/a.yaml", "site/clusters/b.yml", "site/clusters/c.txt", ".hidden.yaml"):
        (tmp_path / name).touch()
    assert completion.settings_files("") == ["site/clusters/a.yaml", "site/clusters/b.yml"]
    assert completion.settings_files("site/clusters/b") == ["site/clusters/b.yml"]
    assert completion.settings_files(".h") == [".hidden.yaml"]
    assert completion.settings_files("nowhere/") == []
    assert completion.settings_files(f"{tmp_path}/site/clusters/a") == [f"{tmp_path}/site/clusters/a.yaml"]


def test_profiles_are_those_of_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("[profile ml]\nregion = us-east-1\n[default]\n", encoding="utf-8")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    assert completion.profiles() == ["default", "ml"]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_is_printed_and_installed(shell: str, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    for option in ("--show-completion", "--install-completion"):
        done = subprocess.run(
            [str(SLIPWAY), option, shell], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        assert "_slipway_completion" in done.stdout or f"{shell} completion installed in" in done.stdout
    script = tmp_path / (".bash_completions/slipway.sh" if shell == "bash" else ".zfunc/_slipway")
    assert "_SLIPWAY_COMPLETE=complete_" in script.read_text(encoding="utf-8")


def test_what_is_offered_is_what_is_taken() -> None:
    for kind in completion.BREAK_KINDS:
        breakage.parse_breakage(f"{kind}gpu-3" if kind.endswith("=") else kind)
    assert {kind.partition("=")[0] for kind in completion.BREAK_KINDS} == set(breakage.KINDS)
    assert set(completion.OS_NAMES) == set(Settings.model_fields["os"].annotation.__args__)


def test_a_command_without_exit_codes_in_the_page_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(commands_page.COMMANDS, "cost")
    with pytest.raises(commands_page.CommandFault, match="differ: cost"):
        commands_page.commands_page()


def test_the_page_is_in_step_with_the_commands() -> None:
    page = (FILES / "docs/commands.md").read_text(encoding="utf-8")
    assert page == commands_page.commands_page(), "run: make docs"
    assert "## `slipway ssh FILE [-- COMMAND...]`" in page


def test_a_home_that_cannot_be_written_is_named() -> None:
    environment = {**os.environ, "HOME": "/proc/home", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [str(SLIPWAY), "--install-completion", "bash"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (3, "cannot write /proc/home: No such file or directory\n")
