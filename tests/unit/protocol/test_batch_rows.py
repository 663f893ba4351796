"""murmur2 as Kafka computes it, compiled and interpreted: the partition of a key hangs on it."""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import pytest

from ottla.protocol.records import _batch_rows
from tests.property.test_record_batch import INTERPRETED as INTERPRETED_RECORDS
from tests.property.test_record_batch import interpreted

with mock.patch.dict(sys.modules, {"ottla.protocol.records._records": INTERPRETED_RECORDS}):
    INTERPRETED = interpreted("_batch_rows")

# Of UtilsTest of Apache Kafka.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("module", [_batch_rows, INTERPRETED])
def test_murmur2_gives_what_kafka_gives(module: Any) -> None:
    assert {key: module.murmur2(key) for key in KNOWN} == {key: value & 0xFFFFFFFF for key, value in KNOWN.items()}


def test_murmur2_is_the_same_both_ways() -> None:
    """At all lengths and places of the tail's bytes, the highest bit set among them."""
    for length in range(70):
        for byte in (0, 1, 0x7F, 0x80, 0xFF):
            key = bytes((byte + 37 * at) & 0xFF for at in range(length))
            assert _batch_rows.murmur2(key) == INTERPRETED.murmur2(key)
