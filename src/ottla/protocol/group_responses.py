"""Responses to groups: JoinGroup, SyncGroup, Heartbeat and ConsumerGroupHeartbeat as coordinators give them.

A rebalance of a thousand members is three thousand of them at once. Names and order of fields are Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.protocol.messages import ApiKey, response_layout
from ottla.protocol.writer import write_struct

_JOIN_GROUP: Final = int(ApiKey.JOIN_GROUP)  # compiled code reads a name fifty times as fast as a member of an enum
_SYNC_GROUP: Final = int(ApiKey.SYNC_GROUP)
_HEARTBEAT: Final = int(ApiKey.HEARTBEAT)
_CONSUMER_GROUP_HEARTBEAT: Final = int(ApiKey.CONSUMER_GROUP_HEARTBEAT)


def encode_join(version: int, response: Mapping[str, Any], header: bytes) -> bytes:
    """The response behind its `header`. Before version 7 a protocol has a name, if an empty one."""
    if version < 7 and response["protocol_name"] is None:
        response = {**response, "protocol_name": ""}
    return _encoded(_JOIN_GROUP, version, response, header)


def encode_sync(version: int, response: Mapping[str, Any], header: bytes) -> bytes:
    """The response behind its `header`."""
    return _encoded(_SYNC_GROUP, version, response, header)


def encode_consumer_heartbeat(version: int, response: Mapping[str, Any], header: bytes) -> bytes:
    """The response behind its `header`. The assignment is None, or partitions by topic id."""
    assigned = response["assignment"]
    if assigned is not None:
        rows = [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in assigned.items()]
        response = {**response, "assignment": {"topic_partitions": rows}}
    return _encoded(_CONSUMER_GROUP_HEARTBEAT, version, response, header)


def _encoded(api_key: int, version: int, response: Mapping[str, Any], header: bytes) -> bytes:
    return write_struct(response_layout(api_key, version), response, header)


def encode_heartbeat(version: int, error: int, header: bytes) -> bytes:
    """The response behind its `header`."""
    return _encoded(_HEARTBEAT, version, {"error_code": error}, header)
