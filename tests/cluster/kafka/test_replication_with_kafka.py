"""A Kafka broker and an Ottla broker replicate each other's partitions, under a controller of Ottla."""

from __future__ import annotations

from pathlib import Path

from ottla.errors import ErrorCode
from tests.cluster.admin import create, in_sync_sets, leaders, until
from tests.cluster.brokers.test_life import consume, produce
from tests.cluster.processes import QUICK, identity, kafka_broker, ottla_broker, ottla_controller
from tests.cluster.restarts import behind_a_refused_batch

OTTLA, KAFKA = 1, 2
BOTH = [OTTLA, KAFKA]


def log_of(directory: Path, topic: str) -> bytes:
    return (directory / f"{topic}-0" / f"{0:020}.log").read_bytes()


def test_each_follows_the_other(tmp_path: Path) -> None:
    """Logs are the same byte for byte, both are in sync, and leadership moves both ways when one is stopped.

    What a new leader answers behind a batch that came too early differs: Kafka says OUT_OF_ORDER_SEQUENCE_NUMBER, after
    which librdkafka raises its epoch for all partitions, and what is in doubt on another one is there twice
    (librdkafka#4953). A walk meets it where Kafka leads. Both know what was replicated to them before: the retries.
    """
    with ottla_controller(tmp_path / "controller", QUICK) as controller:
        cluster_id = identity(controller.data).cluster_id
        kafka = kafka_broker(tmp_path / "kafka", controller.bootstrap, cluster_id, node_id=KAFKA)
        ottla = ottla_broker(tmp_path / "ottla", controller.bootstrap, QUICK, node_id=OTTLA)
        try:
            kafka.start()
            ottla.start()
            both = f"{ottla.bootstrap},{kafka.bootstrap}"
            for topic, replicas in (("led-by-ottla", [OTTLA, KAFKA]), ("led-by-kafka", [KAFKA, OTTLA])):
                assert create(ottla.bootstrap, topic, replicas=replicas) == 0
                until(lambda topic=topic: in_sync_sets(ottla.bootstrap, topic), lambda found: found == [BOTH])  # type: ignore[misc]
                produce(both, topic, [f"first-{number}" for number in range(500)])
                assert leaders(ottla.bootstrap, topic)[0][0] == replicas[0]
                assert log_of(ottla.data, topic) == log_of(kafka.data, topic) != b""
            for topic, replicas in (("to-ottla", [OTTLA, KAFKA]), ("to-kafka", [KAFKA, OTTLA])):
                assert create(ottla.bootstrap, topic, replicas=replicas) == 0
                until(lambda topic=topic: in_sync_sets(ottla.bootstrap, topic), lambda found: found == [BOTH])  # type: ignore[misc]
            ottla.stop()
            for topic in ("led-by-ottla", "led-by-kafka"):
                produce(kafka.bootstrap, topic, [f"second-{number}" for number in range(500)])
                assert leaders(kafka.bootstrap, topic)[0][0] == KAFKA
            ottla.start()
            for topic in ("led-by-ottla", "led-by-kafka"):
                until(lambda topic=topic: in_sync_sets(ottla.bootstrap, topic), lambda found: found == [BOTH])  # type: ignore[misc]
            until(lambda: in_sync_sets(ottla.bootstrap, "to-ottla"), lambda found: found == [BOTH])
            told = behind_a_refused_batch(kafka.bootstrap, ottla.bootstrap, "to-ottla")
            assert told == [ErrorCode.not_leader_or_follower] * 2 + [ErrorCode.none] * 3
            kafka.stop()
            for topic in ("led-by-ottla", "led-by-kafka"):
                until(lambda topic=topic: leaders(ottla.bootstrap, topic)[0][0], lambda found: found == OTTLA)  # type: ignore[misc]
                produce(ottla.bootstrap, topic, ["last"])
                assert len(consume(ottla.bootstrap, topic)) == 1001
                assert log_of(ottla.data, topic).startswith(log_of(kafka.data, topic))
            kafka.start()
            for topic in ("led-by-ottla", "led-by-kafka"):
                until(lambda topic=topic: in_sync_sets(ottla.bootstrap, topic), lambda found: found == [BOTH])  # type: ignore[misc]
                assert log_of(ottla.data, topic) == log_of(kafka.data, topic)
            until(lambda: in_sync_sets(ottla.bootstrap, "to-kafka"), lambda found: found == [BOTH])
            told = behind_a_refused_batch(ottla.bootstrap, kafka.bootstrap, "to-kafka")
            early, behind = ErrorCode.not_leader_or_follower, ErrorCode.out_of_order_sequence_number
            assert told == [early, behind, *[ErrorCode.none] * 3]
        finally:
            kafka.stop()
            if ottla.process is not None:
                ottla.stop()
