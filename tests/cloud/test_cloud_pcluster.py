"""ParallelCluster's own validators against the embedded AWS."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rehearsal.cloud import pcluster
from rehearsal.cloud.pcluster import PclusterUnavailable, ValidationMessage
from rehearsal.cloud.seed import ExistingNetwork, ExistingSubnet, Reservation, Seed
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud.template import stringify

PCLUSTER = Path(__file__).resolve().parents[2] / ".venv-pcluster/bin/pcluster"
needs_pcluster = [pytest.mark.slow, pytest.mark.skipif(not PCLUSTER.exists(), reason="needs pcluster: make rehearse")]

PUBLIC, PRIVATE, BLOCK = "subnet-0123456789abcdef0", "subnet-0123456789abcdef1", "cr-0123456789abcdef1"
CLUSTER: dict[str, Any] = {
    "Region": "us-east-1",
    "Image": {"Os": "ubuntu2204"},
    "HeadNode": {
        "InstanceType": "m5.8xlarge",
        "Networking": {"SubnetId": PUBLIC},
        "Ssh": {"KeyName": "gpu"},
        "Iam": {"AdditionalIamPolicies": [{"Policy": "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"}]},
    },
    "Scheduling": {
        "Scheduler": "slurm",
        "SlurmQueues": [
            {
                "Name": "train",
                "CapacityType": "CAPACITY_BLOCK",
                "Networking": {"SubnetIds": [PRIVATE]},
                "ComputeResources": [
                    {
                        "Name": "gpu",
                        "InstanceType": "p5.48xlarge",
                        "MinCount": 4,
                        "MaxCount": 4,
                        "Efa": {"Enabled": True},
                        "CapacityReservationTarget": {"CapacityReservationId": BLOCK},
                    }
                ],
            }
        ],
    },
}


@pytest.fixture(scope="module")
def seeded(aws: EmbeddedAws) -> EmbeddedAws:
    subnets = (
        ExistingSubnet(PUBLIC, "10.0.0.0/24", "us-east-1a", public=True),
        ExistingSubnet(PRIVATE, "10.0.64.0/18", "us-east-1a"),
    )
    block = Reservation(BLOCK, "p5.48xlarge", 4, "us-east-1a", "capacity-block")
    network = ExistingNetwork("vpc-0123456789abcdef0", "10.0.0.0/16", subnets)
    aws.seed(Seed(reservations=(block,), key_pairs=("gpu",), network=network))
    return aws


def judge(
    aws: EmbeddedAws, folder: Path, configuration: dict[str, Any], program: Path = PCLUSTER
) -> list[ValidationMessage]:
    return pcluster.validate(configuration, "ml", "us-east-1", aws.address_endpoint, program, folder)


class TestReal:
    pytestmark = needs_pcluster

    def test_a_capacity_block_cluster_passes_without_a_word(self, seeded: EmbeddedAws, tmp_path: Path) -> None:
        assert judge(seeded, tmp_path, CLUSTER) == []

    def test_it_passes_as_cloudformation_sends_it(self, seeded: EmbeddedAws, tmp_path: Path) -> None:
        assert judge(seeded, tmp_path, stringify(CLUSTER)) == []

    @pytest.mark.parametrize(
        ("breakage", "level", "validator"),
        [
            (lambda queue, _: queue.update(Colour="red"), "ERROR", "ConfigSchemaValidator"),
            (lambda _, node: node.update(MaxCount=8), "ERROR", "ComputeResourceSizeValidator"),
            (lambda _, node: node.update(InstanceType="p5en.48xlarge"), "ERROR", "CapacityReservationValidator"),
            (
                lambda queue, _: queue["Networking"].update(SubnetIds=["subnet-0123456789abcdef9"]),
                "ERROR",
                "Configuration",
            ),
        ],
    )
    def test_broken_ones_name_the_validator(
        self, seeded: EmbeddedAws, tmp_path: Path, breakage: Callable[[Any, Any], None], level: str, validator: str
    ) -> None:
        broken = copy.deepcopy(CLUSTER)
        queue = broken["Scheduling"]["SlurmQueues"][0]
        breakage(queue, queue["ComputeResources"][0])
        found = judge(seeded, tmp_path, broken)
        assert (level, validator) in {(message.level, message.type) for message in found}

    def test_a_missing_key_pair_is_a_warning(self, seeded: EmbeddedAws, tmp_path: Path) -> None:
        without = copy.deepcopy(CLUSTER)
        del without["HeadNode"]["Ssh"]
        found = judge(seeded, tmp_path, without)
        assert [(message.level, message.type) for message in found] == [("WARNING", "KeyPairValidator")]

    def test_no_endpoint_is_a_fault_of_the_environment(self, tmp_path: Path) -> None:
        with pytest.raises(PclusterUnavailable):
            pcluster.validate(CLUSTER, "ml", "us-east-1", "http://127.0.0.1:9", PCLUSTER, tmp_path)


def script(folder: Path, text: str) -> Path:
    """A pcluster whose Python is this text of a shell."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return folder / "pcluster"


def test_a_missing_program_is_told(aws: EmbeddedAws, tmp_path: Path) -> None:
    with pytest.raises(PclusterUnavailable, match="no such program"):
        judge(aws, tmp_path, CLUSTER, tmp_path / "none")


def test_a_hanging_program_is_bounded(aws: EmbeddedAws, tmp_path: Path) -> None:
    program = script(tmp_path, "exec sleep 60")
    with pytest.raises(PclusterUnavailable, match="no answer within 1 s"):
        pcluster.validate(CLUSTER, "ml", "us-east-1", aws.address_endpoint, program, tmp_path, timeout_s=1.0)


@pytest.mark.parametrize("answer", ["Segmentation fault", '{"message": "Unable to locate credentials"}'])
def test_an_answer_about_something_else_is_no_verdict(aws: EmbeddedAws, tmp_path: Path, answer: str) -> None:
    with pytest.raises(PclusterUnavailable):
        judge(aws, tmp_path, CLUSTER, script(tmp_path, f"echo '{answer}'"))
