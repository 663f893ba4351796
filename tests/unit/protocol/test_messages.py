"""Headers, and messages from plain mappings and back."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model import ZERO_UUID
from ottla.protocol import fetch, offset_block, schemas
from ottla.protocol.messages import (
    FLEXIBLE_SINCE,
    REMOVED,
    ApiKey,
    MalformedRequest,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    is_flexible,
    plain,
    read_header,
)

HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}


@pytest.mark.parametrize("client_id", [None, "", "client", "ü" * 300])
@pytest.mark.parametrize("version", [0, 4])
def test_headers_are_read_and_torn_ones_are_malformed(client_id: str | None, version: int) -> None:
    frame = encode_request(ApiKey.HEARTBEAT, version, -5, client_id, HEARTBEAT)
    header = read_header(frame)
    assert header[:4] == (ApiKey.HEARTBEAT, version, -5, client_id)
    assert plain(decode_request(ApiKey.HEARTBEAT, version, frame, header.body_offset))["group_id"] == "g"
    for end in range(header.body_offset):
        with pytest.raises(MalformedRequest):
            read_header(frame[:end])


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_malformed(data: bytes) -> None:
    try:
        assert read_header(data).body_offset <= len(data)
    except MalformedRequest:
        pass


@pytest.mark.parametrize("tags", [b"\xff\xff\xff\xff\x0f", b"\x01\x00\xff\xff\xff\xff\x07", b"\x91\x4e", b"\xff" * 6])
def test_tagged_fields_of_a_header_are_limited(tags: bytes) -> None:
    frame = encode_request(ApiKey.HEARTBEAT, 4, 1, "c", HEARTBEAT)
    with pytest.raises(MalformedRequest):
        read_header(frame[:11] + tags + frame[12:])


def test_requests_are_read_from_the_buffer_of_a_connection() -> None:
    frame = encode_request(ApiKey.HEARTBEAT, 4, 1, "c", HEARTBEAT)
    for buffer in (bytearray(frame), memoryview(bytearray(frame)), memoryview(frame)):
        assert decode_request(ApiKey.HEARTBEAT, 4, buffer, read_header(buffer).body_offset).member_id == "m"


def test_names_that_a_version_lacks_are_dropped_and_missing_ones_defaulted() -> None:
    topic = {"name": "t", "topic_id": UUID(int=5), "partitions": [{"partition_index": 0, "leader_id": 1}]}
    values = {"brokers": [], "cluster_id": "c", "controller_id": 1, "topics": [topic]}
    for version in (1, 8, 13):
        frame = encode_response(ApiKey.METADATA, version, 3, values)
        correlation_id, response = decode_response(ApiKey.METADATA, version, frame)
        assert correlation_id == 3
        assert response.topics[0].partitions[0].replica_nodes == ()
        assert response.topics[0].topic_id == (UUID(int=5) if version >= 10 else ZERO_UUID)


def test_a_message_becomes_plain() -> None:
    frame = encode_response(ApiKey.HEARTBEAT, 4, 3, {"throttle_time": 250, "error_code": 27})
    assert plain(decode_response(ApiKey.HEARTBEAT, 4, frame)[1]) == {"throttle_time": 250, "error_code": 27}


def test_flexible_versions() -> None:
    assert is_flexible(ApiKey.PRODUCE, 9) and not is_flexible(ApiKey.PRODUCE, 8)
    assert not is_flexible(ApiKey.SASL_HANDSHAKE, 1)
    assert is_flexible(ApiKey.DESCRIBE_CLUSTER, 0)
    assert encode_response(ApiKey.API_VERSIONS, 3, 1, {"api_keys": []})[:4] == b"\0\0\0\1"


@pytest.mark.parametrize("key", ApiKey, ids=lambda key: key.name)
def test_flexible_versions_are_those_of_the_schemas(key: ApiKey) -> None:
    """They are written down twice: a header is read before a node has loaded the table of schemas."""
    for kind in ("request", "response"):
        name = schemas.api_message(kind, key)
        for each in {name, name + REMOVED} & {*schemas.names(), *schemas.names("3.9")}:
            versions, flexible = schemas.schema(each).versions, schemas.schema(each).flexible
            for version in range(versions[0], versions[1] + 1):
                assert is_flexible(key, version) == (flexible[0] <= version <= flexible[1]), (each, version)


def test_codecs_by_hand_are_flexible_when_the_schemas_are() -> None:
    assert FLEXIBLE_SINCE[ApiKey.FETCH] == fetch.FLEXIBLE_SINCE
    assert FLEXIBLE_SINCE[ApiKey.OFFSET_COMMIT] == offset_block.FLEXIBLE_SINCE
