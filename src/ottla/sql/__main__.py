"""The process of one query: a `Query` comes on standard input, lines of JSON go out; see `queries.py`."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import duckdb
import pyarrow as pa

from ottla.client.cluster import EARLIEST, LATEST, Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.sql import queries
from ottla.sql.masked import BY_REGISTRY, PARTS, Masked, decoder
from ottla.sql.names import Ambiguous, named
from ottla.sql.queries import Query
from ottla.sql.rows import is_number, text, unique, values
from ottla.sql.topics import Slice, TopicTable

BATCH_ROWS: Final = 256
SAY_S: Final = 0.2
_LOOK_S: Final = 0.02
_NICER: Final = 5
"""Brokers on the same machine go first."""
_TAKEN: Final = ("SELECT", "EXPLAIN", "MULTI")
"""Kinds of statements: the last one is PIVOT."""
_REFUSALS: Final = (ErrorCode.topic_authorization_failed, ErrorCode.cluster_authorization_failed)
_HINTS_MAX: Final = 4
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "memory_limit": f"{queries.MEMORY_MAX // (1024 * 1024)}MiB", "threads": str(queries.THREADS),
    "temp_directory": "", "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false", "allow_community_extensions": "false",
}  # fmt: skip

_LOCKED: Final = (
    "SET enable_external_access = false; SET python_enable_replacements = false; SET TimeZone = 'UTC'; "
    "SET lock_configuration = true"
)


class Mistake(ValueError):
    """A statement that is not run; the text says why."""


def say(**said: Any) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


class Read:
    """Counts records, and says how many were read."""

    def __init__(self) -> None:
        self.records = 0
        self._said = time.monotonic()

    def add(self, records: int) -> None:
        self.records += records
        if time.monotonic() - self._said > SAY_S:
            self._said = time.monotonic()
            say(read=self.records)


def main() -> int:
    size = int.from_bytes(sys.stdin.buffer.read(4), "big")
    query: Query = pickle.loads(sys.stdin.buffer.read(size))  # by whoever started this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    threading.Thread(target=_watch_memory, daemon=True).start()
    with contextlib.suppress(OSError):
        os.nice(_NICER)
    tables: dict[str, TopicTable] = {}
    say(ready=True)
    try:
        _answer(query, tables)
    except (Mistake, Ambiguous) as error:
        say(error=str(error))
    except (KafkaError, OSError) as error:
        _failed(error, "")
    except duckdb.Error as error:
        failed = next(((name, each.failure) for name, each in tables.items() if each.failure is not None), None)
        if failed is not None and not isinstance(failed[1], MemoryError):
            _failed(failed[1], failed[0])
        else:
            say(error=_explained(error, query, tables))
    # DuckDB's threads may still wait for records, which nobody wants any more.
    sys.stdout.flush()
    os._exit(0)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _watch_memory() -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            while True:
                file.seek(0)
                if int(file.read(200).split()[1]) * page > queries.PROCESS_BYTES_MAX:
                    os._exit(queries.OUT_OF_MEMORY)
                time.sleep(_LOOK_S)
    except FileNotFoundError:  # not Linux: DuckDB's own limit is left
        return


def _failed(error: BaseException, topic: str) -> None:
    where = f"topic {topic}: " if topic else ""
    if isinstance(error, KafkaError):
        is_refused = error.code in _REFUSALS
        said = "you need Read on it" if is_refused else error.message or error.code.name.upper()
        say(error=f"{where}{said}", refused=is_refused)
    else:
        say(error=f"{where}{error}")


def _answer(query: Query, tables: dict[str, TopicTable]) -> None:
    """Raises Mistake, Ambiguous, KafkaError, OSError, DuckDB's Error."""
    connection = duckdb.connect(":memory:", config=_CONFIG)
    connection.execute(_LOCKED)
    found = duckdb.extract_statements(query.statement)
    if len(found) != 1 or found[0].type.name not in _TAKEN:
        raise Mistake("one statement is taken that reads: SELECT, FROM, WITH, PIVOT, DESCRIBE, SUMMARIZE or EXPLAIN")
    config = ClientConfig(parse_addresses(query.bootstrap), query.client_id, security=query.security)
    cluster, read = Cluster(config), Read()
    try:
        for name, topic in named(duckdb, connection, query.statement, cluster.topics()):
            if query.allowed is not None and topic not in query.allowed:
                raise Mistake(f"your roles do not let you read topic {topic}")
            tables[topic] = _table(query, cluster, topic, read)
            connection.register(name, tables[topic])
    except KafkaError as error:
        raise error if error.message else KafkaError(error.code, error.code.name.upper()) from error
    say(topics=list(tables))
    relation = connection.sql(query.statement)
    if relation is None:
        raise Mistake("the statement has no result")
    reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    _rows(reader(BATCH_ROWS), query, read)


def _table(query: Query, cluster: Cluster, topic: str, read: Read) -> TopicTable:
    """Raises Mistake, KafkaError, OSError."""
    found, mask = _slice(query, cluster, topic, read), query.masks.get(topic)
    if mask is None:
        return TopicTable(found, _options(query, topic))
    uses_registry = any(query.options[f"{part}.format"] in BY_REGISTRY for part in PARTS)
    masked = Masked(mask, decoder(query.registry) if uses_registry else None)
    options = _options(replace(query, options=masked.options(query.options)), topic)
    return TopicTable(replace(found, hide=masked.batch), options)


def _slice(query: Query, cluster: Cluster, topic: str, read: Read) -> Slice:
    """Raises KafkaError, OSError."""
    found = sorted(cluster.partitions([topic]))
    starts = {at.partition: known.offset for at, known in cluster.offsets(dict.fromkeys(found, EARLIEST)).items()}
    latest = cluster.offsets(dict.fromkeys(found, LATEST), read_committed=not query.uncommitted)
    ends = {at.partition: known.offset for at, known in latest.items()}

    def since(numbers: list[int], timestamp_ms: int) -> Mapping[int, int]:
        wanted = {TopicPartition(topic, number): timestamp_ms for number in numbers}
        with contextlib.closing(Cluster(cluster.config)) as own:
            return {at.partition: known.offset for at, known in own.offsets(wanted).items()}

    if query.start == "last":
        starts = {number: max(first, ends[number] - query.last) for number, first in starts.items()}
    elif query.start == "time":
        first = since(list(starts), query.time_ms)
        starts = {
            number: ends[number] if first[number] < 0 else max(at, first[number]) for number, at in starts.items()
        }
    spans = {number: (starts[number], ends[number]) for number in starts}
    return Slice(query.bootstrap, topic, spans, since, query.uncommitted, query.security, query.client_id, read.add)


def _options(query: Query, topic: str) -> Mapping[str, str]:
    """The formats, with the schemas of a registry where they need one. Raises Mistake."""
    found = dict(query.registry)
    chosen = {part: query.options[f"{part}.format"] for part in ("key", "value")}
    chosen = {part: kind for part, kind in chosen.items() if kind in BY_REGISTRY}
    if not chosen:
        return query.options
    from ottla.formats.errors import SchemaError
    from ottla.schemas.options import for_reading

    for part, kind in chosen.items():
        try:
            asked = {**found, f"{part}.format": "json" if kind == "json-schema" else kind}
            found = for_reading(asked, topic, security=query.security)
        except (SchemaError, OSError) as error:
            raise Mistake(f"topic {topic}: {error}") from None
    return {**query.options, **found}


def _rows(batches: pa.RecordBatchReader, query: Query, read: Read) -> None:
    schema = batches.schema
    say(columns=list(zip(unique(schema.names), map(str, schema.types), map(_kind, schema.types), strict=True)))
    left, size = query.rows_max, 0
    while True:
        try:
            batch = batches.read_next_batch()
        except StopIteration:
            break
        except duckdb.Error:
            raise
        except Exception as error:  # Arrow's streams carry errors as texts only
            raise duckdb.Error(str(error)) from None
        columns = [[_cell(each) for each in values(column)] for column in batch.slice(0, left).columns]
        rows = [list(row) for row in zip(*columns, strict=True)]
        say(rows=rows, read=read.records)
        left -= len(rows)
        size += sum(len(cell) for row in rows for cell in row if cell is not None)
        if batch.num_rows > len(rows) or size > queries.RESULT_BYTES_MAX:
            say(stopped="rows" if batch.num_rows > len(rows) else "bytes", read=read.records)
            return
    say(read=read.records)


def _cell(value: Any) -> str | None:
    if value is None:
        return None
    found = text(value)
    return found if len(found) <= queries.CELL_MAX else found[: queries.CELL_MAX] + "…"


def _kind(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_struct(kind) or types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind):
        return "json"
    if is_number(kind):
        return "number"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "time"
    return "boolean" if types.is_boolean(kind) else "text"


def _explained(error: Exception, query: Query, tables: Mapping[str, TopicTable]) -> str:
    if isinstance(error, duckdb.OutOfMemoryException):
        return "the query needs more memory than it may use: group by less, or read less with a later beginning"
    sentence, *lines = str(error).splitlines() or [type(error).__name__]
    hints = [line.expandtabs(2) for line in lines if line.strip()][:_HINTS_MAX]
    if "does not exist" in sentence and not tables:
        hints.append("no topic that you may see has this name; names with . or - stand in double quotes")
    elif "BLOB" in str(error) or "because it is not a struct" in sentence:
        hints.append("keys and values are bytes unless decoded: choose a format")
    return "\n".join([sentence, *hints])


if __name__ == "__main__":
    sys.exit(main())
