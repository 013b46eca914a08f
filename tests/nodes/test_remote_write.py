"""A real Prometheus whose samples are refused: it stays ready, and only its counters say so."""

from __future__ import annotations

import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodes.metrics import remote_write
from tests.ports import free_ports

PATIENCE_S = 60.0
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: prometheus
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
remote_write:
  - url: http://127.0.0.1:{server}/api/v1/remote_write
"""


class Receiver(http.server.BaseHTTPRequestHandler):
    """Managed Prometheus at a limit of its workspace."""

    code = 400

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b"series limit of 10000000 exceeded" if self.code >= 400 else b""
        self.send_response(self.code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def sending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Prometheus that sends to the receiver; its address."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs Debian's package prometheus")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = free_ports(1)
    (tmp_path / "prometheus.yml").write_text(CONFIG.format(port=port, server=server.server_port))
    (tmp_path / "node.env").write_text("AMP_REMOTE_WRITE_URL=https://aps.example/api/v1/remote_write\n")
    monkeypatch.setattr(remote_write.env, "NODE_ENV", tmp_path / "node.env")
    monkeypatch.setattr(remote_write, "API", f"http://127.0.0.1:{port}/api/v1/query")
    command = [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=log, stdout=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)
        server.shutdown()


def read_until(key: str) -> dict[str, Any]:
    until = time.monotonic() + PATIENCE_S
    while True:
        found = remote_write.read() or {}
        if found.get(key):
            return found
        assert time.monotonic() < until, found
        time.sleep(0.5)


def test_samples_that_are_refused_are_counted_while_prometheus_is_ready(
    sending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_until("refused")
    assert found["refused"] > 0
    assert urllib.request.urlopen(f"{sending}/-/ready", timeout=60).status == 200  # noqa: S310  (loopback)
    why = remote_write.refusal_in((tmp_path / "log").read_text())
    assert "400" in why or "series" in why
    assert "series limit of 10000000 exceeded" in why
    assert remote_write.main([]) == 0
    assert json.loads(capsys.readouterr().out)["refused"] >= found["refused"] // 2
    monkeypatch.setattr(remote_write, "LOG", tmp_path / "slipway/remote-write.log")
    assert remote_write.main(["--record"]) == 0
    kind, refused, *_ = (tmp_path / "slipway/remote-write.log").read_text().split()
    assert kind == "remote_write"
    assert int(refused) > 0


def test_samples_that_are_taken_are_no_fault(sending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Receiver, "code", 200)
    # The first batches may have been refused before the receiver changed: what counts is what it takes now.
    assert read_until("sent")["sent"] > 0


def test_a_node_that_sends_nothing_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "node.env").write_text("AMP_REMOTE_WRITE_URL=\n")
    monkeypatch.setattr(remote_write.env, "NODE_ENV", tmp_path / "node.env")
    assert remote_write.read() is None
    assert remote_write.main(["--record"]) == 0


def test_a_prometheus_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node.env").write_text("AMP_REMOTE_WRITE_URL=https://aps.example\n")
    monkeypatch.setattr(remote_write.env, "NODE_ENV", tmp_path / "node.env")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        monkeypatch.setattr(remote_write, "API", f"http://127.0.0.1:{taken.getsockname()[1]}/api/v1/query")
        assert "Prometheus does not say what it sent" in (remote_write.read() or {})["error"]
        assert remote_write.main([]) == 1
    assert "Connection refused" in capsys.readouterr().err


def test_the_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_write, "LOG", tmp_path / "log")
    monkeypatch.setattr(remote_write, "LOG_BYTES", 100)
    for _ in range(20):
        remote_write.record({"refused": 0, "retried": 0, "sent": 1})
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 400
