"""Service Quotas: moto has those of VPC only, with values that cannot be changed.

Values are those of a new account until ``set_quota`` says otherwise. Source: AWS General Reference, pages "Service
endpoints and quotas" of EC2, EBS, VPC, FSx, Managed Prometheus and Managed Grafana, November 2026 (the vCPU quotas of P
and G are 0 in a new account).
"""

from __future__ import annotations

import json
from typing import Any

from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend, servicequotas_backends
from moto.servicequotas.resources.default_quotas.vpc import VPC_DEFAULT_QUOTAS
from moto.servicequotas.responses import ServiceQuotasResponse

from rehearsal.cloud_model import ACCOUNT

_NAMES = {
    "ec2": "Amazon Elastic Compute Cloud (Amazon EC2)",
    "ebs": "Amazon Elastic Block Store (Amazon EBS)",
    "fsx": "Amazon FSx",
    "aps": "Amazon Managed Service for Prometheus",
    "grafana": "Amazon Managed Grafana",
    "vpc": "Amazon Virtual Private Cloud (Amazon VPC)",
}

# (service, code, name, value of a new account, unit)
DEFAULTS: list[tuple[str, str, str, float, str]] = [
    ("ec2", "L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 5.0, "None"),
    ("ec2", "L-DB2E81BA", "Running On-Demand G and VT instances", 0.0, "None"),
    ("ec2", "L-417A185B", "Running On-Demand P instances", 0.0, "None"),
    ("ec2", "L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 5.0, "None"),
    ("ec2", "L-3819A6DF", "All G and VT Spot Instance Requests", 0.0, "None"),
    ("ec2", "L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", 0.0, "None"),
    ("ec2", "L-C4BD4855", "All P5 Spot Instance Requests", 0.0, "None"),
    ("ec2", "L-0263D0A3", "EC2-VPC Elastic IPs", 5.0, "None"),
    ("fsx", "L-C8640C82", "Lustre Persistent_1 storage capacity", 100800.0, "None"),
    ("fsx", "L-9AFA1F09", "Lustre Persistent_1 file systems", 100.0, "None"),
    ("fsx", "L-8F1B9C74", "Lustre Persistent_2 storage capacity", 100800.0, "None"),
    ("fsx", "L-FD6F2F22", "Lustre Persistent_2 file systems", 100.0, "None"),
    ("fsx", "L-AD2FC696", "Lustre Scratch storage capacity", 100800.0, "None"),
    ("fsx", "L-C48231E5", "Lustre Scratch file systems", 100.0, "None"),
    ("aps", "L-8873DB23", "Workspaces per region per account", 25.0, "None"),
    ("grafana", "L-2C2D5119", "Number of workspaces", 5.0, "None"),
    ("ebs", "L-7A658B76", "Storage for General Purpose SSD (gp3) volumes, in TiB", 50.0, "None"),
]


def _shape(region: str, service: str, code: str, name: str, value: float, unit: str) -> dict[str, Any]:
    return {
        "ServiceCode": service,
        "ServiceName": _NAMES.get(service, service),
        "QuotaArn": f"arn:aws:servicequotas:{region}:{ACCOUNT}:{service}/{code}",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": value,
        "Unit": unit,
        "Adjustable": True,
        "GlobalQuota": False,
    }


def _defaults(region: str) -> dict[tuple[str, str], dict[str, Any]]:
    own = {(row[0], row[1]): _shape(region, *row) for row in DEFAULTS}
    vpc = [
        _shape(region, "vpc", row["QuotaCode"], row["QuotaName"], row["Value"], "None") for row in VPC_DEFAULT_QUOTAS
    ]
    return {**{("vpc", row["QuotaCode"]): row for row in vpc}, **own}


def _applied(backend: ServiceQuotasBackend) -> dict[tuple[str, str], float]:
    """What was granted, kept on moto's backend so that a reset forgets it."""
    kept: dict[tuple[str, str], float] = backend.__dict__.setdefault("rehearsal_applied", {})
    return kept


def set_quota(region: str, service: str, code: str, value: float) -> None:
    """Grant a quota. Raises KeyError for one that is not known here."""
    if (service, code) not in _defaults(region):
        raise KeyError(f"{service} {code}")
    _applied(servicequotas_backends[ACCOUNT][region])[service, code] = value


def _quotas(backend: ServiceQuotasBackend, service: str, *, applied: bool) -> list[dict[str, Any]]:
    granted = _applied(backend) if applied else {}
    known = _defaults(backend.region_name)
    found = [{**row, "Value": granted.get(key, row["Value"])} for key, row in known.items() if key[0] == service]
    if not found:
        raise NoSuchResource
    return found


def _one(backend: ServiceQuotasBackend, parameters: dict[str, Any], *, applied: bool) -> str:
    service, code = str(parameters.get("ServiceCode")), str(parameters.get("QuotaCode"))
    for row in _quotas(backend, service, applied=applied):
        if row["QuotaCode"] == code:
            return json.dumps({"Quota": row})
    raise NoSuchResource


def _page(rows: list[dict[str, Any]], parameters: dict[str, Any]) -> str:
    start = int(parameters.get("NextToken") or 0)
    end = start + int(parameters.get("MaxResults") or 100)
    more = {"NextToken": str(end)} if end < len(rows) else {}
    return json.dumps({"Quotas": rows[start:end], **more})


def install_quotas() -> None:
    """Put the four operations in the place of moto's two."""

    def get_quota(self: ServiceQuotasResponse) -> str:
        return _one(self.backend, json.loads(self.body), applied=True)

    def get_default(self: ServiceQuotasResponse) -> str:
        return _one(self.backend, json.loads(self.body), applied=False)

    def list_quotas(self: ServiceQuotasResponse) -> str:
        parameters = json.loads(self.body)
        return _page(_quotas(self.backend, str(parameters.get("ServiceCode")), applied=True), parameters)

    def list_defaults(self: ServiceQuotasResponse) -> str:
        parameters = json.loads(self.body)
        return _page(_quotas(self.backend, str(parameters.get("ServiceCode")), applied=False), parameters)

    ServiceQuotasResponse.get_service_quota = get_quota
    ServiceQuotasResponse.get_aws_default_service_quota = get_default
    ServiceQuotasResponse.list_service_quotas = list_quotas
    ServiceQuotasResponse.list_aws_default_service_quotas = list_defaults
