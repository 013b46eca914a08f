"""Copying a run directory to S3 with the AWS CLI."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from acceptance.errors import ExternalError

_URL = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.()=/-]{0,512})?")
_TIMEOUT_S = 600


def url_fault(url: str) -> str | None:
    """What is wrong with an S3 address, None if nothing is."""
    if _URL.fullmatch(url):
        return None
    return f"--upload = {url!r}: is no S3 address. Hint: write s3://BUCKET/PREFIX/"


def upload(directory: Path, url: str) -> str:
    """Copy a run directory below `url`; give the address it went to. Raises ExternalError."""
    return _copy(directory, f"{url.rstrip('/')}/{directory.name}/", ["--recursive", "--exclude", ".*"])


def upload_file(file: Path, url: str) -> str:
    """Copy one file below `url`, in the place of what was there; give its address. Raises ExternalError."""
    return _copy(file, f"{url.rstrip('/')}/{file.name}", [])


def _copy(source: Path, target: str, options: list[str]) -> str:
    argv = ["aws", "s3", "cp", *options, "--only-show-errors", str(source), target]
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )
    except FileNotFoundError:
        raise ExternalError("aws: is not on this machine's PATH. Hint: install the AWS CLI") from None
    except subprocess.TimeoutExpired:
        fault = f"aws s3 cp to {target}: took longer than {_TIMEOUT_S} s. Hint: try it by hand"
        raise ExternalError(fault) from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:400]
        hint = "Hint: does the head node's role allow s3:PutObject there?"
        raise ExternalError(f"aws s3 cp to {target}: exit {done.returncode}: {said}. {hint}")
    return target
