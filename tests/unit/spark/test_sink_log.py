"""The sink's port to a cluster: claims, decisions, and the states of transactions, against a broker."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from ottla import arrow
from ottla.client.cluster import Cluster
from ottla.client.config import ClientConfig
from ottla.client.producer import Producer
from ottla.client.transactions import init_producer
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.spark import sink_log
from ottla.spark.exactly_once import Decision, Dropped, Fenced, State, Written
from ottla.spark.sink_log import SinkLog, transactional_id
from ottla.testing import Broker
from tests.unit.client.test_producing import numbers, values


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}) as running:
        yield running


class Site:
    """Makes logs, and transactions as tasks do."""

    def __init__(self, address: str) -> None:
        self.config = ClientConfig((address,), request_timeout_s=15)
        self.query = uuid.uuid4().hex
        self.logs: list[SinkLog] = []
        self.cluster = Cluster(self.config)

    def log(self, query: str | None = None, topic: str = "decisions") -> SinkLog:
        made = SinkLog(Cluster(self.config), query or self.query, topic)
        self.logs.append(made)
        return made

    def write(self, topic: str, task: int = 0, run: str = "run", timeout_ms: int = 60_000, rows: int = 3) -> Written:
        name = transactional_id(self.query, run, task, 0)
        producer = Producer(self.cluster, transactional_id=name, transaction_timeout_ms=timeout_ms)
        producer.start()
        producer.begin()
        producer.send(topic, values(task * 100, rows))
        producer.flush()
        return Written(name, producer.producer_id, producer.epoch, task, rows, "d")

    def written(self, task: int) -> Written:
        """What a task tells, with a digest as long as one of a few columns."""
        digest = "-".join(f"{(task + 1) * 2654435761 * part & 0xFFFFFFFF:08x}" for part in range(1, 9))
        return Written(transactional_id(self.query, "run", task, 0), 10**9 + task, 12, task, 10**6 + task, digest)

    def close(self) -> None:
        for each in self.logs:
            each.close()
        self.cluster.close()


@pytest.fixture
def site(broker: Broker) -> Iterator[Site]:
    made = Site(f"127.0.0.1:{broker.port}")
    yield made
    made.close()


def decision(batch: int, *written: Written) -> Decision:
    return Decision(batch, "run", written, (Dropped(1, 2, 3),))


def test_the_newest_decision_is_found(site: Site) -> None:
    log = site.log()
    log.claim()
    assert log.decision() is None
    for batch in range(3):
        log.decide(decision(batch, Written("é", 5, 6, 7, 8, "9")))
        assert log.decision() == decision(batch, Written("é", 5, 6, 7, 8, "9"))
    other = site.log()
    other.claim()
    assert other.decision() == decision(2, Written("é", 5, 6, 7, 8, "9"))
    stranger = site.log("another-query")
    stranger.claim()
    assert stranger.decision() is None


@pytest.mark.parametrize("look_back", [1, 3, 64])
def test_a_decision_far_back_among_those_of_other_queries(
    site: Site, look_back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_log, "_LOOK_BACK", look_back)
    log, busy = site.log(), site.log(f"busy-{look_back}")
    log.claim()
    log.decide(decision(1))
    log.decide(decision(2))
    busy.claim()
    for batch in range(150):  # two offsets each: the record and the marker
        busy.decide(decision(batch))
    again = site.log()
    again.claim()
    assert again.decision() == decision(2)
    assert busy.decision() == decision(149)


def test_who_claimed_before_is_fenced(site: Site) -> None:
    first, second = site.log(), site.log()
    first.claim()
    first.decide(decision(0))
    second.claim()
    with pytest.raises(Fenced):
        first.decide(decision(1))
    second.decide(decision(5))
    first.claim()
    assert first.decision() == decision(5)
    with pytest.raises(Fenced):
        second.decide(decision(6))
    assert first.decision() == decision(5)


def test_a_decision_that_is_not_committed_is_none(site: Site) -> None:
    """The driver is killed between the record and its commit: the next claim drops it."""
    log = site.log()
    log.claim()
    log.decide(decision(1))
    assert log._producer is not None
    log._producer.begin()
    key = site.query.encode()
    log._producer.send("decisions", pa.record_batch({"key": [key], "value": [decision(2).to_json()]}))
    log._producer.flush()
    other = site.log()
    other.claim()
    assert other.decision() == decision(1)


def test_a_transaction_of_another_query_does_not_hide_a_decision(site: Site) -> None:
    """It holds the last stable offset back, until its timeout at most."""
    hanging = Producer(site.cluster, transactional_id=f"hanging-{site.query}", transaction_timeout_ms=2000)
    site.log().claim()  # the topic
    hanging.start()
    hanging.begin()
    hanging.send("decisions", values(0, 1, key=[b"k"], partition=[0]))
    hanging.flush()
    log = site.log()
    log.claim()
    log.decide(decision(7))
    other = site.log()
    other.claim()
    assert other.decision() == decision(7)


def test_a_topic_of_several_partitions(broker: Broker, site: Site) -> None:
    """The topic was created so: decisions are where they are looked for."""
    broker.create_topic("of-seven", partitions=7, **{"cleanup.policy": "compact"})
    for number in range(10):
        log = site.log(f"{site.query}-{number}", "of-seven")
        log.claim()
        log.decide(decision(number))
        assert log.decision() == decision(number)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_forgets_is_refused(broker: Broker, site: Site, policy: str) -> None:
    topic = broker.create_topic(f"forgets-{len(policy)}", **{"cleanup.policy": policy})
    with pytest.raises(KafkaError, match=r"must be compact, but is .*delete"):
        site.log(topic=topic).claim()


def test_the_topic_is_compacted(site: Site) -> None:
    site.log(topic="fresh").claim()
    values = {
        "resources": [{"resource_type": 2, "resource_name": "fresh", "configuration_keys": ["cleanup.policy"]}],
        "include_synonyms": False,
        "include_documentation": False,
    }
    (found,) = site.cluster.ask_any(ApiKey.DESCRIBE_CONFIGS, values)["results"]
    assert [row["value"] for row in found["configs"]] == ["compact"]
    assert len(site.cluster.partitions(["fresh"])) == 1


def test_a_decision_about_thousands_of_tasks(site: Site) -> None:
    many = Decision(3, str(uuid.uuid4()), tuple(map(site.written, range(20_000))))
    log = site.log()
    log.claim()
    log.decide(many)
    assert log.decision() == many


def test_states_of_transactions(broker: Broker, site: Site) -> None:
    topic = broker.create_topic(f"states-{site.query}")
    log = site.log()
    open_, committed, aborted, late = (
        site.write(topic, task, timeout_ms=500 if task == 3 else 60_000) for task in range(4)
    )
    unknown = Written(transactional_id(site.query, "run", 99, 0), 1, 0, 99, 1, "d")
    again = site.write(topic, 5)
    fenced_by = site.write(topic, 5)
    log.end(committed, commit=True)
    log.end(aborted, commit=False)
    timed_out(log, late)
    wanted = [State.OPEN, State.COMMITTED, State.ABORTED, State.ABORTED, State.UNKNOWN, State.OPEN]
    assert log.states([open_, committed, aborted, late, unknown, fenced_by]) == wanted
    assert log.states([again]) == [State.UNKNOWN], "another one has begun since"
    assert log.states([]) == []
    assert log.states([committed._replace(epoch=committed.epoch + 1)]) == [State.UNKNOWN]
    assert log.states([committed._replace(producer_id=12345)]) == [State.UNKNOWN]

    # Ends that are repeated, and that come too late.
    assert log.end(committed, commit=True) is State.COMMITTED
    assert log.end(committed, commit=False) is State.COMMITTED
    assert log.end(aborted, commit=False) is State.ABORTED
    assert log.end(aborted, commit=True) is State.ABORTED
    assert log.end(late, commit=True) is State.ABORTED
    assert log.end(late, commit=False) is State.ABORTED
    assert log.end(unknown, commit=True) is State.UNKNOWN
    assert log.end(again, commit=True) is State.UNKNOWN
    assert log.states([fenced_by]) == [State.OPEN], "the earlier epoch has ended nothing"
    assert log.end(open_, commit=True) is State.COMMITTED
    assert log.end(fenced_by, commit=False) is State.ABORTED
    assert sorted(numbers(broker, topic)) == [0, 1, 2, 100, 101, 102]


def timed_out(log: SinkLog, written: Written) -> None:
    deadline = time.monotonic() + 30
    while log.states([written]) != [State.ABORTED]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_id_that_began_again_and_wrote_nothing(broker: Broker, site: Site) -> None:
    """InitProducerId aborts what the id had open: what was written before is not known to be anything else."""
    topic = broker.create_topic(f"again-{site.query}")
    log = site.log()
    written = site.write(topic)
    init_producer(site.cluster, written.transactional_id)
    assert log.states([written])[0] in (State.ABORTED, State.UNKNOWN)
    assert log.end(written, commit=True) is not State.COMMITTED
    assert numbers(broker, topic) == []


def test_open_transactions(broker: Broker, site: Site) -> None:
    topic = broker.create_topic(f"open-{site.query}")
    log = site.log()
    log.claim()
    one, other, done = site.write(topic, 0), site.write(topic, 1, "another-run"), site.write(topic, 2)
    log.end(done, commit=True)
    stranger = Site(site.config.bootstrap[0])
    stranger.write(topic)
    found = {each.written.transactional_id: each for each in log.open_transactions()}
    assert set(found) == {one.transactional_id, other.transactional_id}
    assert found[other.transactional_id].run == "another-run"
    mine = found[one.transactional_id]
    assert (mine.written.producer_id, mine.written.epoch, mine.written.task) == (one.producer_id, one.epoch, 0)
    assert -5 < mine.age_s < 30
    for each in found.values():
        assert log.end(each.written, commit=False) is State.ABORTED
    assert log.open_transactions() == []
    stranger.close()


def test_open_transactions_where_a_node_does_not_answer(
    broker: Broker, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("open-if-known")
    log, written = site.log(), site.write("open-if-known")
    assert [one.written[:3] for one in log.open_if_known()] == [written[:3]]

    def silent(*_: object) -> list[str]:
        raise TimeoutError

    monkeypatch.setattr(sink_log, "list_transactions", silent)
    with pytest.raises(TimeoutError):
        log.open_transactions()
    assert log.open_if_known() == []


def test_a_coordinator_that_is_not_there_yet_is_waited_for(
    broker: Broker, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.create_topic(f"moves-{site.query}")
    written = site.write(topic)
    log = site.log()
    cluster, left = log._cluster, [2]
    ask_any = cluster.ask_any

    def moved(api_key: ApiKey, values: Any) -> dict[str, Any]:
        if api_key is ApiKey.FIND_COORDINATOR and left[0]:
            left[0] -= 1
            raise KafkaError(ErrorCode.coordinator_not_available, "moves")
        return ask_any(api_key, values)

    monkeypatch.setattr(cluster, "ask_any", moved)
    assert log.states([written]) == [State.OPEN]
    assert left == [0]


def test_many_transactions_are_asked_about_in_few_requests(
    broker: Broker, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = site.log()
    count = 0
    ask_any = log._cluster.ask_any

    def counted(api_key: ApiKey, values: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        return ask_any(api_key, values)

    monkeypatch.setattr(log._cluster, "ask_any", counted)
    names = [Written(transactional_id(site.query, "run", task, 0), 1, 0, task, 1, "d") for task in range(2000)]
    assert log.states(names) == [State.UNKNOWN] * 2000
    assert count < 20


def test_the_broker_restarts_between_claim_and_decision(site: Site) -> None:
    with Broker() as broker:
        site = Site(f"127.0.0.1:{broker.port}")
        log = site.log()
        log.claim()
        log.decide(decision(0))
        topic = broker.create_topic("restarted")
        written = site.write(topic)
        broker.restart()
        log.decide(decision(1, written))
        assert log.states([written]) == [State.OPEN]
        broker.restart()
        assert log.end(written, commit=True) is State.COMMITTED
        again = site.log()
        again.claim()
        assert again.decision() == decision(1, written)
        assert numbers(broker, topic) == [0, 1, 2]
        site.close()


def test_the_key_is_the_query(site: Site) -> None:
    """So that compaction keeps the newest decision of each."""
    log = site.log()
    log.claim()
    log.decide(decision(4))
    rows = arrow.read("decisions", site.config.bootstrap[0]).read_all().to_pylist()
    assert [json.loads(row["value"])["batch"] for row in rows if row["key"] == site.query.encode()] == [4]
    assert site.cluster.leader(*TopicPartition("decisions", 0)).node_id > 0
