"""What nvidia-smi reports of the GPUs while they work: clocks, power, temperature, reasons of slowdown, ECC errors."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any

from gpusuite.devices import short_bus

# Bits of the clocks event reasons (nvml.h). The software power cap, 0x4, is normal on a busy GPU and no finding.
POWER_CAP = 0x4
SLOWDOWNS = {
    0x8: "hardware slowdown",
    0x20: "too hot (software)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
}
_NAMES = (
    "pci.bus_id",
    "clocks.sm",
    "clocks.max.sm",
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "utilization.gpu",
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.corrected.volatile.total",
    "pcie.link.gen.current",
    "pcie.link.width.current",
)
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # the second one: drivers before 535


@dataclass(frozen=True)
class Sample:
    """One GPU at one moment. A field that the driver or the GPU does not have is None, never 0."""

    bus: str
    sm_mhz: float | None
    max_sm_mhz: float | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: float | None
    utilization: float | None
    ecc_uncorrected: float | None
    ecc_corrected: float | None
    pcie_gen: float | None
    pcie_width: float | None
    reasons: int | None

    def as_json(self) -> dict[str, Any]:
        """Return the object of the report."""
        return asdict(self)


def parse(text: str) -> list[Sample]:
    """Read the lines of `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`; a cut line is left out."""
    samples = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(fields(Sample)) and ":" in cells[0]:
            names = [field.name for field in fields(Sample)][1:-1]
            numbers: dict[str, Any] = {name: _number(cell) for name, cell in zip(names, cells[1:-1])}
            samples.append(Sample(bus=short_bus(cells[0]), reasons=_bits(cells[-1]), **numbers))
    return samples


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported], [Unknown Error]
        return None


def _bits(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def slowdowns(bits: int | None) -> list[str]:
    """Return the reasons among the bits that slow a GPU down against the user's will."""
    return [name for bit, name in SLOWDOWNS.items() if bits is not None and bits & bit]


@contextlib.contextmanager
def watched(interval_s: float) -> Iterator[list[Sample]]:
    """Sample all GPUs while the block runs. The list has the samples when the block has ended.

    It stays empty where nvidia-smi is missing or does not know the fields: watching must not end the measurement.
    """
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "samples").open("w+", encoding="utf-8") as stream:
        watcher = _start(interval_s, stream)
        try:
            yield samples
        finally:
            if watcher is not None:
                watcher.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the driver, which no signal ends
                    watcher.wait(10)
                stream.seek(0)
                samples += parse(stream.read())


def _start(interval_s: float, stream: IO[str]) -> subprocess.Popen[str] | None:
    for reason in _REASONS:
        query = ["nvidia-smi", f"--query-gpu={','.join((*_NAMES, reason))}", "--format=csv,noheader,nounits"]
        try:
            if subprocess.run(query, capture_output=True, timeout=60, check=False).returncode == 0:
                argv = [*query, "-lms", str(int(interval_s * 1000))]
                return subprocess.Popen(argv, stdout=stream, stderr=subprocess.DEVNULL, text=True)
        except (OSError, subprocess.TimeoutExpired):
            return None
    return None
