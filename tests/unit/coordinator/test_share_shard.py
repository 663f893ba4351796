"""The share coordinator. That it decides as Kafka's does is tests/conformance/walks/test_share_coordinator_walk.py."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from ottla.coordinator.effects import Reply
from ottla.coordinator.share.combining import UNCHANGED, combine
from ottla.coordinator.share.config import ShareCoordinatorConfig
from ottla.coordinator.share.requests import InitializeState, ReadState, WriteState
from ottla.coordinator.share.shard import partition_of
from ottla.errors import ErrorCode
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.schemas.records import ShareSnapshotValue, ShareUpdateValue, StateBatch
from tests.unit.coordinator.share_harness import TOPIC, ShareDriver

KEY = SharePartitionKey("g", TOPIC, 0)
OTHER = SharePartitionKey("g", TOPIC, 1)
ACCEPTED = 2


def started(updates: int = 500) -> ShareDriver:
    driver = ShareDriver(ShareCoordinatorConfig(updates))
    for key in (KEY, OTHER):
        assert initialize(driver, key)["error_code"] is ErrorCode.none
    return driver


def token() -> object:
    return object()


def initialize(driver: ShareDriver, key: SharePartitionKey, epoch: int = 1, start: int = 10) -> Any:
    return driver.ask(token(), driver.shard.ask, InitializeState(key, epoch, start))


def read(driver: ShareDriver, leader_epoch: int, key: SharePartitionKey = KEY, asked: Any = None) -> Any:
    return driver.ask(asked or token(), driver.shard.ask, ReadState(key, leader_epoch))


def write(
    driver: ShareDriver, first: int, last: int, start: int = UNCHANGED, key: SharePartitionKey = KEY, asked: Any = None
) -> Any:
    request = WriteState(key, 1, 5, start, [StateBatch(first, last, ACCEPTED, 1)], 3)
    return driver.ask(asked or token(), driver.shard.ask, request)


def batches(driver: ShareDriver, key: SharePartitionKey = KEY) -> list[tuple[int, int]]:
    return [(each["first_offset"], each["last_offset"]) for each in read(driver, 9, key)["state_batches"]]


def test_what_was_written_is_read() -> None:
    driver = started()
    write(driver, 12, 13)
    write(driver, 14, 15, start=13)
    answer = read(driver, 5)
    assert answer["start_offset"] == 13
    assert batches(driver) == [(13, 15)]
    assert driver.shard.summary(KEY) == {
        "partition": 0,
        "error_code": ErrorCode.none,
        "error_message": None,
        "state_epoch": 1,
        "leader_epoch": 9,
        "start_offset": 13,
        "delivery_complete_count": 3,
    }


def test_another_coordinator_knows_the_same_from_the_log() -> None:
    driver = started(updates=3)
    for offset in range(10, 30):
        write(driver, offset, offset)
    assert sum(isinstance(record.value, ShareSnapshotValue) for record in driver.log) == 2 + 5
    before = batches(driver)
    driver.shard = driver.loaded()
    assert batches(driver) == before == [(10, 29)]


def test_an_older_leader_is_fenced_by_the_read_of_a_newer() -> None:
    driver = started()
    assert read(driver, 6)["error_code"] is ErrorCode.none
    assert write(driver, 10, 10)["error_code"] is ErrorCode.fenced_leader_epoch
    driver.shard = driver.loaded()
    assert write(driver, 10, 10)["error_code"] is ErrorCode.fenced_leader_epoch
    assert read(driver, 5)["error_code"] is ErrorCode.fenced_leader_epoch


def test_what_comes_while_a_record_is_being_written_waits_for_it() -> None:
    driver = started(updates=0)
    driver.holding = True
    for asked in ("first", "second"):
        assert write(driver, 10, 12, asked=asked) is None
    assert write(driver, 14, 15, asked="third") is None
    assert write(driver, 10, 10, key=OTHER, asked="other") is None
    assert len(driver.held) == 2, "one for each share-partition"
    driver.release()
    assert "first" in driver.replies and "second" not in driver.replies
    driver.holding = False
    driver.release()
    driver.release()
    assert set(driver.replies) >= {"first", "second", "third", "other"}
    # Each record was a snapshot, decided on the one before.
    assert batches(driver) == [(10, 12), (14, 15)]


def test_what_waits_for_a_write_that_fails_fails_too() -> None:
    driver = started()
    driver.holding = True
    write(driver, 10, 12, asked="first")
    read(driver, 6, asked="second")
    driver.refuse(ErrorCode.coordinator_not_available)
    assert driver.replies["first"] is ErrorCode.coordinator_not_available
    assert driver.replies["second"]["error_code"] is ErrorCode.coordinator_not_available
    driver.holding = False
    assert batches(driver) == []


def test_a_request_behind_a_record_that_is_not_replicated_is_answered_in_time() -> None:
    """Below min.insync.replicas a record may never be committed, and a new leader's read waited for it without end."""
    driver = started()
    driver.holding = True
    write(driver, 10, 12, asked="first")
    read(driver, 6, asked="second")
    driver.now_ms += 3_000
    write(driver, 14, 15, asked="third")
    driver.now_ms += 2_000
    assert driver.shard.next_deadline() == driver.now_ms
    driver.shard.advance(driver.now)
    driver.run()
    assert (
        driver.replies["second"]["error_code"] is ErrorCode.coordinator_not_available and "third" not in driver.replies
    )
    driver.now_ms += 3_000
    driver.shard.advance(driver.now)
    driver.run()
    assert driver.replies["third"]["error_code"] is ErrorCode.coordinator_not_available
    driver.holding = False
    driver.release()
    assert driver.replies["first"]["error_code"] is ErrorCode.none and batches(driver) == [(10, 12)]
    assert (driver.shard.next_deadline() or 0) > driver.now_ms, "nobody waits"


def test_a_coordinator_that_resigns_answers_its_waiters() -> None:
    driver = started()
    driver.holding = True
    write(driver, 10, 12, asked="first")
    read(driver, 6, asked="second")
    driver.shard.ask("third", InitializeState(OTHER, 1, 5), driver.now)
    driver.shard.unload(driver.now)
    answers = {
        effect.token: effect.response["error_code"] for effect in driver.shard.take() if isinstance(effect, Reply)
    }
    assert answers == {"second": ErrorCode.not_coordinator, "third": ErrorCode.not_coordinator}


def test_records_that_newer_ones_replace_are_pruned() -> None:
    driver = started()
    write(driver, 10, 10)
    driver.pass_time(299_000)
    assert driver.prunings == []
    initialize(driver, OTHER, epoch=2)
    driver.pass_time(1_000)
    assert [record.key for record in driver.log[4:]] == [KEY], "its snapshot was old: it is written again"
    assert driver.prunings == []
    driver.pass_time(300_000)
    assert driver.prunings == [3], "nothing before OTHER's newest snapshot is needed"
    driver.log_start = 3
    driver.shard = driver.loaded()
    assert batches(driver) == [(10, 10)]


def test_while_nobody_writes_nothing_is_written_again() -> None:
    driver = started()
    for _ in range(5):
        driver.pass_time(300_000)
    assert len(driver.log) == 4, "each once"
    assert driver.prunings == [2], "and told once"


def test_the_states_of_deleted_topics_are_deleted() -> None:
    driver = started()
    driver.topics.clear()
    driver.shard.delete_topics({UUID(int=5)}, driver.now)
    driver.run()
    assert len(driver.shard) == 2
    driver.shard.delete_topics({TOPIC}, driver.now)
    driver.run()
    assert len(driver.shard) == 0
    assert [record.value for record in driver.log[2:]] == [None, None]
    driver.pass_time(300_000)
    assert driver.prunings == [3]


def test_an_update_without_its_snapshot() -> None:
    driver = started()
    write(driver, 12, 13)
    assert isinstance(driver.log[2].value, ShareUpdateValue)
    driver.log_start = 2
    driver.shard = driver.loaded()
    assert batches(driver) == [(12, 13)]


def test_where_share_partitions_are_kept() -> None:
    assert [partition_of(KEY, 50), partition_of(OTHER, 50)] == [23, 22], "as Kafka's SharePartitionKey says"


@pytest.mark.parametrize("seed", range(8))
def test_batches_are_put_together_offset_by_offset(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        known, new = (
            [
                StateBatch(first, first + rng.randint(0, 8), rng.choice((0, 2, 4)), rng.randint(1, 3))
                for first in (rng.randint(0, 20) for _ in range(rng.randint(0, 4)))
            ]
            for _ in range(2)
        )
        start = rng.choice((UNCHANGED, 0, 9))
        expected: dict[int, tuple[int, int]] = {}
        for batch in (*known, *new):
            for offset in range(max(batch.first_offset, start), batch.last_offset + 1):
                standing = (batch.delivery_count, batch.delivery_state)
                expected[offset] = max(expected.get(offset, standing), standing)
        combined = combine(known, new, start)
        found = {
            offset: (batch.delivery_count, batch.delivery_state)
            for batch in combined
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        assert found == expected
        assert sum(batch.last_offset - batch.first_offset + 1 for batch in combined) == len(found)
        for before, after in pairwise(combined):
            assert before.last_offset < after.first_offset
            alike = (before.delivery_count, before.delivery_state) == (after.delivery_count, after.delivery_state)
            assert not (alike and before.last_offset + 1 == after.first_offset)
