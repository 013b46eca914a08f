"""Amazon Managed Grafana's API, which moto lacks: workspaces are listed and described."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from rehearsal.cloud.grafana import workspaces

_SCOPE = re.compile(r"Credential=[^/,]+/\d{8}/([^/]+)/grafana/aws4_request")
_PATH = re.compile(r"^/workspaces(?:/(g-[0-9a-z]+))?/?$")
_SUMMARY = ("id", "name", "endpoint", "grafanaVersion", "status", "authentication", "created", "modified")


def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
    """Answer a request that is signed for Grafana; None for any other."""
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    if scope is None:
        return None
    status, body = _answer(environ["REQUEST_METHOD"], environ.get("PATH_INFO", ""), scope[1])
    text = json.dumps(body).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(text)))]
    if "reason" in body or status.startswith("404"):
        headers.append(("x-amzn-ErrorType", "ValidationException" if "reason" in body else "ResourceNotFoundException"))
    start_response(status, headers)
    return [text]


def _answer(method: str, path: str, region: str) -> tuple[str, dict[str, Any]]:
    match = _PATH.match(path)
    if match is None or method != "GET":
        message = f"{method} {path} is not emulated by the rehearsal's cloud"
        return "400 Bad Request", {"message": message, "reason": "UNKNOWN_OPERATION"}
    known = workspaces(region)
    if match[1] is None:
        return "200 OK", {"workspaces": [{key: item[key] for key in _SUMMARY} for item in known.values()]}
    if match[1] not in known:
        return "404 Not Found", {
            "message": f"{match[1]} does not exist",
            "resourceId": match[1],
            "resourceType": "workspace",
        }
    return "200 OK", {"workspace": known[match[1]]}
