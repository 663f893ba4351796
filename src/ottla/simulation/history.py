"""What clients sent, were told and saw, and what of it contradicts the promises.

Where every acknowledgement waits for an fsync (`fsynced`), nothing that was acknowledged or read may ever change.
Elsewhere a power loss may take the end of a log, as on one node of Apache Kafka; with replicas it takes as many of them
as there are in-sync ones at least (`budget`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.simulation.world import World

Key = tuple[str, int]

ACKS_ALL = -1


class Mark(NamedTuple):
    """What had happened, by some moment, that may lose what was acknowledged before it."""

    losses: int = 0
    """Replicas that lost the end of what they had, or all of it."""
    crashes: int = 0
    """Crashes, and processes that ended without a clean stop: the controller cannot tell what they still have."""
    elections: int = 0
    """Changes of the partition's leader: with them goes what acks=1 acknowledged."""
    unclean: int = 0
    """Elections of a leader that was not in sync."""


class Acknowledged(NamedTuple):
    value: bytes
    mark: Mark
    """When the request was sent: the answer may be older than the last loss."""
    acks: int = ACKS_ALL


@dataclass
class Partition:
    """One partition as clients know it."""

    acknowledged: dict[int, Acknowledged] = field(default_factory=dict)
    read: dict[int, Acknowledged] = field(default_factory=dict)
    sent: dict[bytes, None] = field(default_factory=dict)
    """Every value that may be there."""
    idempotent: dict[bytes, tuple[str, int]] = field(default_factory=dict)
    """Values that may be there once only: their producer and their place in what it sent."""
    certain: dict[bytes, Acknowledged] = field(default_factory=dict)
    """What was acknowledged; where it is may be unknown."""


class History:
    def __init__(self, world: World, *, fsynced: bool, budget: int = 1) -> None:
        """`budget`: so many replicas have to crash, one of them losing what it had, until something may be lost."""
        self.world = world
        self.fsynced = fsynced
        self.budget = budget
        self.partitions: dict[Key, Partition] = {}
        self.acknowledged_s: list[float] = []
        """When acknowledgements came."""
        self.lost: Counter[str] = Counter()
        """What was lost without a promise broken."""
        self.counts: Counter[str] = Counter()

    def partition(self, key: Key) -> Partition:
        return self.partitions.setdefault(key, Partition())

    def mark(self, key: Key) -> Mark:
        world = self.world
        losses = world.wipes if self.fsynced else world.wipes + world.losses
        return Mark(losses, world.crashes, world.elections[key], world.unclean[key])

    def holds(self, key: Key, mark: Mark, acks: int = ACKS_ALL) -> bool:
        """Whether what was seen then must still be so."""
        now = self.mark(key)
        if now.unclean != mark.unclean:
            return False
        if now.losses > mark.losses and now.crashes - mark.crashes >= self.budget:
            return False
        # A leader of before goes on acknowledging until it hears of the next one.
        return acks == ACKS_ALL or (acks == 1 and now.losses == mark.losses and not now.elections)

    def sending(self, key: Key, values: list[bytes], producer: str, first: int, *, idempotent: bool) -> None:
        partition = self.partition(key)
        for number, value in enumerate(values):
            partition.sent[value] = None
            if idempotent:
                partition.idempotent[value] = producer, first + number

    def acknowledge(self, key: Key, base_offset: int, values: list[bytes], mark: Mark, acks: int) -> None:
        partition = self.partition(key)
        self.counts["acknowledged"] += len(values)
        self.acknowledged_s.append(self.world.time.now_s)
        for number, value in enumerate(values):
            entry = Acknowledged(value, mark, acks)
            partition.certain[value] = entry
            if base_offset >= 0:  # else recognised as a duplicate, whose place is not said
                self._note(key, partition.acknowledged, base_offset + number, entry, "acknowledged")

    def saw(self, key: Key, offset: int, value: bytes, mark: Mark) -> None:
        partition = self.partition(key)
        self.counts["read"] += 1
        if value not in partition.sent:
            self.world.violated(f"phantom: {key} has {value!r} at {offset}, which nobody sent")
        self._note(key, partition.read, offset, Acknowledged(value, mark), "read")

    def _note(self, key: Key, where: dict[int, Acknowledged], offset: int, new: Acknowledged, what: str) -> None:
        partition = self.partition(key)
        if not self.holds(key, new.mark, new.acks):
            where.setdefault(offset, new)  # a leader of before may acknowledge late what is not there
            return
        for known in (partition.acknowledged, partition.read):
            entry = known.get(offset)
            if entry is not None and entry.value != new.value and self.holds(key, entry.mark, entry.acks):
                self.world.violated(f"{key} at {offset}: {what} {new.value!r}, and {entry.value!r} before")
        where[offset] = new

    def check_final(self, key: Key, found: dict[int, bytes]) -> None:
        """`found` is everything that a reader got in the end, from offset 0 on."""
        partition = self.partition(key)
        offsets = list(found)
        if offsets != list(range(len(offsets))):
            self.world.violated(f"{key}: offsets are not contiguous: {offsets}")
        for name, known in (("acknowledged", partition.acknowledged), ("read", partition.read)):
            for offset, entry in known.items():
                value = found.get(offset)
                if value != entry.value and self.holds(key, entry.mark, entry.acks):
                    self.world.violated(f"lost: {key} at {offset}: {name} {entry.value!r}, in the end {value!r}")
        places: dict[bytes, list[int]] = {}
        for offset, value in found.items():
            if value not in partition.sent:
                self.world.violated(f"phantom: {key} has {value!r} at {offset}, which nobody sent")
            places.setdefault(value, []).append(offset)
        for value, entry in partition.certain.items():
            if value not in places:
                if self.holds(key, entry.mark, entry.acks):
                    self.world.violated(f"lost: {key}: acknowledged {value!r} is not there")
                self.lost[f"acks={'all' if entry.acks == ACKS_ALL else entry.acks}"] += 1
        self._check_once_in_order(key, partition, places)
        self.counts["checked"] += len(found)

    def _check_once_in_order(self, key: Key, partition: Partition, places: dict[bytes, list[int]]) -> None:
        last: dict[str, tuple[int, int]] = {}
        for value, (producer, number) in partition.idempotent.items():
            where = places.get(value)
            if where is None:
                continue
            if len(where) > 1:
                self.world.violated(f"duplicate: {key}: {value!r} of an idempotent producer is at {where}")
            before = last.get(producer)
            if before is not None and before[0] < number and before[1] > where[0]:
                text = f"{producer}'s {number} is at {where[0]}, its {before[0]} at {before[1]}"
                self.world.violated(f"reordered: {key}: {text}")
            last[producer] = number, where[0]
