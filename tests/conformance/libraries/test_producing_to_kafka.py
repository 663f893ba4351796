"""The producer and the sink's decisions beside Apache Kafka: `docs/inside/exactly-once.md` holds there too."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from ottla.client.cluster import Cluster
from ottla.client.producer import Producer
from ottla.client.transactions import describe_transactions, end_transaction, init_producer, list_transactions
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.spark.exactly_once import Committer, Decision, Fenced, State, Written
from ottla.spark.sink_log import SinkLog
from tests.unit.client.test_producing import read, values
from tests.unit.spark.test_sink_log import Site, decision


class KafkaSite(Site):
    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address

    def topic(self, partitions: int = 1, **configs: str) -> str:
        name = f"t-{uuid.uuid4().hex}"
        row = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        (answer,) = self.cluster.ask_any(
            ApiKey.CREATE_TOPICS, {"topics": [row], "timeout": 10_000, "validate_only": False}
        )["topics"]
        assert not answer["error_code"], answer
        return name

    def numbers(self, topic: str, partitions: int = 1) -> list[int]:
        return [int(one.value()) for one in read(self.address, topic, partitions)]


@pytest.fixture
def site(oracle: str) -> Iterator[KafkaSite]:
    made = KafkaSite(oracle)
    yield made
    made.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_idempotent(site: KafkaSite, codec: str) -> None:
    topic = site.topic(3)
    producer = Producer(site.cluster, compression=codec, batch_bytes=5000)
    producer.start()
    for at in range(0, 5000, 500):
        keys = [b"%d" % number for number in range(at, at + 500)]
        producer.send(topic, values(at, 500, key=pa.array(keys, pa.binary())))
    producer.flush()
    assert sorted(site.numbers(topic, 3)) == list(range(5000))


def test_a_topic_that_is_created_and_one_with_small_batches(site: KafkaSite) -> None:
    name = f"auto-{uuid.uuid4().hex}"
    producer = Producer(site.cluster)
    producer.start()
    producer.send(name, values(0, 10))
    producer.flush()
    assert sorted(site.numbers(name, len(site.cluster.partitions([name])))) == list(range(10))
    small = site.topic(max_message_bytes="2000")
    producer.send(small, values(0, 3000))
    producer.flush()
    producer.send(small, values(3000, 3000))
    producer.flush()
    assert site.numbers(small) == list(range(6000))


def test_transactions_one_after_the_other(site: KafkaSite) -> None:
    topic = site.topic(2)
    producer = Producer(site.cluster, transactional_id=uuid.uuid4().hex)
    producer.start()
    for at in range(10):
        producer.begin()
        producer.send(topic, values(at * 100, 100))
        producer.abort() if at % 2 else producer.commit()
    assert sorted(site.numbers(topic, 2)) == [at for at in range(1000) if at // 100 % 2 == 0]


def test_another_process_ends_a_transaction(site: KafkaSite) -> None:
    topic = site.topic()
    one, other = site.write(topic, 1), site.write(topic, 2)
    elsewhere = Cluster(site.config)
    assert {
        name: known.state
        for name, known in describe_transactions(
            elsewhere, [one.transactional_id, other.transactional_id, "nobody"]
        ).items()
    } == {
        one.transactional_id: "Ongoing",
        other.transactional_id: "Ongoing",
    }
    prefix = f"ottla-sink:{site.query}:"
    assert list_transactions(elsewhere, prefix) == [one.transactional_id, other.transactional_id]
    for _ in range(2):
        end_transaction(elsewhere, one.transactional_id, one.producer_id, one.epoch, commit=True)
        end_transaction(elsewhere, other.transactional_id, other.producer_id, other.epoch, commit=False)
    with pytest.raises(KafkaError) as raised:
        end_transaction(elsewhere, one.transactional_id, one.producer_id, one.epoch, commit=False)
    assert raised.value.code is ErrorCode.invalid_txn_state
    assert site.numbers(topic) == [100, 101, 102]
    elsewhere.close()


def test_states_and_ends(site: KafkaSite) -> None:
    topic = site.topic()
    log = site.log()
    committed, aborted, late, fenced = (
        site.write(topic, task, timeout_ms=1000 if task == 2 else 60_000) for task in range(4)
    )
    again = site.write(topic, 3)
    assert log.states([committed, again, fenced]) == [State.OPEN, State.OPEN, State.UNKNOWN]
    assert log.end(committed, commit=True) is State.COMMITTED
    assert log.end(aborted, commit=False) is State.ABORTED
    deadline = time.monotonic() + 60
    while log.states([late]) == [State.OPEN]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert log.states([committed, aborted, late]) == [State.COMMITTED, State.ABORTED, State.ABORTED]
    for commit in (True, False):
        assert log.end(committed, commit) is State.COMMITTED
        assert log.end(aborted, commit) is State.ABORTED
        assert log.end(late, commit) is State.ABORTED
        assert log.end(fenced, commit) is State.UNKNOWN
    assert [each.written.transactional_id for each in log.open_transactions()] == [again.transactional_id]
    assert log.end(again, commit=True) is State.COMMITTED
    assert log.open_transactions() == []
    init_producer(site.cluster, committed.transactional_id)
    assert log.states([committed]) == [State.UNKNOWN]
    assert sorted(site.numbers(topic)) == [0, 1, 2, 300, 301, 302]


def test_decisions(site: KafkaSite) -> None:
    first, second = site.log(), site.log()
    first.claim()
    assert first.decision() is None
    many = Decision(0, "run", tuple(map(site.written, range(5000))))
    first.decide(many)
    assert first.decision() == many
    second.claim()
    with pytest.raises(Fenced):
        first.decide(decision(1))
    assert second.decision() == many
    second.decide(decision(2))
    first.claim()
    assert first.decision() == decision(2)
    with pytest.raises(Fenced):
        second.decide(decision(3))
    assert first.decision() == decision(2)


def test_a_batch_from_its_tasks_to_its_commit(site: KafkaSite) -> None:
    topic = site.topic()
    first, second = Committer(site.log(), "run-1"), Committer(site.log(), "run-2")
    first.commit(0, [site.write(topic, task, "run-1") for task in range(3)])
    lost = site.write(topic, 7, "run-1")
    ends = []

    def end(one: Written, commit: bool) -> State:
        ends.append(one)
        if len(ends) == 2:
            raise KafkaError(ErrorCode.network_exception, "killed")
        return SinkLog.end(port, one, commit)

    port = first.port = site.log()
    port.end = end  # type: ignore[method-assign]
    first.claimed = False
    with pytest.raises(KafkaError, match="killed"):  # two are decided, one is committed
        first.commit(1, [site.write(topic, task, "run-1") for task in (4, 5)])
    second.commit(1, [site.write(topic, task, "run-2") for task in (4, 5)])
    assert second.clean() == 1
    assert site.log().states([lost]) == [State.ABORTED]
    assert sorted(site.numbers(topic)) == [0, 1, 2, 100, 101, 102, 200, 201, 202, 400, 401, 402, 500, 501, 502]
