"""What clients sent, were told and saw, and what of it contradicts the promises.

Where every acknowledgement waits for an fsync (`fsynced`), nothing that was acknowledged or read may ever change.
Elsewhere a power loss may take the end of a log, as on one node of Apache Kafka; with replicas it takes as many of them
as there are in-sync ones at least (`budget`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.histories import records
from ottla.histories.acknowledgements import Acknowledgements
from ottla.histories.records import NOBODY, Kind, Record, Write, Writer
from ottla.simulation.world import World

Key = tuple[str, int]

ACKS_ALL = -1

DEPOSED = -1
"""Stands for a number of unclean elections while an older leader goes on: what it commits then is on no other replica,
and the one that was elected does not have it. Nothing that is seen then has to stay."""


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


class Noted(NamedTuple):
    """A value that a client was told or read."""

    value: bytes
    mark: Mark
    """When the request was sent: the answer may be older than the last loss."""
    acks: int = ACKS_ALL


@dataclass
class Partition:
    """One partition as clients know it."""

    acknowledged: dict[int, Noted] = field(default_factory=dict)
    read: dict[int, Noted] = field(default_factory=dict)
    sent: dict[bytes, tuple[str, int]] = field(default_factory=dict)
    """Every value that may be there, with its producer and its place in what it sent."""


class History:
    def __init__(self, world: World, *, fsynced: bool, budget: int = 1) -> None:
        """`budget`: so many replicas have to crash, one of them losing what it had, until something may be lost."""
        self.world = world
        self.fsynced = fsynced
        self.budget = budget
        self.partitions: dict[Key, Partition] = {}
        self.writers: dict[str, Writer] = {}
        self.records = records.History(self.writers, holds=lambda write: self.holds(write.partition, *write.evidence))
        self.acknowledgements = Acknowledgements()
        self.lost = 0
        """Records that were lost without a promise broken."""
        self.counts: Counter[str] = Counter()

    def partition(self, key: Key) -> Partition:
        return self.partitions.setdefault(key, Partition())

    def mark(self, key: Key) -> Mark:
        world = self.world
        losses = world.wipes if self.fsynced else world.wipes + world.losses
        unclean = DEPOSED if world.deposed.get(key) else world.unclean[key]
        return Mark(losses, world.crashes, world.elections[key], unclean)

    def holds(self, key: Key, mark: Mark, acks: int = ACKS_ALL) -> bool:
        """Whether what was seen then must still be so."""
        now = self.mark(key)
        if mark.unclean == DEPOSED or mark.unclean != self.world.unclean[key]:
            return False
        if now.losses > mark.losses and now.crashes - mark.crashes >= self.budget:
            return False
        # A leader of before goes on acknowledging until it hears of the next one.
        return acks == ACKS_ALL or (acks == 1 and now.losses == mark.losses and not now.elections)

    def sending(self, key: Key, values: list[bytes], producer: str, first: int, *, idempotent: bool) -> None:
        """`first` is the number of the first one among all that the producer sends."""
        self.writers[producer] = Writer(idempotent, is_strict=True)
        sent = self.partition(key).sent
        for number, value in enumerate(values, first):
            sent[value] = producer, number
            self.records.writes[producer, number] = Write(key)

    def write(self, key: Key, value: bytes) -> Write:
        """What is known of a value that was sent."""
        return self.records.writes[self.partition(key).sent[value]]

    def acknowledge(self, key: Key, base_offset: int, values: list[bytes], mark: Mark, acks: int) -> None:
        self.counts["acknowledged"] += len(values)
        self.acknowledgements.note(key, self.world.time.now_s)
        for number, value in enumerate(values):
            write = self.write(key, value)
            write.acknowledged, write.evidence = True, (mark, acks)
            if base_offset >= 0:  # else recognised as a duplicate, whose place is not said
                write.offset = base_offset + number
                self._note(
                    key, self.partition(key).acknowledged, write.offset, Noted(value, mark, acks), "acknowledged"
                )

    def saw(self, key: Key, offset: int, value: bytes, mark: Mark) -> None:
        partition = self.partition(key)
        self.counts["read"] += 1
        if value not in partition.sent:
            self.world.violated(f"phantom: {key} has {value!r} at {offset}, which nobody sent")
        self._note(key, partition.read, offset, Noted(value, mark), "read")

    def _note(self, key: Key, where: dict[int, Noted], offset: int, new: Noted, what: str) -> None:
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
        for offset, entry in partition.read.items():
            value = found.get(offset)
            if value != entry.value and self.holds(key, entry.mark):
                self.world.violated(f"lost: {key} at {offset}: read {entry.value!r}, in the end {value!r}")
        nobody = NOBODY, NOBODY
        log = [Record(offset, *partition.sent.get(value, nobody)) for offset, value in found.items()]
        self.records.log = {key: log}
        for finding in records.findings(self.records):
            if not finding.kind.is_allowed:
                self.world.violated(f"{finding.kind.name.lower()}: {key}: {finding.text}")
            self.lost += finding.kind is Kind.UNPROMISED
        self.counts["checked"] += len(found)
