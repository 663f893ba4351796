"""The assignors of the broker for consumer groups (KIP-848): `uniform` and `range`, as Kafka has them since 4.0.

Neither looks at racks: Kafka's do not either (KIP-1101 made a change of racks a reason to assign again, not more).
Where Kafka's own result depends on the order of a hash map, here it is that of the members as given and of topic ids.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Set
from types import MappingProxyType
from typing import Final, TypeAlias
from uuid import UUID

MemberId: TypeAlias = str
Assignment: TypeAlias = Mapping[MemberId, Mapping[UUID, Set[int]]]
"""Partitions of topics, by member. Every member is in it, without topics of which it has nothing. One that has the
same as before may have the same object as in its `MemberSpec`."""


class MemberSpec:
    """A member, as an assignor sees it."""

    __slots__ = ("assigned", "instance_id", "rack_id", "topics")

    def __init__(
        self,
        instance_id: str | None,
        rack_id: str | None,
        topics: frozenset[UUID],
        assigned: Mapping[UUID, frozenset[int]],
    ) -> None:
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.topics = topics
        """Existing topics to which it subscribes."""
        self.assigned = assigned
        """Its part of the previous target assignment. No partition has two members."""


Members: TypeAlias = Mapping[MemberId, MemberSpec]
Counts: TypeAlias = Mapping[UUID, int]
"""How many partitions each topic has; each to which a member subscribes is there."""

Assignor: TypeAlias = Callable[[Members, Counts, bool], Assignment]
"""Members, counts, and whether all subscribe to the same topics: to what each is to have."""


def assign_ranges(members: Members, counts: Counts, is_homogeneous: bool) -> Assignment:
    """Neighbouring partitions of each topic to each subscriber, in the order of instance ids, then of member ids, so
    that partitions of the same number of topics with as many partitions are with the same member."""
    del is_homogeneous  # the result is the same
    subscribers: dict[UUID, list[MemberId]] = {}
    for member in sorted(members, key=lambda each: _static_first(each, members[each].instance_id)):
        for topic in members[member].topics:
            subscribers.setdefault(topic, []).append(member)
    assignment: dict[MemberId, dict[UUID, set[int]]] = {member: {} for member in members}
    for topic in sorted(subscribers):
        quota, extras = divmod(counts[topic], len(subscribers[topic]))
        start = 0
        for index, member in enumerate(subscribers[topic]):
            end = start + quota + (index < extras)
            if start == end:
                break
            assignment[member][topic] = {*range(start, end)}
            start = end
    return assignment


def _static_first(member_id: MemberId, instance_id: str | None) -> tuple[bool, bytes]:
    """Static members keep their place when they come back under another id. Strings go by UTF-16, as Java's do."""
    name = member_id if instance_id is None else instance_id
    return instance_id is None, name.encode("utf-16-be", "surrogatepass")


def assign_uniformly(members: Members, counts: Counts, is_homogeneous: bool) -> Assignment:
    """Assign each member as many partitions as any other, within one; each keeps as many of its own as that allows."""
    if is_homogeneous:
        return _assign_equally(members, counts)
    return _assign_by_topic(members, counts)


# Where all members subscribe to the same topics


def _assign_equally(members: Members, counts: Counts) -> Assignment:
    if not members:
        return {}
    topics = sorted(next(iter(members.values())).topics)
    quota, extras = divmod(sum(map(counts.__getitem__, topics)), len(members))
    owned = {topic: bytearray(counts[topic]) for topic in topics}
    """For each topic, which partitions a member keeps."""
    first = owned[topics[0]] if topics else None
    assignment: dict[MemberId, Mapping[UUID, Set[int]]] = {}
    room: list[tuple[MemberId, int]] = []
    for index, (member_id, spec) in enumerate(members.items()):
        # The first members with one more than their quota keep it; the last ones have to take what is left.
        limit = quota + (extras > 0)
        kept, left = _keep(spec, topics, limit, owned, first)
        if left and extras and len(members) - index > extras:
            left -= 1
        elif extras:
            extras -= 1
        assignment[member_id] = kept
        if left:
            room.append((member_id, left))
    free = _free(topics, owned)
    for member_id, left in room:
        mine = {topic: {*numbers} for topic, numbers in assignment[member_id].items()}
        _take(mine, free, left)
        assignment[member_id] = mine
    return assignment


def _keep(
    spec: MemberSpec, topics: list[UUID], limit: int, owned: Mapping[UUID, bytearray], first: bytearray | None
) -> tuple[Mapping[UUID, Set[int]], int]:
    """The partitions that a member keeps, and how many more it may get. `first` is of the first of `topics`."""
    if topics and len(spec.assigned) == 1:  # most keep all that they have, of one topic: as little as possible for each
        for topic, numbers in spec.assigned.items():
            flags = first if topic is topics[0] else owned.get(topic)  # the hash of a UUID is a function of Python's
            if flags is not None and len(numbers) <= limit:
                for number in numbers:
                    flags[number] = True
                return spec.assigned, limit - len(numbers)
    kept: dict[UUID, set[int]] = {}
    for topic in topics if len(spec.assigned) > len(topics) else sorted(spec.assigned):
        if limit and topic in owned and (had := spec.assigned.get(topic)):
            mine = {*sorted(had)[:limit]} if len(had) > limit else {*had}
            for number in mine:
                owned[topic][number] = True
            kept[topic] = mine
            limit -= len(mine)
    return kept, limit


def _free(topics: list[UUID], owned: Mapping[UUID, bytearray]) -> Iterator[tuple[UUID, int]]:
    return ((topic, number) for topic in topics for number, is_owned in enumerate(owned[topic]) if not is_owned)


def _take(mine: dict[UUID, set[int]], free: Iterator[tuple[UUID, int]], count: int) -> None:
    for _, (topic, number) in zip(range(count), free, strict=False):
        mine.setdefault(topic, set()).add(number)


# Where they do not

_ROUNDS_MAX = 16
"""Rounds of moving partitions between subscribers: as in Kafka, where it may take long if subscriptions overlap."""


class _Balance:
    """An assignment under way, for members with different subscriptions."""

    def __init__(self, members: Members, counts: Counts) -> None:
        self.ids = [*members]
        self.counts = counts
        self.subscribers: dict[UUID, list[int]] = {}
        for index, spec in enumerate(members.values()):
            for topic in spec.topics:
                self.subscribers.setdefault(topic, []).append(index)
        self.owners = {topic: [-1] * counts[topic] for topic in self.subscribers}
        """The index of the member that has each partition; -1: nobody yet."""
        self.sizes = [0] * len(self.ids)
        for index, spec in enumerate(members.values()):
            for topic, numbers in spec.assigned.items():
                if topic in spec.topics:
                    self.sizes[index] += len(numbers)
                    for number in numbers:
                        self.owners[topic][number] = index
        self.topics = sorted(self.subscribers, key=self._order)

    def _order(self, topic: UUID) -> tuple[float, int, UUID]:
        """Sort key: topics with many partitions for few members first, since they have the least choice."""
        subscribers = len(self.subscribers[topic])
        return -self.counts[topic] / subscribers, subscribers, topic

    def fill(self) -> None:
        """Give what nobody has to those with the fewest partitions."""
        for topic in self.topics:
            owners = self.owners[topic]
            if -1 not in owners:
                continue
            least = [(self.sizes[index], index) for index in self.subscribers[topic]]
            heapq.heapify(least)
            for number, owner in enumerate(owners):
                if owner < 0:
                    size, index = least[0]
                    heapq.heapreplace(least, (size + 1, index))
                    owners[number] = index
                    self.sizes[index] += 1

    def move(self) -> None:
        """Move partitions from those with the most to those with the fewest, until none is better elsewhere."""
        for _ in range(_ROUNDS_MAX):
            if not sum(self._move_of(topic) for topic in self.topics):
                return

    def _move_of(self, topic: UUID) -> int:
        """How many were moved among the subscribers of one topic."""
        subscribers, sizes, owners = self.subscribers[topic], self.sizes, self.owners[topic]
        loads = [sizes[index] for index in subscribers]
        if max(loads) - min(loads) <= 1:
            return 0
        held: dict[int, list[int]] = {}
        for number, owner in enumerate(owners):
            held.setdefault(owner, []).append(number)
        least = [(sizes[index], index) for index in subscribers]
        most = [(-sizes[index], -index) for index in held]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = 0
        while most:
            size, source = -most[0][0], -most[0][1]
            fewest, target = least[0]
            if size - fewest <= 1:
                break
            number = held[source].pop()
            owners[number] = target
            sizes[source] -= 1
            sizes[target] += 1
            moved += 1
            heapq.heapreplace(least, (fewest + 1, target))
            if held[source]:
                heapq.heapreplace(most, (1 - size, -source))
            else:
                heapq.heappop(most)
        return moved

    def result(self) -> Assignment:
        assignment: dict[MemberId, dict[UUID, set[int]]] = {member_id: {} for member_id in self.ids}
        for topic, owners in self.owners.items():
            for number, owner in enumerate(owners):
                assignment[self.ids[owner]].setdefault(topic, set()).add(number)
        return assignment


def _assign_by_topic(members: Members, counts: Counts) -> Assignment:
    balance = _Balance(members, counts)
    balance.fill()
    balance.move()
    return balance.result()


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
