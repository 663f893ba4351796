"""The assignor "simple" of share groups (KIP-932): which members read which partitions.

A partition may have several members. With more members than partitions each partition has as many as it takes that
every member has one; otherwise each has one member. Members keep what they have as far as that is even. Where all
members subscribe to the same topics it is even over all partitions, else topic by topic, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

Member: TypeAlias = str
Partition: TypeAlias = tuple[UUID, int]
Assignment: TypeAlias = dict[Member, list[Partition]]


def assign(
    subscriptions: Mapping[Member, Collection[UUID]],
    partitions: Mapping[UUID, Iterable[int]],
    previous: Mapping[Member, Collection[Partition]],
) -> Assignment:
    """The partitions of each member, in order. `subscriptions` are the topics of each member, `partitions` those of
    each topic that may be read, `previous` what members have now."""
    topics = sorted({topic for subscribed in subscriptions.values() for topic in subscribed})
    assignment: Assignment = {member: [] for member in subscriptions}
    if all(len({*subscribed}) == len(topics) for subscribed in subscriptions.values()):
        rounds: list[tuple[Sequence[Member], Sequence[UUID]]] = [([*subscriptions], topics)]
    else:
        rounds = [([member for member in subscriptions if topic in subscriptions[member]], [topic]) for topic in topics]
    for members, some in rounds:
        wanted = [(topic, number) for topic in some for number in partitions.get(topic, ())]
        for member, shared in _share(members, wanted, previous).items():
            assignment[member] += shared
    return {member: sorted(shared) for member, shared in assignment.items()}


def _share(
    members: Sequence[Member], partitions: Sequence[Partition], previous: Mapping[Member, Collection[Partition]]
) -> Assignment:
    shared: Assignment = {member: [] for member in members}
    if not members or not partitions:
        return shared
    sharing = -(-len(members) // len(partitions))
    slots = sharing * len(partitions)
    """How often partitions are given away; members have their part of it, rounded, such that the sum is right."""
    room = {
        member: -(-slots * (index + 1) // len(members)) + (-slots * index // len(members))
        for index, member in enumerate(members)
    }
    readers: dict[Partition, set[Member]] = {partition: set() for partition in partitions}
    for member in members:
        for partition in sorted(previous.get(member, ())):
            there = readers.get(partition)
            if there is not None and len(there) < sharing and len(shared[member]) < room[member]:
                there.add(member)
                shared[member].append(partition)
    unfilled = [member for member in members if len(shared[member]) < room[member]]
    for partition, there in readers.items():
        passed: list[Member] = []
        while len(there) < sharing and unfilled:
            member = unfilled.pop(0)
            if member in there:
                passed.append(member)
                continue
            there.add(member)
            shared[member].append(partition)
            if len(shared[member]) < room[member]:
                # Behind the others, so that a member's partitions are spread.
                unfilled.append(member)
        unfilled = passed + unfilled
    return shared
