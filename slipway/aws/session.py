"""The boto3 session of the profile that the user named."""

from __future__ import annotations

from typing import Any

from slipway.aws.calls import Aws
from slipway.errors import EnvironmentFault, UsageError
from slipway.text import listed

LOG_IN = "log in (aws sso login, aws configure) or name a profile with --profile"


def session_of(profile: str | None, region: str | None = None) -> Any:
    """Return a boto3 session with credentials. They are looked up once here: each client would look again.

    Raises UsageError if the profile does not exist, EnvironmentFault if there are no credentials.
    """
    import boto3
    import botocore.session
    from botocore.exceptions import BotoCoreError, ProfileNotFound

    try:
        session = boto3.Session(profile_name=profile, region_name=region)
        credentials = session.get_credentials()
    except ProfileNotFound as error:
        names = listed(sorted(botocore.session.Session().available_profiles), most=8) or "none"
        source = f"--profile {profile}" if profile else f"AWS_PROFILE {error.kwargs['profile']}"
        raise UsageError(f"{source}: there is no such profile. Hint: the profiles are: {names}") from None
    except BotoCoreError as error:
        raise EnvironmentFault(f"the AWS configuration cannot be used: {error}. Hint: {LOG_IN}") from None
    if credentials is None:
        raise EnvironmentFault(f"no AWS credentials were found, so nothing was asked. Hint: {LOG_IN}")
    return session


def open_aws(region: str, profile: str | None) -> Aws:
    """Return AWS in `region`. Raises UsageError for an unknown profile, EnvironmentFault without credentials."""
    return Aws(session_of(profile, region), region)
