"""The process that Lambda functions are forked from: it has loaded the SDK, which takes half a second of CPU.

usage: python -P function_server.py DESCRIPTOR

Each request is one message on the socket DESCRIPTOR, with three files: the event, the log, and where the answer goes.
The server ends when the socket is closed. functions.py starts it; it imports nothing of this repository, as a function
does on AWS.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.session

MESSAGE_BYTES = 100_000
PRELOADED: Any = ("ssm", "cloudformation")


def context(request: dict[str, Any]) -> SimpleNamespace:
    """Return the context object of a Python function."""
    environment, deadline = request["environment"], request["deadline"]
    return SimpleNamespace(
        aws_request_id=request["id"],
        function_name=environment["AWS_LAMBDA_FUNCTION_NAME"],
        function_version="$LATEST",
        memory_limit_in_mb=environment["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"],
        invoked_function_arn=environment["SLIPWAY_FUNCTION_ARN"],
        log_group_name=environment["AWS_LAMBDA_LOG_GROUP_NAME"],
        log_stream_name=request["id"],
        get_remaining_time_in_millis=lambda: max(0, int((deadline - time.monotonic()) * 1000)),
    )


def serve(requests: socket.socket) -> None:
    """Fork a process for each request until the socket is closed."""
    botocore.session.create_loader = functools.cache(botocore.session.create_loader)  # sessions share what it reads
    for service in PRELOADED:
        boto3.Session().client(service, region_name="us-east-1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the rehearsal
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets functions that ended
    gc.freeze()
    while True:
        text, files, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 3)
        if not text:
            return
        if os.fork() == 0:
            with contextlib.suppress(BaseException):
                requests.close()
                _run(json.loads(text), *files)
            os._exit(0)
        for file in files:
            os.close(file)


def _run(request: dict[str, Any], event: int, log: int, answer: int) -> None:
    """Be the function's process: the kernel ends it at its deadline."""
    for ignored in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(ignored, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, request["deadline"] - time.monotonic()))
    for file, number in ((event, 0), (log, 1), (log, 2)):
        os.dup2(file, number)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["code"])
    sys.path.insert(0, request["code"])
    try:
        module, _, name = request["handler"].rpartition(".")
        handler = getattr(importlib.import_module(module.replace("/", ".")), name)
        text = json.dumps({"result": handler(json.load(sys.stdin), context(request))})
    except BaseException as error:
        traceback.print_exc()
        text = json.dumps({"error": {"errorType": type(error).__name__, "errorMessage": str(error)}})
    sys.stdout.flush()
    sys.stderr.flush()
    with os.fdopen(answer, "w", encoding="utf-8") as out:
        out.write(text)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
