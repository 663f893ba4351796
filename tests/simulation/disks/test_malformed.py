"""Bug 15: a batch that lies about its lengths or counts is refused, and the log stays as it was."""

from __future__ import annotations

import struct
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records.record_batch import (
    HEADER_SIZE,
    LongWork,
    iterate_records,
    read_batch_header,
)
from tests.fuzz.batches import FIELDS, a_batch, with_crc
from tests.simulation import checks
from tests.simulation.world import ROOT, World

ACCEPTABLE = {
    ErrorCode.corrupt_message,
    ErrorCode.invalid_record,
    ErrorCode.message_too_large,
    ErrorCode.record_list_too_large,
    ErrorCode.invalid_timestamp,
    ErrorCode.unsupported_for_message_format,
    ErrorCode.unsupported_compression_type,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.out_of_order_sequence_number,
    ErrorCode.transactional_id_authorization_failed,
}
"""What a client understands as an answer to a bad batch (bug 8: never UNKNOWN_SERVER_ERROR)."""


def refused_or_sound(world: World, batch: bytearray) -> None:
    """The append fails with an error of Kafka's, or what it left in the log can be read by anybody."""
    before = world.fs.files(ROOT)
    try:
        world.log.append_as_leader(memoryview(bytearray(batch)), 0, now_ms=world.clock.now)
    except KafkaError as error:
        assert error.code in ACCEPTABLE, error
        assert world.fs.files(ROOT) == before
        return
    except LongWork as long:  # it claims to be much larger than it is, or is
        assert world.fs.files(ROOT) == before
        try:
            long.do()
        except KafkaError as error:
            assert error.code in ACCEPTABLE, error
        return
    for header, data in checks.batches(world.fs.files(ROOT), world.directory):
        records = list(iterate_records(data))
        assert len(records) == header.count == header.last_offset_delta + 1
        assert [record.offset for record in records] == list(range(header.base_offset, header.next_offset))
        assert max(-1, *(record.timestamp for record in records)) == header.max_timestamp
    world.log.high_watermark = world.log.log_end_offset


def smaller(layout: str) -> st.SearchStrategy[int]:
    bits = struct.calcsize(layout) * 8
    return st.one_of(st.integers(-3, 9), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))


@settings(max_examples=300)
@given(st.data(), st.sampled_from(sorted(FIELDS)), st.integers(0, 4), st.integers(0, 1000))
def test_a_header_that_lies(data: st.DataObject, field: str, codec: int, seed: int) -> None:
    world = World(seed)
    batch = a_batch(Random(seed), codec)
    position, layout = FIELDS[field]
    struct.pack_into(layout, batch, position, data.draw(smaller(layout)))
    refused_or_sound(world, with_crc(batch))


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(0, 4), st.integers(1, 4))
def test_records_that_lie(seed: int, codec: int, flips: int) -> None:
    """Bits of the records flipped and the checksum made to match, as a broken producer would."""
    random = Random(seed)
    world = World(seed)
    batch = a_batch(random, codec)
    for _ in range(flips):
        bit = random.randrange(HEADER_SIZE * 8, len(batch) * 8)
        batch[bit // 8] ^= 1 << bit % 8
    refused_or_sound(world, with_crc(batch))


def test_a_batch_cut_anywhere() -> None:
    world = World(1)
    batch = a_batch(Random(1), 0)
    for size in range(len(batch)):
        refused_or_sound(world, batch[:size])
        assert world.log.log_end_offset == 0
    count = read_batch_header(batch).count
    refused_or_sound(world, batch)
    assert world.log.log_end_offset == count


def test_a_flipped_bit_anywhere_fails_the_checksum() -> None:
    world = World(1)
    batch = a_batch(Random(1), 0)
    for bit in range(8 * 8, len(batch) * 8):
        if 12 <= bit // 8 < 16:
            continue  # the leader epoch, which the leader sets
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        refused_or_sound(world, flipped)
    assert world.log.log_end_offset == 0
