"""The token of a source: from Secrets Manager, or from the user's own login. It is in this process's memory only."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance.cloudai.fetch.faults import Fault

_AWS_S = 30
_TOKEN = re.compile(r"[A-Za-z0-9+/=_.:,@%^~-]+")


@dataclass(frozen=True)
class Token:
    """A token and where it is from, for messages."""

    value: str
    origin: str


def hint_of(token: Token | None, kind: str) -> str:
    """Return the hint for a refusal: which token was sent, or how to give one."""
    login = "huggingface-cli login" if kind == "hf" else "ngc config set"
    return f"its token is of {token.origin}" if token else f"give --secret ARN, or log in with `{login}`"


def token_of(spec: Mapping[str, Any]) -> Token | None:
    """Return the token of the secret, else that of the user's own login, else None. Raises Fault."""
    secret = spec["secret"]
    value = _of_secret(secret) if secret else _of_login(spec["kind"])
    origin = secret or ("~/.ngc/config" if spec["kind"] == "ngc" else "~/.cache/huggingface/token")
    if value and not _TOKEN.fullmatch(value):
        raise Fault(
            f"{origin}: is no token: one word of letters, digits and +/=_.:,@%^~- is expected. Hint: correct it"
        )
    return Token(value, origin) if value else None


def _of_secret(arn: str) -> str:
    """A secret of Secrets Manager. Its value is only in a pipe: in no argument, variable or file."""
    command = ["aws", "secretsmanager", "get-secret-value", "--secret-id", arn, "--region", arn.split(":")[3]]
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/local/bin"}
    try:
        done = subprocess.run(
            [*command, "--query", "SecretString", "--output", "text"],
            capture_output=True,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_AWS_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = f"no answer in {_AWS_S} s" if isinstance(error, subprocess.TimeoutExpired) else "no aws command"
        raise Fault(f"{arn}: cannot be read on this node ({reason})") from None
    if done.returncode:
        said = " ".join((done.stderr.strip().splitlines() or ["no message"])[-1].split())
        hint = "the role of this queue's nodes needs secretsmanager:GetSecretValue for it"
        raise Fault(f"{arn}: cannot be read: {said}. Hint: {hint}")
    if not done.stdout.strip():
        raise Fault(f"{arn}: is empty. Hint: put the token into it")
    return done.stdout.strip()


def _of_login(kind: str) -> str:
    """What `huggingface-cli login` or `ngc config set` left for this user."""
    try:
        if kind != "ngc":
            return (Path.home() / ".cache/huggingface/token").read_text("utf-8").strip()
        config = configparser.ConfigParser(interpolation=None)
        config.read(Path.home() / ".ngc/config", "utf-8")
        return config.get("CURRENT", "apikey", fallback="").strip()
    except (OSError, ValueError, RuntimeError, configparser.Error):
        return ""
