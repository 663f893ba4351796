"""The records of `__consumer_offsets`: bytes that Kafka 4.3 wrote, our encoder against the codec, hostile bytes."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.member import Member, subscribed_topics
from ottla.coordinator.partitioning import partition_for
from ottla.protocol.internal import codec
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.group_records import GroupRecord, ModernKey, decode_record, encode_key, encode_value
from ottla.protocol.schemas.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
MEMBERS = st.builds(MemberMetadata, TEXT, st.none() | TEXT, TEXT, TEXT, INT32, INT32, st.binary(), st.binary())
OFFSETS = st.builds(OffsetCommitValue, INT64, INT32, TEXT, INT64, st.just(-1), st.uuids())
RECORDS = st.one_of(
    st.builds(GroupRecord, st.builds(OffsetCommitKey, TEXT, TEXT, INT32), st.none() | OFFSETS),
    st.builds(
        GroupRecord,
        st.builds(GroupMetadataKey, TEXT),
        st.none()
        | st.builds(
            GroupMetadataValue, TEXT, INT32, st.none() | TEXT, st.none() | TEXT, INT64, st.lists(MEMBERS).map(tuple)
        ),
    ),
)


def test_an_offset_commit_is_what_kafka_writes() -> None:
    key = bytes.fromhex("0001 0005 62372d6731 0003 623774 00000000")
    value = bytes.fromhex(
        "0004 0000000000000005 00000000 026d 000001a1fd2d3827 01 00 10 d9e7996cd29e437eba26b45b6f560c5a"
    )
    record = GroupRecord(
        OffsetCommitKey("b7-g1", "b7t", 0),
        OffsetCommitValue(5, 0, "m", 0x1A1FD2D3827, -1, UUID("d9e7996c-d29e-437e-ba26-b45b6f560c5a")),
    )
    assert (encode_key(record.key), encode_value(record.value)) == (key, value)
    assert decode_record(key, value) == record


@given(RECORDS)
def test_records_survive(record: GroupRecord) -> None:
    assert decode_record(encode_key(record.key), encode_value(record.value)) == record


@given(OFFSETS, st.builds(OffsetCommitKey, TEXT, TEXT, INT32))
def test_encoders_by_hand_agree_with_the_codec(value: OffsetCommitValue, key: OffsetCommitKey) -> None:
    assert encode_value(value) == b"\0\4" + codec.encode(value, 4)
    assert encode_key(key) == b"\0\1" + codec.encode(key, 0)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_values_of_old_versions_are_read(version: int) -> None:
    value = OffsetCommitValue(7, 3, "m", 11, 12)
    decoded = decode_record(
        encode_key(OffsetCommitKey("g", "t", 1)), bytes([0, version]) + codec.encode(value, version)
    )
    assert decoded is not None
    assert decoded.value == OffsetCommitValue(7, 3 if version == 3 else -1, "m", 11, 12 if version == 1 else -1)


def test_values_of_protocols_that_are_not_served_are_left_alone() -> None:
    value = b"\0\0\0\0\0\1\0"
    for key, decoded in ((b"\0\x0b\0\1g", ModernKey(11, "g")), (b"\0\x0d\0\1g\0\1m", ModernKey(13, "g", "m"))):
        assert decode_record(key, value) == GroupRecord(decoded, value)
        assert encode_key(decoded) == key
        assert encode_value(value) == value


def test_types_that_nobody_knows_are_passed_over() -> None:
    for number in (b"\x63", b"\x12"):  # 18 was the partitions of a streams group before Kafka 4.1
        assert decode_record(b"\0" + number + b"\0\1g", b"\0\0") is None


@given(RECORDS, st.data())
def test_cut_or_changed_bytes_are_malformed_and_nothing_else(record: GroupRecord, data: st.DataObject) -> None:
    key, value = encode_key(record.key), encode_value(record.value) or b""
    cut = data.draw(st.integers(0, len(value)))
    extra = data.draw(st.binary(max_size=8))
    for broken_key, broken_value in ((key, value[:cut] + extra), (key[: data.draw(st.integers(0, len(key)))], value)):
        try:
            decode_record(broken_key, broken_value)
        except MalformedRecord:
            pass


def test_groups_hash_as_java_strings_do() -> None:
    # "polygenelubricants" hashes to the least int32, whose absolute value is not one.
    assert [partition_for(name, 50) for name in ("", "b7-g1", "b7-g3", "b7-p2")] == [0, 0, 2, 30]
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("of-stage-0", 3) == 0  # a negative hash, placed by Kafka 4.3
    assert partition_for("h\u00e9llo \U0001f600", 50) == _java("h\u00e9llo \ud83d\ude00")


def _java(units: str) -> int:
    code = 0
    for unit in units:
        code = (31 * code + ord(unit)) % 2**32
    return abs(code - 2**32 if code >= 2**31 else code) % 50


def test_subscriptions() -> None:
    assert subscribed_topics(b"\0\3\0\0\0\2\0\1a\0\2bc\0\0\0\0extra") == frozenset({"a", "bc"})
    for broken in (
        b"",
        b"\0\0",
        b"\xff\xff\0\0\0\0",
        b"\0\0\0\0\0\1",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff",
    ):
        assert subscribed_topics(broken) is None


def test_the_record_of_a_group_has_each_change_of_a_member() -> None:
    protocols, assignments = {"range": b"r", "sticky": b"s"}, {"a": b"1", "b": b"2"}
    group = ClassicGroup("g", 0)
    group.protocol_type, group.protocol_name = "consumer", "range"
    for name in ("a", "b"):
        group.add(Member(name, f"i-{name}", "client", "/host", 1, 2, "consumer", protocols))

    def records() -> list[MemberMetadata]:
        value = group.to_record(assignments).value
        assert isinstance(value, GroupMetadataValue)
        return list(value.members)

    first = records()
    rows = [member.row("range", assignments[name]) for name, member in group.members.items()]
    assert records() == first
    again = [member.row("range", bytes([*assignments[name]])) for name, member in group.members.items()]
    assert all(row is other for row, other in zip(rows, again, strict=True))  # made once
    member = group.members["a"]
    group.update(member, protocols, 3, 4)
    assert (records()[0].rebalance_timeout, records()[0].session_timeout) == (3, 4)
    assignments["a"] = b"3"
    assert records()[0].assignment == b"3"
    group.protocol_name = "sticky"
    assert [each.subscription for each in records()] == [b"s", b"s"]
    assignments["c"] = assignments.pop("a")
    group.replace_static("i-a", "c")
    assert [each.member_id for each in records()] == ["b", "c"]


@pytest.mark.parametrize("protocol", [None, "range"])
def test_the_kept_members_of_a_record_are_what_the_codec_writes(protocol: str | None) -> None:
    group = ClassicGroup("g", 7)
    if protocol is not None:
        group.protocol_type, group.protocol_name = "consumer", protocol
        for number in range(3):
            instance_id = f"i-{number}" if number else None
            protocols = {"range": bytes(number), "other": b"o"}
            group.add(Member(f"m\u00e4-{number}", instance_id, "client", "/host", number, 2, "consumer", protocols))
    kept = group.to_record({"m\u00e4-1": b"assigned"}).value
    assert isinstance(kept, GroupMetadataValue) and len(kept.members) == len(group.members)
    decoded = kept.replaced(members=tuple(kept.members))
    assert kept == decoded and repr(kept) == repr(decoded)
    assert encode_value(kept) == encode_value(decoded)
