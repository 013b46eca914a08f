"""The CloudWatch agent's configuration: the guide's log group and namespace, nothing twice, only metrics that exist."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from slipway import bundle
from slipway.settings import load_settings

from .conftest import ROOT
from .test_templates import EXAMPLES, render

# What the agent collects: its schema accepts any name, so plugins, measurements and options are compared with this
# list (from the agent's documented metrics, read 2026-11-28).
METRICS = {
    "cpu": {"usage_idle", "usage_iowait", "usage_system", "usage_user"},
    "mem": {"used_percent", "available"},
    "disk": {"used_percent", "inodes_free"},
    "net": {"bytes_recv", "bytes_sent", "err_in", "err_out"},
}
OPTIONS = {"measurement", "metrics_collection_interval", "resources", "totalcpu"}
# The folders whose logs ParallelCluster's own configuration ships; ours ships none of them a second time.
PARALLELCLUSTERS = re.compile(
    r"/var/log/(slurm|parallelcluster|chef|cfn|cloud-init|syslog|messages|supervisord|pcluster|dcv)"
)


def agent(tmp_path: Path, kind: str, metrics: str, **values: str) -> dict[str, Any]:
    pairs = (f"NODE_KIND={kind}", f"WITH_METRICS={metrics}")
    done = render("amazon-cloudwatch-agent.json.j2", tmp_path, *pairs, **values)
    assert done.returncode == 0, done.stderr
    configuration: dict[str, Any] = json.loads((tmp_path / "out").read_text())
    return configuration


@pytest.fixture(scope="module")
def schema() -> Any:
    shared = Path(os.environ.get("SLIPWAY_SHARED", ROOT.parent / "shared"))
    file = shared / "recipes/cloudwatch-agent-schema.json"
    if not file.exists():
        pytest.skip("the agent's schema is not part of this repository: set SLIPWAY_SHARED to the folder that has it")
    return pytest.importorskip("jsonschema").Draft4Validator(json.loads(file.read_text()))


@pytest.mark.parametrize("kind", ["headnode", "compute"])
@pytest.mark.parametrize("metrics", ["yes", "no"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_configuration_of_every_example_fits_the_schema(
    example: Path, metrics: str, kind: str, schema: Any, tmp_path: Path
) -> None:
    values = {**bundle.node_env_values(load_settings(example)), "LOG_GROUP": f"/aws/parallelcluster/{example.stem}"}
    schema.validate(agent(tmp_path, kind, metrics, **values))


@pytest.mark.parametrize("damage", ["namespace", "log_group_name"])
def test_schema_refuses_what_is_damaged(damage: str, schema: Any, tmp_path: Path) -> None:
    configuration = agent(tmp_path, "compute", "yes")
    if damage == "namespace":
        configuration["metrics"]["namespace"] = 7
    else:
        configuration["logs"]["logs_collected"]["files"]["collect_list"][0]["log_group_name"] = ""
    assert list(schema.iter_errors(configuration))


def test_metrics_are_known_ones_in_the_guides_namespace(tmp_path: Path) -> None:
    metrics = agent(tmp_path, "compute", "yes")["metrics"]
    assert metrics["namespace"] == "ParallelCluster"
    assert metrics["metrics_collected"].keys() == METRICS.keys()
    for plugin, settings in metrics["metrics_collected"].items():
        assert set(settings["measurement"]) <= METRICS[plugin]
        assert settings.keys() <= OPTIONS
    assert "metrics" not in agent(tmp_path, "compute", "no")


@pytest.mark.parametrize("kind", ["headnode", "compute"])
def test_logs_go_to_the_clusters_group_each_once(kind: str, tmp_path: Path) -> None:
    entries = agent(tmp_path, kind, "no")["logs"]["logs_collected"]["files"]["collect_list"]
    assert {entry["log_group_name"] for entry in entries} == {"/aws/parallelcluster/ml"}
    paths = [entry["file_path"] for entry in entries]
    expected = {"/var/log/slipway/setup.log", "/var/log/slipway/*.log"} | (
        {"/fsx/logs/ngc-download.log"} if kind == "headnode" else set()
    )
    assert set(paths) == expected
    assert not [path for path in paths if PARALLELCLUSTERS.match(path)]
    streams = [entry["log_stream_name"] for entry in entries]
    assert len(set(streams)) == len(streams)


def test_logs_of_steps_and_background_work_are_all_shipped_and_the_setups_once(tmp_path: Path) -> None:
    entries = agent(tmp_path, "compute", "no")["logs"]["logs_collected"]["files"]["collect_list"]
    entry = next(entry for entry in entries if "*" in entry["file_path"])
    assert entry["publish_multi_logs"] is True  # without it the agent follows the newest file alone
    left_out = re.compile(entry["blacklist"])
    for name in ("setup.log", "/var/log/slipway/setup.log"):  # whether the agent holds it against the name or the path
        assert left_out.search(name)
    for name in ("15-node-exporter.log", "gpu-exporter.log", "99-my-setup.log"):
        assert not left_out.search(name)
