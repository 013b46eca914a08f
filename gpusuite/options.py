"""How a stage is to be run: what the parent sends to the workers, and the faults that can be injected on purpose."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

# Faults that prove that a check finds them. kind -> what the worker of that GPU then does.
FAULTS = {
    "wrong": "adds 1 to one element of each matrix product that is checked",
    "flip": "flips one bit of each result of the corruption screen",
    "slow": "does half of each timed work twice without counting it",
    "droop": "slows down during the stress test",
    "loss": "trains with a learning rate of 0",
    "hang": "never answers",
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


def fault_of(text: str) -> tuple[str, int]:
    """Return kind and GPU of `--inject KIND:GPU`. Raises ValueError with value, rule and repair."""
    kind, _, gpu = text.partition(":")
    if kind not in FAULTS or not gpu.isdigit():
        raise ValueError(f"--inject {text}: must be KIND:GPU, with KIND one of {', '.join(FAULTS)}. Hint: flip:0")
    return kind, int(gpu)


def with_fault(options: Options, fault: tuple[str, int] | None, gpu: int) -> Options:
    """Return the options for one GPU: with the fault if it is that GPU's."""
    return replace(options, fault=fault[0]) if fault is not None and fault[1] == gpu else options
