"""What is written by hand is what the schema says."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol import messages, share_fetch
from ottla.protocol.messages import ApiKey
from ottla.protocol.writer import COPIED_BYTES_MAX

offsets = st.integers(0, 2**63 - 1)
acquired = st.lists(st.tuples(offsets, offsets, st.integers(0, 2**15 - 1)), max_size=3)
records = st.sampled_from([0, 1, 126, 127, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, 70_000]).map(bytes)
rows = st.lists(st.tuples(st.integers(0, 2**31 - 1), records, acquired), max_size=3)
topics = st.dictionaries(st.uuids(), rows, max_size=3)


@given(st.sampled_from([1, 2]), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**31 - 1), topics)
def test_a_plain_answer_is_what_the_schema_makes_of_it(
    version: int, correlation_id: int, lock_ms: int, found: dict[UUID, list[share_fetch.Row]]
) -> None:
    parts, size = share_fetch.encode_response(correlation_id, lock_ms, found)
    values = {
        "acquisition_lock_timeout": lock_ms,
        "responses": [
            {
                "topic_id": topic_id,
                "partitions": [
                    {
                        "partition_index": number,
                        "current_leader": {"leader_id": 0, "leader_epoch": 0},
                        "records": data,
                        "acquired_records": [
                            {"first_offset": first, "last_offset": last, "delivery_count": count}
                            for first, last, count in ranges
                        ],
                    }
                    for number, data, ranges in each
                ],
            }
            for topic_id, each in found.items()
        ],
        "node_endpoints": [],
    }
    whole = b"".join(bytes(part) for part in parts)
    assert whole == messages.encode_response(ApiKey.SHARE_FETCH, version, correlation_id, values)
    assert size == len(whole)
