"""Calling other programs: bounded, without a shell, and independent of the terminal."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from acceptance.errors import ExternalError
from acceptance.text import printable


def call(
    argv: list[str], timeout_s: int, missing: str, hint: str, env: Mapping[str, str] | None = None, what: str = ""
) -> str:
    """Run a program and return its output. Raises ExternalError if it is missing, fails or takes too long.

    missing: where the program should be, with a hint; what: the command in messages (default: its name). The program
    runs in its own session, so a Ctrl-C at the terminal reaches only this program.
    """
    what = what or argv[0]
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            check=False,
            encoding="utf-8",
            env=env,
            errors="replace",
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
        )
    except FileNotFoundError:
        raise ExternalError(f"{argv[0]}: is not on this machine's PATH{missing}") from None
    except subprocess.TimeoutExpired:
        raise ExternalError(f"{what}: did not answer within {timeout_s} s. {hint}") from None
    if done.returncode:
        message = printable(done.stderr or done.stdout)[:500]
        raise ExternalError(f"{what}: exit {done.returncode}: {message}. {hint}")
    return done.stdout
