"""Filters of a query, and what they leave to read. Pure.

Topics and partitions are known before anything is read, and offsets are where to read: these filters are done here,
and Spark need not look again. Timestamps are in no order in a log: all that is known is that no record before the
first one as young as `t` is as young as `t`. So a lower bound of timestamps moves the start, Spark filters what is
read, and an upper bound moves nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ottla.model import Millis, Offset, TopicPartition
from ottla.spark.ranges import Range

_COMPARISONS: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq, EqualNullSafe: operator.eq, In: lambda value, values: value in values,
    LessThan: operator.lt, LessThanOrEqual: operator.le, GreaterThan: operator.gt, GreaterThanOrEqual: operator.ge,
}  # fmt: skip
_TYPES: Final[Mapping[str, type]] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
_NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

Test = tuple[str, type[Filter], Any, bool]
"""Column, comparison, value, and whether the opposite is wanted."""


@dataclass(frozen=True)
class Narrowing:
    """What filters leave of a batch."""

    tests: tuple[Test, ...] = ()
    """Tests of topics and partitions."""
    start: Offset = 0
    stop: Offset | None = None
    timestamp_ms: Millis | None = None
    """No record that is older is wanted."""

    def keeps(self, at: TopicPartition) -> bool:
        """Whether anything of a partition is wanted."""
        return all(
            _COMPARISONS[comparison](getattr(at, column), value) is not negated
            for column, comparison, value, negated in self.tests
        )

    def of(self, ranges: Iterable[Range], young: Mapping[TopicPartition, Offset] | None = None) -> list[Range]:
        """What is left of ranges. `young` has the first offset as young as `timestamp_ms`, by partition, or -1 if
        there is none."""
        left = []
        for range_ in ranges:
            at = range_.topic_partition
            start = max(range_.start, self.start)
            stop = range_.stop if self.stop is None else min(range_.stop, self.stop)
            first = 0 if young is None else young.get(at, 0)
            start = stop if first < 0 else max(start, first)
            if start < stop and self.keeps(at):
                left.append(range_._replace(start=start, stop=stop))
        return left


def narrow(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """What all the filters together leave, and those that Spark has to apply to what is read."""
    narrowing, left = Narrowing(), []
    for each in filters:
        found = _narrowed(narrowing, each)
        if found is None:
            left.append(each)
            continue
        narrowing, is_done = found
        if not is_done:
            left.append(each)
    return narrowing, left


def _narrowed(before: Narrowing, each: Filter) -> tuple[Narrowing, bool] | None:
    """None for a filter that nothing is known of."""
    negated = isinstance(each, Not)
    inner = each.child if isinstance(each, Not) else each
    path = getattr(inner, "attribute", None)
    if path is None or len(path) != 1:
        return None
    (column,) = path
    if isinstance(inner, IsNotNull):
        return (before, True) if column in _NEVER_NULL and not negated else None
    value = getattr(inner, "value", None)
    if column not in _TYPES or type(inner) not in _COMPARISONS or not _is_of(_TYPES[column], inner, value):
        return None
    if column in ("topic", "partition"):
        return replace(before, tests=(*before.tests, (column, type(inner), value, negated))), True
    if negated:
        return None
    if column == "offset":
        return _by_offset(before, inner, value)
    since = _since_ms(inner, value)
    if since is None:
        return None
    return replace(before, timestamp_ms=max(since, before.timestamp_ms or 0)), False


def _is_of(kind: type, each: Filter, value: Any) -> bool:
    values = value if isinstance(each, In) else (value,)
    return len(values) > 0 and all(isinstance(one, kind) and not isinstance(one, bool) for one in values)


def _by_offset(before: Narrowing, each: Filter, value: Any) -> tuple[Narrowing, bool]:
    """Offsets that are listed are read from the first to the last, with what is between them."""
    is_done = True
    start, stop = 0, None
    if isinstance(each, In):
        start, stop = min(value), max(value) + 1
        is_done = stop - start == len(set(value))
    elif isinstance(each, EqualTo | EqualNullSafe):
        start, stop = value, value + 1
    elif isinstance(each, GreaterThan):
        start = value + 1
    elif isinstance(each, GreaterThanOrEqual):
        start = value
    else:
        stop = value + (1 if isinstance(each, LessThanOrEqual) else 0)
    stops = [one for one in (before.stop, stop) if one is not None]
    return replace(before, start=max(before.start, start), stop=min(stops, default=None)), is_done


def _since_ms(each: Filter, value: Any) -> Millis | None:
    """The lower bound, in the whole milliseconds that records have. None if there is none, or none that is sure: a
    record without a timestamp has -1."""
    moments = list(value) if isinstance(each, In) else [value]
    if isinstance(each, LessThan | LessThanOrEqual) or any(one.tzinfo is None for one in moments):
        return None
    first = min(moments) - _EPOCH
    since = first // _MILLISECOND
    if isinstance(each, GreaterThan) or first % _MILLISECOND:
        since += 1
    return since if since > 0 else None
