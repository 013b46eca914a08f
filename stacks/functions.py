"""Our Lambda functions: Python, pinned, and with a log group that goes with its stack."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.checks import BASIC_EXECUTION, accept


def function_logs(scope: Construct) -> logs.LogGroup:
    """One group for all functions of a stack.

    The functions refer to it, so it is made before them: a function that is called without one makes a group itself,
    which outlives the stack and, if the stack makes it later, fails the deployment (aws-cdk issue 667).
    """
    return logs.LogGroup(
        scope, "FunctionLogs", retention=logs.RetentionDays.ONE_MONTH, removal_policy=RemovalPolicy.DESTROY
    )


def python_function(
    scope: Construct, id: str, *, folder: Path, handler: str, timeout: Duration, log_group: logs.ILogGroup
) -> lambda_.Function:
    """Return a function of the code in `folder`."""
    function = lambda_.Function(
        scope,
        id,
        runtime=lambda_.Runtime.PYTHON_3_13,
        architecture=lambda_.Architecture.ARM_64,
        code=lambda_.Code.from_asset(str(folder), exclude=["__pycache__"]),
        handler=handler,
        timeout=timeout,
        log_group=log_group,
    )
    accept(function, BASIC_EXECUTION, "AWSLambdaBasicExecutionRole only writes this function's own log")
    accept(function, "L1", "the runtime is pinned to the version that the handler is tested with")
    return function
