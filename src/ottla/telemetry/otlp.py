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

FEW_MAX: Final = 64
"""Fields of a message that is read in one step: a point, an attribute, a value."""
FIELDS_AT_ONCE: Final = 64
FIELD_COST: Final = 2
"""Microseconds, with what is made of it."""

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = struct.Struct("<d")
_INT64: Final = struct.Struct("<q")

DELTA: Final = 1
"""`AggregationTemporality`: points say what was added since the last push. 2: since the client began."""

Steps = Generator[int, None, None]
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

    __slots__ = ("_counted", "_data", "seen")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.seen = self._counted = 0

    def cost(self) -> Steps:
        """Yield what was not yielded yet, if it is worth a look at others."""
        if self.seen - self._counted >= FIELDS_AT_ONCE:
            yield (self.seen - self._counted) * FIELD_COST
            self._counted = self.seen

    def __call__(self, start: int, end: int, count_max: int = FIELDS_MAX) -> Iterator[tuple[int, int, int, int]]:
        """(number, wire type, start, end) of each field of the message at `start`; a varint stands at `start` itself.

        Raises MalformedMetrics."""
        position = start
        while position < end:
            self.seen += 1
            if self.seen > FIELDS_MAX:
                raise MalformedMetrics(f"more than {FIELDS_MAX} fields")
            count_max -= 1
            if count_max < 0:
                raise MalformedMetrics("a small message with many fields")
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


class _Reader:
    """Collects the points of one push. Its methods that are generators yield the cost of what was done."""

    def __init__(self, data: Buffer) -> None:
        self.fields = _Fields(bytes(data))
        self.client: dict[str, str] = {}
        self.points: list[Point] = []
        self.left_out = 0

    def whole(self, end: int) -> Steps:
        """`MetricsData`."""
        for number, wire, start, stop in self.fields(0, end):
            if number == 1 and wire == LENGTH:  # resource_metrics
                yield from self._resource_metrics(start, stop)
            yield from self.fields.cost()

    def _resource_metrics(self, start: int, stop: int) -> Steps:
        for number, wire, inner, end in self.fields(start, stop):
            if number == 1 and wire == LENGTH:  # resource
                for each, each_wire, at, after in self.fields(inner, end):
                    if each == 1 and each_wire == LENGTH:
                        _read_attribute(self.fields, at, after, self.client)
                    yield from self.fields.cost()
            elif number == 2 and wire == LENGTH:  # scope_metrics
                for each, each_wire, at, after in self.fields(inner, end):
                    if each == 2 and each_wire == LENGTH:  # metrics
                        yield from self._metric(at, after)
                    yield from self.fields.cost()
            yield from self.fields.cost()

    def _metric(self, start: int, stop: int) -> Steps:
        """A metric is left out, in part or as a whole, beyond POINTS_MAX, and if it is a histogram, which no client of
        Kafka pushes."""
        name = ""
        is_sum = is_whole = False
        numbers: tuple[int, int] | None = None
        for number, wire, at, after in self.fields(start, stop):
            if number == 1 and wire == LENGTH:
                name = self.fields.text(at, after)
            elif number in (5, 7) and wire == LENGTH:  # gauge, sum
                is_sum, numbers = number == 7, (at, after)
            yield from self.fields.cost()
        if name and numbers is not None and len(self.points) < POINTS_MAX:
            is_whole = yield from self._numbers(name, is_sum, *numbers)
        self.left_out += not is_whole

    def _numbers(self, name: str, is_sum: bool, start: int, stop: int) -> Generator[int, None, bool]:
        """A `Gauge` or `Sum`; returns whether all of its points were read."""
        first = len(self.points)
        is_delta = is_counter = False
        is_whole = True
        for number, wire, at, after in self.fields(start, stop):
            if number == 1 and wire == LENGTH:  # data_points
                is_whole = self._point(name, at, after) and is_whole
            elif is_sum and wire == VARINT and number == 2:  # aggregation_temporality
                is_delta = self.fields.varint(at, after)[0] == DELTA
            elif is_sum and wire == VARINT and number == 3:  # is_monotonic
                is_counter = self.fields.varint(at, after)[0] != 0
            yield from self.fields.cost()
        if is_delta or is_counter:  # they stand behind the points
            for place in range(first, len(self.points)):
                self.points[place] = self.points[place]._replace(is_delta=is_delta, is_counter=is_counter)
        return is_whole

    def _point(self, name: str, start: int, stop: int) -> bool:
        """A `NumberDataPoint`; False where there is no room for it, or no number in it."""
        if len(self.points) >= POINTS_MAX:
            return False
        attributes: dict[str, str] = {}
        value: float | None = None
        for number, wire, at, after in self.fields(start, stop, FEW_MAX):
            if number == 4 and wire == FIXED64:
                value = self.fields.double(at)
            elif number == 6 and wire == FIXED64:
                value = self.fields.int64(at)
            elif number == 7 and wire == LENGTH:
                _read_attribute(self.fields, at, after, attributes)
        if value is None:
            return False
        self.points.append(Point(name, tuple(sorted(attributes.items())), value, False, False))
        return True


def read(data: Buffer) -> Generator[int, None, Metrics]:
    """The metrics in `data`; yields the cost of its steps. Raises MalformedMetrics."""
    reader = _Reader(data)
    yield from reader.whole(len(data))
    return Metrics(tuple(sorted(reader.client.items())), reader.points, reader.left_out)


def _read_attribute(fields: _Fields, start: int, stop: int, found: dict[str, str]) -> None:
    """A `KeyValue`; arrays and maps count as empty. Those beyond ATTRIBUTES_MAX are left out."""
    if len(found) >= ATTRIBUTES_MAX:
        return
    key = value = ""
    for number, wire, position, after in fields(start, stop, FEW_MAX):
        if number == 1 and wire == LENGTH:
            key = fields.text(position, after)
        elif number == 2 and wire == LENGTH:
            for kind, kind_wire, at, end in fields(position, after, FEW_MAX):
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
