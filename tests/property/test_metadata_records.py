"""Metadata records and images: to bytes and back, in every version."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.loader import MetadataLoader
from ottla.metadata.writer import encode, image_records
from ottla.protocol import schemas
from ottla.protocol.internal.codec import MalformedRecord, UnsupportedVersion
from ottla.protocol.internal.metadata_records import decode_record, encode_record
from ottla.protocol.schemas import records as r
from ottla.quorum.snapshot import SnapshotId, read_snapshot, write_snapshot
from tests.record_values import values_of
from tests.unit.metadata.images import apply, broker_records, feature_records, topic_records

_NAMES = schemas.by_key("metadata", "(?!Remote(Log|Partition))").values()
_ANY = st.sampled_from([schemas.message_class(name) for name in _NAMES]).flatmap(values_of)


def newest(record: Any) -> int:
    return schemas.schema(type(record).__name__).versions[1]


@given(_ANY)
def test_the_newest_version_says_everything(record: Any) -> None:
    version = newest(record)
    assert decode_record(encode_record(record, version)) == (record, version)


@given(_ANY, st.integers(0, 4))
def test_older_versions_say_the_same_after_a_second_round(record: Any, version: int) -> None:
    version = min(version, newest(record))
    try:
        data = encode_record(record, version)
    except UnsupportedVersion:
        return
    again, _ = decode_record(data)
    assert encode_record(again, version) == data


@given(_ANY, st.data())
def test_truncated_and_prolonged_records_are_refused(record: Any, data: st.DataObject) -> None:
    encoded = encode_record(record, newest(record))
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(MalformedRecord):
        decode_record(encoded[:cut])
    with pytest.raises(MalformedRecord):
        decode_record(encoded + b"\0")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_malformed(data: bytes) -> None:
    try:
        record, version = decode_record(data)
    except MalformedRecord:
        return
    encode_record(record, version)


@pytest.mark.parametrize("data", [b"", b"\x02\x02\0", b"\x01\x06\0\0", b"\x01\x7f\0\0", b"\x01\x02\x01\0"])
def test_frames_of_another_time_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_record(data)


@st.composite
def _images(draw: st.DrawFn) -> MetadataImage:
    records = feature_records()
    for node_id in draw(st.sets(st.integers(1, 5), max_size=3)):
        records += broker_records(node_id, rack=draw(st.none() | st.text(max_size=3)), fenced=draw(st.booleans()))
    for number, name in enumerate(draw(st.sets(st.text("abc.", min_size=1, max_size=4), max_size=5))):
        elr = draw(st.sampled_from([None, (2,), (2, 3)]))
        records += topic_records(name, 1000 + number, draw(st.integers(1, 4)), eligible_leader_replicas=elr)
        for key, value in draw(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)).items():
            records.append(r.ConfigRecord(2, name, key, value))
    records.append(r.ProducerIdsRecord(1, 1, draw(st.integers(0, 10**6))))
    records += draw(st.lists(values_of(r.AccessControlEntryRecord), max_size=2))
    records += draw(st.lists(values_of(r.UserScramCredentialRecord), max_size=2))
    return apply(records)


@given(_images())
def test_a_snapshot_of_an_image_gives_the_image(image: MetadataImage) -> None:
    level = features.metadata_version(image.features)
    values = [encode(record, level) for record in image_records(image)]
    snapshot = SnapshotId(image.offset + 1, image.epoch)
    data = b"".join(write_snapshot(values, epoch=snapshot.epoch, last_timestamp=image.timestamp_ms, now=5))
    loader = MetadataLoader(MetadataDelta(EMPTY_IMAGE))
    for header, items in read_snapshot(data):
        loader.add(header, items, snapshot)
    again = loader.image()
    assert again == image
    assert UUID(int=1) not in again.topics_by_id
