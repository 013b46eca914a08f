"""What the GPU suite measures, in plain torch and with nothing of the suite: prints one line of JSON.

Each GPU has its own process, and all of them measure at the same time. A figure is the median of five windows after a
warm-up.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import distributed, nn
from torch.nn import functional

GIB = 1 << 30
_TYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Bare:
    """One GPU's measurements. tiny: on the CPU, with sizes that need no time; the figures mean nothing."""

    def __init__(self, device: Any, world: int, tiny: bool) -> None:
        self.device, self.world, self.tiny = device, world, tiny
        self.window_s, self.warm_up_s = (0.005, 0.01) if tiny else (0.3, 2.0)

    def synchronize(self) -> None:
        """Wait until the device has done its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, work: Callable[[], Any], calls: int) -> float:
        """Seconds of one call, of several back to back."""
        self.synchronize()
        started = time.perf_counter()
        for _ in range(calls):
            work()
        self.synchronize()
        return (time.perf_counter() - started) / calls

    def rate(self, work: Callable[[], Any], warm_up_s: float | None = None) -> float:
        """Calls a second. All GPUs begin at the same time."""
        work()
        if self.world > 1:
            distributed.barrier()
        calls = max(1, round(self.window_s / self.seconds(work, 2)))
        end = time.perf_counter() + (self.warm_up_s if warm_up_s is None else warm_up_s)
        while time.perf_counter() < end:
            self.seconds(work, calls)
        return 1 / median(self.seconds(work, calls) for _ in range(5))

    def random(self, *shape: int) -> Any:
        """Normal random numbers."""
        return torch.randn(*shape, device=self.device)

    def products(self) -> dict[str, float]:
        """TFLOP/s of square products."""
        n, found = 128 if self.tiny else 8192, {}
        for dtype in ("fp32", "bf16") if self.tiny else ("fp32", "tf32", "bf16", "fp16", "fp8", "int8"):
            if dtype == "fp8" and torch.cuda.get_device_capability(self.device) < (8, 9):
                continue
            torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
            found[f"gemm {dtype} {n}"] = 2 * n**3 * self.rate(self.product(dtype, n)) / 1e12
        torch.backends.cuda.matmul.allow_tf32 = False
        return found

    def product(self, dtype: str, n: int) -> Callable[[], Any]:
        """One product; the right matrix is column-major, as fp8 and int8 need it."""
        if dtype == "int8":
            bytes_ = [torch.randint(-127, 128, (n, n), device=self.device, dtype=torch.int8) for _ in range(2)]
            return lambda: torch._int_mm(bytes_[0], bytes_[1].t())
        if dtype == "fp8":
            left, right = (self.random(n, n).to(torch.float8_e4m3fn) for _ in range(2))
            one = torch.ones((), device=self.device)
            scales = {"scale_a": one, "scale_b": one}
            fast = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
            return lambda: torch._scaled_mm(left, right.t(), **scales, **fast)
        left, right = (self.random(n, n).to(_TYPES[dtype]) for _ in range(2))
        result = torch.empty_like(left)
        return lambda: torch.mm(left, right.t(), out=result)

    def copies(self) -> dict[str, float]:
        """GB/s of a copy in the GPU's memory, read and written bytes counted, and of pinned copies."""
        size = 1 << 16 if self.tiny else GIB
        source = self.random(size // 4)
        target, half = torch.empty_like(source), source[: size // 8]
        pinned = torch.empty(size // 8, pin_memory=not self.tiny)
        brief = self.warm_up_s / 8
        down = self.rate(lambda: pinned.copy_(half, non_blocking=True), brief)
        up = self.rate(lambda: target[: size // 8].copy_(pinned, non_blocking=True), brief)
        return {
            "memory copy": 2 * size * self.rate(lambda: target.copy_(source), brief) / 1e9,
            "device to host": size / 2 * down / 1e9,
            "host to device": size / 2 * up / 1e9,
        }

    def inference(self) -> dict[str, float]:
        """Items a second in fp16, in large batches: one by one the choice of kernels decides, run by run."""
        found = {}
        torch.backends.cudnn.benchmark = True
        side, tokens, images, texts = (32, 8, 2, 2) if self.tiny else (224, 128, 256, 128)
        with torch.inference_mode():
            image = resnet50().eval().to(self.device).half().to(memory_format=torch.channels_last)
            pixels = self.random(images, 3, side, side).half().to(memory_format=torch.channels_last)
            found[f"resnet50 batch {images}"] = images * self.rate(self.captured(image, pixels))
            text = Transformer(2 if self.tiny else 12).eval().to(self.device).half()
            words = self.random(texts, tokens, 768).half()
            found[f"transformer batch {texts}"] = texts * self.rate(self.captured(text, words))
        torch.backends.cudnn.benchmark = False
        return found

    def captured(self, network: Any, inputs: Any) -> Callable[[], Any]:
        """One forward pass, as a CUDA graph on a GPU: without one the host's speed of launching is measured."""
        if self.device.type != "cuda":
            return lambda: network(inputs)
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(3):
                network(inputs)
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            network(inputs)
        return graph.replay  # type: ignore[no-any-return]

    def stress(self, seconds: float) -> dict[str, float]:
        """The median TFLOP/s of bf16 products for some time."""
        n, window_s = (64, 0.02) if self.tiny else (8192, 1.0)
        work = self.product("bf16", n)
        work()
        calls = max(1, round(window_s / self.seconds(work, 3)))
        end, times = time.perf_counter() + seconds, [self.seconds(work, calls)]
        while time.perf_counter() < end:
            times.append(self.seconds(work, calls))
        return {f"stress bf16 {n}": 2 * n**3 / median(times) / 1e12}

    def all_reduce(self) -> dict[str, float]:
        """Bus bandwidth in GB/s as nccl-tests defines it: the slowest rank's time. At 1 MiB a launch would be timed."""
        found = {}
        for size in (1 << 16, 1 << 20) if self.tiny else (64 << 20, GIB):
            # As many on each rank, so no window of a given time; 20 GiB take 0.1 s on NVLink.
            data, calls = torch.zeros(size // 4, device=self.device), 4 if self.tiny else 20 * GIB // size

            def reduce(data: Any = data) -> None:
                distributed.all_reduce(data)

            self.seconds(reduce, calls)
            times = []
            for _ in range(5):
                distributed.barrier()
                times.append(self.seconds(reduce, calls))
            took = torch.tensor(times, dtype=torch.float64, device=self.device)
            distributed.all_reduce(took, op=distributed.ReduceOp.MAX)
            found[f"all_reduce {size}"] = 2 * (self.world - 1) / self.world * size / median(took.tolist()) / 1e9
        return found


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """A convolution and its normalisation."""
    one = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(one.weight, mode="fan_out", nonlinearity="relu")
    return [one, nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        relu = nn.ReLU(inplace=True)
        first, second = convolution(inputs, width, 1), convolution(width, width, 3, stride)
        self.body = nn.Sequential(*first, relu, *second, relu, *convolution(width, 4 * width, 1))
        nn.init.constant_(self.body[-1].weight, 0.2)  # untrained: else fp16 overflows
        self.skip = nn.Sequential(*([] if inputs == 4 * width else convolution(inputs, 4 * width, 1, stride)))

    def forward(self, value: Any) -> Any:
        """Return the block's output."""
        return functional.relu(self.body(value) + self.skip(value))


def resnet50() -> Any:
    """ResNet-50, untrained."""
    layers = [*convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for number in range(blocks):
            layers.append(Residual(inputs, width, 2 if number == 0 and width > 64 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Transformer(nn.Module):
    """An encoder of BERT base's width, untrained: 768 wide, 12 heads."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        shapes = {"mixed": (768, 2304), "out": (768, 768), "forth": (768, 3072), "back": (3072, 768)}
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    **{name: nn.Linear(*shape) for name, shape in shapes.items()},
                    **{name: nn.LayerNorm(768) for name in ("before", "between")},
                }
            )
            for _ in range(layers)
        )
        self.last = nn.LayerNorm(768)

    def forward(self, value: Any) -> Any:
        """Return the output of (batch, tokens, 768)."""
        for layer in self.layers:
            heads = layer["mixed"](layer["before"](value)).unflatten(-1, (3, 12, 64)).permute(2, 0, 3, 1, 4)
            attended = functional.scaled_dot_product_attention(*heads)
            value = value + layer["out"](attended.transpose(1, 2).flatten(2))
            value = value + layer["back"](functional.gelu(layer["forth"](layer["between"](value))))
        return self.last(value)


def measure(rank: int, world: int, tiny: bool, stress_s: float, store: str) -> None:
    """Measure on one GPU; rank 0 prints the figures of all."""
    torch.set_num_threads(1)
    device = torch.device("cpu") if tiny else torch.device("cuda", rank)
    if not tiny:
        torch.cuda.set_device(device)
    backend: dict[str, Any] = {"backend": "gloo"} if tiny else {"backend": "nccl", "device_id": device}
    distributed.init_process_group(init_method=f"file://{store}", rank=rank, world_size=world, **backend)
    bare = Bare(device, world, tiny)
    figures = {**bare.products(), **bare.copies(), **bare.inference(), **bare.stress(stress_s)}
    together = bare.all_reduce() if world > 1 else {}
    every: list[Any] = [None] * world
    distributed.all_gather_object(every, figures)
    if rank == 0:
        print(json.dumps({"gpus": every, "together": together}), flush=True)
    distributed.destroy_process_group()


def main() -> int:
    """Start a process for each GPU."""
    parser = argparse.ArgumentParser(description="What the GPU suite measures, in plain torch.")
    parser.add_argument("--cpu-devices", type=int, help="that many processes on the CPU instead, with tiny sizes")
    parser.add_argument("--stress-seconds", type=float, default=20, help="length of the full load")
    arguments = parser.parse_args()
    tiny, world = arguments.cpu_devices is not None, arguments.cpu_devices or torch.cuda.device_count()
    if world < 1:
        print("bare: this machine has no GPU. Hint: --cpu-devices 1 runs the same without one", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        values = (world, tiny, arguments.stress_seconds, f"{folder}/store")
        # A fork would share the parent's CUDA; on the CPU it saves importing torch again.
        torch.multiprocessing.start_processes(measure, values, world, start_method="fork" if tiny else "spawn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
