"""The embedded AWS: moto's services in this process, CloudFormation that behaves like the real one, and our own types.

Entry point: :class:`rehearsal.cloud.server.EmbeddedAws`. Importing this package sets moto's own switches, which moto
reads from the environment when it is imported or when a service is first used; they must be there before `import
moto`. It also lets botocore read the models of AWS's services once.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from botocore.loaders import JSONFileLoader, Loader

#: moto's switches and why each is set.
_MOTO_SWITCHES = {
    "MOTO_IAM_LOAD_MANAGED_POLICIES": "true",  # pcluster's validators look AWS-managed policies up
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",  # only the images that seed.py makes; loading moto's list costs time
}
os.environ.update(_MOTO_SWITCHES)


def _read_models_once() -> None:
    """Share what botocore's sessions read of its models: moto and the clients make many, and each reads them anew.

    Not S3's: botocore changes its paths where they lie.
    """
    read, listed = JSONFileLoader.load_file, Loader.list_available_services

    @functools.cache
    def read_once(path: str) -> Any:
        return read(JSONFileLoader(), path)

    lists: dict[tuple[str, ...], list[str]] = {}

    def list_once(self: Loader, type_name: str) -> list[str]:
        key = (*self.search_paths, type_name)
        if key not in lists:
            lists[key] = listed(self, type_name)
        return lists[key]

    def load(self: JSONFileLoader, file_path: str) -> Any:
        return read(self, file_path) if "/s3/" in file_path else read_once(file_path)

    JSONFileLoader.load_file = load  # type: ignore[method-assign]
    Loader.list_available_services = list_once  # type: ignore[method-assign]


_read_models_once()
