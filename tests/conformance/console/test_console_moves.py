"""A move between two brokers of an Apache Kafka: bytes, rate and throttle on the page Moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.console.routes import API
from ottla.console.server import Options
from peers.kafka import START_FAST
from peers.kafka.cluster import KafkaCluster
from tests.cluster.admin import until
from tests.conformance.console.test_console_node import console

RATE: Final = 500_000
RECORDS: Final = 8_000
"""Records of 1,000 bytes each: with the throttle 8 MB take 16 s."""
ALONE: Final = {
    "default.replication.factor": "1", "min.insync.replicas": "1", "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
}  # fmt: skip


def test_a_throttled_move_on_apache_kafka(tmp_path: Path) -> None:
    cluster = KafkaCluster(tmp_path, 2, settings=ALONE, flags=START_FAST).start()
    try:
        _moves(cluster)
    finally:
        cluster.stop()


def _moves(cluster: KafkaCluster) -> None:
    made = NewTopic("moved", 1, replica_assignment=[[1]])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([made])["moved"].result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": RECORDS + 1})
    for _ in range(RECORDS):
        producer.produce("moved", b"x" * 1_000)
    producer.flush()
    with console(Options(cluster.bootstrap, port=0)) as site:

        def done(act: str, **values: Any) -> Any:
            answer = site.post(f"{API}/acts/{act}", json=values)
            assert answer.status_code == 200, answer.text
            return answer.json()["data"]

        def seen() -> Any:
            answer = site.get(f"{API}/moves").json()
            assert answer["problems"] == {}
            return answer["data"]

        for side in ("leader", "follower"):
            name = f"{side}.replication.throttled"
            for broker in (1, 2):
                done("configure-broker", broker=broker, name=f"{name}.rate", value=str(RATE))
            done("configure-topic", topic="moved", name=f"{name}.replicas", value="*")
        done("move-partition", topic="moved", partition=0, replicas="2")

        def is_copying(found: Any) -> bool:
            return bool(found["rows"]) and 0 < int(found["rows"][0]["copied_bytes"] or 0) < int(found["bytes"])

        first = until(seen, is_copying)
        (row,) = first["rows"]
        assert (row["topic"], row["adding"], row["removing"], row["in_sync"]) == ("moved", [2], [1], [])
        assert int(row["bytes"]) > RECORDS * 1_000
        rates = [{"broker": broker, "bytes_per_second": str(RATE)} for broker in (1, 2)]
        assert until(seen, lambda found: found["throttle"] == rates)["is_left_behind"] is False
        copied = int(first["copied_bytes"])
        later = until(seen, lambda found: found["left_s"] is not None and int(found["copied_bytes"]) > copied)
        assert int(later["bytes_per_second"]) > 0

        done("throttle-moves", throttle=str(500 * RATE))
        left = until(seen, lambda found: not found["rows"])
        assert left["is_left_behind"]
        done("remove-throttle")
        assert until(seen, lambda found: not found["throttle"])["is_left_behind"] is False
