"""The boto3 session of the profile that the user named."""

from __future__ import annotations

from typing import Any

from slipway.errors import EnvironmentFault, UsageError
from slipway.text import listed

LOG_IN = "log in (aws sso login, aws configure) or name a profile with --profile"


def session_of(profile: str | None, region: str | None = None) -> Any:
    """A boto3 session that has credentials: looked for once, as each client would look again for what is not there.

    Raises UsageError for a profile that is not there, EnvironmentFault without credentials.
    """
    import boto3
    import botocore.session
    from botocore.exceptions import BotoCoreError, ProfileNotFound

    try:
        session = boto3.Session(profile_name=profile, region_name=region)
        credentials = session.get_credentials()
    except ProfileNotFound as error:
        names = listed(sorted(botocore.session.Session().available_profiles), most=8) or "none"
        given = f"--profile {profile}" if profile else f"AWS_PROFILE {error.kwargs['profile']}"
        raise UsageError(f"{given}: there is no such profile. Hint: those there are: {names}") from None
    except BotoCoreError as error:
        raise EnvironmentFault(f"the AWS configuration cannot be used: {error}. Hint: {LOG_IN}") from None
    if credentials is None:
        raise EnvironmentFault(f"no AWS credentials were found, so nothing was asked. Hint: {LOG_IN}")
    return session
