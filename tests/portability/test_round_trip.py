"""Settings -> export -> import -> the same settings, over settings that hypothesis makes up."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipway.cluster_config import ClusterFacts, cluster_configuration, placeholder_facts
from slipway.exchange.export import configuration_text, export_pcluster
from slipway.exchange.pcluster_import import import_pcluster
from slipway.settings import Settings, load_settings
from tests.portability.strategies import ids, loaded, settings_tables

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [*sorted((ROOT / "clusters").glob("*.yaml")), ROOT / "tests/stacks/every-part.yaml"]
BOUNDED = settings(
    max_examples=80, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
FEWER = settings(BOUNDED, max_examples=30)
BLOCK = re.compile(r"^# .*\n", re.MULTILINE)


@st.composite
def facts_of_a_deployment(draw: st.DrawFn, made: Settings) -> ClusterFacts:
    network, fsx = made.network, made.storage.fsx
    return dataclasses.replace(
        placeholder_facts(made),
        head_node_subnet_id=network.head_node_subnet_id or draw(ids("subnet")),
        compute_subnet_id=network.compute_subnet_id or draw(ids("subnet")),
        node_security_group_id=network.security_group_id or draw(ids("sg")),
        file_system_id=fsx.file_system_id or draw(ids("fs")),
        bundle_sha256=draw(st.text("0123456789abcdef", min_size=64, max_size=64)),
        head_node_policy_arns=(
            "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore",
            f"arn:aws:iam::123456789012:policy/parallelcluster/{made.name}/head",
        ),
    )


def imported(text: str, **options: str) -> tuple[int, Settings]:
    """The exit code and the settings."""
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        source, target = Path(folder) / "cluster.yaml", Path(folder) / "settings.yaml"
        source.write_text(text, encoding="utf-8")
        code = import_pcluster(source, target, **options)
        return code, load_settings(target)


@BOUNDED
@given(table=settings_tables(), deployed=st.booleans(), data=st.data())
def test_it_comes_back_equal(table: dict[str, Any], deployed: bool, data: st.DataObject) -> None:
    made = loaded(table)
    facts = data.draw(facts_of_a_deployment(made)) if deployed else placeholder_facts(made)
    text = configuration_text(made, facts)
    start = text.index("\n# What ParallelCluster")
    assert all(line.startswith("# ") for line in text[start:].split("\n") if line)
    assert text[start:].isascii()
    code, back = imported(text)
    assert back == made
    assert code == 0


def carried_by_parallelcluster(made: Settings) -> dict[str, Any]:
    """The part of the settings for which ParallelCluster's configuration has keys."""
    plain = made.model_dump(mode="json")
    kept = {key: plain[key] for key in ("name", "region", "os", "head_node", "queues", "slurm")}
    for queue in kept["queues"]:
        queue.pop("count")  # it has no key for how the counts were written
    if "MungeKeySecretArn" not in json.dumps(cluster_configuration(made, placeholder_facts(made))):
        for part in (made.slurm.external_slurmdbd and kept["slurm"]["external_slurmdbd"],):
            if part:
                part.pop("munge_key_secret_arn")
    kept["retention_days"] = plain["observability"]["retention_days"]
    kept["tags"] = {key: value for key, value in plain["tags"].items() if key != "project"}
    kept["storage"] = {key: plain["storage"][key] for key in ("home", "mounts")}
    kept["file_system_id"] = plain["storage"]["fsx"]["file_system_id"]
    if not made.network.is_new:
        names = ("head_node_subnet_id", "compute_subnet_id", "security_group_id")
        kept["network"] = {key: plain["network"][key] for key in names}
    return kept


@FEWER
@given(table=settings_tables())
def test_without_the_block_all_that_parallelcluster_carries_comes_back(table: dict[str, Any]) -> None:
    made = loaded(
        {key: value for key, value in table.items() if key != "acceptance"} | {"acceptance": {"scenario": "none"}}
    )
    text = BLOCK.sub("", configuration_text(made, placeholder_facts(made)))
    assert "# slipway" not in text
    options = {"zone": made.zone} | ({} if made.network.is_new else {"vpc_id": str(made.network.vpc_id)})
    if made.slurm.external_slurmdbd and "MungeKeySecretArn" not in text:
        return  # not written by this release, and the settings need it
    _, back = imported(text, **options)
    assert carried_by_parallelcluster(back) == carried_by_parallelcluster(made)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_comes_back_equal(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, back = tmp_path / "cluster.yaml", tmp_path / "back.yaml"
    assert export_pcluster(file, target) == 0
    assert import_pcluster(target, back) == 0
    assert load_settings(back) == load_settings(file)
    assert "0 to fill in, 0 not carried" in capsys.readouterr().err


def test_other_nodes_than_the_limits_are_for_switch_acceptance_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, exported, back = tmp_path / "first.yaml", tmp_path / "pcluster.yaml", tmp_path / "back.yaml"
    first.write_text(
        "name: there\nregion: us-east-1\nzone: us-east-1a\n"
        "queues: [{name: train, instance_type: g6.xlarge, count: 4}]\n"
        "acceptance: {max_bytes: 4GiB, limits: [{nodes: 4, size: 4GiB, collective: all_reduce, fail_below_gb_per_s: 1, date: 2026-01-05, source: measured}]}\n",
        encoding="utf-8",
    )
    assert export_pcluster(first, exported) == 0
    text = exported.read_text(encoding="utf-8")
    assert "MinCount: 4" in text
    edited = text.replace("MinCount: 4", "MinCount: 3").replace("MaxCount: 4", "MaxCount: 3")
    exported.write_text(edited, encoding="utf-8")
    import_pcluster(exported, back)
    made = load_settings(back)
    assert (made.queues[0].count, made.acceptance.scenario) == (3, "none")
    assert [limit.nodes for limit in made.acceptance.limits] == [4]
    printed = capsys.readouterr().err
    assert "acceptance is off: no limit is known" in printed
    assert "the limits stay in the file" in printed
