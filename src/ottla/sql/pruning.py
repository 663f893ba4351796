"""What a filter leaves of a topic: offsets that no accepted row can have need not be read.

Whether a filter can hold where something is known of a row is Arrow's to say: it is how a pyarrow Dataset leaves out
files by their partition expressions. It answers "perhaps" where it cannot tell, so that nothing is left out wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

TIMESTAMP_MS_MAX = 2**53
"""Beyond the year 280,000: above any that a filter names, and as microseconds within 64 bits."""

Span = tuple[int, int]
"""From the first offset to before the second."""


class Pruning:
    """The spans of partitions in which a filter can hold."""

    def __init__(self, schema: pa.Schema, condition: Any, since: Callable[[list[int], int], Mapping[int, int]]) -> None:
        """`since` says where the first record as young as a timestamp is in each partition, -1 for nowhere."""
        self._schema = schema
        self._condition = condition
        self._since = since
        self._files = LocalFileSystem()
        self._format = ds.IpcFileFormat()

    def spans(self, spans: Mapping[int, Span]) -> dict[int, Span]:
        """The remaining part of each span; partitions without a row are left out."""
        left = {number: span for number, each in spans.items() if (span := self._span(number, *each)) is not None}
        youngest = last(lambda ms: self._excludes(ds.field("timestamp") < _moment(ms)), 0, TIMESTAMP_MS_MAX)
        if left and youngest:
            firsts = self._since(list(left), youngest)
            left = {
                number: (max(first, firsts[number]), end)
                for number, (first, end) in left.items()
                if 0 <= firsts[number] < end
            }
        return left

    def _span(self, number: int, first: int, end: int) -> Span | None:
        partition, offset = ds.field("partition") == pa.scalar(number, pa.int32()), ds.field("offset")
        if first >= end or self._excludes(partition & (offset >= first) & (offset < end)):
            return None
        first = last(lambda at: self._excludes(partition & (offset >= first) & (offset < at)), first, end)
        size = last(lambda size: self._excludes(partition & (offset >= end - size) & (offset < end)), 0, end - first)
        return first, end - size

    def _excludes(self, known: Any) -> bool:
        """Whether no row of which this is known can be accepted."""
        file = self._format.make_fragment("-", filesystem=self._files, partition_expression=known)  # none is opened
        files = ds.FileSystemDataset([file], self._schema, self._format, self._files)
        return not list(files.get_fragments(filter=self._condition))


def last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The last number up to `high` for which a statement holds that holds for `low`, and up to some number."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _moment(timestamp_ms: int) -> pa.Scalar:
    return pa.scalar(timestamp_ms * 1000, pa.timestamp("us", "UTC"))
