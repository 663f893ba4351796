"""The records of `__transaction_state`: what the coordinator knows of each transactional id, in Kafka's format.

A record's key starts with an int16 that names its type (0 is the only one); its value starts with an int16 version, or
is null, which deletes the id. Version 1 came with `transaction.version` 1 and has room for tagged fields (KIP-890,
KIP-915).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from ottla.model import Buffer
from ottla.protocol.internal.codec import MalformedRecord, decode, encode
from ottla.protocol.schemas.records import TransactionLogKey, TransactionLogValue


class TransactionRecord(NamedTuple):
    """A record of `__transaction_state`; a value of None deletes the id."""

    transactional_id: str
    value: TransactionLogValue | None


LOG_VALUE_VERSION_MAX: Final = 1
"""The version that Kafka 4.3 reads and writes."""

KEYS_CACHED: Final = 4_096
NAME_CACHED_MAX: Final = 256
"""Longer ids are nobody's, and 4,096 of them would fill the memory."""

_TYPE: Final = 0
_SHORT = struct.Struct(">h")


def log_value_version(transaction_version: int) -> int:
    """The version of values under a finalized level of `transaction.version`."""
    return 1 if transaction_version >= 1 else 0


def encode_record(record: TransactionRecord, version: int) -> tuple[bytes, bytes | None]:
    """Key and value, which is in `version`."""
    transactional_id = record.transactional_id
    key = (_encoded_key if len(transactional_id) > NAME_CACHED_MAX else _cached_key)(transactional_id)
    return key, None if record.value is None else _SHORT.pack(version) + encode(record.value, version)


def _encoded_key(transactional_id: str) -> bytes:
    return _SHORT.pack(_TYPE) + encode(TransactionLogKey(transactional_id), 0)


_cached_key = lru_cache(KEYS_CACHED)(_encoded_key)


def decode_record(key: Buffer, value: Buffer | None) -> TransactionRecord | None:
    """The record, or None for an unknown type. Raises MalformedRecord."""
    if len(key) < 2:
        raise MalformedRecord("a key without a type")
    if _SHORT.unpack_from(key)[0] != _TYPE:
        return None
    transactional_id = decode(TransactionLogKey, 0, key, 2).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    if len(value) < 2:
        raise MalformedRecord("a value without a version")
    (version,) = _SHORT.unpack_from(value)
    if not 0 <= version <= LOG_VALUE_VERSION_MAX:
        raise MalformedRecord(f"TransactionLogValue in version {version}, newest known is {LOG_VALUE_VERSION_MAX}")
    return TransactionRecord(transactional_id, decode(TransactionLogValue, version, value, 2))
