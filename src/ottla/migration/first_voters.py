"""The controllers with which an imported cluster begins a dynamic quorum (KIP-853).

Kafka's `format --initial-controllers` names the directory ids too. An import makes them up from its seed: every host
writes the same voters, and gives its own controllers the ids that they have there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.config.checks import parse_address
from ottla.drivers.metadata.formatting import InitialController, voter_records
from ottla.errors import OttlaError
from ottla.migration.decision import Decision
from ottla.migration.directories import Node
from ottla.model import NodeId, uuid_to_base64
from ottla.znodes.checking import IMPORT
from ottla.znodes.reading import made_up_id

OPTION: Final = "--initial-controllers"
ID_MAX: Final = (1 << 31) - 1
_ID: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


def parse_first_voters(text: str) -> tuple[str, ...]:
    """`ID@HOST:PORT,...`, sorted by id. Raises OttlaError."""
    found: dict[NodeId, str] = {}
    for item in text.split(","):
        number, at, address = item.strip().partition("@")
        place = parse_address(address)
        if not at or not _ID.fullmatch(number) or int(number) > ID_MAX or place is None or not all(place):
            raise OttlaError(f"{OPTION} must be ID@HOST:PORT,... (the import makes up directory ids), not {item!r}")
        node_id = int(number)
        if node_id in found:
            raise OttlaError(f"{OPTION} names node {node_id} twice")
        found[node_id] = f"{node_id}@{address}"
    return tuple(found[node_id] for node_id in sorted(found))


def voter_ids(controllers: Sequence[str]) -> tuple[NodeId, ...]:
    return tuple(int(each.partition("@")[0]) for each in controllers)


def check_first_voters(nodes: Sequence[Node], given: Sequence[str], decided: Decision | None) -> tuple[str, ...]:
    """The controllers that begin, empty for a static quorum. Raises OttlaError where settings, options and what the
    first host decided do not agree."""
    if decided is not None and given and tuple(given) != decided.controllers:
        began = ",".join(decided.controllers) or "a static quorum"
        raise OttlaError(f"{OPTION} is {','.join(given)}, but {IMPORT} says that the import began with {began}")
    chosen = tuple(given) if decided is None else decided.controllers
    for node in nodes:
        if node.is_controller and node.voters and chosen:
            raise OttlaError(
                f"{node.settings} has a static quorum, and {OPTION} begins a dynamic one: replace "
                "controller.quorum.voters by controller.quorum.bootstrap.servers"
            )
        if node.is_controller and not node.voters and not chosen:
            if decided is not None:
                raise OttlaError(
                    f"{node.settings}: {IMPORT} says that the import began with a static quorum: set "
                    "controller.quorum.voters"
                )
            raise OttlaError(
                f"{node.settings} has no controller.quorum.voters, so the quorum is a dynamic one: name the "
                f"controllers of all hosts with which it begins: {OPTION} ID@HOST:PORT,..."
            )
        if node.node_id in voter_ids(chosen) and not node.is_controller:
            raise OttlaError(f"{OPTION} names node {node.node_id}, but {node.settings} does not make it a controller")
    if chosen:
        _check_listeners(nodes, decided)
    return chosen


def _check_listeners(nodes: Sequence[Node], decided: Decision | None) -> None:
    """Voters are found under the name of a listener, which is the same on every node."""
    names = {node.controller_listener for node in nodes}
    if decided is not None:
        names.add(decided.listener)
    if len(names) > 1:
        raise OttlaError(
            f"the first of controller.listener.names is not the same everywhere: {', '.join(sorted(names))}"
        )


def directory_ids(decided: Decision) -> Mapping[NodeId, str]:
    """The id of the metadata directory of each controller that begins."""
    return {each: uuid_to_base64(made_up_id(decided.seed, "voter", each)) for each in voter_ids(decided.controllers)}


def first_records(decided: Decision) -> Sequence[Any]:
    """Level and voters for the head of the snapshot; none in a static quorum."""
    if not decided.controllers:
        return ()
    ids = directory_ids(decided)
    voters = []
    for each in decided.controllers:
        number, _, address = each.partition("@")
        place = parse_address(address)
        if place is None:
            raise OttlaError(f"{IMPORT} is damaged: {each!r} is no controller")
        voters.append(InitialController(int(number), *place, ids[int(number)]))
    return voter_records(voters, decided.listener)
