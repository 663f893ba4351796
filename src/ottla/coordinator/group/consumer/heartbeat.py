"""ConsumerGroupHeartbeat: a member joins, stays, changes what it reads, or leaves (KIP-848).

What a heartbeat does, in this order: find or make the group and the member; write what has changed of the member, and
with its subscription the group epoch; compute the target assignment if that is behind the group epoch; move the member
one step towards its target (Kafka's `GroupMetadataManager.consumerGroupHeartbeat`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Set
from typing import Any

from ottla.coordinator.effects import Token
from ottla.coordinator.group.consumer import migration, patterns, target, timers
from ottla.coordinator.group.consumer.group import (
    MEMBER,
    MEMBER_CURRENT,
    MEMBER_TARGET,
    METADATA,
    PARTITION_METADATA,
    ConsumerGroup,
    target_value,
)
from ottla.coordinator.group.consumer.member import (
    LEAVING,
    LEAVING_STATIC,
    ConsumerMember,
    Epochs,
    MemberState,
    Partitions,
)
from ottla.coordinator.group.consumer.member_removal import fence, put_to_sleep
from ottla.coordinator.group.consumer.metadata_hash import group_hash
from ottla.coordinator.group.consumer.reconcile import reconciled
from ottla.coordinator.group.consumer.timers import cancel_all, cancel_rebalance, start_rebalance, start_session
from ottla.coordinator.group.kind import REBALANCES
from ottla.coordinator.group.modern_group import put
from ottla.coordinator.group.requests import ConsumerHeartbeat
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.schemas.records import ConsumerGroupMetadataValue

METADATA_REFRESH_INTERVAL_MS = 3_600_000
"""After which the metadata hash is computed again though no topic is known to have changed."""
REJOIN = "The member must abandon all its partitions and rejoin."


def heartbeat(state: GroupState, token: Token, request: ConsumerHeartbeat) -> None:
    """Replies with a ConsumerGroupHeartbeat response. Raises KafkaError."""
    check(request, state.config.consumer_assignors)
    if request.member_epoch in (LEAVING, LEAVING_STATIC):
        _leave(state, token, request)
    else:
        _Heartbeat(state, request).run(token)


def check(request: ConsumerHeartbeat, assignors: tuple[str, ...]) -> None:
    """Raises INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    named = request.needs_member_id or epoch > 0 or epoch == LEAVING
    if named and not request.member_id.strip():
        raise _empty("MemberId")
    if not request.group_id.strip():
        raise _empty("GroupId")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _empty("InstanceId")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _empty("RackId")
    if epoch == 0:
        _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        _require(request.owned is not None and not request.owned, "TopicPartitions must be empty when (re-)joining.")
        subscribed = request.topics is not None or request.pattern is not None
        _require(subscribed, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVING_STATIC:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _require(epoch > LEAVING_STATIC, "MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in assignors:
        raise KafkaError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _empty(what: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, f"{what} can't be empty.")


def _require(holds: Any, message: str) -> None:
    if not holds:
        raise KafkaError(ErrorCode.invalid_request, message)


class _Heartbeat:
    """One heartbeat, of a member that does not leave."""

    def __init__(self, state: GroupState, request: ConsumerHeartbeat) -> None:
        self._state = state
        self._request = request
        self._joins = request.member_epoch == 0
        self._records: list[GroupRecord] = []

    def run(self, token: Token) -> None:
        state, request = self._state, self._request
        conversion = migration.consumer_group(state, request.group_id, create=self._joins)
        group = conversion.group
        self._records += conversion.records
        if would_grow(group, request.member_id, request.instance_id):
            check_size(state, group)
        member_id = request.member_id or state.new_uuid_text()
        old = self._member(group, member_id)
        new = self._changed(old)
        step = Step(state, group, self._records)
        new = step.run(old, new, request.owned)
        gone = old if old.uses_classic_protocol else None
        if self._joins and request.instance_id is not None:
            gone = group.static_member(request.instance_id)

        def undone() -> None:
            conversion.revert(state)
            timers.undo(state, request.group_id, member_id, gone)

        if gone is None and not conversion.records and step.has_made(self._records):
            step.apply(new, undone)
        else:
            state.apply(self._records, undone)
        conversion.commence(state)
        if gone is not None:  # it has another id from now on, or another protocol
            cancel_all(state, group, gone.member_id)
        step.after(new)
        start_session(state, request.group_id, new)
        state.reply(token, self._response(old, new))
        step.resolve(request.visible)

    def _member(self, group: ConsumerGroup, member_id: str) -> ConsumerMember:
        request = self._request
        if request.instance_id is None:
            member = group.members.get(member_id)
            if member is None and self._joins:
                return ConsumerMember(member_id)
            member = group.member(member_id)
        elif self._joins:
            return static_joins(group, member_id, request.instance_id, self._records, is_classic=False)
        else:
            member = static_member(group, member_id, request.instance_id)
        self._check_epoch(member)
        return member

    def _check_epoch(self, member: ConsumerMember) -> None:
        """A member that says the epoch before, and no more partitions than it has, has missed an answer."""
        received = self._request.member_epoch
        if received == 0 or received == member.epoch:
            return
        if received > member.epoch:
            size = "greater"
        elif received == member.previous_epoch and _is_subset(self._request.owned, member.assigned):
            return
        else:
            size = "smaller"
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"The consumer group member has a {size} member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}). {REJOIN}",
        )

    def _changed(self, old: ConsumerMember) -> ConsumerMember:
        request = self._request
        client = (old.client_id, old.client_host, old.instance_id, old.classic)
        if request.is_brief and client == (request.client_id, request.client_host, request.instance_id, None):
            return old
        timeout_ms = request.rebalance_timeout_ms
        return ConsumerMember(  # `_replace` takes longer
            old.member_id,
            old.epoch,
            old.previous_epoch,
            old.state,
            old.instance_id if request.instance_id is None else request.instance_id,
            old.rack_id if request.rack_id is None else request.rack_id,
            old.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            request.client_id,
            request.client_host,
            old.topics if request.topics is None else frozenset(request.topics),
            old.pattern if request.pattern is None else request.pattern,
            old.assignor if request.assignor is None else request.assignor,
            old.assigned,
            old.revoking,
        )

    def _response(self, old: ConsumerMember, new: ConsumerMember) -> dict[str, Any]:
        """The response; it has the assignment if the member joins, sends its whole state, or has another assignment
        than before."""
        request = self._request
        tells_all = (
            request.rebalance_timeout_ms != -1
            and (request.topics is not None or request.pattern is not None)
            and request.owned is not None
        )
        shows = self._joins or tells_all or old.assigned != new.assigned
        config = self._state.consumer_config(request.group_id)
        return {
            "error_code": ErrorCode.none,
            "member_id": new.member_id,
            "member_epoch": new.epoch,
            "heartbeat_interval": config.heartbeat_interval_ms,
            "assignment": new.assigned if shows else None,
        }


class Step:
    """The effect of a heartbeat or a JoinGroup of a member on the group."""

    def __init__(self, state: GroupState, group: ConsumerGroup, records: list[GroupRecord]) -> None:
        self._state = state
        self._group = group
        self._records = records
        self._epoch = group.epoch
        self._made = 0
        """Number of records of the member alone, and of the group's epoch."""
        self._metadata: tuple[int, int] | None = None
        """The new epoch and the hash of the topics."""
        self._refreshed = False
        self._reconciled = False
        self._to_resolve: tuple[str, ...] = ()

    def run(
        self, old: ConsumerMember, new: ConsumerMember, owned: Partitions | None, *, is_classic: bool = False
    ) -> ConsumerMember:
        """Add the records of the change; returns the member as it will be. Raises KafkaError."""
        changed = self.change(old, new, is_classic=is_classic)
        goal = target.update(self._state, self._group, self._epoch, old, new, self._records)
        return self.reconcile(new, goal, owned, changed)

    def change(self, old: ConsumerMember, new: ConsumerMember, *, is_classic: bool) -> bool:
        """Write what has changed of the member and, with its subscription, of the group; returns whether that did."""
        if new != old:
            self._records.append(put(self._group.key(MEMBER, new.member_id), new.to_metadata()))
            self._made += 1
        change, self._to_resolve = patterns.update(self._state, self._group, old, new, self._records)
        names_changed = new.topics != old.topics
        changed = names_changed or change is not patterns.Change.NONE
        self._refresh(old, new, names_changed or change is patterns.Change.RESOLVED or (is_classic and changed))
        return changed

    def _refresh(self, old: ConsumerMember, new: ConsumerMember, bumps: bool) -> None:
        """Look at the topics again if that is due, and begin a new group epoch if they or subscriptions have changed.
        (A pattern that is still to be resolved begins one then.)"""
        state, group = self._state, self._group
        if not bumps and not group.has_metadata_expired(state.now.wall_ms):
            return
        found = self._hash(group.topics_after(old, new))
        if bumps or found != group.metadata_hash:
            self._epoch = group.epoch + 1
            self._records.append(put(group.key(METADATA), ConsumerGroupMetadataValue(self._epoch, found)))
            self._metadata = self._epoch, found
            self._made += 1
            state.observe(REBALANCES, group, f"epoch {self._epoch}")
        if group.has_partition_metadata:
            self._records.append(GroupRecord(group.key(PARTITION_METADATA), None))
        self._refreshed = True

    def _hash(self, topics: Set[str]) -> int:
        """Their hash, computed once for all members that join."""
        state, group = self._state, self._group
        images, hashed, found = group.hashed
        if images != state.images or hashed != topics:
            found = group_hash(topics, state.image, state.topic_hashes)
            group.hashed = state.images, frozenset(topics), found
        return found

    @property
    def epoch(self) -> int:
        """The group's, after the step."""
        return self._epoch

    def reconcile(
        self, new: ConsumerMember, goal: target.Target, owned: Partitions | None, changed: bool
    ) -> ConsumerMember:
        if not changed and new.is_reconciled_to(goal.epoch):
            return new
        image, group = self._state.image, self._group
        moved = reconciled(image, group, new, goal.epoch, goal.partitions, owned, changed=changed)
        if moved is not new and moved != new:
            self._records.append(put(self._group.key(MEMBER_CURRENT, new.member_id), moved.to_current()))
            self._made += 1
            self._reconciled = True
        return moved

    def has_made(self, records: list[GroupRecord]) -> bool:
        """Whether these are of the member alone, and of the group's epoch, as those of nearly all heartbeats."""
        return len(records) == self._made and self._state.groups.get(self._group.group_id) is self._group

    def apply(self, new: ConsumerMember, undone: Callable[[], None]) -> None:
        """Write the records of this step, which are all, and let them count as `GroupState.apply` would: what they do
        is known here, and need not be read from them."""
        state, group = self._state, self._group
        before, epoch, metadata_hash = group.members.get(new.member_id), group.epoch, group.metadata_hash
        state.decisions += 1
        if self._made:
            group.set_member(new.member_id, new)
        if self._metadata is not None:
            group.set_epoch(*self._metadata)
            for topic in new.topics:
                state.groups_by_topic.setdefault(topic, set()).add(group.group_id)

        def undo() -> None:
            if self._metadata is not None:
                group.set_epoch(epoch, metadata_hash)
            if self._made:
                group.set_member(new.member_id, before)

        def failed() -> None:
            undo()
            undone()

        state.write_applied(self._records, failed, ((group.group_id, (group,), undo),))

    def after(self, new: ConsumerMember) -> None:
        """Update soft state: timers and deadlines."""
        state = self._state
        group = state.groups.get(self._group.group_id)
        if not isinstance(group, ConsumerGroup):
            return
        if self._refreshed:
            group.refresh_deadline_ms = state.now.wall_ms + METADATA_REFRESH_INTERVAL_MS
            group.refresh_epoch = self._epoch
        if self._reconciled and not new.uses_classic_protocol:
            if new.state is MemberState.UNREVOKED_PARTITIONS:
                start_rebalance(state, group, new)
            else:
                cancel_rebalance(state, group.group_id, new.member_id)

    def resolve(self, visible: Container[str] | None) -> None:
        """Request the resolution of patterns, if that is due, among the topics that the member may describe."""
        if self._to_resolve:
            patterns.request(self._state, self._group.group_id, self._to_resolve, visible)


def would_grow(group: ConsumerGroup, member_id: str, instance_id: str | None) -> bool:
    """Whether a request is of one more member. A static member that comes back under another id takes its own place
    (KAFKA-20601)."""
    return member_id not in group.members and instance_id not in group.static_members


def check_size(state: GroupState, group: ConsumerGroup) -> None:
    """Raises GROUP_MAX_SIZE_REACHED where there is no room for one more member."""
    limit = state.config.consumer_max_size
    if len(group.members) >= limit:
        message = f"The consumer group has reached its maximum capacity of {limit} members."
        raise KafkaError(ErrorCode.group_max_size_reached, message)


def static_joins(
    group: ConsumerGroup, member_id: str, instance_id: str, records: list[GroupRecord], *, is_classic: bool
) -> ConsumerMember:
    """The member that a static member begins as: in the place of the one that has left for a while. Raises
    UNRELEASED_INSTANCE_ID."""
    before = group.static_member(instance_id)
    if before is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if not is_classic and not before.uses_classic_protocol and before.epoch != LEAVING_STATIC:
        raise KafkaError(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {before.member_id} member.",
        )
    member = before._replace(member_id=member_id, epoch=0, previous_epoch=0)
    records += group.removal(before.member_id)
    records.append(put(group.key(MEMBER, member_id), member.to_metadata()))
    records.append(put(group.key(MEMBER_TARGET, member_id), target_value(group.target(before.member_id))))
    records.append(put(group.key(MEMBER_CURRENT, member_id), member.to_current()))
    return member


def static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.fenced_instance_id,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def _is_subset(owned: Partitions | None, assigned: Epochs) -> bool:
    """Whether a member has reported its partitions, and all of them are assigned to it."""
    return owned is not None and all(
        numbers.issubset(assigned.get(topic_id, ())) for topic_id, numbers in owned.items()
    )


def _leave(state: GroupState, token: Token, request: ConsumerHeartbeat) -> None:
    group = state.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise migration.not_found(request.group_id, group)
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = static_member(group, request.member_id, request.instance_id)
    response = {
        "error_code": ErrorCode.none,
        "member_id": member.member_id,
        "member_epoch": request.member_epoch,
        "heartbeat_interval": 0,
        "assignment": None,
    }
    if request.instance_id is not None and request.member_epoch == LEAVING_STATIC:
        put_to_sleep(state, group, member)
    else:
        fence(state, group, [member], f"{member.member_id} leaves")
    state.reply(token, response)
