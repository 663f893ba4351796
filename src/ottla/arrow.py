"""Topics as Arrow record batches: for pandas, Polars, DuckDB and Spark. Needs pyarrow (`pip install 'ottla[arrow]'`).

Columns have the names and types of Spark's Kafka connector. Records go from fetched batches to Arrow's memory in the
compiled loop of `ottla.protocol.records.columns`, without a Python object for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from ottla.client.cluster import EARLIEST, LATEST, Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.fetcher import DEFAULT_LIMITS, Chunk, Fetcher, FetchLimits, OffsetOutOfRange, TopicRecreated
from ottla.client.properties import security_from
from ottla.client.security import Security
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Offset, TopicPartition
from ottla.protocol.records.aborted_transactions import Aborted
from ottla.protocol.records.columns import ColumnBuffers, Columns

SCHEMA: Final = pa.schema([
    ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
    ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("timestampType", pa.int32()),
])  # fmt: skip
HEADERS: Final = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
"""Null for a record that has none."""

ROWS_MAX: Final = 65_536
"""Rows of a record batch: enough for vectorized readers, few enough to stay in the processor's cache."""
BYTES_MAX: Final = 4 * 1024 * 1024
"""Likewise: Spark takes a tenth more CPU time for batches of 16 MiB than for these, and no less for smaller ones."""


def schema(names: Sequence[str] | None = None, *, headers: bool = False) -> pa.Schema:
    """The fields named, in that order; all of them by default. Raises ValueError for a name that there is not."""
    whole = SCHEMA.append(HEADERS) if headers else SCHEMA
    if names is None:
        return whole
    others = [name for name in names if name not in whole.names]
    if others:
        raise ValueError(f"no columns {', '.join(others)}; there are {', '.join(whole.names)}")
    return pa.schema([whole.field(name) for name in names])


def of_buffers(buffers: ColumnBuffers, topic: str, partition: int, fields: pa.Schema) -> pa.RecordBatch:
    """A record batch on the memory of `buffers`, which has to have the columns of `fields`."""
    return pa.RecordBatch.from_arrays([_array(name, buffers, topic, partition) for name in fields.names], schema=fields)


def _array(name: str, buffers: ColumnBuffers, topic: str, partition: int) -> pa.Array:
    rows = buffers.rows
    if name == "key":
        return _of(pa.binary(), rows, buffers.key_validity, buffers.key_offsets, buffers.key_data)
    if name == "value":
        return _of(pa.binary(), rows, buffers.value_validity, buffers.value_offsets, buffers.value_data)
    if name == "topic":
        return pa.repeat(pa.scalar(topic, pa.string()), rows)
    if name == "partition":
        return pa.repeat(pa.scalar(partition, pa.int32()), rows)
    if name == "offset":
        return _of(pa.int64(), rows, None, buffers.offset)
    if name == "timestamp":
        return _of(pa.timestamp("us", "UTC"), rows, None, buffers.timestamp)
    if name == "timestampType":
        return _of(pa.int32(), rows, None, buffers.timestamp_type)
    count = buffers.header_count
    keys = _of(pa.string(), count, None, buffers.header_key_offsets, buffers.header_key_data)
    values = _of(
        pa.binary(), count, buffers.header_value_validity, buffers.header_value_offsets, buffers.header_value_data
    )
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.type.value_type))
    shared = [_buffer(buffers.headers_validity), _buffer(buffers.headers_offsets)]
    return pa.Array.from_buffers(HEADERS.type, rows, shared, children=[pairs])


def _of(kind: pa.DataType, rows: int, *parts: memoryview | None) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, list(map(_buffer, parts)))


def _buffer(part: memoryview | None) -> pa.Buffer | None:
    return None if part is None else pa.py_buffer(part)


def columns_of(fields: pa.Schema) -> Columns:
    """A collector of the columns in `fields`."""
    names = set(fields.names)
    return Columns(
        keys="key" in names,
        values="value" in names,
        headers="headers" in names,
        timestamps=not names.isdisjoint(("timestamp", "timestampType")),
    )


def of_chunk(chunk: Chunk, topic: str, partition: int, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records of one chunk as batches of `fields`. Raises CorruptBatch."""
    columns = columns_of(fields)
    aborted = Aborted(chunk.aborted) if chunk.aborted is not None else None
    at = chunk.offset
    while at < chunk.following:
        at = columns.add(chunk.records, at, aborted=aborted, rows_max=ROWS_MAX, bytes_max=BYTES_MAX)
        if columns.rows:
            yield of_buffers(columns.take(), topic, partition, fields)


def batches(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: Offset,
    stop: Offset,
    fields: pa.Schema = SCHEMA,
    *,
    read_committed: bool = False,
    limits: FetchLimits = DEFAULT_LIMITS,
    rows_max: int = ROWS_MAX,
    bytes_max: int = BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """The records of one partition with `start <= offset < stop`, as batches of `fields`. Raises as `Fetcher` does,
    and CorruptBatch."""
    columns = columns_of(fields)
    fetcher = Fetcher(cluster, topic, partition, start, stop, read_committed=read_committed, limits=limits)
    try:
        for chunk in fetcher:
            aborted = Aborted(chunk.aborted) if read_committed else None
            at = chunk.offset
            while True:
                at = columns.add(chunk.records, at, stop, aborted=aborted, rows_max=rows_max, bytes_max=bytes_max)
                full = columns.rows >= rows_max or columns.bytes >= bytes_max
                if at >= chunk.following or at >= stop:
                    if full:
                        yield of_buffers(columns.take(), topic, partition, fields)
                    break
                yield of_buffers(columns.take(), topic, partition, fields)
    except (OffsetOutOfRange, TopicRecreated):
        # Who goes on behind the gap has all that was read before it.
        if columns.rows:
            yield of_buffers(columns.take(), topic, partition, fields)
        raise
    if columns.rows:
        yield of_buffers(columns.take(), topic, partition, fields)


Position = int | datetime | Mapping[int, int] | None
"""Where reading begins or ends: an offset for all partitions, a moment, an offset for each partition, or None."""


def read(
    topic: str,
    bootstrap: str,
    *,
    start: Position = None,
    end: Position = None,
    partitions: Iterable[int] | None = None,
    columns: Sequence[str] | None = None,
    headers: bool = False,
    read_committed: bool = True,
    client_id: str = "ottla-arrow",
    rack: str | None = None,
    security: Security | Mapping[str, str] | None = None,
) -> pa.RecordBatchReader:
    """A topic, or a slice of it, as it is now: partition after partition.

    `security` is a client's settings, by Kafka's names or librdkafka's; what they leave out comes from the environment
    (OTTLA_CLIENT_CONFIG, OTTLA_CLIENT_SASL_PASSWORD, ...).

    `start` and `end` are offsets (the end is not included) or datetimes: records from the first one that is as young as
    `start` up to the first one as young as `end`. Offsets outside of the log are brought inside. Raises ValueError for
    what cannot be meant, KafkaError, OSError; the reader that is returned raises them as it reads.
    """
    fields = schema(columns, headers=headers)
    chosen = security if isinstance(security, Security) else security_from(security)
    cluster = Cluster(ClientConfig(parse_addresses(bootstrap), client_id, rack, security=chosen))
    found = sorted(at for at in cluster.partitions([topic]))
    if not found:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {topic}")
    if partitions is not None:
        wanted = {TopicPartition(topic, partition) for partition in partitions}
        if others := sorted(wanted.difference(found)):
            raise ValueError(f"no partition {others[0]}; {topic} has {len(found)}")
        found = sorted(wanted)
    first = {at: known.offset for at, known in cluster.offsets(dict.fromkeys(found, EARLIEST)).items()}
    latest = cluster.offsets(dict.fromkeys(found, LATEST), read_committed=read_committed)
    last = {at: known.offset for at, known in latest.items()}
    starts = _positions(cluster, start, first, first, last)
    ends = _positions(cluster, end, last, first, last)

    def chunks() -> Iterator[pa.RecordBatch]:
        try:
            for at in found:
                if starts[at] < ends[at]:
                    yield from batches(
                        cluster, topic, at.partition, starts[at], ends[at], fields, read_committed=read_committed
                    )
        finally:
            cluster.close()

    return pa.RecordBatchReader.from_batches(fields, chunks())


def _positions(
    cluster: Cluster,
    position: Any,
    default: Mapping[TopicPartition, Offset],
    first: Mapping[TopicPartition, Offset],
    last: Mapping[TopicPartition, Offset],
) -> dict[TopicPartition, Offset]:
    """The offset for each partition, between `first` and `last`."""
    if position is None:
        found = dict(default)
    elif isinstance(position, datetime):
        if position.tzinfo is None:
            raise ValueError("a datetime needs a time zone, for example datetime(2026, 1, 31, tzinfo=timezone.utc)")
        at_ms = round(position.timestamp() * 1000)
        known = cluster.offsets(dict.fromkeys(first, max(at_ms, 0)))
        found = {at: one.offset if one.offset >= 0 else last[at] for at, one in known.items()}
    elif isinstance(position, Mapping):
        found = {at: position.get(at.partition, default[at]) for at in first}
    elif isinstance(position, int) and not isinstance(position, bool):
        found = dict.fromkeys(first, position)
    else:
        raise ValueError(f"expected an offset, a datetime, or a mapping of partition to offset, not {position!r}")
    if any(offset < 0 for offset in found.values()):
        raise ValueError("offsets must be 0 or more")
    return {at: min(max(offset, first[at]), last[at]) for at, offset in found.items()}
