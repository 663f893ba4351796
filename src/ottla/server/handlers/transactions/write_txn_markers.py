"""WriteTxnMarkers, versions 1-2: a transaction coordinator ends transactions in the partitions of this node (KIP-98).

Answered when every marker is committed or cannot be. Version 2 says by which transaction.version the transaction goes,
from which it follows what a late marker looks like (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from ottla.drivers.coordinators.coordinator_answers import AwaitedReply
from ottla.drivers.coordinators.transaction_markers import Errors, Marker, write_marker
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Deferred, Handling, RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.security.permissions import cluster
from ottla.steps import at_once

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
    from ottla.protocol.schemas.sent import (
        WritableTxnMarkerPartitionResult,
        WritableTxnMarkerResult,
        WritableTxnMarkerTopicResult,
        WriteTxnMarkersResponse,
    )

PARTITIONS_AT_ONCE = 32
"""Appends between two looks at other clients."""
APPEND_COST = 30
"""Cost of appending a marker."""

MarkerErrors = list[tuple[int, Errors]]
"""Results of markers, by producer."""


def on_error(context: RequestContext, request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    def refused(topic: WritableTxnMarkerTopic) -> WritableTxnMarkerTopicResult:
        rows: RowsOf[WritableTxnMarkerPartitionResult] = RowsOf(
            topic.partition_indexes, lambda number: {"partition_index": number, "error_code": error.code}
        )
        return {"name": topic.name, "partitions": rows}

    def row(marker: WritableTxnMarker) -> WritableTxnMarkerResult:
        topics = [topic for topic in marker.topics if topic.partition_indexes]
        return {"producer_id": marker.producer_id, "topics": RowsOf(topics, refused)}

    return {"markers": RowsOf(request.markers, row)}


@api(
    ApiKey.WRITE_TXN_MARKERS,
    versions=(1, 2),
    needs=(cluster(Operation.CLUSTER_ACTION, instead=(Operation.ALTER,)),),
    on_error=on_error,
)
def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> Handling[WriteTxnMarkersResponse | Deferred]:
    answer = _Answer()
    for each in request.markers:
        seen: set[TopicPartition] = set()
        part: list[TopicPartition] = []
        for topic in each.topics:
            for number in topic.partition_indexes:
                key = TopicPartition(topic.name, number)
                if key not in seen:
                    seen.add(key)
                    part.append(key)
                if len(part) == PARTITIONS_AT_ONCE:
                    _write(context, each, part, answer)
                    yield APPEND_COST * len(part)
                    part = []
            yield ROW_COST
        if part:
            _write(context, each, part, answer)
        yield APPEND_COST * (len(part) + 1)
    if len(answer.found) + answer.left <= PARTITIONS_AT_ONCE:
        deferred = Deferred()
        answer.seal(lambda found: deferred.complete(at_once(_answering(found))))
        return deferred
    reply = AwaitedReply()
    answer.seal(lambda found: reply.complete({"found": found}))
    return (yield from _answering((yield reply.result)["found"]))


def _write(
    context: RequestContext, marker: WritableTxnMarker, partitions: list[TopicPartition], answer: _Answer
) -> None:
    asked = Marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
        partitions,
    )
    write_marker(context.node, asked, answer.expect(marker.producer_id))


class _Answer:
    """Comes when all that was begun is done."""

    __slots__ = ("_complete", "found", "left")

    def __init__(self) -> None:
        self.found: MarkerErrors = []
        self.left = 1
        """Number of unfinished appends, plus one while they are begun."""
        self._complete: Callable[[MarkerErrors], None] | None = None

    def expect(self, producer_id: int) -> Callable[[Errors], None]:
        """A callback for the errors of an append that begins now."""
        self.left += 1

        def done(errors: Errors) -> None:
            self.found.append((producer_id, errors))
            self._settle()

        return done

    def seal(self, complete: Callable[[MarkerErrors], None]) -> None:
        """All is begun: have it called with what became of everything."""
        self._complete = complete
        self._settle()

    def _settle(self) -> None:
        self.left -= 1
        if not self.left and self._complete is not None:
            self._complete(self.found)


def _answering(found: MarkerErrors) -> Generator[int, None, WriteTxnMarkersResponse]:
    """A producer id has one row, as Kafka's answer is a map: of two markers for a partition the later counts."""
    by_producer: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for producer_id, errors in found:
        topics = by_producer.setdefault(producer_id, {})
        for (topic, number), error in errors.items():
            topics.setdefault(topic, {})[number] = error
        yield 1 + len(errors)
    markers: list[WritableTxnMarkerResult] = []
    for producer_id, topics in by_producer.items():
        rows: list[WritableTxnMarkerTopicResult] = [
            {"name": name, "partitions": RowsOf(list(each.items()), _row)} for name, each in topics.items()
        ]
        markers.append({"producer_id": producer_id, "topics": rows})
        yield 1 + len(rows)
    return {"markers": markers}


def _row(item: tuple[int, ErrorCode]) -> WritableTxnMarkerPartitionResult:
    return {"partition_index": item[0], "error_code": item[1]}
