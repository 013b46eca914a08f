"""How a stage is to be run: what the parent sends to the workers, and the faults that can be injected on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

# Faults that prove that a check finds them. kind -> what the worker of that GPU then does; the stages that find it,
# none where each one does.
FAULTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "wrong": ("adds 1 to one element of each matrix product that is checked", ("compute",)),
    "flip": ("flips one bit of each result of the corruption screen", ("screen",)),
    "slow": ("does half of each timed work twice without counting it", ("compute", "memory", "peers", "inference")),
    "droop": ("slows down during the stress test", ("stress",)),
    "loss": ("trains with a learning rate of 0", ("train",)),
    "hang": ("never answers", ()),
}
_MOST_WINDOWS = 3600  # of a stress test, however long it is: reports stay below 10 MB


@dataclass(frozen=True)
class Options:
    """A stage's options. tiny: on the CPU, for tests; seconds: of the stress test; fault: of FAULTS, or empty."""

    quick: bool = False
    tiny: bool = False
    seconds: float = 0.0
    fault: str = ""

    @property
    def window_s(self) -> float:
        """Seconds of one figure, and between two samples, of the stress test: an hour or less has one a second."""
        return max(0.02 if self.tiny else 1.0, self.seconds / _MOST_WINDOWS)

    def as_json(self) -> dict[str, Any]:
        """Return the object that the worker reads."""
        return asdict(self)


def fault_of(text: str, stages: Sequence[str], gpus: int | None = None) -> tuple[str, int]:
    """Return kind and GPU of `--inject KIND:GPU`. Raises ValueError for a fault that none of the stages would find.

    gpus: their number, None before it is known. Stage `peers` is measured by GPU 0, where there is another one.
    """
    kind, _, digits = text.partition(":")
    if kind not in FAULTS or not digits.isdigit():
        raise ValueError(f"--inject {text}: must be KIND:GPU, with KIND one of {', '.join(FAULTS)}. Hint: flip:0")
    gpu = int(digits)
    if gpus is not None and gpu >= gpus:
        hint = f"0 to {gpus - 1}" if gpus else "leave it out, this machine has none"
        raise ValueError(f"--inject {text}: there is no GPU {gpu}. Hint: {hint}")
    finding = [stage for stage in FAULTS[kind][1] or stages if stage != "peers" or (gpu == 0 and gpus != 1)]
    if not set(finding) & set(stages):
        rule = f"none of the stages {','.join(stages)} finds it on GPU {gpu}"
        raise ValueError(f"--inject {text}: {rule}. Hint: --stages {','.join(finding) or 'compute'}")
    return kind, gpu


def with_fault(options: Options, fault: tuple[str, int] | None, gpu: int) -> Options:
    """Return the options for one GPU: with the fault if it is that GPU's."""
    return replace(options, fault=fault[0]) if fault is not None and fault[1] == gpu else options
