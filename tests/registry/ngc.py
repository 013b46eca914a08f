"""Stand-in of NVIDIA's registry and of ECR: TLS and logins in front of a real docker-registry, with faults on purpose.

`python3 ngc.py --upstream PORT --certificate PEM --key PASSWORD --faults FILE --log FILE [--port 443]`

* `nvcr.io`: asks for a bearer token, which `https://authn.nvidia.com/token` gives to `$oauthtoken:PASSWORD`, and
  without a login for repositories whose name begins with `public/`.
* any other name: the request is passed on as it is, so the registry behind asks for its own login (Basic), as ECR does.

FILE of the faults is JSON, read at every request: `truncate` (so many next layers end early), `stall` (layers stop
after a quarter), `rate` (bytes a second of each layer: a long way, not a narrow line), `status` (answer of the
token's place). Each answer is one line of the log: method, path, status, program. Runs on the standard library.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKEN = "token-of-the-stand-in"
TOKEN_HOST = "authn.nvidia.com"
CHUNK = 1 << 16
STALL_S = 600.0


class Front(ThreadingHTTPServer):
    """The server and what its requests share."""

    daemon_threads = True

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(("127.0.0.1", options.port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.certificate)
        # The handshake is the connection's own thread's: a client that sends nothing delays no other client.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.options = options
        self.guard = threading.Lock()
        self._truncated = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed break their connections: that is what the tests are for."""

    def faults(self) -> dict[str, Any]:
        """The faults that are wanted now."""
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads(Path(self.options.faults).read_text()))
        return {}

    def take_truncation(self, wanted: int) -> bool:
        """Whether this layer is one of the next so many that end early."""
        with self.guard:
            self._truncated = 0 if not wanted else self._truncated + 1
            return 0 < self._truncated <= wanted

    def note(self, text: str) -> None:
        """One line of the log."""
        with self.guard, Path(self.options.log).open("a") as log:
            log.write(f"{text}\n")


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Front
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.request.do_handshake()
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:
        """The log has a form of its own."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        faults = self.server.faults()
        host = self.headers.get("Host", "").partition(":")[0]
        if host == TOKEN_HOST:
            self._token(faults)
        elif host != "nvcr.io":
            self._pass_on(self.headers.get("Authorization", ""), faults)
        elif self.headers.get("Authorization") == f"Bearer {TOKEN}":
            login = f"$oauthtoken:{self.server.options.key}".encode()
            self._pass_on(f"Basic {base64.b64encode(login).decode()}", faults)
        else:
            repository = self.path.removeprefix("/v2/").rpartition("/manifests/")[0]
            scope = f'realm="https://{TOKEN_HOST}/token",service="registry",scope="repository:{repository}:pull"'
            self._reply(401, b"{}", {"WWW-Authenticate": f"Bearer {scope}"})

    def _token(self, faults: dict[str, Any]) -> None:
        login = base64.b64encode(f"$oauthtoken:{self.server.options.key}".encode()).decode()
        allowed = self.headers.get("Authorization") == f"Basic {login}" or "repository%3apublic" in self.path.lower()
        status = int(faults.get("status", 200 if allowed else 401))
        self._reply(status, json.dumps({"token": TOKEN} if status == 200 else {}).encode(), {})

    def _pass_on(self, authorization: str, faults: dict[str, Any]) -> None:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.options.upstream, timeout=60)
        headers = {"Accept": self.headers.get("Accept", "*/*"), "Host": self.headers.get("Host", "")}
        if authorization:
            headers["Authorization"] = authorization
        with contextlib.closing(upstream):
            upstream.request(self.command, self.path, headers=headers)
            answer = upstream.getresponse()
            kept = ("Content-Type", "Docker-Content-Digest", "WWW-Authenticate")
            head = {name: value for name in kept if (value := answer.getheader(name))}
            # The product asks for a configuration before the import: faults are those of the layers.
            layer = "/blobs/" in self.path and self.headers.get("User-Agent") != "slipway"
            if layer and answer.status == 200 and self.command == "GET":
                self._layer(answer, head, faults)
            else:
                self._reply(answer.status, answer.read(), head, answer.getheader("Content-Length"))

    def _layer(self, answer: http.client.HTTPResponse, head: dict[str, str], faults: dict[str, Any]) -> None:
        size = int(answer.getheader("Content-Length") or 0)
        self._head(200, head, str(size))
        stop = size
        if self.server.take_truncation(int(faults.get("truncate", 0))):
            stop, self.close_connection = size // 2, True
        if faults.get("stall"):
            stop = size // 4
        while stop > 0 and (data := answer.read(min(CHUNK, stop))):
            if faults.get("rate"):
                time.sleep(len(data) / float(faults["rate"]))
            self.wfile.write(data)
            stop -= len(data)
        if faults.get("stall"):
            end = time.monotonic() + STALL_S
            while time.monotonic() < end and self.server.faults().get("stall"):
                time.sleep(0.1)
            self.close_connection = True

    def _reply(self, status: int, body: bytes, head: dict[str, str], length: str | None = None) -> None:
        self._head(status, head, length or str(len(body)))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, head: dict[str, str], length: str) -> None:
        self.server.note(f"{self.command} {self.path} {status} {self.headers.get('User-Agent', '')}")
        self.send_response(status)
        for name, value in head.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=443)
    parser.add_argument("--upstream", type=int, required=True, help="port of the docker-registry on 127.0.0.1")
    parser.add_argument("--certificate", required=True, help="PEM file with certificate and private key")
    parser.add_argument("--key", required=True, help="the password that it takes for an NGC key")
    parser.add_argument("--faults", required=True)
    parser.add_argument("--log", required=True)
    Front(parser.parse_args()).serve_forever()


if __name__ == "__main__":
    main()
