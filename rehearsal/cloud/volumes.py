"""FSx volumes (OpenZFS, ONTAP) and file caches, which moto lacks: described, and made in advance only."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.fsx.models import FSxBackend, fsx_backends
from moto.fsx.responses import FSxResponse

from rehearsal.cloud_model import ACCOUNT


def _kept(backend: FSxBackend, what: str) -> dict[str, dict[str, Any]]:
    """On moto's backend, so that a reset forgets them."""
    kept: dict[str, dict[str, Any]] = backend.__dict__.setdefault(what, {})
    return kept


def add_volume(region: str, volume_id: str, kind: str, file_system_id: str, lifecycle: str = "AVAILABLE") -> None:
    """An existing volume; `kind` is OPENZFS or ONTAP."""
    _kept(fsx_backends[ACCOUNT][region], "volumes")[volume_id] = {
        "VolumeId": volume_id,
        "VolumeType": kind,
        "FileSystemId": file_system_id,
        "Lifecycle": lifecycle,
        "Name": volume_id,
        "CreationTime": time.time(),
        "ResourceARN": f"arn:aws:fsx:{region}:{ACCOUNT}:volume/{file_system_id}/{volume_id}",
    }


def add_cache(
    region: str, cache_id: str, vpc_id: str, lifecycle: str = "AVAILABLE", interfaces: Sequence[str] = ()
) -> None:
    """An existing file cache; `interfaces` are the ids of its network interfaces."""
    _kept(fsx_backends[ACCOUNT][region], "caches")[cache_id] = {
        "FileCacheId": cache_id,
        "FileCacheType": "LUSTRE",
        "FileCacheTypeVersion": "2.12",
        "Lifecycle": lifecycle,
        "StorageCapacity": 1200,
        "VpcId": vpc_id,
        "NetworkInterfaceIds": list(interfaces),
        "OwnerId": ACCOUNT,
        "CreationTime": time.time(),
        "DNSName": f"{cache_id}.fsx.{region}.amazonaws.com",
        "ResourceARN": f"arn:aws:fsx:{region}:{ACCOUNT}:file-cache/{cache_id}",
    }


def install_volumes() -> None:
    """Give moto's FSx the two operations."""
    FSxResponse.describe_volumes = _describe("volumes", "VolumeIds", "Volumes", "VolumeNotFound")
    FSxResponse.describe_file_caches = _describe("caches", "FileCacheIds", "FileCaches", "FileCacheNotFound")


def _describe(what: str, ids: str, key: str, absent: str) -> Any:
    def describe(self: FSxResponse) -> str:
        known = _kept(self.fsx_backend, what)
        wanted = json.loads(self.body).get(ids) or list(known)
        for item in wanted:
            if item not in known:
                raise JsonRESTError(absent, f"{item} does not exist.")
        return json.dumps({key: [known[item] for item in wanted]})

    return describe
