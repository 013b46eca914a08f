"""Matrix products by data type: their speed, an exact check with integers, and the error on random data."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from gpusuite.options import Options
from gpusuite.timing import speed

SEED = 20261129
# The largest healthy relative error on random data. fp32 above its bound is TF32 or worse.
ERRORS = {"fp32": 1e-5, "tf32": 2e-3, "bf16": 1e-2, "fp16": 2e-3, "fp8": 2e-2, "int8": 0.0}
_TYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn"}
_ROWS = 16  # of the random product that are compared with fp64
_CHUNK = 1024  # rows that are converted to fp64 at a time


def sizes(options: Options) -> list[tuple[str, int]]:
    """Return data type and size of each product. 8192 is the size of the limits."""
    if options.tiny:
        return [(dtype, 128) for dtype in ("fp32", "bf16")]
    found = [(dtype, 8192) for dtype in ERRORS]
    return found if options.quick else [*found, *((dtype, 16384) for dtype in ("bf16", "fp16", "fp8"))]


def measure(device: Any, options: Options) -> dict[str, Any]:
    """Measure and check each product. Types that the card or this torch does not have are in `skipped`."""
    gemms, skipped = [], {}
    for dtype, n in sizes(options):
        why = unsupported(dtype, device)
        if why:
            skipped[dtype] = why
        else:
            gemms.append(_one(dtype, n, device, options))
    return {"gemms": gemms, "skipped": skipped}


def unsupported(dtype: str, device: Any) -> str:
    """Return why a type cannot be measured; empty if it can."""
    if device.type != "cuda" or dtype not in ("fp8", "int8"):
        return ""
    if dtype == "int8":
        return "" if hasattr(torch, "_int_mm") else f"torch {torch.__version__} has no int8 product"
    if torch.cuda.get_device_capability(device) < (8, 9):
        return "the card has no fp8"
    return "" if hasattr(torch, "_scaled_mm") else f"torch {torch.__version__} has no fp8 product"


def set_tf32(on: bool) -> None:
    """Set whether fp32 products may use TF32: torch's own default differs between its versions and images."""
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on


def _one(dtype: str, n: int, device: Any, options: Options) -> dict[str, Any]:
    set_tf32(dtype == "tf32")
    product = product_of(dtype, device)
    generator = torch.Generator(device=device).manual_seed(SEED)
    left, right = (_operand(dtype, n, device, generator) for _ in range(2))
    right = right.t()  # column-major, as fp8 and int8 need it
    measured = speed(device, lambda: product(left, right), options)
    error = _error(product(left, right), left, right)
    wrong = wrong_rows(dtype, n, device, options)
    set_tf32(False)
    tflops = 2 * n**3 * measured.per_s / 1e12
    return {
        "dtype": dtype,
        "n": n,
        "tflops": tflops,
        "gflops": tflops * 1000,
        "windows_tflops": [2 * n**3 * one / 1e12 for one in measured.windows],
        "warm_up_s": round(measured.warm_up_s, 2),
        "error": error,
        "error_bound": ERRORS[dtype],
        "wrong_rows": wrong,
    }


def product_of(dtype: str, device: Any) -> Callable[[Any, Any], Any]:
    """Return the function of two matrices for a type; the right one is column-major."""
    if dtype == "int8":
        return torch._int_mm  # type: ignore[no-any-return]
    if dtype == "fp8":
        one = torch.ones((), device=device)

        def scaled(left: Any, right: Any) -> Any:
            return torch._scaled_mm(
                left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
            )

        return scaled
    return torch.mm  # type: ignore[no-any-return]


def _operand(dtype: str, n: int, device: Any, generator: Any) -> Any:
    """A square of normal random numbers: zeros and ones draw less power and are faster than real data."""
    if dtype == "int8":
        return torch.randint(-127, 128, (n, n), device=device, dtype=torch.int8, generator=generator)
    return torch.randn(n, n, device=device, generator=generator).to(getattr(torch, _TYPES[dtype]))


def _error(result: Any, left: Any, right: Any) -> float:
    """The relative error of some rows, compared with a product in fp64."""
    rows = torch.linspace(0, left.shape[0] - 1, _ROWS, device=left.device).long()
    expected = left[rows.to(left.device)].double() @ right.double() if left.dtype != torch.float8_e4m3fn else None
    if expected is None:  # rows of fp8 cannot be indexed on every version of torch
        expected = left.float()[rows].double() @ right.float().double()
    got = result[rows].double()
    return float((got - expected).norm() / expected.norm())


@lru_cache(maxsize=2)
def _integers(n: int) -> tuple[Any, Any, Any, Any]:
    """Two matrices of -1, 0 and 1, a vector of weights, and their exact product with it, made on the CPU.

    A fifth of the elements is not 0, so that the sums are below 256 by far: bf16, fp16 and fp8 hold them exactly.
    """
    generator = torch.Generator().manual_seed(SEED)
    matrices = []
    for _ in range(2):
        dice = torch.randint(0, 10, (n, n), dtype=torch.int8, generator=generator)
        matrices.append((dice == 0).to(torch.int8) - (dice == 1).to(torch.int8))
    weights = torch.randint(1, 17, (n,), generator=generator).double()
    return matrices[0], matrices[1], weights, times_vector(matrices[0], times_vector(matrices[1], weights))


def times_vector(matrix: Any, vector: Any) -> Any:
    """The product of a matrix and a vector in fp64, a part of the rows at a time."""
    return torch.cat([part.double() @ vector for part in matrix.split(_CHUNK)])


def wrong_rows(dtype: str, n: int, device: Any, options: Options) -> list[int]:
    """Return the rows in which an integer product is not exact: C w must be A (B w), which the CPU has computed."""
    left, right, weights, expected = _integers(n)
    target = torch.int8 if dtype == "int8" else getattr(torch, _TYPES[dtype])
    columns = right.t().contiguous().to(device).to(target).t()
    result = product_of(dtype, device)(left.to(device).to(target), columns)
    if options.fault == "wrong":
        result[n // 3, n // 5] += 1
    got = times_vector(result, weights.to(device)).cpu()
    return [int(row) for row in (got != expected).nonzero().flatten()[:10]]
