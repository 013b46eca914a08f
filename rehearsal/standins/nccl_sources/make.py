#!/usr/bin/env python3
"""Stand-in sources of NCCL, aws-ofi-nccl and nccl-tests as a software mirror holds them, and the image they build on.

`make.py sources DIRECTORY [NAME=VERSION ...]` writes NAME-VERSION.tar.gz (default: what nodes/software.tsv pins)
and adds their lines to DIRECTORY/SHA256SUMS. The sources keep the real projects' make targets and options and compile
to small real shared libraries and an MPI program, with the versions baked in.

`make.py image DIRECTORY` makes what a ParallelCluster image has for the build, below DIRECTORY: usr/local/cuda (an
nvcc that knows CUDA 13.0's architectures and compiles C) and opt/amazon (libfabric, Open MPI, the installer's plugin).

Runs without further packages. Needs gcc, and mpicc for `image`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
NAMES = ("nccl", "aws-ofi-nccl", "nccl-tests")
VERSION = re.compile(r"\d+(\.\d+){1,2}(-\d+)?")
PACKAGES_FILE = "Version of efa-installer: stand-in\n"


def pinned() -> dict[str, str]:
    """Return the first version of each project that software.tsv pins."""
    found: dict[str, str] = {}
    for line in (ROOT / "nodes/software.tsv").read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition("\t")
        if name in NAMES:
            found.setdefault(name, rest.partition("\t")[0])
    return found


def source_files(name: str, version: str) -> dict[str, tuple[bytes, int]]:
    """Return path -> (content, mode) of one project's source tree. Raises ValueError for what is no version."""
    if name not in NAMES or not VERSION.fullmatch(version):
        raise ValueError(f"{name}={version}: neither one of {', '.join(NAMES)} nor a version. Hint: nccl=2.28.7-1")
    files = {
        path.relative_to(HERE / name).as_posix(): (path.read_bytes(), path.stat().st_mode & 0o755)
        for path in sorted((HERE / name).rglob("*"))
        if path.is_file()
    }
    files["VERSION"] = (f"{version}\n".encode(), 0o644)
    if name == "nccl":
        keys = ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH", "PKG_REVISION")
        text = "".join(f"{key} := {part}\n" for key, part in zip(keys, re.split(r"[.-]", version), strict=True))
        files["makefiles/version.mk"] = (text.encode(), 0o644)
    if name == "nccl-tests":
        files["src/nccl_tests.cu"] = ((HERE.parent / "nccl_tests.c").read_bytes(), 0o644)
    return files


def pack(top: str, files: dict[str, tuple[bytes, int]]) -> bytes:
    """Return a gzipped tar with one directory at its top; the same bytes each time."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", filename="", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for path, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(f"{top}/{path}")
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def write_sources(directory: Path, versions: dict[str, str]) -> list[str]:
    """Write the archives and their lines of SHA256SUMS; returns the files' names."""
    directory.mkdir(parents=True, exist_ok=True)
    sums = directory / "SHA256SUMS"
    lines = sums.read_text(encoding="utf-8").splitlines() if sums.exists() else []
    names = []
    for name, version in versions.items():
        file = f"{name}-{version}.tar.gz"
        data = pack(f"{name}-{version}", source_files(name, version))
        (directory / file).write_bytes(data)
        lines = [line for line in lines if not line.endswith(f"  {file}")]
        lines.append(f"{hashlib.sha256(data).hexdigest()}  {file}")
        names.append(file)
    sums.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return names


def _library(source: Path, target: Path, soname: str, include: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    argv = ["gcc", "-O2", "-Wall", "-Werror", "-fPIC", "-shared", f"-Wl,-soname,{soname}", f"-I{include}"]
    subprocess.run([*argv, "-o", str(target), "-x", "c", str(source)], check=True, timeout=60)


def _link(target: str, link: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(target)


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def open_mpi() -> str:
    """Return the directory of this machine's Open MPI: the one above its library folder."""
    argv = ["mpicc", "--showme:libdirs"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=60, text=True)
    return str(Path(done.stdout.split()[0]).parent)


def write_image(directory: Path) -> None:
    """Make what the build finds on a node. Raises OSError or CalledProcessError where a compiler is missing."""
    cuda, efa = directory / "usr/local/cuda", directory / "opt/amazon/efa"
    (cuda / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "image/nvcc", cuda / "bin/nvcc")
    _put(cuda / "include/cuda_runtime.h", "/* cuda_runtime.h of the stand-in image. */\n")
    empty = HERE / "image/empty.c"
    _library(empty, cuda / "lib64/libcudart.so.13", "libcudart.so.13", HERE)
    _link("libcudart.so.13", cuda / "lib64/libcudart.so")
    header = efa / "include/rdma/fabric.h"
    _put(header, (HERE / "image/fabric.h").read_text(encoding="utf-8"))
    _library(HERE / "image/fabric.c", efa / "lib/libfabric.so.1", "libfabric.so.1", efa / "include")
    _link("libfabric.so.1", efa / "lib/libfabric.so")
    _library(HERE / "image/plugin.c", directory / "opt/amazon/ofi-nccl/lib/libnccl-net.so", "libnccl-net.so", HERE)
    _put(directory / "opt/amazon/efa_installed_packages", PACKAGES_FILE)
    _link(open_mpi(), directory / "opt/amazon/openmpi")


def main(argv: Sequence[str]) -> int:
    """Run one command; 1 with a line that says why it could not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    sources = commands.add_parser("sources", help="archives and SHA256SUMS of a mirror")
    sources.add_argument("directory", type=Path)
    sources.add_argument("versions", nargs="*", metavar="NAME=VERSION")
    commands.add_parser("image", help="what an image has for the build").add_argument("directory", type=Path)
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "image":
            write_image(arguments.directory)
        else:
            wanted = dict(pair.split("=", 1) if "=" in pair else (pair, "") for pair in arguments.versions)
            write_sources(arguments.directory, wanted or pinned())
    except (ValueError, OSError, subprocess.SubprocessError) as error:
        print(f"nccl_sources: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
