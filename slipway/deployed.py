"""Read the facts of a deployed cluster from an output of its stack `NAME-cluster`.

Permission: cloudformation:DescribeStacks. Differences between the settings and the deployment are shown by `cdk diff`.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from pydantic import TypeAdapter, ValidationError

from slipway.aws.calls import Aws, Refused, Unasked
from slipway.aws.session import session_of
from slipway.cluster_config import FACTS_OUTPUT, ClusterFacts
from slipway.errors import EnvironmentFault, SlipwayError
from slipway.settings import Settings
from slipway.stack_names import COMPLETE, ROLLED_BACK, stack_names


@dataclasses.dataclass(frozen=True)
class Deployment:
    """The VPC of a deployed cluster, and the facts that its cluster configuration was made with."""

    vpc_id: str
    facts: ClusterFacts


def read_deployment(settings: Settings, session: Any = None) -> Deployment:
    """Return the deployment of `settings`, read with a boto3 `session`.

    Raises SlipwayError if the cluster's stack is missing or not complete, EnvironmentFault if AWS does not answer.
    """
    name = stack_names(settings.name)["cluster"]
    stack = _stack(settings, name, session)
    if stack["StackStatus"] not in {*COMPLETE, ROLLED_BACK}:
        raise _not_deployed(settings, f"stack {name} is {stack['StackStatus']}")
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
    if FACTS_OUTPUT not in outputs:
        raise SlipwayError(f"stack {name} has no output {FACTS_OUTPUT}: it is not Slipway's. Hint: another name?")
    try:
        return TypeAdapter(Deployment).validate_json(outputs[FACTS_OUTPUT])
    except ValidationError:
        text = f"stack {name}: its cluster was made by another release of Slipway"
        raise SlipwayError(f"{text}. Hint: cdk deploy again") from None


def _stack(settings: Settings, name: str, session: Any) -> dict[str, Any]:
    aws = Aws(session or session_of(None), settings.region)
    try:
        stack: dict[str, Any] = aws.call("cloudformation", "describe_stacks", StackName=name)["Stacks"][0]
    except Unasked as error:
        text = f"AWS did not report what is deployed: {error.text}"
        raise EnvironmentFault(f"{text}. Hint: aws sts get-caller-identity") from None
    except Refused as error:
        if "does not exist" not in error.message:
            raise EnvironmentFault(f"AWS did not report what is deployed: {error}") from None
        raise _not_deployed(settings, f"stack {name} does not exist in {settings.region}") from None
    return stack


def _not_deployed(settings: Settings, reason: str) -> SlipwayError:
    elsewhere = {os.environ.get(key) for key in ("AWS_REGION", "AWS_DEFAULT_REGION")} - {None, settings.region}
    hint = "cdk deploy first (slipway status shows every stack), or leave --deployed out"
    if "does not exist" in reason and elsewhere:
        shell = ", ".join(sorted(map(str, elsewhere)))
        hint = f"the settings say {settings.region}, your shell says {shell}: which one?"
    return SlipwayError(f"{settings.name} is not deployed: {reason}. Hint: {hint}")
