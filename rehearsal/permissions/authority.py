"""Who sends each request to the embedded AWS, whether IAM allows it, and the record of what was used.

A role gets its access keys here (metadata service, Lambda, CloudFormation) or from STS; a request with such a key is
evaluated against the role's policies and, where it has one, the resource's policy. Requests with the rehearsal's own
key are not evaluated: AWS's services make them, or the site made them before the deployment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any
from xml.sax.saxutils import escape

from moto.iam.models import iam_backends
from moto.kms.models import kms_backends
from moto.s3.models import s3_backends
from moto.secretsmanager.models import secretsmanager_backends
from moto.sts.models import sts_backends

from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ACCOUNT, PARTITION
from rehearsal.permissions import actions
from rehearsal.permissions.calls import Call, read_call
from rehearsal.permissions.evaluator import Principal, Request, Statement, evaluate, statements

#: A request of these may always be sent. Source: STS API reference, GetCallerIdentity.
_ALWAYS = ("sts:GetCallerIdentity",)
_SESSION_S = 6 * 3600
acting: ContextVar[str] = ContextVar("acting", default="")
"""The access key that this thread's calls are made with; empty for the rehearsal's own."""


class Credentials(dict[str, str]):
    """The three values of a session as the SDKs' environment variables."""

    @classmethod
    def make(cls, access_key: str, secret: str, token: str) -> Credentials:
        """Return them by the variables' names."""
        return cls(AWS_ACCESS_KEY_ID=access_key, AWS_SECRET_ACCESS_KEY=secret, AWS_SESSION_TOKEN=token)

    @property
    def access_key(self) -> str:
        """The access key's id."""
        return self["AWS_ACCESS_KEY_ID"]


@dataclasses.dataclass(frozen=True)
class Denial:
    """One request that IAM refused. `elsewhere`: the policies of other roles that allow the action."""

    principal: Principal
    request: Request
    why: str
    elsewhere: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The refusal as AWS words it."""
        return (
            f"User: {self.principal.arn} is not authorized to perform: {self.request.action}"
            f" on resource: {self.request.resource} {self.why}"
        )


class Denied(ResourceFailed):
    """A request that IAM refuses; of a stack's resource it is the reason of the failure."""

    def __init__(self, denial: Denial) -> None:
        self.denial = denial
        super().__init__(denial.message)


class Authority:
    """IAM of one account and region. Safe to use from several threads."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], Credentials] = {}  # by the names of role and session
        self.denials: list[Denial] = []
        self.used: Counter[tuple[str, str]] = Counter()  # (statement, action) -> how often it allowed something
        self.seen: dict[str, set[str]] = {}  # role -> actions that it used
        self.unmapped: Counter[str] = Counter()  # action -> requests evaluated on `*` for want of a row
        self.unknown: Counter[str] = Counter()  # requests with a key that belongs to no role

    # ---- sessions ----

    def session(self, role: str, name: str) -> Credentials:
        """The credentials of a role (a name or an ARN) for a session; the same ones for the same session."""
        role = role.rpartition("/")[2]
        with self._lock:
            kept = self._kept.get((role, name))
            if kept is None or _assumed(kept.access_key) is None:  # a reset forgets the sessions
                made = sts_backends[ACCOUNT][PARTITION].assume_role(
                    self._region, name, actions.role_arn(role), "", _SESSION_S, ""
                )
                kept = Credentials.make(made.access_key_id, made.secret_access_key, made.session_token)
                self._kept[role, name] = kept
        return kept

    def principal(self, access_key: str) -> Principal | None:
        """Whose key this is; None for a key of no role."""
        session = _assumed(access_key)
        if session is None:
            return None
        return Principal(str(session.arn), actions.role_arn(str(session.role_arn).rpartition("/")[2]), ACCOUNT)

    @contextlib.contextmanager
    def as_role(self, credentials: Credentials | None) -> Iterator[None]:
        """Within it, this thread's calls are made with these credentials (None: the rehearsal's own)."""
        token = acting.set(credentials.access_key if credentials else "")
        try:
            yield
        finally:
            acting.reset(token)

    def credentials(self, access_key: str) -> Credentials | None:
        """The credentials that an access key belongs to; None for a key of no role."""
        session = _assumed(access_key)
        if session is None:
            return None
        return Credentials.make(session.access_key_id, session.secret_access_key, session.session_token)

    def current(self) -> Credentials | None:
        """The credentials that this thread acts with; None: the rehearsal's own."""
        return self.credentials(acting.get())

    # ---- decisions ----

    def allows(self, principal: Principal, action: str, resource: str = "*") -> bool:
        """Whether IAM allows an action; a refusal is no failure, as where an agent then does without."""
        return not self._judge(principal, Request(action, resource, self._context(principal)))

    def authorize(self, principal: Principal, action: str, resource: str = "*", **context: str) -> None:
        """Raise Denied if IAM refuses one action; `context` are condition keys with `__` for a colon."""
        keys = {key.replace("__", ":").lower(): (value,) for key, value in context.items()}
        self._demand(principal, Request(action, resource, {**self._context(principal), **keys}))

    def authorize_thread(self, action: str, resource: str = "*", **context: str) -> None:
        """The same for the role that this thread acts as; nothing for the rehearsal's own calls."""
        principal = self.principal(acting.get())
        if principal is not None:
            self.authorize(principal, action, resource, **context)

    def check(self, call: Call, principal: Principal) -> None:
        """Raise Denied if IAM refuses one of the actions that a call needs."""
        for request, mapped in actions.needed(call, self._context(principal)):
            if not mapped:
                self.unmapped[request.action] += 1
            if request.action not in _ALWAYS:
                self._demand(principal, request)

    def _demand(self, principal: Principal, request: Request) -> None:
        """Raise Denied with the reason, and keep the denial, if IAM refuses the request."""
        why = self._judge(principal, request)
        if not why:
            return
        denial = Denial(principal, request, why, tuple(sorted(_elsewhere(request, principal))))
        with self._lock:
            if denial.message not in {known.message for known in self.denials}:
                self.denials.append(denial)
        raise Denied(denial)

    def _judge(self, principal: Principal, request: Request) -> str:
        """The reason why IAM refuses a request; empty if it allows it, which is recorded."""
        role = _role(principal.role_arn)
        if role is None:
            return "because the role does not exist"
        boundary, resource = role.permissions_boundary_arn, self._resource_policy(request)
        decision = evaluate(
            request,
            principal,
            statements_of(role),
            boundary=_managed(boundary) if boundary else None,
            resource=resource,
            needs_resource_policy=bool(resource) and request.action.startswith(("kms:", "sts:AssumeRole")),
        )
        if decision.allowed:
            with self._lock:
                self.seen.setdefault(principal.role_arn, set()).add(request.action)
                for statement in decision.by:
                    self.used[statement.name, request.action] += 1
        return decision.why

    def _context(self, principal: Principal) -> dict[str, tuple[str, ...]]:
        return {
            "aws:principalarn": (principal.role_arn,),
            "aws:principalaccount": (principal.account,),
            "aws:requestedregion": (self._region,),
            "aws:securetransport": ("true",),  # AWS's endpoints are TLS; the embedded one is on the loopback interface
        }

    def _resource_policy(self, request: Request) -> tuple[Statement, ...]:
        """The policy of the bucket, secret, key or role that a request is about."""
        parts = request.resource.split(":", 5)
        service = parts[2] if len(parts) == 6 else ""
        text: Any = None
        if service == "s3":
            bucket = s3_backends[ACCOUNT][PARTITION].buckets.get(parts[5].partition("/")[0])
            text = bucket.policy if bucket is not None else None
        elif service == "secretsmanager":
            secrets_here = secretsmanager_backends[ACCOUNT][self._region].secrets.values()
            text = next((item.policy for item in list(secrets_here) if item.arn == request.resource), None)
        elif service == "kms":
            key = kms_backends[ACCOUNT][self._region].keys.get(parts[5].rpartition("/")[2])
            text = key.policy if key is not None else None
        elif request.action == "sts:AssumeRole":
            role = _role(request.resource)
            text = role.assume_role_policy_document if role is not None else None
        return statements(request.resource, actions.document_of(text)) if text else ()

    # ---- requests ----

    def refuse(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
        """AWS's answer to a request that IAM refuses; None for one that is allowed or not evaluated."""
        call = read_call(environ)
        if call is None:
            return None
        principal = self.principal(call.access_key)
        if principal is None:
            self.unknown[call.access_key] += 1
            return None
        try:
            self.check(call, principal)
        except Denied as error:
            return _answer(call, str(error), environ, start_response)
        return None


# ---- moto's records of roles and policies ----


def _assumed(access_key: str) -> Any:
    """The session of STS with this key; None for any other key."""
    return sts_backends[ACCOUNT][PARTITION].get_assumed_role_from_access_key(access_key) if access_key else None


def _role(arn: str) -> Any:
    roles = iam_backends[ACCOUNT][PARTITION].roles.values()
    return next((role for role in list(roles) if role.arn == arn), None)


def statements_of(role: Any) -> list[Statement]:
    """Every statement of a role's inline and managed policies."""
    held = [
        item
        for name, text in list(role.policies.items())
        for item in statements(f"{role.name}/{name}", actions.document_of(text))
    ]
    return held + [item for arn in list(role.managed_policies) for item in _managed(arn)]


def _managed(arn: str) -> tuple[Statement, ...]:
    policy = iam_backends[ACCOUNT][PARTITION].managed_policies.get(arn)
    if policy is None:
        return ()
    default = next(item for item in policy.versions if item.version_id == policy.default_version_id)
    return statements(arn, actions.document_of(default.document))


def _elsewhere(request: Request, principal: Principal) -> Iterator[str]:
    """The statements of other roles that allow the same action on the same resource."""
    for role in list(iam_backends[ACCOUNT][PARTITION].roles.values()):
        if role.arn == principal.role_arn:
            continue
        other = Principal(role.arn, role.arn, ACCOUNT)
        decision = evaluate(request, other, statements_of(role))
        yield from (f"{item.name} of {role.name}" for item in decision.by if decision.allowed)


# ---- answers ----


def _answer(
    call: Call, message: str, environ: Mapping[str, Any], start_response: Callable[..., Any]
) -> Iterable[bytes]:
    """A refusal in the protocol of the request. Source: the error formats in botocore's parsers."""
    body = {"__type": "AccessDeniedException", "message": message}
    headers, status = [("x-amzn-ErrorType", "AccessDeniedException")], "403 Forbidden"
    if call.service in ("s3", "ec2") or "form-urlencoded" in environ.get("CONTENT_TYPE", ""):
        kind, text = "text/xml", _xml_error(call.service, escape(message))
    else:
        kind, text = "application/x-amz-json-1.1", json.dumps(body).encode()
        status = "400 Bad Request" if "HTTP_X_AMZ_TARGET" in environ else status
    start_response(status, [*headers, ("Content-Type", kind), ("Content-Length", str(len(text)))])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [text]


def _xml_error(service: str, message: str) -> bytes:
    if service == "s3":
        return f"<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>".encode()
    if service == "ec2":
        text = f"You are not authorized to perform this operation. {message}"
        error = f"<Code>UnauthorizedOperation</Code><Message>{text}</Message>"
        return f"<Response><Errors><Error>{error}</Error></Errors><RequestID>rehearsal</RequestID></Response>".encode()
    error = f"<Error><Type>Sender</Type><Code>AccessDenied</Code><Message>{message}</Message></Error>"
    return f"<ErrorResponse>{error}<RequestId>rehearsal</RequestId></ErrorResponse>".encode()
