"""The nodes' Python programs as modules: their file names, such as block-end.py, are no names of modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_program(path: Path) -> ModuleType:
    """Return the program as a module. It does nothing before its `main` is called."""
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    # No compiled file next to a program of the nodes.
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module
