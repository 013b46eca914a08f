"""Versions of kernel, driver, EFA and plugin: read on a node, and compared among the compute nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodes.status.versions import shared_nccl, versions, with_shared_nccl
from slipway.status.versions import differing, in_use

DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.20  Release Build  (dvs-builder)\n"
EFA = """\
# EFA installer version: 1.47.0
# Debug packages installed: no
# Packages installed:
efa-config_1.18_all libfabric-aws-bin_2.4.0amzn1.0_amd64 libnccl-ofi_1.17.2-1_amd64
"""


def test_versions_of_a_node(tmp_path: Path) -> None:
    driver, efa = tmp_path / "version", tmp_path / "efa"
    assert versions(driver, efa) == {"kernel": os.uname().release}
    driver.write_text(DRIVER)
    efa.write_text(EFA)
    expected = {"kernel": os.uname().release, "driver": "580.126.20", "EFA": "1.47.0", "NCCL plugin": "1.17.2"}
    assert versions(driver, efa) == expected


def test_nodes_that_differ_are_named_for_each_version() -> None:
    def node(host: str, **found: str) -> dict[str, object]:
        return {"host": host, "versions": {"kernel": "6.8", **found}}

    same = [node("n1", driver="580.1"), node("n2", driver="580.1"), {"host": "cpu", "versions": {"kernel": "6.8"}}]
    assert list(differing([*same, {"host": "older release"}])) == []
    newer = node("n3", driver="595.2")
    assert list(differing([*same, newer])) == ["differing versions of driver: 580.1 on n1, n2; 595.2 on n3"]
    assert in_use([*same, newer]) == "kernel 6.8, driver 2 versions"
    assert in_use(same) == "kernel 6.8, driver 580.1"
    assert in_use([{"host": "older release"}]) == ""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((), None),
        (("usr/lib/x86_64-linux-gnu/libnccl.so.2.27.3",), "2.27.3 (image)"),
        (("usr/lib64/libnccl.so.2.26.2", "usr/local/cuda/lib/libnccl.so.2.27.3"), "2.27.3 (image)"),
        (("usr/lib64/libnccl.so.2",), None),  # the loader's link alone has no version
        (("etc/profile.d/nccl-shared.sh", "usr/lib64/libnccl.so.2.26.2"), "shared"),
    ],
)
def test_the_nccl_that_jobs_of_a_node_load(files: tuple[str, ...], expected: str | None, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert versions(tmp_path / "none", tmp_path / "none", tmp_path).get("NCCL") == expected


def test_the_shared_nccl_has_one_version_for_all_nodes_that_use_it(tmp_path: Path) -> None:
    assert shared_nccl(tmp_path) == ""
    (tmp_path / "nccl").mkdir()
    (tmp_path / "nccl/current").symlink_to("versions/2.28.7-1_1.17.2")
    version = shared_nccl(tmp_path)
    assert version == "2.28.7-1 with the plugin 1.17.2"
    shared, image = {"NCCL": "shared"}, {"NCCL": "2.27.3 (image)"}
    assert with_shared_nccl(shared, version) == {"NCCL": "2.28.7-1 with the plugin 1.17.2 (shared)"}
    assert with_shared_nccl(shared, "") == {"NCCL": "not built yet (shared)"}
    assert with_shared_nccl(image, version) == image
    nodes = [
        {"host": host, "versions": with_shared_nccl(found, version)} for host, found in (("n1", shared), ("n2", image))
    ]
    expected = "differing versions of NCCL: 2.27.3 (image) on n2; 2.28.7-1 with the plugin 1.17.2 (shared) on n1"
    assert list(differing(nodes)) == [expected]
