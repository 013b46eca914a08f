"""`slipway deploy`, `diff` and `destroy`: the command line that they print and run, and their exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from slipway.cdk_command import cdk_command
from slipway.destroy import _kept
from slipway.places import FILES
from slipway.settings import load_settings
from slipway.stack_repairs import repair
from slipway.status.stacks import Stack
from tests.aws.deployed_site import SETTINGS, Site, slipway

PARTS = ("network", "storage", "observability", "cluster", "acceptance")


@pytest.fixture
def cdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CDK CLI that writes down how it was started and ends with the number in `code`."""
    program = tmp_path / "cdk"
    program.write_text(
        f'#!/bin/bash\nprintf "%s\\n" "$PWD" "$@" >{tmp_path}/started\necho synthesized\nexit "$(cat {tmp_path}/code)"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    (tmp_path / "code").write_text("0", encoding="utf-8")
    monkeypatch.setattr("slipway.cdk_command.cdk", lambda: str(program))
    (tmp_path / "config").write_text("[profile ml]\nregion = us-east-1\n", encoding="utf-8")
    (tmp_path / "credentials").write_text(
        "".join(f"[{name}]\naws_access_key_id = a\naws_secret_access_key = b\n" for name in ("default", "ml")),
        encoding="utf-8",
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


def started(folder: Path) -> list[str]:
    return (folder / "started").read_text(encoding="utf-8").splitlines()


def test_deploy_runs_the_command_that_it_prints(cdk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    extra = ("--", "--outputs-file", "a b.json")
    assert slipway("deploy", SETTINGS, "--profile", "ml", "--require-approval", "never", *extra) == 0
    folder, *arguments = started(cdk)
    assert folder == str(FILES)
    assert arguments == [
        "deploy", "--all", "--context", f"settings={SETTINGS}", "--profile", "ml",
        "--require-approval", "never", "--outputs-file", "a b.json",
    ]  # fmt: skip
    out, err = capfd.readouterr()
    assert out == "synthesized\n"
    assert err.splitlines()[0].endswith(shlex.join([str(cdk / "cdk"), *arguments]))


@pytest.mark.parametrize("command", ["deploy", "diff"])
def test_an_unknown_profile_starts_nothing(command: str, cdk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert slipway(command, SETTINGS, "--profile", "mll") == 2
    assert "--profile mll: there is no such profile. Hint: the profiles are: " in capsys.readouterr().err
    assert not (cdk / "started").exists()


def test_diff_and_its_failure(cdk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (cdk / "code").write_text("7", encoding="utf-8")
    assert slipway("diff", SETTINGS) == 1
    assert started(cdk)[1:3] == ["diff", "--context"]
    assert capfd.readouterr().err.splitlines()[-1] == "cdk diff failed with exit code 7"


def test_json_is_the_only_thing_on_standard_output(cdk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert slipway("deploy", SETTINGS, "--json") == 0
    out, err = capfd.readouterr()
    answer = json.loads(out)
    assert (answer["name"], answer["cdk_exit_code"], answer["command"][1]) == ("rehearsal", 0, "deploy")
    assert "synthesized" in err


def test_outside_a_checkout_the_app_is_slipways_own(cdk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("slipway.cdk_command.CHECKOUT", None)
    monkeypatch.chdir(tmp_path)
    assert slipway("deploy", SETTINGS) == 0
    folder, *arguments = started(cdk)
    assert folder == str(tmp_path)
    app = ["--app", f"{sys.executable} -m slipway app"]
    assert arguments[2:4] == app
    rollback = shlex.join([str(cdk / "cdk"), "rollback", "x-cluster", *app, "--context", "settings=FILE"])
    assert repair("UPDATE_ROLLBACK_FAILED", "x-cluster").endswith(f"then {rollback}")


@pytest.mark.parametrize(
    ("action", "stacks"), [("deploy", ("--all",)), ("diff", ()), ("destroy", ("rehearsal-cluster", "--force"))]
)
def test_the_pinned_cdk_cli_knows_the_options(action: str, stacks: tuple[str, ...]) -> None:
    command = cdk_command(action, SETTINGS, profile="ml", extra=(), stacks=stacks)
    text = subprocess.run(
        [FILES / "node_modules/.bin/cdk", action, "--help"], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    options = [word for word in command if word.startswith("-")]
    assert [option for option in options if not re.search(rf"{option}\b", text)] == []


@pytest.mark.parametrize("command", ["deploy", "diff", "destroy"])
def test_wrong_settings_start_nothing(command: str, cdk: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("name: demo\n", encoding="utf-8")
    assert slipway(command, tmp_path / "bad.yaml") == 2
    assert not (cdk / "started").exists()


def test_a_cdk_cli_that_cannot_be_started(cdk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cdk / "cdk").unlink()
    assert slipway("diff", SETTINGS) == 3
    assert "the CDK CLI cannot be started: No such file or directory. Hint: make setup" in capsys.readouterr().err


def test_ctrl_c_waits_for_the_cdk_cli(cdk: Path, tmp_path: Path) -> None:
    """The terminal interrupts both; the CDK CLI ends its work first."""
    program = cdk / "cdk"
    program.write_text(
        f"#!/bin/bash\ntrap 'echo tidied >{tmp_path}/tidied; exit 1' INT\ntouch {tmp_path}/up\n"
        "for ((i = 0; i < 300; i++)); do sleep 0.1; done\n",
        encoding="utf-8",
    )
    code = f"import sys, slipway.cdk_command as d; d.cdk = lambda: {str(program)!r}; from slipway.cli import main; main_code = main(); sys.exit(main_code)"
    command = [sys.executable, "-c", code, "diff", str(SETTINGS)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        for _ in range(300):
            if (tmp_path / "up").exists() or process.poll() is not None:
                break
            threading.Event().wait(0.1)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1]) == (130, "interrupted")
    assert (tmp_path / "tidied").exists()


def answered(monkeypatch: pytest.MonkeyPatch, answer: str) -> list[str]:
    asked: list[str] = []

    def prompt(text: str, **_: Any) -> str:
        asked.append(text)
        return answer

    monkeypatch.setattr("typer.prompt", prompt)
    return asked


def test_destroy_names_what_stays_and_asks(
    site: Site, cdk: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site.deploy(*PARTS)
    asked = answered(monkeypatch, "another")
    assert slipway("destroy", SETTINGS) == 2
    err = capfd.readouterr().err
    names = [line.split()[0] for line in err.splitlines() if "CREATE_COMPLETE" in line]
    assert names == ["rehearsal-acceptance", "rehearsal-cluster", "rehearsal-observability", "rehearsal-storage"]
    assert "the log group nodes" in err
    assert "ParallelCluster's log group /aws/parallelcluster/rehearsal-..." in err
    assert "the EBS volume of /home" not in err
    assert "rehearsal-network: the file system is in its subnets" in err
    assert "not the name rehearsal: nothing was deleted" in err
    assert (asked, (cdk / "started").exists()) == (["Type rehearsal to delete it"], False)

    answered(monkeypatch, "rehearsal")
    assert slipway("destroy", SETTINGS, "--", "--verbose") == 0
    assert started(cdk)[1:] == ["destroy", *names, "--context", f"settings={SETTINGS}", "--force", "--verbose"]

    (cdk / "code").write_text("1", encoding="utf-8")
    asked = answered(monkeypatch, "")
    assert slipway("destroy", SETTINGS, "--yes") == 1
    assert asked == []


def test_destroy_names_the_volume_of_home(
    site: Site, cdk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SETTINGS.read_text(encoding="utf-8")
    file = tmp_path / "home.yaml"
    file.write_text(text.replace("storage:\n", "storage:\n  home: {kind: ebs, size_gib: 200}\n"), encoding="utf-8")
    site.deploy("storage", "cluster")
    assert slipway("destroy", file, "--yes") == 0
    err = capsys.readouterr().err
    assert "the EBS volume of /home (200 GiB): it costs until you delete it" in err
    assert "Lambda functions" not in err


def test_destroy_takes_the_network_when_no_file_system_stays(
    site: Site, cdk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.deploy("network")
    assert slipway("destroy", SETTINGS, "--yes") == 0
    assert started(cdk)[1:3] == ["destroy", "rehearsal-network"]
    assert "  nothing" in capsys.readouterr().err.splitlines()


def test_what_stays_of_the_storage() -> None:
    outputs = {"FileSystemId": "fs-1", "BucketName": "data", "HomeVolumeId": "vol-1"}
    stacks = {"storage": Stack("storage", "demo-storage", "CREATE_COMPLETE", outputs=outputs)}
    settings = load_settings(SETTINGS)
    made = _kept(settings, stacks)
    assert made == [
        "the FSx for Lustre file system and its security group: fs-1",
        "the EBS volume of /home: vol-1; it costs until you delete it",
        "the bucket data",
    ]
    fsx = settings.storage.fsx.model_copy(update={"file_system_id": "fs-1"})
    storage = settings.storage.model_copy(update={"fsx": fsx})
    existing = _kept(settings.model_copy(update={"storage": storage}), stacks)
    assert existing[0] == "the FSx for Lustre file system: fs-1"


def test_destroy_of_nothing(site: Site, cdk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert slipway("destroy", SETTINGS, "--json") == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["stacks"], "nothing of rehearsal is deployed in us-east-1" in err) == ([], True)


def test_destroy_of_an_acceptance_that_the_app_no_longer_has(
    site: Site, cdk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.deploy("acceptance")
    text = SETTINGS.read_text(encoding="utf-8")
    start, _, rest = text.partition("acceptance:")
    after = "".join(line for line in rest.splitlines(keepends=True)[1:] if not line.startswith((" ", "#", "\n")))
    (tmp_path / "none.yaml").write_text(f"{start}acceptance:\n  scenario: none\n{after}", encoding="utf-8")
    assert slipway("destroy", tmp_path / "none.yaml", "--yes") == 1
    assert "Hint: aws cloudformation delete-stack --region us-east-1 --stack-name rehearsal-acceptance" in (
        capsys.readouterr().err
    )
