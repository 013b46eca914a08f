"""`acceptance download` with stand-ins of the Hub and of NGC: the program by itself, and as a job of a real Slurm."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance_runs import LoopbackSlurm
from hub import COMMIT, KEY, OTHER, TOKEN, Hub, answering, running, tunnelling

from acceptance.cli import main
from acceptance.cloudai.download import program
from acceptance.cloudai.fetch import __main__ as fetch
from acceptance.cloudai.fetch import faults, place, web

LARGE, SMALL = os.urandom(300_000), b'{"a": 1}'
FILES = {"config.json": SMALL, "sub/model 1.safetensors": LARGE, "train/00.zst": b"z" * 2000}
ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:hub-AbCdEf"
SYSTEM = """name = "s"
scheduler = "slurm"
install_path = "{folder}/install"
output_path = "{folder}/out"
default_partition = "train"
extra_sbatch_args = ["--export=PATH"]
[[partitions]]
name = "train"
"""
# Stands in for the AWS CLI: notes its arguments, prints the token.
AWS = '#!/bin/bash\necho "$*" >>"$(dirname "$0")/arguments"\n{}\n'

Spec = Callable[..., str]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setattr(faults, "_PAUSE_S", 0.01)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with running(Hub(dict(FILES))) as hub:
        yield hub


@pytest.fixture
def spec(hub: Hub, tmp_path: Path) -> Spec:
    """Write a specification as `acceptance download` does; `changes` replace its keys."""

    def write(**changes: Any) -> str:
        values = {
            "source": "hf://org/name",
            "kind": "models",
            "repository": "org/name",
            "revision": "main",
            "include": [],
            "folder": str(tmp_path / "models--org--name"),
            "plain": False,
            "secret": "",
            "endpoint": hub.url,
            "login": hub.url,
            **changes,
        }
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(values))
        return str(path)

    return write


def log_in(tmp_path: Path, token: str, path: str = ".cache/huggingface/token") -> None:
    file = tmp_path / "home" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(token)


def put_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/aws").write_text(AWS.format(does))
    (tmp_path / "bin/aws").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path / "bin/arguments"


def test_the_cache_of_hugging_face_twice(hub: Hub, spec: Spec, tmp_path: Path, capsys: Capture) -> None:
    """The layout is that of huggingface_hub, which finds the files by refs and snapshots."""
    assert fetch.main([spec()]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1].endswith(f"complete: 3 files, 0.3 MB in {tmp_path}/models--org--name")
    )
    folder = tmp_path / "models--org--name"
    assert (folder / "refs/main").read_text() == COMMIT
    for path, data in FILES.items():
        name = folder / "snapshots" / COMMIT / path
        assert name.is_symlink()
        assert name.read_bytes() == data
        assert name.resolve().parent == folder / "blobs"
    assert not list(folder.rglob("*.incomplete"))
    hub.asked.clear()
    assert fetch.main([spec()]) == 0
    assert capsys.readouterr().out == f"hf://org/name: is complete: {folder}\n"
    assert hub.asked == []


def test_plain_files_of_a_dataset_and_more_of_them_later(hub: Hub, spec: Spec, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"kind": "datasets", "plain": True, "folder": str(tmp_path / "pile")}
    assert fetch.main([spec(include=["train/*"], **changes)]) == 0
    assert [path.name for path in (tmp_path / "pile").rglob("*.*") if path.name[0] != "."] == ["00.zst"]
    assert any(path == "/datasets/org/name/resolve/" + COMMIT + "/train/00.zst" for path, _, _ in hub.asked)
    hub.asked.clear()
    assert fetch.main([spec(**changes)]) == 0
    assert hub.sent() == ["/data/sub/model 1.safetensors"]
    (tmp_path / "pile/train/00.zst").write_bytes(b"cut")  # no note of it makes up for the file
    assert fetch.main([spec(**changes)]) == 0
    assert (tmp_path / "pile/train/00.zst").read_bytes() == FILES["train/00.zst"]


def test_a_killed_download_goes_on(hub: Hub, spec: Spec, tmp_path: Path) -> None:
    hub.files = {"model.safetensors": LARGE}
    hub.slow = threading.Event()
    (tmp_path / "fetch.pyz").write_bytes(program())
    argv = [sys.executable, "-I", str(tmp_path / "fetch.pyz"), spec()]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    part = tmp_path / "models--org--name/blobs"
    try:
        assert hub.slow.wait(60)
        until = time.monotonic() + 60
        while not sum(path.stat().st_size for path in part.glob("*.incomplete")):
            assert time.monotonic() < until
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    hub.go.set()
    left = sum(path.stat().st_size for path in part.glob("*.incomplete"))
    assert not (tmp_path / "models--org--name" / place.COMPLETE).exists()
    hub.asked.clear()
    assert fetch.main([spec()]) == 0
    assert hub.sent() == [f"/data/model.safetensors bytes={left}-"]
    assert (tmp_path / f"models--org--name/snapshots/{COMMIT}/model.safetensors").read_bytes() == LARGE


def test_a_connection_that_breaks_goes_on(hub: Hub, spec: Spec, tmp_path: Path, capsys: Capture) -> None:
    hub.cut = 100_000
    assert fetch.main([spec()]) == 0
    ranges = [one for one in hub.sent() if "bytes=" in one]
    assert ranges == [f"/data/sub/model 1.safetensors bytes={start}-" for start in (100_000, 200_000)]
    shutil.rmtree(tmp_path / "models--org--name")
    hub.ranges = False  # a host that always sends all of it
    assert fetch.main([spec()]) == 3
    said = "sub/model 1.safetensors: the answer ended after 100000 of 300000 bytes (5 tries). Hint: run it again: it goes on"
    assert capsys.readouterr().err == f"acceptance download: {said}\n"
    hub.cut = 0
    assert fetch.main([spec()]) == 0


@pytest.mark.parametrize(
    ("fault", "rule"), [("wrong", "its sha256 checksum is "), ("longer", "is larger than the 300000")]
)
def test_other_data_than_stated_is_not_kept(
    fault: str, rule: str, hub: Hub, spec: Spec, tmp_path: Path, capsys: Capture
) -> None:
    hub.files = {"model.safetensors": LARGE}
    setattr(hub, fault, True)
    assert fetch.main([spec()]) == 3
    assert capsys.readouterr().err.startswith(f"acceptance download: model.safetensors: {rule}")
    assert [path for path in (tmp_path / "models--org--name/blobs").iterdir() if path.stat().st_size] == []
    setattr(hub, fault, False)
    assert fetch.main([spec()]) == 0


@pytest.mark.parametrize(
    ("token", "changes", "words"),
    [
        ("", {"repository": "org/missing"}, "does not exist, or is private (HTTP 401). Hint: is the name right? give"),
        (
            TOKEN,
            {"repository": "org/missing"},
            "does not exist, or is private (HTTP 404). Hint: is the name right? its",
        ),
        ("hf_bad", {}, "refused the token of ~/.cache/huggingface/token (HTTP 401). Hint: is it valid?"),
        (
            "",
            {"gated": True},
            "is gated, and there is no token (HTTP 401). Hint: ask for access on its page; give --secr",
        ),
        (
            OTHER,
            {"gated": True},
            "is gated, and the account of the token has no access (HTTP 403). Hint: ask for access",
        ),
        ("", {"revision": "v9"}, "has no revision 'v9' (HTTP 404). Hint: correct it"),
        ("", {"include": ["*.gguf"]}, "hf://org/name: no file of its 3 matches *.gguf. Hint: correct it"),
        (
            "two words",
            {},
            "~/.cache/huggingface/token: is no token: one word of letters, digits and +/=_.:,@%^~- is ex",
        ),
        ("", {"outside": True}, "names a file '../x', which cannot be one of its folder: refused"),
        (
            "",
            {"endpoint": "http://127.0.0.1:1"},
            "127.0.0.1:1 cannot be reached ([Errno 111] Connection refused) (5 tr",
        ),
    ],
)
def test_one_message_for_each_fault(
    token: str, changes: dict[str, Any], words: str, hub: Hub, spec: Spec, tmp_path: Path, capsys: Capture
) -> None:
    hub.gated = changes.pop("gated", False)
    hub.files |= {"../x": SMALL} if changes.pop("outside", False) else {}
    if token:
        log_in(tmp_path, token)
    assert fetch.main([spec(**changes)]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert words in lines[0]
    assert not token or token not in lines[0]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "path", ["a/b", "/x", "x\n", ".slipway-lock", "config.json.incomplete", "n" * 250, "config.json/x", "d\0"]
)
def test_names_that_cannot_be_files(path: str, hub: Hub, spec: Spec, tmp_path: Path, capsys: Capture) -> None:
    hub.files |= {path: SMALL, "a": SMALL}
    assert fetch.main([spec()]) == 3
    name = "config.json/x" if path.startswith("config.json/") else path
    said = f"hf://org/name: names a file {name!r}, which cannot be one of its folder: refused"
    assert capsys.readouterr().err == f"acceptance download: {said}\n"
    assert hub.sent() == []


@pytest.mark.parametrize(
    "entry", [{"rfilename": 5}, {"size": -1}, {"size": float("inf")}, {"size": None}, {"lfs": [1]}, {"blobId": "../x"}]
)
def test_lists_of_another_form(entry: dict[str, Any], hub: Hub, spec: Spec, capsys: Capture) -> None:
    hub.files, hub.entry = {"config.json": SMALL}, entry
    assert fetch.main([spec()]) == 3
    assert "an answer of a form that is not known here" in capsys.readouterr().err


def test_a_list_that_is_too_large(spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(web, "_LARGEST_ANSWER", 100)
    assert fetch.main([spec()]) == 3
    assert "answered with more than 0.0 MB: refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("file:///etc/passwd", "to no address of http or https (HTTP 302): refused"),
        ("ftp://127.0.0.1:1/x", "from http to ftp: refused"),
        ("http://[x/", "sent an address or a token that no request can have: refused"),
        ("/org/name/resolve/main/m.bin", "redirects without end, or"),
    ],
)
def test_redirects(location: str, words: str, hub: Hub, spec: Spec, capsys: Capture) -> None:
    hub.files, hub.location = {"m.bin": LARGE}, location
    assert fetch.main([spec()]) == 3
    assert words in capsys.readouterr().err


def test_no_redirect_from_https_to_http_and_no_file_of_the_node(tmp_path: Path) -> None:
    request = urllib.request.Request("https://hub/x")
    with pytest.raises(faults.Fault, match="hub: redirects from https to http: refused"):
        web._Redirects().redirect_request(request, io.BytesIO(), 302, "", {}, "http://hub/y")
    (tmp_path / "x").write_text("secret")
    with pytest.raises(faults.Fault, match="no address of http or https: refused"):
        web.open_url(f"file://{tmp_path}/x")


def test_a_range_that_is_another_one(hub: Hub, spec: Spec, capsys: Capture) -> None:
    hub.files, hub.cut, hub.shift = {"m.bin": LARGE}, 100_000, 1
    assert fetch.main([spec()]) == 3
    assert "m.bin: the host sent another part of it than was asked for" in capsys.readouterr().err
    hub.cut = hub.shift = 0
    assert fetch.main([spec()]) == 0


def test_a_try_that_gets_farther_does_not_count(hub: Hub, spec: Spec) -> None:
    hub.files, hub.cut = {"m.bin": os.urandom(800_000)}, 70_000
    assert fetch.main([spec()]) == 0
    assert len(hub.sent()) == 12


def test_a_host_that_asks_to_wait(hub: Hub, spec: Spec, capsys: Capture) -> None:
    hub.busy_s = 1
    assert fetch.main([spec()]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("answered HTTP 429: tried again in 2 s")


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"RateLimit": '"api";r=3;t=9', "Retry-After": "7"}, 8),
        ({"Retry-After": "9999"}, 600),
        ({"Retry-After": "x"}, 0),
    ],
)
def test_how_long_a_host_asks_to_wait(headers: dict[str, str], wait: int) -> None:
    assert web._after_s(headers) == wait


def test_a_host_that_drips(hub: Hub, spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(web, "_TIMEOUT_S", 0.3)
    hub.files, hub.drip = {"m.bin": b"x" * 2000}, True
    assert fetch.main([spec()]) == 3
    assert capsys.readouterr().err.endswith("(5 tries). Hint: run it again: it goes on\n")


def test_a_host_that_drips_its_headers(hub: Hub, spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(web, "_TIMEOUT_S", 0.3)
    hub.drip_headers = True
    assert fetch.main([spec()]) == 3
    host = hub.url.rpartition("/")[2]
    said = f"{host} broke the connection (its headers did not come in 0.3 s) (5 tries). Hint: run it again: it goes on"
    assert capsys.readouterr().err == f"acceptance download: {said}\n"


LINES = b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 150


@pytest.mark.parametrize(
    ("sent", "pause_s", "words"),
    [
        (LINES, 0.001, "broke the connection (the proxy's answer has more than 100 lines)"),
        (LINES, 0.1, "cannot be reached (the proxy's answer did not come in 0.5 s)"),
        (b"HTTP/1.1 403 " + b"No" * 9000 + b"\r\n\r\n", 0, "cannot be reached (Tunnel connection failed: 403 NoNo"),
    ],
    ids=["long", "slow", "refused"],
)
def test_a_proxy_whose_answer_does_not_end(
    sent: bytes, pause_s: float, words: str, spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(web, "_TIMEOUT_S", 60 if pause_s < 0.1 else 0.5)
    with answering(sent, pause_s) as proxy:
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.setattr(web, "_OPENER", urllib.request.build_opener(web._Redirects, web._Bounded))
        began = time.monotonic()
        assert fetch.main([spec(endpoint="https://hub.test")]) == 3
    assert time.monotonic() - began < 20
    said = capsys.readouterr().err
    assert f"hub.test {words}" in said
    assert len(said) < 400


def test_through_a_proxy(hub: Hub, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files = {"config.json": SMALL}
    with tunnelling(tmp_path, "hub.test", hub.url) as proxy:
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        monkeypatch.setattr(web, "_OPENER", urllib.request.build_opener(web._Redirects, web._Bounded))
        assert fetch.main([spec(endpoint="https://hub.test", plain=True, folder=str(tmp_path / "x"))]) == 0
    assert (tmp_path / "x/config.json").read_bytes() == SMALL


def test_the_body_of_a_redirect_is_not_read(spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """urllib reads it whole, however long it is and however slowly it comes."""
    monkeypatch.setattr(web, "_TIMEOUT_S", 0.3)
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"
    with answering(moved + b"x\n" * 200, 0.1) as host:
        began = time.monotonic()
        assert fetch.main([spec(endpoint=host)]) == 3
    assert time.monotonic() - began < 5
    assert "Connection refused" in capsys.readouterr().err


@pytest.mark.parametrize("name", [place.LOCK, "m.bin.incomplete", f"{place.COMPLETE}.incomplete", "sub"])
def test_links_that_others_put_there_are_not_followed(
    name: str, hub: Hub, spec: Spec, tmp_path: Path, capsys: Capture
) -> None:
    hub.files = {"m.bin": LARGE, "sub/m.bin": LARGE}
    folder, mine = tmp_path / "x", tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("mine")
    folder.mkdir()
    (folder / name).symlink_to(mine if name == "sub" else mine / "file")
    assert fetch.main([spec(plain=True, folder=str(folder))]) == 3
    words = "is outside of" if name == "sub" else "Too many levels of symbolic links. Hint: look at this place"
    assert f"{folder}/{name}: {words}" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in mine.iterdir()] == [("file", "mine")]


def test_a_pipe_that_others_put_there_is_not_waited_for(spec: Spec, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    os.mkfifo(folder / place.COMPLETE)
    os.mkfifo(folder / f"config.json{place.PART}")
    assert fetch.main([spec(plain=True, folder=str(folder))]) == 3
    assert f"{folder}/config.json.incomplete: " in capsys.readouterr().err


def test_a_plain_file_of_another_version_has_the_same_size(hub: Hub, spec: Spec, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"plain": True, "folder": str(tmp_path / "x")}
    assert fetch.main([spec(**changes)]) == 0
    hub.files |= {"sub/model 1.safetensors": b"2" * len(LARGE), "config.json": b'{"a": 2}'}
    hub.asked.clear()
    assert fetch.main([spec(source="hf://org/name@v2", **changes)]) == 0
    assert (tmp_path / "x/sub/model 1.safetensors").read_bytes() == b"2" * len(LARGE)
    assert (tmp_path / "x/config.json").read_bytes() == b'{"a": 2}'
    assert hub.sent() == ["/data/sub/model 1.safetensors"]


def test_two_names_of_the_same_data_need_room_once(hub: Hub, spec: Spec, tmp_path: Path, capsys: Capture) -> None:
    hub.files = {"a": LARGE, "b": LARGE}
    assert fetch.main([spec()]) == 0
    assert "hf://org/name: 2 files, 0.3 MB; 0.0 MB are there\n" in capsys.readouterr().out
    assert len(list((tmp_path / "models--org--name/blobs").iterdir())) == 1


def test_an_empty_file_that_was_removed(hub: Hub, spec: Spec, tmp_path: Path) -> None:
    hub.files["empty"] = b""
    changes: dict[str, Any] = {"plain": True, "folder": str(tmp_path / "x")}
    assert fetch.main([spec(**changes)]) == 0
    (tmp_path / "x/empty").unlink()
    assert fetch.main([spec(**changes)]) == 0
    assert (tmp_path / "x/empty").exists()


def test_the_token_goes_to_the_hub_only(hub: Hub, spec: Spec, tmp_path: Path) -> None:
    hub.gated = True
    log_in(tmp_path, f"{TOKEN}\n")
    assert fetch.main([spec()]) == 0
    assert {said for path, _, said in hub.asked if path.startswith("/data/")} == {""}


@pytest.mark.hosts
def test_a_full_file_system(hub: Hub, spec: Spec, tmp_path: Path, capsys: Capture) -> None:
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(full)], check=True)
    try:
        hub.files = {"a": LARGE, "b": LARGE[::-1]}
        assert fetch.main([spec(folder=str(full / "x"))]) == 3
        assert capsys.readouterr().err.startswith(
            f"acceptance download: {full}/x: needs 0.6 MB more, and 0.4 MB are free"
        )
        assert hub.sent() == []
        hub.files, hub.slow = {"a": LARGE}, threading.Event()

        def fill() -> None:
            assert hub.slow is not None
            hub.slow.wait(60)
            (full / "other").write_bytes(b"x" * 200_000)
            hub.go.set()

        other = threading.Thread(target=fill)
        other.start()
        assert fetch.main([spec(folder=str(full / "x"))]) == 3
        other.join()
        said = f"{full}/x: No space left on device. Hint: make room, and run it again: it goes on"
        assert capsys.readouterr().err == f"acceptance download: {said}\n"
        (full / "other").unlink()
        assert fetch.main([spec(folder=str(full / "x"))]) == 0
    finally:
        subprocess.run(["umount", str(full)], check=True)


def test_two_at_once(spec: Spec, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "models--org--name"
    folder.mkdir()
    with (folder / place.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert fetch.main([spec()]) == 3
    said = f"acceptance download: {folder}: another download writes into it. Hint: squeue shows it; wait for it\n"
    assert capsys.readouterr().err == said


def ngc(**changes: Any) -> dict[str, Any]:
    names = {
        "kind": "ngc",
        "repository": "nim/deepseek-ai/r1",
        "revision": "hf-1-fp8",
        "plain": True,
        "source": "ngc://x",
    }
    return {**names, **changes}


def test_a_model_of_ngc(hub: Hub, spec: Spec, tmp_path: Path) -> None:
    """The list has a page for each file; the key is exchanged for a token; signed addresses get neither."""
    log_in(tmp_path, f"[CURRENT]\napikey = {KEY}\norg = nim\n", ".ngc/config")
    assert fetch.main([spec(**ngc(folder=str(tmp_path / "r1_vhf-1-fp8")))]) == 0
    for path, data in FILES.items():
        assert (tmp_path / "r1_vhf-1-fp8" / path).read_bytes() == data
    assert sum(path == "/token" for path, _, _ in hub.asked) == 1
    assert {said for path, _, said in hub.asked if path.startswith("/data/")} == {""}


def test_ngc_without_checksums_and_another_source_in_the_folder(
    hub: Hub, spec: Spec, tmp_path: Path, capsys: Capture
) -> None:
    """The other source's download was killed, so its files of the same size are there, without a note."""
    log_in(tmp_path, f"[CURRENT]\napikey = {KEY}\n", ".ngc/config")
    hub.entry = {"sha256_base64": None}
    assert fetch.main([spec(**ngc())]) == 0
    (tmp_path / "models--org--name" / place.COMPLETE).unlink()
    assert fetch.main([spec(**ngc(source="ngc://y"))]) == 3
    rule = "has files of 'ngc://x', and ngc://y states no checksums that distinguish them"
    assert f"{tmp_path}/models--org--name: {rule}. Hint: give another folder, or" in capsys.readouterr().err
    assert fetch.main([spec(**ngc())]) == 0


@pytest.mark.parametrize(
    ("put", "words"),
    [
        (lambda x: (x / "a").symlink_to("a"), "/a: File exists. Hint: look at this place"),
        (lambda x: (x / "a").write_text(""), "/a: File exists. Hint: look at this place"),
        (lambda x: (x / "a/b/c").mkdir(parents=True), "/a/b: Is a directory. Hint: look at this place"),
    ],
)
def test_other_things_at_the_place_of_a_file(
    put: Callable[[Path], Any], words: str, hub: Hub, spec: Spec, tmp_path: Path, capsys: Capture
) -> None:
    hub.files = {"a/b": SMALL}
    (tmp_path / "x").mkdir()
    put(tmp_path / "x")
    assert fetch.main([spec(plain=True, folder=str(tmp_path / "x"))]) == 3
    assert f"{tmp_path}/x{words}" in capsys.readouterr().err


def test_a_list_of_ngc_that_does_not_end(hub: Hub, spec: Spec, tmp_path: Path, capsys: Capture) -> None:
    log_in(tmp_path, f"[CURRENT]\napikey = {KEY}\n", ".ngc/config")
    hub.longer = True
    assert fetch.main([spec(**ngc())]) == 3
    assert "page 3 of 1099511627776 is empty. Hint: run it again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "changes", "words"),
    [
        (
            "",
            {},
            "nim/deepseek-ai/r1:hf-1-fp8: needs a key (HTTP 401). Hint: give --secret ARN, or log in with `ngc con",
        ),
        (
            "bad",
            {},
            "refused the key of ~/.ngc/config (HTTP 401). Hint: is it valid, and may its organization download",
        ),
        (
            KEY,
            {"revision": "none"},
            "nim/deepseek-ai/r1:none: does not exist in NGC (HTTP 404). Hint: are name and ver",
        ),
        (KEY, {"revision": "terms"}, "its terms are not accepted (HTTP 412). Hint: accept them on its page of NGC"),
    ],
)
def test_what_ngc_refuses(
    key: str, changes: dict[str, str], words: str, spec: Spec, tmp_path: Path, capsys: Capture
) -> None:
    log_in(tmp_path, f"[CURRENT]\napikey = {key}\n", ".ngc/config")
    assert fetch.main([spec(**ngc(**changes))]) == 3
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("does", "words"),
    [
        (
            "echo 'An error occurred (AccessDeniedException)' >&2; exit 254",
            "cannot be read: An error occurred (AccessDe",
        ),
        ("true", f"{ARN}: is empty. Hint: put the token into it"),
        ("""echo '{"token": "x"}'""", f"{ARN}: is no token: one word of"),
        ("echo hf_bad", f"refused the token of {ARN} (HTTP 401)"),
    ],
)
def test_secrets_that_are_no_token(
    does: str, words: str, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    put_aws(tmp_path, monkeypatch, does)
    assert fetch.main([spec(secret=ARN)]) == 3
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["org/name"],
            "org/name: must be hf://ORG/MODEL, hf://datasets/ORG/NAME (each with @REVISION) or ngc://ORG/TEAM",
        ),
        (["hf://org/$(id)"], "hf://org/$(id): must be hf://"),
        (["hf://a"], "ngc://ORG/TEAM/MODEL:VERSION. Hint: correct it"),
        (["hf://datasets/x"], "hf://datasets/x: must be hf://"),
        (["hf://a/b\nc"], "acceptance: 'hf://a/b\\nc': must be hf://"),
        (["hf://a/b", "hf://a/b"], "hf://a/b: is given twice. Hint: leave one out"),
        (["hf://org/name@../x"], "hf://org/name@../x: must be hf://"),
        (["hf://a/b", "--secret", ""], "--secret: must be the ARN of a secret"),
        (
            ["hf://a/b", "--secret", "hf_token"],
            "--secret: must be the ARN of a secret, arn:aws:secretsmanager:REGION:ACC",
        ),
        (
            ["hf://a/b", "hf://a/c", "--local-dir", "d"],
            "--local-dir: is for one SOURCE. Hint: run the command for each",
        ),
        (["hf://a/b", "--system-config", "none"], "none: "),
        (["hf://a/b", "--partition", ""], "--partition: '': must be the name of a partition"),
        (["hf://a/b", "--partition", "a\n#SBATCH -w b"], "--partition: 'a\\n#SBATCH -w b': must be the name of a par"),
    ],
)
def test_misuse(words: list[str], message: str, tmp_path: Path, capsys: Capture) -> None:
    system = tmp_path / "system.toml"
    system.write_text(SYSTEM.format(folder=tmp_path))
    assert main(["download", "--system-config", str(system), *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert "hf_token" not in said
    assert not (tmp_path / "install").exists()


def test_downloads_into_one_folder_have_files_of_their_own_and_run_one_after_another(
    tmp_path: Path, capsys: Capture
) -> None:
    system = tmp_path / "system.toml"
    system.write_text(SYSTEM.format(folder=tmp_path))
    scripts = []
    for include in ("train/*", "test/*"):
        words = ["hf://datasets/a/b@v1", "--dry-run", "--include", include, "--local-dir", str(tmp_path / "x")]
        assert main(["download", "--system-config", str(system), *words]) == 0
        scripts.append(capsys.readouterr().out.splitlines())
    names = [[line for line in lines if "job-name" in line] for lines in scripts]
    assert names[0] == names[1]
    assert scripts[0][-1] != scripts[1][-1]
    assert scripts[0][-1].startswith("exec /usr/bin/python3 -I -X utf8 ")  # names outside of the locale's letters
    assert "#SBATCH --dependency=singleton" in scripts[0]


@pytest.mark.parametrize("wait", [[], ["--wait"]], ids=["", "waiting"])
@pytest.mark.parametrize("before", [False, True], ids=["new", "of an older job"])
def test_a_job_that_slurm_refuses_leaves_nothing_new(
    before: bool, wait: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    system, stand_in = tmp_path / "system.toml", tmp_path / "bin/sbatch"
    system.write_text(SYSTEM.format(folder=tmp_path))
    argv = ["download", "--system-config", str(system), "hf://a/b"]
    assert main([*argv, "--dry-run"]) == 0
    where = Path(capsys.readouterr().out.splitlines()[0][2:]).parent
    if before:
        where.mkdir(parents=True)
    stand_in.parent.mkdir()
    stand_in.write_text("#!/bin/sh\necho 'invalid partition' >&2\nexit 1\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    assert main([*argv, *wait]) == 3
    assert wait or "sbatch: exit 1: invalid partition" in capsys.readouterr().err
    assert where.exists() == before


def test_a_folder_of_jobs_that_others_may_write_into(tmp_path: Path, capsys: Capture) -> None:
    """The job runs the program in it as the user who submits."""
    system = tmp_path / "system.toml"
    system.write_text(SYSTEM.format(folder=tmp_path))
    argv = ["download", "--system-config", str(system), "hf://a/b"]
    assert main([*argv, "--dry-run"]) == 0
    where = Path(capsys.readouterr().out.splitlines()[0][2:]).parent
    where.mkdir(parents=True)
    where.chmod(0o777)
    assert main(argv) == 2
    assert f"{where}: is another user's, or others may write into it: " in capsys.readouterr().err
    assert list(where.iterdir()) == []


@pytest.mark.hosts
def test_a_job_of_slurm_with_a_secret(
    hub: Hub, slurm: LoopbackSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """dry-run prints the script that is submitted; the token is in no file, argument or record of Slurm."""
    slurm.wait_idle()
    hub.gated = True
    arguments = put_aws(tmp_path, monkeypatch, f"printf '%s\\n' {TOKEN[:5]}''{TOKEN[5:]}")
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    (tmp_path / "system.toml").write_text(SYSTEM.format(folder=tmp_path))
    argv = ["download", "--system-config", str(tmp_path / "system.toml"), "hf://org/name", "--secret", ARN]
    assert main([*argv, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert not (tmp_path / "install").exists()
    assert main([*argv, "--wait"]) == 0
    folder = tmp_path / "install/huggingface/hub/models--org--name"
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"hf://org/name: complete: 3 files, 0.3 MB in {folder}"
    where = next((tmp_path / "install/.slipway/downloads").iterdir())
    assert shown == f"# {where}/download.sh\n{(where / 'download.sh').read_text()}"
    region = "--region eu-west-1 --query SecretString --output text"
    assert arguments.read_text() == f"secretsmanager get-secret-value --secret-id {ARN} {region}\n"
    found = subprocess.run(["grep", "-rlF", TOKEN, str(tmp_path), str(slurm.root)], capture_output=True, check=False)
    assert found.stdout == b""
    for more in ([], ["--dry-run"]):
        assert main([*argv, *more]) == 0
        assert capsys.readouterr().out == f"hf://org/name: is complete: {folder}\n"
    hub.gated = False
    assert main([*argv[:3], "hf://org/missing", "--wait"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert main([*argv[:3], "hf://org/missing", "--wait", "--partition", "none"]) == 3
    assert (
        "hf://org/missing: sbatch ended with 1, nothing in " in capsys.readouterr().out
    )  # not the earlier job's words
    assert "does not exist, or is private (HTTP 401)" in lines[-2]
    assert lines[-1].startswith("hf://org/missing: not complete: no .slipway-complete.json in ")
