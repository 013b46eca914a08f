"""The collectives of the test: what each rank sends, and what it must have received.

Sizes and bus bandwidths are those of nccl-tests (doc/PERFORMANCE.md): the size is the larger one of what a rank sends
and receives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import distributed

# torch 2.13 renamed both.
_ALL_GATHER = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
_REDUCE_SCATTER = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor


@dataclass(frozen=True)
class Transfer:
    """One collective on this rank. run: does it once; expected: what `receive` must then hold.

    in_place: all-reduce, which replaces what it sends by what it receives.
    """

    send: Any
    receive: Any
    expected: Any
    run: Callable[[], Any]
    in_place: bool = False

    def reset(self) -> None:
        """Write what is sent, or values that are never received, to `receive`."""
        if self.in_place:
            self.receive.copy_(self.send)
        else:
            self.receive.fill_(-1)


def transfer(name: str, size: int, rank: int, world: int, device: Any) -> Transfer:
    """Return a collective of `size` bytes in fp32; less where each rank has a part, and the parts must be equal.

    Rank r sends a pattern plus r. The values and sums are whole numbers below 2^24 up to 4,000 ranks, so that they are
    exact in fp32.
    """
    part = max(1, size // 4 // world)
    count = max(1, size // 4) if name in ("all_reduce", "sendrecv") else part * world
    base = (torch.arange(count, device=device, dtype=torch.int32) % 1021).float()
    ours = base[rank * part : (rank + 1) * part]  # all-to-all: what the other ranks send to this one
    ranks, total = range(world), world * (world - 1) / 2
    if name == "all_reduce":
        data = torch.empty_like(base)
        return Transfer(base + rank, data, base * world + total, partial(distributed.all_reduce, data), in_place=True)
    if name == "all_gather":
        send, receive = base[:part] + rank, torch.empty_like(base)
        expected = torch.cat([base[:part] + one for one in ranks])
        return Transfer(send, receive, expected, partial(_ALL_GATHER, receive, send))
    if name == "reduce_scatter":
        send, receive = base + rank, torch.empty_like(ours)
        return Transfer(send, receive, ours * world + total, partial(_REDUCE_SCATTER, receive, send))
    send, receive = base + rank, torch.empty_like(base)
    if name == "alltoall":
        expected = torch.cat([ours + one for one in ranks])
        return Transfer(send, receive, expected, partial(distributed.all_to_all_single, receive, send))
    before, after = (rank - 1) % world, (rank + 1) % world
    return Transfer(send, receive, base + before, partial(_to_next, send, receive, before, after))


def _to_next(send: Any, receive: Any, before: int, after: int) -> None:
    """Send to the next rank and receive from the one before at the same time."""
    both = [
        distributed.P2POp(distributed.isend, send, after),
        distributed.P2POp(distributed.irecv, receive, before),
    ]
    for one in distributed.batch_isend_irecv(both):
        one.wait()


def bus_factor(name: str, world: int) -> float:
    """Return what bytes a second are multiplied with to get the bus bandwidth."""
    return {"all_reduce": 2 * (world - 1) / world, "sendrecv": 1.0}.get(name, (world - 1) / world)
