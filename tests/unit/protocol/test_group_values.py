"""The values of the records of consumer, share and streams groups: Kafka's bytes, hostile bytes."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol import schemas
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.group_values import decode_group_value, encode_group_value
from ottla.protocol.schemas import records
from ottla.protocol.schemas.records import Record
from tests.record_values import values_of

TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")
TOPIC_HEX = TOPIC.hex
ACTIVE = "0230 02 00000003 01 00 05 02 00000005"
STANDBY = "0231 02 00000001 00"
EXAMPLES: dict[int, tuple[Record, str]] = {
    3: (records.ConsumerGroupMetadataValue(5, 7), "0000 00000005 01 00 08 0000000000000007"),
    5: (
        records.ConsumerGroupMemberMetadataValue(
            "i", None, "c", "/h", ("t",), "a.*", 9, "uniform",
            records.ClassicMemberMetadata(6, (records.ClassicProtocol("range", b"\1\2"),)),
        ),
        "0000 0269 00 0263 032f68 02 0274 04612e2a 00000009 08756e69666f726d"
        "01 00 11 01 00000006 02 0672616e6765 030102 00 00",
    ),
    -5: (
        records.ConsumerGroupMemberMetadataValue(client_id="c", client_host="/h", classic_member_metadata=None),
        "0000 00 00 0263 032f68 01 00 ffffffff 00 01 00 01 00",
    ),
    6: (records.ConsumerGroupTargetAssignmentMetadataValue(5), "0000 00000005 00"),
    7: (
        records.ConsumerGroupTargetAssignmentMemberValue((records.TargetPartitions(TOPIC, (0, 2)),)),
        f"0000 02 {TOPIC_HEX} 03 00000000 00000002 00 00",
    ),
    8: (
        records.ConsumerGroupCurrentMemberAssignmentValue(
            5, 4, 1, (records.CurrentPartitions(TOPIC, (3,), (5,)),), (records.CurrentPartitions(TOPIC, (1,)),)
        ),
        f"0000 00000005 00000004 01 02 {TOPIC_HEX} 02 00000003 01 00 05 02 00000005"
        f"02 {TOPIC_HEX} 02 00000001 00 00",
    ),
    16: (
        records.ConsumerGroupRegularExpressionValue(("t",), 3, 4),
        "0000 02 0274 0000000000000003 0000000000000004 00",
    ),
    10: (records.ShareGroupMemberMetadataValue(None, "c", "/h", ("t",)), "0000 00 0263 032f68 02 0274 00"),
    11: (records.ShareGroupMetadataValue(5, 7), "0000 00000005 0000000000000007 00"),
    12: (records.ShareGroupTargetAssignmentMetadataValue(5, 6), "0000 00000005 01 00 08 0000000000000006"),
    14: (
        records.ShareGroupCurrentMemberAssignmentValue(5, 4, 0, (records.SharePartitions(TOPIC, (1,)),)),
        f"0000 00000005 00000004 00 02 {TOPIC_HEX} 02 00000001 00 00",
    ),
    15: (
        records.ShareGroupStatePartitionMetadataValue((records.TopicPartitionsInfo(TOPIC, "t", (1,)),)),
        f"0000 02 {TOPIC_HEX} 0274 02 00000001 00 01 01 00",
    ),
    17: (records.StreamsGroupMetadataValue(5, 7), "0000 00000005 0000000000000007 00"),
    -17: (
        records.StreamsGroupMetadataValue(5, 7, 3, (records.LastAssignmentConfig("num.standby.replicas", "1"),)),
        "0000 00000005 0000000000000007 02 00 04 00000003"
        "01 19 02 156e756d2e7374616e6462792e7265706c69636173 0231 00",
    ),
    19: (
        records.StreamsGroupMemberMetadataValue(
            "i", None, "c", "/h", 9, 2, "p", records.StreamsEndpoint("h", 65535), (records.KeyValue("zone", "a"),)
        ),
        "0000 0269 00 0263 032f68 00000009 00000002 0270 01 0268 ffff 00 02 057a6f6e65 0261 00 00",
    ),
    -19: (
        records.StreamsGroupMemberMetadataValue(None, "r", "c", "/h", 9, 2, "p", None, ()),
        "0000 00 0272 0263 032f68 00000009 00000002 0270 ff 01 00",
    ),
    20: (records.StreamsGroupTargetAssignmentMetadataValue(5, 6), "0000 00000005 01 00 08 0000000000000006"),
    21: (
        records.StreamsGroupTargetAssignmentMemberValue(
            (records.TargetTasks("0", (0, 2)),), (records.TargetTasks("1", (1,)),), ()
        ),
        "0000 02 0230 03 00000000 00000002 00 02 0231 02 00000001 00 01 00",
    ),
    22: (
        records.StreamsGroupCurrentMemberAssignmentValue(
            5, 4, 1, (records.CurrentTasks("0", (3,), (5,)),), (records.CurrentTasks("1", (1,)),), (),
            (records.CurrentTasks("0", (3,), (5,)),), (), (records.CurrentTasks("1", (1,)),),
        ),
        f"0000 00000005 00000004 01 02 {ACTIVE} 02 {STANDBY} 01 02 {ACTIVE} 01 02 {STANDBY} 00",
    ),
    23: (
        records.StreamsGroupTopologyValue(2, (records.Subtopology(
            "0", ("t",), (),
            (records.TopicInfo("g-c", 0, 0, (records.TopicConfig("cleanup.policy", "compact"),)),),
            ("g-s",), (records.TopicInfo("g-r", 4, 3, ()),), (records.CopartitionGroup((0,), (), (0,)),),
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


TYPES = {
    number: getattr(records, name) for number, name in schemas.by_key("coordinator-value", "(C|Sh|St)\\w+Group").items()
}


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
