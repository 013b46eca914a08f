"""Runs the product's Python Lambda functions: the real code, in a process of its own, against the embedded AWS.

Stands in for the Lambda service: one process a call, bounded by the function's own timeout, with the environment that
Lambda gives, the credentials of its execution role, and the SDK's endpoint set to the embedded AWS. The SDK is loaded
once, in the process that all calls are forked from (function_server.py). No container, no memory limit; the interpreter
is the rehearsal's own, whatever version the function asks for.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from moto.awslambda.models import LambdaFunction, lambda_backends
from moto.logs.models import logs_backends

from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ACCOUNT
from rehearsal.permissions.authority import Authority

_SERVER = Path(__file__).with_name("function_server.py")
_NO_CONFIGURATION = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
_GRACE_S = 2.0  # start of the interpreter, which Lambda does not count
_MAX_TIMEOUT_S = 900.0  # Lambda's own limit


class _Server:
    """The process that functions are forked from, started by the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, request: Mapping[str, Any], event: IO[bytes], log: IO[bytes]) -> str:
        """Fork a process for the request and wait for its end; returns its answer, empty if it gave none."""
        read_end, write_end = os.pipe()
        with os.fdopen(read_end, encoding="utf-8") as answers:
            try:
                with self._lock:
                    files = [event.fileno(), log.fileno(), write_end]
                    socket.send_fds(self._started(), [json.dumps(request).encode()], files)
            finally:
                os.close(write_end)
            return answers.read()

    def _started(self) -> socket.socket:
        if self._requests is None or self._process is None or self._process.poll() is not None:
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", str(_SERVER), str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # not the terminal: a kept rehearsal leaves it
                    stderr=subprocess.DEVNULL,
                    env={"LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **_NO_CONFIGURATION},
                    pass_fds=(theirs.fileno(),),
                )
        return self._requests


_server = _Server()


class FunctionError(Exception):
    """The function raised, timed out or could not start; `kind` is the exception's name there."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Invocation:
    """One call: what the function returned (decoded JSON) and what it wrote."""

    result: Any
    log: str


class FunctionRunner:
    """Calls Lambda functions of the embedded AWS. Code is unpacked once for each version of it, below `directory`."""

    def __init__(self, region: str, directory: Path, endpoint: Callable[[], str], authority: Authority) -> None:
        self._authority = authority
        self._region = region
        self._directory = directory
        self._endpoint = endpoint

    def log_group(self, function: LambdaFunction) -> str:
        """The function's log group; a call makes it if it does not exist yet, as Lambda does.

        A stack that makes a group of this name later fails: "already exists" (aws-cdk issue 667).
        """
        own = function.__dict__.get("logging_group")
        name = str(own or f"/aws/lambda/{function.function_name}")
        logs_backends[ACCOUNT][self._region].ensure_log_group(name)
        return name

    def find(self, name_or_arn: str) -> LambdaFunction:
        """The function of that name or ARN; raises ResourceFailed if it does not exist."""
        name = name_or_arn.split(":function:")[-1].split(":")[0]
        functions = lambda_backends[ACCOUNT][self._region].list_functions(None)
        for function in functions:
            if function.function_name == name:
                return function
        raise ResourceFailed(f"Function not found: {name_or_arn}")

    def invoke(self, function: LambdaFunction, event: Mapping[str, Any]) -> Invocation:
        """Call the function and wait; raises FunctionError."""
        if not str(function.run_time or "").startswith("python"):
            raise FunctionError(
                "Runtime.NotEmulated", f"{function.function_name}: the rehearsal's cloud runs Python functions only"
            )
        timeout_s = min(float(function.timeout), _MAX_TIMEOUT_S)
        code = self._unpacked(function)
        deadline = time.monotonic() + timeout_s + _GRACE_S
        request = {
            "id": str(uuid.uuid4()),
            "code": str(code),
            "handler": str(function.handler),
            "deadline": deadline,
            "environment": self._environment(function),
        }
        with tempfile.TemporaryFile() as events, tempfile.TemporaryFile() as logged:
            events.write(json.dumps(event, default=str).encode())
            events.seek(0)
            answer = _server.run(request, events, logged)
            logged.seek(0)
            log = logged.read().decode(errors="replace")
        self._keep_log(function, log)
        if not answer and time.monotonic() >= deadline:
            raise FunctionError("Sandbox.Timedout", f"Task timed out after {timeout_s:.2f} seconds")
        if not answer:
            raise FunctionError("Runtime.ExitError", f"the function's process ended without an answer: {log[-500:]}")
        document = json.loads(answer)
        if "error" in document:
            raise FunctionError(document["error"]["errorType"], document["error"]["errorMessage"])
        return Invocation(document["result"], log)

    def _environment(self, function: LambdaFunction) -> dict[str, str]:
        own = {str(key): str(value) for key, value in (function.environment_vars or {}).items()}
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "AWS_REGION": self._region,
            "AWS_DEFAULT_REGION": self._region,
            **self._authority.session(function.role, function.function_name),
            "AWS_ENDPOINT_URL": self._endpoint(),
            **_NO_CONFIGURATION,
            "AWS_LAMBDA_FUNCTION_NAME": function.function_name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_size),
            "AWS_LAMBDA_LOG_GROUP_NAME": self.log_group(function),
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.run_time}",
            "SLIPWAY_FUNCTION_ARN": function.function_arn,
            **own,
        }

    def _unpacked(self, function: LambdaFunction) -> Path:
        target = self._directory / f"{function.function_name}-{function.code_digest[:16].replace('/', '_')}"
        if target.is_dir():
            return target
        self._directory.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=self._directory))
        zipfile.ZipFile(io.BytesIO(function.code_bytes)).extractall(building)
        try:
            building.rename(target)
        except OSError:  # another thread was first
            shutil.rmtree(building)
        return target

    def _keep_log(self, function: LambdaFunction, text: str) -> None:
        if text:
            with (self._directory / f"{function.function_name}.log").open("a", encoding="utf-8") as log:
                log.write(text)

    def install(self) -> None:
        """Let the Lambda API's Invoke run here too (moto would start a container)."""
        runner = self

        def invoke_lambda(function: LambdaFunction, event: Any = None) -> tuple[str, bool, str]:
            body = json.loads(event) if isinstance(event, str) else event
            try:
                invocation = runner.invoke(function, body or {})
            except FunctionError as error:
                return json.dumps({"errorType": error.kind, "errorMessage": str(error)}), True, str(error)
            return json.dumps(invocation.result), False, invocation.log

        LambdaFunction._invoke_lambda = invoke_lambda
