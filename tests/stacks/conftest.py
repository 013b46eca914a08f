"""The stacks, synthesised once a session. One run costs two seconds, so that tests share them."""

from __future__ import annotations

import pytest

from tests.stacks.assembly import EXAMPLES, Assembly, synthesise


@pytest.fixture(scope="session")
def assemblies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Assembly]:
    made = {}
    for name, settings in EXAMPLES.items():
        if settings.is_file():
            out = tmp_path_factory.mktemp(name)
            done = synthesise(settings, out)
            assert done.returncode == 0, done.stderr
            made[name] = Assembly(out)
    return made


@pytest.fixture(scope="session")
def rehearsal(assemblies: dict[str, Assembly]) -> Assembly:
    return assemblies["rehearsal"]


@pytest.fixture(scope="session")
def every_part(assemblies: dict[str, Assembly]) -> Assembly:
    return assemblies["every-part"]


@pytest.fixture(scope="session")
def site_parts(assemblies: dict[str, Assembly]) -> Assembly:
    return assemblies["site-parts"]
