"""Requests and responses of every API, by Kafka's own definitions (`schemas`).

A request is an object of one class for all versions. Handlers answer in plain mappings with the same field names:
fields which the client's version lacks are dropped, fields left out have their default. Answers to Fetch have a codec
of their own (`fetch_responses.py`).
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Generator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from ottla.model import Buffer
from ottla.protocol import schemas
from ottla.protocol.layout import ROW_COST, STEP_COST, STRING_BYTES_MAX, TAGS_MAX, Layout, Malformed, TooLong
from ottla.protocol.reader import Reader, read_request, read_struct
from ottla.protocol.schemas import OWN_API_MIN as OWN_API_MIN
from ottla.protocol.schemas import REMOVED as REMOVED
from ottla.protocol.schemas import Message
from ottla.protocol.varint import read_uvarint
from ottla.protocol.writer import Writer, has_more_rows, write_parts, write_struct


class ApiKey(enum.IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94
    LIST_CLIENTS = 20_000
    DISCONNECT_CLIENTS = 20_001
    DESCRIBE_LOST_LETTERS = 20_002
    STORE_USER_SCRAM_CREDENTIALS = 20_003
    DESCRIBE_SHARE_PARTITIONS = 20_004


class MalformedRequest(ValueError):
    """Bytes that are no request of the claimed API and version; the connection that sent them is closed."""


class RemovedVersion(MalformedRequest):
    """A version that is advertised for clients' sake, and refused where it is not enabled."""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int
    """Where the body starts in the frame."""


LONG_BYTES: Final = 4096
"""What is longer is decoded in steps: it may have a thousand rows, each of which costs far more than its bytes."""
LONG_ROWS: Final = 250
"""What has more is encoded in steps."""

Steps = Generator[int, None, Any]

_REQUEST_HEADER = struct.Struct(">hhih")
_HEADER = struct.Struct(">i")
_FLEXIBLE_HEADER = struct.Struct(">ix")

_FLEXIBLE_SINCE: dict[int, int] = {
    ApiKey.PRODUCE: 9, ApiKey.FETCH: 12, ApiKey.LIST_OFFSETS: 6, ApiKey.METADATA: 9, ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 6, ApiKey.FIND_COORDINATOR: 3, ApiKey.JOIN_GROUP: 6, ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4, ApiKey.SYNC_GROUP: 4, ApiKey.DESCRIBE_GROUPS: 5, ApiKey.LIST_GROUPS: 3,
    ApiKey.API_VERSIONS: 3, ApiKey.CREATE_TOPICS: 5, ApiKey.DELETE_TOPICS: 4, ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 2, ApiKey.OFFSET_FOR_LEADER_EPOCH: 4, ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3, ApiKey.END_TXN: 3, ApiKey.WRITE_TXN_MARKERS: 1, ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.DESCRIBE_ACLS: 2, ApiKey.CREATE_ACLS: 2, ApiKey.DELETE_ACLS: 2, ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2, ApiKey.ALTER_REPLICA_LOG_DIRS: 2, ApiKey.DESCRIBE_LOG_DIRS: 2,
    ApiKey.SASL_AUTHENTICATE: 2, ApiKey.CREATE_PARTITIONS: 2, ApiKey.CREATE_DELEGATION_TOKEN: 2,
    ApiKey.RENEW_DELEGATION_TOKEN: 2, ApiKey.EXPIRE_DELEGATION_TOKEN: 2, ApiKey.DESCRIBE_DELEGATION_TOKEN: 2,
    ApiKey.DELETE_GROUPS: 2, ApiKey.ELECT_LEADERS: 2, ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1, ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.VOTE: 0, ApiKey.BEGIN_QUORUM_EPOCH: 1, ApiKey.END_QUORUM_EPOCH: 1,
    ApiKey.SASL_HANDSHAKE: 32_767, ApiKey.OFFSET_DELETE: 32_767,
}  # fmt: skip
FLEXIBLE_SINCE: Mapping[int, int] = {int(key): version for key, version in _FLEXIBLE_SINCE.items()}
"""First flexible version (KIP-482) by API. SaslHandshake and OffsetDelete never are, newer APIs not named always. Keys
are plain integers: looking up a member of an `IntEnum` compares it each time."""


def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version has compact lengths and tagged fields, and so a version 2 request header (KIP-482)."""
    return version >= FLEXIBLE_SINCE.get(api_key, 0)


def skip_tagged_fields(buffer: Buffer, position: int) -> int:
    """The position after the tagged fields at `position`. Raises MalformedRequest or IndexError."""
    count, position = read_uvarint(buffer, position)
    if count > TAGS_MAX:
        raise MalformedRequest(f"{count} tagged fields")
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        length, position = read_uvarint(buffer, position)
        position += length
        if position > len(buffer):
            raise MalformedRequest("tagged field past the end of the request")
    return position


def read_header(frame: Buffer) -> RequestHeader:
    """Parse the request header (v1 or v2, by API and version) at the start of a frame without its length prefix.

    Raises MalformedRequest. The client id is a legacy string in both header versions.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        position = 10
        client_id: str | None = None
        if length >= 0:
            end = position + length
            if end > len(frame):
                raise MalformedRequest("client id past the end of the request")
            client_id = str(frame[position:end], "utf-8", "replace")
            if length > STRING_BYTES_MAX // 3 and len(client_id.encode()) > STRING_BYTES_MAX:
                raise MalformedRequest("a long client id that is not UTF-8")
            position = end
        if version >= FLEXIBLE_SINCE.get(api_key, 0):
            position = skip_tagged_fields(frame, position) if frame[position] else position + 1
    except (struct.error, IndexError) as error:
        raise MalformedRequest(f"truncated or garbled request header: {error}") from error
    # RequestHeader() is a function of Python's.
    return tuple.__new__(RequestHeader, (api_key, version, correlation_id, client_id, position))


@cache
def request_layout(api_key: int, version: int) -> Layout:
    """How a request travels, in a version that Kafka 4.0 removed too. Raises KeyError for one that is not there."""
    return _layout("request", api_key, version)


@cache
def response_layout(api_key: int, version: int) -> Layout:
    """How a response travels, in a version that Kafka 4.0 removed too. Raises KeyError for one that is not there."""
    return _layout("response", api_key, version)


def _layout(kind: str, api_key: int, version: int) -> Layout:
    name = schemas.api_message(kind, api_key)
    is_removed = version < schemas.schema(name).versions[0]
    return schemas.layout(name + REMOVED if is_removed else name, version)


def malformed(layout: Layout, version: int, error: Malformed) -> MalformedRequest:
    """`error` with what was to be read."""
    return MalformedRequest(f"{layout.cls.__name__} v{version}: {error}")


def decode_request(api_key: int, version: int, frame: Buffer, body_offset: int) -> Any:
    """The request in `frame` from `body_offset` on; its records are slices of `frame`. Raises MalformedRequest."""
    layout = request_layout(api_key, version)
    try:
        return read_request(layout, frame, body_offset)
    except Malformed as error:
        raise malformed(layout, version, error) from error


def decode_short_request(api_key: int, version: int, frame: Buffer, body_offset: int, items_max: int) -> Any:
    """What `decode_request` gives; None for a request whose arrays have more items than `items_max`."""
    layout = request_layout(api_key, version)
    try:
        return read_request(layout, frame, body_offset, items_max)
    except TooLong:
        return None
    except Malformed as error:
        raise malformed(layout, version, error) from error


def encode_response(api_key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """A response frame without its length prefix: header v0 or v1, then `values` in this version."""
    return write_struct(response_layout(api_key, version), values, response_header(api_key, version, correlation_id))


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Header v1 has (no) tagged fields; ApiVersions always has v0, so that any client can read it (KIP-511)."""
    if version >= FLEXIBLE_SINCE.get(api_key, 0) and api_key != 18:
        return _FLEXIBLE_HEADER.pack(correlation_id)
    return _HEADER.pack(correlation_id)


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Version 1, or 2 where the request is flexible."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    end = b"\0" if version >= FLEXIBLE_SINCE.get(api_key, 0) else b""
    return _REQUEST_HEADER.pack(api_key, version, correlation_id, length) + name + end


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, values: Mapping[str, Any]
) -> bytes:
    """A request frame without its length prefix, as a client sends it."""
    header = request_header(api_key, version, correlation_id, client_id)
    return write_struct(request_layout(api_key, version), values, header)


def request_parts(
    api_key: int, version: int, correlation_id: int, client_id: str | None, values: Mapping[str, Any]
) -> list[Buffer]:
    """The frame of `encode_request` in parts, in which long records are not copied."""
    header = request_header(api_key, version, correlation_id, client_id)
    return write_parts(request_layout(api_key, version), values, header)


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Any]:
    """(correlation id, response) of a frame without its length prefix. Raises MalformedRequest."""
    layout = response_layout(api_key, version)
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    try:
        return correlation_id, read_struct(layout, frame, len(response_header(api_key, version, 0)))
    except Malformed as error:
        raise malformed(layout, version, error) from error


def plain(entity: Any) -> Any:
    """A message as plain dictionaries and lists: for logs and tests."""
    if isinstance(entity, Message):
        return {field.name: plain(getattr(entity, field.name)) for field in entity._schema}
    if isinstance(entity, tuple | list):
        return [plain(item) for item in entity]
    return entity


def decode_request_in_steps(api_key: int, version: int, frame: memoryview, position: int) -> Steps:
    """The request in `frame`, as `decode_request` gives it. Raises MalformedRequest."""
    layout = request_layout(api_key, version)
    return _decode_in_steps(layout, version, Reader(frame, position, slices_records=True))


def decode_response_in_steps(api_key: int, version: int, frame: memoryview) -> Steps:
    """The response in `frame`, which stays as it is, as `decode_response` gives it. Raises
    MalformedRequest."""
    position = len(response_header(api_key, version, 0))
    return _decode_in_steps(response_layout(api_key, version), version, Reader(frame, position))


def _decode_in_steps(layout: Layout, version: int, reader: Reader) -> Steps:
    try:
        return (yield from reader.steps(layout))
    except Malformed as error:
        raise malformed(layout, version, error) from error


def encode_response_in_steps(api_key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> Steps:
    """Like `encode_response`, in steps."""
    header = response_header(api_key, version, correlation_id)
    return _encode_in_steps(header, response_layout(api_key, version), values)


def encode_request_in_steps(
    api_key: int, version: int, correlation_id: int, client_id: str | None, values: Mapping[str, Any]
) -> Steps:
    """Like `encode_request`, in steps."""
    header = request_header(api_key, version, correlation_id, client_id)
    return _encode_in_steps(header, request_layout(api_key, version), values)


def _encode_in_steps(header: bytes, layout: Layout, values: Mapping[str, Any]) -> Steps:
    into = Writer(header)
    yield from into.steps(layout, values)
    return into.done()


def is_long(values: Mapping[str, Any]) -> bool:
    """Whether a message has so many rows, those in rows included, that it is to be encoded in steps."""
    return has_more_rows(values, LONG_ROWS)


def plain_in_steps(entity: Any) -> Steps:
    """What `plain` gives for a message. A mapping is returned as it is."""
    if isinstance(entity, Mapping):
        return entity
    found: dict[str, Any] = {}
    cost = 0
    for field in entity._schema:
        value = getattr(entity, field.name)
        if isinstance(value, tuple):
            rows = []
            for item in value:
                if not isinstance(item, Message):
                    rows.append(item)
                    cost += 1
                else:
                    rows.append((yield from plain_in_steps(item)))
                    cost += 2 * ROW_COST
                if cost > STEP_COST:
                    yield cost
                    cost = 0
            found[field.name] = rows
        else:
            found[field.name] = (yield from plain_in_steps(value)) if isinstance(value, Message) else value
    return found
