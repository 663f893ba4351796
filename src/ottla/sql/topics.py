"""Topics as tables of DuckDB, which asks a table for columns and rows each time that a statement reads it.

DuckDB treats a pyarrow Dataset so: it calls `scanner` with the columns and the filter that it needs (and relies on the
filter), and reads from what `to_reader` gives for as long as it wants rows. Nothing of a topic is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from ottla import arrow
from ottla.client.security import Security
from ottla.formats.inference import type_of_json
from ottla.formats.json_values import JsonValues
from ottla.formats.typed import CORRUPT, GivenSchemas, Typed, Values
from ottla.sql.pruning import Pruning, Span

SAMPLE_RECORDS = 1000
"""Records of a topic from which the fields of its JSON are inferred if no schema is given."""
PLACE = ("topic", "partition", "offset")
"""Columns that say where a record is that cannot be read."""


@dataclass(frozen=True)
class Slice:
    """A topic from some offsets to others, for any number of readers."""

    bootstrap: str
    topic: str
    spans: Mapping[int, Span]
    """Offset ranges of the partitions that are read."""
    since: Callable[[list[int], int], Mapping[int, int]]
    """Where the first record as young as a timestamp (ms) is in partitions, -1 for nowhere."""
    uncommitted: bool
    security: Security
    client_id: str = "ottla-cli"
    counted: Callable[[int], object] = int
    """Told of the records of each batch that is read."""
    hide: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    """Hides what a mask says, before anything else sees a record."""

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records; connections are closed when the iterator is. Raises KafkaError, OSError."""
        if not self.spans:
            return
        starts = {number: first for number, (first, _) in self.spans.items()}
        stops = {number: end for number, (_, end) in self.spans.items()}
        with arrow.read(
            self.topic,
            self.bootstrap,
            start=starts,
            end=stops,
            partitions=list(self.spans),
            columns=columns,
            headers="headers" in columns,
            read_committed=not self.uncommitted,
            client_id=self.client_id,
            security=self.security,
        ) as reader:
            for batch in reader:
                self.counted(batch.num_rows)
                yield batch if self.hide is None else self.hide(batch)

    def where(self, schema: pa.Schema, condition: Any) -> Slice:
        """The part of it in which a filter on columns of `schema` can hold. Raises what `since`
        does."""
        return replace(self, spans=Pruning(schema, condition, self.since).spans(self.spans))


def _uncounted(records: int) -> None:
    """A sample is read beside the query."""


class SampledSchemas:
    """Schemas that the options give, and for JSON without one what a sample of the records has."""

    def __init__(self, options: Mapping[str, str], records: Slice) -> None:
        self._options, self._records = options, records

    def values(self, part: str) -> Values | None:
        if f"{part}.schema.parts" in self._options:
            from ottla.schemas.values import values_of

            return values_of(self._options, part)
        if self._options.get(f"{part}.format") != "json" or f"{part}.schema" in self._options:
            return GivenSchemas(self._options).values(part)
        batches = self._records.read([part])
        try:
            sample = (value.as_py() for batch in batches for value in batch.column(0))
            return JsonValues(type_of_json(islice(sample, SAMPLE_RECORDS)))
        finally:
            batches.close()  # type: ignore[attr-defined]  # it is a generator


class _Scanner:
    """The methods of a pyarrow Scanner that DuckDB calls."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    def to_reader(self) -> pa.RecordBatchReader:
        return self._reader


class TopicTable(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """The records of a slice, typed. `failure` is what ended the last reading that failed."""

    def __init__(self, records: Slice, options: Mapping[str, str]) -> None:
        # Not that of Dataset, which refuses; DuckDB uses the two members below, and nothing that it would set up.
        self._records = records
        self._typed = Typed(
            SampledSchemas(options, replace(records, counted=_uncounted)), options.get("bad.records", "fail")
        )
        self._schema = self._typed.schema(arrow.schema(headers=True))
        self.failure: Exception | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> _Scanner:
        """Reads `columns` of the rows that `filter` (a pyarrow Expression) accepts."""
        fields = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        return _Scanner(pa.RecordBatchReader.from_batches(fields, self._batches(fields, filter)))

    def _batches(self, fields: pa.Schema, condition: Any) -> Iterator[pa.RecordBatch]:
        names = [*fields.names, *(name for name in _named(condition, self._schema) if name not in fields.names)]
        try:
            records = self._records if condition is None else self._records.where(self._schema, condition)
            for batch in records.read(self._fetched(names)):
                typed, _ = self._typed.read(batch)
                table = pa.Table.from_batches([typed])
                if condition is not None:
                    table = table.filter(condition)
                yield from table.select(fields.names).cast(fields).to_batches()
        except Exception as error:
            self.failure = error  # DuckDB hands on no more than its text
            raise

    def _fetched(self, names: Sequence[str]) -> list[str]:
        """The columns of Kafka's records that those of the table are made of."""
        parts = {column: part for part, column in CORRUPT.items()}
        wanted = {parts.get(name, name) for name in names}
        if wanted & self._typed.parts.keys() and self._typed.bad_records == "fail":
            wanted.update(PLACE)
        return [name for name in arrow.schema(headers=True).names if name in wanted]


def _named(condition: Any, schema: pa.Schema) -> list[str]:
    """The fields that an expression names: without one of them it is not bound."""
    found = []
    for index, name in enumerate(schema.names if condition is not None else ()):
        try:
            schema.remove(index).empty_table().filter(condition)
        except pa.ArrowInvalid:
            found.append(name)
    return found
