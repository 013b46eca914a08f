"""Amazon Managed Grafana's API, which moto lacks: workspaces are listed and described. No Grafana server runs.

They are kept on moto's backend of Managed Prometheus, so that a reset forgets both.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from moto.amp.models import amp_backends

from rehearsal.cloud.model import ACCOUNT

_SCOPE = re.compile(r"Credential=[^/,]+/\d{8}/([^/]+)/grafana/aws4_request")
_PATH = re.compile(r"^/workspaces(?:/(g-[0-9a-z]+))?/?$")


def workspaces(region: str) -> dict[str, dict[str, Any]]:
    """The workspaces of a region by id, in the shape of DescribeWorkspace."""
    kept: dict[str, dict[str, Any]] = amp_backends[ACCOUNT][region].__dict__.setdefault("grafana_workspaces", {})
    return kept


def add_workspace(region: str, workspace_id: str, name: str, version: str = "10.4") -> dict[str, Any]:
    """Keep a workspace; returns its description."""
    now = time.time()
    made = {
        "id": workspace_id,
        "name": name,
        "endpoint": f"{workspace_id}.grafana-workspace.{region}.amazonaws.com",
        "grafanaVersion": version,
        "status": "ACTIVE",
        "authentication": {"providers": ["AWS_SSO"], "samlConfigurationStatus": "NOT_CONFIGURED"},
        "accountAccessType": "CURRENT_ACCOUNT",
        "permissionType": "CUSTOMER_MANAGED",
        "dataSources": [],
        "created": now,
        "modified": now,
    }
    workspaces(region)[workspace_id] = made
    return made


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
