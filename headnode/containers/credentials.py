"""The keys of registries: from AWS into this process's environment, and from there to enroot by their names only.

No key is ever written to a disk, a log or an argument list: enroot's credentials file holds `$NAME`, which enroot
expands itself (its common.sh, evalnetrc). What enroot writes itself while it imports is in memory (places.py).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodes.lib.command import last_line

AWS_TIMEOUT_S = 30
NGC_HOSTS = ("nvcr.io", "authn.nvidia.com")
NGC_USER = "$oauthtoken"
NGC_VARIABLE = "NGC_API_KEY"
_ECR = re.compile(r"[0-9]{12}\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
# What a shell leaves as it is: enroot's expansion is not quoted.
_KEY = re.compile(r"[A-Za-z0-9+/=_.:,@%^~-]+")


@dataclass(frozen=True)
class Credential:
    """Who logs in at a host, and the environment variable that has the password."""

    user: str
    variable: str


def collect(registries: Iterable[str], ngc_secret: str) -> tuple[dict[str, Credential], list[str]]:
    """Put the keys for these registries into the environment; return host -> credential, and what went wrong.

    `ngc_secret` is the ARN of the secret with the key of nvcr.io, or empty; NGC_API_KEY in the environment wins.
    """
    found: dict[str, Credential] = {}
    problems: list[str] = []
    for number, host in enumerate(sorted({registry.partition(":")[0] for registry in registries})):
        ecr = _ECR.fullmatch(host)
        if host == NGC_HOSTS[0]:
            if not os.environ.get(NGC_VARIABLE) and ngc_secret:
                _fetch(NGC_VARIABLE, f"the secret {ngc_secret}", _secret_command(ngc_secret), problems)
            if os.environ.get(NGC_VARIABLE):
                found.update(dict.fromkeys(NGC_HOSTS, Credential(NGC_USER, NGC_VARIABLE)))
        elif ecr:
            variable = f"SLIPWAY_ECR_PASSWORD_{number}"
            command = ["aws", "ecr", "get-login-password", "--region", ecr[1]]
            if _fetch(variable, f"the password of {host}", command, problems):
                found[host] = Credential("AWS", variable)
    return found, problems


def is_ecr(registry: str) -> bool:
    """Return whether a registry is a private one of Amazon ECR."""
    return _ECR.fullmatch(registry.partition(":")[0]) is not None


def of_registry(registry: str, credentials: Mapping[str, Credential]) -> dict[str, Credential]:
    """Those for images of one registry: its own, at every host that takes it (NVIDIA's has two).

    A registry says itself where its tokens come from, and gets the token: with the keys of others it could ask for
    what is theirs.
    """
    own = credentials.get(registry.partition(":")[0])
    return {host: one for host, one in credentials.items() if one == own}


def write_file(credentials: Mapping[str, Credential], file: Path) -> None:
    """Write enroot's credentials file: who logs in where, with the names of the variables."""
    lines = [f"machine {host} login {one.user} password ${one.variable}\n" for host, one in credentials.items()]
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    fresh.touch(mode=0o600)
    fresh.write_text("".join(lines), encoding="ascii")
    fresh.rename(file)


def _secret_command(arn: str) -> list[str]:
    command = ["aws", "secretsmanager", "get-secret-value", "--secret-id", arn]
    return [*command, "--query", "SecretString", "--output", "text"]


def _fetch(variable: str, what: str, command: list[str], problems: list[str]) -> bool:
    """Put what a command prints into the environment; true when it is a key."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=AWS_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = f"no answer in {AWS_TIMEOUT_S} s" if isinstance(error, subprocess.TimeoutExpired) else "no aws command"
        problems.append(f"cannot read {what} ({reason}): its images will be refused")
        return False
    if done.returncode != 0:
        said = last_line(done.stderr) or "no message"
        problems.append(f"cannot read {what}; does this node's policy allow it? aws says: {said}")
        return False
    value = done.stdout.strip()
    if not _KEY.fullmatch(value):
        problems.append(f"{what} holds no key: one word of letters, digits and +/=_.:,@%^~- is expected; not used")
        return False
    os.environ[variable] = value
    return True
