"""Run a program of the node, Slurm's commands and the AWS CLI among them. Python 3.9, standard library."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

SLURM_CONF = Path("/opt/slurm/etc/slurm.conf")
TIMEOUT_S = 30

PAGE = re.compile(r"<(!doctype|html)\b.*", re.IGNORECASE | re.DOTALL)
MARKUP = re.compile(r"<(style|script|head)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)

Run = Callable[..., str]
"""Runs a command and returns its output; raises OSError or SubprocessError."""


def run(*command: str) -> str:
    """Return the output of a command. Raises OSError or SubprocessError, also when it takes longer than TIMEOUT_S."""
    environment = {**os.environ, "PATH": f"/opt/slurm/bin:/usr/local/bin:{os.environ.get('PATH', '/usr/bin:/bin')}"}
    if "SLURM_CONF" not in environment and SLURM_CONF.exists():
        environment["SLURM_CONF"] = str(SLURM_CONF)
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, errors="replace"
    ).stdout


def reason(error: Exception) -> str:
    """Return the last line of a command's error output, or of the exception."""
    return last_line(str(getattr(error, "stderr", "") or error)) or type(error).__name__


def last_line(text: str) -> str:
    """Return the last line of an error output; an HTML page in it becomes its words, on the line before it.

    The AWS CLI prints the whole page with which a proxy or a load balancer answers instead of AWS.
    """
    page = PAGE.search(text)
    if page:
        text = text[: page.start()] + " ".join(MARKUP.sub(" ", page[0]).split())
    return (text.strip().splitlines() or [""])[-1]
