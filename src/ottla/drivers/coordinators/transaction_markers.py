"""Writes transaction markers to the partitions that this node leads, for the coordinator of the transaction.

A request of the coordinator and a call of the one on this node come here alike. The markers of `__consumer_offsets` are
the group coordinator's to write, which replays them. Kafka's `handleWriteTxnMarkersRequest`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.coordinator.effects import Marker
from ottla.errors import ErrorCode, KafkaError
from ottla.model import OFFSETS_TOPIC, TopicPartition
from ottla.protocol.records.record_batch import marker_batch
from ottla.replication.commits import Wait
from ottla.replication.partition import ACKS_ALL, Partition
from ottla.storage.log.validation import COORDINATOR

if TYPE_CHECKING:
    from ottla.drivers.ports import MarkerHost

_OF_GROUPS: Final = {
    ErrorCode.coordinator_not_available: ErrorCode.not_leader_or_follower,
    ErrorCode.coordinator_load_in_progress: ErrorCode.not_leader_or_follower,
    ErrorCode.not_coordinator: ErrorCode.not_leader_or_follower,
}
"""Errors of group coordinators, and the error sent to a transaction coordinator instead, which retries."""

__all__ = ["Errors", "Marker", "write_marker"]

Errors = Mapping[TopicPartition, ErrorCode]
Done = Callable[[Errors], None]


def write_marker(host: MarkerHost, marker: Marker, done: Done) -> None:
    """Append a marker to each of its partitions. `done` is called once, with what became of each when all of them are
    committed (`Partition.wait`) or cannot be: before this returns, where nobody has to be waited for."""
    writing = _Writing(host, marker, done)
    for key in marker.partitions:
        writing.write(key)
    writing.seal(host.config.request_timeout_ms / 1000)


class _Writing:
    """One marker on its way."""

    __slots__ = ("_done", "_errors", "_host", "_left", "_marker", "_timer", "_waits")

    def __init__(self, host: MarkerHost, marker: Marker, done: Done) -> None:
        self._host = host
        self._marker = marker
        self._done: Done | None = done
        self._errors: dict[TopicPartition, ErrorCode] = {}
        self._left = 1
        """Partitions of which it is not known yet, and this object's maker."""
        self._waits: list[tuple[TopicPartition, Partition, Wait]] = []
        self._timer: asyncio.Handle | None = None

    def write(self, key: TopicPartition) -> None:
        partition = self._host.replicas.get(*key)
        self._left += 1
        try:
            if partition is None:
                raise KafkaError(ErrorCode.unknown_topic_or_partition)
            if key.topic == OFFSETS_TOPIC:
                self._host.groups.complete_transaction(
                    key.partition, self._marker, lambda error: self._settle(key, _OF_GROUPS.get(error, error))
                )
                return
            now_ms, marker = self._host.clock.now_ms(), self._marker
            batch = marker_batch(
                marker.producer_id,
                marker.producer_epoch,
                committed=marker.committed,
                coordinator_epoch=marker.coordinator_epoch,
                timestamp=now_ms,
            )
            info = partition.append_as_leader(
                memoryview(batch),
                ACKS_ALL,
                now_ms=now_ms,
                origin=COORDINATOR,
                transaction_version=marker.transaction_version,
            )
        except KafkaError as error:
            self._settle(key, _OF_GROUPS.get(error.code, error.code))
            return
        wait = partition.wait(info.last_offset + 1, info.leader_epoch, ACKS_ALL, lambda error: self._settle(key, error))
        if wait is not None:
            self._waits.append((key, partition, wait))

    def seal(self, timeout_s: float) -> None:
        """All appends have begun."""
        if self._left > 1:
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self._expire)
            self._count_down()
        else:
            self._finish()

    def _settle(self, key: TopicPartition, error: ErrorCode) -> None:
        if key not in self._errors:
            self._errors[key] = error
            self._count_down()

    def _count_down(self) -> None:
        self._left -= 1
        if not self._left:
            # Not at once: whoever moves a high watermark is in the middle of something.
            asyncio.get_running_loop().call_soon(self._finish)

    def _expire(self) -> None:
        """The markers are in the logs, and will be committed some time; the coordinator writes them again."""
        self._timer = None
        for key, partition, wait in self._waits:
            if key not in self._errors:
                partition.stop_waiting(wait)
        for key in self._marker.partitions:
            self._settle(key, ErrorCode.request_timed_out)

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        done, self._done = self._done, None
        if done is not None:
            done(self._errors)
