"""`ottla cluster api-versions`: APIs of each broker or controller with their versions, like
`kafka-broker-api-versions.sh`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from cyclopts import Parameter

from ottla.cli import wire
from ottla.cli.client import reason_of
from ottla.cli.client_security import ClientFile
from ottla.cli.cluster.members import Member, controllers, members
from ottla.cli.exits import FAILED, OK
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import bold, print_json, print_table
from ottla.cli.values import Addresses
from ottla.protocol import schemas

Controllers = Annotated[
    Addresses | None,
    Parameter(name="--bootstrap-controller", help="Ask the controllers, these first: HOST:PORT,..."),
]
Versions = tuple[int, int]
"""The first and the last."""


class Answer(NamedTuple):
    """A broker or controller, with the versions of each API by its key; or why it did not answer."""

    broker: Member
    versions: Mapping[int, Versions]
    failure: str | None

    def as_json(self, kind: str) -> dict[str, Any]:
        return {
            kind: self.broker.id,
            "address": self.broker.address,
            "rack": self.broker.rack,
            "fenced": self.broker.fenced,
            "failure": self.failure,
            "apis": [
                {"key": key, "api": name_of(key), "min": low, "max": high, "used": used(key, (low, high))}
                for key, (low, high) in sorted(self.versions.items())
            ],
        }


def api_versions(
    *,
    bootstrap_controller: Controllers = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Show which versions of each API every broker serves, and the one that this release uses with it: the newest that
    both know. With --bootstrap-controller the same of every controller.

    Brokers with the same versions are shown together: two tables mean that a rolling upgrade is not complete. An API
    without a name is newer than this release. Keys from 20,000 on are Ottla's own.
    """
    kind = "broker" if bootstrap_controller is None else "controller"
    there = members(bootstrap) if bootstrap_controller is None else controllers(bootstrap_controller)
    answers = [_ask(each) for each in there.running]
    fenced = [Answer(each, {}, None) for each in there.fenced or ()]
    if json:
        print_json([each.as_json(kind) for each in sorted([*answers, *fenced], key=lambda each: each.broker.id)])
    else:
        _print(answers, kind)
        for each in fenced:
            print(f"fenced: broker {each.broker.id} ({each.broker.address}), which is not running or cannot be reached")
    failures = [each for each in answers if each.failure is not None]
    for each in failures:
        print(f"ottla: {kind} {each.broker.id} at {each.broker.address}: {each.failure}", file=sys.stderr)
    return FAILED if failures else OK


def _ask(broker: Member) -> Answer:
    """Raises CommandFailed where security forbids a connection."""
    try:
        link = wire.Link(broker.address)
    except OSError as error:
        return Answer(broker, {}, reason_of(broker.address, error))
    try:
        return Answer(broker, link.versions, None)
    finally:
        link.close()


def _print(answers: list[Answer], kind: str) -> None:
    alike: list[list[Answer]] = []
    for each in answers:
        if each.failure is not None:
            continue
        same = next((group for group in alike if group[0].versions == each.versions), None)
        if same is None:
            alike.append([each])
        else:
            same.append(each)
    for number, group in enumerate(alike):
        if number:
            print()
        named = ", ".join(f"{each.broker.id} ({each.broker.address})" for each in group)
        print(bold(f"{kind if len(group) == 1 else f'{kind}s'} {named}"))
        rows = [
            (key, name_of(key), f"{low}-{high}" if low < high else str(low), used(key, (low, high)))
            for key, (low, high) in sorted(group[0].versions.items())
        ]
        print_table(("KEY>", "API", "VERSIONS", "USED>"), rows, indent=2)


def name_of(key: int) -> str | None:
    """Kafka's name of an API; None for one that this release does not know."""
    try:
        return schemas.api_message("request", key).removesuffix("Request")
    except KeyError:
        return None


def used(key: int, served: Versions) -> int | None:
    """The newest version of an API that a broker and this release both know; None where there is none."""
    try:
        low, high = schemas.schema(schemas.api_message("request", key)).versions
    except KeyError:
        return None
    newest = min(high, served[1])
    return newest if newest >= max(low, served[0]) else None
