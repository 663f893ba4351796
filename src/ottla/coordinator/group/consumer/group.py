"""A consumer group: it answers questions and keeps its own counts right. See `modern_group.py` for how it changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from functools import partial
from typing import Final, Literal, NamedTuple
from uuid import UUID

from ottla.coordinator.group.consumer.member import NOTHING, ConsumerMember, Epochs, Partitions
from ottla.coordinator.group.kind import Undo
from ottla.coordinator.group.modern_group import ModernGroup
from ottla.model import Millis
from ottla.protocol.internal.group_records import CONSUMER, ModernKey
from ottla.protocol.schemas.records import (
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    TargetPartitions,
)

METADATA, PARTITION_METADATA, MEMBER, TARGET, MEMBER_TARGET, MEMBER_CURRENT, PATTERN = 3, 4, 5, 6, 7, 8, 16
"""Types of records."""
NO_EPOCH = -1
"""Epoch of a partition without an owner."""


class ResolvedPattern(NamedTuple):
    """The topics that a regular expression matched."""

    topics: frozenset[str]
    version: int
    """Version of the metadata: the offset of the image."""
    timestamp_ms: Millis


class Subscriptions(NamedTuple):
    """How many members, and how many patterns, name each topic; counts above zero only."""

    by_name: Counter[str]
    by_pattern: Counter[str]

    @property
    def topics(self) -> set[str]:
        return {*self.by_name, *self.by_pattern}


class Kept(NamedTuple):
    """What a member had when it was found to keep its target, with nothing but its epoch to change."""

    assigned: Epochs
    target: Partitions
    topics: frozenset[str]
    images: int
    """Number of the image that the topics were looked up in."""
    key: ModernKey
    """Key of the record of its current assignment."""
    encoded_key: bytes
    record_end: bytes
    """What follows the state in that record."""


class ConsumerGroup(ModernGroup[ConsumerMember, Partitions]):
    """Its epoch grows whenever members, subscriptions or their topics change."""

    TYPES = CONSUMER
    group_type: Literal["consumer"] = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, NOTHING)
        self.static_members: dict[str, str] = {}
        """Instance id to member id."""
        self.resolved: dict[str, ResolvedPattern] = {}
        self.has_partition_metadata = False
        """Whether a record is in the log that a Kafka before 4.1 wrote, to be deleted."""
        self.subscriptions = Subscriptions(Counter(), Counter())
        self.patterns: Counter[str] = Counter()
        """How many members subscribe to each pattern."""
        self.assignors: Counter[str] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        """How many members of the classic protocol support each assignor of theirs."""
        self.classic_count = 0
        """Members of the classic protocol."""
        self.partition_epochs: dict[UUID, dict[int, int]] = {}
        """The epoch of the member that has a partition, or has still to give it up. **Invariant**: at most one has."""

        self.hashed: tuple[int, frozenset[str], int] = (-1, frozenset(), 0)
        """Soft: topics and their hash, with the number of the image that they were looked up in."""
        self.kept: dict[str, Kept] = {}
        """Soft: of members that kept their target in a rebalance, for the next one."""

    # Questions

    @property
    def topics(self) -> set[str]:
        return self.subscriptions.topics

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions.by_name or topic in self.subscriptions.by_pattern

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.member(member_id)

    def partition_epoch(self, topic_id: UUID, partition: int) -> int:
        return self.partition_epochs.get(topic_id, {}).get(partition, NO_EPOCH)

    def subscribed_topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Topics that it subscribes to by name and by its pattern; an unresolved pattern matches nothing."""
        resolved = self.resolved.get(member.pattern) if member.pattern else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def subscriptions_after(self, old: ConsumerMember | None, new: ConsumerMember | None) -> Subscriptions:
        """The subscriptions after `new` has replaced `old`."""
        by_name, by_pattern = self.subscriptions.by_name.copy(), self.subscriptions.by_pattern.copy()
        _replace_counts(by_name, old.topics if old else (), new.topics if new else ())
        before, after = old.pattern if old else "", new.pattern if new else ""
        if before and before != after and self.patterns[before] == 1 and before in self.resolved:
            _replace_counts(by_pattern, self.resolved[before].topics, ())
        return Subscriptions(by_name, by_pattern)

    def topics_after(self, old: ConsumerMember, new: ConsumerMember) -> Set[str]:
        """The topics that are subscribed to after `new` has replaced `old`; mostly they are the same."""
        names = self.subscriptions.by_name.keys()
        has_patterns = old.pattern or new.pattern or self.subscriptions.by_pattern
        if not has_patterns and old.topics <= new.topics <= names:
            return names
        return self.subscriptions_after(old, new).topics

    def patterns_after(self, old: ConsumerMember, new: ConsumerMember) -> Counter[str]:
        patterns = self.patterns.copy()
        _replace_counts(patterns, _some(old.pattern), _some(new.pattern))
        return patterns

    def preferred_assignor(self, old: ConsumerMember | None = None, new: ConsumerMember | None = None) -> str | None:
        """The one that most members ask for, once `new` is in the place of `old`."""
        counts = self.assignors.copy()
        _replace_counts(counts, _some(old.assignor if old else None), _some(new.assignor if new else None))
        return max(sorted(counts), key=counts.__getitem__) if counts else None

    def supports_classic(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member of the classic protocol could be in the group beside those that are."""
        if protocol_type != self.protocol_type:
            return False
        if not self.members:
            return any(True for _ in protocols)
        return any(self.classic_protocols[name] == self.classic_count for name in protocols)

    def is_waiting_for_partitions(self, member: ConsumerMember) -> bool:
        """Whether a partition of its target is still another's."""
        return any(
            partition not in member.assigned.get(topic_id, {}) and self.partition_epoch(topic_id, partition) != NO_EPOCH
            for topic_id, partitions in self.target(member.member_id).items()
            for partition in partitions
        )

    def becomes_classic_without(self, leaving: Iterable[ConsumerMember]) -> bool:
        """Whether all but these members use the classic protocol."""
        left = [*leaving]
        classic = self.classic_count - sum(member.uses_classic_protocol for member in left)
        return classic == len(self.members) - len(left)

    # Records

    def last_keys(self) -> list[ModernKey]:
        patterns = [self.key(PATTERN, pattern) for pattern in self.resolved]
        return [*patterns, self.key(PARTITION_METADATA), self.key(METADATA)]

    # Changes, for `replay`

    def new_member(self, member_id: str) -> ConsumerMember:
        return ConsumerMember(member_id)

    def target_of(self, value: ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
        return {row.topic_id: frozenset(row.partitions) for row in value.topic_partitions}

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch, self.metadata_hash = epoch, metadata_hash
        self._state = None

    def set_metadata(self, value: ConsumerGroupMetadataValue) -> None:
        self.set_epoch(value.epoch, value.metadata_hash)

    def saved_metadata(self) -> Undo:
        return partial(self.set_epoch, self.epoch, self.metadata_hash)

    def set_other(self, number: int, name: str, value: ConsumerGroupRegularExpressionValue | bytes | None) -> None:
        if number == PARTITION_METADATA:
            self._set_partition_metadata(value is not None)
            return
        assert number == PATTERN and not isinstance(value, bytes)
        found = None if value is None else ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
        self.set_resolved(name, found)

    def saved_other(self, number: int, name: str) -> Undo:
        if number == PARTITION_METADATA:
            return partial(self._set_partition_metadata, self.has_partition_metadata)
        return partial(self.set_resolved, name, self.resolved.get(name))

    def _set_partition_metadata(self, is_there: bool) -> None:
        self.has_partition_metadata = is_there

    def set_member(self, member_id: str, new: ConsumerMember | None) -> None:
        old = self.members.pop(member_id, None) if new is None else self.members.get(member_id)
        if new is not None:
            self.members[member_id] = new
        self._state = None
        if new is None:
            self.kept.pop(member_id, None)
        if old is not None:
            self._release(old)
            if new is None and old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
                del self.static_members[old.instance_id]
        if new is not None:
            self._own(new)
            if new.instance_id is not None:
                self.static_members[new.instance_id] = member_id
        was, now = old or _NOBODY, new or _NOBODY
        _replace_counts(self.subscriptions.by_name, was.topics, now.topics)
        if was.pattern != now.pattern:
            _replace_counts(self.patterns, _some(was.pattern), _some(now.pattern))
        if was.assignor != now.assignor:
            _replace_counts(self.assignors, _some(was.assignor), _some(now.assignor))
        if was.classic != now.classic:
            _replace_counts(self.classic_protocols, _protocols(was), _protocols(now))
            self.classic_count += now.uses_classic_protocol - was.uses_classic_protocol

    def move(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """`set_member` where `new` differs from `old` in its epochs, its state and its partitions only."""
        self.members[new.member_id] = new
        self._state = None
        self._release(old)
        self._own(new)

    def set_epoch_of(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """`set_member` where `new` differs from `old` in its epochs only."""
        self.members[new.member_id] = new
        self._state = None
        _renew(self.partition_epochs, new.assigned, old.epoch, new.epoch)

    def set_resolved(self, pattern: str, resolved: ResolvedPattern | None) -> None:
        old = self.resolved.pop(pattern, None)
        if resolved is not None:
            self.resolved[pattern] = resolved
        by_pattern = self.subscriptions.by_pattern
        _replace_counts(by_pattern, old.topics if old else (), resolved.topics if resolved else ())

    def _own(self, member: ConsumerMember) -> None:
        """Record a member's partitions. Of two members that claim the same partition, the one with the later epoch owns
        it."""
        epoch = member.epoch
        for epochs in (member.assigned, member.revoking) if member.revoking else (member.assigned,):
            for topic_id, partitions in epochs.items():
                owned = self.partition_epochs.get(topic_id)
                if owned is None:
                    owned = self.partition_epochs[topic_id] = {}
                for partition in partitions:
                    before = owned.get(partition)
                    if before is None or before < epoch:  # that of a member that sleeps is less than NO_EPOCH
                        owned[partition] = epoch

    def _release(self, member: ConsumerMember) -> None:
        epoch = member.epoch
        for epochs in (member.assigned, member.revoking) if member.revoking else (member.assigned,):
            for topic_id, partitions in epochs.items():
                owned = self.partition_epochs.get(topic_id)
                if owned is None:
                    continue
                for partition in partitions:
                    if owned.get(partition) == epoch:
                        del owned[partition]
                if not owned:
                    del self.partition_epochs[topic_id]


def _of_topic(owned: dict[UUID, dict[int, int]], topic_id: UUID) -> dict[int, int]:
    """The epochs of the partitions of a topic, mostly the only one. (The hash of a UUID is a function of Python's.)"""
    if len(owned) == 1:
        for only, of_topic in owned.items():
            if only is topic_id:
                return of_topic
    return owned.setdefault(topic_id, {})


def _renew(owned: dict[UUID, dict[int, int]], assigned: Epochs, before: int, epoch: int) -> None:
    """The partitions of a member are those of its new epoch now, but what another has taken since `before`."""
    for topic_id, partitions in assigned.items():
        of_topic = _of_topic(owned, topic_id)
        for partition in partitions:
            since = of_topic.get(partition)
            if since is None or since < epoch or since == before:
                of_topic[partition] = epoch


def target_value(partitions: Partitions) -> ConsumerGroupTargetAssignmentMemberValue:
    rows = sorted((topic_id, tuple(sorted(numbers))) for topic_id, numbers in partitions.items())
    return ConsumerGroupTargetAssignmentMemberValue(tuple(TargetPartitions(*row) for row in rows))


def partitions_of(epochs: Epochs) -> Partitions:
    return {topic_id: frozenset(partitions) for topic_id, partitions in epochs.items()}


def _some(name: str | None) -> tuple[str, ...]:
    return (name,) if name else ()


def _protocols(member: ConsumerMember) -> list[str]:
    return [] if member.classic is None else [each.name for each in member.classic.supported_protocols]


_NOBODY: Final = ConsumerMember("")


def _replace_counts(counts: Counter[str], old: Iterable[str], new: Iterable[str]) -> None:
    """One less of each of `old`, one more of each of `new`; what comes to nothing goes."""
    if old == new:
        return
    for name in new:
        counts[name] += 1
    for name in old:
        if counts[name] <= 1:
            del counts[name]
        else:
            counts[name] -= 1
