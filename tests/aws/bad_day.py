"""The embedded AWS on a bad day: chosen operations are denied, slow, silent, throttled or broken.

An operation is named as boto3 and AWS's API spell it: ``ec2:DescribeVpcs``, ``service-quotas:ListServiceQuotas``,
``s3:HeadBucket``; ``ec2:*`` is every operation of a service, ``*`` every operation of all. A request is recognised as
AWS does it: the service from the credential scope of the signature, the operation from ``Action``, ``X-Amz-Target`` or,
for REST services, the method and path of botocore's service model (S3 in path style). Errors have the form and the
codes of the service; waiting happens here, so that a client's own time-outs are what is tried.
"""

from __future__ import annotations

import functools
import io
import json
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

_SCOPE = re.compile(r"Credential=[^/,]+/\d{8}/[^/]+/([^/]+)/aws4_request")
_RPC_PATH = re.compile(r"^/service/[^/]+/operation/(\w+)$")
_LONGEST_WAIT_S = 120.0  # nothing waits longer, whatever was asked for
_EXCEPTION_STATUS = {"ec2": 403, "query": 403, "json": 400, "rest-json": 403, "s3": 403}

# Codes and texts as the services answer them. Source: EC2, S3 and common errors of the API references.
_DENIED = {
    "ec2": ("UnauthorizedOperation", "You are not authorized to perform this operation."),
    "query": ("AccessDenied", "User is not authorized to perform: {operation}"),
    "json": ("AccessDeniedException", "User is not authorized to perform: {operation}"),
    "rest-json": ("AccessDeniedException", "User is not authorized to perform: {operation}"),
    "s3": ("AccessDenied", "Access Denied"),
}
_THROTTLED = {
    "ec2": (503, "RequestLimitExceeded", "Request limit exceeded."),
    "query": (400, "Throttling", "Rate exceeded"),
    "json": (400, "ThrottlingException", "Rate exceeded"),
    "rest-json": (429, "ThrottlingException", "Rate exceeded"),
    "s3": (503, "SlowDown", "Please reduce your request rate."),
}


@dataclass
class Misbehaviour:
    """What happens to one operation. Undone by ``stop`` or at the end of a ``with`` block.

    ``delay_s`` seconds pass first; then ``hang`` never answers, ``error`` is (HTTP status, code, message), and neither
    lets the request through. ``times``: only so many requests are treated; None: all.
    """

    operation: str
    deny: bool = False
    throttle: bool = False
    hang: bool = False
    delay_s: float = 0.0
    error: tuple[int, str, str] | None = None
    times: int | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    requests: int = 0

    def stop(self) -> None:
        """Behave again; requests that wait here go on."""
        self.stopped.set()

    def __enter__(self) -> Misbehaviour:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class BadDay:
    """Holds the misbehaviours of one embedded AWS and answers in their stead."""

    def __init__(self) -> None:
        self._known: list[Misbehaviour] = []
        self._lock = threading.Lock()

    def add(self, misbehaviour: Misbehaviour) -> Misbehaviour:
        """From now on; the latest one for an operation counts. Raises ValueError for an operation AWS has not."""
        _check_name(misbehaviour.operation)
        with self._lock:
            self._known.append(misbehaviour)
        return misbehaviour

    def clear(self) -> None:
        """Behave again in everything."""
        with self._lock:
            known, self._known = self._known, []
        for misbehaviour in known:
            misbehaviour.stop()

    def answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
        """The bad answer, after its delay; None: the request is treated as on any other day."""
        with self._lock:
            known = [item for item in reversed(self._known) if not item.stopped.is_set()]
        if not known:
            return None
        request = _Request(environ)
        found = next((item for item in known if request.matches(item.operation)), None)
        if found is None or not self._counts(found):
            return None
        found.stopped.wait(_LONGEST_WAIT_S if found.hang else min(found.delay_s, _LONGEST_WAIT_S))
        error = None if found.stopped.is_set() else _error(found, request)
        return None if error is None else request.refuse(start_response, *error)

    def _counts(self, misbehaviour: Misbehaviour) -> bool:
        with self._lock:
            misbehaviour.requests += 1
            return misbehaviour.times is None or misbehaviour.requests <= misbehaviour.times


def _error(misbehaviour: Misbehaviour, request: _Request) -> tuple[int, str, str] | None:
    protocol = request.protocol
    if misbehaviour.deny:
        code, message = _DENIED[protocol]
        return _EXCEPTION_STATUS[protocol], code, message.format(operation=misbehaviour.operation)
    if misbehaviour.throttle:
        return _THROTTLED[protocol]
    if misbehaviour.hang:  # the longest wait is over
        return 503, "ServiceUnavailable", "The service is unavailable. Please try again."
    return misbehaviour.error


class _Request:
    """One request, recognised; its body can still be read by who comes next."""

    def __init__(self, environ: dict[str, Any]) -> None:
        self.method = environ.get("REQUEST_METHOD", "GET")
        self.path = environ.get("PATH_INFO", "/")
        self.query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        self.target = environ.get("HTTP_X_AMZ_TARGET", "")
        form = "x-www-form-urlencoded" in environ.get("CONTENT_TYPE", "")
        self.action = _form_action(environ) if form else ""
        credential = environ.get("HTTP_AUTHORIZATION") or "Credential=" + self.query.get("X-Amz-Credential", [""])[0]
        scope = _SCOPE.search(unquote(credential))
        self.scope = scope[1] if scope else ""

    @property
    def protocol(self) -> str:
        """How errors have to look."""
        if self.target:
            return "json"
        if self.action:
            return "ec2" if self.scope == "ec2" else "query"
        return "s3" if self.scope == "s3" else "rest-json"

    def matches(self, name: str) -> bool:
        if name == "*":
            return bool(self.scope)
        service, operation = name.split(":")
        model = _model(service)
        if self.scope != model.signing_name:
            return False
        return operation in ("*", self._operation(service))

    def _operation(self, service: str) -> str:
        rpc = _RPC_PATH.match(self.path)
        if rpc:
            return str(rpc[1])
        return self.action or self.target.rpartition(".")[2] or _rest_operation(service, self)

    def refuse(self, start_response: Callable[..., Any], status: int, code: str, message: str) -> Iterable[bytes]:
        body, kind = _body(self.protocol, code, message)
        if self.method == "HEAD":  # no body, and so no code: boto3 reports the status in its place
            body = b""
        headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("x-amzn-RequestId", "bad-day")]
        if self.protocol == "rest-json":
            headers.append(("x-amzn-ErrorType", code))
        start_response(f"{status} {code}", headers)
        return [body]


def _form_action(environ: dict[str, Any]) -> str:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body: bytes = environ["wsgi.input"].read(length) if length else b""
    environ["wsgi.input"] = io.BytesIO(body)  # the next reader gets it from the beginning
    return parse_qs(body.decode("utf-8", "replace")).get("Action", [""])[0]


def _body(protocol: str, code: str, message: str) -> tuple[bytes, str]:
    error = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if protocol == "ec2":
        text = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>bad-day</RequestID></Response>"
    elif protocol == "query":
        text = f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error><RequestId>bad-day</RequestId></ErrorResponse>"
    elif protocol == "s3":
        text = f'<?xml version="1.0" encoding="UTF-8"?><Error>{error}<RequestId>bad-day</RequestId></Error>'
    else:
        return json.dumps({"__type": code, "message": message}).encode(), "application/x-amz-json-1.1"
    return text.encode(), "text/xml"


@functools.lru_cache(maxsize=64)
def _model(service: str) -> Any:
    from botocore.loaders import create_loader
    from botocore.model import ServiceModel

    return ServiceModel(create_loader().load_service_model(service, "service-2"), service)


def _check_name(name: str) -> None:
    if name == "*":
        return
    service, _, operation = name.partition(":")
    if operation != "*" and operation not in _model(service).operation_names:
        raise ValueError(f"{name}: {service} has no such operation")


@functools.lru_cache(maxsize=64)
def _routes(service: str) -> list[tuple[str, str, re.Pattern[str], dict[str, str]]]:
    """(operation, method, path, query that must be there), the most specific first."""
    model, routes = _model(service), []
    for name in model.operation_names:
        http = model.operation_model(name).http
        path, _, query = http["requestUri"].partition("?")
        needed = {key: values[0] for key, values in parse_qs(query, keep_blank_values=True).items()}
        routes.append((name, http["method"], _path_pattern(path), needed))
    return sorted(routes, key=lambda route: (-len(route[3]), -_literal(route[2])))


def _path_pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"(\{[^}]+\})", path.rstrip("/"))
    texts = [(".+" if part.endswith("+}") else "[^/]+") if part.startswith("{") else re.escape(part) for part in parts]
    return re.compile("".join(texts) + "/?")


def _literal(pattern: re.Pattern[str]) -> int:
    return len(pattern.pattern.replace("[^/]+", "").replace(".+", ""))


def _rest_operation(service: str, request: _Request) -> str:
    for name, method, path, needed in _routes(service):
        has_query = all(key in request.query and value in ("", request.query[key][0]) for key, value in needed.items())
        if method == request.method and has_query and path.fullmatch(request.path):
            return name
    return ""
