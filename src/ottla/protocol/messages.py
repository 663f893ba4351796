"""Requests and responses of every API, through kio's generated schemas.

Handlers speak in plain mappings with the newest version's field names; `build` turns such a mapping into the entity of
the version that the client asked for: fields which that version lacks are dropped, fields left out take the schema's
default. Produce and Fetch have codecs of their own (`produce.py`, `fetch.py`).
"""

from __future__ import annotations

import enum
import importlib
import io
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID, Buffer
from ottla.protocol import limits
from ottla.protocol.varint import read_uvarint, uvarint_size


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
    LIST_CLIENTS = 20_000
    DISCONNECT_CLIENTS = 20_001


OWN_API_MIN = 20_000
"""APIs from here on are Ottla's own (`own_messages.py`). Kafka numbers its APIs one by one."""


class MalformedRequest(ValueError):
    """Bytes that are no request of the claimed API and version; the connection that sent them is closed."""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int
    """Where the body starts in the frame."""


_HEADER_START = struct.Struct(">hhi")
_INT16 = struct.Struct(">h")

FLEXIBLE_SINCE: dict[int, int] = {
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
}  # fmt: skip
"""First flexible version (KIP-482) by API. SaslHandshake and OffsetDelete never are, newer APIs not named always."""

_NEVER_FLEXIBLE = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.OFFSET_DELETE})


def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version has compact lengths and tagged fields, and so a version 2 request header (KIP-482)."""
    return api_key not in _NEVER_FLEXIBLE and version >= FLEXIBLE_SINCE.get(api_key, 0)


TAGGED_FIELDS_MAX = 10_000
"""More tagged fields than any client sends; a request that claims more is an attack on the parser."""


def skip_tagged_fields(buffer: Buffer, position: int) -> int:
    """The position after the tagged fields at `position`. Raises MalformedRequest or IndexError."""
    count, position = read_uvarint(buffer, position)
    if count > TAGGED_FIELDS_MAX:
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
        api_key, version, correlation_id = _HEADER_START.unpack_from(frame)
        (length,) = _INT16.unpack_from(frame, 8)
        position = 10
        client_id: str | None = None
        if length >= 0:
            end = position + length
            if end > len(frame):
                raise MalformedRequest("client id past the end of the request")
            client_id = str(frame[position:end], "utf-8", "replace")
            if length > limits.STRING_BYTES_MAX // 3 and len(client_id.encode()) > limits.STRING_BYTES_MAX:
                raise MalformedRequest("a long client id that is not UTF-8")
            position = end
        if is_flexible(api_key, version):
            position = skip_tagged_fields(frame, position)
    except (struct.error, IndexError) as error:
        raise MalformedRequest(f"truncated or garbled request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, position)


@cache
def request_class(api_key: int, version: int) -> type:
    """kio's entity for a request. Raises KeyError for an API or version that kio does not know."""
    return _load(api_key, version, "request")


@cache
def response_class(api_key: int, version: int) -> type:
    """kio's entity for a response. Raises KeyError for an API or version that kio does not know."""
    return _load(api_key, version, "response")


def _load(api_key: int, version: int, kind: str) -> type:
    if api_key >= OWN_API_MIN:
        from ottla.protocol.own_messages import CLASSES  # for Ottla's own commands

        if version:
            raise KeyError((api_key, version))
        return CLASSES[api_key, kind]
    name = ApiKey(api_key).name.lower()
    try:
        module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    except ModuleNotFoundError as error:
        raise KeyError((api_key, version)) from error
    for value in vars(module).values():
        if isinstance(value, type) and getattr(getattr(value, "__type__", None), "name", None) == kind:
            return value
    raise KeyError((api_key, version))


@cache
def _reader(cls: type) -> tuple[Callable[[Buffer, int], tuple[Any, int]], Callable[[Any], None] | None]:
    """kio's decoder, and what it leaves to check."""
    from kio.serial import entity_reader

    return entity_reader(cls), limits.refuses_null(cls)


@cache
def writer(cls: type) -> Callable[[io.BytesIO, Any], None]:
    """kio's writer of an entity."""
    from kio.serial import entity_writer

    return entity_writer(cls)


def decode_request(api_key: int, version: int, frame: Buffer, body_offset: int) -> Any:
    """The request entity in `frame` from `body_offset` on. Raises MalformedRequest."""
    return _decode(request_class(api_key, version), frame, body_offset)


def _decode(cls: type, frame: Buffer, offset: int) -> Any:
    read, refuse_null = _reader(cls)
    try:
        try:
            limits.check(cls, frame, offset)
            # kio takes no writable buffer, which is what a connection receives into.
            entity = read(memoryview(frame).toreadonly(), offset)[0]
        except Exception as error:
            if not is_about_bytes(error):
                raise
            entity = read(limits.rewritten(cls, frame, offset), 0)[0]
        if refuse_null is not None:
            refuse_null(entity)
    except Exception as error:
        if not is_about_bytes(error):
            raise
        raise MalformedRequest(f"{cls.__name__} v{cls.__version__}: {error}") from error  # type: ignore[attr-defined]
    return entity


def is_about_bytes(error: Exception) -> bool:
    """Whether a decoder raised this over what it read."""
    return isinstance(error, limits.OverLimit | struct.error) or type(error).__module__.startswith(("kio", "builtins"))


def encode_response(api_key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """A response frame without its length prefix: header v0 or v1, then `values` built for this version."""
    cls = response_class(api_key, version)
    out = io.BytesIO()
    out.write(response_header(api_key, version, correlation_id))
    writer(cls)(out, build(cls, values))
    return out.getvalue()


ROWS_PER_STEP = 16
"""Rows with the settings of a topic cost about 0.3 ms each to encode, others a tenth of that."""


def encode_response_in_steps(
    api_key: int, version: int, correlation_id: int, values: Mapping[str, Any], rows: str, shared: str | None = None
) -> Generator[None, None, list[bytes]]:
    """What `encode_response` gives, in parts; at each yield others may run.

    `rows` names the long array, before which stand only strings and fields of a fixed size. `shared` names the last
    field of its rows, an array too: one that many rows have in common, the same object, is encoded once.
    """
    cls = response_class(api_key, version)
    around = encode_response(api_key, version, correlation_id, {**values, rows: ()})
    built = build(cls, {**values, rows: ()})
    flexible = is_flexible(api_key, version)
    start = len(response_header(api_key, version, correlation_id)) + _bytes_before(built, rows, flexible)
    end_bytes, length_bytes = (1, 1) if flexible else (0, 4)
    row_class = _element(cls, rows)
    shared_class = None if shared is None else _element(row_class, shared)
    known: dict[int, bytes] = {}
    done: list[bytes] = []
    parts = [around[:start], array_length(len(values[rows]), flexible)]
    for number, row in enumerate(values[rows], start=1):
        array = None if shared is None or shared_class is None else row.get(shared)
        if array is None or shared is None:
            parts.append(_encoded(row_class, [row]))
        else:
            tail = known.get(id(array))
            if tail is None:
                tail = array_length(len(array), flexible)
                for first in range(0, len(array), ROWS_PER_STEP):
                    tail += _encoded(shared_class, array[first : first + ROWS_PER_STEP])
                    if first:
                        yield
                tail += b"\0" * end_bytes
                known[id(array)] = tail
            parts += (_encoded(row_class, [{**row, shared: ()}])[: -length_bytes - end_bytes], tail)
        if number % ROWS_PER_STEP == 0:
            done.append(b"".join(parts))
            parts.clear()
            yield
    return [*done, *parts, around[start + length_bytes :]]


def _bytes_before(built: Any, name: str, flexible: bool) -> int:
    """The size of the fields before `name`, which are strings or of a fixed size."""
    size = 0
    for field in fields(built):
        if field.name == name:
            break
        kind = field.metadata["kafka_type"]
        if kind == "string":
            length = len((getattr(built, field.name) or "").encode())
            size += length + (uvarint_size(length + 1) if flexible else 2)
        else:
            size += limits.FIXED_BYTES[kind]
    return size


def _encoded(cls: type | None, rows: Sequence[Mapping[str, Any]]) -> bytes:
    assert cls is not None
    out = io.BytesIO()
    write = writer(cls)
    for row in rows:
        write(out, build(cls, row))
    return out.getvalue()


@cache
def _element(cls: type | None, name: str) -> type | None:
    """The class of an array's elements; None if this version has no such array."""
    from kio.serial._introspect import EntityTupleField, classify_field

    kinds = [classify_field(field) for field in fields(cls) if field.name == name] if cls is not None else []
    return next((kind.type_ for kind in kinds if isinstance(kind, EntityTupleField)), None)


def array_length(count: int, flexible: bool) -> bytes:
    """The length of an array on the wire."""
    if not flexible:
        return count.to_bytes(4, "big")
    value, out = count + 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Header v1 has (no) tagged fields; ApiVersions always has v0, so that any client can read it (KIP-511)."""
    header = correlation_id.to_bytes(4, "big", signed=True)
    if is_flexible(api_key, version) and api_key != ApiKey.API_VERSIONS:
        return header + b"\0"
    return header


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Version 1, or 2 where the request is flexible."""
    name = b"\xff\xff" if client_id is None else _INT16.pack(len(client_id.encode())) + client_id.encode()
    end = b"\0" if is_flexible(api_key, version) else b""
    return _HEADER_START.pack(api_key, version, correlation_id) + name + end


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, values: Mapping[str, Any]
) -> bytes:
    """A request frame without its length prefix, as a client sends it."""
    cls = request_class(api_key, version)
    out = io.BytesIO()
    out.write(request_header(api_key, version, correlation_id, client_id))
    writer(cls)(out, build(cls, values))
    return out.getvalue()


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Any]:
    """(correlation id, response entity) of a frame without its length prefix. Raises MalformedRequest."""
    position = len(response_header(api_key, version, 0))
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    return correlation_id, _decode(response_class(api_key, version), frame, position)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _timedelta(value: Any) -> Any:
    return timedelta(milliseconds=value) if isinstance(value, int) else value


def _datetime(value: Any) -> Any:
    if isinstance(value, int):
        return None if value == -1 else _EPOCH + timedelta(milliseconds=value)
    return value


def _moment(value: Any) -> Any:
    """Decode a timestamp that has no null: -1 is a number of milliseconds like any other."""
    return _EPOCH + timedelta(milliseconds=value) if isinstance(value, int) else value


def _uuid(value: UUID | None) -> UUID | None:
    return None if value == ZERO_UUID else value


ERROR_MESSAGE_LENGTH_MAX = 4_000
"""Characters: a message may repeat what it is about, and there is no room for strings of more than 32767 bytes."""


def _shortened(message: str) -> str:
    return message if len(message) <= ERROR_MESSAGE_LENGTH_MAX else message[:ERROR_MESSAGE_LENGTH_MAX] + "..."


_COERCIONS: dict[str, Callable[[Any], Any]] = {
    "timedelta_i32": _timedelta,
    "timedelta_i64": _timedelta,
    "datetime_i64": _datetime,
    "error_code": ErrorCode,
    "uuid": _uuid,
}

_ZEROS: dict[str, Any] = {
    "timedelta_i32": timedelta(0), "timedelta_i64": timedelta(0), "error_code": ErrorCode.none, "uuid": None,
    "string": "", "bytes": b"", "records": None, "bool": False, "float64": 0.0, "datetime_i64": _EPOCH,
}  # fmt: skip


class _FieldPlan(NamedTuple):
    name: str
    convert: Callable[[Any], Any] | None
    is_array: bool
    default: Any
    """MISSING where the schema gives none: an array then is empty and a scalar zero, as Kafka's message classes do."""


@cache
def _plan(cls: type) -> tuple[_FieldPlan, ...]:
    from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

    plans = []
    for field in fields(cls):
        kind = classify_field(field)
        convert: Callable[[Any], Any] | None
        if isinstance(kind, EntityField | EntityTupleField):
            convert = builder(kind.type_)
            zero: Any = () if kind.is_array else None if is_optional(field) else build(kind.type_, {})
        else:
            kafka_type = str(field.metadata.get("kafka_type"))
            convert = _COERCIONS.get(kafka_type) if field.name != "error_message" else _shortened
            if kafka_type == "datetime_i64" and "None" not in str(field.type):
                convert = _moment
            zero = () if kind.is_array else _ZEROS.get(kafka_type, 0)
        if field.default is not MISSING:
            zero = field.default
        elif field.default_factory is not MISSING:
            zero = field.default_factory()
        plans.append(_FieldPlan(field.name, convert, kind.is_array, zero))
    return tuple(plans)


def builder(cls: type) -> Callable[[Any], Any]:
    """A function that makes an entity of `cls` from a mapping, and returns an entity unchanged."""

    def convert(value: Any) -> Any:
        return build(cls, value) if isinstance(value, Mapping) else value

    return convert


def build(cls: type, values: Mapping[str, Any]) -> Any:
    """An entity of `cls` from a mapping: unknown names dropped, missing ones defaulted, milliseconds as ints accepted.

    Nested entities are mappings, arrays any sequence. A zero UUID becomes the protocol's null id.
    """
    arguments = {}
    for name, convert, is_array, default in _plan(cls):
        try:
            value = values[name]
        except KeyError:
            arguments[name] = default
            continue
        if value is not None:
            if is_array:
                value = tuple(map(convert, value)) if convert is not None else tuple(value)
            elif convert is not None:
                value = convert(value)
        arguments[name] = value
    return cls(**arguments)


def millis(value: timedelta) -> int:
    """Milliseconds of a duration field of a request."""
    return value // timedelta(milliseconds=1)


def plain(entity: Any) -> Any:
    """An entity as plain dictionaries and lists with durations in ms and null ids as ZERO_UUID: for logs and tests."""
    if isinstance(entity, timedelta):
        return millis(entity)
    if isinstance(entity, datetime):
        return (entity - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(entity, Sequence) and not isinstance(entity, str | bytes):
        return [plain(item) for item in entity]
    if hasattr(type(entity), "__dataclass_fields__"):
        return {field.name: plain(getattr(entity, field.name)) for field in fields(entity)}
    return entity
