"""The processes of the GPUs as the parent sees them: started together, asked stage by stage, and bounded in time."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpusuite.options import Options

MARK = "@gpusuite "  # begins an answer: torch and its libraries print other lines
PROGRAM = Path(__file__).resolve().parent / "worker.py"
# Variables that change what "fp32" is, whatever the program sets: they are removed and reported.
OVERRIDES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
END_S = 10  # for a killed process to end
_KEPT = 20  # lines of a worker's other output, for the message when it dies


class _Worker:
    """One process, and the threads that read what it prints."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self.answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.said: list[str] = []
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            mark, _, text = line.partition(MARK)
            if text and not mark.strip():
                self.answers.put(json.loads(text))
            else:
                self.said = [*self.said[1 - _KEPT :], line.strip()]
        self.answers.put(None)

    def ask(self, order: Mapping[str, Any]) -> None:
        if self.process.stdin:
            with contextlib.suppress(OSError):  # a dead worker: `answer` reports it
                self.process.stdin.write(json.dumps(order) + "\n")
                self.process.stdin.flush()

    def answer(self, deadline: float, what: str, timeout_s: float) -> dict[str, Any]:
        try:
            found = self.answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            self.end()
            return {"error": f"{what} did not end within {timeout_s:.0f} s: it hangs", "hang": True}
        if found is None:
            code = self.process.wait()
            last = next((line for line in reversed(self.said) if line), "it printed nothing")
            return {"error": f"its process ended with code {code} during {what}: {last[:300]}"}
        return found

    def end(self) -> None:
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the driver, which no signal ends
            self.process.wait(END_S)


class Workers:
    """A worker for each GPU. `argv` is the command of one, without the GPU's index; a test gives its own."""

    def __init__(self, names: Mapping[int, str], argv: Sequence[str] = (sys.executable, str(PROGRAM))) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in OVERRIDES}
        # A fixed workspace makes cuBLAS reproducible; it must be set before CUDA starts.
        environment = {**kept, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONUNBUFFERED": "1"}
        self.overridden = {name: os.environ[name] for name in OVERRIDES if name in os.environ}
        self.dead: dict[int, str] = {}  # GPU -> why it is asked no more
        self._workers = {gpu: _Worker([*argv, name], environment) for gpu, name in names.items()}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers.values():
            worker.end()

    def ready(self, timeout_s: float) -> dict[int, dict[str, Any]]:
        """Wait for all workers and return what each says about itself."""
        return self._answers(list(self._workers), "the start", timeout_s)

    def run(self, stage: str, options: Mapping[int, Options], timeout_s: float) -> dict[int, dict[str, Any]]:
        """Run a stage on these GPUs at the same time; an answer with `error` is from one that failed."""
        alive = [gpu for gpu in options if gpu not in self.dead]
        for gpu in alive:
            self._workers[gpu].ask({"stage": stage, "options": options[gpu].as_json()})
        return self._answers(alive, stage, timeout_s)

    def _answers(self, gpus: list[int], what: str, timeout_s: float) -> dict[int, dict[str, Any]]:
        deadline, found = time.monotonic() + timeout_s, {}
        for gpu in gpus:
            found[gpu] = self._workers[gpu].answer(deadline, what, timeout_s)
            if self._workers[gpu].process.poll() is not None:
                self.dead[gpu] = found[gpu].get("error", "its process has ended")
        return found
