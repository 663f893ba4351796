"""DataFrames written by `format("ottla")`: at least once, and exactly once through failures of tasks and replays."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
import uuid
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla import arrow
from ottla.client.cluster import Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.transactions import list_transactions
from ottla.spark.sink_log import PREFIX
from tests.spark.topics import Record, Topics

BATCH = 100
"""Records of a micro-batch."""


def write(frame: Any, topics: Topics, topic: str | None, **options: str) -> None:
    chosen = {"kafka.bootstrap.servers": topics.bootstrap, **options, **({"topic": topic} if topic else {})}
    frame.write.format("ottla").options(**chosen).mode("append").save()


def stored(topics: Topics, topic: str, *, read_committed: bool = True) -> list[dict[str, Any]]:
    reader = arrow.read(topic, topics.bootstrap, headers=True, read_committed=read_committed)
    return [dict(row) for row in reader.read_all().to_pylist()]


def values(topics: Topics, topic: str) -> Counter[str]:
    return Counter(row["value"].decode() for row in stored(topics, topic))


LATE_S = 2.0
"""After which no task of a failed job is about to begin."""


def open_transactions(topics: Topics, query: str = "") -> list[str]:
    """The open transactions of one query, or of all: then some may be open for a while, as Spark does not wait for the
    tasks of a job that failed, and what is killed in the middle of one has its timeout."""
    with contextlib.closing(Cluster(ClientConfig(parse_addresses(topics.bootstrap)))) as cluster:
        return list(list_transactions(cluster, f"{PREFIX}:{query}"))


# What is written


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_all_columns(spark: Any, topics: Topics, topic: str, codec: str) -> None:
    topics.create(topic, 3)
    frame = spark.sql("""
        select if(id % 5 = 0, null, concat('k', id)) as key,
               if(id % 7 = 0, null, cast(concat('v', id) as binary)) as value,
               cast(id % 3 as int) as partition, timestamp_millis(1700000000000 + id) as timestamp, id as ignored,
               if(id % 2 = 0, array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary)),
                                    named_struct('key', 'n', 'value', cast(null as binary))), null) as headers
        from range(500)
    """)
    write(frame, topics, topic, **{"kafka.compression.type": codec, "includeTimestamp": "true"})
    rows = stored(topics, topic)
    assert len(rows) == 500
    for row in rows:
        number = round(row["timestamp"].timestamp() * 1000) - 1_700_000_000_000
        assert row["partition"] == number % 3
        assert row["key"] == (None if number % 5 == 0 else b"k%d" % number)
        assert row["value"] == (None if number % 7 == 0 else b"v%d" % number)
        pairs = [{"key": "h", "value": b"%d" % number}, {"key": "n", "value": None}]
        assert row["headers"] == (pairs if number % 2 == 0 else None)


def test_keys_go_where_sparks_connector_puts_them(connector: None, spark: Any, topics: Topics, topic: str) -> None:
    names = [topics.create(f"{topic}-{name}", 7) for name in ("ottla", "kafka")]
    frame = spark.sql("select cast(id % 400 as string) as key, cast(id as string) as value from range(2000)")
    write(frame, topics, names[0])
    options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": names[1]}
    frame.write.format("kafka").options(**options).mode("append").save()
    ours, theirs = ({(row["value"], row["partition"]) for row in stored(topics, name)} for name in names)
    assert ours == theirs and len(ours) == 2000


def test_a_topic_for_each_row(spark: Any, topics: Topics, topic: str) -> None:
    names = [topics.create(f"{topic}-{number}", 2) for number in range(3)]
    frame = spark.sql(f"select concat('{topic}-', id % 3) as topic, cast(id as string) as value from range(300)")
    write(frame, topics, None)
    for number, name in enumerate(names):
        assert values(topics, name) == Counter(str(one) for one in range(number, 300, 3))


def test_json_and_avro_values(spark: Any, topics: Topics, topic: str) -> None:
    frame = spark.sql("select named_struct('id', id, 'name', concat('n', id)) as value from range(50)")
    write(frame, topics, topics.create(f"{topic}-json"), **{"value.format": "json"})
    found = [json.loads(row["value"]) for row in stored(topics, f"{topic}-json")]
    assert sorted(found, key=itemgetter("id")) == [{"id": number, "name": f"n{number}"} for number in range(50)]
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
    avro = {"value.format": "avro", "value.schema": json.dumps(schema)}
    write(frame, topics, topics.create(f"{topic}-avro"), **avro)
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": f"{topic}-avro", **avro}
    back = spark.read.format("ottla").options(**options).load().select("value.*")
    assert {tuple(row) for row in back.collect()} == {(number, f"n{number}") for number in range(50)}


@pytest.mark.parametrize(
    ("select", "options", "says"),
    [
        ("id as value", {}, "value has the type bigint; it must be binary or string"),
        ("cast(id as string) as v", {}, "there is no column value"),
        ("cast(id as string) as value", {"delivery": "twice"}, "delivery: expected at-least-once or exactly-once"),
        ("cast(id as string) as value, 9 as partition", {}, "partitions, but a row names another partition"),
        ("cast(id as string) as value", {"topic": "no-such-topic", "kafka.delivery.timeout.ms": "1000"}, None),
    ],
)
def test_what_is_refused(
    spark: Any, topics: Topics, topic: str, select: str, options: dict[str, str], says: str | None
) -> None:
    topics.create(topic, 2)
    frame = spark.sql(f"select {select} from range(10)")
    if says is None:  # brokers may create it, as they do for Kafka's producer
        write(frame, topics, **options)  # type: ignore[arg-type]
        assert sum(values(topics, "no-such-topic").values()) >= 10
        return
    with pytest.raises(Exception) as error:
        write(frame, topics, topic, **options)
    assert says in str(error.value)
    with pytest.raises(Exception, match="is append-only"):
        frame.write.format("ottla").option("topic", topic).mode("overwrite").save()


# Exactly once: batch writes


def test_a_batch_is_written_once_by_its_id(spark: Any, topics: Topics, topic: str) -> None:
    topics.create(topic, 3)
    options = {"delivery": "exactly-once", "write.id": topic}
    frame = spark.range(1000).selectExpr("cast(id as string) as value")
    write(frame, topics, topic, **options)
    write(frame, topics, topic, **options)
    assert open_transactions(topics, f"write.{topic}:") == []
    assert values(topics, topic) == Counter(map(str, range(1000)))
    write(frame, topics, topic, delivery="exactly-once")
    assert sum(values(topics, topic).values()) == 2000, "another write"


@pytest.mark.parametrize(
    ("tasks", "timeout_ms", "options"), [(1, 900_000, {}), (1, 900_000, {"write.id": "failing"}), (2, 5_000, {})]
)
def test_a_batch_that_fails_leaves_nothing(
    spark: Any, topics: Topics, topic: str, tasks: int, timeout_ms: int, options: dict[str, str]
) -> None:
    topics.create(topic, 2)
    options = {"delivery": "exactly-once", "kafka.transaction.timeout.ms": str(timeout_ms), **options}
    frame = spark.range(20_000, numPartitions=tasks).selectExpr(
        "if(id = 19999, raise_error('the last row'), cast(id as string)) as value"
    )
    with pytest.raises(Exception, match="the last row"):
        write(frame, topics, topic, **options)
    assert stored(topics, topic) == []
    # Spark does not wait for its tasks. One that has not begun may come yet; one that is done later aborts by itself,
    # and only time ends one that is killed.
    deadline, none_s = time.monotonic() + 60, time.monotonic()
    while time.monotonic() - none_s < LATE_S:
        if found := open_transactions(topics):
            none_s = time.monotonic()
            assert none_s < deadline, found
        time.sleep(0.1)


# Exactly once: streams


class Copy:
    """A query from a topic to another, run until all that is there is copied, as often as one likes."""

    def __init__(self, spark: Any, topics: Topics, topic: str, directory: Path) -> None:
        self.spark, self.topics, self.directory = spark, topics, directory
        self.source, self.sink = topics.create(f"{topic}-in", 2), topics.create(f"{topic}-out", 3)

    def open_transactions(self) -> list[str]:
        query = json.loads((self.directory / "metadata").read_text())["id"]
        return open_transactions(self.topics, f"{query}:")

    def fill(self, first: int, count: int) -> None:
        numbers = range(first, first + count)
        self.topics.produce(self.source, [Record(str(number).encode(), number % 2) for number in numbers])

    def run(self, change: Any = lambda rows: rows) -> None:
        servers = {"kafka.bootstrap.servers": self.topics.bootstrap}
        rows = (
            self.spark.readStream.format("ottla")
            .options(**servers, subscribe=self.source, startingOffsets="earliest", maxOffsetsPerTrigger=str(BATCH))
            .load()
            .select("key", "value")
        )
        query = (
            change(rows)
            .writeStream.format("ottla")
            .options(**servers, topic=self.sink, delivery="exactly-once", checkpointLocation=str(self.directory))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def drop(self, *kinds: str) -> None:
        """The newest batch of the checkpoint, as if Spark had been killed before it was noted."""
        for kind in kinds:
            batches = sorted((self.directory / kind).glob("[0-9]*"), key=lambda path: int(path.name))
            batches[-1].unlink()
            with contextlib.suppress(FileNotFoundError):
                (self.directory / kind / f".{batches[-1].name}.crc").unlink()

    def assert_exact(self, count: int) -> None:
        assert self.open_transactions() == []
        assert values(self.topics, self.sink) == Counter(map(str, range(count)))


@pytest.fixture
def copy(spark: Any, topics: Topics, topic: str, tmp_path: Path) -> Copy:
    return Copy(spark, topics, topic, tmp_path / "checkpoint")


def test_a_batch_that_is_replayed_is_not_written_again(copy: Copy) -> None:
    copy.fill(0, 250)
    copy.run()
    copy.drop("commits")
    copy.fill(250, 150)
    copy.run()
    copy.assert_exact(400)


def test_a_query_that_fails_goes_on_exactly(copy: Copy, tmp_path: Path) -> None:
    """A task dies in its middle, after rows of the batch are produced; the next run has no such row."""
    marker = tmp_path / "fail"
    marker.touch()

    def failing(rows: Any) -> Any:
        def check(batches: Any) -> Any:
            for batch in batches:
                if marker.exists() and "377" in [value.decode() for value in batch.column("value").to_pylist()]:
                    raise RuntimeError("row 377")
                yield batch

        return rows.mapInArrow(check, rows.schema)

    copy.fill(0, 500)
    with pytest.raises(Exception, match="row 377"):
        copy.run(failing)
    assert sum(values(copy.topics, copy.sink).values()) in (200, 300), "batches before it are there"
    marker.unlink()
    copy.run(failing)
    copy.assert_exact(500)


def test_what_a_run_left_that_was_killed_in_its_first_batch_is_aborted(copy: Copy) -> None:
    query = uuid.uuid4()
    copy.directory.mkdir()
    (copy.directory / "metadata").write_text(json.dumps({"id": str(query)}))
    killed = Producer({"bootstrap.servers": copy.topics.bootstrap, "transactional.id": f"ottla-sink:{query}:run:0:0"})
    killed.init_transactions(30)
    killed.begin_transaction()
    killed.produce(copy.sink, "what nobody decided")
    assert killed.flush(30) == 0
    assert copy.open_transactions() != []
    copy.fill(0, 100)
    copy.run()
    copy.assert_exact(100)


def test_a_checkpoint_that_went_back_is_refused(copy: Copy) -> None:
    copy.fill(0, 300)
    copy.run()
    copy.drop("commits", "offsets")
    copy.drop("commits", "offsets")
    with pytest.raises(Exception, match="of this query is committed already"):
        copy.run()
    copy.assert_exact(300)


def test_a_new_checkpoint_is_a_new_query(copy: Copy) -> None:
    copy.fill(0, 100)
    copy.run()
    shutil.rmtree(copy.directory)
    copy.run()
    assert values(copy.topics, copy.sink) == Counter({str(number): 2 for number in range(100)})


def test_a_shuffled_query_with_empty_batches(copy: Copy) -> None:
    copy.fill(0, 350)
    copy.run(lambda rows: rows.repartition(3, "value").where("cast(cast(value as string) as int) >= 200"))
    assert copy.open_transactions() == []
    assert values(copy.topics, copy.sink) == Counter(map(str, range(200, 350)))
