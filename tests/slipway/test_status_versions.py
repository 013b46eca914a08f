"""Versions of kernel, driver, EFA and plugin: read on a node, and compared among the compute nodes."""

from __future__ import annotations

import os
from pathlib import Path

from nodes.status.versions import versions
from slipway.status.versions import differing

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
