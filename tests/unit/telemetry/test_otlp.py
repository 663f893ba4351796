"""What clients push is read, and never more of it than the limits allow."""

from __future__ import annotations

import math
import random

import pytest

from ottla.steps import at_once
from ottla.telemetry import otlp
from ottla.telemetry.otlp import MalformedMetrics, Metrics, Point, read
from tests.unit.telemetry.otlp import counter, field, fixed64, gauge, point, pushed, varint
from tests.unit.telemetry.recorded import JAVA, LIBRDKAFKA

PRODUCER, CONSUMER = "org.apache.kafka.producer.", "org.apache.kafka.consumer.fetch.manager."


def metrics(data: bytes) -> Metrics:
    return at_once(read(data))


def test_what_librdkafka_pushed() -> None:
    found = metrics(LIBRDKAFKA)
    assert found.client == (("client_rack", "r1"), ("transactional_id", "tx-1")) and found.left_out == 0
    assert len(found.points) == 6
    assert Point(f"{PRODUCER}connection.creation.total", (), 6, True, False) in found.points
    assert Point(f"{PRODUCER}record.queue.time.avg", (), 0.059, False, False) in found.points


def test_what_kafkas_consumer_pushed() -> None:
    found = metrics(JAVA)
    assert dict(found.client)["group_id"] == "g1" and len(found.points) == 14 and found.left_out == 0
    assert Point(f"{CONSUMER}records.consumed.total", (("topic", "t"),), 3.0, True, False) in found.points
    assert Point(f"{CONSUMER}records.lead", (("partition", "0"), ("topic", "t")), 3.0, False, False) in found.points


def test_each_kind_of_number_and_attribute() -> None:
    found = metrics(
        pushed(
            gauge("g", point(-7, text="é", flag=True, number=-3, ratio=0.5), point(math.inf)),
            counter("total", point(2), delta=True),
            counter("up.and.down", point(5), monotonic=False),
            resource={"group_id": "g"},
        )
    )
    attributes = (("flag", "true"), ("number", "-3"), ("ratio", "0.5"), ("text", "é"))
    assert found == Metrics(
        (("group_id", "g"),),
        [
            Point("g", attributes, -7, False, False),
            Point("g", (), math.inf, False, False),
            Point("total", (), 2, True, True),
            Point("up.and.down", (), 5, False, False),
        ],
        0,
    )


def test_what_is_left_out() -> None:
    """Histograms, metrics without a name or a number, and attributes that are lists."""
    histogram = field(1, "h") + field(9, field(1, fixed64(4, 3)))
    listed = field(7, field(1, "list") + field(2, field(5, field(1, field(1, "x")))))
    found = metrics(pushed(histogram, gauge("", point(1)), gauge("g", fixed64(3, 1)), gauge("g", listed + point(1))))
    assert found == Metrics((), [Point("g", (("list", ""),), 1, False, False)], 3)


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "POINTS_MAX", 5)
    found = metrics(pushed(gauge("a", *[point(each) for each in range(4)]), gauge("b", point(1), point(2)), gauge("c")))
    assert [each.name for each in found.points] == ["a"] * 4 + ["b"] and found.left_out == 2
    many = {f"a{each:03}": "x" * 1000 for each in range(40)}
    (one,) = metrics(pushed(gauge("n" * 1000, point(1, **many)))).points
    assert len(one.attributes) == otlp.ATTRIBUTES_MAX and len(one.name) == otlp.NAME_CHARACTERS_MAX
    assert {len(value) for _, value in one.attributes} == {otlp.NAME_CHARACTERS_MAX}
    monkeypatch.setattr(otlp, "FIELDS_MAX", 1000)
    for flood in (field(2, b"") * 1001, field(1, field(3, 1) * 1001), pushed(gauge("a") + field(2, "u") * 1001)):
        with pytest.raises(MalformedMetrics, match="more than 1000 fields"):
            metrics(flood)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\x0a",
        b"\x0a\x05",
        b"\x0b",
        b"\x0f\x00",
        b"\x00\x00",
        b"\x09\x00",
        b"\x0d\x00",
        b"\x80" * 20,
        b"\x0a" + varint((1 << 64) - 1),
        b"\x0a" + varint(1 << 62),
        b"not metrics",
    ],
)
def test_what_is_no_protocol_buffer(data: bytes) -> None:
    with pytest.raises(MalformedMetrics):
        metrics(data)


def test_whatever_comes_is_read_or_refused() -> None:
    """Cut anywhere, and with wrong bytes anywhere."""
    refused = 0
    source = random.Random(714)
    for whole in (JAVA, LIBRDKAFKA, pushed(gauge("g", point(1, a="b")), resource={"c": "d"})):
        for _ in range(400):
            data = bytearray(whole[: source.randrange(len(whole))])
            for _ in range(source.randrange(4)):
                if data:
                    data[source.randrange(len(data))] = source.randrange(256)
            try:
                metrics(bytes(data))
            except MalformedMetrics:
                refused += 1
    assert refused > 300


def test_it_is_read_in_steps() -> None:
    """A field is looked at in a microsecond or two; nobody waits for more than some hundred of them."""
    assert sum(read(JAVA)) > 500
    floods = (
        pushed(gauge("g", *[point(1)] * 5000)),
        pushed(*[gauge("g")] * 5000),
        pushed(gauge("g", point(1)) + field(2, "unit") * 5000),
        field(1, field(2, b"") * 5000),
        field(1, field(1, field(2, b"") * 5000)),
        field(3, 1) * 5000,
        field(1, b"") * 5000,
        pushed(gauge("g", point(1)), resource={f"a{number}": "b" for number in range(5000)}),
    )
    for number, flood in enumerate(floods):
        costs = [*read(flood)]
        assert sum(costs) > 5000 and max(costs) < 1000, number
    for small in (gauge("g", field(8, 1) * 65 + point(1)), gauge("g", field(7, field(3, 1) * 65))):
        with pytest.raises(MalformedMetrics, match="small message"):
            metrics(pushed(small))
