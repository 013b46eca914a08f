"""The GPUs of this machine, through the CUDA driver (libcuda) by ctypes: without torch and without a CUDA context."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import asdict, dataclass
from typing import Any

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
HINTS = {
    3: "the driver is not initialised",
    802: "the GPUs are not ready: NVSwitch machines need nvidia-fabricmanager",
    803: "the driver and libcuda have different versions: restart the machine after a driver update",
    999: "the driver has failed: see dmesg for Xid messages",
}
_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


@dataclass(frozen=True)
class Gpu:
    """One GPU as CUDA numbers it in this process. bus: its PCI address, such as 0000:53:00."""

    index: int
    name: str
    bus: str
    uuid: str = ""
    memory_bytes: int = 0
    multiprocessors: int = 0

    def __str__(self) -> str:
        return f"gpu {self.index} ({self.bus})"

    def as_json(self) -> dict[str, Any]:
        """Return the object of the report."""
        return asdict(self)


class CudaError(Exception):
    """CUDA does not work on this machine although it should: a driver that fails, or GPUs that CUDA does not see."""


def find_gpus() -> list[Gpu]:
    """Return the GPUs that CUDA sees; an empty list on a machine without GPU or driver.

    Raises CudaError if the driver fails, or if `nvidia-smi -L` lists GPUs and CUDA sees none of them.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return _none_or_raise("libcuda.so.1 cannot be loaded")
    code = cuda.cuInit(0)
    if code == NO_DEVICE:
        return _none_or_raise("cuInit reports no device")
    if code:
        raise CudaError(f"cuInit failed with error {code}: {HINTS.get(code, 'see cuda.h')}")
    count = ctypes.c_int()
    _call(cuda, "cuDeviceGetCount", ctypes.byref(count))
    return [_gpu(cuda, index) for index in range(count.value)]


def _none_or_raise(why: str) -> list[Gpu]:
    listed = smi_list()
    if listed:
        hint = "Hint: is CUDA_VISIBLE_DEVICES empty, or does the container lack the driver's libraries (--gpus all)?"
        raise CudaError(f"nvidia-smi lists {len(listed)} GPUs, but {why}. {hint}")
    return []


def smi_list() -> list[str]:
    """Return the lines of `nvidia-smi -L`; none where it is missing or fails."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("GPU ")] if not done.returncode else []


def _call(cuda: Any, name: str, *arguments: Any) -> None:
    code = getattr(cuda, name)(*arguments)
    if code:
        raise CudaError(f"{name} failed with error {code}: {HINTS.get(code, 'see cuda.h')}")


def _gpu(cuda: Any, index: int) -> Gpu:
    device, size, count = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_int()
    name, bus, uuid = (ctypes.create_string_buffer(length) for length in (256, 64, 16))
    _call(cuda, "cuDeviceGet", ctypes.byref(device), index)
    _call(cuda, "cuDeviceGetName", name, 256, device)
    _call(cuda, "cuDeviceGetPCIBusId", bus, 64, device)
    _call(cuda, "cuDeviceGetUuid", uuid, device)
    _call(cuda, "cuDeviceTotalMem_v2", ctypes.byref(size), device)
    _call(cuda, "cuDeviceGetAttribute", ctypes.byref(count), _MULTIPROCESSORS, device)
    raw = uuid.raw.hex()
    parts = (raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:])
    return Gpu(
        index=index,
        name=name.value.decode(errors="replace"),
        bus=short_bus(bus.value.decode()),
        uuid=f"GPU-{'-'.join(parts)}",
        memory_bytes=size.value,
        multiprocessors=count.value,
    )


def short_bus(text: str) -> str:
    """Return a PCI address in one form: `0000:53:00` from `00000000:53:00.0`; unknown text unchanged."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain[-4:]}:{rest.partition('.')[0]}" if rest else text
