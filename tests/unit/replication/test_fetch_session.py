"""Fetch sessions: what an incremental answer tells, epochs, and who has to make room (KIP-227)."""

from __future__ import annotations

import random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.fetch_session import EPOCH_MAX, EVICTION_MS, CachedPartition, FetchSessionCache


def cache(slots: int = 2) -> FetchSessionCache:
    return FetchSessionCache(slots, random.Random(1))


def test_an_answer_tells_only_what_changed() -> None:
    cached = CachedPartition(("t", 0), None)
    assert cached.is_news(0, 5, 0, False)
    assert not cached.is_news(0, 5, 0, False)
    assert cached.is_news(0, 5, 0, True)
    assert cached.is_news(0, 6, 0, False)
    assert cached.is_news(0, 6, 2, False)
    assert not cached.is_news(0, 6, 2, False)


def test_an_error_is_repeated_and_its_end_is_news() -> None:
    cached = CachedPartition(("t", 0), None)
    cached.is_news(0, 5, 0, False)
    assert cached.is_news(6, -1, -1, False)
    assert cached.is_news(6, -1, -1, False)
    assert cached.is_news(0, 5, 0, False)


def test_epochs_count_up_and_start_over_at_one() -> None:
    sessions = cache()
    session = sessions.create(1, 0, privileged=False, uses_topic_ids=False)
    assert session is not None
    for epoch in (1, 2, 3):
        assert sessions.resume(session.id, epoch, 0, uses_topic_ids=False) is session
    session.epoch = EPOCH_MAX
    sessions.resume(session.id, EPOCH_MAX, 0, uses_topic_ids=False)
    assert session.epoch == 1


@pytest.mark.parametrize(
    ("session_id", "epoch", "ids", "code"),
    [
        (99, 1, False, ErrorCode.fetch_session_id_not_found),
        (None, 2, False, ErrorCode.invalid_fetch_session_epoch),
        (None, 1, True, ErrorCode.fetch_session_topic_id_error),
    ],
)
def test_refusals(session_id: int | None, epoch: int, ids: bool, code: ErrorCode) -> None:
    sessions = cache()
    session = sessions.create(1, 0, privileged=False, uses_topic_ids=False)
    assert session is not None
    with pytest.raises(KafkaError) as caught:
        sessions.resume(session.id if session_id is None else session_id, epoch, 0, uses_topic_ids=ids)
    assert caught.value.code == code


def test_partitions_come_change_and_go() -> None:
    session = cache().create(1, 0, privileged=False, uses_topic_ids=False)
    assert session is not None
    session.update([(("t", 0), "first"), (("t", 1), "other")], [])
    session.update([(("t", 0), "second")], [("t", 1), ("t", 9)])
    assert {key: each.request for key, each in session.partitions.items()} == {("t", 0): "second"}
    session.update([(("t", 2), "third")], [])
    session.move_to_end(session.partitions["t", 0])
    assert [each.key for each in session.to_read()] == [("t", 2), ("t", 0)]


def test_a_full_cache_keeps_young_sessions() -> None:
    sessions = cache(1)
    assert sessions.create(5, 0, privileged=False, uses_topic_ids=False)
    assert sessions.create(500, EVICTION_MS, privileged=False, uses_topic_ids=False) is None
    assert sessions.create(1, EVICTION_MS + 1, privileged=False, uses_topic_ids=False)
    assert len(sessions) == 1


def test_an_old_small_session_makes_room_for_a_larger_one() -> None:
    sessions = cache(1)
    small = sessions.create(1, 0, privileged=False, uses_topic_ids=False)
    assert small is not None
    small.update([(("t", 0), None)], [])
    sessions.resume(small.id, 1, EVICTION_MS, uses_topic_ids=False)
    assert sessions.create(1, EVICTION_MS + 1, privileged=False, uses_topic_ids=False) is None
    assert sessions.create(2, EVICTION_MS + 1, privileged=False, uses_topic_ids=False)
    assert len(sessions) == 1
