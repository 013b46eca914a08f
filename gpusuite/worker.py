"""One GPU's process: reads a stage a line on standard input, runs it, and prints its result as a line of JSON.

`gpu_tests.py` starts one for each GPU, so that a GPU that hangs or crashes its process is named and the others go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from gpusuite.options import Options
from gpusuite.workers import MARK


def main() -> int:
    """Serve until standard input ends. Arguments: the GPU's index, or cpu."""
    device = _device(sys.argv[1])
    _answer({"ready": True, **_versions(device)})
    for line in sys.stdin:
        order = json.loads(line)
        options = Options(**order["options"])
        if options.fault == "hang":
            time.sleep(3600)
        _answer(_result(order["stage"], device, options))
    return 0


def _device(name: str) -> Any:
    import torch

    if name == "cpu":
        torch.set_num_threads(1)
        return torch.device("cpu")
    torch.cuda.set_device(int(name))
    return torch.device("cuda", int(name))


def _versions(device: Any) -> dict[str, Any]:
    import torch

    cuda = device.type == "cuda"
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda else None,
        "capability": list(torch.cuda.get_device_capability(device)) if cuda else None,
    }


def _result(stage: str, device: Any, options: Options) -> dict[str, Any]:
    """Run a stage; a fault of torch or CUDA is an answer too."""
    from gpusuite import gemm, inference, memory, screen, stress, training

    stages = {
        "compute": gemm.measure,
        "memory": memory.bandwidth,
        "pattern": memory.pattern,
        "peers": memory.peers,
        "train": training.smoke,
        "inference": inference.throughput,
        "screen": screen.hashes,
        "stress": stress.load,
    }
    started = time.monotonic()
    try:
        result: dict[str, Any] = stages[stage](device, options)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
    _free(device)
    return {**result, "took_s": round(time.monotonic() - started, 2)}


def _free(device: Any) -> None:
    import torch

    gemm_cache = sys.modules["gpusuite.gemm"]
    gemm_cache._integers.cache_clear()
    if device.type == "cuda":
        with contextlib.suppress(RuntimeError):  # a context that a fault has destroyed
            torch.cuda.empty_cache()


def _answer(values: dict[str, Any]) -> None:
    os.write(1, (MARK + json.dumps(values) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
