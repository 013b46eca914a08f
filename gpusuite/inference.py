"""Inference throughput in fp16: ResNet-50 and a transformer, one item at a time and in a large batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from gpusuite.networks import resnet50, seeded, transformer
from gpusuite.options import Options
from gpusuite.timing import speed

CLOSE = 0.99  # cosine of fp16 and fp32 outputs


def throughput(device: Any, options: Options) -> dict[str, Any]:
    """Measure items a second, and compare the fp16 output with the fp32 output of the same weights."""
    models = []
    torch.backends.cudnn.benchmark = True
    with torch.inference_mode():
        for name, unit in (("resnet50", "images/s"), ("transformer", "sequences/s")):
            seeded(3)
            network = (resnet50() if name == "resnet50" else transformer(2 if options.tiny else 12)).eval().to(device)
            cosine = _cosine(name, network, device, options)
            network = network.half().to(memory_format=torch.channels_last) if name == "resnet50" else network.half()
            for batch in _batches(name, options):
                inputs = _inputs(name, batch, device, options).half()
                rate = speed(device, _work(network, inputs, device), options, brief=batch == 1)
                row = {"model": name, "batch": batch, "per_s": batch * rate.per_s, "unit": unit, "cosine": cosine}
                models.append({**row, "close": cosine > CLOSE})
    torch.backends.cudnn.benchmark = False
    return {"models": models, "dtype": "fp16"}


def _work(network: Any, inputs: Any, device: Any) -> Callable[[], Any]:
    """The work of one batch, as a CUDA graph: else the host's speed of launching kernels is measured.

    Seen on an H200: 86 sequences/s one by one without a graph, 1850 with it.
    """
    if device.type != "cuda":
        return lambda: network(inputs)
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(3):  # libraries choose their kernels before the capture
            network(inputs)
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        network(inputs)
    return graph.replay  # type: ignore[no-any-return]


def _batches(name: str, options: Options) -> list[int]:
    return [1, 2] if options.tiny else [1, 256 if name == "resnet50" else 128]


def _inputs(name: str, batch: int, device: Any, options: Options) -> Any:
    generator = torch.Generator(device=device).manual_seed(4)
    if name == "resnet50":
        side = 32 if options.tiny else 224
        images = torch.randn(batch, 3, side, side, device=device, generator=generator)
        return images.to(memory_format=torch.channels_last)
    return torch.randn(batch, 8 if options.tiny else 128, 768, device=device, generator=generator)


def _cosine(name: str, network: Any, device: Any, options: Options) -> float:
    inputs = _inputs(name, 2, device, options)
    expected = network(inputs).float().flatten()
    got = network.half()(inputs.half()).float().flatten()
    network.float()
    return float(functional.cosine_similarity(got, expected, dim=0))
