"""The internal records' codec: against kio's encoding of the same schemas, whole, truncated and with more behind."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_protocol_subscription.v3 import data as kio_subscription
from kio.schema.voters_record.v0 import data as kio_voters
from kio.serial import entity_writer

from ottla.model import ZERO_UUID
from ottla.protocol import schemas
from ottla.protocol.internal.codec import MalformedRecord, UnsupportedVersion, decode, decode_from, encode
from ottla.protocol.schemas.records import (
    ConsumerProtocolSubscription,
    KRaftVersionRange,
    NoOpRecord,
    TopicNumbers,
    Voter,
    VoterEndpoint,
    VotersRecord,
)

TAGGED = (
    "Tagged data - 0-2 0+: Id int64 0+; Epoch int32 1+ =-1; Isr []int32 0+ ?0+ #1@0+ =null; Rack string 0+ ?0+ #0@0+ "
    "=null; Range Range 0+ ?0+ =null {Low int16 0+; High int16 0+}; Weight float64 2+ ~; Ok bool 0+ #2@1+; "
    "Key bytes 0+ *"
)
Tagged: Any = schemas.class_of(schemas.parsed(TAGGED))
Range = schemas.struct_class(Tagged, "range")


def kio_bytes(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


TEXT = st.text(max_size=200)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)

endpoints = st.builds(VoterEndpoint, name=TEXT, host=TEXT, port=st.integers(0, 65535))
voters = st.builds(
    Voter,
    voter_id=INT32,
    voter_directory_id=st.uuids(),
    endpoints=st.lists(endpoints, max_size=3).map(tuple),
    kraft_version_feature=st.builds(KRaftVersionRange, min_supported_version=INT16, max_supported_version=INT16),
)
subscriptions = st.builds(
    ConsumerProtocolSubscription,
    topics=st.lists(TEXT, max_size=3).map(tuple),
    user_data=st.none() | st.binary(max_size=300),
    owned_partitions=st.lists(
        st.builds(TopicNumbers, topic=TEXT, partitions=st.lists(INT32, max_size=5).map(tuple)), max_size=3
    ).map(tuple),
    generation_id=INT32,
    rack_id=st.none() | TEXT,
)
tagged = st.builds(
    Tagged,
    id=st.integers(-(2**63), 2**63 - 1),
    epoch=INT32,
    isr=st.none() | st.lists(INT32, max_size=5).map(tuple),
    rack=st.none() | TEXT,
    range=st.none() | st.builds(Range, low=INT16, high=INT16),
    weight=st.floats(allow_nan=False),
    ok=st.booleans(),
)


@given(st.lists(voters, max_size=3), INT16)
def test_flexible_records_are_encoded_as_kio_does(items: list[Voter], version: int) -> None:
    ours = VotersRecord(version, tuple(items))
    theirs = kio_voters.VotersRecord(
        version=version,
        voters=tuple(
            kio_voters.Voter(
                voter_id=item.voter_id,
                voter_directory_id=None if item.voter_directory_id == ZERO_UUID else item.voter_directory_id,
                endpoints=tuple(kio_voters.Endpoint(name=e.name, host=e.host, port=e.port) for e in item.endpoints),
                k_raft_version_feature=kio_voters.KRaftVersionFeature(
                    min_supported_version=item.kraft_version_feature.min_supported_version,
                    max_supported_version=item.kraft_version_feature.max_supported_version,
                ),
            )
            for item in items
        ),
    )
    data = encode(ours, 0)
    assert data == kio_bytes(theirs)
    assert decode(VotersRecord, 0, data) == ours


@given(subscriptions)
def test_old_style_records_are_encoded_as_kio_does(ours: ConsumerProtocolSubscription) -> None:
    theirs = kio_subscription.ConsumerProtocolSubscription(
        topics=ours.topics,
        user_data=ours.user_data,
        owned_partitions=tuple(
            kio_subscription.TopicPartition(topic=item.topic, partitions=item.partitions)
            for item in ours.owned_partitions
        ),
        generation_id=ours.generation_id,
        rack_id=ours.rack_id,
    )
    data = encode(ours, 3)
    assert data == kio_bytes(theirs)
    assert decode(ConsumerProtocolSubscription, 3, data) == ours


@given(tagged)
def test_tagged_and_nullable_fields_come_back(record: Any) -> None:
    assert decode(Tagged, 2, encode(record, 2)) == record


def test_tagged_fields_at_their_default_take_no_bytes() -> None:
    assert encode(Tagged(id=1), 1) == bytes(7) + b"\x01" + b"\xff" * 4 + b"\xff\x01\x00"
    assert encode(Tagged(id=1, epoch=0, rack="a"), 1).endswith(b"\xff\x01\x01\x00\x02\x02a")


def test_fields_that_a_version_lacks_are_refused_unless_ignorable() -> None:
    with pytest.raises(UnsupportedVersion, match="epoch"):
        encode(Tagged(epoch=3), 0)
    assert decode(Tagged, 0, encode(Tagged(weight=2.0), 0)) == Tagged()
    assert (
        decode(
            ConsumerProtocolSubscription, 1, encode(ConsumerProtocolSubscription(("a",), generation_id=4), 1)
        ).generation_id
        == -1
    )


def test_null_where_a_version_has_none_is_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        encode(VoterEndpoint(name=None), 0)  # type: ignore[arg-type]
    with pytest.raises(MalformedRecord):
        decode(VoterEndpoint, 0, b"\x00\x01\x00\x00\x00")


def test_unknown_tagged_fields_are_skipped() -> None:
    data = encode(VoterEndpoint("n", "h", 9), 0)[:-1] + b"\x02\x05\x01x\x07\x00"
    assert decode(VoterEndpoint, 0, data) == VoterEndpoint("n", "h", 9)


@given(tagged)
def test_every_truncation_is_malformed(record: Any) -> None:
    data = encode(record, 2)
    for length in range(len(data)):
        with pytest.raises(MalformedRecord):
            decode(Tagged, 2, data[:length])
    with pytest.raises(MalformedRecord, match="left over"):
        decode(Tagged, 2, data + b"\0")
    assert decode_from(Tagged, 2, memoryview(b"##" + data + b"##"), 2) == (record, len(data) + 2)


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_malformed(data: bytes) -> None:
    for cls, version in ((VotersRecord, 0), (ConsumerProtocolSubscription, 3), (Tagged, 2)):
        try:
            record, _ = decode_from(cls, version, data)
        except MalformedRecord:
            continue
        assert decode(cls, version, encode(record, version)) == record or "nan" in repr(record)


def test_huge_counts_cost_nothing() -> None:
    with pytest.raises(MalformedRecord):
        decode(ConsumerProtocolSubscription, 0, b"\x7f\xff\xff\xff")
    with pytest.raises(MalformedRecord):
        decode(VotersRecord, 0, b"\0\0\xff\xff\xff\xff\x0f")


INTERPRETED = """
import ottla.protocol.reader
from ottla.protocol.internal.codec import decode, encode
from ottla.protocol.schemas.records import StateBatch
assert ottla.protocol.reader.__file__.endswith(".py")
batch = StateBatch(1, 2, 3, 4)
assert decode(StateBatch, 0, encode(batch, 0)) == batch
"""


def test_records_are_read_where_nothing_is_compiled() -> None:
    environment = {**os.environ, "OTTLA_INTERPRETED": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, check=True)


def test_records_are_values() -> None:
    """Equal and hashed by what is in them, shown without secrets, and copied with changes."""
    record = Tagged(1, key=b"secret")
    assert record == Tagged(id=1, key=b"secret") != Tagged(1) and hash(record) == hash(Tagged(1, key=b"secret"))
    assert record != NoOpRecord() == NoOpRecord() and hash(NoOpRecord()) == hash(NoOpRecord())
    assert record.replaced(ok=True, epoch=2) == Tagged(1, 2, None, None, None, 0.0, True, b"secret")
    assert copy.deepcopy(record) == record and pickle.loads(pickle.dumps(VoterEndpoint("n"))) == VoterEndpoint("n")
    assert "epoch=-1" in repr(record) and "secret" not in repr(record)
    with pytest.raises(TypeError, match="epohc"):
        record.replaced(epohc=1)
    with pytest.raises(ImportError):
        from ottla.protocol.schemas.records import Tagged as _  # type: ignore[attr-defined]  # noqa: F401
