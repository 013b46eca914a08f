"""Training of a small network by all ranks together, with DDP or FSDP."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed

from gpusuite.networks import seeded, teacher_student
from gpusuite.training import SEED, improved, train_step


def train(device: Any, mode: str, epochs: int, steps: int, batch: int, rate: float) -> dict[str, Any]:
    """Train with each rank's own data; return each step's loss averaged over the ranks, and a checksum of the weights.

    samples: of each rank. With FSDP the weights are sharded: the checksum is of the output for common inputs, which all
    ranks must agree on.
    """
    seeded(SEED)
    teacher, student = (network.to(device) for network in teacher_student())
    student = _fsdp(student) if mode == "FSDP" else _ddp(student, device)
    optimizer = torch.optim.AdamW(student.parameters(), lr=rate)
    generator = torch.Generator(device=device).manual_seed(SEED + distributed.get_rank())
    losses, finite = [], True
    for _ in range(epochs * steps):
        inputs = torch.randn(batch, 64, device=device, generator=generator)
        loss, good = train_step(student, teacher, optimizer, inputs)
        finite = finite and good
        losses.append(_average(loss.clone()))
    common = torch.randn(16, 64, device=device, generator=torch.Generator(device=device).manual_seed(SEED))
    with torch.no_grad():
        checksum = float(student(common).double().sum())
    return {
        "steps": epochs * steps,
        "samples": epochs * steps * batch,
        "start_loss": losses[0],
        "end_loss": losses[-1],
        "losses": losses,
        "improved": improved(losses[0], losses[-1]),
        "gradients_finite": finite,
        "checksum": checksum,
    }


def _ddp(student: Any, device: Any) -> Any:
    ids = [device.index] if device.type == "cuda" else None
    return torch.nn.parallel.DistributedDataParallel(student, device_ids=ids)


def _fsdp(student: Any) -> Any:
    """Shard with FSDP 2 where this torch has it (2.6 and newer), else with FSDP 1."""
    from torch.distributed import fsdp

    if hasattr(fsdp, "fully_shard"):
        return fsdp.fully_shard(student)
    return fsdp.FullyShardedDataParallel(student)


def _average(loss: Any) -> float:
    distributed.all_reduce(loss)
    return float(loss) / int(distributed.get_world_size())
