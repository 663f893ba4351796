"""Produce, versions 0-13: append producers' batches. The hot path: no copy, no task, no work per record here.

Versions 0-2 are advertised and refused by closing, as Kafka does for librdkafka's sake (KAFKA-18659). acks=0 has no
answer, and a failure closes the connection, so that the producer looks at the metadata again. Where a topic asks for
syncs (`flush.messages`), the answer waits for one that serves every append of that moment, while the connection's next
produce requests begin already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.model import INTERNAL_TOPICS
from ottla.protocol import produce
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.protocol.produce import ProducedPartition, ProducedTopic, ProduceRequest, ProduceResponse
from ottla.protocol.wire import LeaderIdAndEpoch, NodeEndpoint
from ottla.replication.partition import ACKS_NONE, Partition
from ottla.server.api import CloseConnection, EncodedResponse, RequestContext, Response, api
from ottla.storage.validation import InvalidRecords

ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that may write to internal topics (Kafka's AdminUtils)."""

LEADER_ERRORS = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})
"""Errors that come with a hint at the leader (KIP-951)."""


class Unsynced:
    """An append whose answer waits for a sync."""

    __slots__ = ("answer", "end_offset", "partition")

    def __init__(self, answer: ProducedPartition, partition: Partition, end_offset: int) -> None:
        self.answer = answer
        self.partition = partition
        self.end_offset = end_offset


def decode(version: int, frame: Any, position: int) -> ProduceRequest:
    if version < produce.VERSION_MIN:
        raise MalformedRequest(f"Produce version {version}")
    return produce.decode_request(version, frame, position)


def refuse_all(context: RequestContext, request: ProduceRequest, error: KafkaError) -> Response:
    """The same error for every partition."""
    return _encode(
        context,
        [ProducedTopic(t.name, t.topic_id, [_failed(p.index, error) for p in t.partitions]) for t in request.topics],
    )


@api(ApiKey.PRODUCE, versions=(0, 13), decode=decode, on_error=refuse_all, pipelined=True)
def handle(context: RequestContext, request: ProduceRequest) -> Response | Coroutine[Any, Any, Response]:
    acks = request.acks
    if not -1 <= acks <= 1:
        return refuse_all(context, request, KafkaError(ErrorCode.invalid_required_acks))
    replicas = context.node.replicas
    now_ms = context.node.clock.now_ms()
    unsynced: list[Unsynced] = []
    failed = False
    topics = []
    for topic in request.topics:
        answers = []
        for data in topic.partitions:
            try:
                if topic.topic_id is None:
                    partition = replicas.find(topic.name or "", data.index)
                else:
                    partition = replicas.find_by_id(topic.topic_id, data.index)
                _check(context, request, partition)
                if data.records is None:
                    raise KafkaError(ErrorCode.invalid_record)
                info = partition.append_as_leader(
                    data.records, acks, now_ms=now_ms, request_version=context.api_version
                )
            except KafkaError as error:
                failed = True
                answers.append(_failed(data.index, error, context))
                continue
            answer = ProducedPartition(data.index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset)
            answers.append(answer)
            if info.needs_flush:
                unsynced.append(Unsynced(answer, partition, info.last_offset + 1))
        topics.append(ProducedTopic(topic.name, topic.topic_id, answers))
    if unsynced:
        if acks == ACKS_NONE:
            context.node.spawn(_sync_all(unsynced))
        else:
            return _answer_synced(context, topics, unsynced)
    if acks == ACKS_NONE:
        if failed:
            raise CloseConnection
        return None
    return _encode(context, topics)


def _check(context: RequestContext, request: ProduceRequest, partition: Partition) -> None:
    """What a client may not write here at all. Raises KafkaError."""
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.invalid_txn_state)
    if partition.topic_partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.invalid_topic_exception)


def _failed(index: int, error: KafkaError, context: RequestContext | None = None) -> ProducedPartition:
    answer = ProducedPartition(index, error.code)
    if isinstance(error, InvalidRecords):
        answer.record_errors = error.record_errors
        answer.error_message = error.message
    return answer


async def _answer_synced(context: RequestContext, topics: list[ProducedTopic], unsynced: list[Unsynced]) -> Response:
    await _sync_all(unsynced)
    return _encode(context, topics)


async def _sync_all(unsynced: list[Unsynced]) -> None:
    if len(unsynced) == 1:
        await _sync(unsynced[0])
    else:
        await asyncio.gather(*map(_sync, unsynced))


async def _sync(append: Unsynced) -> None:
    """Once synced the append is committed; until then nobody reads it."""
    try:
        await append.partition.log.flush_async(append.end_offset)
    except KafkaError as error:
        append.answer.error_code = error.code
        append.answer.base_offset = append.answer.log_append_time_ms = append.answer.log_start_offset = -1
    else:
        append.partition.advance_high_watermark(append.end_offset)


def _encode(context: RequestContext, topics: list[ProducedTopic]) -> EncodedResponse:
    response = ProduceResponse(topics)
    if context.api_version >= 10:
        _hint_at_leaders(context, response)
    data = produce.encode_response(context.api_version, context.correlation_id, response)
    return EncodedResponse((data,), len(data))


def _hint_at_leaders(context: RequestContext, response: ProduceResponse) -> None:
    """Name leader and endpoint where a partition answered that this node is not its leader (KIP-951)."""
    node_ids = set()
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code in LEADER_ERRORS:
                image = context.node.image
                found = image.topic(topic.name) if topic.name is not None else image.topic_by_id(topic.topic_id)  # type: ignore[arg-type]
                registration = None if found is None else found.partitions.get(partition.index)
                if registration is not None:
                    partition.current_leader = LeaderIdAndEpoch(registration.leader, registration.leader_epoch)
                    node_ids.add(registration.leader)
    if node_ids:
        response.node_endpoints = endpoints_of(context, node_ids)


def endpoints_of(context: RequestContext, node_ids: set[int]) -> list[NodeEndpoint]:
    """Where the clients of this listener reach those nodes."""
    found = []
    for node_id in sorted(node_ids):
        broker = context.node.image.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(context.listener_name)
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(node_id, endpoint.host, endpoint.port, broker.rack))
    return found
