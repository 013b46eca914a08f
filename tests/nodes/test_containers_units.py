"""What the importer makes of lines, answers and files, one function at a time."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headnode.containers import credentials, images, importing, places, registry, session, tools
from headnode.containers.__main__ import default_at_once
from tests.registry import images as made

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "sha256:" + "a" * 64


@pytest.fixture(autouse=True)
def memory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file system in memory that the host has: a test leaves nothing in this machine's."""
    place = tmp_path_factory.mktemp("shm")
    monkeypatch.setattr(places, "MEMORY", place)
    return place


@pytest.mark.parametrize(
    ("line", "registry", "repository", "reference", "enroot"),
    [
        ("docker://nvcr.io#nvidia/pytorch:24.01-py3", "nvcr.io", "nvidia/pytorch", "24.01-py3", "docker://nvcr.io#nvidia/pytorch:24.01-py3"),
        ("docker://nvcr.io/nvidia/pytorch:24.01-py3", "nvcr.io", "nvidia/pytorch", "24.01-py3", "docker://nvcr.io#nvidia/pytorch:24.01-py3"),
        ("docker://ubuntu", images.DOCKER_HUB, "library/ubuntu", "latest", "docker://library/ubuntu:latest"),
        ("docker://docker.io#library/ubuntu:22.04", images.DOCKER_HUB, "library/ubuntu", "22.04", "docker://library/ubuntu:22.04"),
        ("docker://pytorch/pytorch:2", images.DOCKER_HUB, "pytorch/pytorch", "2", "docker://pytorch/pytorch:2"),
        ("docker://localhost:5000/a/b:1", "localhost:5000", "a/b", "1", "docker://localhost:5000#a/b:1"),
        (f"docker://nvcr.io#a/b@{DIGEST}", "nvcr.io", "a/b", DIGEST, f"docker://nvcr.io#a/b:{DIGEST}"),
        (f"docker://nvcr.io#a/b:1@{DIGEST}", "nvcr.io", "a/b", DIGEST, f"docker://nvcr.io#a/b:{DIGEST}"),
    ],
)  # fmt: skip
def test_lines_in_every_form(line: str, registry: str, repository: str, reference: str, enroot: str) -> None:
    image = images.parse(line)
    assert (image.registry, image.repository, image.reference, image.enroot_uri) == (
        registry,
        repository,
        reference,
        enroot,
    )


@pytest.mark.parametrize(
    "line",
    ["", "nvcr.io/nvidia/pytorch", "docker://", "docker://A/b", "docker://a b", "docker://a;b", "docker://../x", "docker://nvcr.io#",
     "docker://nvcr.io#a/b:", "docker://a$(id)", "docker://nvcr.io##a", "docker://x@sha256:12", "docker:///a", "docker://a//b/", "docker://a/../b", "docker://a._b"],
)  # fmt: skip
def test_lines_that_are_no_image(line: str) -> None:
    with pytest.raises(ValueError, match="not docker://REGISTRY/NAME:TAG"):
        images.parse(line)


def test_name_and_apptainers_form() -> None:
    image = images.parse("docker://nvcr.io#nvidia/nemo:24.01")
    assert image.stem == "nvcr.io_nvidia_nemo-24.01"
    assert image.apptainer_uri == "docker://nvcr.io/nvidia/nemo:24.01"
    assert images.parse(f"docker://ubuntu@{DIGEST}").apptainer_uri == f"docker://docker.io/library/ubuntu@{DIGEST}"


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("[INFO] Fetching\ncurl: (23) Failure\nzstd: error 70: No space left on device\n", "the disk is full"),
        ("FATAL ERROR: Failed to write to output filesystem\n", "the disk is full"),
        ("curl: (18) transfer closed with outstanding read data remaining\n", "a layer arrived damaged"),
        ("Checksum mismatch: abc\n", "a layer arrived damaged"),
        ("curl: (6) Could not resolve host: nvcr.io\n", "the registry could not be reached"),
        ("[ERROR] URL https://x/ returned error code: 403 Forbidden\n", "the registry refused the key"),
        ("curl: (22) The requested URL returned error: 401\n",
         "the registry refused a layer: the token ran out meanwhile, or the key may not pull all of this image"),
        ("[INFO] b\nenroot-aufs2ovlfs: failed to set capabilities: Operation not permitted\n",
         "enroot's programs lack their capabilities: install the package enroot+caps"),
        # What arrives when the disk is full on which GNU parallel keeps what tar prints (enroot 3.4 to 4.1).
        ("[INFO] Extracting image layers...\nparallel: Error: Output is incomplete.\n"
         "parallel: Error: Cannot append to buffer file in /scratch/x.\nparallel: Error: Is the disk full?\n"
         "parallel: Error: Change $TMPDIR with --tmpdir or use --compress.\n", "the disk is full"),
        ("pigz: skipping: <stdin>: corrupted -- incomplete deflate data\n", "a layer arrived damaged"),
        ("curl: (92) HTTP/2 stream 0 was not closed cleanly\n", "the registry could not be reached"),
        ("[INFO] Extracting image layers...\ntar: opt/dev/null: Cannot mknod: Operation not permitted\n"
         "tar: Exiting with failure status due to previous errors\n", "tar: opt/dev/null: Cannot mknod: Operation not permitted"),
        ("[WARN] x\nenroot-aufs2ovlfs: failed to read x/.wh.nothing: No such file\nCreating 4.0 filesystem on x.sqsh\n",
         "enroot-aufs2ovlfs: failed to read x/.wh.nothing: No such file"),
        ("tar: usr/lib/libcudnn.so.8.9.404: Cannot open: Permission denied\n",
         "tar: usr/lib/libcudnn.so.8.9.404: Cannot open: Permission denied"),
        ("[INFO] a\n[ERROR] Could not process JSON input\n", "[ERROR] Could not process JSON input"),
        ("[INFO] Authenticating with user: $oauthtoken\n", "it failed without a message: is the key right and allowed to pull this image?"),
    ],
)  # fmt: skip
def test_what_enroot_says_and_what_it_means(said: str, meaning: str) -> None:
    assert importing.explain(said, "") == meaning


@pytest.mark.parametrize(
    ("line", "zstd", "version", "refusal"),
    [
        ("docker://123456789012.dkr.ecr.us-east-1.amazonaws.com/a:1", False, (3, 4), "enroot 3.4 cannot log in to ECR: install 3.5 or newer"),
        ("docker://123456789012.dkr.ecr.us-east-1.amazonaws.com/a:1", False, (3, 5), ""),
        ("docker://nvcr.io/a:1", False, (3, 4), ""),
        ("docker://nvcr.io/a:1", True, (3, 5), "the image has layers in zstd, which enroot 3.5 cannot read: install 4.0 or newer"),
        ("docker://nvcr.io/a:1", True, (4, 0), ""),
    ],
)  # fmt: skip
def test_image_that_this_enroot_cannot_import(line: str, zstd: bool, version: tuple[int, int], refusal: str) -> None:
    job = importing.Job(images.parse(line), "sqsh", manifest=registry.Manifest(DIGEST, {}, zstd))
    found = importing.too_old(job, version)
    assert found.startswith(refusal)
    assert bool(found) is bool(refusal)


@pytest.mark.parametrize(("printed", "version"), [("3.4.1\n", (3, 4)), ("4.2.1-1\n", (4, 2)), ("", (sys.maxsize, 0))])
def test_version_of_enroot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, version: tuple[int, int]
) -> None:
    (tmp_path / "enroot").write_text(f"#!/bin/sh\nprintf '{printed}'\n")
    (tmp_path / "enroot").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    tools.enroot_version.cache_clear()
    assert tools.enroot_version() == version
    tools.enroot_version.cache_clear()


def test_image_is_whole_when_it_has_the_bytes_of_its_superblock(tmp_path: Path) -> None:
    image = tmp_path / "image"
    head = b"hsqs".ljust(40, b"x") + (5000).to_bytes(8, "little")
    for content, whole in (
        (head.ljust(8192, b"x"), True),
        (head.ljust(4999, b"x"), False),
        (head[:47], False),
        (b"x" * 8192, False),
    ):
        image.write_bytes(content)
        assert tools.whole(image) is whole


# A command as enroot's: a job in a process group of its own, started by a subshell, that does not want to end.
COMMAND = "(set -m; (trap '' TERM; exec sleep 98765) & echo $! >{0}; wait)"


def test_no_process_of_a_session_is_left_however_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "END_S", 0.2)
    note, log = tmp_path / "pid", os.open(os.devnull, os.O_WRONLY)

    def left() -> list[int]:
        found = Path("/proc", note.read_text().strip(), "stat")
        return [int(found.parent.name)] if found.exists() and session.fields(found.parent.name)[0] != "Z" else []

    limits = tools.Limits(60, 60, 0, 1)
    command = ["bash", "-c", COMMAND.format(note)]
    with pytest.raises(tools.ToolFault, match="stopped"):
        tools.run(command, os.environ, log, limits, lambda: note.exists() and note.read_text() != "")
    assert left() == []
    # The end of the command itself, with a job of it that goes on.
    note.unlink()
    command = ["bash", "-c", f"{COMMAND.format(note)} & until [ -s {note} ]; do sleep 0.02; done; exit 3"]
    assert tools.run(command, os.environ, log, limits, lambda: False) == 3
    assert left() == []
    # SIGKILL of the program that started it all; with the token of an enroot that could not remove it.
    note.unlink()
    tokens = tmp_path / "cache/.tokens.0"
    tokens.mkdir(parents=True)
    command = ["bash", "-c", f"trap '' TERM; touch {tokens}/nvcr.io.$$; {COMMAND.format(note)}"]
    program = (
        "import os, sys; from headnode.containers import tools; tools.END_S = 0.2; "
        "tools.run(sys.argv[1:], os.environ, 1, tools.Limits(60, 60, 0, 1), lambda: False)"
    )
    environment = {**os.environ, "ENROOT_CACHE_PATH": str(tokens.parent)}
    with subprocess.Popen(
        [sys.executable, "-c", program, *command], cwd=ROOT, stdout=subprocess.DEVNULL, env=environment
    ) as child:
        wait_for(lambda: note.exists() and note.read_text() != "")
        assert left() != []
        child.kill()
    wait_for(lambda: left() == [] and not list(tokens.iterdir()))
    os.close(log)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_tokens_are_in_memory_and_go_with_their_import(tmp_path: Path, memory: Path) -> None:
    left = tmp_path / f"layers/.tokens.{os.getuid()}/nvcr.io.4194999"  # by an older release, on the disk
    left.parent.mkdir(parents=True)
    left.write_text("header")
    shop = places.Workshop(tmp_path)
    assert not left.exists()
    for process in (4194999, os.getpid()):
        (shop.tokens / f"nvcr.io.{process}").write_text("header")
    assert len(list((memory / f"{tmp_path.name}-tokens").iterdir())) == 2
    shop.forget_tokens()
    assert [file.name for file in shop.tokens.iterdir()] == [f"nvcr.io.{os.getpid()}"]
    shop.prune(0)  # goes past what is no layer
    assert shop.tokens.is_dir()
    # Another user has the name, or the memory is gone: the next run works with a directory on the disk.
    shutil.rmtree(memory)
    places.Workshop(tmp_path)
    assert not shop.tokens.exists()
    shop.tokens.mkdir()


def test_prune_waits_for_other_runs(tmp_path: Path) -> None:
    first, second = places.Workshop(tmp_path), places.Workshop(tmp_path)
    (first.layers / "a").write_bytes(b"x" * 100)
    first.prune(0)
    assert (first.layers / "a").exists()
    second.prune(0)
    assert not (first.layers / "a").exists()


def test_note_that_cannot_be_replaced_does_not_undo_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the sticky directory another user's note of an image that was removed stays."""
    importer = importing.Importer(
        tmp_path, tmp_path, places.Workshop(tmp_path), {}, tools.Limits(1, 1, 1, 1), refresh=False
    )
    job = importing.Job(images.parse("docker://ubuntu:1"), "sqsh")
    (tmp_path / "new").write_bytes(b"image")

    def rename(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(target))

    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(importer, "_still", lambda *_: DIGEST)
    importer._put(job, registry.Manifest(DIGEST, {}, zstd=False), tmp_path / "new")
    assert job.state == "ready"
    assert (
        job.detail
        == f"imported ({DIGEST[:19]}); its digest is not noted: {tmp_path}/.ubuntu-1.sqsh.info is another user's"
    )
    assert (tmp_path / job.name).read_bytes() == b"image"
    assert not list(tmp_path.glob("*.info.*"))


def test_imports_at_a_time_by_the_processors() -> None:
    assert [default_at_once(count) for count in (1, 2, 8, 32, 192)] == [2, 2, 2, 8, 8]


def test_layers_fetched_longest_ago_go_first(tmp_path: Path) -> None:
    shop = places.Workshop(tmp_path)
    for number, name in enumerate("abc"):
        (shop.layers / name).write_bytes(b"x" * 100)
        os.utime(shop.layers / name, (number, number))
    for _ in range(2):
        shop.prune(250)
        assert sorted(file.name for file in shop.layers.iterdir() if file.is_file()) == ["b", "c"]


def test_bytes_that_are_here_count_whole_layers_and_parts(tmp_path: Path) -> None:
    shop = places.Workshop(tmp_path)
    (shop.layers / "aa").write_bytes(b"")
    (shop.layers / "bb.0123456789").write_bytes(b"x" * 30)
    (shop.layers / "other").write_bytes(b"x" * 999)
    assert shop.fetched({"aa": 100, "bb": 50, "cc": 7}) == 130
    assert shop.fetched({"aa": 100, "bb": 20}) == 120


def test_note_holds_for_the_very_file_only(tmp_path: Path) -> None:
    image, info = tmp_path / "a.sqsh", tmp_path / ".a.sqsh.info"
    image.write_bytes(b"image")
    assert places.read_info(image, info) == {}
    places.write_info(image, info, {"digest": DIGEST})
    assert places.read_info(image, info)["digest"] == DIGEST
    image.write_bytes(b"other")
    assert places.read_info(image, info) == {}


def test_lock_keeps_the_second_out_and_opens_nothing_more(tmp_path: Path) -> None:
    first, second = places.Lock(tmp_path / "lock"), places.Lock(tmp_path / "lock")
    assert first.acquire()
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert not any(second.acquire() for _ in range(20))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    first.release()
    assert second.acquire()
    second.release()


def test_key_that_a_shell_would_change_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aws = tmp_path / "aws"
    aws.write_text("#!/bin/sh\necho 'a`b'\n")
    aws.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("NGC_API_KEY", raising=False)
    found, problems = credentials.collect(["nvcr.io"], "arn:aws:x")
    assert found == {}
    assert len(problems) == 1
    assert "a`b" not in problems[0]
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "no aws command" in credentials.collect(["nvcr.io"], "arn:aws:x")[1][0]


NGC = credentials.Credential(credentials.NGC_USER, credentials.NGC_VARIABLE)
KEYS = {
    "nvcr.io": NGC,
    "authn.nvidia.com": NGC,
    "123456789012.dkr.ecr.us-east-1.amazonaws.com": credentials.Credential("AWS", "SLIPWAY_ECR_PASSWORD_0"),
}


@pytest.mark.parametrize(
    ("line", "realm", "with_key"),
    [
        ("docker://nvcr.io#nvidia/jax:1", "https://nvcr.io/proxy_auth", True),
        ("docker://nvcr.io#nvidia/jax:1", "https://authn.nvidia.com/token", True),
        ("docker://nvcr.io#nvidia/jax:1", "https://elsewhere.example/token", False),
        ("docker://elsewhere.example#a/b:1", "https://nvcr.io/proxy_auth", False),
    ],
)
def test_key_goes_to_its_own_places_and_for_its_own_registrys_images_only(
    monkeypatch: pytest.MonkeyPatch, line: str, realm: str, with_key: bool
) -> None:
    """Else a registry could name NVIDIA's as the place of its tokens, and get one for a private image there."""
    monkeypatch.setenv("NGC_API_KEY", "nvapi-1")
    sent: list[tuple[str, str]] = []
    client = registry._Client(images.parse(line), KEYS)

    def request(url: str, method: str, authorization: str = "") -> tuple[str, dict[str, str]]:
        sent.append((url, authorization))
        return "", {"token": "t"}

    monkeypatch.setattr(client, "_request", request)
    client._authorize(f'Bearer realm="{realm}",scope="repository:nvidia/private:pull"')
    ((url, authorization),) = sent
    assert url.startswith(f"{realm}?")
    assert bool(authorization) is with_key


@pytest.mark.parametrize("realm", ["https://nvcr.io:x@elsewhere.example/token", "https://nvcr.io:@elsewhere.example"])
def test_place_of_tokens_that_only_looks_like_the_registrys_is_refused(realm: str) -> None:
    client = registry._Client(images.parse("docker://nvcr.io#a/b:1"), KEYS)
    with pytest.raises(registry.RegistryError, match="unknown kind of login"):
        client._authorize(f'Bearer realm="{realm}"')


def test_an_import_has_the_key_of_its_registry_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGC_API_KEY", "nvapi-1")
    monkeypatch.setenv("SLIPWAY_ECR_PASSWORD_0", "of-the-day")
    limits = tools.Limits(1, 1, 1, 1)
    importer = importing.Importer(tmp_path, tmp_path, places.Workshop(tmp_path), KEYS, limits, refresh=False)
    for line, file, variables in (
        ("docker://nvcr.io#a/b:1", "nvcr.io authn.nvidia.com", {"NGC_API_KEY", "APPTAINER_DOCKER_PASSWORD"}),
        ("docker://ubuntu:22.04", "", set()),
    ):
        with importer.shop.temporary("one") as temporary:
            env = importer._environment(importing.Job(images.parse(line), "sqsh"), temporary)
            written = (Path(env["ENROOT_CONFIG_PATH"]) / ".credentials").read_text()
        assert [row.split()[1] for row in written.splitlines()] == file.split()
        assert {name for name, value in env.items() if value in ("nvapi-1", "of-the-day")} == variables
        assert "nvapi" not in written


# ------------------------------------------------------------------------------------------- another architecture

INDEX = "application/vnd.oci.image.index.v1+json"
OTHERS = [("arm64", "linux"), ("ppc64le", "linux"), ("unknown", "unknown")]


def _ask(url: str, headers: dict[str, str], method: str = "GET", body: bytes | None = None) -> Any:
    request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310  (the registry of the tests)
    return urllib.request.urlopen(request, timeout=60)  # noqa: S310


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A real docker-registry with plain manifests and indexes for several architectures."""
    if made.missing():
        pytest.skip(f"needs {', '.join(made.missing())}")
    work = tmp_path_factory.mktemp("registry")
    with made.serving(work / "storage", work) as number:
        layer = made.layer({"a": b"x"})
        for architecture in ("amd64", "arm64", "unknown"):
            made.push(work, number, f"own/{architecture}:1", [layer], architecture=architecture)
        made.push(work, number, "own/index:amd64", [layer], form="oci")
        form = "application/vnd.oci.image.manifest.v1+json"
        manifest = f"http://127.0.0.1:{number}/v2/own/index/manifests"
        with _ask(f"{manifest}/amd64", {"Accept": form}) as answer:
            size, digest = len(answer.read()), answer.headers["Docker-Content-Digest"]
        for tag, platforms in (("others", OTHERS), ("all", [*OTHERS, ("amd64", "linux")]), ("no", [None])):
            entries = [
                {"mediaType": form, "digest": digest, "size": size}
                | {"platform": {"architecture": one[0], "os": one[1]} if one else None}
                for one in platforms
            ]
            body = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
            _ask(f"{manifest}/{tag}", {"Content-Type": INDEX}, "PUT", body).close()
        yield number


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with x86 processors that may speak http with this machine."""
    monkeypatch.setattr(registry, "machine", lambda: "amd64")
    monkeypatch.setenv("ENROOT_ALLOW_HTTP", "yes")


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("own/arm64:1", "arm64"),
        ("own/index:others", "arm64 and ppc64le"),
        ("own/index:no", "no architecture that it names"),
    ],
)
@pytest.mark.usefixtures("here")
def test_image_for_other_architectures_is_refused_before_the_import(port: int, name: str, has: str) -> None:
    with pytest.raises(registry.RegistryError) as refused:
        registry.manifest(images.parse(f"docker://127.0.0.1:{port}#{name}"), {})
    assert str(refused.value) == (
        f"the registry 127.0.0.1:{port} has {name} for {has} only, and this node is amd64: "
        "name a tag or digest for amd64 in the list"
    )
    assert refused.value.final


@pytest.mark.usefixtures("here")
def test_architecture_that_fits_or_that_nothing_shows_is_imported(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("own/amd64:1", "own/index:all"):
        assert registry.manifest(images.parse(f"docker://127.0.0.1:{port}#{name}"), {}).size > 0
    # The same digest as the file that is here: nothing is asked.
    other = images.parse(f"docker://127.0.0.1:{port}#own/arm64:1")
    assert registry.manifest(other, {}, registry.digest(other, {})).layers
    # A registry that does not give the configuration, or a very large one.
    ask = registry._Client._ask

    def without(client: registry._Client, path: str, method: str) -> tuple[str, dict[str, object]]:
        if path.startswith("blobs/"):
            raise client._error("answered HTTP 404", final=True)
        return ask(client, path, method)

    monkeypatch.setattr(registry._Client, "_ask", without)
    assert registry.manifest(other, {}).layers
    monkeypatch.setattr(registry._Client, "_ask", ask)
    monkeypatch.setattr(registry, "LARGEST_ANSWER", 1000)
    registry._Client(other, {})._refuse_other_machine({"digest": "sha256:none", "size": 1001})


@pytest.mark.usefixtures("here")
def test_architecture_that_only_the_import_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    importer = importing.Importer(
        tmp_path, tmp_path, places.Workshop(tmp_path), {}, tools.Limits(1, 1, 1, 1), refresh=False
    )
    job = importing.Job(images.parse("docker://127.0.0.1:1#own/arm64:1"), "sqsh")
    said = b"[WARN] Image architecture doesn't match the requested one: arm64 != amd64\n"

    def once(_job: importing.Job, output: Path, _env: object, log: int) -> None:
        output.touch()
        os.write(log, said)

    monkeypatch.setattr(importer, "_once", once)
    with (tmp_path / "log").open("w+b", buffering=0) as log, pytest.raises(importing.Failed) as failed:
        importer._try(job, tmp_path / "out", log.fileno())
    assert str(failed.value) == (
        "docker://127.0.0.1:1#own/arm64:1 is for arm64, and this node is amd64: name a tag or digest for amd64 in the list"
    )
    assert not (tmp_path / "out").exists()


class Odd(BaseHTTPRequestHandler):
    """A registry whose answers no registry should give."""

    answers: tuple[bytes, ...] = ()

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        with contextlib.suppress(BrokenPipeError):
            for part in self.answers:
                self.wfile.write(part)
                time.sleep(0.1 if len(self.answers) > 1 else 0)

    def log_message(self, format: str, *args: object) -> None:
        """The tests' output has no place for it."""


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((b"[]",), "broke off or did not answer in JSON"),
        ((b'"text"',), "broke off or did not answer in JSON"),
        ((b"[" * 3999,), "broke off or did not answer in JSON"),
        ((b'{"manifests": ["x"]}',), "answered with a manifest of a form that is not known here"),
        ((b'{"manifests": [{"platform": {"architecture": "amd64"}}]}',), "a manifest of a form that is not known here"),
        ((b'{"config": {"digest": "x", "size": "big"}, "layers": []}',), "a manifest of a form that is not known here"),
        ((b'{"config": null, "layers": []}',), "answered with a manifest of a form that is not known here"),
        ((b'{"schemaVersion": 1, "fsLayers": []}',), "answered with a manifest of a form that is not known here"),
        ((b"{",) * 20, "did not answer within 1 s"),
        ((b" " * 5000,), "broke off or did not answer in JSON"),
    ],
)
@pytest.mark.usefixtures("here")
def test_odd_answers_of_a_registry_are_faults_in_one_line(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[bytes, ...], said: str
) -> None:
    monkeypatch.setattr(registry, "TIMEOUT_S", 1 if len(answers) > 1 else 60)
    monkeypatch.setattr(registry, "LARGEST_ANSWER", 4000)
    monkeypatch.setattr(Odd, "answers", answers)
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        with pytest.raises(registry.RegistryError, match=said):
            registry._Client(images.parse(f"docker://127.0.0.1:{server.server_port}#a/b:1"), {}).manifest("")
        server.shutdown()
