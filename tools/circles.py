"""Fail on any circle of imports between the modules of the repository, or between their packages: `make check`.

Every import counts, also inside a function or for type checking only: a circle that Python never meets is still two
modules that cannot be understood one after the other. import-linter holds the order of the packages (pyproject.toml).
"""

from __future__ import annotations

import graphlib
import sys
from collections.abc import Mapping, Set
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("slipway", "stacks", "rehearsal", "acceptance", "gpusuite")
PAIRS = ({"acceptance.runner", "acceptance.report"},)  # a report reads a run's records, a run ends with its report
PROGRAMS = ("nodes", "headnode")  # the folders next to whose packages the nodes' programs run


def first_circle(imports: Mapping[str, Set[str]]) -> list[str]:
    """The names of one circle, the first one again at the end; empty if the imports have no circle."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        names: list[str] = error.args[1]
        return names
    return []


def circle(*packages: str) -> list[str]:
    """One circle of modules, else one of the packages that are directly in `packages`."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    modules = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    inner = {child for package in packages for child in graph.find_children(package) if graph.find_children(child)}
    imports: dict[str, set[str]] = {package: set() for package in inner}
    for module, imported in modules.items():
        here = ".".join(module.split(".")[:2])
        others = {".".join(other.split(".")[:2]) for other in imported} & inner - {here}
        if here in inner:
            imports[here] |= {other for other in others if {here, other} not in PAIRS}
    return first_circle(modules) or first_circle(imports)


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
