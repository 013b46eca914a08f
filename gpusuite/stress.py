"""Full load for some time: the speed of bf16 products in each second."""

from __future__ import annotations

import time
from typing import Any

import torch

from gpusuite.gemm import SEED
from gpusuite.options import Options
from gpusuite.timing import seconds


def load(device: Any, options: Options) -> dict[str, Any]:
    """Multiply bf16 matrices for options.seconds; return TFLOP/s by window of about options.window_s.

    bf16 and random data draw the most power; fp8 and fp32 draw less.
    """
    n, window_s = 64 if options.tiny else 8192, options.window_s
    generator = torch.Generator(device=device).manual_seed(SEED)
    left, right = (torch.randn(n, n, device=device, generator=generator).to(torch.bfloat16) for _ in range(2))
    result = torch.empty_like(left)

    def work() -> None:
        torch.mm(left, right, out=result)

    work()
    calls = max(1, round(window_s / seconds(device, work, 3) * 3))
    started, windows = time.monotonic(), []
    while time.monotonic() - started < options.seconds:
        late = time.monotonic() - started > options.seconds / 2
        extra = calls // 2 + 1 if options.fault == "droop" and late else 0
        windows.append(2 * n**3 * calls / seconds(device, work, calls + extra) / 1e12)
    return {"windows_tflops": windows, "seconds": time.monotonic() - started, "n": n, "dtype": "bf16"}
