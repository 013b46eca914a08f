"""The stacks, each synthesised once in a process of the tests, so that tests share them."""

from __future__ import annotations

import pytest

from tests.stacks.assembly import Assemblies, Assembly


@pytest.fixture(scope="session")
def assemblies(tmp_path_factory: pytest.TempPathFactory) -> Assemblies:
    return Assemblies(tmp_path_factory.mktemp("assemblies"))


@pytest.fixture(scope="session")
def rehearsal(assemblies: Assemblies) -> Assembly:
    return assemblies["rehearsal"]


@pytest.fixture(scope="session")
def every_part(assemblies: Assemblies) -> Assembly:
    return assemblies["every-part"]


@pytest.fixture(scope="session")
def site_parts(assemblies: Assemblies) -> Assembly:
    return assemblies["site-parts"]
