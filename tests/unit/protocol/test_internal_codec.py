"""The internal records' codec: against kio's encoding of the same schemas, whole, truncated and with more behind."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_protocol_subscription.v3 import data as kio_subscription
from kio.schema.voters_record.v0 import data as kio_voters
from kio.serial import entity_writer

from ottla.model import ZERO_UUID
from ottla.protocol.internal.codec import MalformedRecord, UnsupportedVersion, decode, decode_from, encode, spec


@dataclass(slots=True)
class Endpoint:
    name: str = spec("string")
    host: str = spec("string")
    port: int = spec("uint16")


@dataclass(slots=True)
class VersionRange:
    min_supported_version: int = spec("int16")
    max_supported_version: int = spec("int16")


@dataclass(slots=True)
class Voter:
    voter_id: int = spec("int32")
    voter_directory_id: UUID = spec("uuid")
    endpoints: tuple[Endpoint, ...] = spec([Endpoint])
    k_raft_version_feature: VersionRange = spec(VersionRange)


@dataclass(slots=True)
class Voters:
    version: int = spec("int16")
    voters: tuple[Voter, ...] = spec([Voter])


@dataclass(slots=True)
class Owned:
    topic: str = spec("string")
    partitions: tuple[int, ...] = spec("[]int32")


@dataclass(slots=True)
class Subscription:
    FLEXIBLE: ClassVar[str] = "none"
    topics: tuple[str, ...] = spec("[]string")
    user_data: bytes | None = spec("bytes", nullable="0+", default=None)
    owned_partitions: tuple[Owned, ...] = spec([Owned], versions="1+", ignorable=True)
    generation_id: int = spec("int32", versions="2+", default=-1, ignorable=True)
    rack_id: str | None = spec("string", versions="3+", nullable="3+", default=None)


@dataclass(slots=True)
class Tagged:
    id: int = spec("int64")
    epoch: int = spec("int32", versions="1+", default=-1)
    isr: tuple[int, ...] | None = spec("[]int32", tag=1, nullable="0+", default=None)
    rack: str | None = spec("string", tag=0, nullable="0+", default=None)
    range: VersionRange | None = spec(VersionRange, nullable="0+", default=None)
    weight: float = spec("float64", versions="2+", ignorable=True)
    ok: bool = spec("bool", tag=2, tagged="1+")


def kio_bytes(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


TEXT = st.text(max_size=200)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)

endpoints = st.builds(Endpoint, name=TEXT, host=TEXT, port=st.integers(0, 65535))
voters = st.builds(
    Voter,
    voter_id=INT32,
    voter_directory_id=st.uuids(),
    endpoints=st.lists(endpoints, max_size=3).map(tuple),
    k_raft_version_feature=st.builds(VersionRange, min_supported_version=INT16, max_supported_version=INT16),
)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(TEXT, max_size=3).map(tuple),
    user_data=st.none() | st.binary(max_size=300),
    owned_partitions=st.lists(
        st.builds(Owned, topic=TEXT, partitions=st.lists(INT32, max_size=5).map(tuple)), max_size=3
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
    range=st.none() | st.builds(VersionRange, min_supported_version=INT16, max_supported_version=INT16),
    weight=st.floats(allow_nan=False),
    ok=st.booleans(),
)


@given(st.lists(voters, max_size=3), INT16)
def test_flexible_records_are_encoded_as_kio_does(items: list[Voter], version: int) -> None:
    ours = Voters(version, tuple(items))
    theirs = kio_voters.VotersRecord(
        version=version,
        voters=tuple(
            kio_voters.Voter(
                voter_id=item.voter_id,
                voter_directory_id=None if item.voter_directory_id == ZERO_UUID else item.voter_directory_id,
                endpoints=tuple(kio_voters.Endpoint(name=e.name, host=e.host, port=e.port) for e in item.endpoints),
                k_raft_version_feature=kio_voters.KRaftVersionFeature(
                    min_supported_version=item.k_raft_version_feature.min_supported_version,
                    max_supported_version=item.k_raft_version_feature.max_supported_version,
                ),
            )
            for item in items
        ),
    )
    data = encode(ours, 0)
    assert data == kio_bytes(theirs)
    assert decode(Voters, 0, data) == ours


@given(subscriptions)
def test_old_style_records_are_encoded_as_kio_does(ours: Subscription) -> None:
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
    assert decode(Subscription, 3, data) == ours


@given(tagged)
def test_tagged_and_nullable_fields_come_back(record: Tagged) -> None:
    assert decode(Tagged, 2, encode(record, 2)) == record


def test_tagged_fields_at_their_default_take_no_bytes() -> None:
    assert encode(Tagged(id=1), 1) == bytes(7) + b"\x01" + b"\xff" * 4 + b"\xff" + b"\x00"
    assert encode(Tagged(id=1, epoch=0, rack="a"), 1).endswith(b"\xff\x01\x00\x02\x02a")


def test_fields_that_a_version_lacks_are_refused_unless_ignorable() -> None:
    with pytest.raises(UnsupportedVersion, match="epoch"):
        encode(Tagged(epoch=3), 0)
    assert decode(Tagged, 0, encode(Tagged(weight=2.0), 0)) == Tagged()
    assert decode(Subscription, 1, encode(Subscription(("a",), generation_id=4), 1)).generation_id == -1


def test_null_where_a_version_has_none_is_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        encode(Endpoint(name=None), 0)  # type: ignore[arg-type]
    with pytest.raises(MalformedRecord):
        decode(Endpoint, 0, b"\x00\x01\x00\x00\x00")


def test_unknown_tagged_fields_are_skipped() -> None:
    data = encode(Endpoint("n", "h", 9), 0)[:-1] + b"\x02\x05\x01x\x07\x00"
    assert decode(Endpoint, 0, data) == Endpoint("n", "h", 9)


@given(tagged)
def test_every_truncation_is_malformed(record: Tagged) -> None:
    data = encode(record, 2)
    for length in range(len(data)):
        with pytest.raises(MalformedRecord):
            decode(Tagged, 2, data[:length])
    with pytest.raises(MalformedRecord, match="left over"):
        decode(Tagged, 2, data + b"\0")
    assert decode_from(Tagged, 2, memoryview(b"##" + data + b"##"), 2) == (record, len(data) + 2)


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_malformed(data: bytes) -> None:
    for cls, version in ((Voters, 0), (Subscription, 3), (Tagged, 2)):
        try:
            record, _ = decode_from(cls, version, data)
        except MalformedRecord:
            continue
        assert decode(cls, version, encode(record, version)) == record or "nan" in repr(record)


def test_huge_counts_cost_nothing() -> None:
    with pytest.raises(MalformedRecord):
        decode(Subscription, 0, b"\x7f\xff\xff\xff")
    with pytest.raises(MalformedRecord):
        decode(Voters, 0, b"\0\0\xff\xff\xff\xff\x0f")


FROZEN = """
import ottla.protocol.reader
from ottla.protocol.internal.codec import decode, encode
from ottla.protocol.internal.share_records import StateBatch
assert ottla.protocol.reader.__file__.endswith(".py")
batch = StateBatch(1, 2, 3, 4)
assert decode(StateBatch, 0, encode(batch, 0)) == batch
"""


def test_frozen_records_are_read_where_nothing_is_compiled() -> None:
    environment = {**os.environ, "OTTLA_INTERPRETED": "1"}
    subprocess.run([sys.executable, "-c", FROZEN], env=environment, check=True)
