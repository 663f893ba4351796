"""Answers to fetches that are not plain, or of many partitions: their rows, errors, aborted transactions, hints at
leaders."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ottla.protocol import fetch_responses
from ottla.protocol.fetch import FetchedTopic, FetchResponse
from ottla.protocol.fetch_plain import encode_plain
from ottla.protocol.wire import LeaderIdAndEpoch, NodeEndpoint
from ottla.replication.fetch_session import CachedPartition, FetchSession
from ottla.server.api import EncodedResponse, RequestContext
from ottla.server.connections.incremental_free import empty_in_steps
from ottla.server.fetch.fetch_entries import PARTITIONS_AT_ONCE
from ottla.server.fetch.partition_read import Read, fetched, is_news, is_plain
from ottla.server.metadata.leader_hints import LEADER_ERRORS, endpoints_of, known_leader


def rows_in_steps(
    session: FetchSession | None, entries: list[CachedPartition], reads: list[Read | None]
) -> Generator[int, None, list[tuple[Any, Read]]]:
    """The partitions that an answer must include: of a session those with news."""
    rows = []
    if session is not None:
        for count, (cached, read) in enumerate(zip(entries, reads, strict=True), 1):
            if count % (20 * PARTITIONS_AT_ONCE) == 0:
                yield PARTITIONS_AT_ONCE
            if read is not None and is_news(session, cached, read):
                rows.append((cached.key, read))
        return rows
    for start in range(0, len(reads), PARTITIONS_AT_ONCE):
        if start:
            yield PARTITIONS_AT_ONCE // 4
        some = entries[start : start + PARTITIONS_AT_ONCE]
        for cached, read in zip(some, reads[start : start + PARTITIONS_AT_ONCE], strict=True):
            assert read is not None  # there is no session
            rows.append((cached.key, read))
    return rows


def answer_in_steps(
    context: RequestContext, session_id: int, rows: list[tuple[Any, Read]]
) -> Generator[int, None, EncodedResponse]:
    """The answer, plain where it can be."""
    if len(rows) <= PARTITIONS_AT_ONCE and is_plain(rows):
        return EncodedResponse(*encode_plain(context.api_version, context.correlation_id, session_id, rows))
    return (yield from answer_any(context, session_id, rows))


def answer_any(
    context: RequestContext, session_id: int, rows: list[tuple[Any, Read]]
) -> Generator[int, None, EncodedResponse]:
    """The answer with whatever there can be in it."""
    response = FetchResponse([], session_id=session_id)
    topic: FetchedTopic | None = None
    last: object = None
    count = 0
    for (name, number), read in rows:
        if topic is None or name != last:
            by_name = isinstance(name, str)
            topic = FetchedTopic(name if by_name else None, None if by_name else name, [])
            response.topics.append(topic)
            last = name
        topic.partitions.append(fetched(number, read))
        count += 1
        if count == PARTITIONS_AT_ONCE:
            count = 0
            yield PARTITIONS_AT_ONCE * 4
    if context.api_version >= 12:
        yield from _hint_at_leaders(context, response)
    version = context.api_version
    encoded = yield from fetch_responses.encode_response_in_steps(version, context.correlation_id, response)
    if len(rows) > PARTITIONS_AT_ONCE:
        for topic in response.topics:
            yield from empty_in_steps(topic.partitions)
        yield from empty_in_steps(response.topics)
    return EncodedResponse(*encoded)


def _hint_at_leaders(context: RequestContext, response: FetchResponse) -> Generator[int, None, None]:
    """Name the leader where a partition answered that this node is not it (KIP-951)."""
    node_ids: set[int] = set()
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code in LEADER_ERRORS:
                image = context.node.image
                found = image.topic(topic.name) if topic.topic_id is None else image.topic_by_id(topic.topic_id)  # type: ignore[arg-type]
                registration = None if found is None else found.partitions.get(partition.partition_index)
                leader = known_leader(context, registration, node_ids)
                partition.current_leader = None if leader is None else LeaderIdAndEpoch(**leader)
        yield 4 + len(topic.partitions) // 8
    if node_ids:
        response.node_endpoints = [NodeEndpoint(**each) for each in endpoints_of(context, node_ids)]
