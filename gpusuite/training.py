"""Training smoke on one device: the loss falls, gradients are finite, and the same seed gives the same losses."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from gpusuite.networks import seeded, teacher_student
from gpusuite.options import Options

SEED = 7
FALLEN = 0.8  # the last loss must be below this share of the first one
REPEATED = 10  # steps that are trained twice


def smoke(device: Any, options: Options) -> dict[str, Any]:
    """Train a small network to compute what a fixed one computes."""
    steps = 60 if options.quick or options.tiny else 300
    rate = 0.0 if options.fault == "loss" else 1e-3
    losses, finite = train(device, steps, rate)
    again, _ = train(device, REPEATED, rate)
    return {
        "steps": steps,
        "start_loss": losses[0],
        "end_loss": losses[-1],
        "improved": improved(losses[0], losses[-1]),
        "gradients_finite": finite,
        "repeatable": losses[:REPEATED] == again,
    }


def improved(start: float, end: float) -> bool:
    """Return whether a loss has fallen enough; a loss that is not a number has not."""
    return end < FALLEN * start


def train(device: Any, steps: int, rate: float) -> tuple[list[float], bool]:
    """Return the loss of each step, and whether all gradients were finite."""
    seeded(SEED)
    teacher, student = (network.to(device) for network in teacher_student())
    optimizer = torch.optim.AdamW(student.parameters(), lr=rate)
    generator = torch.Generator(device=device).manual_seed(SEED)
    losses, finite = [], True
    for _ in range(steps):
        inputs = torch.randn(256, 64, device=device, generator=generator)
        loss, good = train_step(student, teacher, optimizer, inputs)
        finite = finite and good
        losses.append(float(loss))
    return losses, finite


def train_step(student: Any, teacher: Any, optimizer: Any, inputs: Any) -> tuple[Any, bool]:
    """Train one step; return its loss, and whether all gradients were finite. Of a shard this rank's part counts."""
    with torch.no_grad():
        wanted = teacher(inputs)
    loss = functional.mse_loss(student(inputs), wanted)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    gradients = [one.grad for one in student.parameters() if one.grad is not None]
    parts = [one.to_local() if hasattr(one, "to_local") else one for one in gradients]
    finite = all(bool(torch.isfinite(one).all()) for one in parts)
    optimizer.step()
    return loss.detach(), finite
