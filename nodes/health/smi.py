"""What nvidia-smi prints, as data: `-q -x`, `nvlink -s`, `nvlink -e`.

Forms seen on drivers 580.159 (H200) and older ones: a field that a driver or GPU does not have is None, never 0.
"""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

NO_VALUE = frozenset({"", "N/A", "[N/A]", "None", "Not Supported", "Requested functionality has been deprecated"})
LOST = re.compile(r"fallen off the bus|GPU is lost|Unable to determine the device handle|GPU requires reset", re.I)
BUS = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})")
LINK_GPU = re.compile(r"GPU (\d+):")
LINK = re.compile(r"\s*Link (\d+): (.+)")
ACTIVE = re.compile(r"[0-9.]+ GB/s")
COUNTER = re.compile(r"(Replay|Recovery|CRC) Errors: (\d+)")
UNCORRECTABLE = {"sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable"}
# What slows a GPU down against the user's will; idle clocks, power caps and chosen clocks do not count.
THROTTLES = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "too hot (hardware)",
    "hw_power_brake_slowdown": "power brake",
    "sw_thermal_slowdown": "too hot (software)",
}


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU of `nvidia-smi -q -x`. used_mib: of its memory; processes: id and name of those that use it."""

    index: int
    bus: str
    name: str = ""
    persistence: bool | None = None
    ecc_enabled: bool | None = None
    volatile_uncorrectable: int | None = None
    aggregate_uncorrectable: int | None = None
    sram_threshold_exceeded: bool | None = None
    unrepairable: bool | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    recovery_action: str | None = None
    throttles: tuple[str, ...] = ()
    fabric_state: str | None = None
    fabric_status: str | None = None
    used_mib: int | None = None
    processes: tuple[tuple[int, str], ...] = ()
    lost: bool = False


@dataclasses.dataclass(frozen=True)
class Listing:
    """The whole answer: the driver's version and its GPUs in their order."""

    driver: str
    gpus: tuple[Gpu, ...]


def parse(text: str) -> Listing:
    """Read the XML of `nvidia-smi -q -x`.

    Raises ValueError if it is not such XML: nvidia-smi prints plain text when it fails.
    """
    start, end = text.find("<nvidia_smi_log"), text.rfind("</nvidia_smi_log>")
    if start < 0 or end < 0:
        raise ValueError("no listing of GPUs")
    try:
        # The declaration and DOCTYPE before it are left out: nothing is ever resolved.
        root = ElementTree.fromstring(text[start : end + len("</nvidia_smi_log>")])  # noqa: S314  (the driver's own)
    except ElementTree.ParseError as error:
        raise ValueError(f"broken listing of GPUs: {error}") from error
    gpus = tuple(_gpu(index, node) for index, node in enumerate(root.findall("gpu")))
    return Listing(driver=root.findtext("driver_version", "").strip(), gpus=gpus)


def _gpu(index: int, node: ElementTree.Element) -> Gpu:
    ecc = node.find("ecc_errors")
    return Gpu(
        index=index,
        bus=bus(node.get("id", "")),
        name=_text(node, "product_name") or "",
        persistence=_yes(node, "persistence_mode"),
        ecc_enabled=_yes(node, "ecc_mode/current_ecc"),
        volatile_uncorrectable=_uncorrectable(ecc, "volatile"),
        aggregate_uncorrectable=_uncorrectable(ecc, "aggregate"),
        sram_threshold_exceeded=_yes(node, "ecc_errors/aggregate/sram_threshold_exceeded"),
        unrepairable=_yes(node, "ecc_errors/unrepairable_memory"),
        remap_pending=_yes(node, "remapped_rows/remapped_row_pending"),
        remap_failure=_yes(node, "remapped_rows/remapped_row_failure"),
        recovery_action=_text(node, "gpu_recovery_action"),
        throttles=_throttles(node),
        fabric_state=_text(node, "fabric/state"),
        fabric_status=_text(node, "fabric/status"),
        used_mib=_mib(node, "fb_memory_usage/used"),
        processes=tuple(_processes(node)),
        lost=any(LOST.search(part.text or "") for part in node.iter()),
    )


def _text(node: ElementTree.Element, path: str) -> str | None:
    found = (node.findtext(path) or "").strip()
    return None if found in NO_VALUE else found


def _mib(node: ElementTree.Element, path: str) -> int | None:
    number, _, unit = (_text(node, path) or "").partition(" ")
    return int(number) if number.isdigit() and unit == "MiB" else None


def _processes(node: ElementTree.Element) -> Iterator[tuple[int, str]]:
    for one in node.findall("processes/process_info"):
        pid = _text(one, "pid") or ""
        if pid.isdigit():
            yield int(pid), _text(one, "process_name") or "?"


def _yes(node: ElementTree.Element, path: str) -> bool | None:
    found = _text(node, path)
    return {"Yes": True, "Enabled": True, "No": False, "Disabled": False}.get(found or "")


def _uncorrectable(ecc: ElementTree.Element | None, kind: str) -> int | None:
    """The sum over the memories; None when the GPU counts none."""
    part = None if ecc is None else ecc.find(kind)
    if part is None:
        return None
    counts = [int(one.text or "") for one in part if one.tag in UNCORRECTABLE and (one.text or "").strip().isdigit()]
    return sum(counts) if counts else None


def _throttles(node: ElementTree.Element) -> tuple[str, ...]:
    """Reasons that are active; older drivers call them throttle reasons."""
    for group, prefix in (
        ("clocks_event_reasons", "clocks_event_reason_"),
        ("clocks_throttle_reasons", "clocks_throttle_reason_"),
    ):
        if node.find(group) is not None:
            active = [name for name in THROTTLES if _text(node, f"{group}/{prefix}{name}") == "Active"]
            return tuple(THROTTLES[name] for name in active)
    return ()


def bus(text: str) -> str:
    """A PCI address in one form: `0000:53:00`, from `00000000:53:00.0` or `PCI:0000:53:00`; empty for none."""
    match = BUS.search(text)
    return f"{int(match[1], 16):04x}:{match[2].lower()}:{match[3].lower()}" if match else ""


def active_links(text: str) -> dict[int, tuple[int, list[int]]]:
    """Return GPU -> number of links listed, and the inactive ones, from `nvidia-smi nvlink -s`."""
    found: dict[int, tuple[int, list[int]]] = {}
    gpu = -1
    for line in text.splitlines():
        if LINK_GPU.match(line):
            gpu = int(line[4 : line.index(":")])
            found[gpu] = (0, [])
        match = LINK.match(line)
        if match and gpu >= 0:
            count, inactive = found[gpu]
            found[gpu] = (count + 1, inactive if ACTIVE.match(match[2]) else [*inactive, int(match[1])])
    return found


def link_errors(text: str) -> dict[str, int]:
    """`gpu 0 Recovery` -> errors over all links of the GPU, from `nvidia-smi nvlink -e`."""
    found: dict[str, int] = {}
    gpu = ""
    for line in text.splitlines():
        if LINK_GPU.match(line):
            gpu = f"gpu {line[4 : line.index(':')]}"
        match = COUNTER.search(line)
        if match and gpu:
            key = f"{gpu} {match[1]}"
            found[key] = found.get(key, 0) + int(match[2])
    return found
