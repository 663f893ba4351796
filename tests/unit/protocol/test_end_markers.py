"""A marker is read the same whether it is as coordinators write it or only as the format allows."""

from __future__ import annotations

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.protocol.records.record_batch import (
    EndMarker,
    Headers,
    SimpleRecord,
    build_batch,
    iterate_records,
    marker_batch,
    read_end_marker,
)

TIME = 1_700_000_000_000
keys = st.none() | st.binary(max_size=5) | st.sampled_from([b"\0\0\0\0", b"\0\0\0\1", b"\0\1\0\1", b"\0\0\0\2"])
values = st.none() | st.binary(max_size=7) | st.binary(min_size=6, max_size=6)


def slowly(batch: bytearray) -> EndMarker | None:
    """What the first record says."""
    record = next(iterate_records(batch))
    if record.key is None or len(record.key) < 4 or record.value is None or len(record.value) < 6:
        return None
    kind, epoch = struct.unpack_from(">h", record.key, 2)[0], struct.unpack_from(">i", record.value, 2)[0]
    return EndMarker(kind == 0, epoch, record.timestamp) if kind in (0, 1) else None


@given(keys, values, st.integers(1, 2), st.booleans(), st.sampled_from([(), (("h", b"v"),)]))
@example(b"\0\0\0\1", b"\0\0\0\0\0\7", 1, True, ())
def test_markers_are_read_whatever_they_look_like(
    key: bytes | None, value: bytes | None, count: int, append_time: bool, headers: Headers
) -> None:
    records = [SimpleRecord(TIME + number, key, value, headers) for number in range(count)]
    batch = build_batch(records, transactional=True, control=True, producer_id=3, timestamp_type=int(append_time))
    assert read_end_marker(batch) == slowly(batch)


@given(st.booleans(), st.integers(-(2**31), 2**31 - 1))
def test_what_is_written_is_read(committed: bool, epoch: int) -> None:
    batch = marker_batch(3, 1, committed=committed, coordinator_epoch=epoch, timestamp=TIME)
    assert read_end_marker(batch) == read_end_marker(bytes(batch)) == EndMarker(not committed, epoch, TIME)
