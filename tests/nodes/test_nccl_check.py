"""check.py: loads real libraries, made for the case, and says what is wrong with them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .conftest import ROOT
from .nccl_host import python

CHECK = ROOT / "headnode/nccl/check.py"
MAKE = ROOT / "rehearsal/standins/nccl_sources/make.py"
NCCL = "int ncclGetVersion(int *version) { *version = 22807; return 0; }"
PLUGIN = 'const int ncclNetPlugin_v4 = 1, ncclNetPlugin_v9 = 1; const char *const names = "p4d.24xlarge";'


def library(path: Path, code: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", str(path), "-x", "c", "-"], input=code.encode(), check=True, timeout=60
    )
    return str(path)


def test_versions_and_the_newest_interface_are_said(tmp_path: Path) -> None:
    nccl = library(tmp_path / "libnccl.so.2", NCCL)
    plugin = library(tmp_path / "plugin/libnccl-net-ofi.so", PLUGIN)
    done = python(CHECK, nccl, "2.28.7", str(tmp_path / "plugin"))
    assert (done.returncode, done.stdout) == (0, f"NCCL 2.28.7, plugin {plugin} (interface v9)\nglibc=2.17\n")


def test_the_c_library_that_is_needed_is_said(tmp_path: Path) -> None:
    nccl = library(
        tmp_path / "libnccl.so.2",
        NCCL + 'static const char *const used = "\\0GLIBC_2.34\\0";const char *const *all = &used;',
    )
    assert python(CHECK, nccl, "2.28.7").stdout == "NCCL 2.28.7\nglibc=2.34\n"


@pytest.mark.parametrize(
    ("nccl", "plugin", "message"),
    [
        ("int other;", PLUGIN, "libnccl.so.2: ncclGetVersion does not answer"),
        ("int ncclGetVersion(int *version) { return 4; }", PLUGIN, "libnccl.so.2: ncclGetVersion does not answer"),
        (NCCL.replace("22807", "22707"), PLUGIN, "libnccl.so.2: is NCCL 2.27.7, not 2.28.7"),
        (NCCL, None, "plugin: holds no libnccl-net*.so"),
        (NCCL, PLUGIN.replace("Net", "Other"), "libnccl-net.so: has no ncclNetPlugin_v4 or newer"),
        (
            NCCL,
            PLUGIN.replace("p4d", "x"),
            "libnccl-net.so: was built without --enable-platform-aws: it knows no instance type",
        ),
        (NCCL, PLUGIN + "int absent(void); int (*used)(void) = absent;", "libnccl-net.so: undefined symbol: absent"),
    ],
)
def test_what_does_not_load_is_named(tmp_path: Path, nccl: str, plugin: str | None, message: str) -> None:
    library(tmp_path / "libnccl.so.2", nccl)
    if plugin is not None:
        library(tmp_path / "plugin/libnccl-net.so", plugin)
    done = python(CHECK, str(tmp_path / "libnccl.so.2"), "2.28.7", str(tmp_path / "plugin"))
    assert (done.returncode, done.stdout) == (
        1,
        f"{tmp_path}/{'plugin/' if message.startswith('libnccl-net') else ''}{message}\n",
    )


def test_a_file_that_is_no_library_is_said(tmp_path: Path) -> None:
    (tmp_path / "libnccl.so.2").write_text("no library")
    done = python(CHECK, str(tmp_path / "libnccl.so.2"), "2.28.7")
    assert done.returncode == 1
    assert "file too short" in done.stdout or "invalid ELF header" in done.stdout


def test_the_maker_of_the_sources_writes_the_same_bytes_and_one_line_a_file(tmp_path: Path) -> None:
    for _ in range(2):
        assert python(MAKE, "sources", str(tmp_path), "nccl=2.27.7-1", "nccl-tests=2.17.6").returncode == 0
        assert python(MAKE, "sources", str(tmp_path)).returncode == 0
    names = [line.split()[1] for line in (tmp_path / "SHA256SUMS").read_text().splitlines()]
    assert sorted(names) == sorted(path.name for path in tmp_path.glob("*.gz"))
    assert {"nccl-2.28.7-1.tar.gz", "nccl-2.27.7-1.tar.gz", "aws-ofi-nccl-1.17.3.tar.gz"} < set(names)
    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, check=False, capture_output=True)
    assert done.returncode == 0


@pytest.mark.parametrize("wanted", ["nccl=latest", "other=1.2.3", "nccl"])
def test_the_maker_of_the_sources_refuses_what_it_does_not_know(tmp_path: Path, wanted: str) -> None:
    done = python(MAKE, "sources", str(tmp_path), wanted)
    assert done.returncode == 1
    assert done.stderr.startswith(f"nccl_sources: {wanted}")
