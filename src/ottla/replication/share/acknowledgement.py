"""What a member says of the records that it has: accepted, released, rejected, still at it; and what has to be written
for that to count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.model import LeaderEpoch, Millis, Offset
from ottla.protocol.internal.share_records import DeliveryState
from ottla.protocol.schemas.records import StateBatch
from ottla.replication.share.config import ShareConfig
from ottla.replication.share.dead_letters import DeadRecords, Reason, add_dead
from ottla.replication.share.in_flight import DONE_COUNT, InFlightBatch, Run
from ottla.replication.share.window import Window

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import AcknowledgementBatch


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

_RENEW: Final = int(AcknowledgeType.RENEW)
_ACQUIRED: Final = DeliveryState.ACQUIRED
_ARCHIVING: Final = DeliveryState.ARCHIVING
_ACKNOWLEDGED: Final = DeliveryState.ACKNOWLEDGED
_ARCHIVED: Final = DeliveryState.ARCHIVED
_DELIVERIES: Final = Reason.DELIVERIES
"""Members of an enumeration are slow to look up, and these are looked up for each range."""


_new_state_batch: Final = StateBatch.__new__


Acknowledgement = tuple[Offset, Offset, Sequence[int]]
"""Acknowledgement of a range of offsets, both ends included: one type for all, or one for each. Plain tuples, here and
below: there are several for each fetch."""

Row = tuple[Offset, Offset, DeliveryState, int]
"""Offsets in a row, both ends included, how they stand, and how often they were delivered."""


class StateWrite:
    """What the share coordinator is asked to keep (WriteShareGroupState). Who has asked it hands the write back with
    what became of it (`SharePartition.written`)."""

    __slots__ = (
        "dead", "delivery_complete_count", "given_up", "leader_epoch", "rows", "stands", "start_offset", "state_epoch",
    )  # fmt: skip

    def __init__(self, state_epoch: int, leader_epoch: LeaderEpoch, stands: bool = False) -> None:
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset: Offset = 0
        self.delivery_complete_count = 0
        self.rows: list[Row] = []
        """What has changed, in the order of the offsets."""
        self.dead: list[DeadRecords] = []
        """What of them is ARCHIVING: its dead letters are written once the state is kept."""
        self.given_up = 0
        """Records of them that are archived, or will be, and were delivered for nothing."""
        self.stands = stands
        """Whether the change is not undone where the state cannot be kept."""

    def add(self, run: Run, reason: Reason | None = Reason.DELIVERIES) -> None:
        """`reason` says why a run is archived, if it is; None where there were no records, or it was said before."""
        state = run.state
        if reason is not None and (state is _ARCHIVED or state is _ARCHIVING):
            self.given_up += run.last - run.first + 1
            if state is _ARCHIVING:
                add_dead(self.dead, DeadRecords(run.first, run.last, run.count, reason))
        rows, run_first, run_count = self.rows, run.first, run.count
        if rows:
            first, last, before, count = rows[-1]
            if last + 1 == run_first and before is state and count == run_count:
                rows[-1] = (first, run.last, state, count)
                return
        rows.append((run_first, run.last, state, run_count))

    @property
    def batches(self) -> list[StateBatch]:
        return [StateBatch(*row) for row in self.rows]

    def kept(self) -> list[StateBatch]:
        """What the coordinator keeps of a share-partition with records that wait, whose window may be long: records
        that are done with are all alike, so that neighbours are one row. Of two rows the coordinator believes the one
        with more deliveries."""
        kept: list[StateBatch] = []
        done_from = done_until = -1
        """Records in a row at the end that are done with."""
        for first, last, state, count in self.rows:
            if state is _ACKNOWLEDGED or state is _ARCHIVED:
                if done_until >= 0 and done_until + 1 == first:
                    done_until = last
                    continue
                if done_until >= 0:
                    kept.append(_state_batch(done_from, done_until, _ARCHIVED, DONE_COUNT))
                done_from, done_until = first, last
                continue
            if done_until >= 0:
                kept.append(_state_batch(done_from, done_until, _ARCHIVED, DONE_COUNT))
                done_until = -1
            kept.append(_state_batch(first, last, state, count))
        if done_until >= 0:
            kept.append(_state_batch(done_from, done_until, _ARCHIVED, DONE_COUNT))
        return kept


def _state_batch(first: Offset, last: Offset, state: int, count: int) -> StateBatch:
    """The same as `StateBatch`, at half of what the constructor of a dataclass takes."""
    made = _new_state_batch(StateBatch)
    made.first_offset = first
    made.last_offset = last
    made.delivery_state = state
    made.delivery_count = count
    return made


def as_said(batches: Sequence[AcknowledgementBatch], type_max: int, is_renewal: bool) -> list[Acknowledgement] | None:
    """What a request says of one partition; None unless its batches follow each other and have types that there are."""
    found: list[Acknowledgement] = []
    previous = -1
    for each in batches:
        first, last, types = each.first_offset, each.last_offset, each.acknowledge_types
        count = len(types)
        if last < first or first < previous or not count or (count > 1 and count != last - first + 1):
            return None
        if count == 1:
            least = most = types[0]
        else:
            least, most = min(types), max(types)
        if least < 0 or most > type_max or (not is_renewal and most >= _RENEW and _RENEW in types):
            return None
        found.append((first, last, types))
        previous = last
    return found


def acknowledge(
    window: Window,
    config: ShareConfig,
    member: str,
    acknowledgements: list[Acknowledgement],
    write: StateWrite,
    deadline_ms: Millis,
) -> bool:
    """Begin the changes that a member asks for, each pending until `write` is committed; returns whether locks were
    renewed, until `deadline_ms`. Raises INVALID_REQUEST for offsets that were never delivered and for types that there
    are not, INVALID_RECORD_STATE for records that are not this member's (any more); what was begun before that has to
    be undone by the caller."""
    renewed = False
    for begin, last, said in acknowledgements:
        whole = _whole(begin, last, said)
        types: Sequence[AcknowledgeType] = _types(begin, last, said) if whole is None else ()
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
                    write.add(part, None if whole is _ARCHIVED else _DELIVERIES)
                    continue
                for start, end, type_ in _by_type(begin, types, max(run.first, first), min(run.last, last)):
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
                        write.add(part, None if type_ is AcknowledgeType.GAP else _DELIVERIES)
    return renewed


def _whole(first: Offset, last: Offset, types: Sequence[int]) -> DeliveryState | None:
    """The state of all offsets, None where it takes more to say."""
    if len(types) != 1 or first > last:
        return None
    type_ = types[0]
    return _WHOLE[type_] if 0 <= type_ < 3 else None


def _types(first: Offset, last: Offset, said: Sequence[int]) -> list[AcknowledgeType]:
    length = last - first + 1
    if length < 1 or len(said) not in (1, length):
        raise KafkaError(ErrorCode.invalid_request, "as many types as offsets, or one for all")
    try:
        return [AcknowledgeType(each) for each in said]
    except ValueError:
        raise KafkaError(ErrorCode.invalid_request, f"Invalid acknowledge type: {list(said)}") from None


def _find(window: Window, first: Offset, last: Offset) -> list[InFlightBatch]:
    index = window.floor(first)
    if index < 0 and first < window.start_offset <= last:
        index = window.floor(window.start_offset)
    if index < 0:
        raise KafkaError(
            ErrorCode.invalid_record_state,
            "Batch record not found. The request batch offsets are not found in the cache.",
        )
    behind = window.batches[index]
    if behind.last >= last:
        return [behind]
    found = window.batches[index : window.floor(last) + 1]
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
    begin: Offset, types: Sequence[AcknowledgeType], first: Offset, last: Offset
) -> Iterable[tuple[Offset, Offset, AcknowledgeType]]:
    """The offsets between two in rows of one type; `types` are those from `begin` on."""
    if len(types) == 1:
        yield first, last, types[0]
        return
    start = first
    while start <= last:
        end, type_ = start, types[start - begin]
        while end < last and types[end + 1 - begin] is type_:
            end += 1
        yield start, end, type_
        start = end + 1


def touched(window: Window, rows: Iterable[Row | tuple[Offset, Offset]]) -> list[InFlightBatch]:
    """The batches that may have some of these offsets, in order. Those between rows are not looked at."""
    found: list[InFlightBatch] = []
    following = 0
    batches = window.batches
    for row in sorted(rows):
        first, last = row[0], row[1]
        if following:
            batch = batches[following - 1]
            if last <= batch.last:
                continue
        start, end = max(following, window.floor(first)), window.floor(last) + 1
        if start < end:
            found += batches[start:end]
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
