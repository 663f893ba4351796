"""How a dump is printed: lines and columns to people, JSON Lines to programs. Nothing is held back until the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from ottla.cli.log.decoders import Decoder, decode_control
from ottla.cli.log.segments import Problem
from ottla.cli.output import bold, dim, iso_time, print_json_line, print_table
from ottla.errors import KafkaError
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.records.record_batch import iterate_records
from ottla.storage.recovery.scan import Batch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Report(Protocol):
    def heading(self, path: str, facts: Mapping[str, Any]) -> None:
        """A file or directory, before its contents."""

    def batch(self, batch: Batch) -> None: ...
    def record(self, fields: Mapping[str, Any]) -> None: ...
    def table(self, kind: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Rows of one kind: index entries, partitions, segments. A column's name ending in `>` is a number."""

    def summary(self, path: str, facts: Mapping[str, Any], problems: Sequence[Problem]) -> None: ...


def batch_fields(batch: Batch) -> dict[str, Any]:
    header = batch.header
    return {
        "position": batch.position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.count,
        "leader_epoch": header.leader_epoch,
        "codec": CODECS[header.codec] if 0 <= header.codec < len(CODECS) else header.codec,
        "timestamp_type": "LogAppendTime" if header.timestamp_type else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc & 0xFFFFFFFF,
        "problems": list(batch.problems),
    }


def record_fields(batch: Batch, decode: Decoder) -> Iterator[dict[str, Any]]:
    """The records of a batch, decoded; one that cannot be decoded says why under `error`."""
    try:
        for record in iterate_records(batch.data):
            fields: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
            try:
                fields |= decode_control(record) if batch.header.is_control else decode(record)
            except (MalformedRecord, ValueError) as error:
                fields["error"] = str(error)
            yield fields
    except KafkaError as error:
        yield {"error": error.message or error.code.name}


class JsonReport:
    """Every line an object with a `kind`."""

    def heading(self, path: str, facts: Mapping[str, Any]) -> None:
        if facts:
            print_json_line({"kind": "heading", "path": path, **facts})

    def batch(self, batch: Batch) -> None:
        print_json_line({"kind": "batch", **batch_fields(batch)})

    def record(self, fields: Mapping[str, Any]) -> None:
        print_json_line({"kind": "record", **fields})

    def table(self, kind: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        names = [column.rstrip(">").lower().replace(" ", "_") for column in columns]
        for row in rows:
            print_json_line({"kind": kind, **dict(zip(names, row, strict=True))})

    def summary(self, path: str, facts: Mapping[str, Any], problems: Sequence[Problem]) -> None:
        details = [{"path": problem.path, "problem": problem.text} for problem in problems]
        print_json_line({"kind": "summary", "path": path, **facts, "problems": details})


_BATCH_COLUMNS = "{:>12}  {:>22}  {:>7}  {:>5}  {:>9}  {:6}  {:24}  {}"


class TextReport:
    """For people; columns have fixed widths because a segment can hold millions of batches."""

    def __init__(self) -> None:
        self._headed = False

    def heading(self, path: str, facts: Mapping[str, Any]) -> None:
        print(bold(path) + "".join(f"\n  {name.replace('_', ' ')}: {value}" for name, value in facts.items()))
        self._headed = False

    def batch(self, batch: Batch) -> None:
        if not self._headed:
            columns = ("POSITION", "OFFSETS", "RECORDS", "EPOCH", "BYTES", "CODEC", "LAST TIME", "NOTES")
            print(bold(_BATCH_COLUMNS.format(*columns)))
            self._headed = True
        header, fields = batch.header, batch_fields(batch)
        first, last = header.base_offset, header.last_offset
        line = _BATCH_COLUMNS.format(
            batch.position,
            str(first) if first == last else f"{first} to {last}",
            header.count,
            header.leader_epoch,
            header.size,
            fields["codec"],
            iso_time(header.max_timestamp) or header.max_timestamp,
            ", ".join(_notes(batch)),
        )
        print(line.rstrip())

    def record(self, fields: Mapping[str, Any]) -> None:
        rest = dict(fields)
        offset, timestamp = rest.pop("offset", None), rest.pop("timestamp", None)
        where = "" if offset is None else f"{offset:>12}  {iso_time(timestamp) or timestamp}  "
        print(dim(f"  {where}") + _record_text(rest))

    def table(self, kind: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            print_table(columns, rows, indent=2)

    def summary(self, path: str, facts: Mapping[str, Any], problems: Sequence[Problem]) -> None:
        print("  " + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
        red, plain = ("\x1b[31m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
        for problem in problems:
            print(f"  {red}damaged{plain}  {problem.path}: {problem.text}")


def _notes(batch: Batch) -> Iterator[str]:
    header = batch.header
    if header.producer_id >= 0:
        sequences = f" sequences {header.base_sequence} to {header.last_sequence}" if header.base_sequence >= 0 else ""
        yield f"producer {header.producer_id} epoch {header.producer_epoch}{sequences}"
    if header.is_transactional:
        yield "transactional"
    if header.is_control:
        yield "control"
    if header.timestamp_type:
        yield "log append time"
    for problem in batch.problems:
        yield f"DAMAGED: {problem}"


def _record_text(content: dict[str, Any]) -> str:
    """One line: `key  value  {headers}`, or the type of a decoded record and its content as JSON."""
    if "error" in content:
        return f"cannot be read: {content['error']}"
    if "type" in content:
        version = content.get("version")
        name = content["type"] if version is None else f"{content['type']} v{version}"
        about = content.get("group", content.get("transactional_id"))
        parts = [about, content.get("content", content.get("coordinator_epoch"))]
        shown = [json.dumps(part, ensure_ascii=False) for part in parts if part is not None]
        if about is not None and content.get("content") is None:
            shown.append("deleted")
        return "  ".join([name, *shown])
    headers = [f"{header['name']}={_either(header, 'value')}" for header in content.get("headers", ())]
    parts = [_either(content, "key"), _either(content, "value"), *headers]
    return "  ".join(part for part in parts if part is not None)


def _either(fields: Mapping[str, Any], name: str) -> str | None:
    if f"{name}_base64" in fields:
        return f"base64:{fields[f'{name}_base64']}"
    value = fields.get(name)
    return (
        None if value is None and name == "key" else "null" if value is None else json.dumps(value, ensure_ascii=False)
    )
