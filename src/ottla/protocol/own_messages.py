"""Requests and responses of the APIs that Kafka does not have, in the form of kio's schemas, which reads types as they
are (hence no `from __future__`).

The keys are far above Kafka's. ApiVersions names them to Ottla's own commands only (`server/handlers/api_versions.py`),
so no other client ever meets them. A broker of Kafka closes the connection of who asks; therefore commands look first.
"""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta, i64

LIST_CLIENTS, DISCONNECT_CLIENTS = 20_000, 20_001


@dataclass(frozen=True, slots=True, kw_only=True)
class ListClientsRequest:
    """Asks a broker who is connected to it."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LIST_CLIENTS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    principal: str | None = field(metadata={"kafka_type": "string"})
    """Only this user's connections; null for all."""
    client_id: str | None = field(metadata={"kafka_type": "string"})
    """Only connections with this client id; null for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedClient:
    """One connection."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LIST_CLIENTS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    principal: str = field(metadata={"kafka_type": "string"})
    client_id: str | None = field(metadata={"kafka_type": "string"})
    """Null for a client that has not named itself in ApiVersions."""
    software_name: str = field(metadata={"kafka_type": "string"})
    software_version: str = field(metadata={"kafka_type": "string"})
    host: str = field(metadata={"kafka_type": "string"})
    port: i32 = field(metadata={"kafka_type": "int32"})
    listener: str = field(metadata={"kafka_type": "string"})
    security_protocol: str = field(metadata={"kafka_type": "string"})
    tls_version: str | None = field(metadata={"kafka_type": "string"})
    tls_cipher: str | None = field(metadata={"kafka_type": "string"})
    mechanism: str | None = field(metadata={"kafka_type": "string"})
    """The SASL mechanism that the client has logged in with."""
    connected_ms: i64 = field(metadata={"kafka_type": "int64"})
    """Milliseconds since it connected."""
    idle_ms: i64 = field(metadata={"kafka_type": "int64"})
    """Milliseconds since its last byte came in; -1 where nobody counts, as in the next two."""
    bytes_in: i64 = field(metadata={"kafka_type": "int64"})
    bytes_out: i64 = field(metadata={"kafka_type": "int64"})
    client_instance_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    """The client that asks for its telemetry subscription on this connection."""
    pushed_metrics: i32 = field(metadata={"kafka_type": "int32"})
    """Metrics that it pushed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListClientsResponse:
    """The connections of one broker."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LIST_CLIENTS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    node_id: i32 = field(metadata={"kafka_type": "int32"})
    clients: tuple[ListedClient, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DisconnectClientsRequest:
    """Asks a broker to close connections: those for which all that is given holds."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DISCONNECT_CLIENTS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    principal: str | None = field(metadata={"kafka_type": "string"})
    client_id: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DisconnectClientsResponse:
    """How many connections are closed."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DISCONNECT_CLIENTS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    node_id: i32 = field(metadata={"kafka_type": "int32"})
    closed: i32 = field(metadata={"kafka_type": "int32"})


CLASSES: dict[tuple[int, str], type] = {
    (LIST_CLIENTS, "request"): ListClientsRequest,
    (LIST_CLIENTS, "response"): ListClientsResponse,
    (DISCONNECT_CLIENTS, "request"): DisconnectClientsRequest,
    (DISCONNECT_CLIENTS, "response"): DisconnectClientsResponse,
}
"""By API and kind. All are of version 0."""
