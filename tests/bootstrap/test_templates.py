"""The templates, filled by render.py as on a node, and judged by the programs and schemas that read them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import NODE_ENV, ROOT

# What the CloudWatch agent collects: its schema accepts any name, so the names themselves are held against this list
# (from the agent's documented metrics).
METRICS = {
    "cpu": {"usage_idle", "usage_iowait", "usage_system", "usage_user"},
    "mem": {"used_percent", "available"},
    "disk": {"used_percent", "inodes_free"},
    "net": {"bytes_recv", "bytes_sent", "err_in", "err_out"},
}


def render(template: str, tmp_path: Path, *pairs: str, **values: str) -> subprocess.CompletedProcess[str]:
    env = tmp_path / "node.env"
    env.write_text("".join(f"{key}={value}\n" for key, value in {**NODE_ENV, **values}.items()))
    command = [sys.executable, str(ROOT / "bootstrap/render.py"), str(ROOT / "templates" / template)]
    command += ["--env", str(env), "--output", str(tmp_path / "out"), *pairs]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    "url", ["", "https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-1/api/v1/remote_write"]
)
@pytest.mark.parametrize("name", ["ml", 'quo"te', "colon: # hash"])
def test_promtool_accepts_the_configuration(url: str, name: str, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    assert render("prometheus.yml.j2", tmp_path, AMP_REMOTE_WRITE_URL=url, CLUSTER_NAME=name).returncode == 0
    done = subprocess.run(
        [promtool, "check", "config", str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("remote_write:" in (tmp_path / "out").read_text()) == bool(url)


def test_remote_write_is_signed_in_the_clusters_region(tmp_path: Path) -> None:
    render("prometheus.yml.j2", tmp_path, AMP_REMOTE_WRITE_URL="https://x.example/w", REGION="eu-west-1")
    assert 'sigv4:\n      region: "eu-west-1"' in (tmp_path / "out").read_text()


def agent(tmp_path: Path, kind: str, metrics: str) -> dict:  # type: ignore[type-arg]
    done = render("amazon-cloudwatch-agent.json.j2", tmp_path, f"NODE_KIND={kind}", f"WITH_METRICS={metrics}")
    assert done.returncode == 0, done.stderr
    configuration: dict = json.loads((tmp_path / "out").read_text())  # type: ignore[type-arg]
    return configuration


@pytest.mark.parametrize("kind", ["headnode", "compute"])
@pytest.mark.parametrize("metrics", ["yes", "no"])
def test_cloudwatch_agent_configuration_fits_the_schema(kind: str, metrics: str, tmp_path: Path) -> None:
    shared = Path(os.environ.get("SLIPWAY_SHARED", ROOT.parent / "shared"))
    schema = shared / "recipes/cloudwatch-agent-schema.json"
    if not schema.exists():
        pytest.skip("the agent's schema is not part of this repository: set SLIPWAY_SHARED to the folder that has it")
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft4Validator(json.loads(schema.read_text())).validate(agent(tmp_path, kind, metrics))


def test_cloudwatch_agent_collects_known_metrics_into_the_guides_namespace(tmp_path: Path) -> None:
    metrics = agent(tmp_path, "compute", "yes")["metrics"]
    assert metrics["namespace"] == "ParallelCluster"
    for plugin, settings in metrics["metrics_collected"].items():
        assert set(settings["measurement"]) <= METRICS[plugin]


def test_cloudwatch_agent_logs_go_to_the_clusters_group(tmp_path: Path) -> None:
    for kind, count in (("headnode", 2), ("compute", 1)):
        files = agent(tmp_path, kind, "no")["logs"]["logs_collected"]["files"]["collect_list"]
        assert [entry["log_group_name"] for entry in files] == ["/aws/parallelcluster/ml"] * count


def test_missing_key_is_named(tmp_path: Path) -> None:
    env = tmp_path / "node.env"
    env.write_text("REGION=us-east-1\n")
    command = [sys.executable, str(ROOT / "bootstrap/render.py"), str(ROOT / "templates/prometheus.yml.j2")]
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
    command = [sys.executable, str(ROOT / "bootstrap/render.py"), str(ROOT / "templates/node.env.j2")]
    done = subprocess.run(
        [*command, "--env", str(env), "--output", str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"{env}:2: " in done.stderr


def test_node_env_keeps_every_value(tmp_path: Path) -> None:
    assert render("node.env.j2", tmp_path, RESULTS_BUCKET="$(id) 'x' \"y\"").returncode == 0
    expected = {**NODE_ENV, "RESULTS_BUCKET": "$(id) 'x' \"y\""}
    assert (tmp_path / "out").read_text() == "".join(f"{key}={value}\n" for key, value in expected.items())


def test_missing_template_is_one_line(tmp_path: Path) -> None:
    done = render("absent.j2", tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "absent.j2" in done.stderr
