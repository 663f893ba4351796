"""A member of a group of mixed languages: `python member.py CLIENT BOOTSTRAP TOPIC GROUP STRATEGY`.

Prints {"held": [partition, ...]} at each change of its assignment, and {"partition": n, "offset": n} for each record
once that is committed. SIGTERM makes it leave the group. The strategy "consumer" is the protocol of KIP-848.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

SESSION_MS, HEARTBEAT_MS = 20_000, 500
JOIN_S = 30.0
"""For kafka-python 3.0 to join. On a busy machine one start in a hundred looks for its coordinator for ever, of Apache
Kafka as of Ottla (2026-11-30: 4 of 420 and 6 of 474), and is made again."""


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


class Stop:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.set = False
        signal.signal(signal.SIGTERM, self._signal)

    def _signal(self, *_: object) -> None:
        self.set = True


class Held:
    """What the member holds; clients tell what comes and goes (all of it, in an eager rebalance)."""

    def __init__(self) -> None:
        self.partitions: set[int] = set()
        self.ever = False

    def came(self, partitions: Iterable[Any]) -> None:
        self.ever = True
        self.partitions |= {each.partition for each in partitions}
        say(held=sorted(self.partitions))

    def went(self, partitions: Iterable[Any]) -> None:
        self.partitions -= {each.partition for each in partitions}
        say(held=sorted(self.partitions))


def librdkafka(bootstrap: str, topic: str, group: str, strategy: str) -> None:
    from confluent_kafka import Consumer

    stop, held = Stop(), Held()
    settings: dict[str, Any] = {
        "partition.assignment.strategy": strategy,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }
    if strategy == "consumer":  # the broker says how often to ask
        settings = {"group.protocol": "consumer"}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "confluent-kafka",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe(
        [topic],
        on_assign=lambda _, parts: held.came(parts),
        on_revoke=lambda _, parts: held.went(parts),
        on_lost=lambda _, parts: held.went(parts),
    )
    while not stop.set:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            consumer.commit(message, asynchronous=False)
            say(partition=message.partition(), offset=message.offset())
    consumer.close()


def kafka_python(bootstrap: str, topic: str, group: str, strategy: str) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.structs import OffsetAndMetadata

    stop, held = Stop(), Held()
    strategies = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            held.went(revoked)

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            held.came(assigned)

    def started() -> Any:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id="kafka-python",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[strategies[strategy]],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        consumer.subscribe([topic], listener=Listener())
        return consumer

    consumer, deadline = started(), time.monotonic() + JOIN_S
    while not stop.set:
        if not held.ever and time.monotonic() > deadline:
            consumer.close()
            consumer, deadline = started(), time.monotonic() + JOIN_S
        for part, records in consumer.poll(timeout_ms=100).items():
            consumer.commit({part: OffsetAndMetadata(records[-1].offset + 1, "", -1)})
            for record in records:
                say(partition=record.partition, offset=record.offset)
    consumer.close()


async def _aiokafka(bootstrap: str, topic: str, group: str, strategy: str) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    stop, held, working = Stop(), Held(), asyncio.Lock()
    strategies = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            async with working:  # what was fetched is committed before its partition goes
                held.went(revoked)

        async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            held.came(assigned)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id="aiokafka",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=(strategies[strategy],),
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not stop.set:
        async with working:
            for part, records in (await consumer.getmany(timeout_ms=100)).items():
                await consumer.commit({part: records[-1].offset + 1})
                for record in records:
                    say(partition=record.partition, offset=record.offset)
        await asyncio.sleep(0)
    await consumer.stop()


def aiokafka(*arguments: str) -> None:
    asyncio.run(_aiokafka(*arguments))


CLIENTS = {"confluent-kafka": librdkafka, "kafka-python": kafka_python, "aiokafka": aiokafka}

if __name__ == "__main__":
    CLIENTS[sys.argv[1]](*sys.argv[2:])
