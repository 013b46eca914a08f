"""Copying a run directory to S3 with the AWS CLI."""

from __future__ import annotations

import re
from pathlib import Path

from acceptance.programs import call

_URL = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.()=/-]{0,512})?")
_TIMEOUT_S = 600


def url_fault(url: str) -> str | None:
    """What is wrong with an S3 address, None if nothing is."""
    if _URL.fullmatch(url):
        return None
    return f"--upload = {url!r}: is not an S3 address. Hint: write s3://BUCKET/PREFIX/"


def upload(directory: Path, url: str) -> str:
    """Copy a run directory below `url`; return the address it went to. Raises ExternalError."""
    return _copy(directory, f"{url.rstrip('/')}/{directory.name}/", ["--recursive", "--exclude", ".*"])


def upload_file(file: Path, url: str) -> str:
    """Copy one file below `url`, replacing an earlier copy; return its address. Raises ExternalError."""
    return _copy(file, f"{url.rstrip('/')}/{file.name}", [])


def _copy(source: Path, target: str, options: list[str]) -> str:
    argv = ["aws", "s3", "cp", *options, "--only-show-errors", str(source), target]
    hint = "Hint: does the head node's role allow s3:PutObject there?"
    call(argv, _TIMEOUT_S, ". Hint: install the AWS CLI", hint, what=f"aws s3 cp to {target}")
    return target
