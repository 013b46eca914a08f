"""The templates, filled by render.py as on a node, and judged by the programs and schemas that read them.

Prometheus' configuration is made of every example's own values; the CloudWatch agent's is in test_cloudwatch.py.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slipway import bundle
from slipway.settings import load_settings

from .conftest import NODE_ENV, ROOT

EXAMPLES = sorted((ROOT / "clusters").glob("*.yaml"))
AMP = "https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-1/api/v1/remote_write"


def render(template: str, tmp_path: Path, *pairs: str, **values: str) -> subprocess.CompletedProcess[str]:
    env = tmp_path / "node.env"
    env.write_text("".join(f"{key}={value}\n" for key, value in {**NODE_ENV, **values}.items()))
    command = [sys.executable, str(ROOT / "nodes/lib/render.py"), str(ROOT / "templates" / template)]
    command += ["--env", str(env), "--output", str(tmp_path / "out"), *pairs]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def check_config(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Let promtool judge what was rendered."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    command = [promtool, "check", "config", str(tmp_path / "out")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("url", ["", AMP])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_promtool_accepts_the_configuration_of_every_example(example: Path, url: str, tmp_path: Path) -> None:
    values = bundle.node_env_values(load_settings(example))
    assert render("prometheus.yml.j2", tmp_path, **{**values, "AMP_REMOTE_WRITE_URL": url}).returncode == 0
    done = check_config(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "out").read_text()
    assert ("remote_write:" in text) == bool(url)
    assert f'region: "{values["REGION"]}"' in text
    assert text.count("job_name: ") == 4


@pytest.mark.parametrize("name", ['quo"te', "colon: # hash"])
def test_promtool_accepts_any_name(name: str, tmp_path: Path) -> None:
    assert render("prometheus.yml.j2", tmp_path, CLUSTER_NAME=name).returncode == 0
    assert check_config(tmp_path).returncode == 0


@pytest.mark.parametrize("url", ["https://[x/write", "https://host:port/write", "%zz"])
def test_promtool_refuses_an_address_that_is_none(url: str, tmp_path: Path) -> None:
    assert render("prometheus.yml.j2", tmp_path, AMP_REMOTE_WRITE_URL=url).returncode == 0
    done = check_config(tmp_path)
    assert done.returncode == 1, done.stdout
    assert "FAILED" in done.stderr


def test_prometheus_listens_on_loopback_only(tmp_path: Path) -> None:
    assert render("slipway-prometheus.service.j2", tmp_path).returncode == 0
    listen = [word for word in (tmp_path / "out").read_text().split() if word.startswith("--web.listen-address=")]
    assert listen == ["--web.listen-address=127.0.0.1:9090"]


def test_remote_write_is_signed_in_the_clusters_region(tmp_path: Path) -> None:
    render("prometheus.yml.j2", tmp_path, AMP_REMOTE_WRITE_URL="https://x.example/w", REGION="eu-west-1")
    assert 'sigv4:\n      region: "eu-west-1"' in (tmp_path / "out").read_text()


def test_missing_key_is_named(tmp_path: Path) -> None:
    env = tmp_path / "node.env"
    env.write_text("REGION=us-east-1\n")
    command = [sys.executable, str(ROOT / "nodes/lib/render.py"), str(ROOT / "templates/prometheus.yml.j2")]
    command += ["--env", str(env), "--output", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert (
        f"prometheus.yml.j2: {env} has no CLUSTER_NAME. Hint: add CLUSTER_NAME=... to /etc/slipway/site.env"
        in done.stderr
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("line", ["lower=1", "KEY", "KEY=a\tb"])
def test_bad_line_of_node_env_is_refused(line: str, tmp_path: Path) -> None:
    env = tmp_path / "node.env"
    env.write_text(f"GOOD=1\n{line}\n")
    command = [sys.executable, str(ROOT / "nodes/lib/render.py"), str(ROOT / "templates/pyxis.conf.j2")]
    done = subprocess.run(
        [*command, "--env", str(env), "--output", str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"{env}:2: " in done.stderr


def test_missing_template_is_one_line(tmp_path: Path) -> None:
    done = render("absent.j2", tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "absent.j2" in done.stderr
