"""How a member moves towards its target: it first gives up what is not in its target, then gets what is free.

Stable -> UnrevokedPartitions: it has to give up some, and stays in its epoch until it no longer owns them.
-> UnreleasedPartitions: it has its new epoch; some of its target is still another's.
-> Stable: it has all of it. (Kafka's CurrentAssignmentBuilder.)
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.coordinator.group.consumer.group import NO_EPOCH, ConsumerGroup
from ottla.coordinator.group.consumer.member import (
    NO_PARTITIONS,
    STABLE,
    UNRELEASED,
    UNREVOKED,
    ConsumerMember,
    Epochs,
    Partitions,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage

NO_NUMBERS: frozenset[int] = frozenset()


def reconciled(
    image: MetadataImage,
    group: ConsumerGroup,
    member: ConsumerMember,
    epoch: int,
    target: Partitions,
    owned: Partitions | None,
    *,
    changed: bool,
) -> ConsumerMember:
    """The member one step nearer to its target of `epoch`. Raises FENCED_MEMBER_EPOCH."""
    topics = group.subscribed_topics_of(member)

    def subscribed(topic_id: UUID) -> bool:
        topic = image.topic_by_id(topic_id)
        return topic is not None and topic.name in topics

    return Reconciliation(
        member,
        epoch,
        target,
        subscribed,
        group.partition_epoch,
        owned,
        subscription_changed=changed,
        reads_nothing=not topics,
    ).next()


class Reconciliation:
    """One step of one member."""

    __slots__ = (
        "_member", "_owned", "_partition_epoch", "_reads_nothing", "_subscribed", "_subscription_changed", "_target",
        "_target_epoch",
    )  # fmt: skip

    def __init__(
        self,
        member: ConsumerMember,
        target_epoch: int,
        target: Partitions,
        subscribed: Callable[[UUID], bool],
        partition_epoch: Callable[[UUID, int], int],
        owned: Partitions | None,
        *,
        subscription_changed: bool,
        reads_nothing: bool = False,
    ) -> None:
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._subscribed = subscribed
        """Whether the member reads a topic (False for one that is gone)."""
        self._partition_epoch = partition_epoch
        self._owned = owned
        """Partitions that the member reports as its own; None if it reports nothing."""
        self._subscription_changed = subscription_changed
        self._reads_nothing = reads_nothing
        """Whether it subscribes to no topic, be there one of that name or not."""

    def next(self) -> ConsumerMember:
        """The member after the step. Raises FENCED_MEMBER_EPOCH for a member in an unknown state."""
        member = self._member
        if member.state is STABLE:
            if member.epoch != self._target_epoch:
                return self._advance(member.epoch)
            return self._drop_unsubscribed() if self._subscription_changed else member
        if member.state is UNREVOKED:
            if self._still_owns(member.revoking):
                return self._drop_unsubscribed() if self._subscription_changed else member
            return self._advance(member.epoch)
        if member.state is UNRELEASED:
            return self._advance(member.epoch)
        if self._owned is None or self._owned:
            raise KafkaError(
                ErrorCode.fenced_member_epoch,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        return self._advance(self._target_epoch)

    def _still_owns(self, revoking: Epochs) -> bool:
        """Whether the member still owns a partition to revoke. A member that does not report its partitions is assumed
        to own all."""
        if self._owned is None:
            return True
        return any(not numbers.isdisjoint(revoking.get(topic_id, ())) for topic_id, numbers in self._owned.items())

    def _drop_unsubscribed(self) -> ConsumerMember:
        """Without a new epoch, give up the topics that the member no longer subscribes to."""
        member = self._member
        kept = {each: epochs for each, epochs in member.assigned.items() if self._subscribed(each)}
        if len(kept) == len(member.assigned) and not (self._reads_nothing and not member.revoking):
            return member  # (that of one that reads nothing Kafka writes again, with its epoch as the one before)
        revoking = dict(member.revoking)
        for topic_id, epochs in member.assigned.items():
            if topic_id not in kept:
                revoking[topic_id] = {**revoking.get(topic_id, {}), **epochs}
        dropped = member._replace(assigned=kept, previous_epoch=member.epoch)
        if self._still_owns(revoking):
            return dropped._replace(state=UNREVOKED, revoking=revoking)
        return dropped

    def _advance(self, epoch: int) -> ConsumerMember:
        member = self._member
        if not member.revoking and self._has_its_target():
            return member.moved(STABLE, self._target_epoch, member.assigned, NO_PARTITIONS)
        assigned: dict[UUID, dict[int, int]] = {}
        revoking: dict[UUID, dict[int, int]] = {}
        pending: dict[UUID, set[int]] = {}
        has_unreleased = False
        for topic_id in {**self._target, **member.assigned}:
            target = self._target.get(topic_id, NO_NUMBERS) if self._subscribed(topic_id) else NO_NUMBERS
            current = member.assigned.get(topic_id, {})
            kept = {number: since for number, since in current.items() if number in target}
            given_up = {number: since for number, since in current.items() if number not in target}
            wanted = target.difference(kept)
            free = {number for number in wanted if self._is_free(topic_id, number)}
            has_unreleased = has_unreleased or len(free) < len(wanted)
            for into, found in ((assigned, kept), (revoking, given_up)):
                if found:
                    into[topic_id] = found
            if free:
                pending[topic_id] = free
        if revoking and self._still_owns(revoking):
            return member.moved(UNREVOKED, epoch, assigned, revoking)
        for topic_id, free in pending.items():
            assigned.setdefault(topic_id, {}).update(dict.fromkeys(sorted(free), self._target_epoch))
        state = UNRELEASED if has_unreleased else STABLE
        return member.moved(state, self._target_epoch, assigned, NO_PARTITIONS)

    def _has_its_target(self) -> bool:
        """Whether nothing changes for the member but its epoch, as for most in a rebalance."""
        assigned = self._member.assigned
        if len(assigned) != len(self._target):
            return False
        for topic_id, epochs in assigned.items():
            if self._target.get(topic_id, NO_NUMBERS) != epochs.keys() or not self._subscribed(topic_id):
                return False
        return True

    def _is_free(self, topic_id: UUID, number: int) -> bool:
        """Whether the partition has no owner, or only the member itself, which is revoking it."""
        mine = number in self._member.revoking.get(topic_id, {})
        return mine or self._partition_epoch(topic_id, number) == NO_EPOCH
