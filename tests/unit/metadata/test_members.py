"""The znode of a node that runs: what Kafka's software reads of it, and what nodes read back."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from ottla.metadata import features
from ottla.metadata.image import Endpoint, SecurityProtocol
from ottla.znodes.cluster import decode_broker
from ottla.znodes.members import Member, decode_member, encode_member
from ottla.znodes.tree import BadZnode

PATH = "/brokers/ids/3"
MEMBER = Member(
    3, UUID(int=7), {"IN": Endpoint("host", 9092, SecurityProtocol.SASL_SSL)}, dict(features.SUPPORTED), "rack",
    (UUID(int=100), UUID(int=101)),
)  # fmt: skip


def test_nodes_read_back_what_they_wrote() -> None:
    assert decode_member(PATH, encode_member(MEMBER, 1)) == MEMBER


def test_old_tools_can_read_a_broker() -> None:
    """`SupportedVersionRange` of 2.8 takes no level below 1, and with one such feature no broker at all."""
    assert any(low < 1 for low, _ in features.SUPPORTED.values())
    content = json.loads(encode_member(MEMBER, 1))
    assert all(each["min_version"] >= 1 for each in content["features"].values())
    broker = decode_broker(PATH, encode_member(MEMBER, 1))
    assert (broker.id, broker.rack, broker.endpoints[0].protocol) == (3, "rack", "SASL_SSL")


@pytest.mark.parametrize(
    "ranges", [[], {"a": 1}, {"a": {"min_version": 1}}, {"a": {"min_version": 1, "max_version": "x"}}]
)
def test_damaged_features_are_named(ranges: object) -> None:
    content = json.loads(encode_member(MEMBER, 1))
    content["ottla"]["features"] = ranges
    with pytest.raises(BadZnode, match=PATH):
        decode_member(PATH, json.dumps(content).encode())
