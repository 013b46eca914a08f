"""Runs the product's Python Lambda functions: the real code, in a process of its own, against the embedded AWS.

Stands in for the Lambda service: one process a call, bounded by the function's own timeout, with the environment that
Lambda gives, the credentials of its execution role, and the SDK's endpoint set to the embedded AWS. No container, no
memory limit; the interpreter is the rehearsal's own, whatever version the function asks for.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moto.awslambda.models import LambdaFunction, lambda_backends
from moto.logs.models import logs_backends

from rehearsal.cloud.errors import ResourceFailed
from rehearsal.cloud.model import ACCOUNT
from rehearsal.permissions.authority import Authority

#: Started with the code's directory first on the path; the event comes on stdin, the answer goes to descriptor 3.
_RUNNER = """
import importlib, json, os, sys, time, traceback
directory, target, deadline, request_id = sys.argv[1:5]
sys.path.insert(0, directory)
class Context:
    aws_request_id = request_id
    function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
    function_version = "$LATEST"
    memory_limit_in_mb = os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]
    invoked_function_arn = os.environ["SLIPWAY_FUNCTION_ARN"]
    log_group_name = os.environ["AWS_LAMBDA_LOG_GROUP_NAME"]
    log_stream_name = request_id
    @staticmethod
    def get_remaining_time_in_millis():
        return max(0, int((float(deadline) - time.time()) * 1000))
answer = {}
try:
    module, _, name = target.rpartition(".")
    handler = getattr(importlib.import_module(module.replace("/", ".")), name)
    answer["result"] = handler(json.load(sys.stdin), Context())
    text = json.dumps(answer)
except BaseException as error:
    traceback.print_exc()
    text = json.dumps({"error": {"errorType": type(error).__name__, "errorMessage": str(error)}})
with os.fdopen(int(sys.argv[5]), "w") as out:
    out.write(text)
"""
_GRACE_S = 2.0  # start of the interpreter, which Lambda does not count
_MAX_TIMEOUT_S = 900.0  # Lambda's own limit


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
        request_id = str(uuid.uuid4())
        read_end, write_end = os.pipe()
        try:
            log = self._run(function, event, code, request_id, timeout_s, write_end)
        finally:
            os.close(write_end)
            with os.fdopen(read_end) as answers:
                answer = answers.read()
        self._keep_log(function, log)
        if not answer:
            raise FunctionError("Runtime.ExitError", f"the function's process ended without an answer: {log[-500:]}")
        document = json.loads(answer)
        if "error" in document:
            raise FunctionError(document["error"]["errorType"], document["error"]["errorMessage"])
        return Invocation(document["result"], log)

    def _run(
        self,
        function: LambdaFunction,
        event: Mapping[str, Any],
        code: Path,
        request_id: str,
        timeout_s: float,
        write_end: int,
    ) -> str:
        deadline = time.time() + timeout_s + _GRACE_S
        command = [
            sys.executable,
            "-c",
            _RUNNER,
            str(code),
            str(function.handler),
            str(deadline),
            request_id,
            str(write_end),
        ]
        try:
            done = subprocess.run(
                command,
                input=json.dumps(event, default=str),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout_s + _GRACE_S,
                env=self._environment(function),
                cwd=code,
                pass_fds=(write_end,),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            output = error.stdout or b""
            self._keep_log(function, output.decode(errors="replace") if isinstance(output, bytes) else output)
            raise FunctionError("Sandbox.Timedout", f"Task timed out after {timeout_s:.2f} seconds") from None
        return done.stdout

    def _environment(self, function: LambdaFunction) -> dict[str, str]:
        own = {str(key): str(value) for key, value in (function.environment_vars or {}).items()}
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "AWS_REGION": self._region,
            "AWS_DEFAULT_REGION": self._region,
            **self._authority.session(function.role, function.function_name),
            "AWS_ENDPOINT_URL": self._endpoint(),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_LAMBDA_FUNCTION_NAME": function.function_name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_size),
            "AWS_LAMBDA_LOG_GROUP_NAME": self.log_group(function),
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.run_time}",
            "SLIPWAY_FUNCTION_ARN": function.function_arn,
            "PYTHONDONTWRITEBYTECODE": "1",
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
