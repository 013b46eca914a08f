"""EC2's instance metadata service: who an instance is, and the credentials of its role.

Version 2 alone, as ParallelCluster sets it up: a GET without a token is refused. The instance is known by its address,
as on AWS. Source: EC2 user guide, "Instance metadata categories" and "Retrieve security credentials from instance
metadata". Answered are the categories that the AWS SDKs and Slipway ask for.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from rehearsal.permissions.authority import Credentials

_TOKEN_PATH = "/latest/api/token"  # noqa: S105 (a path)
_TTL = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
_ROOT = "/latest/meta-data/"
_ROLES = "iam/security-credentials/"
_LIFETIME = timedelta(hours=6)


class Identity(NamedTuple):
    """One instance, its role's name and credentials."""

    instance_id: str
    instance_type: str
    zone: str
    address: str
    role: str
    credentials: Credentials


class _Quiet(WSGIRequestHandler):  # type: ignore[misc]  # werkzeug has no types here
    def log(self, type: str, message: str, *args: Any) -> None:
        """Write nothing: each AWS command asks several times."""


class MetadataService:
    """Answers on port 80 of every address of this network namespace; `who` finds an instance by its address."""

    def __init__(self, who: Callable[[str], Identity | None]) -> None:
        self._who = who
        self._tokens: set[str] = set()
        self._server: BaseWSGIServer | None = None

    def start(self) -> None:
        """Listen."""
        self._server = make_server("0.0.0.0", 80, self.answer, threaded=True, request_handler=_Quiet)  # noqa: S104
        threading.Thread(target=self._server.serve_forever, name="metadata", daemon=True).start()

    def stop(self) -> None:
        """Stop listening; safe to call twice."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        status, text = self._status(environ)
        headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))]
        if environ["REQUEST_METHOD"] == "PUT":  # AWS's SDK for Go reads it: Prometheus signs with that
            headers.append((_TTL, environ.get(f"HTTP_{_TTL}".upper().replace("-", "_"), "")))
        start_response(status, headers)
        return [text.encode()]

    def _status(self, environ: dict[str, Any]) -> tuple[str, str]:
        method, path = environ["REQUEST_METHOD"], str(environ.get("PATH_INFO", ""))
        if method == "PUT" and path == _TOKEN_PATH and "HTTP_X_AWS_EC2_METADATA_TOKEN_TTL_SECONDS" in environ:
            token = secrets.token_urlsafe(40)
            self._tokens.add(token)
            return "200 OK", token
        if environ.get("HTTP_X_AWS_EC2_METADATA_TOKEN") not in self._tokens:
            return "401 Unauthorized", ""
        identity = self._who(str(environ.get("REMOTE_ADDR", "")))
        text = None if identity is None else _category(identity, path.removeprefix(_ROOT))
        return ("404 Not Found", "") if text is None else ("200 OK", text)


def _category(identity: Identity, name: str) -> str | None:
    facts = {
        "instance-id": identity.instance_id,
        "instance-type": identity.instance_type,
        "local-ipv4": identity.address,
        "placement/availability-zone": identity.zone,
        "placement/region": identity.zone[:-1],
        _ROLES: identity.role,
        _ROLES.rstrip("/"): identity.role,
        f"{_ROLES}{identity.role}": json.dumps(_credentials(identity.credentials)),
    }
    return facts.get(name)


def _credentials(credentials: Credentials) -> dict[str, str]:
    now = datetime.now(UTC).replace(microsecond=0)
    form = "%Y-%m-%dT%H:%M:%SZ"
    return {
        "Code": "Success",
        "LastUpdated": now.strftime(form),
        "Type": "AWS-HMAC",
        "AccessKeyId": credentials["AWS_ACCESS_KEY_ID"],
        "SecretAccessKey": credentials["AWS_SECRET_ACCESS_KEY"],
        "Token": credentials["AWS_SESSION_TOKEN"],
        "Expiration": (now + _LIFETIME).strftime(form),
    }
