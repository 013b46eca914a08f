"""Amazon Managed Service for Prometheus: accepts remote write.

The data plane only: POST .../api/v1/remote_write is answered with 204. Series are not stored, queries are refused by
name. Debian's Prometheus cannot sign: the sender is known by its address, and the role of that instance is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

_PATH = re.compile(r"^/workspaces/(ws-[0-9a-f-]+)/api/v1/(.+)$")
_BODY_LIMIT_BYTES = 32 * 1024 * 1024


class RemoteWrite:
    """Answers remote-write requests.

    `known` returns whether a workspace exists, `refusal` why the instance at an address may not write to it.
    """

    def __init__(self, known: Callable[[str], bool], refusal: Callable[[str, str], str]) -> None:
        self._known = known
        self._refusal = refusal

    def answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
        """Answer a request of the data plane; None for any other path."""
        match = _PATH.match(environ.get("PATH_INFO", ""))
        if not match:
            return None
        workspace_id, call = match.groups()
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(min(length, _BODY_LIMIT_BYTES)) if length else b""
        status, text = self._status(environ["REQUEST_METHOD"], workspace_id, call, body)
        if status.startswith("204") and (why := self._refusal(str(environ.get("REMOTE_ADDR", "")), workspace_id)):
            status, text = "403 Forbidden", f"{why}\n".encode()
        start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
        return [text]

    def _status(self, method: str, workspace_id: str, call: str, body: bytes) -> tuple[str, bytes]:
        if not self._known(workspace_id):
            return "404 Not Found", f"no workspace {workspace_id}\n".encode()
        if call != "remote_write" or method != "POST":
            return "501 Not Implemented", b"the rehearsal's AMP accepts remote_write only; it stores nothing\n"
        if not body:
            return "400 Bad Request", b"an empty remote write\n"
        return "204 No Content", b""
