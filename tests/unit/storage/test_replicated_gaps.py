"""What a follower makes of offsets that are missing in what its leader sent: no checksum covers a base offset."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.errors import ErrorCode, MissingOffsets
from ottla.protocol.fetch import FetchedPartition
from ottla.replication.follower import GAP_BELIEVED_AFTER, Followed, Next
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from tests.unit.storage.logs import NOW, all_offsets, batch, load, new_disk

COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))


def numbered(base_offset: int, count: int = 1) -> bytes:
    data = batch(count)
    data[:8] = base_offset.to_bytes(8, "big")
    return bytes(data)


GAPS = {
    "before the first batch": numbered(3),
    "between two batches": numbered(2) + numbered(4),
}


def filled(config: LogConfig | None = None) -> Log:
    log = load(new_disk(), config)
    log.append_as_follower(numbered(0, 2), now_ms=NOW)
    return log


@pytest.mark.parametrize("name", GAPS)
def test_a_gap_is_refused_where_nothing_was_compacted(name: str) -> None:
    log = filled()
    with pytest.raises(MissingOffsets, match="are missing in what the leader"):
        log.append_as_follower(GAPS[name], now_ms=NOW)
    assert all_offsets(log) == [0, 1]
    log.append_as_follower(numbered(2) + numbered(3, 2), now_ms=NOW)
    assert all_offsets(log) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", GAPS)
def test_a_gap_is_none_in_a_log_that_is_or_was_compacted(name: str) -> None:
    log = filled(COMPACTED)
    log.append_as_follower(GAPS[name], now_ms=NOW)
    assert log.cleaned_offset == 0, "the topic's policy may be another one when this log is looked at"
    log = filled()
    log.cleaned_offset = 0
    log.append_as_follower(GAPS[name], now_ms=NOW)


def test_a_log_whose_topic_was_compacted_may_have_gaps() -> None:
    """Its own cleaner may never have come to it; an earlier version did not note what its leader had compacted."""
    log = filled(COMPACTED)
    assert log.cleaned_offset is None
    log.update_config(LogConfig())
    assert log.cleaned_offset == 0
    log = filled()
    log.update_config(COMPACTED)
    assert log.cleaned_offset is None


def test_a_gap_is_believed_after_the_leader_had_time_to_look() -> None:
    """A leader that has found its log to be sound goes on to send what was compacted before the policy changed."""
    log = filled()
    partition: Any = SimpleNamespace(
        log=log,
        leader_id=1,
        leader_epoch=0,
        topic_partition=log.topic_partition,
        follow=lambda *_: None,
        append_as_follower=lambda records, epoch, now_ms: log.append_as_follower(records, now_ms=now_ms),
    )
    followed = Followed(partition, 1, 0)
    answer = FetchedPartition(0, ErrorCode.none)
    answer.records = GAPS["before the first batch"]
    waited_ms = 0
    for _ in range(GAP_BELIEVED_AFTER + 1):
        followed.request(1 << 20)
        outcome = followed.take(answer, NOW)
        assert outcome.next is Next.BACK_OFF and outcome.is_suspicious and all_offsets(log) == [0, 1]
        waited_ms += followed.backoff_ms(1000)
    assert 20_000 < waited_ms < 40_000
    followed.request(1 << 20)
    assert followed.take(answer, NOW).next is Next.FETCH
    assert all_offsets(log) == [0, 1, 3] and log.cleaned_offset == 0, "so that the next start does not call it damage"
