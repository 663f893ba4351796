"""What a follower does with its leader's answers, and where it cuts its log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.errors import ErrorCode, OverlappingBatch
from ottla.model import TopicPartition
from ottla.protocol.fetch import EpochEndOffset, FetchedPartition
from ottla.replication.follower import Followed, NewStart, Next, new_start, truncation_offset
from ottla.replication.partition import Partition
from tests.unit.replication.numbers_log import NumbersLog, registration


class EpochsLog(NumbersLog):
    """Ends at 10; (epoch, end) of each epoch."""

    def __init__(self, *ends: tuple[int, int]) -> None:
        super().__init__()
        self.ends = ends
        self.log_end_offset = ends[-1][1] if ends else 0

    @property
    def latest_epoch(self) -> int | None:
        return self.ends[-1][0] if self.ends else None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        known = [each for each in self.ends if each[0] <= epoch]
        return known[-1] if known and epoch <= self.ends[-1][0] else (-1, -1)


class AppendingLog(EpochsLog):
    def append_as_follower(self, records: bytes, *, now_ms: int) -> Any:
        self.log_end_offset += 1
        return SimpleNamespace(size_bytes=len(records), needs_flush=False)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, min(value, self.log_end_offset) if name == "high_watermark" and value else value)


def following(log: NumbersLog | None = None) -> tuple[Followed, Partition]:
    partition = Partition(1, TopicPartition("t", 0), None, log or EpochsLog((3, 10)))  # type: ignore[arg-type]
    partition.update(registration(leader=2, epoch=4, isr=(1, 2)))
    followed = Followed(partition, 2, 4)
    followed.request(100)
    return followed, partition


@pytest.mark.parametrize(
    ("ends", "diverging", "offset"),
    [
        (((1, 5), (2, 10)), (2, 7), 7),  # the leader has less of the same epoch
        (((1, 5), (2, 10)), (1, 8), 5),  # this log has less of it: both end there
        (((1, 5), (3, 10)), (2, 9), 5),  # an epoch that is unknown here: what comes before it, and asked again
        (((3, 10),), (1, 4), 4),  # none that is known
        (((1, 20), (2, 30)), (2, 40), 30),  # never beyond the own end
    ],
)
def test_where_a_log_is_cut(ends: tuple[tuple[int, int], ...], diverging: tuple[int, int], offset: int) -> None:
    assert truncation_offset(EpochsLog(*ends), EpochEndOffset(*diverging)) == offset  # type: ignore[arg-type]


def test_out_of_the_leaders_range() -> None:
    assert new_start(10, 0, 7) == NewStart(7, starts_over=False)
    assert new_start(10, 12, 20) == NewStart(12, starts_over=True)
    assert new_start(10, 3, 20) == NewStart(10, starts_over=False)


def test_it_asks_for_what_follows_its_log_with_the_epoch_of_its_last_record() -> None:
    followed, _ = following()
    asked: Any = followed.asked
    assert (asked.fetch_offset, asked.current_leader_epoch, asked.last_fetched_epoch) == (10, 4, 3)


def test_errors_are_thought_over_for_longer_and_longer() -> None:
    followed, _ = following()
    outcome = followed.take(FetchedPartition(0, ErrorCode.not_leader_or_follower), 0)
    assert outcome.next is Next.BACK_OFF
    assert [followed.backoff_ms(1000) for _ in range(8)] == [20, 40, 80, 160, 320, 640, 1000, 1000]
    assert followed.take(FetchedPartition(0, ErrorCode.offset_out_of_range), 0).next is Next.FIND_OFFSETS
    assert followed.take(FetchedPartition(0, ErrorCode.fenced_leader_epoch), 0).next is Next.GIVE_UP


def test_an_answer_says_what_is_committed_and_where_to_cut() -> None:
    followed, partition = following()
    outcome = followed.take(FetchedPartition(0, high_watermark=8, records=b""), 0)
    assert (outcome.next, partition.log.high_watermark) == (Next.FETCH, 8)
    outcome = followed.take(FetchedPartition(0, diverging_epoch=EpochEndOffset(3, 6)), 0)
    assert (outcome.next, outcome.offset) == (Next.TRUNCATE, 6)


def test_an_answer_of_an_epoch_that_is_over_changes_nothing() -> None:
    followed, partition = following()
    partition.update(registration(leader=3, epoch=5, partition_epoch=1, isr=(1, 3)))
    outcome = followed.take(FetchedPartition(0, high_watermark=9, diverging_epoch=EpochEndOffset(3, 6)), 0)
    assert (outcome.next, partition.log.high_watermark) == (Next.GIVE_UP, 0)


def test_an_answer_to_another_offset_is_not_appended() -> None:
    followed, partition = following()
    partition.log.truncate(5)  # type: ignore[attr-defined]
    assert followed.take(FetchedPartition(0, high_watermark=9, records=b"x" * 100), 0).next is Next.FETCH
    assert partition.log.high_watermark == 0


def test_an_answer_in_pieces_is_appended_until_the_log_is_cut_in_between() -> None:
    followed, partition = following(AppendingLog((3, 10)))
    log: Any = partition.log
    piece = FetchedPartition(0, high_watermark=20, records=bytes(8) + (49).to_bytes(4, "big") + bytes(49))
    for end in (11, 12):
        outcome = followed.take(piece, 0)
        assert (outcome.next, log.log_end_offset, log.high_watermark) == (Next.FETCH, end, end)
        assert outcome.appended is not None and followed.lag == 20 - end
    log.truncate(11)
    outcome = followed.take(piece, 0)
    assert (outcome.next, outcome.appended, log.log_end_offset) == (Next.FETCH, None, 11)
    assert followed.request(100).fetch_offset == 11
    assert followed.take(piece, 0).appended is not None


@pytest.mark.parametrize(
    ("first", "log_start", "high_watermark", "cut"),
    [
        (6, 0, 6, 6),
        (6, 8, 8, 8),  # nothing before the log start: the log is empty then, and begins where the batch does
        (6, 0, 7, None),  # what is committed stays
        (6, 10, 10, None),
    ],
)
def test_a_batch_that_begins_before_the_log_end_cuts_what_is_not_committed(
    first: int, log_start: int, high_watermark: int, cut: int | None
) -> None:
    """The leader no longer knows where the log's last epoch ended: records were deleted up to within that batch."""

    class Overlapped(EpochsLog):
        def append_as_follower(self, records: bytes, *, now_ms: int) -> Any:
            raise OverlappingBatch("overlaps", first)

    log = Overlapped((3, 10))
    log.log_start_offset, log.high_watermark = log_start, high_watermark
    followed, _ = following(log)
    whole = bytes(8) + (49).to_bytes(4, "big") + bytes(49)
    outcome = followed.take(FetchedPartition(0, high_watermark=20, records=whole), 0)
    assert (outcome.next, outcome.offset) == ((Next.BACK_OFF, -1) if cut is None else (Next.TRUNCATE, cut))
