"""The node's answers in one run: each question is asked once, and the checks share the answer."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

from nodes.health import smi, xid
from nodes.health.ask import Answer, Asker
from nodes.health.facts import Facts, Places, Settings
from nodes.metrics.infiniband import efa_devices

SMI_LIMIT_S = 20.0  # 0.2 s with two GPUs and persistence (measured, H200); without it the driver wakes every GPU first
LIMIT_S = 5.0
KERNEL_LOG_LIMIT_S = 10.0
OVERLAP_S = 5.0
CLOCK_STEP_S = 2.0


def clock_offset() -> float:
    """Return the clock minus the time since the boot, in seconds: it changes only when the clock is set."""
    return time.time() - time.monotonic()


@dataclasses.dataclass
class Node:
    """One node in one run. `state` is what runs of this boot remember (see `cli`)."""

    places: Places
    facts: Facts
    settings: Settings
    asker: Asker
    state: dict[str, Any]
    now: float

    def ask(self, *argv: str, limit_s: float = LIMIT_S) -> Answer:
        """Ask one command."""
        return self.asker.ask(argv, limit_s)

    @functools.cached_property
    def smi_answer(self) -> Answer:
        """The answer of `nvidia-smi -q -x`."""
        return self.ask("nvidia-smi", "-q", "-x", limit_s=SMI_LIMIT_S)

    @functools.cached_property
    def listing(self) -> smi.Listing | None:
        """The GPUs, or None when nvidia-smi gave no listing."""
        try:
            return smi.parse(self.smi_answer.out)
        except ValueError:
            return None

    @functools.cached_property
    def gpus(self) -> tuple[smi.Gpu, ...]:
        """The GPUs that the driver lists."""
        return self.listing.gpus if self.listing else ()

    @functools.cached_property
    def kernel_log(self) -> Answer:
        """The kernel's lines since the last run that could read them, or since the boot."""
        since = float(self.state.get("log_read", 0))
        # The clock was set meanwhile, so the times of the lines no longer show which of them are new.
        if abs(clock_offset() - float(self.state.get("log_read_clock", 0))) > CLOCK_STEP_S:
            since = 0.0
        bound = [f"--since=@{since - OVERLAP_S:.0f}"] if since else []
        argv = ["journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", "--output=short-unix", *bound]
        return self.ask(*argv, limit_s=KERNEL_LOG_LIMIT_S)

    @functools.cached_property
    def xid_events(self) -> list[xid.Event]:
        """Every Xid of this boot, as far as the log could be read; remembered in `state`."""
        known = [xid.Event(**one) for one in self.state.get("xids", [])]
        if self.kernel_log.ok:
            known = xid.merge(known, xid.events(self.kernel_log.out))
            self.state["xids"] = [dataclasses.asdict(one) for one in known]
            self.state["log_read"], self.state["log_read_clock"] = self.now, clock_offset()
        return known

    def gpu_of(self, bus: str) -> str:
        """`gpu 3` for a PCI address; the address itself when no listed GPU has it (any more)."""
        return next((f"gpu {gpu.index}" for gpu in self.gpus if gpu.bus == bus), f"gpu at {bus}")

    def efa_devices(self) -> list[str]:
        """Names of the EFA devices that the kernel has."""
        return [device.name for device in efa_devices(self.places.sysfs)]

    def mount_of(self, path: str) -> str | None:
        """The options of what is mounted at `path`, None when nothing is. Asks the kernel, not the file system."""
        options = None
        for line in self.places.mounts.read_text(encoding="utf-8", errors="replace").split("\n"):
            fields = line.split(" ")
            if len(fields) > 3 and fields[1] == path:
                options = fields[3]
        return options
