"""Records of producers, and what is wrong with them: a history in, findings out, no broker in sight.

Every record carries its producer and a sequence number that ascends within the producer. A record is written once
(`Write`), is read by groups (`Session`), and is or is not in the log when all is over (`History.log`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from ottla.histories import findings as of_any_kind
from ottla.histories.findings import Partition, in_order

Producer = Any
"""What names a producer in a run: a number, or a text."""

NOBODY = -1
"""The producer of records that no producer of the run wrote."""


class Kind(Enum):
    """Kinds of findings; the value is the text."""

    LOST = "acknowledged, but not in the log"
    MOVED = "acknowledged at one offset, but in the log at another"
    DUPLICATED = "more than once in the log, though its producer is idempotent"
    REORDERED = "in the log before a record that its producer had sent earlier"
    PHANTOM = "in the log or read, but never written there, or gone after it was read"
    BACKWARD = "read at an offset that is not after the one before"
    SKIPPED = "skipped by a consumer that read the records around it"
    MISSED = "in the log, but never read by a group"
    REWOUND = "a group resumed before an offset whose commit was acknowledged"
    UNREADABLE = "partitions that could not be read to their end"
    REPEATED = "more than once in the log, from a producer without idempotence"
    OVERTAKEN = "in the log after a record that its producer, without idempotence, had sent later"
    UNPROMISED = "sent with acks=0, but not in the log"
    """Or acknowledged without a promise that still holds (`History.holds`)."""

    @property
    def is_allowed(self) -> bool:
        """Whether Kafka promises nothing else."""
        return self in (Kind.REPEATED, Kind.OVERTAKEN, Kind.UNPROMISED)


class Record(NamedTuple):
    """A record where it was found."""

    offset: int
    producer: Producer
    sequence: int


@dataclass(slots=True)
class Write:
    """A record that was sent."""

    partition: Partition
    acknowledged: bool = False
    offset: int | None = None
    """The acknowledged offset; None where it is unknown, as with acks=0 and of a duplicate."""
    is_unique: bool = True
    """Whether it must be there once only, and in order, if its producer is idempotent."""
    evidence: Any = None
    """Whatever `History.holds` goes by."""


@dataclass(frozen=True)
class Writer:
    idempotent: bool
    acks: str = "all"
    is_strict: bool = False
    """Whether records that were not acknowledged keep the order, too."""


def _is_promised(write: Write) -> bool:
    return True


@dataclass
class Session:
    """Records that a member of a group read from a partition between its assignment and its revocation."""

    group: str
    member: str
    partition: Partition
    promised: int | None = None
    """The highest offset of the partition that the group had committed, with an answer, before the assignment."""
    reads: list[Record] = field(default_factory=list)


@dataclass
class History:
    """`log` is what was there at the end, by partition, in the order of offsets; `starts` where it begins then. A
    partition that is not in `log` could not be read; `unreadable` says why."""

    writers: Mapping[Producer, Writer] = field(default_factory=dict)
    writes: dict[tuple[Producer, int], Write] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    groups: tuple[str, ...] = ()
    log: dict[Partition, list[Record]] = field(default_factory=dict)
    starts: dict[Partition, int] = field(default_factory=dict)
    unreadable: dict[Partition, str] = field(default_factory=dict)
    others_write: bool = False
    """Whether records that are not of the run are nobody's fault."""
    holds: Callable[[Write], bool] = _is_promised
    """Whether what was acknowledged must still be so: where more was lost than the settings provide for, not."""


Finding = of_any_kind.Finding[Kind]


def findings(history: History) -> list[Finding]:
    """Everything that is wrong, in the order of `Kind`."""
    return in_order(Kind, [*_of_the_log(history), *_of_the_readers(history)])


def _of_the_log(history: History) -> Iterator[Finding]:
    places: dict[tuple[Producer, int], list[tuple[Partition, int]]] = defaultdict(list)
    for partition, records in sorted(history.log.items()):
        for record in records:
            places[record.producer, record.sequence].append((partition, record.offset))
        yield from _order(history, partition, records)
    for partition, why in sorted(history.unreadable.items()):
        yield Finding(Kind.UNREADABLE, partition, why)
    for (producer, sequence), found in places.items():
        yield from _places(history, producer, sequence, found)
    for (producer, sequence), write in history.writes.items():
        if (producer, sequence) not in places:
            yield from _absent(history, producer, sequence, write)


def _places(
    history: History, producer: Producer, sequence: int, found: list[tuple[Partition, int]]
) -> Iterator[Finding]:
    """Findings about the places of a record."""
    write = history.writes.get((producer, sequence))
    name = _name(producer, sequence)
    if write is None:
        if producer != NOBODY or not history.others_write:
            for partition, offset in found:
                yield Finding(Kind.PHANTOM, partition, f"{name} at offset {offset} was never written")
        return
    right = [offset for partition, offset in found if partition == write.partition]
    for partition, offset in found:
        if partition != write.partition:
            yield Finding(Kind.PHANTOM, partition, f"{name} at offset {offset} was sent to partition {write.partition}")
    if len(right) > 1:
        kind = Kind.DUPLICATED if history.writers[producer].idempotent and write.is_unique else Kind.REPEATED
        yield Finding(kind, write.partition, f"{name} at offsets {', '.join(map(str, right))}")
    if write.acknowledged and write.offset is not None and write.offset not in right and right:
        if write.offset >= history.starts.get(write.partition, 0) and history.holds(write):
            text = f"{name} acknowledged at offset {write.offset}, found at {', '.join(map(str, right))}"
            yield Finding(Kind.MOVED, write.partition, text)
    elif write.acknowledged and not right:
        yield from _absent(history, producer, sequence, write)


def _absent(history: History, producer: Producer, sequence: int, write: Write) -> Iterator[Finding]:
    if not write.acknowledged or write.partition not in history.log:
        return
    acks, start = history.writers[producer].acks, history.starts.get(write.partition, 0)
    name, at = _name(producer, sequence), "" if write.offset is None else f" at offset {write.offset}"
    if acks == "0" or (write.offset is None and start) or not history.holds(write):
        yield Finding(Kind.UNPROMISED, write.partition, name)
    elif write.offset is None or write.offset >= start:  # else retention, or DeleteRecords, has taken it
        yield Finding(Kind.LOST, write.partition, f"{name} acknowledged{at} (acks={acks})")


def _order(history: History, partition: Partition, records: list[Record]) -> Iterator[Finding]:
    """Acknowledged records first appear in the log in the order of sending. Other records of librdkafka's may arrive at
    any time; so may, without idempotence, what waits for an answer of a leader that another has replaced: librdkafka
    sends what comes next to the new one meanwhile, though it has no more than one request on the way to each
    (librdkafka's issue 1092), and sends the first again when the old one does not answer."""
    highest: dict[Producer, tuple[int, int]] = {}
    seen: set[tuple[Producer, int]] = set()
    for offset, producer, sequence in records:
        write = history.writes.get((producer, sequence))
        if write is None or not write.is_unique or (producer, sequence) in seen:
            continue
        if not write.acknowledged and not history.writers[producer].is_strict:
            continue
        seen.add((producer, sequence))
        before, at = highest.get(producer, (-1, -1))
        if sequence < before:
            text = f"{_name(producer, sequence)} at offset {offset}, after number {before} at offset {at}"
            kind = Kind.REORDERED if history.writers[producer].idempotent else Kind.OVERTAKEN
            yield Finding(kind, partition, text)
        else:
            highest[producer] = (sequence, offset)


def _of_the_readers(history: History) -> Iterator[Finding]:
    at = {partition: {each.offset: each for each in records} for partition, records in history.log.items()}
    offsets = {partition: [each.offset for each in records] for partition, records in history.log.items()}
    for session in history.sessions:
        yield from _session(history, session, at.get(session.partition), offsets.get(session.partition, []))
    for group in history.groups:
        read: dict[Partition, set[int]] = defaultdict(set)
        for session in history.sessions:
            if session.group == group:
                read[session.partition].update(each.offset for each in session.reads)
        for partition, records in sorted(history.log.items()):
            for record in records:
                if record.offset not in read[partition] and (record.producer, record.sequence) in history.writes:
                    text = f"{_name(record.producer, record.sequence)} at offset {record.offset} by group {group}"
                    yield Finding(Kind.MISSED, partition, text)


def _session(
    history: History, session: Session, at: Mapping[int, Record] | None, offsets: list[int]
) -> Iterator[Finding]:
    who = f"{session.member} of group {session.group}"
    start = history.starts.get(session.partition, 0)
    if session.promised is not None and session.reads and session.reads[0].offset < session.promised:
        text = f"{who} resumed at offset {session.reads[0].offset}, though {session.promised} had been committed"
        yield Finding(Kind.REWOUND, session.partition, text)
    before: int | None = None
    for record in session.reads:
        if before is not None and record.offset <= before:
            text = f"{who} read offset {record.offset} after {before}"
            yield Finding(Kind.BACKWARD, session.partition, text)
        elif before is not None and before >= start:
            between = bisect_left(offsets, record.offset) - bisect_left(offsets, before + 1)
            if between > 0:
                text = f"{who} read offset {record.offset} after {before}: {between} skipped"
                yield Finding(Kind.SKIPPED, session.partition, text)
        before = record.offset
        if at is None or record.offset < start or at.get(record.offset) == record:
            continue
        if record.producer == NOBODY and history.others_write:
            continue
        there = at.get(record.offset)
        now = "nothing is there" if there is None else f"{_name(there.producer, there.sequence)} is there"
        text = f"{who} read {_name(record.producer, record.sequence)} at offset {record.offset}, where now {now}"
        yield Finding(Kind.PHANTOM, session.partition, text)


def _name(producer: Producer, sequence: int) -> str:
    return "a record of another run" if producer == NOBODY else f"producer {producer}, number {sequence}"
