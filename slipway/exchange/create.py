"""`slipway init`: ask about a new cluster, offer the account's live reservations, and write a settings file.

The file is written at the end, completely or not at all, so Ctrl-C or the end of the input leaves no file. Each answer
is checked with the rules of the settings; a wrong answer is asked again, with the rule's message.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slipway.command_line import this_program
from slipway.errors import EXIT_GOOD, EXIT_NO, Fault, SettingsError, UsageError
from slipway.files import refuse_existing, write_whole
from slipway.instances import INSTANCE_TYPES
from slipway.reservations import instance_count
from slipway.settings import Observability, Storage
from slipway.settings.source import Place, path_text, redacted
from slipway.settings.write import faults_in, get_at, remove_at, schema_line, set_at, settings_text

Ask = Callable[[str, str], str]
"""Ask a question with a default (empty: no default) and return the answer, or the default. May raise EOFError."""
Say = Callable[[str], None]

DEFAULTS = {
    "name": "gpu",
    "region": "us-east-1",
    "instance_type": "p5.48xlarge",
    "count": "2",
    "kind": "capacity-block",
    "queue": "train",
}
NONE = "none"
RESERVATION: Place = ("queues", 0, "reservation", "id")
RESERVATION_KIND: Place = ("queues", 0, "reservation", "kind")
LIVE_STATES = ["active", "scheduled", "pending"]
FIRST_ZONE = "a"
ROUNDS = 20  # wrong answers to one question: after these it is a program that answers
NO_RESERVATION = f"{NONE} (on demand, capacity may not be there)"


@dataclasses.dataclass(frozen=True)
class Offer:
    """A live capacity reservation with `free` of `total` instances; `end` is text, empty if it has no end."""

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
    as_json: bool = False,
    force: bool = False,
    find: Callable[[str], Sequence[Offer]] | None = None,
) -> int:
    """Write a new settings file to `output` (None: NAME.yaml here).

    `given` has answers to QUESTIONS. `ask` asks the other questions; without `ask` their defaults are used. `find`
    returns a region's reservations (default: `live_reservations`), or raises LookupError with the reason why AWS does
    not list them. Return 0 when the file is written, 1 when an existing file is kept. Raises UsageError for an unknown
    key of `given` or an existing file without `force`, SettingsError with every fault if answers in `given` are wrong
    and there is no `ask`.
    """
    answers = {key: str(value) for key, value in (given or {}).items() if value is not None}
    unknown = sorted(set(answers) - QUESTIONS)
    if unknown:
        raise UsageError(f"init knows no {', '.join(unknown)}. Hint: one of {', '.join(sorted(QUESTIONS))}")
    refuse_existing(output, force)
    talk = _Talk(ask, answers, find or live_reservations)
    try:
        return _ask_and_write(talk, output, as_json=as_json, force=force)
    except EOFError:
        raise UsageError("the input ended before the last answer; nothing is written. Hint: --yes") from None


def _ask_and_write(talk: _Talk, output: Path | None, *, as_json: bool, force: bool) -> int:
    _questions(talk)
    if talk.faults:
        raise SettingsError(talk.faults)
    target = output or Path(f"{talk.data['name']}.yaml")
    if talk.ask is None:
        refuse_existing(target, force)
    text = settings_text(talk.data, talk.comments, (*schema_line(target), *HEAD))
    faults = faults_in(text, str(target))
    if faults:
        raise SettingsError(faults)
    if not force and target.exists() and not talk.agrees(f"{target} exists already. Replace it?"):
        print(f"{target} is left as it is", file=sys.stderr)
        return EXIT_NO
    write_whole(target, text, force=True)
    _print_result(talk, target, as_json)
    return EXIT_GOOD


HEAD = ("Made by `slipway init`. Every key: docs/settings.md. Next: slipway check, slipway preflight, slipway cost.",)
QUESTIONS = {
    "name", "region", "zone", "os", "instance_type", "count", "reservation", "reservation_kind", "key_pair",
}  # fmt: skip


class _Talk:
    """The settings that the answers so far make, and the way to ask for more."""

    def __init__(self, ask: Ask | None, given: dict[str, str], find: Callable[[str], Sequence[Offer]]) -> None:
        self.ask = ask
        self.given = given
        self.find = find
        self.data: dict[str, Any] = {}
        self.comments: dict[Place, str] = {}
        self.faults: list[Fault] = []

    def say(self, text: str) -> None:
        """Print to standard error: standard output is for the result."""
        print(redacted(text), file=sys.stderr)

    def question(
        self,
        key: str,
        text: str,
        default: str,
        to: Place,
        convert: Callable[[str], Any] = str,
        more: Callable[[Any], list[Fault]] = lambda _: [],
    ) -> None:
        """Put a valid answer at `to`, or nothing if `convert` returns None. `more` returns further faults of it.

        Without `ask` the faults of a given answer are noted, to be raised together with those of the others, and the
        default is used instead.
        """
        answer = self.given.get(key)
        for _ in range(ROUNDS):
            if answer is None:
                answer = self.ask(text, default).strip() if self.ask else default
            faults = self._put(to, convert(answer), more)
            if not faults:
                return
            if self.ask is None:
                self._note(key, faults)
                self._put(to, convert(default), more)
                return
            for fault in faults:
                self.say(f"{answer!r} {fault.rule}{f' ({fault.hint})' if fault.hint else ''}")
            answer = None
        raise UsageError(f"{text}: no valid answer after {ROUNDS} tries")

    def _put(self, to: Place, value: Any, more: Callable[[Any], list[Fault]]) -> list[Fault]:
        if value is None:
            if get_at(self.data, to) is not None:
                remove_at(self.data, to)
            return []
        set_at(self.data, to, value)
        return self._faults(to) or more(value)

    def _note(self, key: str, faults: Sequence[Fault]) -> None:
        """Note the faults of an option. A zone is not compared with a region that is wrong itself."""
        if not (key == "zone" and any(fault.file == _option("region") for fault in self.faults)):
            self.faults += [dataclasses.replace(fault, file=_option(key), line=0, column=0) for fault in faults]

    def _faults(self, to: Place) -> list[Fault]:
        """Return the faults of this answer; keys that have no answer yet are not among them."""
        return [fault for fault in faults_in(settings_text(self.data, {}), "") if fault.path == path_text(to)]

    def agrees(self, text: str) -> bool:
        """Return whether the user says yes; without `ask` it is no."""
        return self.ask is not None and self.ask(f"{text} (yes/no)", "no").strip().lower() in ("y", "yes")


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


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
        key_pair = ("head_node", "key_pair")
        talk.question("key_pair", "EC2 key pair, or none", NONE, key_pair, lambda text: None if text == NONE else text)
    talk.data.setdefault("queues", [{}])[0]["name"] = DEFAULTS["queue"]
    _instances(talk, offer)
    talk.data["storage"] = {"fsx": Storage().fsx.model_dump(exclude={"file_system_id"})}
    talk.data["observability"] = Observability().model_dump(include={"prometheus", "grafana", "retention_days"})
    _acceptance(talk)


def _offers(talk: _Talk) -> Sequence[Offer] | None:
    """Return the reservations of the region, or None with a message if AWS does not answer."""
    if any(fault.file == _option("region") for fault in talk.faults):
        return None
    try:
        offers = talk.find(talk.data["region"])
    except LookupError as error:
        talk.say(f"Reservations cannot be looked up: {error}. Going on without.")
        return None
    if not offers:
        talk.say(f"No live capacity reservation in {talk.data['region']}.")
    for number, offer in enumerate(offers, start=1):
        talk.say(f"  {number}. {offer}")
    return offers


def _reservation(talk: _Talk, found: Sequence[Offer] | None) -> Offer | None:
    """Ask for the reservation: a number of the list, an id, or none. Return it if it is one of `found`."""
    talk.data["queues"] = [{"name": DEFAULTS["queue"]}]
    offers = {offer.id: offer for offer in found or ()}
    numbers = {str(number): id for number, id in enumerate(offers, start=1)}
    number = "a number of the list, " if offers else ""
    text = f"Reservation: {number}an id cr-..., or {NO_RESERVATION}"

    def convert(answer: str) -> str | None:
        return None if answer.lower() == NONE else numbers.get(answer, answer)

    def contradictions(answer: Any) -> list[Fault]:
        offer = offers.get(answer)
        return _contradictions(offer, talk.given) if offer else []

    talk.question("reservation", text, _default_reservation(talk, found), RESERVATION, convert, contradictions)
    chosen = get_at(talk.data, RESERVATION)
    offer = offers.get(chosen)
    if offer:
        set_at(talk.data, RESERVATION_KIND, offer.kind)
        until = f", until {offer.end}" if offer.end else ""
        talk.comments[RESERVATION] = f"{offer.total} x {offer.instance_type}, {offer.free} free{until}"
        talk.say(f"took reservation {offer}")
    elif chosen is not None:
        _unseen_reservation(talk, chosen, asked=found is not None)
    elif "reservation_kind" in talk.given:
        talk.say("warning: --reservation-kind says nothing without a reservation")
    return offer


def _default_reservation(talk: _Talk, found: Sequence[Offer] | None) -> str:
    """Return the id of the only reservation that fits the options; `none`, with a message, if several or none fit."""
    if talk.ask is None and "reservation" in talk.given:
        return NONE
    fitting = [offer for offer in found or () if _fits(offer, talk.given)]
    if len(fitting) == 1:
        return fitting[0].id
    if found and talk.ask is None:
        why = f"{len(fitting)} fit" if fitting else "none fits what is asked for"
        talk.say(f"took no reservation: {why}. Hint: --reservation ID")
    return NONE


def _fits(offer: Offer, given: Mapping[str, str]) -> bool:
    return offer.instance_type in INSTANCE_TYPES and not _contradictions(offer, given)


def _contradictions(offer: Offer, given: Mapping[str, str]) -> list[Fault]:
    """Return where the options differ from the reservation."""
    count = given.get("count", "")
    differs = {
        key: (given[key], of_offer)
        for key, of_offer in (
            ("instance_type", offer.instance_type), ("zone", offer.zone), ("reservation_kind", offer.kind),
        )
        if given.get(key, of_offer) != of_offer
    }  # fmt: skip
    if count.isascii() and count.isdecimal() and len(count) < 10 and 0 < offer.total < int(count):
        differs["count"] = (count, f"{offer.total} instances")
    return [
        Fault(
            "",
            0,
            path_text(RESERVATION),
            repr(offer.id),
            f"has {has}, {_option(key)} says {says}",
            "leave one of them out",
        )
        for key, (says, has) in differs.items()
    ]


def _unseen_reservation(talk: _Talk, chosen: str, *, asked: bool) -> None:
    """Settle the kind of a reservation that AWS did not list: by an option, a question, or a guess with a warning."""
    if asked:
        talk.say(f"warning: {chosen} is not among the live reservations of {talk.data['region']}")
    talk.question("reservation_kind", "Its kind, capacity-block or on-demand", DEFAULTS["kind"], RESERVATION_KIND)
    if talk.ask is None and "reservation_kind" not in talk.given:
        text = "a guess; on-demand for an On-Demand Capacity Reservation"
        talk.comments[RESERVATION_KIND] = text
        talk.say(f"{path_text(RESERVATION_KIND)}: {DEFAULTS['kind']}, {text}. Hint: --reservation-kind")


def _instances(talk: _Talk, offer: Offer | None) -> None:
    queue = talk.data["queues"][0]
    default = offer.instance_type if offer else DEFAULTS["instance_type"]
    talk.question("instance_type", "Instance type", default, ("queues", 0, "instance_type"))
    count = str(offer.total) if offer and offer.total else DEFAULTS["count"]
    talk.question("count", "How many instances", count, ("queues", 0, "count"), _number)
    if INSTANCE_TYPES[queue["instance_type"]].efa_interfaces:
        queue["efa"] = True
        if "reservation" not in queue:
            queue["placement_group"] = True
    if offer:
        for fault in _contradictions(offer, {**_as_given(talk.data), "reservation_kind": offer.kind}):
            talk.say(f"warning: {fault.value} {fault.rule}")


def _as_given(data: Mapping[str, Any]) -> dict[str, str]:
    queue = data["queues"][0]
    return {"zone": data["zone"], "instance_type": queue["instance_type"], "count": str(queue["count"])}


def _number(text: str) -> Any:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


def _acceptance(talk: _Talk) -> None:
    """Switch acceptance off, with the reason, where no limits are known for the cluster."""
    fault = next(
        (fault for fault in faults_in(settings_text(talk.data, {}), "") if fault.path.startswith("acceptance")), None
    )
    if fault:
        talk.data["acceptance"] = {"scenario": NONE}
        talk.comments["acceptance", "scenario"] = fault.rule
        talk.say(f"Acceptance is off: {fault.rule}. {fault.hint}")


def _print_result(talk: _Talk, target: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"file": str(target), "settings": talk.data}))
    else:
        print(f"{target} is written. Next: {this_program()} check {shlex.quote(str(target))}")


def live_reservations(region: str, session: Any = None) -> list[Offer]:
    """Return the account's live capacity reservations in `region`, largest first, asked through a boto3 `session`.

    Raises LookupError with the reason if AWS does not list them.
    """
    import boto3
    from botocore.exceptions import BotoCoreError

    from slipway.aws.calls import Aws, Refused, Unasked

    try:
        aws = Aws(session or boto3.session.Session(), region)
        answer = aws.call("ec2", "describe_capacity_reservations", Filters=[{"Name": "state", "Values": LIVE_STATES}])
    except BotoCoreError as error:  # no such profile, a broken configuration
        raise LookupError(f"the AWS configuration cannot be used: {error}") from None
    except (Unasked, Refused) as error:
        raise LookupError(str(error)) from None
    offers = [_offer(reservation) for reservation in answer.get("CapacityReservations", [])]
    return sorted(offers, key=lambda offer: (-offer.total, offer.id))


def _offer(reservation: Mapping[str, Any]) -> Offer:
    end = reservation.get("EndDate")
    return Offer(
        id=reservation["CapacityReservationId"],
        kind="capacity-block" if reservation.get("ReservationType") == "capacity-block" else "on-demand",
        instance_type=reservation.get("InstanceType", ""),
        zone=reservation.get("AvailabilityZone", ""),
        total=instance_count(reservation),
        free=reservation.get("AvailableInstanceCount", 0),
        state=reservation.get("State", ""),
        end=f"{end:%Y-%m-%d %H:%M} UTC" if end else "",
    )
