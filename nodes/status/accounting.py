"""Whether Slurm's accounting answers, asked only where slurm.conf has slurmdbd. Reads only, in bounded time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable

Ask = Callable[..., Iterable[str]]


def problem(ask: Ask, why: Callable[[Exception], str]) -> str:
    """Why accounting does not answer; empty when it does, or when the cluster has none."""
    try:
        config = (line.partition("=") for line in ask("scontrol", "show", "config"))
        values = {key.strip(): value.strip() for key, _, value in config}
        if values.get("AccountingStorageType") != "accounting_storage/slurmdbd":
            return ""
        place = f"{values.get('AccountingStorageHost', '?')}:{values.get('AccountingStoragePort', '?')}"
    except (OSError, subprocess.SubprocessError):
        return ""  # slurmctld does not answer: the fleet's part says so
    try:
        clusters = [line for line in ask("sacctmgr", "--noheader", "--parsable2", "show", "cluster") if line]
    except (OSError, subprocess.SubprocessError) as error:
        return f"slurmdbd at {place} does not answer: {why(error)}"
    return "" if clusters else f"slurmdbd at {place} knows no cluster: its database is empty, or not this cluster's"
