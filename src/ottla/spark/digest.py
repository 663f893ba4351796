"""A digest of rows in their order, by which two attempts of a task are told apart (`exactly_once.Written.digest`).

Over the memory of Arrow's columns: it does not hang on how rows are cut into batches, nor on anything but the rows.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c


class Digest:
    """CRCs of what each column holds: of lengths and of bytes, so that no two sequences of rows run into one."""

    def __init__(self) -> None:
        self.rows = 0
        self._crcs: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Every batch has to have the same columns."""
        self.rows += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self._add(name, column)

    def text(self) -> str:
        return "-".join(f"{self._crcs[name]:08x}" for name in sorted(self._crcs))

    def _add(self, name: str, column: pa.Array) -> None:
        kind = column.type
        if pa.types.is_null(kind):
            self._crc(name, bytes(len(column)))
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._crc(f"{name}#", _plain(_lengths(pc.list_value_length(column))))
            self._add(f"{name}[]", column.flatten())
        elif pa.types.is_struct(kind):
            for number, field in enumerate(column.flatten()):
                self._add(f"{name}.{kind.field(number).name}", field)
        elif _is_of_bytes(kind):
            self._crc(f"{name}#", _plain(_lengths(pc.binary_length(column))))
            for view in _data(column):
                self._crc(name, view)
        else:
            self._crc(f"{name}?", _plain(column.is_null().cast(pa.int8())))
            self._crc(name, _plain(column.cast(pa.int64()).fill_null(0)))

    def _crc(self, name: str, data: Any) -> None:
        self._crcs[name] = crc32c(data, self._crcs.get(name, 0))


def _lengths(lengths: pa.Array) -> pa.Array:
    """-1 for a null: it is not an empty one."""
    return lengths.cast(pa.int64()).fill_null(-1)


def _plain(column: pa.Array) -> memoryview:
    width = column.type.bit_width // 8
    start = column.offset * width
    return memoryview(column.buffers()[1])[start : start + len(column) * width]


def _is_of_bytes(kind: pa.DataType) -> bool:
    is_any = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    return any(each(kind) for each in is_any)


def _data(column: pa.Array) -> list[memoryview]:
    """The bytes of all values, one after the other; those below a null are left out."""
    if column.null_count:
        column = column.drop_null()
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return []
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    ends = memoryview(offsets).cast("q" if wide else "i")
    return [memoryview(data)[ends[column.offset] : ends[column.offset + len(column)]]]
