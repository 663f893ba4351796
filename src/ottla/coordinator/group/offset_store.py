"""Committed offsets of all groups of a shard, and those of open transactions. Only `replay` changes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from ottla.model import NO_PRODUCER_ID, Millis, Offset, ProducerId
from ottla.protocol.offset_block import CommitShape, OffsetBlock
from ottla.protocol.schemas.records import OffsetCommitKey, OffsetCommitValue


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


BLOCKS_MAX = 64
"""Commits of one group that are kept as they came, each of other partitions."""
BLOCK_OFFSETS_MAX = 8_000
"""Offsets in them: to take so many apart, which the first who asks waits for, takes some 20 ms."""

Topics = dict[str, dict[int, CommittedOffset]]


class OffsetStore:
    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._pending: dict[ProducerId, dict[str, Topics]] = {}
        """Offsets of transactions that have not ended, by producer and group."""
        self._open: dict[str, dict[tuple[str, int], int]] = {}
        """How many transactions have an offset in `_pending`, by group, topic and partition. **Invariant**: none has
        no entry, and neither has a group without any."""
        self._blocks: dict[str, dict[CommitShape, tuple[OffsetBlock, Offset]]] = {}
        """Replayed commits that nobody has asked for yet, by group, oldest first. The newest of a shape replaces the
        one before, so that a group that commits all the time and reads never costs no work per partition."""
        self.changes = 0
        """Counts what was replayed: as long as it is the same, so is what anybody can ask for."""

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        self._take_apart(group_id)
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> Topics:
        """Keyed by topic and partition; not to be changed."""
        self._take_apart(group_id)
        return self._groups.get(group_id, {})

    def group_ids(self) -> list[str]:
        return [*self._groups, *(group_id for group_id in self._blocks if group_id not in self._groups)]

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction will move this offset if it commits."""
        return (topic, partition) in self._open.get(group_id, ())

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self._open

    def items(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self.of_group(group_id).items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def pending_items(self, group_id: str) -> list[tuple[str, int]]:
        return list(self._open.get(group_id, ()))

    def replay(
        self, record_offset: Offset, producer_id: ProducerId, key: OffsetCommitKey, value: OffsetCommitValue | None
    ) -> None:
        """Apply a record; one of a transaction waits for its marker."""
        self.changes += 1
        self._take_apart(key.group)
        self._apply(record_offset, producer_id, key, value)

    def _apply(
        self, record_offset: Offset, producer_id: ProducerId, key: OffsetCommitKey, value: OffsetCommitValue | None
    ) -> None:
        if value is None:
            self._remove(key)
            return
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            record_offset,
        )
        groups = self._groups if producer_id == NO_PRODUCER_ID else self._pending.setdefault(producer_id, {})
        partitions = groups.setdefault(key.group, {}).setdefault(key.topic, {})
        if producer_id != NO_PRODUCER_ID and key.partition not in partitions:
            counts = self._open.setdefault(key.group, {})
            counts[key.topic, key.partition] = counts.get((key.topic, key.partition), 0) + 1
        partitions[key.partition] = committed

    def replay_block(self, record_offset: Offset, block: OffsetBlock) -> None:
        """Apply the records of a commit, the first of which is at `record_offset`."""
        self.changes += 1
        group_id = block.shape.group_id
        blocks = self._blocks.setdefault(group_id, {})
        is_new = blocks.pop(block.shape, None) is None
        blocks[block.shape] = block, record_offset
        if is_new and (len(blocks) > BLOCKS_MAX or sum(shape.count for shape in blocks) > BLOCK_OFFSETS_MAX):
            self._take_apart(group_id)

    def _take_apart(self, group_id: str) -> None:
        if group_id not in self._blocks:
            return
        for block, record_offset in self._blocks.pop(group_id).values():
            for index, (key, value) in enumerate(block.records()):
                assert isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue)
                self._apply(record_offset + index, NO_PRODUCER_ID, key, value)

    def end_transaction(self, producer_id: ProducerId, committed: bool) -> None:
        """Apply a transaction's marker: its offsets count from now on, or never did."""
        self.changes += 1
        for group_id, topics in self._pending.pop(producer_id, {}).items():
            for topic, partitions in topics.items():
                for partition, pending in partitions.items():
                    self._close(group_id, topic, partition)
                    if not committed:
                        continue
                    current = self.get(group_id, topic, partition)
                    if current is None or current.record_offset < pending.record_offset:
                        self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = pending

    def _close(self, group_id: str, topic: str, partition: int) -> None:
        """One transaction fewer has an offset of this partition."""
        counts = self._open[group_id]
        counts[topic, partition] -= 1
        if not counts[topic, partition]:
            del counts[topic, partition]
        if not counts:
            del self._open[group_id]

    def _remove(self, key: OffsetCommitKey) -> None:
        for groups in (self._groups, *self._pending.values()):
            topics = groups.get(key.group)
            if topics is None or key.topic not in topics:
                continue
            removed = topics[key.topic].pop(key.partition, None)
            if removed is not None and groups is not self._groups:
                self._close(key.group, key.topic, key.partition)
            if not topics[key.topic]:
                del topics[key.topic]
            if not topics:
                del groups[key.group]
