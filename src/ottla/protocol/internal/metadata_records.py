"""The frame around each record of the metadata log.

Frame version (uvarint, 1), API key (uvarint), version (uvarint), then the message (Kafka's `AbstractApiMessageSerde`).
Which version to write depends on the finalized `metadata.version`; see `ottla.metadata.features`.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, Final

from ottla.model import Buffer
from ottla.protocol import schemas
from ottla.protocol.internal.codec import MalformedRecord, decode, encode_into
from ottla.protocol.schemas import MessageSchema
from ottla.protocol.varint import read_uvarint

FRAME_VERSION: Final = 1


@cache
def _schemas() -> dict[int, MessageSchema]:
    """By API key."""
    names = schemas.by_key("metadata", "(?!Remote(Log|Partition))").values()
    return {found.api_key: found for found in map(schemas.schema, names)}


def encode_record(record: Any, version: int) -> bytes:
    """A record with its frame. Raises codec.UnsupportedVersion if `version` cannot say what the record says."""
    out = bytearray((FRAME_VERSION, schemas.schema(type(record).__name__).api_key, version))
    encode_into(out, record, version)
    return bytes(out)


def decode_record(value: Buffer) -> tuple[Any, int]:
    """(record, its version) of a framed record. Raises MalformedRecord, also for records that 4.4 does not know."""
    try:
        frame_version, position = read_uvarint(value, 0)
        api_key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except (IndexError, struct.error) as error:
        raise MalformedRecord(f"the frame of a metadata record: {error}") from error
    if frame_version != FRAME_VERSION:
        raise MalformedRecord(f"metadata record with frame version {frame_version}; this node knows {FRAME_VERSION}")
    known = _schemas().get(api_key)
    if known is None:
        raise MalformedRecord(f"metadata record of unknown type {api_key}")
    if version > known.versions[1]:
        raise MalformedRecord(f"{known.name} of version {version} is newer than this node")
    return decode(schemas.message_class(known.name), version, value, position), version
