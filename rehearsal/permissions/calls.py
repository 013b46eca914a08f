"""What a request to the embedded AWS asks for: service, operation, parameters, and with which access key.

Read from the request as AWS's protocols write it, by botocore's service models: query (Action=...), JSON
(X-Amz-Target), REST (method and path). Source of the key: "Authentication" of the SigV4 documentation.
"""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

import botocore.session
from botocore.model import OperationModel, ServiceModel

_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/\d+/([^/]+)/([^/]+)/aws4_request")
_BODY_LIMIT_BYTES = 2_000_000  # what is larger is an object of S3, whose parameters are in its path

#: The signing name of a request -> botocore's name of the service, where they differ.
_SERVICES = {
    "monitoring": "cloudwatch",
    "aps": "amp",
    "elasticfilesystem": "efs",
    "states": "stepfunctions",
    "s3express": "s3",
    "tagging": "resourcegroupstaggingapi",
    "servicequotas": "service-quotas",
    "sso": "sso-admin",
}


@dataclass(frozen=True)
class Call:
    """One request. `service` is botocore's name, `parameters` are named as botocore names them."""

    service: str
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    access_key: str = ""
    region: str = ""
    address: str = ""

    def get(self, name: str) -> str:
        """A parameter as text; empty when it is absent."""
        value = self.parameters.get(name, "")
        return value if isinstance(value, str) else json.dumps(value) if isinstance(value, (dict, list)) else str(value)

    def all(self, name: str) -> list[str]:
        """The values of a list parameter, or of one scalar."""
        value = self.parameters.get(name)
        return [] if value is None else [str(item) for item in value] if isinstance(value, list) else [str(value)]


def access_key_of(authorization: str) -> str:
    """The access key of a request's Authorization header; empty for one that is not signed."""
    match = _CREDENTIAL.search(authorization)
    return match[1] if match else ""


def read_call(environ: dict[str, Any]) -> Call | None:
    """The call that a WSGI request is; None when it is not signed. The body can be read again afterwards."""
    query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    signature = environ.get("HTTP_AUTHORIZATION", "")
    match = _CREDENTIAL.search(signature) or _CREDENTIAL.search(f"Credential={query.get('X-Amz-Credential', '')}")
    if match is None:
        return None
    access_key, region, signing_name = match.groups()
    service = _SERVICES.get(signing_name, signing_name)
    operation, parameters = _operation(service, environ, query)
    return Call(service, operation, parameters, access_key, region, str(environ.get("REMOTE_ADDR", "")))


def _operation(service: str, environ: dict[str, Any], query: dict[str, str]) -> tuple[str, dict[str, Any]]:
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        return target.rpartition(".")[2], _json(_body(environ))
    path = str(environ.get("PATH_INFO", "/"))
    if "form-urlencoded" in environ.get("CONTENT_TYPE", "") or "Action" in query:
        form = _form(_body(environ)) | query
        return form.pop("Action", ""), _nested(form)
    if service == "s3":
        path = _with_bucket(path, str(environ.get("HTTP_HOST", "")))
    copies = "HTTP_X_AMZ_COPY_SOURCE" in environ
    for operation, pattern, fixed in _routes(service, environ["REQUEST_METHOD"]):
        found = pattern.fullmatch(path)
        if found and _fits(fixed, query) and (service != "s3" or copies is ("Copy" in operation.name)):
            parts = {name: unquote(text) for name, text in found.groupdict().items()}
            body = {"CopySource": unquote(environ["HTTP_X_AMZ_COPY_SOURCE"])} if copies else {}
            body = body if service == "s3" else _json(_body(environ))
            return operation.name, {**body, **_query_members(operation, query), **_named(operation, parts)}
    return "", {}


def _with_bucket(path: str, host: str) -> str:
    """Path style: the CDK CLI and browsers put the bucket in front of the host's name."""
    bucket, _, rest = host.partition(".")
    return f"/{bucket}{path}" if rest.partition(":")[0] == "localhost" else path


def _fits(fixed: Mapping[str, str], query: Mapping[str, str]) -> bool:
    return all(key in query and value in ("", query[key]) for key, value in fixed.items())


def _body(environ: dict[str, Any]) -> bytes:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if not length or length > _BODY_LIMIT_BYTES:
        return b""
    text: bytes = environ["wsgi.input"].read(length)
    environ["wsgi.input"] = io.BytesIO(text)
    return text


def _json(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body) if body else {}
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _form(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def _nested(form: Mapping[str, str]) -> dict[str, Any]:
    """`Tags.member.1.Key` as {"Tags": [{"Key": ...}]}: lists by number, structures by name."""
    tree: dict[str, Any] = {}
    for name, value in form.items():
        parts = [part for part in name.split(".") if part not in ("member", "entry")]
        node = tree
        for part in parts[:-1]:
            inner = node.get(part)
            node[part] = node = inner if isinstance(inner, dict) else {}
        node[parts[-1]] = value
    return {name: _listed(value) for name, value in tree.items()}


def _listed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    inner = {name: _listed(value) for name, value in node.items()}
    if inner and all(name.isdigit() for name in inner):
        return [inner[name] for name in sorted(inner, key=int)]
    return inner


# ---- botocore's models ----


@functools.lru_cache(maxsize=1)
def _session() -> botocore.session.Session:
    return botocore.session.Session()


@functools.lru_cache(maxsize=64)
def _model(service: str) -> ServiceModel:
    return _session().get_service_model(service)


@functools.lru_cache(maxsize=256)
def _routes(service: str, method: str) -> tuple[tuple[OperationModel, re.Pattern[str], dict[str, str]], ...]:
    """(operation, pattern of the path, fixed query) of a REST service; those with the most fixed parts are first."""
    routes = sorted(_all_routes(service, method), key=lambda route: (-len(route[2]), route[3], -len(route[1].pattern)))
    return tuple(route[:3] for route in routes)


def _all_routes(service: str, method: str) -> Iterator[tuple[OperationModel, re.Pattern[str], dict[str, str], int]]:
    model = _model(service)
    for name in model.operation_names:
        operation = model.operation_model(name)
        if operation.http.get("method") != method:
            continue
        path, _, query = str(operation.http["requestUri"]).partition("?")
        fixed = dict(parse_qsl(query, keep_blank_values=True)) | dict.fromkeys(_required_query(operation), "")
        yield operation, re.compile(_pattern(path, service)), fixed, path.count("{")


def _pattern(path: str, service: str) -> str:
    if service == "s3" and not path.startswith("/{Bucket}") and path != "/":
        path = "/{Bucket}" + path  # botocore takes the bucket out of its newest models' paths
    parts = re.split(r"(\{[^}]+\})", path.rstrip("/") or "/")
    return "".join(_placeholder(part) if part.startswith("{") else re.escape(part) for part in parts) + "/?"


def _placeholder(part: str) -> str:
    name = part.strip("{}")
    return f"(?P<{name.rstrip('+')}>.+)" if name.endswith("+") else f"(?P<{name}>[^/]+)"


def _named(operation: OperationModel, parts: Mapping[str, str]) -> dict[str, str]:
    """Parts of the path by the members' own names."""
    shape = operation.input_shape
    places = {member.serialization.get("name", name): name for name, member in shape.members.items()} if shape else {}
    return {places.get(name, name): value for name, value in parts.items()}


def _required_query(operation: OperationModel) -> list[str]:
    shape = operation.input_shape
    members = [shape.members[name].serialization for name in shape.required_members] if shape else []
    return [str(member["name"]) for member in members if member.get("location") == "querystring"]


def _query_members(operation: OperationModel, query: Mapping[str, str]) -> dict[str, str]:
    shape = operation.input_shape
    members = shape.members.items() if shape else ()
    return {
        name: query[member.serialization["name"]]
        for name, member in members
        if member.serialization.get("location") == "querystring" and member.serialization.get("name") in query
    }
