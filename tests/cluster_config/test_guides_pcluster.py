"""ParallelCluster's own commands of the runbooks, for a cluster in the embedded AWS."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_updates_dryrun import PCLUSTER, Cluster, cluster, settings  # noqa: F401 - the last two are fixtures

pytestmark = pytest.mark.skipif(not PCLUSTER.exists(), reason="needs pcluster: make setup-pcluster")


def pcluster(cluster: Cluster, home: Path, *words: str) -> dict[str, Any]:  # noqa: F811 - the fixture's value
    aws = cluster.aws
    environment = {
        **aws.env(),
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "AWS_ENDPOINT_URL": aws.address_endpoint,
    }
    argv = [str(PCLUSTER), *words]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_clusters_are_listed(cluster: Cluster, tmp_path: Path) -> None:  # noqa: F811
    (found,) = pcluster(cluster, tmp_path, "list-clusters", "-r", cluster.aws.region)["clusters"]
    assert (found["clusterName"], found["clusterStatus"]) == (cluster.name, "CREATE_COMPLETE")


def test_the_way_in_by_ssh_is_printed(cluster: Cluster, tmp_path: Path) -> None:  # noqa: F811
    ec2 = cluster.aws.clients("ec2")
    ((head,),) = (one["Instances"] for one in ec2.describe_instances()["Reservations"])
    # What ParallelCluster writes on its instances, and reads the user's name from.
    attributes = {"Key": "parallelcluster:attributes", "Value": "ubuntu2204, slurm, 3.16.1, x86_64"}
    ec2.create_tags(Resources=[head["InstanceId"]], Tags=[attributes])
    words = ["ssh", "--region", cluster.aws.region, "--cluster-name", cluster.name]
    told = pcluster(cluster, tmp_path, *words, "--identity_file", "/home/me/key.pem", "--dryrun", "true")["command"]
    addresses = (head.get("PublicIpAddress"), head["PrivateIpAddress"])
    assert told in {f"ssh ubuntu@{address} --identity_file /home/me/key.pem" for address in addresses}
