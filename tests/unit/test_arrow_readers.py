"""pandas, Polars and DuckDB read what `ottla.arrow.read` gives, as they read any Arrow stream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from ottla import arrow
from ottla.testing import Broker

COUNT = 100


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 2}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for at in range(COUNT):
            value = None if at % 10 == 0 else b"v%d" % at
            producer.produce("orders", value, b"k%d" % (at % 3), partition=at % 2, timestamp=1_700_000_000_000 + at)
        assert producer.flush(30) == 0
        yield running


def test_pandas(broker: Broker) -> None:
    pytest.importorskip("pandas")
    frame = arrow.read("orders", broker.bootstrap).read_pandas()
    assert frame.groupby("key")["offset"].count().to_dict() == {b"k0": 34, b"k1": 33, b"k2": 33}
    assert frame["value"].isna().sum() == COUNT // 10
    assert str(frame["timestamp"].dt.tz) == "UTC"


def test_polars(broker: Broker) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(arrow.read("orders", broker.bootstrap, headers=True))
    assert frame.shape == (COUNT, 8)
    assert frame.filter(polars.col("key") == b"k0").height == 34
    assert frame["value"].null_count() == COUNT // 10
    assert sorted(frame["offset"].unique()) == list(range(COUNT // 2))


def test_duckdb(broker: Broker) -> None:
    duckdb = pytest.importorskip("duckdb")
    reader = arrow.read("orders", broker.bootstrap, columns=["key", "value"])
    with duckdb.connect() as connection:
        found = connection.from_arrow(reader).aggregate("count(*), count(value), max(decode(key))").fetchall()
    assert found == [(COUNT, COUNT - COUNT // 10, "k2")]
