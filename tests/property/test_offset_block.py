"""Commits that repeat: what a shape makes of a frame is what the general codecs make of it, record for record."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from ottla.drivers.coordinators.coordinator_commits import Commits
from ottla.model import ZERO_UUID
from ottla.protocol import messages
from ottla.protocol.internal.group_records import decode_record, encode_key, encode_value
from ottla.protocol.messages import ApiKey, read_header
from ottla.protocol.offset_block import CommitShape, CommittedPartition, OffsetBlock, offset_positions
from ottla.protocol.records.record_batch import crc_is_valid, iterate_records, read_batch_header
from ottla.protocol.schemas.records import OffsetCommitKey, OffsetCommitValue

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NUMBERS = st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
PARTITIONS = st.dictionaries(
    st.tuples(TEXT, st.integers(0, 500)), st.none() | st.text(max_size=80, alphabet="aé€"), min_size=1, max_size=90
)
VERSIONS = st.integers(6, 9)


def frame_of(version: int, partitions: dict[tuple[str, int], str | None], numbers: list[tuple[int, int]]) -> bytes:
    topics: dict[str, list[dict[str, Any]]] = {}
    for ((topic, partition), metadata), (offset, epoch) in zip(partitions.items(), numbers, strict=True):
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_leader_epoch": epoch,
                "committed_metadata": metadata,
            }
        )
    values = {
        "group_id": "g",
        "generation_id_or_member_epoch": 3,
        "member_id": "m",
        "group_instance_id": None,
        "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
    }
    return messages.encode_request(ApiKey.OFFSET_COMMIT, version, 7, "c", values)


def shape_of(version: int, frame: bytes) -> CommitShape:
    body = read_header(frame).body_offset
    request = messages.decode_request(ApiKey.OFFSET_COMMIT, version, frame, body)
    partitions = [
        CommittedPartition(topic.name, each.partition_index, each.committed_metadata or "", ZERO_UUID)
        for topic in request.topics
        for each in topic.partitions
    ]
    return CommitShape("g", partitions, frame, offset_positions(version, frame, body))


def decoded(version: int, frame: bytes) -> list[tuple[str, int, int, int]]:
    request = messages.decode_request(ApiKey.OFFSET_COMMIT, version, frame, read_header(frame).body_offset)
    return [
        (topic.name, each.partition_index, each.committed_offset, each.committed_leader_epoch)
        for topic in request.topics
        for each in topic.partitions
    ]


@given(VERSIONS, PARTITIONS, st.data())
def test_a_frame_of_the_same_shape_gives_the_records_of_its_numbers(
    version: int, partitions: dict[tuple[str, int], str | None], data: st.DataObject
) -> None:
    numbers = st.lists(NUMBERS, min_size=len(partitions), max_size=len(partitions))
    shape = shape_of(version, frame_of(version, partitions, data.draw(numbers)))
    commits = Commits()
    commits.now_ms = 1_700_000_000_000
    frames = [frame_of(version, partitions, data.draw(numbers)) for _ in range(2)]
    for frame in frames:
        rows = shape.match(memoryview(frame))
        assert rows is not None
        commits.add(OffsetBlock(shape, rows, commits.now_ms), None)  # type: ignore[arg-type]
    for codec in range(5):
        batch = commits.batch(codec)
        header = read_batch_header(batch)
        assert crc_is_valid(batch, 0, header) and header.count == 2 * shape.count and header.codec == codec
        records = [*iterate_records(batch)]
        assert [record.offset for record in records] == [*range(header.count)]
        expected = [record for block, _ in commits.entries for record in block.records()]
        assert [decode_record(record.key or b"", record.value) for record in records] == expected
        assert [(record.key, record.value) for record in records] == [
            (encode_key(key), encode_value(value)) for key, value in expected
        ]
    found: list[tuple[str, int, int, int]] = []
    for key, value in expected:
        assert isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue)
        found.append((key.topic, key.partition, value.offset, value.leader_epoch))
    assert found == [row for frame in frames for row in decoded(version, frame)]


@given(VERSIONS, PARTITIONS, st.data())
def test_a_frame_that_differs_elsewhere_is_of_another_shape(
    version: int, partitions: dict[tuple[str, int], str | None], data: st.DataObject
) -> None:
    frame = frame_of(version, partitions, [(1, 2)] * len(partitions))
    shape = shape_of(version, frame)
    changed = bytearray(frame)
    at = data.draw(st.integers(8, len(frame) - 1))
    changed[at] = data.draw(st.integers(0, 255))
    assume(changed != frame)
    starts = offset_positions(version, frame, read_header(frame).body_offset)
    is_number = any(start <= at < start + 12 for start in starts)
    assert (shape.match(memoryview(changed)) is not None) == is_number
    assert shape.match(memoryview(frame)[:-1]) is None
