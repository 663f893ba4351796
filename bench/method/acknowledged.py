"""Producers that run all the while, and when each of a partition's records was acknowledged: librdkafka and Java.

`Librdkafka` is a producer of this process with its default settings, `Java` is Kafka's own VerifiableProducer: it has
those of Java's producer, but sends a record once only unless it is told to retry as producers do.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from ottla.histories.acknowledgements import Acknowledgements
from peers.kafka import START_FAST, java

RATE = 300
"""Records a second of each producer, over all partitions."""


RETRIES = 2**31 - 1
"""The default of Java's producer, and what makes it idempotent."""


class Acknowledged(Acknowledgements):
    """On `time.time`'s clock; and what was not acknowledged at all."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[str] = []


class Librdkafka(Acknowledged):
    """Sends to all partitions of a topic in turn."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Producer

        super().__init__()
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._topic, self._partitions = topic, partitions
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Librdkafka:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        number, began = 0, time.monotonic()
        while not self._ended.is_set():
            try:
                self._producer.produce(
                    self._topic, b"x" * 100, partition=number % self._partitions, on_delivery=self._delivered
                )
                number += 1
            except BufferError:
                self._producer.poll(0.1)
            while (wait_s := began + number / RATE - time.monotonic()) > 0:
                self._producer.poll(wait_s)  # or until something was acknowledged
        self._producer.flush(30)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.note(message.partition(), time.time())
        else:
            self.failures.append(str(error))


class Java(Acknowledged):
    """Keys choose the partition: without, the producer would stay with one for seconds."""

    def __init__(
        self, bootstrap: str, topic: str, *, retries: bool = False, settings: Mapping[str, str] | None = None
    ) -> None:
        """`settings` are more of the producer's."""
        super().__init__()
        self._config = tempfile.NamedTemporaryFile("w", suffix=".properties")  # noqa: SIM115 - as long as the producer
        lines = {**({"retries": str(RETRIES)} if retries else {}), **(settings or {})}
        self._config.write("".join(f"{name}={value}\n" for name, value in lines.items()))
        self._config.flush()
        self.values: dict[tuple[int, int], str] = {}
        """Acknowledged values by partition and offset."""
        self._command = java(
            "org.apache.kafka.tools.VerifiableProducer",
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--throughput",
            str(RATE),
            "--acks",
            "-1",
            "--repeating-keys",
            "60",
            "--command-config",
            self._config.name,
            heap="256m",
            flags=START_FAST,
        )

    def __enter__(self) -> Java:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        self._config.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if not line.startswith('{"'):  # what the JVM or its log says
                    continue
                event = json.loads(line)
                if event["name"] == "producer_send_success":
                    self.note(event["partition"], time.time())
                    self.values[event["partition"], event["offset"]] = event["value"]
                elif event["name"] == "producer_send_error":
                    self.failures.append(str(event.get("message")))
