"""Static members of streams groups: one that goes for a while keeps its tasks until its session ends, and has them
again when it comes back, under whatever member id (KIP-345; since Kafka 4.4)."""

from __future__ import annotations

from dataclasses import replace

from ottla.coordinator.group.modern_group import put
from ottla.coordinator.group.state import GroupState
from ottla.coordinator.group.streams.group import MEMBER, MEMBER_CURRENT, MEMBER_TARGET, StreamsGroup
from ottla.coordinator.group.streams.member import (
    LEAVING_STATIC,
    NOTHING,
    HeldTasks,
    StreamsMember,
    Tasks,
    target_value,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import GroupRecord


def joining(
    group: StreamsGroup, member_id: str, instance_id: str, records: list[GroupRecord]
) -> tuple[StreamsMember, StreamsMember | None]:
    """The member that a static member begins as, and the one whose place it takes. Raises UNRELEASED_INSTANCE_ID."""
    before = group.static_member(instance_id)
    if before is None:
        return group.members.get(member_id) or StreamsMember(member_id), None
    if before.epoch != LEAVING_STATIC:
        raise KafkaError(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {before.member_id} member.",
        )
    member = replace(before, member_id=member_id, epoch=0, previous_epoch=0)
    records += group.removal(before.member_id)
    records.append(put(group.key(MEMBER, member_id), member.to_metadata()))
    records.append(put(group.key(MEMBER_TARGET, member_id), target_value(group.target(before.member_id))))
    records.append(put(group.key(MEMBER_CURRENT, member_id), member.to_current()))
    return member, before


def without_others(group: StreamsGroup, member: StreamsMember, gone_id: str) -> StreamsMember:
    """A member that comes back as another process, without the tasks that this process has already: another member of
    it has them in its state directory. (Kafka gives them to it, and one of the two waits for the other's lock.)"""
    process, assigned = member.process_id, member.assigned
    beside = [
        held
        for name, each in group.members.items()
        if each.process_id == process and name not in (gone_id, member.member_id)
        for held in (each.assigned, each.revoking)
    ]

    def is_beside(name: str, number: int) -> bool:
        return any(number in kind.get(name, ()) for held in beside for kind in held)

    def free(tasks: Tasks) -> Tasks:
        left = {
            name: frozenset(each for each in numbers if not is_beside(name, each)) for name, numbers in tasks.items()
        }
        return {name: numbers for name, numbers in left.items() if numbers}

    active = {
        name: {number: epoch for number, epoch in epochs.items() if not is_beside(name, number)}
        for name, epochs in assigned.active.items()
    }
    active = {name: epochs for name, epochs in active.items() if epochs}
    return replace(member, assigned=HeldTasks(active, free(assigned.standby), free(assigned.warmup)))


def known(group: StreamsGroup, member_id: str, instance_id: str) -> StreamsMember:
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


def put_to_sleep(state: GroupState, group: StreamsGroup, member: StreamsMember) -> None:
    """The member goes and will be back: nobody gets its tasks while its session lasts."""
    active = {name: dict.fromkeys(epochs, 0) for name, epochs in member.assigned.active.items()}
    sleeping = replace(member, epoch=LEAVING_STATIC, assigned=member.assigned._replace(active=active), revoking=NOTHING)
    state.apply([put(group.key(MEMBER_CURRENT, member.member_id), sleeping.to_current())])
