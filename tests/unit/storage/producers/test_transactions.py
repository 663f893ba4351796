"""Transactions in one log: who may begin one, what ends it, and what read_committed sees of it (KIP-98, KIP-890)."""

from __future__ import annotations

import random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_GUARD, NOT_TRANSACTIONAL
from ottla.protocol.records.record_batch import iterate_batches, marker_batch, read_batch_header
from ottla.storage.config import LogConfig
from ottla.storage.log.append_info import AppendInfo
from ottla.storage.log.log import Log
from ottla.storage.log.log_loader import load_log
from ottla.storage.log.validation import COORDINATOR
from ottla.storage.producers.producer_state import EPOCH_MAX, ProducerSettings
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.storage.logs import DIRECTORY, KEY, NOW, append, batch, load, new_disk

P = 7
TV1, TV2 = 1, 2


def verifying(config: LogConfig | None = None, fs: SimulatedFileSystem | None = None) -> Log:
    return load(fs or new_disk(), config, producers=ProducerSettings(1000, verifies_transactions=True))


def data(sequence: int, *, epoch: int = 0, producer_id: int = P, count: int = 1, codec: int = 0) -> bytearray:
    return batch(
        count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True, codec=codec
    )


def ask(log: Log, sequence: int, *, epoch: int = 0, begins: bool = False, producer_id: int = P) -> int:
    header = read_batch_header(data(sequence, epoch=epoch, producer_id=producer_id))
    return log.producer_state.start_verification(header, begins_transaction=begins, now_ms=NOW)


def write(log: Log, batch: bytearray, guard: int = NO_GUARD) -> AppendInfo:
    info = log.append_as_leader(memoryview(batch), 0, now_ms=NOW, guard=guard)
    log.high_watermark = log.log_end_offset
    return info


def begin(log: Log, sequence: int, *, epoch: int = 0, producer_id: int = P) -> AppendInfo:
    guard = ask(log, sequence, epoch=epoch, producer_id=producer_id)
    return write(log, data(sequence, epoch=epoch, producer_id=producer_id), guard)


def end(
    log: Log, *, epoch: int = 0, committed: bool = False, version: int = TV1, coordinator: int = 0, producer_id: int = P
) -> AppendInfo:
    marker = marker_batch(producer_id, epoch, committed=committed, coordinator_epoch=coordinator, timestamp=NOW)
    info = log.append_as_leader(marker, 0, now_ms=NOW, origin=COORDINATOR, transaction_version=version)
    log.high_watermark = log.log_end_offset
    return info


def refused(log: Log, batch: bytearray, guard: int = NO_GUARD) -> ErrorCode:
    before = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        write(log, batch, guard)
    assert log.log_end_offset == before
    return caught.value.code


def test_only_a_transaction_that_the_coordinator_knows_begins() -> None:
    log = verifying()
    assert refused(log, data(0)) is ErrorCode.invalid_txn_state
    guard = ask(log, 0)
    assert guard > 0
    assert refused(log, data(0), guard + 1) is ErrorCode.invalid_txn_state
    write(log, data(0), guard)
    write(log, data(1))  # it is known here now
    assert ask(log, 2) == NO_GUARD
    assert refused(log, batch(1, producer_id=P, producer_epoch=0, base_sequence=2)) is ErrorCode.invalid_txn_state


@pytest.mark.parametrize("codec", [0, 1])
def test_a_request_without_a_transactional_id_writes_to_no_transaction(codec: int) -> None:
    """Neither by the quick way nor by the one through validation, and not into one that is open either."""
    log = verifying()
    begin(log, 0)
    assert refused(log, data(1, codec=codec), NOT_TRANSACTIONAL) is ErrorCode.transactional_id_authorization_failed


def test_nothing_need_be_verified_where_the_setting_says_so() -> None:
    log = load(new_disk())
    write(log, data(0))
    assert log.last_stable_offset == 0


def test_a_batch_that_comes_after_the_abort_opens_nothing() -> None:
    """KAFKA-14402: it would hold the last stable offset back for ever."""
    log = verifying()
    guard = ask(log, 0)
    end(log)
    assert refused(log, data(0), guard) is ErrorCode.invalid_txn_state
    assert log.last_stable_offset == log.log_end_offset == 1


def test_a_guard_is_used_up_by_whatever_is_written_to_the_transaction() -> None:
    log = verifying()
    first, second = ask(log, 0), ask(log, 1)
    assert first == second
    write(log, data(0), first)
    end(log, committed=True)
    assert refused(log, data(1), second) is ErrorCode.invalid_txn_state
    assert ask(log, 1) != first


def test_the_next_transaction_may_be_asked_about_before_the_marker_that_has_its_epoch() -> None:
    log = verifying()
    write(log, data(0), ask(log, 0, begins=True))
    guard = ask(log, 0, epoch=1, begins=True)
    end(log, epoch=1, committed=True, version=TV2)
    write(log, data(0, epoch=1), guard)
    assert log.last_stable_offset == 2


def test_a_marker_takes_away_the_guard_of_the_transaction_that_it_ends() -> None:
    log = verifying()
    guard = ask(log, 0, begins=True)
    end(log, epoch=1, version=TV2)
    assert refused(log, data(0), guard) is ErrorCode.invalid_producer_epoch


def test_a_late_marker_of_an_older_epoch_leaves_the_guard() -> None:
    """A follower that becomes the leader fetches it behind the question; the transaction of the guard goes on."""
    log = verifying()
    guard = ask(log, 0, epoch=3)
    end(log, epoch=1)
    end(log, epoch=2)
    write(log, data(0, epoch=3), guard)
    log = verifying()
    old, new = ask(log, 0, epoch=2), ask(log, 0, epoch=3)
    end(log, epoch=2)
    assert refused(log, data(0, epoch=2), old) is ErrorCode.invalid_txn_state
    write(log, data(0, epoch=3), new)


def test_a_stale_producer_is_not_even_asked_about() -> None:
    log = verifying()
    begin(log, 0, epoch=3)
    with pytest.raises(KafkaError) as caught:
        ask(log, 0, epoch=2)
    assert caught.value.code is ErrorCode.invalid_producer_epoch
    assert refused(log, data(0, epoch=2), 1) is ErrorCode.invalid_producer_epoch


def test_a_later_batch_does_not_overtake_one_whose_verification_failed() -> None:
    log = verifying()
    guard = ask(log, 5)
    assert ask(log, 6) == guard
    assert refused(log, data(6), guard) is ErrorCode.out_of_order_sequence_number
    write(log, data(5), guard)
    write(log, data(6))


def test_the_lowest_sequence_is_that_of_the_newest_epoch() -> None:
    log = verifying()
    guard = ask(log, 5, epoch=1)
    newer = ask(log, 9, epoch=2)
    assert ask(log, 1, epoch=1) == guard != newer
    write(log, data(9, epoch=2), newer)


def test_every_transaction_begins_at_zero_where_each_has_an_epoch_of_its_own() -> None:
    log = verifying()
    guard = ask(log, 4, begins=True)
    assert refused(log, data(4), guard) is ErrorCode.out_of_order_sequence_number
    assert ask(log, 0, begins=True) == guard
    write(log, data(0), guard)
    end(log, epoch=1, version=TV2, committed=True)
    guard = ask(log, 1, epoch=1, begins=True)  # the marker's epoch has no batches
    assert refused(log, data(1, epoch=1), guard) is ErrorCode.out_of_order_sequence_number


def test_a_retry_that_comes_after_the_end_is_a_duplicate_and_nothing_waits_for_it() -> None:
    log = verifying()
    begin(log, 0)
    end(log, committed=True)
    assert ask(log, 0) == NO_GUARD
    assert write(log, data(0)).is_duplicate
    assert not len(log.producer_state.verifications.entries)
    begin(log, 1)


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_a_compressed_retry_is_a_duplicate(codec: int) -> None:
    """KAFKA-15653: verification and compressed retries."""
    log = verifying()
    first = write(log, data(0, count=3, codec=codec), ask(log, 0))
    again = write(log, data(0, count=3, codec=codec))
    assert again.is_duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset) == (0, 2)


def test_questions_after_which_nothing_came_are_forgotten() -> None:
    log = verifying()
    ask(log, 0)
    log.producer_state.remove_expired(NOW + 999)
    assert len(log.producer_state.verifications.entries) == 1
    log.producer_state.remove_expired(NOW + 1000)
    assert not len(log.producer_state.verifications.entries)


def ended(log: Log, **options: int | bool) -> ErrorCode:
    try:
        end(log, **options)  # type: ignore[arg-type]
    except KafkaError as error:
        return error.code
    return ErrorCode.none


def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    """KAFKA-17754. Where each transaction has an epoch of its own, a marker has one more than its batches."""
    log = verifying()
    begin(log, 0, epoch=4)
    assert ended(log, epoch=4, version=TV2) is ErrorCode.invalid_producer_epoch
    assert ended(log, epoch=5, version=TV2, committed=True) is ErrorCode.none
    begin(log, 0, epoch=5)
    assert ended(log, epoch=5, version=TV2) is ErrorCode.invalid_producer_epoch
    assert ended(log, epoch=4, version=TV2) is ErrorCode.invalid_producer_epoch
    assert log.producer_state.first_undecided_offset == 2
    assert ended(log, epoch=5, version=TV1) is ErrorCode.none  # as a client of an older version ends it
    assert ended(log, epoch=4, version=TV1) is ErrorCode.invalid_producer_epoch


def test_a_marker_may_be_repeated_while_no_transaction_is_open() -> None:
    log = verifying()
    begin(log, 0, epoch=4)
    for _ in range(3):
        assert ended(log, epoch=5, version=TV2) is ErrorCode.none
    assert log.last_stable_offset == log.log_end_offset == 4


def test_the_last_epoch_of_a_producer_ends_its_transaction() -> None:
    log = verifying()
    begin(log, 0, epoch=EPOCH_MAX)
    assert ended(log, epoch=EPOCH_MAX, version=TV2) is ErrorCode.none
    assert log.producer_state.first_undecided_offset is None


def test_a_deposed_coordinator_is_fenced() -> None:
    log = verifying()
    begin(log, 0)
    end(log, coordinator=3)
    begin(log, 1)
    assert ended(log, coordinator=2) is ErrorCode.transaction_coordinator_fenced
    assert ended(log, coordinator=3) is ErrorCode.none


def test_a_reader_gets_no_aborted_transactions_but_those_of_what_it_read() -> None:
    log = verifying(LogConfig(segment_bytes=2000, index_interval_bytes=100))
    for number in range(60):
        begin(log, number)
        end(log, committed=number % 2 == 0)
    assert len(log.segments) > 3
    everything = log.aborted_transactions(0, log.log_end_offset)
    assert len(everything) == 30
    offset, seen = 0, []
    while (part := log.read(offset, 300, up_to=log.last_stable_offset)) is not None:
        (*_, last) = (header.last_offset for _, header in iterate_batches(part.read()))
        found = log.aborted_transactions(offset, log.last_stable_offset, part)
        needed = [each for each in everything if offset <= each.last_offset and each.first_offset <= last]
        assert [each for each in found if each.first_offset <= last] == needed
        assert len(found) <= len(needed) + 2
        seen += [each for each in found if each not in seen]
        offset = last + 1
    assert seen == everything


def test_what_a_cut_leaves_committed_does_not_hold_the_last_stable_offset_back() -> None:
    """A marker below the high watermark stays one when records above it are cut off."""
    log = verifying()
    begin(log, 0)
    end(log)
    append(log, 3, commit=False)
    log.truncate_to(2)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2)


def test_a_cut_opens_a_transaction_whose_marker_is_gone() -> None:
    log = verifying()
    begin(log, 0)
    guard = ask(log, 0, producer_id=8)
    end(log, committed=True)
    log.truncate_to(1)
    assert log.last_stable_offset == 0
    assert log.aborted_transactions(0, 2) == []
    write(log, data(1))
    write(log, data(0, producer_id=8), guard)  # what is being verified stays so


def test_an_open_transaction_survives_a_crash_and_a_clean_stop() -> None:
    for is_clean in (True, False):
        fs = new_disk()
        log = verifying(fs=fs)
        begin(log, 0)
        append(log, 2)
        if is_clean:
            log.close()
        else:
            fs.fsync_all()
            fs.restart(power_loss=True)
        log = load_log(
            fs,
            DIRECTORY,
            KEY,
            None,
            LogConfig(),
            now_ms=NOW + 10_000,
            clean_shutdown=is_clean,
            recovery_point=3 if is_clean else 0,
            random=random.Random(1),
            producers=ProducerSettings(1000, verifies_transactions=True),
        )
        log.high_watermark = log.log_end_offset
        assert (log.log_end_offset, log.last_stable_offset) == (3, 0)
        log.producer_state.remove_expired(NOW + 1_000_000)
        write(log, data(1))  # known to be open: nobody is asked
        end(log)
        assert log.last_stable_offset == 5
        assert [each[:3] for each in log.aborted_transactions(0, 5)] == [(P, 0, 4)]
