"""`produce` and `consume` of `ottla.testing`, with other clients on the other side; the asynchronous classes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing import AsyncBroker, AsyncCluster, Broker, BrokerError, Cluster, ConsumeTimeout, Record
from tests.conformance.embedding.test_embedding import QUIET, run_pytest, wait_until_gone


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(QUIET, topics={"three": 3}) as started:
        yield started


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    return broker.create_topic(request.node.name.replace("[", "-").replace("]", ""))


def values(records: list[Record]) -> list[bytes | None]:
    return [each.value for each in records]


class TestProduce:
    def test_every_field_arrives(self, broker: Broker) -> None:
        sent = Record("ü", "k", {"a": "1", "none": None}, partition=2, timestamp=1_000)
        (written,) = broker.produce("three", sent)
        assert written == Record("ü".encode(), b"k", (("a", b"1"), ("none", None)), 2, 1_000, 0, "three")
        assert broker.consume("three") == [written]
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("three", 2, 0)])
        message = consumer.poll(300)
        consumer.close()
        assert message is not None
        assert (message.value(), message.key(), message.timestamp()[1]) == ("ü".encode(), b"k", 1_000)
        assert message.headers() == [("a", b"1"), ("none", None)]

    def test_keywords_are_for_values_that_are_no_records(self, broker: Broker, topic: str) -> None:
        before = int(time.time() * 1000) - 1
        broker.produce(topic, ["a", b"b", None, Record("c", "own")], key="k", headers=[("h", "1")])
        found = broker.consume(topic)
        assert [(each.value, each.key) for each in found] == [(b"a", b"k"), (b"b", b"k"), (None, b"k"), (b"c", b"own")]
        assert [each.headers for each in found] == [(("h", b"1"),)] * 3 + [()]
        assert all(each.timestamp > before for each in found)
        assert broker.produce(topic, []) == []

    def test_partitions(self, broker: Broker) -> None:
        """With a key as the Java client's partitioner; without, a call's records stay together, in their order."""
        broker.create_topic("java", 7)
        broker.create_topic("ours", 7)
        keys = [f"key {number}" for number in range(40)]
        producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
        for key in keys:
            producer.produce("java", key=key)
        assert producer.flush(300) == 0
        broker.produce("ours", [Record(None, key) for key in keys])
        places = [{each.key: each.partition for each in broker.consume(name)} for name in ("java", "ours")]
        assert places[0] == places[1]
        calls = [{each.partition for each in broker.produce("ours", ["a", "b", "c"])} for _ in range(7)]
        assert sorted(map(min, calls)) == list(range(7)) and all(len(call) == 1 for call in calls)

    def test_more_than_a_batch_takes(self, broker: Broker, topic: str) -> None:
        sent = [f"{number}".ljust(3000).encode() for number in range(1000)]
        written = broker.produce(topic, sent)
        assert [each.offset for each in written] == list(range(1000))
        assert values(broker.consume(topic, 1000)) == sent

    def test_a_topic_of_small_batches_and_its_own_clock(self, broker: Broker) -> None:
        broker.create_topic("small", max_message_bytes=300, message_timestamp_type="LogAppendTime")
        written = broker.produce("small", [Record("x" * 100, timestamp=5) for _ in range(5)])
        assert broker.consume("small", 5) == written
        assert all(each.timestamp > 5 for each in written)
        with pytest.raises(BrokerError, match="message_too_large"):
            broker.produce("small", "x" * 1000)

    def test_a_topic_that_there_is_not(self, broker: Broker) -> None:
        assert broker.produce("made", "x")[0].offset == 0
        with Broker(auto_create_topics_enable=False) as strict, pytest.raises(BrokerError, match="topic t"):
            strict.produce("t", "x")

    def test_what_cannot_be_meant(self, broker: Broker) -> None:
        for wrong in ({"a": 1}, 5):
            with pytest.raises(TypeError, match=r"values are str, bytes, None, Record.*json\.dumps"):
                broker.produce("three", wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="value is str, bytes or None, not dict"):
            broker.produce("three", [{"a": 1}])  # type: ignore[list-item]
        with pytest.raises(BrokerError, match="topic three has partitions 0 to 2, not 3"):
            broker.produce("three", "x", partition=3)
        with pytest.raises(BrokerError, match="invalid_topic_exception"):
            broker.produce("a/b", "x")
        with pytest.raises(BrokerError, match="not started"):
            Broker().produce("t", "x")


class TestConsume:
    def test_it_waits_for_records_and_for_their_topic(self, broker: Broker) -> None:
        asked = threading.Event()

        def work() -> None:
            asked.wait()
            broker.produce("later", "a")
            broker.produce("later", "b")

        thread = threading.Thread(target=work)
        thread.start()
        asked.set()
        assert values(broker.consume("later", 2, timeout=300)) == [b"a", b"b"]
        thread.join()

    def test_too_few(self, broker: Broker, topic: str) -> None:
        broker.produce(topic, ["a", "b"])
        with pytest.raises(ConsumeTimeout, match=rf"2 of 3 records of topic {topic} came within 2 s") as failure:
            broker.consume(topic, 3, timeout=2)
        assert isinstance(failure.value, TimeoutError) and isinstance(failure.value, BrokerError)
        assert values(failure.value.records) == [b"a", b"b"]
        with pytest.raises(ConsumeTimeout, match=r"0 of 1 records of topic nope .*; there is no topic nope"):
            broker.consume("nope", 1, timeout=0)
        with pytest.raises(BrokerError, match="there is no topic nope"):
            broker.consume("nope")
        with pytest.raises(ValueError, match="count wants a number from 0"):
            broker.consume(topic, -1)
        assert broker.consume(topic, 0) == []

    def test_in_the_order_of_partitions_and_offsets(self, broker: Broker) -> None:
        broker.create_topic("ordered", 2)
        broker.produce("ordered", [Record(f"{number}", partition=number % 2) for number in (1, 0, 3, 2)])
        assert values(broker.consume("ordered")) == [b"0", b"2", b"1", b"3"]
        assert values(broker.consume("ordered", 3)) == [b"0", b"2", b"1"]

    def test_a_group_goes_on_where_it_was(self, broker: Broker, topic: str) -> None:
        broker.produce(topic, ["a", "b", "c", "d"])
        assert values(broker.consume(topic, 2, group="mine")) == [b"a", b"b"]
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "mine", "enable.auto.commit": False}
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        message = consumer.poll(300)
        assert message is not None and message.value() == b"c"
        with pytest.raises(BrokerError, match="group mine has members, and only they commit"):
            broker.consume(topic, 1, group="mine")
        consumer.commit(message, asynchronous=False)
        consumer.close()
        assert values(broker.consume(topic, group="mine")) == [b"d"]
        assert broker.consume(topic, group="mine") == []
        assert values(broker.consume(topic)) == [b"a", b"b", b"c", b"d"]

    def test_aborted_transactions(self, broker: Broker, topic: str) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
        producer.init_transactions(300)
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.produce(topic, end.__name__)
            assert producer.flush(300) == 0
            end(300)
        producer.begin_transaction()
        producer.produce(topic, "open")
        assert producer.flush(300) == 0
        assert values(broker.consume(topic)) == [b"commit_transaction"]
        assert values(broker.consume(topic, 1, group="t")) == [b"commit_transaction"]
        everything = [b"abort_transaction", b"commit_transaction", b"open"]
        assert values(broker.consume(topic, read_committed=False)) == everything
        producer.abort_transaction(300)
        assert broker.consume(topic, group="t") == []

    def test_records_that_were_deleted(self, broker: Broker, topic: str) -> None:
        from confluent_kafka.admin import AdminClient

        broker.produce(topic, ["a", "b", "c"])
        client = AdminClient({"bootstrap.servers": broker.bootstrap})
        at = TopicPartition(topic, 0, 2)
        client.delete_records([at])[at].result(300)
        assert values(broker.consume(topic, 1, group="behind")) == [b"c"]
        for offset in (0, 100):  # deleted since; of an older topic of that name
            settings = {"bootstrap.servers": broker.bootstrap, "group.id": f"at {offset}"}
            consumer = Consumer(settings)
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
            consumer.close()
            assert values(broker.consume(topic, group=f"at {offset}")) == [b"c"]


def test_a_broker_that_is_gone() -> None:
    with Broker() as broker:
        broker.produce("t", "x")
        broker.kill()
        with pytest.raises(BrokerError, match="no broker can be reached"):
            broker.produce("t", "x", timeout=0.1)
        broker.restart()
        assert values(broker.consume("t")) == [b"x"]


class TestCluster:
    @pytest.mark.parametrize(
        ("arguments", "keywords", "error", "words"),
        [
            (["127.0.0.1:9092"], {}, TypeError, "takes how many, not '127.0.0.1:9092'"),
            ([True], {}, TypeError, "takes how many"),
            ([0], {}, ValueError, "from 1 to 100 nodes, not 0"),
            ([3, "127.0.0.1:9092"], {}, TypeError, "takes settings by name, not '127.0.0.1:9092'"),
            ([3], {"port": 9092}, TypeError, "Cluster has no argument 'port'"),
            ([3], {"topic": "t"}, TypeError, "did you mean topics"),
            ([3], {"node": 3}, TypeError, "did you mean nodes"),
        ],
    )
    def test_arguments(self, arguments: list, keywords: dict, error: type[Exception], words: str) -> None:  # type: ignore[type-arg]
        with pytest.raises(error, match=words):
            Cluster(*arguments, **keywords)

    def test_records_over_a_change_of_leader(self) -> None:
        """Written while the leader dies, each is there once. The synchronous methods do the same."""
        quick = {"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 200}

        async def main() -> list[bytes | None]:
            async with AsyncCluster(3, quick, topics=["t"]) as cluster:
                await cluster.produce("t", "before")
                writing = [asyncio.ensure_future(cluster.produce("t", f"{number}", timeout=300)) for number in range(4)]
                await cluster.kill(await cluster.leader("t"))
                await asyncio.gather(*writing)
                await cluster.produce("t", "after", timeout=300)
                return values(await cluster.consume("t", 6, timeout=300))

        found = asyncio.run(main())
        assert found[0] == b"before" and found[-1] == b"after"
        assert sorted(each or b"" for each in found[1:-1]) == [b"0", b"1", b"2", b"3"]


class TestAsynchronous:
    def test_beside_aiokafka(self) -> None:
        async def main() -> int:
            async with AsyncBroker(QUIET, topics=["t"]) as broker:
                assert repr(broker) == f"<AsyncBroker {broker.bootstrap}>"
                waiting = asyncio.ensure_future(broker.consume("t", 2))
                async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
                    await producer.send_and_wait("t", b"a")
                await broker.produce("t", "b")
                assert values(await waiting) == [b"a", b"b"]
                async with AIOKafkaConsumer(
                    "t", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
                ) as consumer:
                    assert [(await consumer.getone()).value for _ in range(2)] == [b"a", b"b"]
                await broker.restart()
                assert len(await broker.consume("t")) == 2
                await broker.clear()
                await broker.create_topic("u", partitions=2)
                return broker.pid

        wait_until_gone(asyncio.run(main()))

    def test_a_cancelled_wait_ends(self) -> None:
        """The thread too, for which the end of the event loop would wait."""

        async def main() -> None:
            async with AsyncBroker() as broker:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(broker.consume("t", 1, timeout=100_000), 0.05)

        asyncio.run(main())

    def test_the_fixture_under_every_plugin(self, tmp_path: Path) -> None:
        (tmp_path / "test_it.py").write_text(PLUGINS)
        assert "4 passed" in run_pytest(tmp_path, "-p", "no:xdist")
        (tmp_path / "test_it.py").write_text(PLUGINS.replace("@pytest.mark.asyncio", ""))
        arguments = ["-p", "no:xdist", "-o", "asyncio_mode=auto", "-k", "not anyio"]
        assert "3 passed" in run_pytest(tmp_path, *arguments)


PLUGINS = """
import asyncio
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

async def exchange(broker, topic):
    await broker.produce(topic, "two coffees")
    [record] = await broker.consume(topic, 1)
    assert record.value == b"two coffees"

@pytest.mark.asyncio
async def test_asyncio(ottla_async_broker, ottla_topic):
    await exchange(ottla_async_broker, ottla_topic)

@pytest.mark.asyncio
async def test_asyncio_on_another_loop(ottla_async_broker, ottla_topic):
    await exchange(ottla_async_broker, ottla_topic)

@pytest.mark.anyio
async def test_anyio(ottla_async_broker, ottla_topic, anyio_backend):
    await exchange(ottla_async_broker, ottla_topic)

def test_without_a_plugin(ottla_async_broker, ottla_topic):
    asyncio.run(exchange(ottla_async_broker, ottla_topic))
"""
