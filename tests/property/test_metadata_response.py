"""The hand-written Metadata response against kio's, in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.metadata import Broker, Partition, Topic, encode_in_steps
from ottla.steps import at_once

int32 = st.integers(-(2**31), 2**31 - 1)
nodes = st.lists(int32, max_size=4).map(tuple)
codes = st.sampled_from([ErrorCode.none, ErrorCode.leader_not_available, ErrorCode.unknown_server_error])
names = st.text(max_size=200)
brokers = st.builds(Broker, int32, names, st.integers(0, 65535), st.none() | names)
partitions = st.builds(Partition, codes, int32, int32, int32, nodes, nodes, nodes)
topics = st.builds(
    Topic, codes, names, st.uuids() | st.just(ZERO_UUID), st.booleans(), st.lists(partitions, max_size=3), int32
)


def by_hand(version: int, values: dict[str, Any]) -> bytes:
    return at_once(encode_in_steps(version, topic_count=len(values["topics"]), **values))


def by_kio(version: int, values: dict[str, Any]) -> bytes:
    """The same response through kio's writers."""
    topics = [
        {
            **topic._asdict(),
            "topic_authorized_operations": topic.authorized_operations,
            "partitions": [
                {
                    "error_code": each.error_code,
                    "partition_index": each.number,
                    "leader_id": each.leader_id,
                    "leader_epoch": each.leader_epoch,
                    "replica_nodes": each.replicas,
                    "isr_nodes": each.isr,
                    "offline_replicas": each.offline,
                }
                for each in topic.partitions
            ],
        }
        for topic in values["topics"]
    ]
    body = {**values, "brokers": [each._asdict() for each in values["brokers"]], "topics": topics}
    frame = messages.encode_response(ApiKey.METADATA, version, 1, body)
    return frame[len(messages.response_header(ApiKey.METADATA, version, 1)) :]


@pytest.mark.parametrize("version", range(14))
@settings(max_examples=25)
@given(
    brokers=st.lists(brokers, max_size=3),
    cluster_id=st.none() | names,
    controller_id=int32,
    topics=st.lists(topics, max_size=3),
    cluster_authorized_operations=int32,
    error_code=codes,
)
def test_equal_bytes(version: int, **values: Any) -> None:
    assert by_hand(version, values) == by_kio(version, values)


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_without_a_name(version: int) -> None:
    values: dict[str, Any] = {
        "brokers": [], "cluster_id": None, "controller_id": -1, "cluster_authorized_operations": 0,
        "topics": [Topic(ErrorCode.unknown_topic_id, None, ZERO_UUID, False, (), 0)],
    }  # fmt: skip
    assert by_hand(version, values) == by_kio(version, values)
