"""A folder that looks like a node to slipway-health, for tests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from nodes.health import ask, cli, facts

ROOT = Path(__file__).resolve().parents[2]
STANDIN = ROOT / "rehearsal/standins/nvidia-smi"
P5 = {"gpus": 8, "efa_interfaces": 32, "nvlink_links": 18, "nvme_gb": 30400}
DRIVER = "580.159.04"
# What the programs of a healthy p5 node say (pgrep: no job runs); a test replaces one to break something.
PROGRAMS = {
    "stat": "echo '1000 600'",
    "pgrep": "exit 1",
    "chronyc": "echo 'A9FEA97B,169.254.169.123,4,1732800000.1,0.000012,-0.00001,0.00003,1.0,0.0,0.1,0.0003,0.0002,16.1,Normal'",
    "systemctl": "echo active",
    "nv-fabricmanager": f"echo 'Fabric Manager version is : {DRIVER}'",
    "journalctl": "cat kernel.log",
    "sinfo": 'case "$*" in *Comment*) cat comments ;; *) cat nodes ;; esac',
    "scontrol": 'echo "$@" >>calls; exit 0',
}


class FakeNode:
    """A folder that looks like a p5 node to slipway-health; ``say`` and ``gpus`` break it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        monkeypatch.setattr(ask, "PATH", f"{self.bin}:/usr/bin:/bin")
        monkeypatch.chdir(root)
        shutil.copy(STANDIN, self.bin / "nvidia-smi")
        for name, script in PROGRAMS.items():
            self.say(name, script)
        (root / "kernel.log").write_text("")
        (root / "calls").write_text("")
        (root / "comments").write_text("n1\n")
        self.nodes(("n1", "idle", "none"), ("n2", "idle", "none"), ("n3", "mixed", "none"), ("n4", "idle", "none"))
        self.gpus(persistence=True)
        for number in range(32):
            device = root / f"sys/class/infiniband/rdmap{number}s0/device"
            device.mkdir(parents=True)
            (device / "uevent").write_text("DRIVER=efa\n")
        self.write("cfnconfig", "cfn_instance_type=p5.48xlarge\nscheduler_queue_name=train\n")
        self.write("node.env", "FSX_MOUNT=/fsx\nHEALTH_DRAIN=true\n")
        self.write("nodename", "n1\n")
        self.write("mounts", "lustre /fsx lustre rw,flock 0 0\n/dev/vg /scratch ext4 rw 0 0\n")
        queues = {"train": {"instance_type": "p5.48xlarge", "efa": True}}
        types = {"p5.48xlarge": P5, "m5.large": {"gpus": 0, "efa_interfaces": 0, "nvlink_links": 0, "nvme_gb": 0}}
        self.write("instances.json", json.dumps({"queues": queues, "instance_types": types}))
        self.places = facts.Places(
            node_env=root / "node.env",
            cfnconfig=root / "cfnconfig",
            slurm_nodename=root / "nodename",
            instances=root / "instances.json",
            sysfs=root / "sys",
            mounts=root / "mounts",
            imds="http://127.0.0.1:9",  # the discard port: refused at once
            state=root / "run",
            result=root / "lib/health.json",
            textfile=root / "textfile/health.prom",
            log=root / "log/health.log",
            evidence=root / "log/evidence.log",
        )

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def say(self, name: str, script: str) -> None:
        """Replace a program by a line of shell, or take it away (an empty line)."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\ncd {self.root}\n{script}\n")
        path.chmod(0o755 if script else 0o644)

    def gpus(self, **state: Any) -> None:
        (self.bin / "gpus.json").write_text(json.dumps(state))

    def nodes(self, *rows: tuple[str, str, str]) -> None:
        self.write("nodes", "".join("|".join(row) + "\n" for row in rows))

    def run(self, *arguments: str) -> int:
        code: int = cli.main(list(arguments) or ["--record"], self.places)
        return code

    @property
    def result(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.places.result.read_text())
        return told

    def check(self, name: str) -> dict[str, Any]:
        """Run once and return one check's result."""
        self.run()
        return next(one for one in self.result["checks"] if one["check"] == name)

    @property
    def calls(self) -> list[str]:
        """Each change of a node's state that scontrol was asked for; notes in comments are left out."""
        return [line for line in (self.root / "calls").read_text().splitlines() if " state=" in line]
