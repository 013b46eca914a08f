"""boto3 clients of the embedded AWS, for the parts that speak to it as any program would."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError

from rehearsal.cloud_errors import ResourceFailed

#: The rehearsal's own key: AWS itself, and what made the account before the deployment. IAM does not evaluate it.
ACCESS_KEY = "rehearsal"
OWN_CREDENTIALS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": ACCESS_KEY}


class Clients:
    """Clients by service name, made once for each role. `endpoint` is a function: the port is known after start.

    A call is made with the credentials of the role that its thread acts as (`Authority.as_role`), else with the
    rehearsal's own.
    """

    def __init__(
        self,
        region: str,
        endpoint: Callable[[], str],
        credentials: Callable[[], Mapping[str, str] | None] = lambda: None,
    ) -> None:
        self.region = region
        self._endpoint = endpoint
        self._credentials = credentials
        self._session: Any = boto3.session.Session(region_name=region)
        self._made: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()  # a botocore session is not safe to make clients from in two threads

    def __call__(self, service: str) -> Any:
        """The client of `service` ("ec2", "s3", ...); path-style S3, since bucket.127.0.0.1 is no address."""
        credentials = self._credentials() or OWN_CREDENTIALS
        key = service, credentials["AWS_ACCESS_KEY_ID"]
        with self._lock:
            if key not in self._made:
                self._made[key] = self._session.client(
                    service,
                    endpoint_url=self._endpoint(),
                    **{name.lower(): value for name, value in credentials.items()},
                    config=Config(
                        retries={"total_max_attempts": 1},
                        s3={"addressing_style": "path"},
                        connect_timeout=5,
                        read_timeout=60,
                        proxies={},
                    ),
                )
            return self._made[key]


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
