"""A booted machine with what NCCL's scripts need: the bundle, the stand-in image and sources, a mirror, /fsx."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from rehearsal.standins.nccl_sources import make

from .conftest import bundle_files, pack
from .host import Host

INSTALL = "bash /fsx/nccl/install-nccl-shared.sh"
GUIDE = f"{INSTALL} v2.28.7-1 v1.17.2-aws /fsx"  # as the head node's guide writes it
VERSIONS = {"nccl": "2.28.7-1", "aws-ofi-nccl": "1.17.2", "nccl-tests": "2.17.6"}
STATE = "/var/lib/slipway/background/nccl.json"
LOG = "/var/log/slipway/nccl.log"


def prepare(host: Host, work: Path) -> None:
    """Put the bundle, the image and the sources in place."""
    host.put("/srv/bundle.gz", pack(bundle_files()))
    make.write_image(work / "image")
    host.put("/srv/image.tar", _tar(work / "image"))
    host.run(
        "mkdir -p /opt/slipway/current /etc/slipway /fsx/nccl && tar xzf /srv/bundle.gz -C /opt/slipway/current && "
        "cp /opt/slipway/current/node.env /etc/slipway/ && cp /opt/slipway/current/headnode/user/*nccl*.sh /fsx/nccl/ && "
        "rm -rf /fsx/nccl/setup-nccl-env.sh /usr/local/cuda /opt/amazon /opt/nccl-tests && tar xf /srv/image.tar -C /"
    )
    # The programs of the set-up that these scripts call by name.
    host.run(
        "ln -sf /bin/true /usr/local/bin/libtoolize; command -v autoreconf automake libtoolize && ls /usr/include/hwloc.h"
    )
    mirror(host, {**VERSIONS})


def mirror(host: Host, versions: Mapping[str, str], changed: Mapping[str, bytes] | None = None) -> None:
    """Make the mirror hold these sources; ``changed``: name -> another archive, with its right checksum."""
    sums = ""
    for name, version in versions.items():
        data = (changed or {}).get(name) or make.pack(f"{name}-{version}", make.source_files(name, version))
        host.put(f"/srv/s3/mirror/{name}-{version}.tar.gz", data)
        sums += f"{hashlib.sha256(data).hexdigest()}  {name}-{version}.tar.gz\n"
    host.put("/srv/s3/mirror/SHA256SUMS", sums.encode())


def variant(name: str, path: str, old: bytes, new: bytes) -> bytes:
    """Return an archive of a project in which one file is changed."""
    files = make.source_files(name, VERSIONS[name])
    content, mode = files[path]
    assert old in content
    files[path] = (content.replace(old, new), mode)
    return make.pack(f"{name}-{VERSIONS[name]}", files)


def setting(host: Host, **values: str) -> None:
    """Give node.env other values, as site.env would."""
    lines = "".join(f"{key}={value}\n" for key, value in values.items())
    host.put("/srv/added", lines.encode())
    host.run("cat /opt/slipway/current/node.env /srv/added >/etc/slipway/node.env")


def reset(host: Host) -> None:
    """Undo what a test left: settings, versions, links."""
    host.run(
        "cp /opt/slipway/current/node.env /etc/slipway/; rm -rf /fsx/nccl/[^ai]* /fsx/nccl/.[!.]* /opt/nccl-tests "
        f"/etc/profile.d/nccl-shared.sh {STATE} /var/cache/slipway /var/log/slipway /etc/slipway/software.tsv"
    )
    mirror(host, VERSIONS)


def _tar(directory: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(directory.iterdir()):
            archive.add(path, path.name)
    return buffer.getvalue()


def python(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the node here."""
    return subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
