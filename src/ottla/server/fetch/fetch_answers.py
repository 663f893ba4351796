"""Answers to fetches with whatever there can be in them: errors, aborted transactions, hints at leaders."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ottla.protocol import fetch_responses
from ottla.protocol.fetch import FetchedTopic, FetchResponse
from ottla.server.api import EncodedResponse, RequestContext
from ottla.server.fetch.fetch_entries import PARTITIONS_AT_ONCE
from ottla.server.fetch.partition_read import Read, fetched
from ottla.server.metadata.leader_hints import LEADER_ERRORS, endpoints_of, known_leader


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
                partition.current_leader = known_leader(context, registration, node_ids)
        yield 4 + len(topic.partitions) // 8
    if node_ids:
        response.node_endpoints = endpoints_of(context, node_ids)
