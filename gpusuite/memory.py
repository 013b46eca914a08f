"""Memory: bandwidth of the GPU's own memory and of the host link, a pattern test, and copies between GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gpusuite.options import Options
from gpusuite.timing import speed, synchronize

GIB = 1 << 30


def bandwidth(device: Any, options: Options) -> dict[str, Any]:
    """Measure copy, triad and the pinned copies from and to the host, in GB/s, and compare the data afterwards.

    copy counts bytes read and written; triad a = b + s c counts three times the buffer; host copies count once.
    """
    size = 1 << 16 if options.tiny else GIB
    count = size // 4
    generator = torch.Generator(device=device).manual_seed(1)
    first, second = (torch.randn(count, device=device, generator=generator) for _ in range(2))
    target = torch.empty_like(first)
    pinned = torch.empty(count // 2, pin_memory=device.type == "cuda")
    part = first[: count // 2]
    works: dict[str, tuple[Callable[[], Any], int, Callable[[], bool]]] = {}
    works["memory copy"] = (lambda: target.copy_(first), 2 * size, lambda: torch.equal(target, first))
    works["memory triad"] = (
        lambda: torch.add(first, second, alpha=3.0, out=target),
        3 * size,
        lambda: torch.allclose(target, first + 3.0 * second, rtol=1e-5, atol=1e-5),
    )
    works["device to host"] = (
        lambda: pinned.copy_(part, non_blocking=True),
        size // 2,
        lambda: torch.equal(pinned, part.cpu()),
    )
    works["host to device"] = (
        lambda: target[: count // 2].copy_(pinned, non_blocking=True),
        size // 2,
        lambda: torch.equal(target[: count // 2], part),
    )
    rates: dict[str, float] = {}
    wrong = []
    for name, (work, size_moved, right) in works.items():
        rates[name] = size_moved * speed(device, work, options, brief=True).per_s / 1e9
        synchronize(device)
        if not bool(right()):
            wrong.append(name)
    return {"gb_per_s": rates, "wrong": wrong, "buffer_bytes": size}


def pattern(device: Any, options: Options) -> dict[str, Any]:
    """Fill most of the free memory with two patterns, one the inverse of the other, and read them back.

    tested_bytes says how much was tested: a test that could not allocate has tested nothing.
    """
    block = 1 << 16 if options.tiny else GIB
    free = 16 * block if options.tiny else torch.cuda.mem_get_info(device)[0]
    generator = torch.Generator(device=device).manual_seed(2)
    base = torch.randint(-(1 << 62), 1 << 62, (block // 8,), device=device, generator=generator)
    blocks = []
    for _ in range(int(free * 0.9) // block - 3):  # the base and two temporaries
        try:
            blocks.append(torch.empty_like(base))
        except torch.cuda.OutOfMemoryError:
            break
    wrong = 0
    for inverse in (False, True):
        for number, one in enumerate(blocks):
            torch.bitwise_xor(base, -number - 1 if inverse else number, out=one)
        for number, one in enumerate(blocks):
            wrong += int((one != torch.bitwise_xor(base, -number - 1 if inverse else number)).sum())
    return {"tested_bytes": len(blocks) * block, "free_bytes": free, "wrong_words": wrong}


def peers(device: Any, options: Options) -> dict[str, Any]:
    """Copy between each ordered pair of GPUs, in GB/s one way, and compare the data. One worker does all.

    Eight GPUs have 56 pairs: a pair takes below half a second, so that `--quick` stays below two minutes.
    """
    if options.tiny:
        return {"pairs": []}
    count, pairs = torch.cuda.device_count(), []
    for source in range(count):
        data = _numbers(torch.device("cuda", source))
        pairs += [_pair(data, source, target, options) for target in range(count) if source != target]
        del data
    torch.cuda.set_device(device)
    return {"pairs": pairs, "bytes": GIB}


def _numbers(device: Any) -> Any:
    """Return a GiB of whole numbers that differ from each other, the same on every device."""
    return torch.arange(GIB // 4, device=device, dtype=torch.int32) * -1640531535  # odd: no two products are equal


def _pair(data: Any, source: int, target: int, options: Options) -> dict[str, Any]:
    received = torch.zeros_like(data, device=f"cuda:{target}")
    torch.cuda.set_device(source)  # the copy runs on the source's stream, and is timed there
    copy: Callable[[], Any] = lambda: received.copy_(data, non_blocking=True)  # noqa: E731
    rate = speed(torch.device("cuda", source), copy, options, brief=True)
    for one in (source, target):
        synchronize(torch.device("cuda", one))
    return {
        "from": source,
        "to": target,
        "gb_per_s": GIB * rate.per_s / 1e9,
        "direct": bool(torch.cuda.can_device_access_peer(source, target)),
        "wrong": not torch.equal(received, _numbers(received.device)),
    }
