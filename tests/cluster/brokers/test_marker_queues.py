"""What the metrics say of transactions that have been decided while the leader of their partition does not answer."""

from __future__ import annotations

import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from ottla.testing.process import reserve
from tests.cluster.admin import create, leaders, until
from tests.cluster.processes import BROKERS, three_brokers
from tests.conformance.transactions.test_exactly_once import read_committed
from tests.node import NodeProcess

PREFIX = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
QUEUED = "ottla_transaction_markers_queued"
TRIED_AGAIN = f"{PREFIX}logappendretryqueuesize"
NO_LEADER = f"{PREFIX}unknowndestinationqueuesize"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[int, NodeProcess]]:
    with ExitStack() as held:

        def settings_of(node_id: int, _: Path) -> dict[str, str]:
            http = held.enter_context(reserve(0)).getsockname()[1]
            return {
                "ottla.http.listener": f"127.0.0.1:{http}",
                "transaction.state.log.num.partitions": "1",
                "broker.session.timeout.ms": "6000",
                "broker.heartbeat.interval.ms": "500",
            }

        yield held.enter_context(three_brokers(tmp_path, settings_of))


def samples(node: NodeProcess) -> dict[str, float]:
    """All that have no label but a state, by name and state."""
    with urllib.request.urlopen(f"http://{node.settings['ottla.http.listener']}/metrics", timeout=60) as page:
        families = [*text_string_to_metric_families(page.read().decode())]
    every = (each for family in families for each in family.samples if each.labels.keys() <= {"state"})
    return {each.name + each.labels.get("state", ""): each.value for each in every}


def waiting(node: NodeProcess) -> dict[str, float]:
    """The three metrics."""
    found = samples(node)
    return {name: found[name] for name in (QUEUED, TRIED_AGAIN, NO_LEADER)}


def producer_of(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(60)
    return producer


def begun(bootstrap: str, name: str) -> Producer:
    """One with a record of an open transaction in `alone`."""
    producer = producer_of(bootstrap, name)
    producer.begin_transaction()
    producer.produce("alone", name, partition=0)
    assert producer.flush(60) == 0
    return producer


def test_markers_wait_for_an_answer_for_another_try_and_for_a_leader(nodes: dict[int, NodeProcess]) -> None:
    first = nodes[BROKERS[0]].bootstrap
    producer_of(first, "first")  # makes the topic
    coordinator = leaders(first, "__transaction_state")[0][0]
    leader = next(each for each in BROKERS if each != coordinator)
    assert create(first, "alone", replicas=[leader]) == 0
    until(lambda: leaders(nodes[coordinator].bootstrap, "alone"), [(leader, 0)].__eq__)
    producers = [begun(nodes[coordinator].bootstrap, name) for name in ("a", "b", "c")]
    assert waiting(nodes[coordinator]) == {QUEUED: 0, TRIED_AGAIN: 0, NO_LEADER: 0}

    process = nodes[leader].process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    commits = [threading.Thread(target=each.commit_transaction, args=(120,)) for each in producers]
    commits[0].start()
    until(lambda: samples(nodes[coordinator])["ottla_transactionsPrepareCommit"], lambda found: found == 1)
    for commit in commits[1:]:  # the leader was asked to write the first marker, and has not answered
        commit.start()
    until(lambda: waiting(nodes[coordinator])[QUEUED], lambda found: found == 2)
    nodes[leader].kill()
    until(lambda: waiting(nodes[coordinator])[TRIED_AGAIN], lambda found: found > 0)
    until(lambda: waiting(nodes[coordinator])[NO_LEADER], lambda found: found == 3)
    nodes[leader].start()
    for commit in commits:
        commit.join(120)
    until(lambda: samples(nodes[coordinator])["ottla_transactionsCompleteCommit"], lambda found: found == 3)
    assert waiting(nodes[coordinator]) == {QUEUED: 0, TRIED_AGAIN: 0, NO_LEADER: 0}
    assert sorted(read_committed(nodes[coordinator].bootstrap, "alone")) == ["a", "b", "c"]
