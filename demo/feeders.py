"""Writes events to topics with an idempotent producer, and keeps what the cluster acknowledged."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from demo.events import Event, Metrics

FLUSH_TIMEOUT_S = 60.0


class Feeder:
    """One producer for all topics. What it keeps by topic are events that were acknowledged, and only these."""

    def __init__(self, bootstrap: str, serializers: Mapping[str, Callable[[dict[str, Any]], bytes]]) -> None:
        """`serializers` by topic; values are JSON in others."""
        self._serializers = serializers
        self.acknowledged: defaultdict[str, list[Event]] = defaultdict(list)
        self.failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "demo-feeder",
                "enable.idempotence": True,
                "compression.codec": "lz4",
                "linger.ms": 20,
                "log_level": 0,
            }
        )

    def feed(self, topic: str, events: Iterable[Event]) -> None:
        serialize = self._serializers.get(topic, lambda value: json.dumps(value, ensure_ascii=False).encode())
        for event in events:
            value = serialize(event.value)

            def delivered(error: KafkaError | None, _: Message, event: Event = event) -> None:
                if error is not None:
                    self.failures.append(error.str())
                else:
                    self.acknowledged[topic].append(event)

            while True:
                try:
                    self._producer.produce(topic, value, event.key, on_delivery=delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)

    def flush(self) -> None:
        """Wait until everything was acknowledged. Raises RuntimeError if it was not."""
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if left or self.failures:
            raise RuntimeError(f"{left + len(self.failures)} records were not acknowledged: {self.failures[:1]}")


class LiveMetrics(threading.Thread):
    """Samples the machine and feeds the samples until it is told to stop."""

    def __init__(self, feeder: Feeder, topic: str, interval_s: float = 0.25) -> None:
        super().__init__(name="demo-metrics", daemon=True)
        self._feeder = feeder
        self._topic = topic
        self._interval_s = interval_s
        self._stopped = threading.Event()

    def run(self) -> None:
        metrics = Metrics()
        while True:
            self._feeder.feed(self._topic, metrics.sample(time.time_ns() // 1_000_000))
            if self._stopped.wait(self._interval_s):
                return

    def stop(self) -> None:
        self._stopped.set()
        self.join()
