"""The screen for silent data corruption: the same products on every GPU, as a hash of their bytes.

One process a GPU and one stream, the same shapes and alignment: cuBLAS then gives the same bytes from run to run on
GPUs of one architecture and the same number of multiprocessors (cuBLAS documentation, results reproducibility). The
parent compares the hashes; this module also repeats each product and compares it with its first result.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from gpusuite.gemm import product_of, set_tf32, unsupported
from gpusuite.options import Options

SEED = 11


def hashes(device: Any, options: Options) -> dict[str, Any]:
    """Return a hash for each product, and how many repetitions differed from their first result."""
    n = 128 if options.tiny else 4096
    types = ["fp32", "bf16"] if options.tiny else ["bf16", "fp16", "fp32", "tf32"]
    rounds, repeats = (2, 8) if options.quick or options.tiny else (8, 50)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    found, differing = {}, 0
    for number in range(rounds):
        # Made on the CPU: the GPU under test makes none of its own inputs.
        generator = torch.Generator().manual_seed(SEED + number)
        left, right = (torch.randn(n, n, generator=generator) for _ in range(2))
        for dtype in types:
            if not unsupported(dtype, device):
                text, wrong = _screened(dtype, left, right, device, repeats, options)
                found[f"{dtype} {number}"] = text
                differing += wrong
    model, multiprocessors = "CPU", 0
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        model, multiprocessors = properties.name, properties.multi_processor_count
    kind = {"model": model, "multiprocessors": multiprocessors}
    return {"hashes": found, "differing": differing, **kind, "repeats": repeats}


def _screened(dtype: str, left: Any, right: Any, device: Any, repeats: int, options: Options) -> tuple[str, int]:
    """Return the hash of one product, and how many repetitions differ from it."""
    target, n = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32), left.shape[0]
    set_tf32(dtype == "tf32")
    first, second = left.to(device).to(target), right.to(device).to(target)
    product = product_of(dtype, device)
    result = product(first, second)
    words = result.view(torch.int16 if target != torch.float32 else torch.int32)
    if options.fault == "flip":
        words[n // 3, n // 7] ^= 1 << 3
    differing = sum(not torch.equal(result, product(first, second)) for _ in range(repeats))
    set_tf32(False)
    return hashlib.sha256(words.cpu().numpy().tobytes()).hexdigest(), differing
