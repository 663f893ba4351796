from __future__ import annotations

import random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.records.record_batch import (
    BatchHeader,
    EndMarker,
    SimpleRecord,
    assemble,
    build_batch,
    read_batch_header,
    read_end_marker,
)
from ottla.storage.log.validation import Origin
from ottla.storage.producers.producer_entry import SEQUENCE_MAX, Duplicate
from ottla.storage.producers.producer_state import ProducerSettings, ProducerStateManager
from ottla.testing.disk import SimulatedFileSystem

NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"
TRANSACTIONAL, CONTROL = 0x10, 0x20


def make_fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem(random.Random(1))
    fs.makedirs(DIRECTORY)
    fs.fsync_all()
    return fs


def make_state(fs: SimulatedFileSystem | None = None, expiration_ms: int = 1000) -> ProducerStateManager:
    settings = ProducerSettings(expiration_ms)
    return ProducerStateManager(fs or make_fs(), DIRECTORY, TopicPartition("t", 0), settings=settings)


def batch(
    offset: int,
    sequence: int,
    *,
    count: int = 1,
    producer_id: int = 7,
    epoch: int = 0,
    attributes: int = 0,
    timestamp: int = NOW,
) -> BatchHeader:
    records = [SimpleRecord(timestamp, None, b"v")] * count
    header = read_batch_header(
        build_batch(records, base_offset=offset, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    )
    return header._replace(attributes=header.attributes | attributes)


def append(state: ProducerStateManager, header: BatchHeader) -> None:
    assert state.check(header) is None
    state.update(header)


def refused(state: ProducerStateManager, header: BatchHeader, **arguments: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        state.check(header, **arguments)  # type: ignore[arg-type]
    return caught.value.code


def marker_batch(offset: int, *, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return batch(offset, -1, producer_id=producer_id, epoch=epoch, attributes=TRANSACTIONAL | CONTROL)


def test_a_retry_of_any_of_the_last_five_batches_is_answered_with_its_offsets() -> None:
    state = make_state()
    sent = [batch(offset, offset, count=3) for offset in range(0, 21, 3)]
    for header in sent:
        append(state, header)
    for header in sent[-5:]:
        retry = header._replace(base_offset=100)
        assert state.check(retry) == Duplicate(header.base_offset, header.base_offset + 2, NOW)
    assert refused(state, sent[-6]._replace(base_offset=100)) is ErrorCode.out_of_order_sequence_number
    assert state.map_end_offset == 21


def test_a_part_of_an_earlier_batch_is_not_its_duplicate() -> None:
    state = make_state()
    append(state, batch(0, 0, count=3))
    assert refused(state, batch(3, 0, count=2)) is ErrorCode.out_of_order_sequence_number


def test_a_gap_is_refused_and_changes_nothing() -> None:
    state = make_state()
    append(state, batch(0, 0))
    assert refused(state, batch(1, 2)) is ErrorCode.out_of_order_sequence_number
    append(state, batch(1, 1))


def test_an_unknown_producer_may_start_anywhere() -> None:
    """Its batches may have been deleted by retention: KAFKA-5793, KIP-360."""
    append(make_state(), batch(40, 1234))


def test_sequences_wrap() -> None:
    state = make_state()
    append(state, batch(0, SEQUENCE_MAX - 1, count=4))  # SEQUENCE_MAX - 1, SEQUENCE_MAX, 0, 1
    assert state.check(batch(9, SEQUENCE_MAX - 1, count=4)) == Duplicate(0, 3, NOW)
    append(state, batch(4, 2))
    state = make_state()
    append(state, batch(0, SEQUENCE_MAX))
    append(state, batch(1, 0))


def test_a_new_epoch_starts_at_sequence_zero_and_fences_the_old_one() -> None:
    state = make_state()
    append(state, batch(0, 0, count=2))
    assert refused(state, batch(2, 2, epoch=1)) is ErrorCode.out_of_order_sequence_number
    append(state, batch(2, 0, epoch=1))
    assert refused(state, batch(3, 2, epoch=0)) is ErrorCode.invalid_producer_epoch
    assert refused(state, batch(3, 0, count=2, epoch=0)) is ErrorCode.invalid_producer_epoch


def test_replication_applies_what_the_leader_accepted() -> None:
    state = make_state()
    append(state, batch(0, 0, epoch=3))
    for header in (batch(1, 50, epoch=3), batch(2, 7, epoch=2)):
        assert state.check(header, origin=Origin.REPLICATION) is None
        state.update(header)
    assert state.producers[7].producer_epoch == 2


def test_a_coordinator_has_no_sequences_but_epochs() -> None:
    state = make_state()
    state.update(batch(0, -1, epoch=2))
    assert state.check(batch(1, -1, epoch=2), origin=Origin.COORDINATOR) is None
    code = refused(state, batch(1, -1, epoch=1), origin=Origin.COORDINATOR)
    assert code is ErrorCode.invalid_producer_epoch


def test_a_transaction_holds_the_stable_offset_until_its_marker_is_replicated() -> None:
    state = make_state()
    append(state, batch(5, 0, count=2, attributes=TRANSACTIONAL))
    append(state, batch(7, 2, attributes=TRANSACTIONAL))
    append(state, batch(8, 0, producer_id=9, attributes=TRANSACTIONAL))
    assert state.first_unstable_offset == 5
    assert refused(state, batch(9, 3)) is ErrorCode.invalid_txn_state

    completed = state.update(marker_batch(9), marker=EndMarker(True, 0, NOW))
    assert completed is not None
    assert completed == (7, 5, 9, True, 8)  # another transaction is open from offset 8 on
    assert state.first_unstable_offset == 5
    assert state.first_undecided_offset == 8
    state.on_high_watermark(9)
    assert state.first_unstable_offset == 5
    state.on_high_watermark(10)
    assert state.first_unstable_offset == 8

    completed = state.update(marker_batch(10, producer_id=9), marker=EndMarker(False, 0, NOW))
    assert completed == (9, 8, 10, False, 11)
    state.on_high_watermark(11)
    assert state.first_unstable_offset is None


def test_markers_of_an_older_coordinator_are_fenced() -> None:
    state = make_state()
    state.update(marker_batch(0), marker=EndMarker(False, 5, NOW))
    code = refused(state, marker_batch(1), origin=Origin.COORDINATOR, marker=EndMarker(False, 4, NOW))
    assert code is ErrorCode.transaction_coordinator_fenced
    assert state.first_unstable_offset is None


def test_an_emptied_control_batch_only_moves_the_end() -> None:
    state = make_state()
    state.update(marker_batch(3), marker=None)
    assert not state.producers
    assert state.map_end_offset == 4


def test_the_marker_is_read_from_the_batch() -> None:
    def control(key: bytes, value: bytes) -> bytearray:
        record = SimpleRecord(NOW, key, value)
        return build_batch([record], producer_id=7, producer_epoch=0, transactional=True, control=True)

    assert read_end_marker(control(b"\0\0\0\0", b"\0\0\0\0\0\5")) == EndMarker(True, 5, NOW)
    assert read_end_marker(control(b"\0\0\0\1", b"\0\1\0\0\0\2newer")) == EndMarker(False, 2, NOW)
    assert read_end_marker(control(b"\0\0\0\2", b"\0\0\0\0\0\5")) is None
    assert read_end_marker(control(b"\0", b"")) is None
    empty = read_batch_header(control(b"", b""))._replace(count=0)
    assert read_end_marker(assemble(empty, b"")) is None


def test_producers_expire_unless_a_transaction_is_open() -> None:
    state = make_state(expiration_ms=1000)
    append(state, batch(0, 0, producer_id=1))
    append(state, batch(1, 0, producer_id=2, timestamp=NOW + 1))
    append(state, batch(2, 0, producer_id=3, attributes=TRANSACTIONAL))
    state.remove_expired(NOW + 1000)
    assert sorted(state.producers) == [2, 3]
    append(state, batch(3, 99, producer_id=1))


def test_a_snapshot_brings_the_state_back() -> None:
    fs = make_fs()
    state = make_state(fs)
    append(state, batch(0, 0, count=4))
    append(state, batch(4, 0, producer_id=8, epoch=3, attributes=TRANSACTIONAL))
    assert state.take_snapshot() == f"{DIRECTORY}/00000000000000000005.snapshot"
    assert state.take_snapshot() is None
    fs.restart(power_loss=True)

    loaded = make_state(fs)
    loaded.truncate_and_reload(0, 9, NOW)
    assert loaded.map_end_offset == 5
    assert loaded.check(batch(9, 0, count=4)) == Duplicate(0, 3, NOW)
    assert loaded.first_unstable_offset == 4
    append(loaded, batch(5, 4))


def test_a_snapshot_is_written_though_all_records_were_deleted() -> None:
    """A retry after DeleteRecords and a clean restart: the log has nothing that the state could be made from."""
    fs = make_fs()
    state = make_state(fs)
    for number in range(2):
        append(state, batch(number, number))
    state.on_log_start_offset(2)
    assert state.take_snapshot() == f"{DIRECTORY}/{2:020}.snapshot"
    assert state.take_snapshot() is None
    again = make_state(fs)
    again.truncate_and_reload(2, 2, NOW)
    assert isinstance(again.check(batch(2, 1)), Duplicate)
    nobody = make_state()
    nobody.on_log_start_offset(2)
    assert nobody.take_snapshot() is None


def test_the_batches_before_a_snapshot_are_recalled_from_the_log() -> None:
    """Bug 7 of the list: after a restart not only the newest batch is recognised."""
    fs = make_fs()
    state = make_state(fs)
    headers = [batch(offset, offset) for offset in range(7)]
    for header in headers:
        append(state, header)
    state.take_snapshot()
    loaded = make_state(fs)
    loaded.truncate_and_reload(0, 9, NOW)
    assert loaded.wants_recall(NOW + 1000)
    assert not loaded.wants_recall(NOW + 10**6)
    assert refused(loaded, headers[5]._replace(base_offset=9)) is ErrorCode.out_of_order_sequence_number
    loaded.recall([batch(0, 0, producer_id=99), *headers])
    assert [loaded.check(header._replace(base_offset=9)) for header in headers[2:]] == [
        Duplicate(offset, offset, NOW) for offset in range(2, 7)
    ]
    append(loaded, batch(7, 7))
    loaded.recall([batch(6, 6)])
    assert len(loaded.producers[7].batches) == 5


def test_an_older_snapshot_replaces_a_corrupt_one() -> None:
    fs = make_fs()
    state = make_state(fs)
    append(state, batch(0, 0))
    older = state.take_snapshot()
    append(state, batch(1, 1))
    newer = state.take_snapshot()
    assert older is not None
    assert newer is not None
    for spoil in range(8 * len(fs.read_bytes(newer))):
        loaded = make_state(fs)
        copy = fs.read_bytes(newer)
        fs.flip_bit(newer, spoil)
        loaded.truncate_and_reload(0, 2, NOW)
        assert loaded.map_end_offset == 1, spoil
        assert not fs.exists(newer)
        fs.write_atomic(newer, copy)


def test_snapshots_cut_short_anywhere_are_refused() -> None:
    fs = make_fs()
    state = make_state(fs)
    append(state, batch(0, 0))
    path = state.take_snapshot()
    assert path is not None
    whole = fs.read_bytes(path)
    for size in range(len(whole)):
        fs.write_atomic(path, whole[:size])
        loaded = make_state(fs)
        loaded.truncate_and_reload(0, 1, NOW)
        assert loaded.map_end_offset == 0
    for tail in (b"\0", b"\0" * 46):
        fs.write_atomic(path, whole + tail)
        loaded = make_state(fs)
        loaded.truncate_and_reload(0, 1, NOW)
        assert loaded.map_end_offset == 0


def test_truncation_drops_snapshots_out_of_range() -> None:
    fs = make_fs()
    state = make_state(fs)
    for offset in range(6):
        append(state, batch(offset, offset))
        state.take_snapshot()
    state.truncate_and_reload(2, 4, NOW)
    assert state.snapshot_offsets == (2, 3, 4)
    assert state.map_end_offset == 4
    append(state, batch(4, 4))
    state.truncate_fully_and_start_at(90)
    assert state.snapshot_offsets == ()
    assert state.map_end_offset == 90
    assert not state.producers


def test_the_log_start_moves_without_forgetting_producers() -> None:
    """Bug 8 of the list: a retry after retention is still a duplicate."""
    state = make_state()
    append(state, batch(0, 0))
    append(state, batch(1, 1))
    state.truncate_and_reload(2, 2, NOW)
    assert state.check(batch(2, 1)) == Duplicate(1, 1, NOW)


def test_stray_snapshots_go_except_the_newest_above_all_segments() -> None:
    fs = make_fs()
    for offset in (0, 3, 5, 8, 9):
        fs.write_atomic(f"{DIRECTORY}/{offset:020d}.snapshot", b"")
    state = make_state(fs)
    state.remove_stray_snapshots([0, 5])
    assert state.snapshot_offsets == (0, 5, 9)
    state.remove_stray_snapshots([0, 5, 20])
    assert state.snapshot_offsets == (0, 5)
    assert state.mark_snapshot_for_deletion(5) == f"{DIRECTORY}/00000000000000000005.snapshot.deleted"
    assert state.mark_snapshot_for_deletion(5) is None
    assert sorted(fs.files(DIRECTORY)) == [
        f"{DIRECTORY}/00000000000000000000.snapshot",
        f"{DIRECTORY}/00000000000000000005.snapshot.deleted",
    ]
