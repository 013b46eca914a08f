"""`slipway import env`: make a settings file from the variables of a runbook. The file is read, never run."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any

from slipway.errors import Fault, SettingsError
from slipway.exchange import runbook_variables as runbook
from slipway.exchange.import_report import Imported, Target, finish
from slipway.exchange.ledger import Fate, Ledger
from slipway.exchange.pcluster_file import is_placeholder
from slipway.exchange.translate import FILL
from slipway.files import refuse_existing
from slipway.instances import INSTANCE_TYPES
from slipway.settings.source import Place
from slipway.settings.write import get_at, set_at

MAX_BYTES = 1 << 20
MAX_LINE = 8192  # characters; no variable of a runbook is longer
ASSIGNMENT = re.compile(r"\s*(?:(?:export|declare\s+-x|typeset\s+-x)\s+)?([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)
EXPANSION = re.compile(r"\$[A-Za-z_{(0-9@*#?!$-]|`")
COMMAND = re.compile(r"(?:\$\(|`)\s*([\w./-]*)", re.ASCII)
WHOLE_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
PLAIN: tuple[tuple[tuple[str, ...], Place], ...] = (
    (runbook.REGION, ("region",)),
    (runbook.VPC, ("network", "vpc_id")),
    (runbook.HEAD_NODE_SUBNET, ("network", "head_node_subnet_id")),
    (runbook.COMPUTE_SUBNET, ("network", "compute_subnet_id")),
    (runbook.SECURITY_GROUP, ("network", "security_group_id")),
    (runbook.KEY_PAIR, ("head_node", "key_pair")),
    (runbook.INSTANCE_TYPE, ("queues", 0, "instance_type")),
    (runbook.COUNT, ("queues", 0, "count")),
    (runbook.LUSTRE, ("storage", "fsx", "file_system_id")),
)


@dataclasses.dataclass(frozen=True)
class Variables:
    """`values` has the last assignment of each name, `others` the lines that are not assignments, by number."""

    values: dict[str, str]
    others: dict[int, str]
    expansions: frozenset[str]


def import_env(
    file: Path | str, output: Path | None = None, *, as_json: bool = False, force: bool = False, **known: str | None
) -> int:
    """Write the settings for the variables in `file` to `output` (None: standard output), and the report to stderr.

    `known` has what the file does not say: name, region, zone. Return 0 if every value was carried and the settings are
    valid, else 1. Raises SettingsError if the file cannot be read or has no variable, UsageError if `output` exists
    without `force`.
    """
    refuse_existing(output, force)
    result = imported_variables(str(file), read_variables(file), {key: value for key, value in known.items() if value})
    return finish(result, Target(output, force, as_json))


def read_variables(file: Path | str) -> Variables:
    """Return the assignments in `file`. Raises SettingsError if it is missing, unreadable or has none."""
    text = _read(Path(file))
    values: dict[str, str] = {}
    others: dict[int, str] = {}
    expansions = set()
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > MAX_LINE:
            raise _refused(file, f"is longer than {MAX_LINE} characters", "is this the right file?", number)
        match = ASSIGNMENT.fullmatch(line)
        if match is None:
            if line.strip() and not line.strip().startswith("#"):
                others[number] = line.strip()
            continue
        values[match[1]] = _value(match[2])
        expansions.discard(match[1])
        if EXPANSION.search(match[2]) and not _is_single_quoted(match[2]):
            expansions.add(match[1])
            values[match[1]] = _to_be_filled(match[2], values[match[1]])
    if not values:
        raise _refused(file, "has no line such as export NAME=value", "is this the right file?")
    return Variables(values, others, frozenset(expansions))


def _read(path: Path) -> str:
    try:
        if not path.is_file():
            rule = "is a folder" if path.is_dir() else "is no regular file" if path.exists() else "no such file"
            raise _refused(path, rule, "name a file of lines such as export NAME=value")
        if path.stat().st_size > MAX_BYTES:
            raise _refused(path, f"is larger than {MAX_BYTES} bytes", "is this the right file?")
        return path.read_text(encoding="utf-8").replace("\0", "?")
    except UnicodeDecodeError:
        raise _refused(path, "is not UTF-8 text", "save it as UTF-8") from None
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from None


def _refused(file: Path | str, rule: str, hint: str = "", line: int = 0) -> SettingsError:
    return SettingsError([Fault(str(file), line, "", None, rule, hint)])


def _value(text: str) -> str:
    """Return the value as a shell reads it, without expansions; `<your value>` is kept whole."""
    placeholder = re.match(r"[^'\"#\s<]*<[^>]*>", text)
    if placeholder:
        return placeholder[0]
    for part in (text, re.split(r"\s#", text)[0]):  # an apostrophe in a comment is no open quote
        try:
            words = shlex.split(part, posix=True)
        except ValueError:
            continue
        return words[0] if words and not part[:1].isspace() else ""
    return text.strip()


def _to_be_filled(text: str, value: str) -> str:
    """Return a value with an expansion in a form that is recognised as a placeholder later.

    A command is reduced to its first word, because what follows may be a password.
    """
    command = COMMAND.search(text)
    if command:
        return f"<output of {command[1] or 'a command'}>"
    return value if is_placeholder(value) else f"<{re.sub('[<>]', '', value) or 'fill in'}>"


def _is_single_quoted(text: str) -> bool:
    return text.startswith("'") and "'" in text[1:]


def imported_variables(file: str, variables: Variables, given: dict[str, str]) -> Imported:
    """Return the settings of the runbook's variables; `given` values replace those of the file."""
    leaves: dict[Place, Any] = {(key,): value for key, value in variables.values.items()}
    leaves |= {(f"line {number}",): text for number, text in variables.others.items()}
    result = Imported(file, {"queues": [{"name": runbook.QUEUE}]}, Ledger(leaves), {}, [])
    for names, to in PLAIN:
        _carry(result, variables, names, to)
    _reservation(result, variables)
    _home(result, variables)
    _explain(result, variables)
    _complete(result, given)
    return result


def _carry(result: Imported, variables: Variables, names: tuple[str, ...], to: Place) -> str | None:
    """Put the first of `names` that has a value at `to`; the others repeat it or differ from it. Return its name."""
    present = [name for name in names if variables.values.get(name)]
    for name in present:
        value = variables.values[name]
        if name != present[0]:
            same = value == variables.values[present[0]]
            fate = (Fate.IMPLIED, "the same again") if same else (Fate.NOT_CARRIED, f"{present[0]} has another value")
            result.ledger.decide((name,), *fate)
        elif value == runbook.NO_KEY_PAIR:
            result.ledger.decide((name,), Fate.IMPLIED, "no key pair: users log in through Session Manager")
        else:
            _put(result, variables, name, to)
    return present[0] if present else None


def _put(result: Imported, variables: Variables, name: str, to: Place) -> None:
    value = variables.values[name]
    set_at(result.settings, to, int(value) if to[-1] == "count" and WHOLE_NUMBER.fullmatch(value) else value)
    if name in variables.expansions or is_placeholder(value):
        text = f"fill in the value of {value}; nothing of the file is run"
        result.comments[to] = text
        result.ledger.decide((name,), Fate.TO_FILL, text, to)
    else:
        result.ledger.decide((name,), Fate.CARRIED, "", to)


def _reservation(result: Imported, variables: Variables) -> None:
    kind: Place = ("queues", 0, "reservation", "kind")
    if _carry(result, variables, runbook.RESERVATION, ("queues", 0, "reservation", "id")):
        reservation = result.settings["queues"][0]["reservation"]
        result.settings["queues"][0]["reservation"] = {"kind": "on-demand", **reservation}
        text = "as the runbook's templates use it; capacity-block for a capacity block"
        result.comments[kind] = text
        result.notes.append(f"queues[0].reservation.kind: on-demand, {text}")


def _home(result: Imported, variables: Variables) -> None:
    if any(variables.values.get(name) for name in runbook.HOME_VOLUME):
        kind, path = runbook.HOME_MOUNT
        set_at(result.settings, ("storage", "mounts", 0), {"path": path, "kind": kind})
        _carry(result, variables, runbook.HOME_VOLUME, ("storage", "mounts", 0, "id"))


def _explain(result: Imported, variables: Variables) -> None:
    for name in runbook.REMOTE_WRITE:
        text = "Slipway makes a new workspace (observability.prometheus) and writes to that"
        result.ledger.decide((name,), Fate.NOT_CARRIED, text)
    for name in runbook.MOUNT_NAME:
        result.ledger.decide((name,), Fate.IMPLIED, "the file system's id says it")
    for leaf in result.ledger.rest():
        name = str(leaf[0])
        if result.ledger.leaves[leaf] == "":
            result.ledger.decide(leaf, Fate.IMPLIED, "empty")
        elif name in variables.values:
            result.ledger.decide(leaf, Fate.NOT_CARRIED, "no setting for this variable")
        else:
            result.ledger.decide(
                leaf, Fate.NOT_CARRIED, f"{_command(result.ledger.leaves[leaf])} is no assignment, and nothing is run"
            )


def _command(line: str) -> str:
    """Return the first word of a line: what follows may be a password."""
    word, _, rest = line.partition(" ")
    return repr(f"{word.partition('=')[0][:40]}{' ...' if rest or '=' in word else ''}")


def _complete(result: Imported, given: dict[str, str]) -> None:
    """Add what the variables lack from the options; what is still missing is to be filled in."""
    for key, value in given.items():
        result.settings[key] = value
        for entry in result.ledger.entries:
            if entry.to == (key,):
                entry.fate, entry.text = Fate.CARRIED, "given on the command line"
    _settle(result)
    needed: dict[Place, str] = {
        ("name",): "the cluster's name, --name",
        ("region",): "the region, AWS_REGION or --region",
        ("zone",): "the availability zone of the compute subnet and the reservation, --zone",
        ("queues", 0, "instance_type"): "the instance type, INSTANCE",
        ("queues", 0, "count"): "the number of instances, NUM_INSTANCES",
    }
    if "network" in result.settings:
        for key in ("vpc_id", "head_node_subnet_id", "compute_subnet_id"):
            needed["network", key] = "an existing network needs its VPC and both subnets"
    for to, text in needed.items():
        if get_at(result.settings, to) is None:
            set_at(result.settings, to, FILL)
            result.comments[to] = text
            result.ledger.add(Fate.TO_FILL, text, to)


def _settle(result: Imported) -> None:
    """Enable EFA where the instance type has it, as the runbook's templates do."""
    instance = INSTANCE_TYPES.get(str(result.settings["queues"][0].get("instance_type")))
    if instance is None or instance.efa_interfaces:
        result.settings["queues"][0]["efa"] = True
