"""The records of `__share_group_state`: bytes that Kafka 4.3 writes, hostile bytes."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.share_records import SharePartitionKey, ShareRecord, decode_record, encode_record
from ottla.protocol.schemas.records import ShareSnapshotValue, ShareUpdateValue, StateBatch

KEY = SharePartitionKey("g", UUID("00112233-4455-6677-8899-aabbccddeeff"), 2)
KEY_HEX = "0001 67 00112233445566778899aabbccddeeff 00000002"

INT16, INT32 = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1)
INT64, INT8 = st.integers(-(2**63), 2**63 - 1), st.integers(-128, 127)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BATCHES = st.lists(st.builds(StateBatch, INT64, INT64, INT8, INT16), max_size=4).map(tuple)
VALUES = (
    st.none()
    | st.builds(ShareSnapshotValue, INT32, INT32, INT32, INT64, INT32, INT64, INT64, BATCHES)
    | st.builds(ShareUpdateValue, INT32, INT32, INT64, INT32, BATCHES)
)
RECORDS = st.builds(ShareRecord, st.builds(SharePartitionKey, TEXT, st.uuids(), INT32), VALUES)


def test_a_snapshot_is_what_kafka_writes() -> None:
    value = ShareSnapshotValue(1, 2, 3, 4, 5, 6, 7, (StateBatch(8, 9, 4, 10),))
    expected = bytes.fromhex(
        "0000 00000001 00000002 00000003 0000000000000004 0000000000000006 0000000000000007"
        "02 0000000000000008 0000000000000009 04 000a 00 01 00 04 00000005"
    )
    assert encode_record(ShareRecord(KEY, value)) == (bytes.fromhex("0000" + KEY_HEX), expected)


def test_an_update_is_what_kafka_writes() -> None:
    value = ShareUpdateValue(1, 3, -1)
    expected = bytes.fromhex("0000 00000001 00000003 ffffffffffffffff 01 00")
    assert encode_record(ShareRecord(KEY, value)) == (bytes.fromhex("0001" + KEY_HEX), expected)


def test_a_deletion_has_a_snapshots_key() -> None:
    key, value = encode_record(ShareRecord(KEY, None))
    assert (key, value) == (bytes.fromhex("0000" + KEY_HEX), None)
    assert decode_record(key, None) == ShareRecord(KEY, None)


@given(RECORDS)
def test_records_survive(record: ShareRecord) -> None:
    assert decode_record(*encode_record(record)) == record


@given(RECORDS, st.data())
def test_bytes_that_are_cut_off_are_malformed(record: ShareRecord, data: st.DataObject) -> None:
    key, value = encode_record(record)
    with pytest.raises(MalformedRecord):
        decode_record(key[: data.draw(st.integers(0, len(key) - 1))], value)
    if value is not None:
        with pytest.raises(MalformedRecord):
            decode_record(key, value[: data.draw(st.integers(0, len(value) - 1))])
        with pytest.raises(MalformedRecord):
            decode_record(key, value + b"\0")


def test_what_is_newer_than_we_are() -> None:
    key, value = encode_record(ShareRecord(KEY, ShareUpdateValue()))
    assert value is not None
    assert decode_record(b"\x00\x02" + key[2:], value) is None, "an unknown type is skipped"
    with pytest.raises(MalformedRecord):
        decode_record(key, b"\x00\x01" + value[2:])
    with pytest.raises(MalformedRecord):
        decode_record(key, None)
