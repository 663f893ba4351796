"""The heartbeat in which nothing is new, as nearly all are.

If the member has what its group gives it, it costs a look at the epochs and a new deadline. In a rebalance most members
keep what they have and get a new epoch, and the others move a step towards their target: that is one record. Anything
else is for `heartbeat.py`, which would give these heartbeats the same answer and write the same record."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.coordinator.effects import Encoded, Reply, Token, Write
from ottla.coordinator.group.consumer.group import MEMBER_CURRENT, ConsumerGroup, Kept
from ottla.coordinator.group.consumer.member import NOTHING, STABLE, UNKNOWN, UNREVOKED, ConsumerMember, Epochs
from ottla.coordinator.group.consumer.reconcile import NO_NUMBERS, reconciled
from ottla.coordinator.group.consumer.target import may_compute
from ottla.coordinator.group.consumer.timers import cancel_rebalance, start_rebalance, start_session
from ottla.coordinator.group.requests import PlainHeartbeat
from ottla.coordinator.group.state import GroupState
from ottla.errors import NONE
from ottla.model import Millis
from ottla.protocol.internal.group_records import GroupRecord, ModernKey, Value, encode_modern_key
from ottla.protocol.internal.group_values import VERSION, encode_group_value

if TYPE_CHECKING:
    from typing import TypeAlias

    Heard: TypeAlias = "tuple[ConsumerGroup, ConsumerMember]"

_START: Final = struct.Struct(">hiib")
"""How the record of a current assignment begins: version, epoch, the epoch before, state."""


def plain_heartbeat(
    state: GroupState, heard: PlainHeartbeat, is_settled: bool, waiter: Callable[[], Token] | None
) -> Millis | Token | None:
    """Begin the member's session again, and return the interval to its next heartbeat. Where the member moves towards
    its target, or where what is true of it `is_settled` not yet, reply to a `waiter` instead, once all is in the log,
    and return that. None: something else is to be done or to be refused, or there is no `waiter`; nothing has
    changed."""
    found = _heard(state, heard)
    if found is None:
        return None
    group, member = found
    assigned: Epochs | None = None
    if member.state is STABLE and member.epoch == group.assignment_epoch:
        if not is_settled and waiter is None:
            return None
        records: list[GroupRecord] = []
        encoded: Encoded | None = None
        undo = _nothing
    elif waiter is None or member.state is UNKNOWN:
        return None
    else:
        old, kept = member, _kept(state, group, member)
        if kept is not None:
            member = old.in_epoch(group.assignment_epoch)
            value = _START.pack(VERSION, member.epoch, old.epoch, STABLE) + kept.record_end
            records, undo = _written(state, group, old, member, kept.key, value)
            encoded = [(kept.encoded_key, value)]
        else:
            target = group.target(member.member_id)
            member = reconciled(state.image, group, old, group.assignment_epoch, target, None, changed=False)
            if member.assigned is not old.assigned and member.assigned != old.assigned:
                assigned = member.assigned
            records, undo, encoded = [], _nothing, None
            if member != old:
                key = group.key(MEMBER_CURRENT, member.member_id)
                records, undo = _written(state, group, old, member, key, member.to_current())
    start_session(state, heard.group_id, member)
    interval_ms = state.consumer_config(heard.group_id).heartbeat_interval_ms
    if is_settled and not records:
        return interval_ms
    assert waiter is not None
    token = waiter()
    answer = {
        "error_code": NONE,
        "member_id": heard.member_id,
        "member_epoch": member.epoch,
        "heartbeat_interval": interval_ms,
        "assignment": assigned,
    }
    reversals = ((heard.group_id, (group,), undo),) if records else ()
    # Without keywords: with them, a compiled call goes through Python.
    state.effects.append(Write(records, None, None, None, None, undo, reversals, encoded))
    state.effects.append(Reply(token, answer))
    return token


def _heard(state: GroupState, heard: PlainHeartbeat) -> Heard | None:
    """The member that sends it, if it is what the group knows, and no target is to be computed."""
    group_id, member_id, instance_id, epoch, client_id, client_host = heard
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup) or group.patterns:  # patterns may be due
        return None
    members = group.members
    member = members.get(member_id)
    if (
        member is None
        or epoch != member.epoch
        or member.classic is not None
        or client_id != member.client_id
        or client_host != member.client_host
        or (instance_id is not None and group.static_members.get(instance_id) != member_id)
        or (group.assignment_epoch < group.epoch and may_compute(state, group))
        or group.has_metadata_expired(state.now.wall_ms)
    ):
        return None
    return group, member


def _kept(state: GroupState, group: ConsumerGroup, member: ConsumerMember) -> Kept | None:
    """What the member keeps, if nothing changes for it but its epoch."""
    if member.state is not STABLE or member.revoking:
        return None
    member_id, assigned, all_kept, targets = member.member_id, member.assigned, group.kept, group.targets
    target = targets.get(member_id, NOTHING)
    found = all_kept.get(member_id)
    if (
        found is not None
        and found.assigned is assigned
        and found.target is target
        and found.topics is member.topics
        and found.images == state.images
    ):
        return found
    if len(assigned) != len(target):
        return None
    for topic_id, epochs in assigned.items():
        topic = state.image.topic_by_id(topic_id)
        if topic is None or topic.name not in member.topics or epochs.keys() != target.get(topic_id, NO_NUMBERS):
            return None
    end = encode_group_value(member.to_current())[_START.size :]
    key = group.key(MEMBER_CURRENT, member_id)
    kept = group.kept[member_id] = Kept(assigned, target, member.topics, state.images, key, encode_modern_key(key), end)
    return kept


def _written(
    state: GroupState, group: ConsumerGroup, old: ConsumerMember, member: ConsumerMember, key: ModernKey, value: Value
) -> tuple[list[GroupRecord], Callable[[], None]]:
    """The record of a member that has moved, which counts already, and what undoes that."""
    if member.state is UNREVOKED:
        start_rebalance(state, group, member)
    else:
        cancel_rebalance(state, group.group_id, member.member_id)
    state.decisions += 1
    change = group.set_epoch_of if member.assigned is old.assigned and not old.revoking else group.move
    change(old, member)
    record = tuple.__new__(GroupRecord, (key, value))  # see `in_epoch`
    return [record], partial(change, member, old)


def _nothing() -> None:
    """Undoes a heartbeat that has changed no more than the session."""
