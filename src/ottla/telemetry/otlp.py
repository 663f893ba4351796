"""Reads the metrics that a client pushes: OpenTelemetry's `MetricsData` (version 1), a protocol buffer.

A reader of its own rather than a generated one: it takes the few fields that are shown, skips all others unread, has no
recursion, and every count in it has a limit. Numbers of fields are those of opentelemetry/proto/metrics/v1.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from ottla.model import Buffer

POINTS_MAX: Final = 1_000
"""Points of one push that are read. A Java client with a hundred partitions has some 500."""
FIELDS_MAX: Final = 200_000
"""Fields of one push that are looked at; 1,000 points have 20,000."""
ATTRIBUTES_MAX: Final = 12
"""Attributes of a point, or of a client, that are kept. Kafka's clients have six at most."""
NAME_CHARACTERS_MAX: Final = 255
"""Longest name, or value of an attribute: the names of topics are no longer."""

FIELDS_PER_COST: Final = 1
"""Fields that take a microsecond."""

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = struct.Struct("<d")
_INT64: Final = struct.Struct("<q")

DELTA: Final = 1
"""`AggregationTemporality`: points say what was added since the last push. 2: since the client began."""

Attributes = tuple[tuple[str, str], ...]


class MalformedMetrics(ValueError):
    """Bytes that are no `MetricsData`."""


class Point(NamedTuple):
    """A number that a client measured."""

    name: str
    """Such as `org.apache.kafka.producer.record.send.rate`."""
    attributes: Attributes
    """In the order of their names."""
    value: float
    is_counter: bool
    """Whether it only grows."""
    is_delta: bool
    """Whether it is to be added to the sum of those before."""


class Metrics(NamedTuple):
    """What a client pushed."""

    client: Attributes
    """Attributes of the client itself, such as its group."""
    points: list[Point]
    left_out: int
    """Metrics of which points were not read, because of a limit or of their type."""


class _Fields:
    """The fields of messages within one push, and how many were looked at."""

    __slots__ = ("_data", "seen")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.seen = 0

    def __call__(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """(number, wire type, start, end) of each field of the message at `start`; a varint stands at `start` itself.

        Raises MalformedMetrics."""
        position = start
        while position < end:
            self.seen += 1
            if self.seen > FIELDS_MAX:
                raise MalformedMetrics(f"more than {FIELDS_MAX} fields")
            key, position = self.varint(position, end)
            number, wire = key >> 3, key & 7
            if wire == LENGTH:
                size, position = self.varint(position, end)
                after = position + size
            elif wire == VARINT:
                after = self.varint(position, end)[1]
            elif wire == FIXED64:
                after = position + 8
            elif wire == FIXED32:
                after = position + 4
            else:  # groups are of the first version of protocol buffers
                raise MalformedMetrics(f"a field of wire type {wire}")
            if after > end or number == 0:
                raise MalformedMetrics("a field ends after its message")
            yield number, wire, position, after
            position = after

    def varint(self, position: int, end: int) -> tuple[int, int]:
        """(value, position after it). Raises MalformedMetrics."""
        data = self._data
        value = shift = 0
        while position < end:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
            if shift > 63:
                break
        raise MalformedMetrics("a number without an end")

    def text(self, start: int, end: int) -> str:
        return str(self._data[start : min(end, start + 4 * NAME_CHARACTERS_MAX)], "utf-8", "replace")[
            :NAME_CHARACTERS_MAX
        ]

    def double(self, start: int) -> float:
        return float(_DOUBLE.unpack_from(self._data, start)[0])

    def int64(self, start: int) -> int:
        return int(_INT64.unpack_from(self._data, start)[0])


def read(data: Buffer) -> Generator[int, None, Metrics]:
    """The metrics in `data`; yields the cost of its steps. Raises MalformedMetrics."""
    fields = _Fields(bytes(data))
    client: dict[str, str] = {}
    points: list[Point] = []
    left_out = counted = 0
    for metric in _metrics(fields, len(data), client):
        if len(points) >= POINTS_MAX or not _read_metric(fields, metric, points):
            left_out += 1
        yield (fields.seen - counted) // FIELDS_PER_COST
        counted = fields.seen
    return Metrics(tuple(sorted(client.items())), points, left_out)


def _metrics(fields: _Fields, end: int, client: dict[str, str]) -> Iterator[tuple[int, int]]:
    """Where each `Metric` lies; the attributes of their `Resource` go into `client`."""
    for number, wire, start, stop in fields(0, end):
        if number != 1 or wire != LENGTH:  # resource_metrics
            continue
        for inner, inner_wire, inner_start, inner_stop in fields(start, stop):
            if inner_wire != LENGTH:
                continue
            if inner == 1:  # resource
                for each, each_wire, each_start, each_stop in fields(inner_start, inner_stop):
                    if each == 1 and each_wire == LENGTH:
                        _read_attribute(fields, each_start, each_stop, client)
            elif inner == 2:  # scope_metrics
                for each, each_wire, each_start, each_stop in fields(inner_start, inner_stop):
                    if each == 2 and each_wire == LENGTH:  # metrics
                        yield each_start, each_stop


def _read_metric(fields: _Fields, metric: tuple[int, int], points: list[Point]) -> bool:
    """Add the points of a `Metric`. False where some are left out: histograms, which no client of Kafka pushes, too."""
    name = ""
    data: tuple[int, int, int] | None = None
    for number, wire, start, stop in fields(*metric):
        if number == 1 and wire == LENGTH:
            name = fields.text(start, stop)
        elif number in (5, 7) and wire == LENGTH:  # gauge, sum
            data = number, start, stop
    if not name or data is None:
        return False
    is_sum = data[0] == 7
    temporality, monotonic = 0, False
    at: list[tuple[int, int]] = []
    whole = True
    for number, wire, start, stop in fields(*data[1:]):
        if number == 1 and wire == LENGTH:  # data_points
            if len(points) + len(at) < POINTS_MAX:
                at.append((start, stop))
            else:
                whole = False
        elif is_sum and wire == VARINT and number == 2:
            temporality = fields.varint(start, stop)[0]
        elif is_sum and wire == VARINT and number == 3:
            monotonic = fields.varint(start, stop)[0] != 0
    for start, stop in at:
        attributes: dict[str, str] = {}
        value: float | None = None
        for number, wire, position, after in fields(start, stop):
            if number == 4 and wire == FIXED64:
                value = fields.double(position)
            elif number == 6 and wire == FIXED64:
                value = fields.int64(position)
            elif number == 7 and wire == LENGTH:
                _read_attribute(fields, position, after, attributes)
        if value is None:
            whole = False
        else:
            is_delta = is_sum and temporality == DELTA
            points.append(Point(name, tuple(sorted(attributes.items())), value, is_sum and monotonic, is_delta))
    return whole


def _read_attribute(fields: _Fields, start: int, stop: int, found: dict[str, str]) -> None:
    """A `KeyValue`; arrays and maps count as empty. Those beyond ATTRIBUTES_MAX are left out."""
    if len(found) >= ATTRIBUTES_MAX:
        return
    key = value = ""
    for number, wire, position, after in fields(start, stop):
        if number == 1 and wire == LENGTH:
            key = fields.text(position, after)
        elif number == 2 and wire == LENGTH:
            for kind, kind_wire, at, end in fields(position, after):
                value = _value(fields, kind, kind_wire, at, end)
    if key:
        found[key] = value


def _value(fields: _Fields, kind: int, wire: int, start: int, stop: int) -> str:
    """An `AnyValue` as text."""
    if kind == 1 and wire == LENGTH:
        return fields.text(start, stop)
    if kind == 2 and wire == VARINT:
        return "true" if fields.varint(start, stop)[0] else "false"
    if kind == 3 and wire == VARINT:
        number = fields.varint(start, stop)[0] & (1 << 64) - 1
        return str(number - (1 << 64) if number >> 63 else number)
    if kind == 4 and wire == FIXED64:
        return repr(fields.double(start))
    return ""
