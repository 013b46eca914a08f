"""What the settings say about NCCL: which GPUs it is built for, and that the time for it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipway import bundle
from slipway.instances import COMPUTE_CAPABILITIES, INSTANCE_TYPES
from slipway.places import FILES
from slipway.settings import Settings, load_settings

EXAMPLES = sorted((FILES / "clusters").glob("*.yaml"))


def settings_of(name: str) -> Settings:
    return load_settings(FILES / f"clusters/{name}.yaml")


def test_every_gpu_model_has_a_compute_capability() -> None:
    models = {instance.gpu_model for instance in INSTANCE_TYPES.values() if instance.gpus}
    assert models == set(COMPUTE_CAPABILITIES)


@pytest.mark.parametrize(
    ("name", "architectures"), [("p5en", "90"), ("p6-b200", "100"), ("g6-sandbox", "89"), ("rehearsal", "90")]
)
def test_nccl_is_built_for_the_gpus_of_the_queues(name: str, architectures: str) -> None:
    assert bundle.node_env_values(settings_of(name))["NCCL_GPU_ARCHS"] == architectures


def test_several_queues_give_every_architecture_once() -> None:
    queues = tuple(settings_of(name).queues[0] for name in ("p6-b200", "p5en", "rehearsal"))
    assert bundle.gpu_architectures(settings_of("rehearsal").model_copy(update={"queues": queues})) == [90, 100]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_a_run_that_waited_for_the_build_still_finds_its_node_in_time(file: Path) -> None:
    settings = load_settings(file)
    scenario = bundle.acceptance_scenario(settings)
    waited_s = int(bundle.node_env_values(settings)["ACCEPTANCE_BUILD_WAIT_S"])
    needed_s = waited_s + scenario["tests"][0]["timeout_s"] + scenario["locate"]["budget_s"]
    assert needed_s < settings.acceptance.timeout_minutes * 60


def test_the_measured_programs_are_those_of_the_shared_build_first() -> None:
    assert bundle.acceptance_scenario(settings_of("p5en"))["nccl_tests_paths"] == ["/fsx/nccl/nccl-tests"]
