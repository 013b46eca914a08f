"""The engine's side of Slurm's power saving: a Unix socket that the head node's resume and suspend programs ask.

One connection is one request: a line of JSON `{"action": "resume" | "suspend", "nodes": [...]}`, answered by a line of
JSON that gives each node its address or says why it got none: `{"nodes": {"NODE": {"address": "10.0.0.5"}}}`,
`{"nodes": {"NODE": {"error": ...}}}`; `{"fault": ...}` for what is no request.
A socket in the file system reaches over the border between two network namespaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import threading
from collections.abc import Callable
from pathlib import Path

Answer = dict[str, dict[str, str]]
#: handler(action, names of nodes) -> the answer for each node.
Handler = Callable[[str, "list[str]"], Answer]

ACTIONS = ("resume", "suspend")
REQUEST_TIMEOUT_S = 5.0
REQUEST_BYTES = 65_536
_STOP_WAIT_S = 2.0


class PowerSocket:
    """Listens at `path` for Slurm's account alone; every request is served in a thread of its own."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self._handler = handler
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        account = pwd.getpwnam("slurm")
        os.chown(path, account.pw_uid, account.pw_gid)
        path.chmod(0o600)
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, name="power-socket", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listen no more; safe to call twice."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a connection
        self._socket.close()
        self._thread.join(_STOP_WAIT_S)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), name="power-request", daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(REQUEST_TIMEOUT_S)
            connection.sendall((json.dumps(self._answer_to(_line(connection))) + "\n").encode())

    def _answer_to(self, line: bytes) -> object:
        try:
            request = json.loads(line)
            action, nodes = str(request["action"]), [str(node) for node in request["nodes"]]
        except (ValueError, KeyError, TypeError):
            return {"fault": f"no request of the power saving: {line[:200].decode(errors='replace')}"}
        if action not in ACTIONS:
            return {"fault": f"action {action}: neither {' nor '.join(ACTIONS)}"}
        return {"nodes": self._handler(action, nodes)}


def _line(connection: socket.socket) -> bytes:
    """What is sent up to the first newline, at most REQUEST_BYTES."""
    data = b""
    while b"\n" not in data and len(data) < REQUEST_BYTES and (chunk := connection.recv(4096)):
        data += chunk
    return data
