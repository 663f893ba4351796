"""Committed offsets of all groups of a shard, and those of open transactions. Only `replay` changes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from ottla.model import NO_PRODUCER_ID, Millis, Offset, ProducerId
from ottla.protocol.internal.group_records import OffsetCommitKey, OffsetCommitValue


class CommittedOffset(NamedTuple):
    offset: Offset
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: Millis
    expire_timestamp_ms: Millis
    """When it expires, whatever the retention; -1 unless an old client chose it itself."""
    topic_id: UUID
    record_offset: Offset
    """Where its record lies in the log: between a transaction's offset and a plain one, the later record wins."""


Topics = dict[str, dict[int, CommittedOffset]]


class OffsetStore:
    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._pending: dict[ProducerId, dict[str, Topics]] = {}
        """Offsets of transactions that have not ended, by producer and group."""

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> Topics:
        """By topic and partition; not to be changed."""
        return self._groups.get(group_id, {})

    def group_ids(self) -> list[str]:
        return list(self._groups)

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction will move this offset if it commits."""
        return any(partition in groups.get(group_id, {}).get(topic, {}) for groups in self._pending.values())

    def has_open_transactions(self, group_id: str) -> bool:
        return any(group_id in groups for groups in self._pending.values())

    def items(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self.of_group(group_id).items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def pending_items(self, group_id: str) -> Iterator[tuple[str, int]]:
        for groups in self._pending.values():
            for topic, partitions in groups.get(group_id, {}).items():
                for partition in partitions:
                    yield topic, partition

    def replay(
        self, record_offset: Offset, producer_id: ProducerId, key: OffsetCommitKey, value: OffsetCommitValue | None
    ) -> None:
        """Apply a record; one of a transaction waits for its marker."""
        if value is None:
            self._remove(key)
            return
        committed = CommittedOffset(
            value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp,
            value.topic_id, record_offset,
        )  # fmt: skip
        groups = self._groups if producer_id == NO_PRODUCER_ID else self._pending.setdefault(producer_id, {})
        groups.setdefault(key.group, {}).setdefault(key.topic, {})[key.partition] = committed

    def end_transaction(self, producer_id: ProducerId, committed: bool) -> None:
        """Apply a transaction's marker: its offsets count from now on, or never did."""
        groups = self._pending.pop(producer_id, {})
        if not committed:
            return
        for group_id, topics in groups.items():
            for topic, partitions in topics.items():
                for partition, pending in partitions.items():
                    current = self.get(group_id, topic, partition)
                    if current is None or current.record_offset < pending.record_offset:
                        self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = pending

    def _remove(self, key: OffsetCommitKey) -> None:
        for groups in (self._groups, *self._pending.values()):
            topics = groups.get(key.group)
            if topics is None or key.topic not in topics:
                continue
            topics[key.topic].pop(key.partition, None)
            if not topics[key.topic]:
                del topics[key.topic]
            if not topics:
                del groups[key.group]
