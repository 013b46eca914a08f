"""Calls to AWS: each API call is made once, in parallel with the others, and bounded in time.

`Aws.start(service, operation, **parameters)` begins a call and returns a `Pending`; its `result()` waits. A call that
is started twice is made once. Lists are complete: every page of a paginated operation is read.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import json
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 8
ATTEMPTS = 2  # one retry: a check should take seconds, not minutes
CALL_TIMEOUT_S = 30  # of one call with its retry and all its pages: a server that sends a byte a second never times out
LONGEST_REASON = 300  # characters of an error that is not AWS's own, such as a proxy's page
MAX_PAGES = 50  # a longer list counts as no answer
SERVER_ERROR = 500  # and above: AWS's own server errors have a code in words
PROXY = "without a reason of AWS's (a proxy in between?)"
PROXY_REPAIR = "look at HTTPS_PROXY, or run it again in a minute"

# Where the IAM action is not service:Operation. Source: service authorization reference.
ACTIONS = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:ListBuckets": "s3:ListAllMyBuckets",
    "s3:ListObjectVersions": "s3:ListBucketVersions",
    "s3:ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "s3:DeleteObjects": "s3:DeleteObject",
    "s3:HeadObject": "s3:GetObject",
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "s3:GetPublicAccessBlock": "s3:GetBucketPublicAccessBlock",
    "service-quotas:GetServiceQuota": "servicequotas:GetServiceQuota",
    "service-quotas:ListServiceQuotas": "servicequotas:ListServiceQuotas",
    "service-quotas:GetAWSDefaultServiceQuota": "servicequotas:GetAWSDefaultServiceQuota",
    "sso-admin:ListInstances": "sso:ListInstances",
    "amp:ListWorkspaces": "aps:ListWorkspaces",
    "amp:DeleteWorkspace": "aps:DeleteWorkspace",
    "efs:DescribeFileSystems": "elasticfilesystem:DescribeFileSystems",
    "efs:DescribeMountTargets": "elasticfilesystem:DescribeMountTargets",
    "budgets:DescribeBudget": "budgets:ViewBudget",
}
DENIED = {
    "AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError",
    "AuthorizationErrorException", "403", "Forbidden", "UnauthorizedAccess", "AccessDeniedFault",
}  # fmt: skip
THROTTLE_PAUSES_S = (0.5, 1.5)  # Service Quotas and IAM allow few calls a second, and all are asked at once
THROTTLED = {
    "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestLimitExceeded",
    "TooManyRequestsException", "SlowDown",
}  # fmt: skip
NO_CREDENTIALS = {
    "ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId", "UnrecognizedClientException",
    "AuthFailure", "SignatureDoesNotMatch", "InvalidSignatureException", "InvalidAccessKeyId",
}  # fmt: skip


class Unasked(Exception):
    """AWS gave no answer. `text` is the reason; `permission` is the missing IAM action if that is the reason."""

    def __init__(self, text: str, permission: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.permission = permission


class Refused(Exception):
    """AWS answered with an error: `code` and `message` are AWS's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message


class Pending:
    """A call in progress. `result()` returns the response, or raises Refused or Unasked."""

    def __init__(self, future: Future[dict[str, Any]], name: str) -> None:
        self._future = future
        self._name = name
        self._ends = time.monotonic() + CALL_TIMEOUT_S

    def result(self) -> dict[str, Any]:
        """The response, lists complete, at most CALL_TIMEOUT_S seconds after the call began."""
        try:
            return self._future.result(max(0.0, self._ends - time.monotonic()))
        except concurrent.futures.TimeoutError:
            raise Unasked(f"{self._name} did not answer within {CALL_TIMEOUT_S} s") from None


class Aws:
    """AWS in one region; only `act` can change anything.

    `session` is a boto3 session; `clock` gives the time that counts as now.
    """

    def __init__(
        self,
        session: Any,
        region: str,
        clock: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self.region = region
        self.now = clock
        self.slowest_call: tuple[float, str] = (0.0, "")
        self.answered = 0  # calls that AWS itself answered, errors included
        self._session = session
        self._clients: dict[tuple[str, str], Future[Any]] = {}
        self._calls: dict[str, Pending] = {}
        self._lock = threading.Lock()
        self._making = threading.Lock()  # a botocore session is not safe to make clients from in two threads

    def start(self, service: str, operation: str, region: str = "", **parameters: Any) -> Pending:
        """Begin `operation` (boto3's name, `describe_vpcs`) of `service`; does not wait."""
        where = region or self.region
        key = json.dumps([service, operation, where, parameters], sort_keys=True, default=str)
        with self._lock:
            if key in self._calls:
                return self._calls[key]
            future: Future[dict[str, Any]] = Future()
            pending = self._calls[key] = Pending(future, _action(service, operation))
        arguments = (future, service, operation, where, parameters)
        threading.Thread(target=self._run, args=arguments, daemon=True, name=f"{service}.{operation}").start()
        return pending

    def call(self, service: str, operation: str, region: str = "", **parameters: Any) -> dict[str, Any]:
        """`start` and wait."""
        return self.start(service, operation, region, **parameters).result()

    def act(self, service: str, operation: str, *, one_page: bool = False, **parameters: Any) -> dict[str, Any]:
        """Make a call even if the same one was made before: it changes something, or its answer changes.

        With `one_page` the answer is the first page of a list. Raises Refused or Unasked.
        """
        name = _action(service, operation)
        try:
            client = self._client(service, self.region)
            name = f"{service}:{client.meta.method_to_api_mapping[operation]}"
            return _read_patiently(client, operation, parameters, one_page=one_page)
        except Exception as error:
            raise explained(error, name, self.region) from None

    def _run(self, future: Future[dict[str, Any]], service: str, operation: str, region: str, parameters: Any) -> None:
        name = _action(service, operation)
        try:
            client = self._client(service, region)
            name = f"{service}:{client.meta.method_to_api_mapping[operation]}"
            began = time.monotonic()
            try:
                response = _read_patiently(client, operation, parameters)
            finally:
                self._note(time.monotonic() - began, name)
            if response.get("ResponseMetadata", {}).get("RequestId"):  # a proxy's page has none
                self._count()
            future.set_result(response)
        except BaseException as error:
            failure = explained(error, name, region)
            if isinstance(failure, Refused):
                self._count()
            future.set_exception(failure)

    def _count(self) -> None:
        with self._lock:
            self.answered += 1

    def _note(self, seconds: float, name: str) -> None:
        with self._lock:
            self.slowest_call = max(self.slowest_call, (seconds, name))

    def _client(self, service: str, region: str) -> Any:
        with self._lock:
            future = self._clients.get((service, region))
            mine = future is None
            if future is None:
                future = self._clients[service, region] = Future()
        if mine:
            try:
                with self._making:
                    future.set_result(self._make(service, region))
            except BaseException as error:
                future.set_exception(error)
        return future.result()

    def _make(self, service: str, region: str) -> Any:
        from botocore.config import Config

        config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
            max_pool_connections=20,
        )
        return self._session.client(service, region_name=region, config=config)


def _read_patiently(
    client: Any, operation: str, parameters: dict[str, Any], *, one_page: bool = False
) -> dict[str, Any]:
    """Try again when AWS throttles: it needs longer pauses and more attempts than other errors get from botocore."""
    from botocore.exceptions import ClientError

    for pause_s in THROTTLE_PAUSES_S:
        try:
            return _read(client, operation, parameters, one_page)
        except ClientError as error:
            if (error.response.get("Error") or {}).get("Code") not in THROTTLED:
                raise
        time.sleep(pause_s)
    return _read(client, operation, parameters, one_page)


def _action(service: str, operation: str) -> str:
    """The IAM action of boto3's `operation`, as far as it is known without a client."""
    name = f"{service}:{''.join(word.capitalize() for word in operation.split('_'))}"
    return ACTIONS.get(name, name)


def _read(client: Any, operation: str, parameters: dict[str, Any], one_page: bool) -> dict[str, Any]:
    if one_page or not client.can_paginate(operation):
        response: dict[str, Any] = getattr(client, operation)(**parameters)
        return response
    pages = client.get_paginator(operation).paginate(**parameters)
    whole: dict[str, Any] = {}
    for number, page in enumerate(pages):
        if number == MAX_PAGES:
            raise Unasked(f"the list has more than {MAX_PAGES} pages")
        for key, value in page.items():
            if isinstance(value, list) and isinstance(whole.get(key), list):
                whole[key] = whole[key] + value
            else:
                whole[key] = value
    return whole


def explained(error: BaseException, name: str, region: str) -> BaseException:
    """Return `Refused` for an error that AWS itself reports, and `Unasked` for any other error of botocore."""
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    name = ACTIONS.get(name, name)
    if isinstance(error, Unasked):
        return error
    if isinstance(error, exceptions.ClientError):
        details = error.response.get("Error") or {}
        code, message = str(details.get("Code") or ""), " ".join(str(details.get("Message") or "").split())
        if not code or _is_a_page(code, message, error.response):
            return Unasked(_not_of_aws(name, error.response, message))
        if code in DENIED:
            return Unasked(f"{name} is not allowed", name)
        if code in NO_CREDENTIALS:
            return Unasked(f"the credentials are not accepted: {message} ({code})")
        return Refused(code, message)
    if isinstance(error, (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)):
        return Unasked("no AWS credentials were found")
    if isinstance(error, (exceptions.TokenRetrievalError, exceptions.SSOError, exceptions.CredentialRetrievalError)):
        return Unasked(f"the credentials cannot be read: {error}")
    if isinstance(error, (exceptions.ConnectTimeoutError, exceptions.ReadTimeoutError)):
        return Unasked(f"{name} did not answer in time")
    if isinstance(error, exceptions.EndpointConnectionError):
        return Unasked(f"{name} cannot be reached in {region}")
    if isinstance(error, ResponseParserError):
        return Unasked(f"{name}: {PROXY}; {PROXY_REPAIR}; {_short(error)}")
    if isinstance(error, exceptions.BotoCoreError):
        return Unasked(f"{name}: {_short(error)}")
    return Unasked(f"{name}: {type(error).__name__}: {_short(error)}")


def _is_a_page(code: str, message: str, response: Any) -> bool:
    """Whether a proxy or a load balancer answered: botocore then makes the HTTP status the error's code.

    AWS has such codes too, for a HEAD request, whose answer has no body; its answers have an `x-amz...` header.
    """
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    if not code.isdigit() or any(name.startswith("x-amz") for name in headers):
        return False
    return int(code) >= SERVER_ERROR or "<" in message or "html" in headers.get("content-type", "")


def _not_of_aws(name: str, response: Any, page: str) -> str:
    """Return what is known of an answer that is not AWS's, with the page's own words, on one line."""
    words = " ".join(re.sub(r"<(style|script|head)\b.*?</\1>|<[^>]*>", " ", page, flags=re.IGNORECASE).split())
    quoted = f": {_short(words)!r}" if words else ""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return f"{name}: HTTP {status} {PROXY}{quoted}; {PROXY_REPAIR}"


def _short(error: BaseException | str) -> str:
    """Return the reason on one line, cut to LONGEST_REASON."""
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 3]}..."
