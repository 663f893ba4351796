"""A record batch of Arrow as the compiled encoder takes it: the memory of its columns, not their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ottla.protocol.records._batch_rows import Bytes, Headers, Numbers

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_PAIR: Final = {"key", "value"}

_NO_BYTES: Final = Bytes(None, memoryview(bytes(8)).cast("i"), memoryview(b"\0"), 0, False)
_NO_NUMBERS: Final = Numbers(None, memoryview(bytes(8)).cast("q"), 0, False)
_NO_HEADERS: Final = Headers(_NO_BYTES, _NO_BYTES, _NO_BYTES, False)


class RecordColumns(NamedTuple):
    """The fields of so many records; what refers to their memory keeps it."""

    rows: int
    key: Bytes
    value: Bytes
    headers: Headers
    partitions: Numbers
    timestamps: Numbers


def record_columns(batch: pa.RecordBatch) -> RecordColumns:
    """Read the columns key, value, headers, partition and timestamp, those that exist. Raises ValueError for a type
    that no record has."""
    names = batch.schema.names
    column = {name: batch.column(number) for number, name in enumerate(names)}
    if "value" not in column:
        raise ValueError("there is no column value")
    return RecordColumns(
        batch.num_rows,
        _bytes("key", column["key"]) if "key" in column else _NO_BYTES,
        _bytes("value", column["value"]),
        _headers(column["headers"]) if "headers" in column else _NO_HEADERS,
        _numbers(column["partition"].cast(pa.int64())) if "partition" in column else _NO_NUMBERS,
        _numbers(_millis(column["timestamp"])) if "timestamp" in column else _NO_NUMBERS,
    )


def by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic that the column `topic` names, in their order. Raises ValueError for a null."""
    topics = batch.column("topic")
    if topics.null_count:
        raise ValueError("a row has no topic: the column topic is null")
    names = pc.unique(topics)
    for name in names:
        rows = batch if len(names) == 1 else batch.filter(pc.equal(topics, name))
        yield name.as_py(), rows


def _millis(column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        raise ValueError(f"timestamp has the type {column.type}")
    # Without the zone, which only says how to show it: local times are ambiguous where clocks are put back.
    plain = column.view(pa.timestamp(column.type.unit))
    # Records of before 1970 are rounded down, as their other ones are.
    return pc.floor_temporal(plain, unit="millisecond").cast(pa.timestamp("ms")).cast(pa.int64())


def _numbers(column: pa.Array) -> Numbers:
    if not len(column):
        return _NO_NUMBERS
    validity, values = column.buffers()
    return Numbers(_validity(column, validity), memoryview(values).cast("q"), column.offset)


def _bytes(name: str, column: pa.Array) -> Bytes:
    kind = column.type
    if pa.types.is_null(kind):
        return _NO_BYTES
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    elif not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        raise ValueError(f"{name} has the type {kind}; expected bytes or text")
    if not len(column):
        return _NO_BYTES
    validity, offsets, data = column.buffers()
    return Bytes(_validity(column, validity), _int32(offsets), _data(data), column.offset)


def _headers(column: pa.Array) -> Headers:
    if pa.types.is_null(column.type):
        return _NO_HEADERS
    if pa.types.is_large_list(column.type):
        column = column.cast(HEADERS)
    pair = column.type.value_type if pa.types.is_list(column.type) else None
    if pair is None or not pa.types.is_struct(pair) or {pair.field(at).name for at in range(pair.num_fields)} != _PAIR:
        raise ValueError(f"headers has the type {column.type}; expected a list of (key, value)")
    if not len(column):
        return _NO_HEADERS
    pairs = column.values
    names, values = pairs.field("key"), pairs.field("value")
    if pairs.null_count or names.null_count:
        flat = column.flatten()
        if flat.null_count or flat.field("key").null_count:
            raise ValueError("a header has no name")
    validity, offsets = column.buffers()[:2]
    lists = Bytes(_validity(column, validity), _int32(offsets), memoryview(b"\0"), column.offset)
    return Headers(lists, _bytes("a header's name", names), _bytes("a header's value", values))


def _validity(column: pa.Array, buffer: pa.Buffer | None) -> memoryview | None:
    return None if buffer is None or not column.null_count else memoryview(buffer).cast("B")


def _int32(buffer: pa.Buffer) -> memoryview:
    view: memoryview = memoryview(buffer)
    return view[: len(view) // 4 * 4].cast("i")


def _data(buffer: Any) -> memoryview:
    return memoryview(buffer).cast("B") if buffer is not None and buffer.size else memoryview(b"\0")
