"""What `stamp` takes, `validate` takes too and makes the same of it; what `stamp` leaves alone it has not changed."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records.record_batch import (
    CRC_POSITION,
    HEADER_SIZE,
    SimpleRecord,
    build_batch,
    compute_crc,
    marker_batch,
    read_batch_header,
)
from ottla.storage.config import LogConfig
from ottla.storage.limits import limits_and_policy
from ottla.storage.log import stamp
from ottla.storage.log.validation import CLIENT, COORDINATOR, Origin, validate
from tests.property.test_record_batch import INTERPRETED as INTERPRETED_RECORDS

NOW = 1_700_000_000_000
HOUR = 3_600_000


def interpreted() -> ModuleType:
    """`stamp.py` from its source, also where a compiled one is found first."""
    spec = importlib.util.spec_from_file_location("stamp_interpreted", stamp.__file__.rpartition("/")[0] + "/stamp.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {"ottla.protocol.records._records": INTERPRETED_RECORDS}):
        spec.loader.exec_module(module)
    return module


MODULES = {"as built": stamp, "interpreted": interpreted()}

times = st.sampled_from([NOW, NOW, NOW + 1, NOW - HOUR, NOW - HOUR - 1, NOW + HOUR, NOW + HOUR + 1, -1, -2, 0])
keys = st.none() | st.binary(max_size=3)
values = st.none() | st.binary(max_size=300)
records = st.lists(st.builds(SimpleRecord, times, keys, values), min_size=1, max_size=40)
configs = st.builds(
    LogConfig,
    max_message_bytes=st.sampled_from([1 << 20, 1 << 20, 200]),
    segment_bytes=st.sampled_from([1 << 30, 300]),
    compression_type=st.sampled_from(["producer", "producer", "uncompressed", "zstd"]),
    cleanup_policy=st.sampled_from([frozenset({"delete"}), frozenset({"compact"})]),
    message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    message_timestamp_before_max_ms=st.sampled_from([2**63 - 1, HOUR]),
)


def batch_of(data: st.DataObject, items: list[SimpleRecord]) -> bytearray:
    """As a producer or a coordinator has it, or with some bytes changed under a CRC that is right again."""
    producer_id, sequence = data.draw(st.sampled_from([(-1, -1), (-1, -1), (7, 0), (7, -1)]))
    codec, transactional, control = data.draw(
        st.sampled_from([(0, False, False), (0, False, False), (0, True, False), (0, True, True), (4, False, False)])
    )
    batch = build_batch(
        items,
        codec=codec,
        producer_id=producer_id,
        base_sequence=sequence,
        transactional=transactional,
        control=control,
    )
    for _ in range(data.draw(st.sampled_from([0, 0, 1, 2]))):
        where = st.integers(0, len(batch) - 1) | st.integers(0, HEADER_SIZE - 1)
        batch[data.draw(where)] = data.draw(st.integers(0, 255))
    if data.draw(st.integers(0, 5)):
        batch[CRC_POSITION : CRC_POSITION + 4] = compute_crc(batch, 0, len(batch)).to_bytes(4, "big")
    return batch + bytes(data.draw(st.sampled_from([0, 0, 0, 1])))


@pytest.mark.parametrize("way", MODULES)
@settings(max_examples=600)
@given(
    data=st.data(),
    items=records,
    config=configs,
    offset=st.sampled_from([0, 1, 2**40]),
    origin=st.sampled_from([CLIENT, COORDINATOR]),
)
def test_what_is_stamped_is_what_would_have_been_validated(
    way: str, data: st.DataObject, items: list[SimpleRecord], config: LogConfig, offset: int, origin: Origin
) -> None:
    module = MODULES[way]
    batch = batch_of(data, items)
    _, policy, rules = limits_and_policy(config)
    same_rules = module.StampRules(rules.bytes_max, rules.compacted, rules.older_max_ms, rules.later_max_ms)
    ours, theirs = bytearray(batch), bytearray(batch)
    stamped = same_rules.stamp(memoryview(ours), NOW, offset, 3, origin is COORDINATOR)
    if stamped is None:
        assert ours == batch
        return
    found = validate(theirs, policy, now_ms=NOW, next_offset=offset, leader_epoch=3, origin=origin)
    assert found.buffer == ours
    (header,) = found.headers
    assert header == read_batch_header(ours)
    assert (stamped.base_offset, stamped.last_offset, stamped.size) == (offset, header.last_offset, header.size)
    assert (stamped.max_timestamp, stamped.producer_id) == (found.max_timestamp, header.producer_id)
    assert found.log_append_time_ms == -1


@pytest.mark.parametrize("way", MODULES)
@given(items=st.lists(st.builds(SimpleRecord, st.integers(NOW, NOW + 9), keys, values), min_size=1, max_size=40))
def test_ordinary_batches_are_stamped(way: str, items: list[SimpleRecord]) -> None:
    """Else the test above would say nothing."""
    module = MODULES[way]
    rules = module.StampRules(1 << 20, False, HOUR, HOUR)
    for producer_id, sequence in ((-1, -1), (5, 0), (5, 2**31 - 1)):
        batch = build_batch(items, producer_id=producer_id, base_sequence=sequence)
        assert rules.stamp(memoryview(batch), NOW, 5, 3) is not None
        assert rules.stamp(memoryview(bytes(batch)), NOW, 5, 3) is None  # nothing can be written there
        assert rules.stamp(batch, NOW, 5, 3) is None  # already at offset 5
    marker = marker_batch(5, 1, committed=True, coordinator_epoch=0, timestamp=NOW)
    assert rules.stamp(memoryview(marker), NOW, 5, 3) is None  # no client's business
    assert rules.stamp(memoryview(marker), NOW, 5, 3, True) is not None
