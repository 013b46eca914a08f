"""Fail on any circle of imports between the modules of the repository: `make check`.

Every import counts, also inside a function or for type checking only: a circle that Python never meets is still two
modules that cannot be understood one after the other. import-linter holds the order of the packages (pyproject.toml).
"""

from __future__ import annotations

import graphlib
import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("slipway", "stacks", "rehearsal", "acceptance", "gpusuite")
PROGRAMS = ("nodes", "headnode")  # the folders next to whose packages the nodes' programs run


def circle(*packages: str) -> list[str]:
    """The modules of one circle, the first one again at the end; empty if the imports have no circle."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        modules: list[str] = error.args[1]
        return modules
    return []


def main() -> int:
    """Print each circle; the exit code is 1 when there is one."""
    sys.path[:0] = [str(ROOT), *(str(ROOT / folder) for folder in PROGRAMS)]
    programs = [file.parent.name for folder in PROGRAMS for file in sorted(ROOT.glob(f"{folder}/*/__init__.py"))]
    circles = [found for found in (circle(*PACKAGES), *map(circle, programs)) if found]
    for modules in circles:
        print(f"circle of imports: {' <- '.join(modules)}. Hint: move what both need below them", file=sys.stderr)
    return 1 if circles else 0


if __name__ == "__main__":
    sys.exit(main())
