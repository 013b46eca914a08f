"""What the shell offers at Tab: settings files, rules, kinds of faults, regions, zones, profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from slipway.errors import SlipwayError

BREAK_KINDS = ("slow-node=", "bootstrap=head", "bootstrap=compute", "hang")
"""What `rehearse --break` takes; tests/slipway/test_completion.py compares it with `slipway.breakage`."""
OS_NAMES = ("ubuntu2204", "ubuntu2404", "alinux2023")
APPROVALS = ("never", "any-change", "broadening")
RESERVATION_KINDS = ("capacity-block", "on-demand")
LOG_GROUPS = ("setup", "steps", "health", "nccl", "containers", "slurm", "boot", "system", "acceptance")
"""What `logs --group` takes; `slipway.logs.GROUPS` has their streams, and boto3, which it needs, is slow to load."""
DEEPEST = 8  # folders that one Tab may go down


Values = Sequence[str] | Callable[[], Iterable[str]]
"""What Tab offers: a list, or a function if the list is slow to make."""


def one_of(values: Values) -> Callable[[str], list[str]]:
    """Return a function that completes one of `values`."""
    return lambda incomplete: [
        value for value in (values() if callable(values) else values) if value.startswith(incomplete)
    ]


def settings_files(incomplete: str) -> list[str]:
    """Complete a YAML file. A folder that is the only match is entered, so that one Tab is enough."""
    matches = _entries(incomplete)
    for _ in range(DEEPEST):
        if len(matches) != 1 or not matches[0].endswith("/"):
            break
        matches = _entries(matches[0])
    return matches


def _entries(start: str) -> list[str]:
    folder, _, name = start.rpartition("/")
    folder = f"{folder}/" if start.startswith("/") or folder else ""
    try:
        entries = sorted(Path(folder or ".").expanduser().iterdir())
        return [
            f"{folder}{entry.name}{'/' if entry.is_dir() else ''}"
            for entry in entries
            if entry.name.startswith(name)
            and (name or not entry.name.startswith("."))
            and (entry.is_dir() or entry.suffix in (".yaml", ".yml"))
        ]
    except OSError:  # a folder that does not exist or must not be read has nothing to offer
        return []


def rule_names() -> list[str]:
    """Return the rules and questions that `check --explain` knows, and `all`."""
    from slipway.explain import explanations

    return ["all", *(row.name for row in explanations())]


def region_names() -> list[str]:
    """Return every region in which Slipway can deploy."""
    from slipway.regions import regions

    return sorted(regions())


def zone_names() -> list[str]:
    """Return the zones of every region."""
    from slipway.regions import regions

    return sorted(f"{name}{letter}" for name, facts in regions().items() for letter in facts["zones"])


def instance_types() -> list[str]:
    """Return the instance types that Slipway has facts of."""
    from slipway.instances import INSTANCE_TYPES

    return sorted(INSTANCE_TYPES)


def profiles() -> list[str]:
    """Return the profiles of the user's AWS configuration."""
    import botocore.session
    from botocore.exceptions import BotoCoreError

    try:
        return sorted(botocore.session.Session().available_profiles)
    except (BotoCoreError, SlipwayError):
        return []
