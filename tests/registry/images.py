"""Container images for tests, benchmarks and rehearsals, in the storage of a real docker-registry.

Made with umoci (whole layers; its `insert` writes archives that tar refuses) and pushed with skopeo.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.ports import free_ports

TOOLS = ("docker-registry", "skopeo", "umoci", "parallel", "mksquashfs", "unsquashfs", "jq", "zstd", "openssl")
START_TIMEOUT_S = 90.0


def missing() -> list[str]:
    """The commands that are not on this machine."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def layer(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of one layer: path -> content; `.wh.NAME` takes NAME of the layers below away."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def configuration(storage: Path, port: int, htpasswd: str = "") -> str:
    """Return docker-registry's configuration: on loopback, with Basic logins if there is a file of them."""
    lines = ["version: 0.1", f"storage: {{filesystem: {{rootdirectory: {storage}}}, delete: {{enabled: true}}}}"]
    lines.append(f'http: {{addr: "127.0.0.1:{port}", host: "http://127.0.0.1:{port}"}}')
    if htpasswd:
        lines.append(f"auth: {{htpasswd: {{realm: images, path: {htpasswd}}}}}")
    return "\n".join([*lines, "log: {level: error}", ""])


def push(
    work: Path,
    port: int,
    name: str,
    layers: Sequence[bytes],
    form: str = "v2s2",
    compression: str = "gzip",
    architecture: str = "amd64",
) -> None:
    """Make an image `repository:tag` of these layers, lowest first, and push it to the registry on this port."""
    layout = work / "layout"
    image = f"{layout}:image"
    if not layout.exists():
        _run("umoci", "init", "--layout", str(layout))
    with contextlib.suppress(subprocess.CalledProcessError):
        _run("umoci", "rm", "--image", image)
    _run("umoci", "new", "--image", image)
    archive = work / "layer.tar"
    for content in layers:
        archive.write_bytes(content)
        _run("umoci", "raw", "add-layer", "--image", image, str(archive))
    _run("umoci", "config", "--image", image, "--config.env", f"IMAGE={name}", "--config.cmd", "/bin/sh",
         "--architecture", architecture)  # fmt: skip
    source = f"oci:{image}"
    if compression != "gzip":  # skopeo compresses what is not compressed, and keeps the rest as it is
        source = f"dir:{work / 'plain'}"
        _run("skopeo", "copy", "--quiet", "--dest-decompress", f"oci:{image}", source)
    _run("skopeo", "copy", "--quiet", "--format", form, "--dest-compress-format", compression, "--dest-tls-verify=false",
         source, f"docker://127.0.0.1:{port}/{name}")  # fmt: skip


@contextlib.contextmanager
def serving(storage: Path, work: Path) -> Iterator[int]:
    """Run a registry without logins over this storage; its port. To fill a storage that another one will serve."""
    port = free_ports(1)
    settings = work / "registry.yml"
    settings.write_text(configuration(storage, port))
    with (work / "registry.log").open("wb") as log:
        server = subprocess.Popen(["docker-registry", "serve", str(settings)], stdout=log, stderr=log)
    try:
        _wait(port)
        yield port
    finally:
        server.kill()
        server.wait()


def certificate(file: Path, names: Sequence[str]) -> None:
    """Write a key and a certificate for these names that signs itself, as one PEM file."""
    key, signed = file.with_suffix(".key"), file.with_suffix(".crt")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", f"/CN={names[0]}", "-days", "2", "-keyout", str(key), "-out", str(signed)]
    _run(*command, "-addext", f"subjectAltName={','.join(f'DNS:{name}' for name in names)}")
    file.write_bytes(key.read_bytes() + signed.read_bytes())


def _wait(port: int) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=2):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
