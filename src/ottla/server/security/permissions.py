"""What a handler declares that its clients must be allowed to do: data next to its versions.

    @api(ApiKey.END_TXN, versions=(0, 5), needs=(transactional_id(Operation.WRITE),))

A need that is `enforced` is asked before the handler is called. Where Kafka asks later, once for each row of a request,
or only to leave something out of an answer, the handler asks itself (`authorization.py`). Tests hold both against
Kafka. The page docs/reference/permissions.md is made from it (`tools/permissions_page.py`).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

from ottla.security.acls import Operation, ResourceType


class Refused(Enum):
    """What is refused to a client that lacks a permission."""

    REQUEST = "the whole request"
    ROW = "that row of the request"
    OMITTED = "that part of the answer, which is left out"


class Need(NamedTuple):
    """A permission that some requests of an API need."""

    operation: Operation
    kind: ResourceType
    where: str = ""
    """The field of the request, or the part of the answer, that names the resources; empty for the cluster."""
    versions: tuple[int, int] | None = None
    """Only these versions of the API, both inclusive."""
    when: str = ""
    """Only these requests, in words."""
    refused: Refused = Refused.REQUEST
    instead: tuple[tuple[Operation, ResourceType], ...] = ()
    """Permissions that are enough in its place: on the cluster, or on any resource of another type."""
    at_controller: bool = False
    """Whether the controller asks it, and a broker that forwards the request does not."""
    enforced: bool = False
    """Whether it is asked before the handler is called."""


class Open(NamedTuple):
    """Declares that everybody may use an API."""

    reason: str


Needs: TypeAlias = tuple[Need, ...] | Open


def cluster(
    operation: Operation,
    *,
    at_controller: bool = False,
    instead: tuple[Operation, ...] = (),
    versions: tuple[int, int] | None = None,
) -> Need:
    """An operation on the cluster, asked before the handler is called. `instead`: others that are enough."""
    others = tuple((each, ResourceType.CLUSTER) for each in instead)
    return Need(
        operation, ResourceType.CLUSTER, versions=versions, instead=others, at_controller=at_controller, enforced=True
    )


def group(operation: Operation) -> Need:
    """An operation on the group that the field `group_id` names, asked before the handler is called."""
    return Need(operation, ResourceType.GROUP, "group_id", enforced=True)


def transactional_id(
    operation: Operation, where: str = "transactional_id", *, versions: tuple[int, int] | None = None
) -> Need:
    """An operation on the transactional id that a field names, asked before the handler is called."""
    return Need(operation, ResourceType.TRANSACTIONAL_ID, where, versions=versions, enforced=True)


def of_topics(
    operation: Operation,
    where: str,
    *,
    refused: Refused = Refused.ROW,
    versions: tuple[int, int] | None = None,
    when: str = "",
    instead: tuple[Operation, ...] = (),
    at_controller: bool = False,
) -> Need:
    """An operation on each topic; the handler asks. `instead`: operations on the cluster that are enough."""
    others = tuple((each, ResourceType.CLUSTER) for each in instead)
    return Need(operation, ResourceType.TOPIC, where, versions, when, refused, others, at_controller)


def of_groups(
    operation: Operation,
    where: str,
    *,
    refused: Refused = Refused.ROW,
    when: str = "",
    instead: tuple[Operation, ...] = (),
) -> Need:
    """The same of groups."""
    others = tuple((each, ResourceType.CLUSTER) for each in instead)
    return Need(operation, ResourceType.GROUP, where, when=when, refused=refused, instead=others)


def of_ids(
    operation: Operation,
    where: str,
    *,
    refused: Refused = Refused.ROW,
    versions: tuple[int, int] | None = None,
    when: str = "",
) -> Need:
    """The same of transactional ids."""
    return Need(operation, ResourceType.TRANSACTIONAL_ID, where, versions, when, refused)


def of_cluster(
    operation: Operation,
    *,
    when: str,
    refused: Refused = Refused.REQUEST,
    versions: tuple[int, int] | None = None,
) -> Need:
    """An operation on the cluster that only some requests need, or a part of them; the handler asks."""
    return Need(operation, ResourceType.CLUSTER, "", versions, when, refused)
