"""The block of comments in which an exported configuration carries the settings that ParallelCluster has no key for.

Each line starts with `# slipway:`, then comes plain YAML with a version, the settings, and, after a deployment, the
facts of the deployment. The settings hold no secret, only ARNs, so neither does the block.
"""

from __future__ import annotations

import dataclasses
import io
import re
from typing import Any

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from slipway.cluster_config import ClusterFacts, placeholder_facts
from slipway.settings import Settings

VERSION = 1
LINE = re.compile(r"^# slipway:(?: (.*))?$", re.MULTILINE)
INTRODUCTION = (
    "# What ParallelCluster's configuration has no key for. `slipway import pcluster` reads these lines back;\n"
    "# without them it takes its defaults. Where they and the configuration above differ, the configuration is used.\n"
)


class BlockFault(Exception):
    """The block exists and cannot be used; the text is the reason."""


@dataclasses.dataclass(frozen=True)
class Block:
    """The settings of an export and the facts that it was made with."""

    settings: Settings
    facts: ClusterFacts


def settings_data(settings: Settings) -> dict[str, Any]:
    """Return the shortest table that loads to the same settings."""
    data = settings.model_dump(mode="json", exclude_defaults=True)
    for queue in data["queues"]:
        if "count" in queue:  # loading fills both from it, and refuses all three
            queue.pop("min_count", None)
            queue.pop("max_count", None)
    return data


def block_text(settings: Settings, facts: ClusterFacts) -> str:
    """Return the block for the end of a configuration file."""
    content: dict[str, Any] = {"version": VERSION, "settings": settings_data(settings)}
    if facts != placeholder_facts(settings):
        content["facts"] = {
            key: list(value) if isinstance(value, tuple) else value for key, value in dataclasses.asdict(facts).items()
        }
    stream = io.StringIO()
    _yaml().dump(content, stream)
    lines = stream.getvalue().rstrip("\n").split("\n")
    return INTRODUCTION + "".join(f"# slipway: {line}".rstrip() + "\n" for line in lines)


def read_block(text: str) -> Block | None:
    """Return the block in the text of a configuration file, or None. Raises BlockFault if it cannot be used."""
    lines = [match[1] or "" for match in LINE.finditer(text)]
    if not lines:
        return None
    try:
        content = _yaml().load("\n".join(lines))
    except (YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BlockFault(f"is not valid YAML any more ({_first_line(error)})") from None
    if not isinstance(content, dict) or "version" not in content:
        raise BlockFault("has no version")
    if content["version"] != VERSION:
        raise BlockFault(f"has version {content['version']!r}, this release of Slipway reads {VERSION}")
    try:
        settings = Settings.model_validate(content.get("settings"))
    except ValidationError as error:
        place = ".".join(str(key) for key in error.errors()[0]["loc"])
        raise BlockFault(f"holds settings that are not valid: {place}: {error.errors()[0]['msg']}") from None
    return Block(settings, _facts(content.get("facts"), settings))


def _facts(given: Any, settings: Settings) -> ClusterFacts:
    if given is None:
        return placeholder_facts(settings)
    if not isinstance(given, dict) or set(given) != {field.name for field in dataclasses.fields(ClusterFacts)}:
        raise BlockFault("holds facts of another form")
    try:
        return TypeAdapter(ClusterFacts).validate_python(given)
    except ValidationError as error:
        raise BlockFault(f"holds facts of another form ({error.errors()[0]['loc'][0]})") from None


def _yaml() -> YAML:
    """Return a writer of plain values, one line each, ASCII only: no value can end the comment that it is in."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.allow_unicode = False
    yaml.width = 1 << 20
    yaml.constructor.add_constructor("tag:yaml.org,2002:timestamp", type(yaml.constructor).construct_yaml_str)
    return yaml


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
