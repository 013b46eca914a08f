"""What the importer makes of lines, answers and files, one function at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headnode.containers import credentials, images, importing, places, registry, tools
from headnode.containers.__main__ import default_at_once

DIGEST = "sha256:" + "a" * 64


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
        ("[INFO] b\nenroot-aufs2ovlfs: failed to set capabilities: Operation not permitted\n",
         "enroot's programs lack their capabilities: install the package enroot+caps"),
        ("[INFO] a\n[ERROR] Could not process JSON input\n", "[ERROR] Could not process JSON input"),
        ("[INFO] Authenticating with user: $oauthtoken\n", "it failed without a message: is the key right and allowed to pull this image?"),
    ],
)  # fmt: skip
def test_what_enroot_says_and_what_it_means(said: str, meaning: str) -> None:
    assert importing.explain(said, "", oci=False) == meaning


def test_imports_at_a_time_by_the_processors() -> None:
    assert [default_at_once(count) for count in (1, 2, 8, 32, 192)] == [2, 2, 2, 8, 8]


def test_layers_used_longest_ago_go_first(tmp_path: Path) -> None:
    shop = places.Workshop(tmp_path)
    for number, name in enumerate("abc"):
        (shop.layers / name).write_bytes(b"x" * 100)
        os.utime(shop.layers / name, (number, number))
    shop.prune(250)
    assert sorted(file.name for file in shop.layers.iterdir()) == ["b", "c"]
    shop.prune(250)
    assert sorted(file.name for file in shop.layers.iterdir()) == ["b", "c"]


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
