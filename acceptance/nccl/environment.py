"""The environment that `-J` writes into its file: kept are the variables that shape a run, never a secret.

nccl-tests writes the whole environment of its rank 0, credentials of AWS and tokens included. Kept by name is what
NCCL, its plugin, libfabric, CUDA and the launchers read; what looks like a secret even there loses its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "(hidden)"
_KEPT = re.compile(
    r"(?:NCCL|FI|OFI|CUDA|RDMAV|UCX|OMPI_MCA|PMIX_MCA|LD|SLURM)_[A-Z0-9_a-z]{1,100}|HOSTNAME|NVIDIA_VISIBLE_DEVICES"
)
_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASS(?:WORD|WD|PHRASE)?(?:_|$)|CREDENTIAL|(?:^|_)(?:API_?)?KEY(?:_|$)|AUTH|JWT"
)
_SECRET_VALUE = re.compile(
    r"(?:AKIA|ASIA)[A-Z0-9]{12,}|://[^/\s@]+:[^/\s@]+@|nvapi-|gh[pousr]_[A-Za-z0-9]{16}|hf_[A-Za-z0-9]{16}"
    r"|eyJ[\w-]{8,}\.|X-Amz-(?:Signature|Security-Token)|-----BEGIN|(?i:password|secret|token)\s*[=:]"
)
_LONGEST_VALUE = 1024  # characters
_MOST = 1_000


def kept_environment(entries: Iterable[object]) -> dict[str, str]:
    """Return what may be kept of entries NAME=VALUE; others, and whatever is no text, are dropped."""
    kept: dict[str, str] = {}
    for entry in entries:
        if not isinstance(entry, str):
            continue
        name, equals, value = entry.partition("=")
        if equals and _KEPT.fullmatch(name) and len(kept) < _MOST:
            secret = _SECRET_NAME.search(name.upper()) or _SECRET_VALUE.search(value)
            kept[name] = HIDDEN if secret else value[:_LONGEST_VALUE]
    return kept
