"""AWS as the questions see it: each API call is made once, at once with the others, and bounded in time.

``Aws.start(service, operation, **parameters)`` begins a call and gives a ``Pending``; its ``result()`` waits. The same
call asked for twice is made once. Lists come complete: paginated operations are read to their end.
"""

from __future__ import annotations

import datetime
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 8
ATTEMPTS = 2  # one retry: an answer is worth seconds, not minutes
MAX_PAGES = 50  # a list without end is no answer

# Where the IAM action is not service:Operation. Source: service authorization reference.
ACTIONS = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:HeadObject": "s3:GetObject",
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "s3:GetPublicAccessBlock": "s3:GetBucketPublicAccessBlock",
    "service-quotas:GetServiceQuota": "servicequotas:GetServiceQuota",
    "service-quotas:ListServiceQuotas": "servicequotas:ListServiceQuotas",
    "service-quotas:GetAWSDefaultServiceQuota": "servicequotas:GetAWSDefaultServiceQuota",
    "sso-admin:ListInstances": "sso:ListInstances",
    "amp:ListWorkspaces": "aps:ListWorkspaces",
    "efs:DescribeFileSystems": "elasticfilesystem:DescribeFileSystems",
    "efs:DescribeMountTargets": "elasticfilesystem:DescribeMountTargets",
    "budgets:DescribeBudget": "budgets:ViewBudget",
}
DENIED = {
    "AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError",
    "AuthorizationErrorException", "403", "Forbidden", "UnauthorizedAccess", "AccessDeniedFault",
}  # fmt: skip
NO_CREDENTIALS = {
    "ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId", "UnrecognizedClientException",
    "AuthFailure", "SignatureDoesNotMatch", "InvalidSignatureException", "InvalidAccessKeyId",
}  # fmt: skip


class Unasked(Exception):
    """AWS gave no answer. The text says why; ``permission`` is the IAM action that is missing, if that is why."""

    def __init__(self, text: str, permission: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.permission = permission


class Refused(Exception):
    """AWS answered with an error that means something to the question: ``code`` and ``message`` are AWS's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message


class Pending:
    """A call on its way. ``result()`` gives the response, or raises Refused or Unasked."""

    def __init__(self, future: Future[dict[str, Any]]) -> None:
        self._future = future

    def result(self) -> dict[str, Any]:
        """The response, lists complete. The call itself is bounded in time, so waiting needs no bound of its own."""
        return self._future.result()


class Aws:
    """AWS in one region, read-only. ``session`` is a boto3 session; ``clock`` gives the time that counts as now."""

    def __init__(
        self,
        session: Any,
        region: str,
        clock: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.timezone.utc),
    ) -> None:
        self.region = region
        self.now = clock
        self.slowest_call: tuple[float, str] = (0.0, "")
        self._session = session
        self._clients: dict[tuple[str, str], Future[Any]] = {}
        self._calls: dict[str, Pending] = {}
        self._actions: set[str] = set()
        self._lock = threading.Lock()
        self._making = threading.Lock()  # a botocore session is not safe to make clients from in two threads

    def start(self, service: str, operation: str, region: str = "", **parameters: Any) -> Pending:
        """Begin ``operation`` (boto3's name, ``describe_vpcs``) of ``service``; does not wait."""
        where = region or self.region
        key = json.dumps([service, operation, where, parameters], sort_keys=True, default=str)
        with self._lock:
            if key in self._calls:
                return self._calls[key]
            future: Future[dict[str, Any]] = Future()
            pending = self._calls[key] = Pending(future)
        arguments = (future, service, operation, where, parameters)
        threading.Thread(target=self._run, args=arguments, daemon=True, name=f"{service}.{operation}").start()
        return pending

    def actions_asked(self) -> set[str]:
        """The IAM actions of every call that reached AWS so far."""
        with self._lock:
            return set(self._actions)

    def call(self, service: str, operation: str, region: str = "", **parameters: Any) -> dict[str, Any]:
        """``start`` and wait."""
        return self.start(service, operation, region, **parameters).result()

    def _run(self, future: Future[dict[str, Any]], service: str, operation: str, region: str, parameters: Any) -> None:
        name = f"{service}:{operation}"
        try:
            client = self._client(service, region)
            name = f"{service}:{client.meta.method_to_api_mapping[operation]}"
            with self._lock:
                self._actions.add(ACTIONS.get(name, name))
            began = time.monotonic()
            try:
                response = _read(client, operation, parameters)
            finally:
                self._note(time.monotonic() - began, name)
            future.set_result(response)
        except BaseException as error:
            future.set_exception(_explained(error, name, region))

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


def _read(client: Any, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
    if not client.can_paginate(operation):
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


def _explained(error: BaseException, name: str, region: str) -> BaseException:
    """botocore's errors in two kinds: AWS said no for a reason of its own, or there is no answer."""
    from botocore import exceptions

    if isinstance(error, Unasked):
        return error
    if isinstance(error, exceptions.ClientError):
        code, message = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
        if code in DENIED:
            permission = ACTIONS.get(name, name)
            return Unasked(f"{permission} is not allowed", permission)
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
    if isinstance(error, exceptions.BotoCoreError):
        return Unasked(f"{name}: {error}")
    return Unasked(f"{name}: {type(error).__name__}: {error}")
