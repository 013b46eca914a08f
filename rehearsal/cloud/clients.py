"""boto3 clients of the embedded AWS, for the parts that speak to it as any program would."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError

from rehearsal.cloud.errors import ResourceFailed

#: Keys that satisfy the SDKs; the embedded AWS accepts any.
ACCESS_KEY = "rehearsal"


class Clients:
    """Clients by service name, made once each. `endpoint` is a function, the port being known only after start."""

    def __init__(self, region: str, endpoint: Callable[[], str]) -> None:
        self.region = region
        self._endpoint = endpoint
        self._session: Any = boto3.session.Session(
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=ACCESS_KEY,
            region_name=region,
        )
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()  # a botocore session is not safe to make clients from in two threads

    def __call__(self, service: str) -> Any:
        """The client of `service` ("ec2", "s3", ...); path-style S3, since bucket.127.0.0.1 is no address."""
        with self._lock:
            if service not in self._made:
                self._made[service] = self._session.client(
                    service,
                    endpoint_url=self._endpoint(),
                    config=Config(
                        retries={"total_max_attempts": 1},
                        s3={"addressing_style": "path"},
                        connect_timeout=5,
                        read_timeout=60,
                        proxies={},
                    ),
                )
            return self._made[service]


@contextmanager
def aws_reasons() -> Iterator[None]:
    """Turn what the SDK raises into a resource's failure, with AWS's own words."""
    try:
        yield
    except ClientError as error:
        details = error.response["Error"]
        raise ResourceFailed(f"{details.get('Message') or details['Code']} ({details['Code']})") from None
    except ParamValidationError as error:
        raise ResourceFailed(f"Properties validation failed: {error}") from None
    except KeyError as error:
        raise ResourceFailed(f"Properties validation failed: required key {error} not found") from None
