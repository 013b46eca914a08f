"""Stand-ins on the loopback interface: a Hub of Hugging Face, its host of large files, and NVIDIA's registry of models.

They answer as the real ones as far as huggingface_hub 2.4.0 and ngcsdk 4.37.0 read the answers: the list of files with
sizes and checksums, redirects to the other host with X-Linked-Size and X-Linked-ETag, ranges, the error codes in
X-Error-Code. The host of large files refuses a request that has a token besides its signature, as S3 does.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socketserver
import ssl
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "c" * 40
TOKEN, OTHER, KEY = "hf_goodTokenOfTheTest", "hf_tokenWithoutAccess", "bGVnYWN5LWtleS1vZi10aGUtdGVzdA=="
BEARER = "short-lived"
SMALL = 1000  # bytes from which on a file is kept by the other host


@dataclass
class Hub:
    """What the stand-ins have and do. files: of every repository; cut: bytes after which each answer ends."""

    files: dict[str, bytes]
    gated: bool = False
    cut: int = 0
    wrong: bool = False  # other data of the same size
    longer: bool = False
    ranges: bool = True
    shift: int = 0  # of what a range begins with
    busy_s: float = 0  # how long requests are refused, from the first one on
    free: float = 0
    drip: bool = False  # a byte now and then
    drip_headers: bool = False  # the same, of the headers of each answer; each byte comes in time
    entry: dict[str, Any] = field(default_factory=dict)  # other values of each file in the list
    location: str = ""  # where large files are redirected to instead
    slow: threading.Event | None = None  # set when a large file is half sent; then the answer waits for `go`
    go: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    data_url: str = ""
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # path, range, authorization

    def sent(self) -> list[str]:
        """The large files that were asked for, with the range."""
        return [f"{path} {ranges}".strip() for path, ranges, _ in self.asked if path.startswith("/data/")]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _git(data: bytes) -> str:
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()  # noqa: S324 - as git does


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        address = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(address.path)
        self.hub.asked.append((path, self.headers.get("Range", ""), self.headers.get("Authorization", "")))
        if self.hub.drip_headers:
            with suppress(OSError):
                for byte in f"HTTP/1.1 200 OK\r\nX: {'x' * 100}\r\n\r\n":
                    self.wfile.write(byte.encode())
                    time.sleep(0.05)
            self.close_connection = True
            return
        if self.hub.busy_s:
            self.hub.free = self.hub.free or time.monotonic() + self.hub.busy_s
            if time.monotonic() < self.hub.free:
                self.answer(429, b"", RateLimit='"api";r=0;t=1')
                return
        for pattern, do in self.ROADS:
            match = re.fullmatch(pattern, path)
            if match:
                do(self, match, urllib.parse.parse_qs(address.query))
                return
        self.answer(404, b"")

    def answer(self, code: int, body: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refused(self, repository: str, *, gated: bool = False) -> bool:
        """Answer as the Hub does to who may not read a repository: 401 for strangers, also if it does not exist.

        Who has no access to a gated repository may see the list of its files.
        """
        said = self.headers.get("Authorization", "")
        if said and said not in (f"Bearer {TOKEN}", f"Bearer {OTHER}"):
            self.answer(401, b"", X_Error_Message="Invalid credentials in Authorization header")
        elif "missing" in repository:
            self.answer(404 if said else 401, b"", X_Error_Code="RepoNotFound")
        elif gated and said != f"Bearer {TOKEN}":
            self.answer(403 if said else 401, b"", X_Error_Code="GatedRepo")
        else:
            return False
        return True

    def list_hub(self, match: re.Match[str], query: dict[str, list[str]]) -> None:
        if self.refused(match[2]):
            return
        if match[3] not in (None, "main", COMMIT):
            self.answer(404, b"", X_Error_Code="RevisionNotFound")
            return
        siblings = []
        for path, data in self.hub.files.items():
            one: dict[str, Any] = {"rfilename": path}
            if query.get("blobs"):
                one |= {"size": len(data), "blobId": _git(data)}
                if len(data) >= SMALL:
                    one["lfs"] = {"sha256": _sha256(data), "size": len(data), "pointerSize": 130}
            siblings.append(one | self.hub.entry)
        body = {"id": match[2], "sha": COMMIT, "siblings": siblings, "private": False, "tags": [], "downloads": 0}
        self.answer(200, json.dumps(body).encode(), Content_Type="application/json")

    def resolve(self, match: re.Match[str], _: dict[str, list[str]]) -> None:
        if self.refused(match[2], gated=self.hub.gated):
            return
        data = self.hub.files.get(match[4])
        if data is None:
            self.answer(404, b"", X_Error_Code="EntryNotFound")
        elif len(data) < SMALL:
            self.answer(200, data, ETag=f'"{_git(data)}"', X_Repo_Commit=COMMIT)
        else:
            headers = {"X_Repo_Commit": COMMIT, "X_Linked_Size": str(len(data)), "X_Linked_ETag": f'"{_sha256(data)}"'}
            location = self.hub.location or f"{self.hub.data_url}/data/{match[4]}?X-Amz-Signature=s"
            self.answer(302, b"", Location=location, **headers)

    def send_data(self, match: re.Match[str], query: dict[str, list[str]]) -> None:
        hub, data = self.hub, self.hub.files[match[1]]
        if self.headers.get("Authorization") or "X-Amz-Signature" not in query:
            self.answer(400 if self.headers.get("Authorization") else 403, b"")
            return
        if hub.wrong:
            data = b"x" * len(data)
        if hub.longer:
            data += b"x"
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if hub.ranges else None
        start = int(asked[1]) + hub.shift if asked else 0
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        for byte in data if hub.drip else b"":
            time.sleep(0.02)
            try:
                self.wfile.write(bytes([byte]))
            except OSError:
                return
        half = start + (hub.cut or (len(data) - start) // 2)
        self.wfile.write(data[start:half])
        self.wfile.flush()
        if hub.slow and not hub.go.is_set():
            hub.slow.set()
            hub.go.wait(60)
        if hub.cut and half < len(data):
            self.close_connection = True
            return
        self.wfile.write(data[half:])

    def login(self, _: re.Match[str], query: dict[str, list[str]]) -> None:
        pair = base64.b64encode(f"$oauthtoken:{KEY}".encode()).decode()
        good = self.headers.get("Authorization") == f"Basic {pair}"
        scopes = query.get("scope") == ["group/ngc:nim", "group/ngc:nim/deepseek-ai"] and query.get("service") == [
            "ngc"
        ]
        self.answer(200 if good and scopes else 401, json.dumps({"token": BEARER, "expires_in": 300}).encode())

    def ngc_refused(self) -> bool:
        if self.headers.get("Authorization") != f"Bearer {BEARER}":
            self.answer(401, b"{}")
            return True
        return False

    def list_ngc(self, match: re.Match[str], query: dict[str, list[str]]) -> None:
        if self.ngc_refused():
            return
        if match[1] != "hf-1-fp8":
            self.answer(412 if match[1] == "terms" else 404, b"{}")
            return
        page = int(query.get("page-number", ["0"])[0])
        if page >= len(self.hub.files):  # a list that says that it has more
            self.answer(200, json.dumps({"modelFiles": [], "paginationInfo": {"totalPages": 1 << 40}}).encode())
            return
        path, data = list(self.hub.files.items())[page]  # one file a page
        checksum = base64.b64encode(hashlib.sha256(data).digest()).decode()
        entry = {"path": path, "sizeInBytes": len(data), "sha256_base64": checksum}
        pages = {"totalPages": len(self.hub.files) + self.hub.longer, "totalResults": len(self.hub.files), "size": 1}
        self.answer(200, json.dumps({"modelFiles": [entry | self.hub.entry], "paginationInfo": pages}).encode())

    def address_ngc(self, _: re.Match[str], query: dict[str, list[str]]) -> None:
        if not self.ngc_refused():
            url = f"{self.hub.data_url}/data/{urllib.parse.quote(query['path'][0])}?X-Amz-Signature=s"
            self.answer(200, json.dumps({"urls": [url], "filepath": query["path"]}).encode())

    ROADS = (
        (r"/api/(models|datasets)/([^/]+/[^/]+)(?:/revision/(.+))?", list_hub),
        (r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", resolve),
        (r"/data/(.+)", send_data),
        (r"/token", login),
        (r"/v2/org/nim/team/deepseek-ai/models/r1/versions/([^/]+)/files", list_ngc),
        (r"/v2/org/nim/team/deepseek-ai/models/r1/hf-1-fp8/files", address_ngc),
    )


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """Serve what `hub` has, the large files at another port."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for _ in range(2)]
    hub.url, hub.data_url = (f"http://127.0.0.1:{one.server_address[1]}" for one in servers)
    threads = [threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.05}) for one in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        hub.go.set()
        for server in servers:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()


@contextmanager
def answering(sent: bytes, pause_s: float) -> Iterator[str]:
    """Serve the same answer to whatever is asked, one line after another with a pause; yield the address."""

    class Answering(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            with suppress(OSError):
                for line in sent.splitlines(keepends=True):
                    self.wfile.write(line)
                    time.sleep(pause_s)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def tunnelling(folder: Path, host: str, url: str) -> Iterator[str]:
    """Serve as a proxy that answers CONNECT and is then itself the host, by TLS, with what `url` has.

    Yield the proxy's address. The certificate of the host is FOLDER/cert.pem.
    """
    key, cert = folder / "key.pem", folder / "cert.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert)]
    subject = ["-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"]
    subprocess.run([*argv, *subject], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    class Tunnel(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\nVia: a proxy\r\n\r\n")
            with context.wrap_socket(self.request, server_side=True) as client:
                path = client.recv(65536).split(b" ")[1].decode()
                with urllib.request.urlopen(url + path) as answer:  # noqa: S310 (the stand-in)
                    data = answer.read()
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
