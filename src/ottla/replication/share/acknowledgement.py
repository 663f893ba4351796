"""What a member says of the records that it has: accepted, released, rejected, still at it; and what has to be written
for that to count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.model import LeaderEpoch, Millis, Offset
from ottla.protocol.internal.share_records import DeliveryState, StateBatch
from ottla.replication.share.config import ShareConfig
from ottla.replication.share.dead_letters import DeadRecords, Reason, add_dead
from ottla.replication.share.in_flight import InFlightBatch, Run
from ottla.replication.share.window import Window


class AcknowledgeType(IntEnum):
    """Numbered as in ShareFetch and ShareAcknowledge."""

    GAP = 0
    """There is no record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """The lock begins again; the record is not finished (KIP-1222)."""


_STATES: Final = {
    AcknowledgeType.GAP: DeliveryState.ARCHIVED,
    AcknowledgeType.ACCEPT: DeliveryState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: DeliveryState.AVAILABLE,
}


_WHOLE: Final = (DeliveryState.ARCHIVED, DeliveryState.ACKNOWLEDGED, DeliveryState.AVAILABLE)
"""The states of a range for which one type was said, by the type's number: what is common takes a short way."""

_ACQUIRED: Final = DeliveryState.ACQUIRED
_ARCHIVING: Final = DeliveryState.ARCHIVING
"""Members of an enumeration are slow to look up, and these are looked up for each range."""


class Acknowledgement(NamedTuple):
    """Acknowledgement of a range of offsets, both ends included: one type for all, or one for each."""

    first_offset: Offset
    last_offset: Offset
    types: Sequence[int]


class StateWrite:
    """What the share coordinator is asked to keep (WriteShareGroupState). Who has asked it hands the write back with
    what became of it (`SharePartition.written`)."""

    __slots__ = (
        "batches", "dead", "delivery_complete_count", "leader_epoch", "stands", "start_offset", "state_epoch",
    )  # fmt: skip

    def __init__(self, state_epoch: int, leader_epoch: LeaderEpoch, stands: bool = False) -> None:
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset: Offset = 0
        self.delivery_complete_count = 0
        self.batches: list[StateBatch] = []
        """Changed batches in the order of their offsets."""
        self.dead: list[DeadRecords] = []
        """What of them is ARCHIVING: its dead letters are written once the state is kept."""
        self.stands = stands
        """Whether the change is not undone where the state cannot be kept."""

    def add(self, run: Run, reason: Reason = Reason.DELIVERIES) -> None:
        state = run.state
        if state is _ARCHIVING:
            add_dead(self.dead, DeadRecords(run.first, run.last, run.count, reason))
        last = self.batches[-1] if self.batches else None
        if (
            last is not None
            and last.last_offset + 1 == run.first
            and last.delivery_state is state
            and last.delivery_count == run.count
        ):
            self.batches[-1] = StateBatch(last.first_offset, run.last, state, run.count)
        else:
            self.batches.append(StateBatch(run.first, run.last, state, run.count))


def acknowledge(
    window: Window, config: ShareConfig, member: str, acknowledgements: list[Acknowledgement],
    write: StateWrite, deadline_ms: Millis,
) -> bool:  # fmt: skip
    """Begin the changes that a member asks for, each pending until `write` is committed; returns whether locks were
    renewed, until `deadline_ms`. Raises INVALID_REQUEST for offsets that were never delivered and for types that there
    are not, INVALID_RECORD_STATE for records that are not this member's (any more); what was begun before that has to
    be undone by the caller."""
    renewed = False
    for each in acknowledgements:
        begin, last, said = each
        whole = _whole(begin, last, said)
        types: Sequence[AcknowledgeType] = _types(each) if whole is None else ()
        if last < window.start_offset:
            continue
        for batch in _find(window, begin, last):
            if batch.last < window.start_offset:
                continue
            first = max(begin, window.start_offset)
            for run in batch.between(first, last):
                _check_owner(run, member)
                if whole is not None:
                    part = batch.cut(run, first, last)
                    part.begin(whole, config, write)
                    write.add(part)
                    continue
                for start, end, type_ in _by_type(each, types, max(run.first, first), min(run.last, last)):
                    if type_ is AcknowledgeType.RENEW and not config.renew_acknowledge:
                        raise KafkaError(
                            ErrorCode.invalid_record_state, "Renewing acquisition locks is not enabled for the group."
                        )
                    # What is left behind the cut is a run of its own, of which the next type finds its part.
                    part = batch.cut(batch.at(start), start, end)
                    if type_ is AcknowledgeType.RENEW:
                        part.deadline_ms = deadline_ms
                        renewed = True
                    elif type_ is AcknowledgeType.REJECT:
                        part.begin(config.dead_state, config, write)
                        write.add(part, Reason.REJECTED)
                    else:
                        part.begin(_STATES[type_], config, write)
                        write.add(part)
    return renewed


def _whole(first: Offset, last: Offset, types: Sequence[int]) -> DeliveryState | None:
    """The state of all offsets, None where it takes more to say."""
    if len(types) != 1 or first > last:
        return None
    type_ = types[0]
    return _WHOLE[type_] if 0 <= type_ < 3 else None


def _types(each: Acknowledgement) -> list[AcknowledgeType]:
    length = each.last_offset - each.first_offset + 1
    if length < 1 or len(each.types) not in (1, length):
        raise KafkaError(ErrorCode.invalid_request, "as many types as offsets, or one for all")
    try:
        return [AcknowledgeType(each_type) for each_type in each.types]
    except ValueError:
        raise KafkaError(ErrorCode.invalid_request, f"Invalid acknowledge type: {list(each.types)}") from None


def _find(window: Window, first: Offset, last: Offset) -> list[InFlightBatch]:
    index = window.floor(first)
    if index < 0 and first < window.start_offset <= last:
        index = window.floor(window.start_offset)
    if index < 0:
        raise KafkaError(
            ErrorCode.invalid_record_state,
            "Batch record not found. The request batch offsets are not found in the cache.",
        )
    end = window.floor(last) + 1
    found = window.batches[index:end]
    behind = found[-1]
    if behind.last < last:
        what = "first" if behind.last < first else "last"
        sentence = f"Batch record not found. The {what} offset in request is past acquired records."
        raise KafkaError(ErrorCode.invalid_request, sentence)
    return found


def _check_owner(run: Run, member: str) -> None:
    if run.state is not _ACQUIRED or run.pending is not None:
        sentence = "The offset cannot be acknowledged. The offset is not acquired."
        raise KafkaError(ErrorCode.invalid_record_state, sentence)
    if run.member != member:
        raise KafkaError(ErrorCode.invalid_record_state, "Member is not the owner of offset")


def _by_type(
    each: Acknowledgement, types: Sequence[AcknowledgeType], first: Offset, last: Offset
) -> Iterable[tuple[Offset, Offset, AcknowledgeType]]:
    """The offsets between two in rows of one type."""
    if len(types) == 1:
        yield first, last, types[0]
        return
    start = first
    while start <= last:
        end, type_ = start, types[start - each.first_offset]
        while end < last and types[end + 1 - each.first_offset] is type_:
            end += 1
        yield start, end, type_
        start = end + 1


def touched(window: Window, ranges: Iterable[tuple[Offset, Offset]]) -> list[InFlightBatch]:
    """The batches that may have some of these offsets, in order. Those between ranges are not looked at."""
    found: list[InFlightBatch] = []
    following = 0
    for first, last in sorted(ranges):
        start, end = max(following, window.floor(first)), window.floor(last) + 1
        if start < end:
            found += window.batches[start:end]
            following = end
    return found


def commit(batches: list[InFlightBatch], write: StateWrite, drops_history: bool) -> list[Run]:
    """Commit a write in the batches that it has touched. Returns the runs that are to be delivered again: until it is
    known of each whether it waits, no neighbours are joined (`join`)."""
    freed: list[Run] = []
    for batch in batches:
        freed += batch.commit(write, drops_history)
    if not freed:
        join(batches)
    return freed


def join(batches: list[InFlightBatch]) -> None:
    for batch in batches:
        batch.join()
