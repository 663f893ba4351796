"""OffsetDelete, version 0: delete the offsets of topics that no member of the group reads (KIP-496)."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.coordinator.group.requests import OffsetDelete
from ottla.drivers.coordinators.coordinator_answers import AwaitedReply
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Handling, RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.security.authorization import allowed
from ottla.server.security.permissions import group, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import OffsetDeleteRequest
    from ottla.protocol.schemas.sent import OffsetDeleteResponse, OffsetDeleteResponsePartition
    from ottla.server.ports import Audit

DELETED_AT_ONCE = 200

Answers = dict[str, list[tuple[int, ErrorCode]]]
"""Errors of partitions, by topic."""


@api(ApiKey.OFFSET_DELETE, versions=(0, 0), needs=(group(Operation.DELETE), of_topics(Operation.READ, "topics.name")))
def handle(context: RequestContext, request: OffsetDeleteRequest) -> Handling[OffsetDeleteResponse]:
    if not request.group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
    answers: Answers = {}
    known = yield from _known(context, request, answers)
    for part in _parts(known) or [{}]:
        waiter = AwaitedReply()
        context.node.groups.ask(waiter, OffsetDelete(request.group_id, part))
        for (name, number), error in (yield waiter.result)["partitions"].items():
            answers.setdefault(name, []).append((number, error))
        yield DELETED_AT_ONCE * ROW_COST
    if context.node.audit is not None:
        yield from _note(context.node.audit, context, request.group_id, answers)
    return {
        "error_code": ErrorCode.none,
        "topics": [{"name": name, "partitions": RowsOf(rows, _row)} for name, rows in answers.items()],
    }


def _known(
    context: RequestContext, request: OffsetDeleteRequest, answers: Answers
) -> Generator[int, None, dict[str, list[int]]]:
    """Partitions that exist and that the client may read; the errors of the others go to `answers`."""
    image, readable = context.node.image, allowed(context, Operation.READ)
    known: dict[str, list[int]] = {}
    for topic in request.topics:
        is_readable = topic.name in readable
        for partition in topic.partitions:
            number = partition.partition_index
            if not is_readable:
                answers.setdefault(topic.name, []).append((number, ErrorCode.topic_authorization_failed))
            elif image.partition(topic.name, number) is None:
                answers.setdefault(topic.name, []).append((number, ErrorCode.unknown_topic_or_partition))
            else:
                known.setdefault(topic.name, []).append(number)
            yield 4
    return known


def _note(audit: Audit, context: RequestContext, group_id: str, answers: Answers) -> Generator[int, None, None]:
    """Log for the audit what was deleted, a line for each topic."""
    for name, rows in answers.items():
        gone = [(f"offset of {name}-{number}", None, None) for number, error in rows if not error]
        failed = next((error for _, error in rows if error), ErrorCode.none)
        if gone or failed:
            audit.administered(context, "GROUP", group_id, 0 if gone else failed, gone)
        yield 1 + len(rows)


def _row(answered: tuple[int, ErrorCode]) -> OffsetDeleteResponsePartition:
    number, error = answered
    return {"partition_index": number, "error_code": error}


def _parts(topics: Mapping[str, Sequence[int]]) -> list[dict[str, list[int]]]:
    """Pieces of a long list: each is a write of its own."""
    parts: list[dict[str, list[int]]] = []
    room = 0
    for name, numbers in topics.items():
        for start in range(0, len(numbers), DELETED_AT_ONCE):
            some = list(numbers[start : start + DELETED_AT_ONCE])
            if room < len(some):
                parts.append({})
                room = DELETED_AT_ONCE
            parts[-1].setdefault(name, []).extend(some)
            room -= len(some)
    return parts
