"""`acceptance gpu|ddp|storage|suite|fleet`: the programs of the GPU suite, which run without this package."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NoReturn

from acceptance.errors import ExternalError

# Command -> program and what it does.
PROGRAMS = {
    "gpu": ("gpu_tests.py", "test every GPU of this machine: right, fast, steady"),
    "ddp": ("ddp_tests.py", "test the communication of all GPUs, and training with DDP and FSDP"),
    "storage": ("storage_tests.py", "test storage: a checkpoint with checksums, small files, random reads"),
    "suite": ("run_all_tests.py", "all of these on this machine"),
    "fleet": ("fleet.py", "judge the reports of many nodes together"),
}
_PACKAGES = Path(__file__).resolve().parents[1]  # in a zipapp: the archive itself, which has none of these
_PLACES = (_PACKAGES / "gpusuite", _PACKAGES / "slipway/files/gpusuite", Path("/opt/slipway/current/gpusuite"))


def add_suite_commands(commands: Any) -> None:
    """Add the commands to the help of `acceptance`; `run_program` runs them before the parser is asked."""
    for name, (_, text) in PROGRAMS.items():
        commands.add_parser(name, help=f"{text} (needs torch)" if name in ("gpu", "ddp", "suite") else text)


def run_program(name: str, arguments: list[str]) -> NoReturn:
    """Become the program, with the `python3` of PATH: the one whose environment has torch.

    Raises ExternalError if the programs or python3 are missing.
    """
    program = next((place / PROGRAMS[name][0] for place in _PLACES if place.is_dir()), None)
    if program is None:
        places = ", ".join(map(str, _PLACES))
        raise ExternalError(f"the GPU suite is not installed; looked in: {places}. Hint: run it on a node")
    python = shutil.which("python3")
    if python is None:
        raise ExternalError("python3: is not on this machine's PATH. Hint: activate an environment that has torch")
    os.execv(python, [python, str(program), *arguments])  # noqa: S606  (the user's own arguments)
