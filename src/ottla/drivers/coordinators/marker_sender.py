"""Has the leaders of partitions write how transactions ended (WriteTxnMarkers, KIP-98).

Markers for one broker go in one request, and what comes while it is under way waits for the next. Where the leader is
this node it is asked by a call. What could not be written is tried again, at the leader of that moment; at the latest
when the metadata say that somebody else leads. A partition that does not exist any more needs no marker.
What waits here is at most one ending for each transactional id, which this node keeps anyhow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordinator.effects import Marker
from ottla.coordinator.transaction.effects import SendMarkers
from ottla.drivers.cooperative import SLICE, run_yielding, scheduler_of
from ottla.drivers.coordinators.transaction_markers import write_marker
from ottla.drivers.nodes.node_client import NodeClient
from ottla.drivers.tasks import cancelled
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.model import NodeId, TopicPartition
from ottla.network import Address
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.drivers.ports import SenderHost, Sending
    from ottla.protocol.schemas.received import WriteTxnMarkersResponse
    from ottla.protocol.schemas.sent import WritableTxnMarker

_LOG = logging.getLogger("ottla.transactions")

RETRY_S: Final = 0.05
"""Until what failed is tried again; soon, as consumers of committed records wait for it."""

MARKERS_PER_REQUEST: Final = 1_000
PARTITIONS_PER_REQUEST: Final = 10_000
"""A fraction of what a broker decodes; the rest goes in the next request."""

LOCAL_AT_ONCE: Final = 32
"""Appends to logs of this node between two looks at its clients: a millisecond."""

PARTITIONS_AT_ONCE: Final = 500
"""Looking up the leader of a partition, or recording that its marker is written, costs a microsecond or two."""

VERSIONS: Final = (1, 2)

NOBODY: Final = -1

_STALE: Final = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced})
"""The partition knows of a later transaction or coordinator: whoever sends this is not the coordinator any more."""

_NOT_NEEDED: Final = frozenset({ErrorCode.unsupported_for_message_format, ErrorCode.unsupported_version})
_EXPECTED: Final = frozenset({
    ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower, ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append, ErrorCode.request_timed_out, ErrorCode.kafka_storage_error,
})  # fmt: skip
"""Temporary errors; any other is retried too, and logged as an error."""


class _Item(NamedTuple):
    """Markers of one transaction for one leader."""

    shard: Sending
    markers: SendMarkers
    partitions: tuple[TopicPartition, ...]

    def marker(self) -> Marker:
        markers = self.markers
        return Marker(
            markers.producer_id,
            markers.producer_epoch,
            markers.is_commit,
            self.shard.coordinator_epoch,
            markers.transaction_version,
            self.partitions,
        )


class MarkerSender:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: SenderHost, client: NodeClient) -> None:
        self._node = node
        self._client = client
        self._queues: dict[NodeId, list[_Item]] = {}
        self._asking: dict[NodeId, asyncio.Task[None]] = {}
        self._waiting: list[_Item] = []
        """Markers without a leader, or that failed: retried after a moment, and when the metadata changes."""
        self._retry: asyncio.Handle | None = None
        self._local: deque[_Item] = deque()
        """Markers that this node writes itself. While there are any, `_write_local` is scheduled."""
        self._stopped = False

    async def stop(self) -> None:
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        for task in [*self._asking.values()]:
            await cancelled(task)
        await self._client.close()

    @property
    def pending(self) -> int:
        """Endings that wait for a leader or for another try."""
        return len(self._waiting)

    @property
    def without_leader(self) -> int:
        """Number of these with a partition that has no leader now (Kafka's `UnknownDestinationQueueSize`)."""
        return sum(any(self._leader(each) == NOBODY for each in item.partitions) for item in self._waiting)

    @property
    def queued(self) -> int:
        """Endings that wait for the answer to a request before, by all leaders."""
        return sum(map(len, self._queues.values()))

    def send(self, shard: Sending, markers: SendMarkers) -> None:
        """Reports to `shard`, never before this returns."""
        self._send_some(shard, markers, markers.partitions, 0)

    def _send_some(
        self, shard: Sending, markers: SendMarkers, partitions: Sequence[TopicPartition], start: int
    ) -> None:
        """Begin with the partitions from `start` on; the rest when there is time again."""
        if self._stopped or not shard.is_serving:
            return
        end = start + PARTITIONS_AT_ONCE
        self._send(shard, markers, partitions[start:end])
        if end < len(partitions):
            scheduler = scheduler_of(asyncio.get_running_loop())
            scheduler.spent += SLICE
            scheduler.wait(partial(self._send_some, shard, markers, partitions, end))

    def metadata_changed(self) -> None:
        """Others may lead now."""
        if self._waiting:
            self._try_again()

    def _send(self, shard: Sending, markers: SendMarkers, partitions: Iterable[TopicPartition]) -> None:
        by_leader: dict[NodeId | None, list[TopicPartition]] = {}
        for partition in partitions:
            by_leader.setdefault(self._leader(partition), []).append(partition)
        for leader, some in by_leader.items():
            item = _Item(shard, markers, tuple(some))
            if leader is None:
                asyncio.get_running_loop().call_soon(self._report, item, item.partitions)
            elif leader == NOBODY:
                self._wait(item)
            elif leader == self._node.node_id:
                if not self._local:
                    asyncio.get_running_loop().call_soon(self._write_local)
                self._local.append(item)
            else:
                self._queues.setdefault(leader, []).append(item)
                if leader not in self._asking:
                    self._asking[leader] = asyncio.get_running_loop().create_task(self._ask(leader))

    def _leader(self, partition: TopicPartition) -> NodeId | None:
        """NOBODY if none can be asked now, None for a partition that does not exist."""
        image = self._node.image
        registration = image.partition(*partition)
        if registration is None:
            return None
        broker = image.brokers.get(registration.leader)
        if broker is None or broker.fenced or self._node.inter_broker_listener not in broker.endpoints:
            return NOBODY
        return broker.id

    def _write_local(self) -> None:
        """A slice's worth of markers; the rest when there is time again."""
        room = LOCAL_AT_ONCE
        try:
            while self._local and room > 0:
                item = self._local.popleft()
                if not item.shard.is_serving:
                    continue
                if len(item.partitions) > room:
                    self._local.appendleft(item._replace(partitions=item.partitions[room:]))
                    item = item._replace(partitions=item.partitions[:room])
                room -= len(item.partitions)
                write_marker(self._node, item.marker(), partial(self._answered, item))
        finally:
            scheduler = scheduler_of(asyncio.get_running_loop())
            scheduler.spent += SLICE * (LOCAL_AT_ONCE - room) // LOCAL_AT_ONCE
            if self._local:
                scheduler.wait(self._write_local)

    async def _ask(self, leader: NodeId) -> None:
        """Send what is there for a broker, one request after the other, until there is nothing."""
        try:
            await asyncio.sleep(0)  # what else this turn of the loop brings goes along
            while items := self._take(leader):
                try:
                    answer = await self._request(leader, items)
                except KafkaError as error:
                    where = fields(broker=leader, transactions=len(items), error=str(error))
                    _LOG.warning("transaction markers could not be sent, retrying", extra=where)
                    for item in items:
                        self._wait(item)
                    continue
                except Exception as error:  # a bug; a transaction must not stay open for it
                    _LOG.error("internal error in transaction markers", exc_info=error)
                    for item in items:
                        self._wait(item)
                    continue
                seen = 0
                for item in items:
                    self._answered(item, answer.get(item.markers.producer_id, {}))
                    seen += len(item.partitions)
                    if seen >= PARTITIONS_AT_ONCE:
                        seen = 0
                        await asyncio.sleep(0)
        finally:
            del self._asking[leader]

    def _take(self, leader: NodeId) -> list[_Item]:
        queue = self._queues.pop(leader, [])
        taken: list[_Item] = []
        partitions = 0
        while queue and len(taken) < MARKERS_PER_REQUEST and partitions < PARTITIONS_PER_REQUEST:
            item = queue.pop(0)
            if item.shard.is_serving:
                taken.append(item)
                partitions += len(item.partitions)
        if queue:
            self._queues[leader] = queue
        return taken

    async def _request(self, leader: NodeId, items: list[_Item]) -> dict[int, dict[TopicPartition, ErrorCode]]:
        broker = self._node.image.brokers.get(leader)
        endpoint = None if broker is None else broker.endpoints.get(self._node.inter_broker_listener)
        if endpoint is None:
            raise KafkaError(ErrorCode.broker_not_available, f"broker {leader} is not registered")
        values = {"markers": [_entry(item.marker()) for item in items]}
        answer = await self._client.ask(
            Address(endpoint.host, endpoint.port), ApiKey.WRITE_TXN_MARKERS, values, versions=VERSIONS
        )
        return await run_yielding(_errors_in(answer.response))

    def _answered(self, item: _Item, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        """Apply the results of an item's markers; missing ones are retried."""
        if self._stopped or not item.shard.is_serving:
            return
        written, again = [], []
        for partition in item.partitions:
            error = errors.get(partition, ErrorCode.request_timed_out)
            if error is ErrorCode.none or error in _NOT_NEEDED:
                written.append(partition)
            elif error in _STALE:
                # As Kafka: the transaction stays as it is until its coordinator, whoever that is, loads it again.
                where = fields(id=item.markers.transactional_id, partition=partition, error=error.name.upper())
                _LOG.warning("a transaction marker was refused permanently", extra=where)
            else:
                if error not in _EXPECTED:
                    where = fields(id=item.markers.transactional_id, partition=partition, error=error.name.upper())
                    _LOG.error("a transaction marker failed unexpectedly", extra=where)
                again.append(partition)
        if again:
            self._wait(item._replace(partitions=tuple(again)))
        if written:
            self._report(item, written)

    def _report(self, item: _Item, partitions: Iterable[TopicPartition]) -> None:
        if item.shard.is_serving:
            item.shard.written(item.markers, partitions)

    def _wait(self, item: _Item) -> None:
        self._waiting.append(item)
        if self._retry is None and not self._stopped:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        items, self._waiting = self._waiting, []
        for item in items:
            if item.shard.is_serving:
                self._send_some(item.shard, item.markers, item.partitions, 0)


def _errors_in(response: WriteTxnMarkersResponse) -> Generator[int, None, dict[int, dict[TopicPartition, ErrorCode]]]:
    """Errors by producer id."""
    found: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in response.markers:
        errors = found.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for number, each in enumerate(topic.partitions, start=1):
                errors[TopicPartition(topic.name, each.partition_index)] = ErrorCode(each.error_code)
                if number % PARTITIONS_AT_ONCE == 0:
                    yield 2 * PARTITIONS_AT_ONCE
        yield 2 + len(marker.topics)
    return found


def _entry(marker: Marker) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, number in marker.partitions:
        topics.setdefault(topic, []).append(number)
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.committed,
        "topics": [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()],
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": marker.transaction_version,
    }
