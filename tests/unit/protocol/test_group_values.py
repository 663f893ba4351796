"""The values of the records of consumer, share and streams groups: Kafka's bytes, hostile bytes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ottla.protocol.internal.consumer_group_records import CONSUMER_GROUP_VALUES
from ottla.protocol.internal.share_group_records import SHARE_GROUP_VALUES
from ottla.protocol.internal.streams_group_records import STREAMS_GROUP_VALUES

from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.group_values import GroupValue, decode_group_value, encode_group_value
from ottla.protocol.schemas import records as consumer
from ottla.protocol.schemas import records as share
from ottla.protocol.schemas import records as streams

TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")
TOPIC_HEX = TOPIC.hex
ACTIVE = "0230 02 00000003 01 00 05 02 00000005"
STANDBY = "0231 02 00000001 00"
EXAMPLES: dict[int, tuple[GroupValue, str]] = {
    3: (consumer.ConsumerGroupMetadataValue(5, 7), "0000 00000005 01 00 08 0000000000000007"),
    5: (
        consumer.ConsumerGroupMemberMetadataValue(
            "i", None, "c", "/h", ("t",), "a.*", 9, "uniform",
            consumer.ClassicMemberMetadata(6, (consumer.ClassicProtocol("range", b"\1\2"),)),
        ),
        "0000 0269 00 0263 032f68 02 0274 04612e2a 00000009 08756e69666f726d"
        "01 00 11 01 00000006 02 0672616e6765 030102 00 00",
    ),
    -5: (
        consumer.ConsumerGroupMemberMetadataValue(client_id="c", client_host="/h", classic_member_metadata=None),
        "0000 00 00 0263 032f68 01 00 ffffffff 00 01 00 01 00",
    ),
    6: (consumer.ConsumerGroupTargetAssignmentMetadataValue(5), "0000 00000005 00"),
    7: (
        consumer.ConsumerGroupTargetAssignmentMemberValue((consumer.TargetPartitions(TOPIC, (0, 2)),)),
        f"0000 02 {TOPIC_HEX} 03 00000000 00000002 00 00",
    ),
    8: (
        consumer.ConsumerGroupCurrentMemberAssignmentValue(
            5, 4, 1, (consumer.CurrentPartitions(TOPIC, (3,), (5,)),), (consumer.CurrentPartitions(TOPIC, (1,)),)
        ),
        f"0000 00000005 00000004 01 02 {TOPIC_HEX} 02 00000003 01 00 05 02 00000005"
        f"02 {TOPIC_HEX} 02 00000001 00 00",
    ),
    16: (
        consumer.ConsumerGroupRegularExpressionValue(("t",), 3, 4),
        "0000 02 0274 0000000000000003 0000000000000004 00",
    ),
    10: (share.ShareGroupMemberMetadataValue(None, "c", "/h", ("t",)), "0000 00 0263 032f68 02 0274 00"),
    11: (share.ShareGroupMetadataValue(5, 7), "0000 00000005 0000000000000007 00"),
    12: (share.ShareGroupTargetAssignmentMetadataValue(5, 6), "0000 00000005 01 00 08 0000000000000006"),
    14: (
        share.ShareGroupCurrentMemberAssignmentValue(5, 4, 0, (share.SharePartitions(TOPIC, (1,)),)),
        f"0000 00000005 00000004 00 02 {TOPIC_HEX} 02 00000001 00 00",
    ),
    15: (
        share.ShareGroupStatePartitionMetadataValue((share.TopicPartitionsInfo(TOPIC, "t", (1,)),)),
        f"0000 02 {TOPIC_HEX} 0274 02 00000001 00 01 01 00",
    ),
    17: (streams.StreamsGroupMetadataValue(5, 7), "0000 00000005 0000000000000007 00"),
    -17: (
        streams.StreamsGroupMetadataValue(5, 7, 3, (streams.LastAssignmentConfig("num.standby.replicas", "1"),)),
        "0000 00000005 0000000000000007 02 00 04 00000003"
        "01 19 02 156e756d2e7374616e6462792e7265706c69636173 0231 00",
    ),
    19: (
        streams.StreamsGroupMemberMetadataValue(
            "i", None, "c", "/h", 9, 2, "p", streams.StreamsEndpoint("h", 65535), (streams.KeyValue("zone", "a"),)
        ),
        "0000 0269 00 0263 032f68 00000009 00000002 0270 01 0268 ffff 00 02 057a6f6e65 0261 00 00",
    ),
    -19: (
        streams.StreamsGroupMemberMetadataValue(None, "r", "c", "/h", 9, 2, "p", None, ()),
        "0000 00 0272 0263 032f68 00000009 00000002 0270 ff 01 00",
    ),
    20: (streams.StreamsGroupTargetAssignmentMetadataValue(5, 6), "0000 00000005 01 00 08 0000000000000006"),
    21: (
        streams.StreamsGroupTargetAssignmentMemberValue(
            (streams.TargetTasks("0", (0, 2)),), (streams.TargetTasks("1", (1,)),), ()
        ),
        "0000 02 0230 03 00000000 00000002 00 02 0231 02 00000001 00 01 00",
    ),
    22: (
        streams.StreamsGroupCurrentMemberAssignmentValue(
            5, 4, 1, (streams.CurrentTasks("0", (3,), (5,)),), (streams.CurrentTasks("1", (1,)),), (),
            (streams.CurrentTasks("0", (3,), (5,)),), (), (streams.CurrentTasks("1", (1,)),),
        ),
        f"0000 00000005 00000004 01 02 {ACTIVE} 02 {STANDBY} 01 02 {ACTIVE} 01 02 {STANDBY} 00",
    ),
    23: (
        streams.StreamsGroupTopologyValue(2, (streams.Subtopology(
            "0", ("t",), (),
            (streams.TopicInfo("g-c", 0, 0, (streams.TopicConfig("cleanup.policy", "compact"),)),),
            ("g-s",), (streams.TopicInfo("g-r", 4, 3, ()),), (streams.CopartitionGroup((0,), (), (0,)),),
        ),)),
        "0000 00000002 02 0230 02 0274 01 02 04672d63 00000000 0000"
        "02 0f636c65616e75702e706f6c696379 08636f6d70616374 00 00"
        "02 04672d73 02 04672d72 00000004 0003 01 00 02 02 0000 01 02 0000 00 00 00",
    ),
}  # fmt: skip


@pytest.mark.parametrize("number", EXAMPLES)
def test_values_are_what_kafka_writes(number: int) -> None:
    value, expected = EXAMPLES[number]
    assert encode_group_value(value).hex() == bytes.fromhex(expected).hex()
    assert decode_group_value(abs(number), bytes.fromhex(expected)) == value


TYPES = {**CONSUMER_GROUP_VALUES, **SHARE_GROUP_VALUES, **STREAMS_GROUP_VALUES}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
UNSIGNED = {"uint16": 16}
SIZES = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def values_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    return st.builds(cls, *(_field(item.metadata["ottla.codec"]) for item in fields(cls)))


def _field(plan: Any) -> st.SearchStrategy[Any]:
    found: st.SearchStrategy[Any]
    if isinstance(plan.type, list):
        found = st.lists(values_of(plan.type[0]), max_size=2).map(tuple)
    elif not isinstance(plan.type, str):
        found = values_of(plan.type)
    elif plan.type.startswith("[]"):
        found = st.lists(_primitive(plan.type[2:]), max_size=3).map(tuple)
    else:
        found = _primitive(plan.type)
    return found if plan.nullable == (0, -1) else st.none() | found


def _primitive(name: str) -> st.SearchStrategy[Any]:
    if name in SIZES:
        half = 2 ** (SIZES[name] - 1)
        return st.integers(-half, half - 1)
    if name in UNSIGNED:
        return st.integers(0, 2 ** UNSIGNED[name] - 1)
    return {"string": TEXT, "uuid": st.uuids(), "bytes": st.binary(max_size=9)}[name]


@given(st.sampled_from(sorted(TYPES)), st.data())
def test_values_survive(number: int, data: st.DataObject) -> None:
    value = data.draw(values_of(TYPES[number]))
    assert decode_group_value(number, encode_group_value(value)) == value


@given(st.sampled_from(sorted(TYPES)), st.data())
def test_cut_or_changed_bytes_are_malformed_and_nothing_else(number: int, data: st.DataObject) -> None:
    encoded = encode_group_value(data.draw(values_of(TYPES[number])))
    cut = data.draw(st.integers(0, len(encoded)))
    try:
        decode_group_value(number, encoded[:cut] + data.draw(st.binary(max_size=8)))
    except MalformedRecord:
        pass


def test_newer_versions_are_refused() -> None:
    with pytest.raises(MalformedRecord, match="ConsumerGroupMetadataValue in version 1"):
        decode_group_value(3, b"\0\1\0\0\0\1\0")
