"""Values of `__transaction_state` with the tag that Kafka 4.3 and 4.4 do not have."""

from __future__ import annotations

import pytest

from ottla.protocol.internal.transaction_records import TransactionRecord, decode_record, encode_record
from ottla.protocol.schemas.records import TransactionLogValue

VALUE = TransactionLogValue(
    producer_id=1006,
    previous_producer_id=1005,
    producer_epoch=0,
    last_producer_epoch=32_766,
    transaction_timeout_ms=60_000,
    transaction_status=0,
    transaction_partitions=None,
    transaction_last_update_timestamp_ms=5,
    transaction_start_timestamp_ms=-1,
    client_transaction_version=2,
)
BEFORE_TAGS = bytes.fromhex("000100000000000003ee00000000ea6000000000000000000005ffffffffffffffff")


def test_last_producer_epoch_is_a_tag_behind_those_of_kafka() -> None:
    """TransactionLogValue of Kafka 4.3.0 and 4.4.0 reads these bytes to their end and skips tag 4 (asked on
    2026-11-27)."""
    _, value = encode_record(TransactionRecord("a", VALUE), 1)
    assert value == BEFORE_TAGS + bytes.fromhex("03000800000000000003ed0202000204027ffe")


def test_kafkas_own_bytes_have_no_last_producer_epoch() -> None:
    """Nor has a value of ours that does not need the tag."""
    kafkas = BEFORE_TAGS + bytes.fromhex("02000800000000000003ed02020002")
    expected = TransactionRecord("a", VALUE.replaced(last_producer_epoch=-1))
    key, value = encode_record(expected, 1)
    assert value == kafkas
    assert decode_record(key, kafkas) == expected


@pytest.mark.parametrize(("version", "kept"), [(0, -1), (1, 32_766)])
def test_only_version_1_keeps_the_last_producer_epoch(version: int, kept: int) -> None:
    read = decode_record(*encode_record(TransactionRecord("a", VALUE), version))
    assert read is not None
    assert read.value is not None
    assert read.value.last_producer_epoch == kept
