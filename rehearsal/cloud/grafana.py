"""Workspaces of Amazon Managed Grafana, which moto lacks. No Grafana server runs.

They are kept on moto's backend of Managed Prometheus, so that a reset forgets both.
"""

from __future__ import annotations

import time
from typing import Any

from moto.amp.models import amp_backends

from rehearsal.cloud_model import ACCOUNT


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
