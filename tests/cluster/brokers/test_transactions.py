"""Transactions on three nodes: whoever coordinates or leads is killed, each record is copied once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from ottla.testing import Cluster
from tests.cluster.admin import until
from tests.conformance.cli.test_check import Check
from tests.conformance.clients import build
from tests.conformance.transactions.test_exactly_once import (
    COUNT,
    copied,
    copy,
    fill,
    go_copier,
    java_copier,
    python_copier,
)

SETTINGS = {
    "transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    topics = {"in": 1, "out": 1}
    with Cluster(3, SETTINGS, topics=topics) as started:
        yield started


def killed(cluster: Cluster, topic: str) -> Callable[[], None]:
    """Kill the leader of a topic, and start it again when somebody else leads."""

    def strike() -> None:
        leader = cluster.leader(topic)
        cluster.kill(leader)
        cluster.restart(leader)

    return strike


def test_librdkafka_while_coordinators_and_leaders_die(cluster: Cluster) -> None:
    fill(cluster.bootstrap)
    strikes = [killed(cluster, topic) for topic in ("__transaction_state", "out", "__consumer_offsets", "in")]
    copy(python_copier("confluent_copier.py")(cluster.bootstrap), *strikes)
    assert copied(cluster.bootstrap) == list(range(COUNT))


def test_java_while_coordinators_and_leaders_die(cluster: Cluster) -> None:
    fill(cluster.bootstrap)
    strikes = [killed(cluster, topic) for topic in ("__transaction_state", "out")]
    copy(java_copier(cluster.bootstrap), *strikes)
    assert copied(cluster.bootstrap) == list(range(COUNT))


@pytest.mark.matrix
def test_franz_go_while_coordinators_and_leaders_die(cluster: Cluster) -> None:
    if reason := build.missing("go"):
        pytest.skip(reason)
    fill(cluster.bootstrap)
    strikes = [killed(cluster, topic) for topic in ("__transaction_state", "out", "__consumer_offsets", "in")]
    copy(go_copier(cluster.bootstrap), *strikes)
    assert copied(cluster.bootstrap) == list(range(COUNT))


def test_the_checker_finds_nothing_while_coordinators_and_leaders_die(cluster: Cluster) -> None:
    """Several producers, a group that consumes and writes in transactions, and readers (`ottla check`)."""
    arguments = ("--transactions", "--topic", "lists", "-p", "2", "-r", "3", "--rate", "200", "--seconds", "15")
    check = Check(cluster.bootstrap, *arguments)
    for topic in ("__transaction_state", "lists", "__consumer_offsets"):
        await_written(cluster, check, topic)
        killed(cluster, topic)()
    code, report = check.result()
    assert (code, report["sound"]) == (0, True)
    assert report["committed"] > 50 and report["aborted"] > 10 and report["consumed"] > 50


def paused(cluster: Cluster, topic: str) -> None:
    """Stop the leader of a topic for longer than its session lasts: it goes on and thinks that it leads."""
    leader = cluster.leader(topic)
    cluster.pause(leader)
    others = [node for node in cluster.nodes if node != leader]
    until(lambda: cluster.leader(topic, seen_by=others[0]), lambda found: found != leader)
    cluster.resume(leader)


def isolated(cluster: Cluster, topic: str) -> None:
    """The same for one that clients still reach, and the others do not."""
    leader = cluster.leader(topic)
    cluster.partition(leader)
    others = [node for node in cluster.nodes if node != leader]
    until(lambda: cluster.leader(topic, seen_by=others[0]), lambda found: found != leader)
    cluster.heal()


def test_the_checker_finds_nothing_while_coordinators_and_leaders_are_paused_and_cut_off() -> None:
    settings = {**SETTINGS, "broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
    with Cluster(3, settings, topics={"in": 1, "out": 1}) as cluster:
        arguments = ("--transactions", "--topic", "lists", "-p", "2", "-r", "3", "--rate", "200", "--seconds", "240")
        check = Check(cluster.bootstrap, *arguments)
        for happens in (paused, isolated):
            for topic in ("__transaction_state", "lists", "__consumer_offsets"):
                await_written(cluster, check, topic)
                happens(cluster, topic)
        await_written(cluster, check, "lists")
        check.process.send_signal(signal.SIGINT)
        code, report = check.result()
        assert (code, report["sound"]) == (130, True)
        assert report["committed"] > 50 and report["aborted"] > 10 and report["consumed"] > 50


def await_written(cluster: Cluster, check: Check, topic: str) -> None:
    """Returns when a partition of the topic has grown by some records."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "ends", "log_level": 0}

    def end() -> tuple[int, str]:
        # A client for each look: librdkafka 2.16 can keep a lapsed entry of its cache, and call the partition unknown.
        consumer = Consumer(settings)
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)[1]), ""
        except KafkaException as error:  # it is only just being made, or its leader was killed
            check.ensure_running()
            return -1, f"{topic}: {error}"
        finally:
            consumer.close()

    start, _ = until(end, lambda found: found[0] >= 0)
    until(end, lambda found: found[0] >= start + 20)
