"""``slipway init``: asks for a new cluster, offers the reservations that are there, and writes a settings file.

The file is written at the end, whole or not at all: who breaks off (Ctrl-C, end of input) leaves nothing behind. Each
answer is held against the rules of the settings, and asked for again with the rule's words.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slipway.errors import EXIT_GOOD, EXIT_NO, Fault, SettingsError, UsageError
from slipway.files import printable, refuse_existing, write_whole
from slipway.importer.ledger import Path as Place
from slipway.importer.ledger import get_at, set_at
from slipway.importer.text import faults_in, settings_text
from slipway.instances import INSTANCE_TYPES
from slipway.settings import Observability, Storage
from slipway.source import path_text

Ask = Callable[[str, str], str]
"""Asks a question with a default (empty: none); gives the answer, the default for an empty one. May raise EOFError."""
Say = Callable[[str], None]

DEFAULTS = {
    "name": "gpu-cluster",
    "region": "us-east-1",
    "instance_type": "p5.48xlarge",
    "count": "2",
    "kind": "capacity-block",
    "queue": "train",
}
NONE = "none"
LIVE_STATES = ["active", "scheduled", "pending"]
FIRST_ZONE = "a"
ROUNDS = 20  # of wrong answers to one question: whatever answers then is no person
NO_RESERVATION = f"{NONE} (on demand, capacity may not be there)"


@dataclasses.dataclass(frozen=True)
class Offer:
    """A capacity reservation that is there: ``free`` instances of ``total``; ``end`` is text, empty without one."""

    id: str
    kind: str
    instance_type: str
    zone: str
    total: int
    free: int
    state: str
    end: str

    def __str__(self) -> str:
        until = f", until {self.end}" if self.end else ""
        what = f"{self.total} x {self.instance_type} in {self.zone}, {self.free} free"
        return f"{self.id}: {what}, {self.kind}, {self.state}{until}"


def init(
    output: Path | None = None,
    *,
    ask: Ask | None = None,
    given: Mapping[str, str | int | None] | None = None,
    yes: bool = False,
    as_json: bool = False,
    force: bool = False,
    find: Callable[[str], Sequence[Offer]] | None = None,
) -> int:
    """Write a new settings file to ``output`` (None: NAME.yaml here).

    ``given`` answers questions beforehand: name, region, zone, instance_type, count, reservation, reservation_kind,
    key_pair, os. ``ask`` asks for the others; with ``yes``, or without ``ask``, their defaults are taken. ``find``
    gives a region's reservations (``live_reservations`` when left out; it raises LookupError with the reason when AWS
    does not say). Returns 0 when the file is written. Raises UsageError for an unknown key of ``given`` or an existing
    file without ``force``, SettingsError with every fault when what was given is wrong and nobody can be asked.
    """
    answers = {key: str(value) for key, value in (given or {}).items() if value is not None}
    unknown = sorted(set(answers) - QUESTIONS)
    if unknown:
        raise UsageError(f"init knows no {', '.join(unknown)}. Hint: one of {', '.join(sorted(QUESTIONS))}")
    refuse_existing(output, force)
    talk = _Talk(None if yes else ask, answers, find or live_reservations)
    try:
        return _ask_and_write(talk, output, as_json=as_json, force=force)
    except EOFError:
        raise UsageError("the input ended before the last answer; nothing is written. Hint: --yes") from None


def _ask_and_write(talk: _Talk, output: Path | None, *, as_json: bool, force: bool) -> int:
    _questions(talk)
    target = output or Path(f"{talk.data['name']}.yaml")
    if talk.ask is None:
        refuse_existing(target, force)
    text = settings_text(talk.data, talk.comments, HEAD)
    faults = faults_in(text, str(target))
    if faults:
        raise SettingsError(faults)
    if not force and target.exists() and not talk.agrees(f"{target} exists already. Replace it?"):
        print(f"{target} is left as it is", file=sys.stderr)
        return EXIT_NO
    write_whole(target, text, force=True)
    _tell(talk, target, as_json)
    return EXIT_GOOD


HEAD = ("Made by `slipway init`. Every key: docs/settings.md. Next: slipway check, slipway preflight, slipway cost.",)
QUESTIONS = {
    "name", "region", "zone", "os", "instance_type", "count", "reservation", "reservation_kind", "key_pair",
}  # fmt: skip


class _Talk:
    """The settings as they grow, and whom to ask."""

    def __init__(self, ask: Ask | None, given: dict[str, str], find: Callable[[str], Sequence[Offer]]) -> None:
        self.ask = ask
        self.given = given
        self.find = find
        self.data: dict[str, Any] = {}
        self.comments: dict[Place, str] = {}

    def say(self, text: str) -> None:
        """To the user's terminal, never to standard output."""
        print(printable(text), file=sys.stderr)

    def question(self, key: str, text: str, default: str, to: Place, convert: Callable[[str], Any] = str) -> None:
        """Put a valid answer to ``to``. A given answer that is wrong is a fault when nobody can be asked."""
        answer = self.given.get(key)
        for _ in range(ROUNDS):
            if answer is None:
                answer = self.ask(text, default).strip() if self.ask else default
            set_at(self.data, to, convert(answer))
            faults = self._faults(to)
            if not faults:
                return
            if self.ask is None:
                raise SettingsError(
                    [dataclasses.replace(fault, file=f"--{key.replace('_', '-')}", line=0) for fault in faults]
                )
            for fault in faults:
                self.say(f"{answer!r} {fault.rule}{f' ({fault.hint})' if fault.hint else ''}")
            answer = None
        raise UsageError(f"{text}: no valid answer after {ROUNDS} tries")

    def _faults(self, to: Place) -> list[Fault]:
        """What the rules say about this answer among the answers so far; missing ones are not its fault."""
        return [fault for fault in faults_in(settings_text(self.data, {}), "") if fault.path == path_text(to)]

    def agrees(self, text: str) -> bool:
        """Whether the user says yes; no when nobody can be asked."""
        return self.ask is not None and self.ask(f"{text} (yes/no)", "no").strip().lower() in ("y", "yes")


def _questions(talk: _Talk) -> None:
    talk.question("name", "Name of the cluster", DEFAULTS["name"], ("name",))
    talk.question("region", "AWS region", DEFAULTS["region"], ("region",))
    offers = _offers(talk)
    offer = _reservation(talk, offers)
    zone = offer.zone if offer else f"{talk.data['region']}{FIRST_ZONE}"
    talk.question("zone", "Availability zone, the reservation's if there is one", zone, ("zone",))
    if "os" in talk.given:
        talk.question("os", "Operating system", "", ("os",))
    if "key_pair" in talk.given:
        talk.question("key_pair", "EC2 key pair", "", ("head_node", "key_pair"))
    talk.data.setdefault("queues", [{}])[0]["name"] = DEFAULTS["queue"]
    _instances(talk, offer)
    talk.data["storage"] = {"fsx": Storage().fsx.model_dump(exclude={"file_system_id"})}
    talk.data["observability"] = Observability().model_dump(include={"prometheus", "grafana", "retention_days"})
    _acceptance(talk)


def _offers(talk: _Talk) -> Sequence[Offer]:
    """The reservations of the region; none, said so, when AWS does not answer."""
    try:
        offers = talk.find(talk.data["region"])
    except LookupError as error:
        talk.say(f"Reservations cannot be looked up: {error}. Going on without.")
        return ()
    if not offers:
        talk.say(f"No live capacity reservation in {talk.data['region']}.")
    for number, offer in enumerate(offers, start=1):
        talk.say(f"  {number}. {offer}")
    return offers


def _reservation(talk: _Talk, offers: Sequence[Offer]) -> Offer | None:
    """Which reservation: a number of the list, an id, or none. The only one there is the default."""
    place: Place = ("queues", 0, "reservation", "id")
    talk.data["queues"] = [{"name": DEFAULTS["queue"]}]
    numbers = {str(number): offer.id for number, offer in enumerate(offers, start=1)}
    default = offers[0].id if len(offers) == 1 else NONE
    answer = talk.given.get("reservation") or (
        talk.ask(f"Reservation: a number of the list, an id cr-..., or {NO_RESERVATION}", default).strip()
        if talk.ask else default
    )  # fmt: skip
    if answer.lower() == NONE:
        return None
    talk.given["reservation"] = numbers.get(answer, answer)
    again = "Reservation: a number of the list, or an id cr-..."
    talk.question("reservation", again, default, place, lambda text: numbers.get(text, text))
    chosen = get_at(talk.data, place)
    offer = next((one for one in offers if one.id == chosen), None)
    kind: Place = (*place[:-1], "kind")
    if offer:
        set_at(talk.data, kind, offer.kind)
        talk.comments[place] = (
            f"{offer.total} x {offer.instance_type}, {offer.free} free{f', until {offer.end}' if offer.end else ''}"
        )
    else:
        talk.question("reservation_kind", "Its kind, capacity-block or on-demand", DEFAULTS["kind"], kind)
    return offer


def _instances(talk: _Talk, offer: Offer | None) -> None:
    queue = talk.data["queues"][0]
    default = offer.instance_type if offer else DEFAULTS["instance_type"]
    talk.question("instance_type", "Instance type", default, ("queues", 0, "instance_type"))
    count = str(offer.total) if offer else DEFAULTS["count"]
    talk.question("count", "How many instances", count, ("queues", 0, "count"), _number)
    if INSTANCE_TYPES[queue["instance_type"]].efa_interfaces:
        queue["efa"] = True


def _number(text: str) -> Any:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


def _acceptance(talk: _Talk) -> None:
    """Off, with the reason, where no limits are known to hold the cluster against."""
    fault = next(
        (one for one in faults_in(settings_text(talk.data, {}), "") if one.path.startswith("acceptance")), None
    )
    if fault:
        talk.data["acceptance"] = {"scenario": NONE}
        talk.comments["acceptance", "scenario"] = fault.rule
        talk.say(f"Acceptance is off: {fault.rule}. {fault.hint}")


def _tell(talk: _Talk, target: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"file": str(target), "settings": talk.data}))
    else:
        print(f"{target} is written. Next: slipway check {target}")


def live_reservations(region: str) -> list[Offer]:
    """The account's live capacity reservations in ``region``, largest first. Raises LookupError with the reason."""
    import boto3

    from slipway.preflight.aws import Aws, Refused, Unasked

    try:
        aws = Aws(boto3.session.Session(), region)
        answer = aws.call("ec2", "describe_capacity_reservations", Filters=[{"Name": "state", "Values": LIVE_STATES}])
    except (Unasked, Refused) as error:
        raise LookupError(str(error)) from None
    offers = [_offer(one) for one in answer.get("CapacityReservations", [])]
    return sorted(offers, key=lambda offer: (-offer.total, offer.id))


def _offer(one: Mapping[str, Any]) -> Offer:
    end = one.get("EndDate")
    return Offer(
        id=one["CapacityReservationId"],
        kind="capacity-block" if one.get("ReservationType") == "capacity-block" else "on-demand",
        instance_type=one.get("InstanceType", ""),
        zone=one.get("AvailabilityZone", ""),
        total=one.get("TotalInstanceCount", 0),
        free=one.get("AvailableInstanceCount", 0),
        state=one.get("State", ""),
        end=f"{end:%Y-%m-%d %H:%M} UTC" if end else "",
    )
