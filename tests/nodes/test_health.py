"""slipway-health against recorded output of nvidia-smi, a stand-in that breaks things, and a Slurm that hangs."""

from __future__ import annotations

import dataclasses
import http.server
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodes.health import ask, checks, cli, facts, judge, report, slurm, smi, xid
from slipway.bundle import instance_facts
from slipway.settings import load_settings

from .conftest import ROOT
from .health_node import DRIVER, P5, PROGRAMS, FakeNode

RECORDED = Path(__file__).with_name("nvidia_smi")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    return FakeNode(tmp_path, monkeypatch)


# ------------------------------------------------------------------------------------------------ what nvidia-smi says


def test_recorded_listing_of_two_h200() -> None:
    listing = smi.parse((RECORDED / "h200x2-580.159.04-q.xml").read_text())
    assert listing.driver == DRIVER
    assert [gpu.bus for gpu in listing.gpus] == ["0000:00:06", "0000:00:07"]
    first = dataclasses.asdict(listing.gpus[0])
    assert first == {
        "index": 0,
        "bus": "0000:00:06",
        "name": "NVIDIA H200",
        "persistence": True,
        "ecc_enabled": True,
        "volatile_uncorrectable": 0,
        "aggregate_uncorrectable": 0,
        "sram_threshold_exceeded": False,
        "unrepairable": False,
        "remap_pending": False,
        "remap_failure": False,
        "recovery_action": None,
        "throttles": (),
        "fabric_state": "Completed",
        "fabric_status": "Success",
        "used_mib": 0,
        "processes": (),
        "lost": False,
    }


def test_recorded_links_of_two_h200() -> None:
    links = smi.active_links((RECORDED / "h200x2-580.159.04-nvlink-s.txt").read_text())
    assert links == {0: (18, []), 1: (18, [])}
    errors = smi.link_errors((RECORDED / "h200x2-580.159.04-nvlink-e.txt").read_text())
    assert errors == {f"gpu {gpu} {kind}": 0 for gpu in (0, 1) for kind in ("Replay", "Recovery", "CRC")}


def test_recorded_listing_of_one_h100() -> None:
    listing = smi.parse((RECORDED / "h100x1-580.159.04-q.xml").read_text())
    (gpu,) = listing.gpus
    assert (listing.driver, gpu.name, gpu.persistence, gpu.ecc_enabled) == (DRIVER, "NVIDIA H100 80GB HBM3", True, True)
    assert (gpu.volatile_uncorrectable, gpu.remap_pending, gpu.throttles, gpu.lost) == (0, False, (), False)


def test_a_lone_h100_prints_nothing_about_nvlink() -> None:
    assert smi.active_links((RECORDED / "h100x1-580.159.04-nvlink-s.txt").read_text()) == {}
    assert smi.link_errors((RECORDED / "h100x1-580.159.04-nvlink-e.txt").read_text()) == {}


def paths(text: str) -> set[str]:
    """Every element of an XML as a path."""
    found = set()

    def walk(node: ElementTree.Element, above: str) -> None:
        found.add(f"{above}/{node.tag}")
        for child in node:
            walk(child, f"{above}/{node.tag}")

    walk(ElementTree.fromstring(text[text.index("<nvidia_smi_log") :]), "")  # noqa: S314  (our own)
    return found


def run_standin(node: FakeNode, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([node.bin / "nvidia-smi", *arguments], capture_output=True, text=True, check=False)


def test_stand_in_has_the_form_of_the_real_one(node: FakeNode) -> None:
    told = run_standin(node, "-q", "-x").stdout
    assert paths(told) <= paths((RECORDED / "h200x2-580.159.04-q.xml").read_text())
    for flag in ("s", "e"):
        real = (RECORDED / f"h200x2-580.159.04-nvlink-{flag}.txt").read_text().splitlines()
        ours = run_standin(node, "nvlink", f"-{flag}").stdout.splitlines()
        assert ours[1 : 1 + (len(real) - 2) // 2] == real[1 : 1 + (len(real) - 2) // 2]


def test_stand_in_refuses_as_the_real_one(node: FakeNode) -> None:
    bad = run_standin(node, "--query-gpu=index,nonsense", "--format=csv")
    assert (bad.returncode, bad.stdout) == (2, 'Field "nonsense" is not a valid field to query.\n\n')
    assert "--loop is not served here" in run_standin(node, "--loop").stdout
    node.gpus(gpus=0)
    none = run_standin(node, "-q", "-x")
    assert (none.returncode, none.stdout) == (6, "No devices were found\n")


def test_stand_in_keeps_persistence(node: FakeNode) -> None:
    node.gpus(gpus=2)
    query = ("--query-gpu=index,persistence_mode", "--format=csv,noheader")
    assert run_standin(node, *query).stdout == "0, Disabled\n1, Disabled\n"
    run_standin(node, "-pm", "1")
    assert run_standin(node, *query).stdout == "0, Enabled\n1, Enabled\n"
    assert run_standin(node, "-L").stdout.count("GPU ") == 2
    assert "Driver Version: 580" in run_standin(node).stdout


@pytest.mark.parametrize("text", ["", "Failed to initialize NVML", "<nvidia_smi_log><gpu></nvidia_smi_log>"])
def test_what_is_no_listing_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="listing of GPUs"):
        smi.parse(text)


def test_old_driver_without_the_newer_fields() -> None:
    old = "<nvidia_smi_log><driver_version>470.1</driver_version><gpu id='0000:10:1C.0'><ecc_errors><volatile>"
    old += (
        "<sram_uncorrectable>1</sram_uncorrectable><dram_uncorrectable>2</dram_uncorrectable></volatile></ecc_errors>"
    )
    old += "<clocks_throttle_reasons><clocks_throttle_reason_hw_slowdown>Active</clocks_throttle_reason_hw_slowdown>"
    old += "</clocks_throttle_reasons><remapped_rows>N/A</remapped_rows></gpu></nvidia_smi_log>"
    gpu = smi.parse(old).gpus[0]
    assert (gpu.volatile_uncorrectable, gpu.throttles, gpu.remap_failure) == (3, ("hardware slowdown",), None)


# ------------------------------------------------------------------------------------------------------------- checks


def test_healthy_node(node: FakeNode) -> None:
    assert node.run() == 0, node.result
    assert {one["check"]: one["status"] for one in node.result["checks"]} == {c.name: "ok" for c in checks.CHECKS}
    assert node.result["status"] == "ok"
    assert node.result["action"] == "nothing to do"
    assert node.calls == []


BROKEN_GPUS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"volatile_uncorrectable": 12}, "gpu-ecc", "fail", "gpu 3: 12 uncorrectable ECC errors"),
    ({"sram_threshold_exceeded": True}, "gpu-ecc", "fail", "gpu 3: SRAM error threshold exceeded"),
    ({"unrepairable_memory": True}, "gpu-ecc", "fail", "gpu 3: memory that cannot be repaired"),
    ({"aggregate_uncorrectable": 4}, "gpu-ecc", "warn", "gpu 3: 4 uncorrectable ECC errors in its life, none since"),
    ({"ecc": False}, "gpu-ecc", "warn", "gpu 3: ECC is off"),
    ({"remap_failure": True}, "gpu-rows", "fail", "gpu 3: remapping a memory row failed"),
    ({"remap_pending": True}, "gpu-rows", "warn", "gpu 3: a remapped row waits for a reset"),
    ({"recovery_action": "Reboot"}, "gpu-recovery", "fail", "gpu 3: the driver asks for: Reboot"),
    ({"recovery_action": "Unknown Error"}, "gpu-recovery", "warn", "gpu 3: the driver asks for: Unknown Error"),
    ({"inactive_links": [4, 7]}, "nvlink", "fail", "gpu 3: 16 of 18 NVLinks active (inactive: 4, 7)"),
    ({"fabric_state": "In Progress", "fabric_status": "N/A"}, "fabric", "fail", "gpu 3: fabric In Progress, no status"),
    ({"throttles": ["hw_thermal_slowdown"]}, "throttle", "warn", "gpu 3: too hot (hardware)"),
]


@pytest.mark.parametrize(("broken", "check", "status", "evidence"), BROKEN_GPUS)
def test_broken_gpu(node: FakeNode, broken: dict[str, Any], check: str, status: str, evidence: str) -> None:
    node.gpus(persistence=True, gpu={"3": broken})
    told = node.check(check)
    assert told["status"] == status
    assert told["evidence"].startswith(evidence)
    others = {one["check"] for one in node.result["checks"] if one["status"] != "ok"}
    assert others == {check}


BROKEN_NODES: list[tuple[str, str, str, str, str]] = [
    ("systemctl", "echo failed; exit 3", "fabric", "fail", "fabric manager: nvidia-fabricmanager.service is failed"),
    (
        "nv-fabricmanager",
        "echo 'version is : 535.1.2'",
        "fabric",
        "fail",
        "fabric manager: version 535.1.2, the driver is",
    ),
    ("nv-fabricmanager", "", "fabric", "unknown", "version of nv-fabricmanager: absent"),
    ("chronyc", "echo ,,,,-31.5,Normal", "clock", "fail", "31.500000 s from the time server's"),
    ("chronyc", "echo ,,,,0.7,Normal", "clock", "warn", "0.700000 s from the time server's"),
    ("chronyc", "echo '00000000,,0,0,0.0,Not synchronised'", "clock", "warn", "not synchronised"),
    ("stat", "echo '1000 40'", "fsx", "warn", "/fsx is 96.0 % full"),
    ("stat", "echo 'stat: cannot read: Input/output error'; exit 1", "fsx", "fail", "/fsx: exit 1: stat: cannot read"),
    (
        "journalctl",
        "echo No journal; exit 1",
        "gpu-xid",
        "unknown",
        "the kernel log cannot be read: exit 1: No journal",
    ),
]


@pytest.mark.parametrize(("program", "script", "check", "status", "evidence"), BROKEN_NODES)
def test_broken_node(node: FakeNode, program: str, script: str, check: str, status: str, evidence: str) -> None:
    node.say(program, script)
    told = node.check(check)
    assert told["status"] == status
    assert told["evidence"].startswith(evidence)


def test_clock_without_chrony(node: FakeNode) -> None:
    node.say("chronyc", "")
    for said, status in (("yes", "ok"), ("no", "warn"), ("", "unknown")):
        node.say("timedatectl", f"echo {said}")
        assert node.check("clock")["status"] == status
    node.say("chronyc", "echo ,,,,rubbish,Normal")
    assert node.check("clock")["status"] == "unknown"


def test_missing_gpu(node: FakeNode) -> None:
    node.gpus(persistence=True, missing=[3])
    assert node.check("gpu-count")["evidence"] == "7 GPUs, p5.48xlarge has 8"


def test_more_gpus_than_the_type_has_are_told(node: FakeNode) -> None:
    node.gpus(persistence=True, gpus=9)
    assert node.check("gpu-count")["status"] == "warn"


def test_gpu_fallen_off_the_bus(node: FakeNode) -> None:
    node.gpus(lost=[3])
    told = node.check("gpu-lost")
    assert told["status"] == "fail"
    assert told["evidence"].startswith("gpu at 0000:86:00: Unable to determine the device handle for GPU3")
    assert node.calls[0].startswith("update nodename=n1 state=drain reason=slipway: gpu at 0000:86:00")


def test_driver_that_does_not_load(node: FakeNode) -> None:
    node.gpus(exit=9, message="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    told = node.check("gpu-answer")
    assert told["evidence"].startswith("nvidia-smi failed with exit 9: NVIDIA-SMI has failed because")
    statuses = {one["check"]: one["status"] for one in node.result["checks"]}
    assert statuses["gpu-count"] == statuses["gpu-ecc"] == statuses["nvlink"] == "unknown"


def test_missing_efa_devices(node: FakeNode) -> None:
    for number in range(8):
        shutil.rmtree(node.root / f"sys/class/infiniband/rdmap{number}s0")
    (node.root / "sys/class/infiniband/mlx5_0/device").mkdir(parents=True)
    (node.root / "sys/class/infiniband/mlx5_0/device/uevent").write_text("DRIVER=mlx5_core\n")
    (node.root / "sys/class/infiniband/going").mkdir()
    assert node.check("efa")["evidence"] == "24 EFA devices, p5.48xlarge has 32"


@pytest.mark.parametrize(
    ("mounts", "evidence"),
    [("", "/fsx is not mounted"), ("l /fsx lustre ro,flock 0 0\n", "/fsx is mounted read-only")],
)
def test_shared_file_system(node: FakeNode, mounts: str, evidence: str) -> None:
    node.write("mounts", mounts)
    assert node.check("fsx")["evidence"] == evidence
    assert node.check("scratch")["evidence"] == "/scratch is not mounted, p5.48xlarge has 30400 GB of NVMe"


def test_node_without_gpus(node: FakeNode) -> None:
    node.write("cfnconfig", "cfn_instance_type=m5.large\n")
    node.say("nvidia-smi", "")
    assert node.run() == 0, node.result
    assert node.check("gpu-answer")["evidence"] == "m5.large has no GPU"


def test_node_of_a_type_nobody_knows(node: FakeNode) -> None:
    node.write("cfnconfig", "")
    node.say("nvidia-smi", "")
    assert node.run() == 3
    statuses = {one["check"]: one["status"] for one in node.result["checks"]}
    assert {name for name, status in statuses.items() if status == "ok"} == {"gpu-xid", "fsx", "clock", "disks"}


def test_gpu_type_without_nvidia_smi(node: FakeNode) -> None:
    node.say("nvidia-smi", "")
    assert node.check("gpu-answer")["evidence"] == "nvidia-smi is not installed on this p5.48xlarge"


def test_check_that_breaks_does_not_take_the_others_along(node: FakeNode) -> None:
    (node.root / "mounts").unlink()
    assert node.check("fsx")["evidence"].startswith("the check itself failed: FileNotFoundError")
    assert node.check("clock")["status"] == "ok"


def test_link_errors_are_told_when_they_grow(node: FakeNode) -> None:
    node.gpus(persistence=True, gpu={"2": {"crc_errors": 5}})
    assert node.check("nvlink")["status"] == "ok"
    node.gpus(persistence=True, gpu={"2": {"crc_errors": 9}})
    assert node.check("nvlink")["evidence"] == "gpu 2: 4 new NVLink CRC errors (9 in all)"


# ---------------------------------------------------------------------------------------------------------------- Xid

KERNEL = "1732800000.{n:06d} n1 kernel: "
XIDS = [
    ("NVRM: Xid (PCI:0000:86:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "fatal"),
    ("NVRM: Xid (0000:03:00): 48, Channel 00000001", "fatal"),
    ("NVRM: Xid (PCI:0000:3b:00 GPU-I:01): 95, pid=1, Uncontained", "fatal"),
    ("NVRM: Xid (PCI:0000:86:00): 31, pid=7, name=python, MMU Fault", "application"),
    ("NVRM: Xid (PCI:0000:86:00): 63, pid=7, Row Remapper: New row marked for remapping", "watch"),
    ("NVRM: Xid (PCI:0000:86:00): 999, something new", "watch"),
    ("NVRM: Xid (PCI:0000:86:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08", "fatal"),
    ("NVRM: Xid (PCI:0000:86:00): 149, NETIR_LINK_EVT  Nonfatal XC0 i0 Link 08", "watch"),
    (
        "NVRM: Xid (PCI:0000:86:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        "fatal",
    ),
    (
        "NVRM: Xid (PCI:0000:86:00): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)",
        "watch",
    ),
    ("nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 46 LTSSM Fault Up", "fatal"),
    ("nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 46 egress non-posted PRIV error", "watch"),
]


@pytest.mark.parametrize(("line", "severity"), XIDS)
def test_xid_lines(line: str, severity: str) -> None:
    (event,) = xid.events(KERNEL.format(n=1) + line)
    assert xid.severity(event, xid.table()) == severity


@pytest.mark.parametrize(
    "line",
    [
        "1732800000.1 n1 kernel: python[7]: NVRM: Xid (PCI:0000:86:00): 79, made up by a program's name",
        "1732800000.1 n1 someone: NVRM: Xid (PCI:0000:86:00): 79, made up",
        "1732800000.1 n1 kernel: NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04",
        "-- Boot 4f --",
    ],
)
def test_other_lines_are_no_xids(line: str) -> None:
    assert xid.events(line) == []


def test_table_of_xids_is_whole() -> None:
    for number, row in xid.table().items():
        assert int(number) > 0
        assert row["class"] in {"fatal", "watch", "application", "flagged", "recovery"}
        assert row["what"]
        assert row["action"]
    assert xid.table()["63"]["class"] == "watch"


def test_fatal_xid_drains_at_once_and_stays_known_when_the_log_is_gone(node: FakeNode) -> None:
    node.write("kernel.log", "".join(KERNEL.format(n=n) + XIDS[n][0] + "\n" for n in (0, 3, 4)))
    told = node.check("gpu-xid")
    assert told["evidence"] == "gpu 3: Xid 79: the GPU has fallen off the bus"
    assert node.calls == [
        "update nodename=n1 state=drain reason=slipway: gpu 3: Xid 79: the GPU has fallen off the bus (limit no fatal one)"
    ]
    node.write("kernel.log", "")
    assert node.check("gpu-xid")["status"] == "fail"
    node.say("journalctl", 'echo "$@" >arguments')
    node.run()
    assert "--since=@" in (node.root / "arguments").read_text()


def test_xids_of_programs_are_no_fault(node: FakeNode) -> None:
    node.write("kernel.log", "".join(KERNEL.format(n=n) + XIDS[3][0] + "\n" for n in range(3)))
    assert node.check("gpu-xid")["evidence"] == "3 Xids of programs' own faults"
    assert node.run() == 0


# -------------------------------------------------------------------------------------------------------------- Slurm


def test_a_fault_that_may_pass_drains_after_its_runs(node: FakeNode) -> None:
    node.gpus(persistence=True, missing=[3])
    for expected in (0, 0, 1):
        node.run()
        assert len(node.calls) == expected
    assert node.calls == [
        "update nodename=n1 state=drain reason=slipway: 7 GPUs, p5.48xlarge has 8 (limit as many as its type has)"
    ]


def test_a_good_run_in_between_starts_anew(node: FakeNode) -> None:
    for missing in ([3], [3], [], [3], [3]):
        node.gpus(persistence=True, missing=missing)
        node.run()
    assert node.calls == []


def test_a_run_that_cannot_see_neither_counts_nor_clears(node: FakeNode) -> None:
    node.gpus(persistence=True, missing=[3])
    node.run()
    node.run()
    node.gpus(exit=1)
    node.run()
    assert node.calls == []
    node.gpus(persistence=True, missing=[3])
    node.run()
    assert len(node.calls) == 1


def broken(node: FakeNode) -> None:
    node.gpus(persistence=True, gpu={"3": {"volatile_uncorrectable": 12}})


NOT_NOTED = "not drained: scontrol did not note it in the node's comment"
OURS = "slipway: gpu 3: 12 uncorrectable ECC errors (limit 0 errors, no flag)"


def test_never_drained_twice(node: FakeNode) -> None:
    broken(node)
    node.run()
    assert node.calls == [f"update nodename=n1 state=drain reason={OURS}"]
    node.nodes(("n1", "draining", OURS), ("n2", "idle", "none"))
    node.run()
    assert len(node.calls) == 1
    assert node.result["action"] == f"drained already ({OURS})"


@pytest.mark.parametrize("state", ["drained", "draining*", "down", "maint"])
def test_never_over_the_reason_of_somebody_else(node: FakeNode, state: str) -> None:
    broken(node)
    node.nodes(("n1", state, "admin: bad cable"), ("n2", "idle", "none"))
    node.run()
    assert node.calls == []
    assert node.result["action"] == f"out of service already: {state} (admin: bad cable)"


def test_an_operator_who_resumes_is_respected_until_it_gets_worse(node: FakeNode) -> None:
    broken(node)
    node.run()
    for _ in range(2):  # the operator resumed it: sinfo says idle
        node.run()
    assert len(node.calls) == 1
    assert node.result["action"] == "seen by an operator"
    node.gpus(persistence=True, gpu={"3": {"volatile_uncorrectable": 13}})
    node.run()
    assert len(node.calls) == 2
    assert "13 uncorrectable" in node.calls[1]


def test_another_fault_beside_a_seen_one_drains(node: FakeNode) -> None:
    broken(node)
    node.run()
    node.gpus(persistence=True, gpu={"3": {"volatile_uncorrectable": 12}, "5": {"remap_failure": True}})
    node.run()
    assert "gpu 5: remapping a memory row failed" in node.calls[1]


def test_two_faults_make_one_reason(node: FakeNode) -> None:
    node.gpus(persistence=True, gpu={"3": {"volatile_uncorrectable": 12}, "5": {"remap_failure": True}})
    node.run()
    assert node.calls == [f"update nodename=n1 state=drain reason={OURS} (+1 more)"]


def test_many_drained_nodes_look_like_one_cause(node: FakeNode) -> None:
    broken(node)
    node.nodes(("n1", "idle", "none"), ("n2", "drained", "slipway: x"), ("n3", "idle", "none"), ("n4", "idle", "none"))
    node.run()
    assert node.calls == []
    assert node.result["action"].startswith("not drained: 1 of 4 nodes were drained by Slipway in the last 6 h")
    assert node.result["status"] == "fail"


def test_drain_can_be_off(node: FakeNode) -> None:
    node.write("node.env", "HEALTH_DRAIN=false\n")
    broken(node)
    assert node.run() == 1
    assert node.calls == []
    assert node.result["action"] == f"would drain ({OURS}); HEALTH_DRAIN is off"


@pytest.mark.parametrize(
    ("program", "script", "action"),
    [
        ("sinfo", "exit 1", "Slurm does not answer"),
        ("sinfo", "sleep 30", "Slurm does not answer"),
        ("sinfo", "echo 'n7|idle|none'", "Slurm does not know n1"),
        ("scontrol", "case $* in *state=*) echo Access denied; exit 1;; esac", "scontrol did not drain: Access denied"),
        ("scontrol", "case $* in *state=*) sleep 30;; esac", "scontrol did not drain: hangs"),
        ("scontrol", "echo Access denied; exit 1", f"{NOT_NOTED}: Access denied"),
        ("scontrol", "sleep 30", f"{NOT_NOTED}: hangs"),
    ],
)
def test_slurm_that_does_not_do_it_is_asked_again(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, program: str, script: str, action: str
) -> None:
    broken(node)
    node.say(program, script)
    with monkeypatch.context() as patch:
        if "sleep" in script:
            patch.setattr(slurm, "LIMIT_S", 2)  # time for those that answer
        node.run()
    assert node.result["action"] == action
    node.say(program, PROGRAMS[program])
    node.run()
    assert node.calls == [f"update nodename=n1 state=drain reason={OURS}"]


@pytest.mark.parametrize(
    ("file", "text", "check"),
    [
        ("mounts", "/dev/vg /scratch ext4 rw 0 0\n", "fsx"),
        ("bin/chronyc", "#!/bin/sh\necho 'A,B,4,1,99.0,1'\n", "clock"),
    ],
)
def test_never_drained_for_what_may_pass_or_what_nodes_share(node: FakeNode, file: str, text: str, check: str) -> None:
    node.write(file, text)
    for _ in range(5):
        assert node.run() == 1
    assert {one["check"] for one in node.result["checks"] if one["status"] == "fail"} == {check}
    assert node.calls == []
    assert node.result["action"] == "never drained for what may pass or what nodes share"
    broken(node)
    node.run()
    assert node.calls == [f"update nodename=n1 state=drain reason={OURS}"], (
        "a fault of the hardware drains all the same"
    )


NOW_NOTED = [
    # notes of the other nodes in hours ago, per day, nodes -> what the action begins with
    ({}, 4, 4, "drained: "),
    ({"n2": [1]}, 4, 4, "not drained: 1 of 4 nodes were drained by Slipway in the last 6 h or are being replaced"),
    ({"n2": [7]}, 4, 4, "drained: "),
    ({"n2": [1], "n3": [2]}, 4, 16, "drained: "),
    ({"n2": [1, 2], "n3": [2, 3]}, 9, 16, "not drained: 4 of 16 nodes"),
    (
        {"n2": [23], "n3": [20], "n4": [12, 7]},
        4,
        16,
        "not drained: 4 drains in the last 24 h, health.replacements_per_",
    ),
    ({"n2": [25], "n3": [20], "n4": [12, 7]}, 4, 16, "drained: "),
    ({"n1": [1]}, 4, 4, "not drained: 1 of 4 nodes"),  # the machine behind the name was replaced, and is as bad
]


@pytest.mark.parametrize(("notes", "per_day", "count", "action"), NOW_NOTED)
def test_two_brakes_count_notes_that_outlive_a_replacement(
    node: FakeNode, notes: dict[str, list[int]], per_day: int, count: int, action: str
) -> None:
    node.write("node.env", f"HEALTH_REPLACEMENTS_PER_DAY={per_day}\n")
    names = [f"n{number}" for number in range(1, count + 1)]
    node.nodes(*((name, "idle", "none") for name in names))
    text = {name: ",".join(f"{time.time() - hour * 3600:.0f}" for hour in hours) for name, hours in notes.items()}
    node.write("comments", "".join(f"{n} slipway-drains={text[n]} rack 7\n" if n in text else f"{n}\n" for n in names))
    broken(node)
    node.run()
    assert node.result["action"].startswith(action)
    assert bool(node.calls) == action.startswith("drained")


def test_without_replacement_a_day_has_no_bound(node: FakeNode) -> None:
    node.write("node.env", "HEALTH_REPLACEMENTS_PER_DAY=1\nHEALTH_REPLACED=false\n")
    node.nodes(*((f"n{number}", "idle", "none") for number in range(1, 17)))
    node.write("comments", f"n1\nn2 slipway-drains={time.time() - 10 * 3600:.0f}\n")
    broken(node)
    node.run()
    assert node.result["action"].startswith("drained: ")


def test_a_node_that_parallelcluster_replaces_counts_without_a_note(node: FakeNode) -> None:
    replaced = "Static node maintenance: unhealthy node is being replaced"
    node.nodes(("n1", "idle", "none"), ("n2", "down*", replaced), ("n3", "idle", "none"), ("n4", "idle", "none"))
    broken(node)
    node.run()
    assert node.calls == []
    assert node.result["action"].startswith("not drained: 1 of 4 nodes")


def test_nodes_that_drain_at_the_same_moment_do_not_go_over_the_limit(node: FakeNode) -> None:
    """Another node's note appears between the first look and the node's own note: it takes its own back."""
    node.write("comments", "n1 rack 7\n")
    broken(node)
    # What this node noted is not in the stand-in's answer: two drains of others are above the limit by themselves.
    node.say("scontrol", f'echo "$@" >>calls; echo "n2 slipway-drains={time.time():.0f},{time.time():.0f}" >>comments')
    node.run()
    assert node.calls == []
    comments = [line for line in (node.root / "calls").read_text().splitlines() if "comment=" in line]
    assert comments[0].startswith("update nodename=n1 comment=slipway-drains=")
    assert comments[0].endswith(" rack 7")
    assert comments[1] == "update nodename=n1 comment=rack 7"


def with_shared_files(node: FakeNode) -> Path:
    shared = node.root / "shared"
    shared.mkdir()
    node.write("node.env", f"FSX_MOUNT={shared}\n")
    node.write("mounts", f"lustre {shared} lustre rw,flock 0 0\n/dev/vg /scratch ext4 rw 0 0\n")
    return shared


def test_evidence_is_saved_before_the_drain(node: FakeNode) -> None:
    shared = with_shared_files(node)
    node.write("kernel.log", "Xid line of the kernel\n")
    counters = node.root / "sys/class/infiniband/rdmap0s0/ports/1/hw_counters"
    counters.mkdir(parents=True)
    (counters / "rdma_write_wr_err").write_text("12\n")
    node.say("scontrol", f'case "$*" in *state=drain*) ls {shared}/logs/slipway/evidence/n1 >then ;; esac')
    broken(node)
    node.run()
    (file,) = (shared / "logs/slipway/evidence/n1").iterdir()
    assert (node.root / "then").read_text() == f"{file.name}\n", "it was there when the node was drained"
    assert node.result["action"] == f"drained: {OURS}; evidence: {file}"
    text = file.read_text()
    for part in (f"==> drained for <==\n{OURS}", "Xid line of the kernel", "==> nvidia-smi -q <==", "Driver Version"):
        assert part in text, part
    assert "hw_counters/rdma_write_wr_err:12" in text
    assert "12 uncorrectable ECC errors" in text.partition("==> health report <==")[2]


def test_evidence_stays_bounded(node: FakeNode) -> None:
    folder = with_shared_files(node) / "logs/slipway/evidence/n1"
    folder.mkdir(parents=True)
    for day in range(10, 20):
        (folder / f"2026-01-{day}T00-00-00Z.log").write_text("old")
    node.say("journalctl", "yes 'kernel: line' | head -c 5000000")
    broken(node)
    node.run()
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 5
    assert names[0] == "2026-01-16T00-00-00Z.log"
    assert (folder / names[-1]).stat().st_size < 2 << 20


@pytest.mark.parametrize("way", ["unmounted", "full"])
def test_evidence_without_the_shared_file_system_is_on_the_node_and_in_cloudwatch(node: FakeNode, way: str) -> None:
    shared = with_shared_files(node)
    if way == "unmounted":
        node.write("mounts", "/dev/vg /scratch ext4 rw 0 0\n")
    else:
        node.say("cp", "echo 'No space left on device' >&2; exit 1")
    broken(node)
    node.run()
    assert (
        f"evidence: {node.places.evidence} (also in CloudWatch), as {shared} does not take it"
        in (node.result["action"])
    )
    assert "==> nvidia-smi -q <==" in node.places.evidence.read_text()
    assert len(node.calls) == 1, "it is drained all the same"


def test_reason_is_one_plain_line() -> None:
    fault = judge.Failure("x", "", 'a "quoted" \n|line' + "y" * 300, "0", "", 1, 1, False)
    text = slurm.reason([fault, fault])
    assert len(text) <= len(slurm.MARK) + slurm.REASON_LIMIT
    assert not set(text) & set("\"'|\n")
    assert text.endswith(" (+1 more)")


# ------------------------------------------------------------------------------------------------------ time and kills


def test_nvidia_smi_that_hangs_is_bounded_and_drains_after_three(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodes.health.node.SMI_LIMIT_S", 0.3)
    node.gpus(hang=60)
    for expected in (0, 0, 1):
        assert node.run() == 1
        assert len(node.calls) == expected
    assert node.calls == [
        "update nodename=n1 state=drain reason=slipway: nvidia-smi does not answer in 20 s (limit 20 s)"
    ]


def test_the_whole_is_bounded(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "LOOK_S", 1.0)
    for name in PROGRAMS:
        node.say(name, "sleep 60")
    started = time.monotonic()
    node.run("--record", "--json")
    assert time.monotonic() - started < 50  # each program would sleep for 60 s
    evidence = {one["check"]: one["evidence"] for one in node.result["checks"]}
    assert "no time left" in evidence["clock"]


def test_process_that_survives_sigkill_is_not_joined_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "kill_group", lambda _: None)  # what uninterruptible sleep does to SIGKILL
    monkeypatch.setattr(ask, "REAP_S", 0.05)
    stuck: dict[str, list[int]] = {}
    asker = ask.Asker(10, stuck)
    try:
        assert asker.ask(["sleep", "30"], 0.2).problem == "hangs"
        pid = stuck["sleep"][0]
        assert asker.ask(["sleep", "0"], 5).problem == "hangs"
        assert stuck["sleep"][0] == pid
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert asker.ask(["sleep", "0"], 5).ok
    assert stuck == {}


def test_asker_says_what_went_wrong(tmp_path: Path) -> None:
    asker = ask.Asker(10, {})
    assert asker.ask(["no-such-program"], 1).problem == "absent"
    assert asker.ask(["sh", "-c", "kill -TERM $$"], 5).rc == 128 + signal.SIGTERM
    (tmp_path / "odd").write_text("no program")
    (tmp_path / "odd").chmod(0o755)
    assert asker.ask([str(tmp_path / "odd")], 1).rc == 126
    assert ask.Asker(0, {}).ask(["true"], 1).problem == "no time left"


def test_two_at_once(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    node.say("stat", "touch asked; until [ -e go ]; do sleep 0.05; done; echo '1000 600'")
    first = threading.Thread(target=node.run)
    first.start()
    end = time.monotonic() + 60
    while not (node.root / "asked").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    assert node.run() == 0
    (node.root / "go").touch()
    first.join()
    assert "another run is under way" in capsys.readouterr().err
    assert node.places.log.read_text().count("\n") == 1


# ------------------------------------------------------------------------------------------------------- what is left


def test_looking_changes_nothing(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    broken(node)
    before = sorted(node.root.rglob("*"))
    assert node.run("--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["action"] == "only looked"
    assert cli.main([], node.places) == 1
    assert "gpu-ecc      fail     gpu 3: 12 uncorrectable ECC errors" in capsys.readouterr().out
    assert sorted(node.root.rglob("*")) == before
    assert node.calls == []


def test_files_of_a_run(node: FakeNode) -> None:
    broken(node)
    node.run()
    metrics = node.places.textfile.read_text()
    assert 'slipway_health_status{check="gpu-ecc"} 2\n' in metrics
    assert "slipway_health_gpus 8\n" in metrics
    assert "slipway_health_efa_devices_expected 32\n" in metrics
    line = node.places.log.read_text()
    assert line.count("\n") == 1
    assert "gpu-ecc=fail (gpu 3: 12 uncorrectable ECC errors)" in line
    promtool = shutil.which("promtool")
    if promtool:
        done = subprocess.run(
            [promtool, "check", "metrics"], input=metrics, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_log_is_bounded(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "LOG_BYTES", 300)
    for _ in range(8):
        node.run()
    sizes = [path.stat().st_size for path in node.places.log.parent.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) < 600


def test_full_disk_does_not_keep_a_broken_node_in_service(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    broken(node)
    (node.root / "blocked").write_text("a file where a directory belongs")
    node.places = dataclasses.replace(
        node.places, result=node.root / "blocked/health.json", log=node.root / "blocked/x/log"
    )
    assert node.run() == 1
    assert len(node.calls) == 1
    said = capsys.readouterr().err
    assert "cannot write" in said
    assert "Hint: df -h" in said
    assert node.places.textfile.exists()
    node.gpus(persistence=True)
    assert node.run() == 3


def test_broken_memory_of_earlier_runs_is_left_behind(node: FakeNode) -> None:
    node.places.state.mkdir()
    for text in ("{", "[]"):
        (node.places.state / "state.json").write_text(text)
        assert node.run() == 0


def test_state_that_cannot_be_kept_is_said(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = cli.put

    def full(path: Path, text: str) -> None:
        if path.name == "state.json":
            raise OSError(28, "No space left on device")
        saved(path, text)

    monkeypatch.setattr(cli, "put", full)
    assert node.run() == 3
    assert "No space left on device. Hint: df -h /run" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------------- facts


class Imds(http.server.BaseHTTPRequestHandler):
    """The metadata service with tokens only (IMDSv2)."""

    def do_PUT(self) -> None:
        self.answer("token-1" if self.path == "/latest/api/token" else None)

    def do_GET(self) -> None:
        right = self.headers.get("X-aws-ec2-metadata-token") == "token-1"
        self.answer("p5.48xlarge" if right and self.path == "/latest/meta-data/instance-type" else None)

    def answer(self, text: str | None) -> None:
        self.send_response(200 if text else 401)
        self.send_header("Content-Length", str(len(text or "")))
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def imds() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Imds)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_instance_type_from_the_metadata_service(node: FakeNode, imds: str) -> None:
    node.write("cfnconfig", "cfn_scheduler_queue_name=train\n")
    known = facts.facts(dataclasses.replace(node.places, imds=imds))
    assert (known.instance_type, known.efa_devices, known.nvswitch) == ("p5.48xlarge", 32, True)


def test_instance_type_from_the_firmware(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    node.write("cfnconfig", "")
    (node.root / "sys/class/dmi/id").mkdir(parents=True)
    (node.root / "sys/class/dmi/id/product_name").write_text("p5.48xlarge\n")
    assert node.run("--facts") == 0
    told = json.loads(capsys.readouterr().out)
    expected = {"gpus": 8, "efa_devices": 32, "nvlink_links": 18, "nvme_gb": 30400, "nvswitch": True}
    assert told == {"instance_type": "p5.48xlarge", **expected}


def test_efa_is_the_queues(node: FakeNode) -> None:
    queues = {name: {"instance_type": "p5.48xlarge", "efa": name == "with"} for name in ("with", "without")}
    node.write("instances.json", json.dumps({"queues": queues, "instance_types": {"p5.48xlarge": P5}}))
    for queue, expected in (("with", 32), ("without", 0), ("other", None)):
        node.write("cfnconfig", f'cfn_instance_type="p5.48xlarge"\nscheduler_queue_name={queue}\n')
        assert facts.facts(node.places).efa_devices == expected


def test_damaged_bundle_is_no_fault_of_the_node(node: FakeNode) -> None:
    node.write("instances.json", "{}")
    assert facts.facts(node.places) == facts.Facts()


def test_name_in_slurm_is_parallelclusters_or_the_hosts(node: FakeNode) -> None:
    assert facts.slurm_name(node.places) == "n1"
    (node.root / "nodename").unlink()
    assert facts.slurm_name(node.places) == os.uname().nodename.partition(".")[0]


def test_bundle_carries_the_facts_of_the_clusters_types() -> None:
    told = instance_facts(load_settings(ROOT / "clusters/p5-capacity-block.yaml"))
    assert told["instance_types"]["p5.48xlarge"] == P5


def test_documentation_holds_the_table() -> None:
    assert report.explain() in (ROOT / "docs/health.md").read_text()


def test_runs_on_the_python_of_old_nodes() -> None:
    python = shutil.which("python3.9")
    if python is None or subprocess.run([python, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("needs python3.9")
    done = subprocess.run(
        [python, "-B", ROOT / "nodes/health", "--explain"], capture_output=True, text=True, check=True
    )
    assert done.stdout == report.explain() + "\n"


# ------------------------------------------------------------------------------------------------ leftovers and disks


def test_memory_of_gpus_that_an_ended_job_left_is_reported_with_its_processes(node: FakeNode) -> None:
    assert node.check("leftovers")["status"] == "ok"
    node.gpus(persistence=True, gpu={"3": {"used_mib": 73000, "processes": {"4711": "python"}}, "5": {"used_mib": 500}})
    found = node.check("leftovers")
    assert found["status"] == "warn"
    assert "gpu 3" in json.dumps(found)
    assert "73000 MiB in use without a job here, by process 4711 (python)" in json.dumps(found)
    node.say("pgrep", "echo 4000")
    assert node.check("leftovers")["evidence"] == "a job runs here"
    node.say("pgrep", "exit 3")
    assert node.check("leftovers")["status"] == "unknown"


def test_local_disks_that_are_almost_full_are_reported(node: FakeNode) -> None:
    assert node.check("disks")["status"] == "ok"
    node.say("stat", 'case "$*" in *scratch) echo 1000 40 ;; *) echo 1000 600 ;; esac')
    found = node.check("disks")
    assert found["status"] == "warn"
    assert "/scratch" in json.dumps(found)
    assert "96.0 % full" in json.dumps(found)
    node.say("stat", "echo broken >&2; exit 1")
    assert node.check("disks")["status"] == "unknown"
