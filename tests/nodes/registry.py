"""A host with NVIDIA's registry: a real docker-registry behind the stand-in of its logins, and the stand-in of enroot."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from pathlib import Path

from tests.registry import images

from .conftest import ROOT, bundle_files, pack
from .host import Host

KEY = "nvapi-key-of-the-tests-1"
ECR = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
# Real ones of ECR have some 2,600 characters, more than enroot 3.4 can log in with.
ECR_PASSWORD = "ecr-password-1" + "x" * 2574
# $oauthtoken with KEY, and AWS with ECR_PASSWORD (bcrypt with its least cost; it takes 72 characters).
HTPASSWD = b"""\
$oauthtoken:$2b$04$LUzmrogLzYUW/ceuesvW.O.u7dSLz8Md7/BLd5uhYFWBQhpwEHe7W
AWS:$2b$04$enN5XTQq3DdU87K0/w02Ae9hMoJNmpTXrdQNYd4CyL8uLth1m3aSm
"""
STANDINS = ROOT / "rehearsal/standins"
REGISTRY = ROOT / "tests/registry"
AWS = f"""#!/bin/bash
case "$1 $2" in
  'secretsmanager get-secret-value') [ -r /srv/secret ] && cat /srv/secret || {{ echo AccessDeniedException >&2; exit 254; }} ;;
  'ecr get-login-password') echo {ECR_PASSWORD} ;;
esac
""".encode()
CURL = b"""#!/bin/bash
printf '%s\\n' "$*" >>/srv/arguments
exec /usr/bin/curl "$@"
"""


def storage(work: Path) -> bytes:
    """Return a tar of a registry's storage with the images of the tests."""
    base = images.layer({"etc/os-release": b"ID=of-the-image\n", "opt/gone": b"x", "opt/old/x": b"x", "dev/bad": b""})
    data = images.layer({"data": os.urandom(600_000)})
    middle = images.layer({"opt/.wh.gone": b"", "opt/old/.wh..wh..opq": b"", "opt/old/new": b"n"})
    folder = work / "storage"
    with images.serving(folder, work) as port:
        images.push(work, port, "nvidia/pytorch:24.01-py3", [base, data, middle])
        images.push(work, port, "nvidia/jax:24.01-py3", [base, images.layer({"jax": os.urandom(400_000)})])
        images.push(work, port, "nvidia/moved:1", [base])
        images.push(work, port, "nvidia/moved:2", [base, middle])
        images.push(work, port, "public/small:1", [base])
        images.push(work, port, "train:1.0", [base])
        images.push(work, port, "nvidia/oci:1", [base], form="oci")
        images.push(
            work, port, "nvidia/zstd:1", [images.layer({"opt/zstd": os.urandom(999)})], form="oci", compression="zstd"
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, "storage")
    return buffer.getvalue()


def furnish(host: Host, work: Path) -> None:
    """Put bundle, stand-ins and registry on a booted host, and start what serves."""
    files = bundle_files()
    host.put("/srv/bundle.tgz", pack(files))
    host.put("/etc/slipway/node.env", files["node.env"][0])
    host.run("mkdir -p /opt/slipway/current && tar xzf /srv/bundle.tgz -C /opt/slipway/current && chmod 755 /srv")
    host.run("for step in 10-fsx-layout 12-user-scripts; do /opt/slipway/current/headnode/steps/$step.sh; done")
    apptainer, enroot = (REGISTRY / "apptainer").read_bytes(), (STANDINS / "enroot").read_bytes()
    for name, content in {"enroot": enroot, "apptainer": apptainer, "aws": AWS, "curl": CURL}.items():
        host.put(f"/usr/local/bin/{name}", content, 0o755)
    host.put("/srv/ngc.py", (REGISTRY / "ngc.py").read_bytes())
    images.certificate(work / "names.pem", ["nvcr.io", "authn.nvidia.com", ECR])
    host.put("/srv/names.pem", (work / "names.pem").read_bytes())
    # The only authority of this host: each start of curl reads all of them.
    host.put("/etc/ssl/certs/ca-certificates.crt", (work / "names.crt").read_bytes())
    host.put("/srv/storage.tar", storage(work))
    host.put("/srv/htpasswd", HTPASSWD)
    host.put("/srv/registry.yml", images.configuration(Path("/srv/storage"), 5000, "/srv/htpasswd").encode())
    host.put("/srv/faults", b"{}")
    front = (
        f"/usr/bin/python3 /srv/ngc.py --upstream 5000 --certificate /srv/names.pem --key {KEY} --faults /srv/faults"
    )
    host.run(
        "tar xf /srv/storage.tar -C /srv; cd /etc/ssl/certs; "
        "ln -sf ca-certificates.crt $(openssl x509 -noout -hash -in ca-certificates.crt).0; "
        f"printf '127.0.0.1 localhost nvcr.io authn.nvidia.com {ECR}\\n' >/etc/hosts; "
        "touch /srv/arguments /srv/requests; chmod 666 /srv/arguments; "
        "systemd-run --quiet --unit=registry docker-registry serve /srv/registry.yml; "
        f"systemd-run --quiet --unit=front {front} --log /srv/requests; "
        "until curl -so /dev/null https://nvcr.io/v2/; do sleep 0.1; done"
    )


class Registry:
    """What a test asks of the registry of its host."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def faults(self, **wanted: object) -> None:
        """Let the registry misbehave from now on; without arguments no more."""
        self.host.put("/srv/faults", json.dumps(wanted).encode())

    def layers_fetched(self) -> list[str]:
        """The digests of the layers that enroot or apptainer asked for since `forget`, in their order."""
        lines = self.host.run("cat /srv/requests").stdout.splitlines()
        return [
            line.split()[1].rpartition(":")[2]
            for line in lines
            if line.startswith("GET ") and "/blobs/" in line and not line.endswith(" slipway")
        ]

    def forget(self) -> None:
        """Empty the log of the requests."""
        self.host.run(": >/srv/requests; : >/srv/arguments")

    def retag(self, repository: str, tag: str, other: str) -> None:
        """Let a tag name the image of another tag."""
        tags = f"/srv/storage/docker/registry/v2/repositories/{repository}/_manifests/tags"
        self.host.run(f"cp {tags}/{other}/current/link {tags}/{tag}/current/link")

    def wait(self, condition: str, timeout: float = 90) -> None:
        """Wait until a bash condition holds on the host."""
        end = time.monotonic() + timeout
        while self.host.run(condition, check=False).returncode != 0:
            assert time.monotonic() < end, f"never: {condition}"
            time.sleep(0.1)
