"""Where batches go: records to the topic, and positions to a file afterwards or to a topic in the same transaction."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ottla.client.ends import end_offset
from ottla.tail.files import Position
from ottla.tail.state import StateFile, TailError

UNACKNOWLEDGED_BYTES_MAX = 16 << 20
"""Reading stops while more than this is on its way: memory stays bounded while no broker answers."""
LOAD_S = 30.0
SAVE_S = 1.0
"""Between two writes of the state file; what was acknowledged since is sent again after a crash."""
TRANSACTION_TIMEOUT_MS = 30_000
REFUSALS = frozenset({
    "MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC",
    "INVALID_TOPIC_EXCEPTION", "TOPIC_EXCEPTION", "POLICY_VIOLATION",
})  # fmt: skip
REOPENED_MAX = 3
"""Times that a transactional id is taken again within a minute: an agent that is fenced more often has a twin."""


@dataclass(frozen=True, slots=True)
class Message:
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]


@dataclass
class Batch:
    """Records, and the positions of the files that hold when they are stored."""

    messages: list[Message]
    changed: dict[str, Position]
    gone: set[str] = field(default_factory=set)
    """Keys of positions that are no longer needed."""
    size: int = 0
    outstanding: int = 0


class Sink(Protocol):
    committed: int
    """Records that are stored, their positions too or soon."""

    def load(self) -> dict[str, Position]: ...
    def write(self, batch: Batch, stopping: Callable[[], bool]) -> None: ...
    def poll(self) -> None: ...
    def close(self, timeout_s: float | None) -> int: ...


Open = Callable[[Mapping[str, Any]], Any]
"""A producer or consumer of confluent-kafka with these settings."""


class AtLeastOnce:
    """Batches are acknowledged in their order: positions are written up to the first that is not."""

    def __init__(self, topic: str, state: StateFile, open_producer: Open) -> None:
        self.topic, self.committed = topic, 0
        self._state = state
        self._positions = state.load()
        # message.timeout.ms 0: a broker that is away is waited for, however long.
        self._producer = open_producer({"acks": "all", "enable.idempotence": True, "message.timeout.ms": 0})
        self._batches: deque[Batch] = deque()
        self._bytes = 0
        self._error: Any = None
        self._unsaved = False
        self._saved_at_s = time.monotonic()

    def load(self) -> dict[str, Position]:
        return dict(self._positions)

    def write(self, batch: Batch, stopping: Callable[[], bool]) -> None:
        """Waits while too much is on its way. Raises TailError for what the broker refused."""
        while self._bytes > UNACKNOWLEDGED_BYTES_MAX and not stopping():
            self._producer.poll(0.2)
            self._settle()
        self._batches.append(batch)
        batch.outstanding = len(batch.messages)
        self._bytes += batch.size

        def report(error: Any, _: Any) -> None:
            if error is not None:
                self._error = self._error or error
            else:
                batch.outstanding -= 1

        for message in batch.messages:
            while True:
                try:
                    self._producer.produce(
                        self.topic, message.value, message.key, headers=message.headers, on_delivery=report
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
                    self._check()
                    if stopping():
                        return  # this batch stays outstanding: its positions are not written
        self.poll()

    def poll(self) -> None:
        self._producer.poll(0)
        self._settle()
        if self._unsaved and time.monotonic() - self._saved_at_s >= SAVE_S:
            self._save()

    def close(self, timeout_s: float | None) -> int:
        """Waits for what is on its way, and writes the positions. Returns the records that were not acknowledged."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while self._batches and (end_s is None or time.monotonic() < end_s):
                self._producer.flush(0.2)
                self._settle()
        finally:
            if self._unsaved:
                self._save()
            self._state.close()
        return sum(batch.outstanding for batch in self._batches)

    def _check(self) -> None:
        if self._error is not None:
            raise TailError(f"topic {self.topic!r}: {self._error.str()}; its line is sent again at the next start")

    def _settle(self) -> None:
        while self._batches and self._batches[0].outstanding == 0:
            batch = self._batches.popleft()
            self._bytes -= batch.size
            self.committed += len(batch.messages)
            self._positions.update(batch.changed)
            for key in batch.gone:
                self._positions.pop(key, None)
            self._unsaved = True
        self._check()

    def _save(self) -> None:
        self._state.save(self._positions.values())
        self._unsaved, self._saved_at_s = False, time.monotonic()


class ExactlyOnce:
    """A batch is a transaction, with the positions in a compacted topic in it."""

    def __init__(self, topic: str, positions_topic: str, agent: str, open_producer: Open, open_consumer: Open) -> None:
        self.topic, self.committed = topic, 0
        self._positions_topic, self._agent = positions_topic, agent
        self._open_producer, self._open_consumer = open_producer, open_consumer
        self._reopened: deque[float] = deque(maxlen=REOPENED_MAX)
        self._refused: Any = None
        """Why the broker does not take a record, whoever sends it again."""
        self._producer = self._open()

    def _report(self, error: Any, _: Any) -> None:
        if error is not None and error.name() in REFUSALS:
            self._refused = error

    def _open(self) -> Any:
        """Fences and completes what an agent with this id left behind. Raises TailError."""
        from confluent_kafka import KafkaException

        producer = self._open_producer(
            {
                "transactional.id": f"ottla-tail-{self._agent}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
            }
        )
        while True:
            try:
                producer.init_transactions(10)
                return producer
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise TailError(f"cannot start transactions: {error.args[0].str()}") from error

    def load(self) -> dict[str, Position]:
        """What is committed. Waits for the transactions of other agents that lie before it."""
        from confluent_kafka import KafkaError, TopicPartition

        reading = {"group.id": f"ottla-tail-{self._agent}", "enable.auto.commit": False, "enable.partition.eof": True}
        uncommitted = self._open_consumer(reading | {"isolation.level": "read_uncommitted"})
        end = end_offset(uncommitted, self._positions_topic, 0, LOAD_S)
        uncommitted.close()
        consumer = self._open_consumer(reading | {"isolation.level": "read_committed"})
        consumer.assign([TopicPartition(self._positions_topic, 0, 0)])
        found: dict[str, Position] = {}
        own = f"{self._agent}/".encode()
        try:
            while end > 0:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error() is not None:
                    if message.error().code() != KafkaError._PARTITION_EOF:
                        raise TailError(f"topic {self._positions_topic!r}: {message.error().str()}")
                    if message.offset() >= end:
                        break
                elif message.key().startswith(own):
                    key = message.key()[len(own) :].decode()
                    if message.value() is None:
                        found.pop(key, None)
                    else:
                        found[key] = Position.from_json(json.loads(message.value()))
        finally:
            consumer.close()
        return found

    def write(self, batch: Batch, stopping: Callable[[], bool]) -> None:
        """The batch is committed when this returns, or `stopping` said to leave it. Raises TailError."""
        from confluent_kafka import KafkaException

        while not stopping():
            try:
                self._commit(batch)
                return
            except KafkaException as exception:
                error = exception.args[0]
                if error.txn_requires_abort():
                    try:
                        self._producer.abort_transaction(TRANSACTION_TIMEOUT_MS / 1000)
                        if self._refused is not None:
                            raise TailError(f"topic {self.topic!r}: {self._refused.str()}")
                        continue
                    except KafkaException:
                        pass
                if self._was_committed(batch, error):
                    self.committed += len(batch.messages)
                    return

    def _commit(self, batch: Batch) -> None:
        producer, self._refused = self._producer, None
        producer.begin_transaction()
        for message in batch.messages:
            self._produce(self.topic, message.value, message.key, message.headers)
        for key, position in batch.changed.items():
            self._produce(self._positions_topic, json.dumps(position.to_json()).encode(), self._key(key), [])
        for key in batch.gone:
            self._produce(self._positions_topic, None, self._key(key), [])
        producer.commit_transaction(TRANSACTION_TIMEOUT_MS / 1000)
        self.committed += len(batch.messages)

    def _key(self, key: str) -> bytes:
        return f"{self._agent}/{key}".encode()

    def _produce(self, topic: str, value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        extra: dict[str, Any] = {"partition": 0} if topic == self._positions_topic else {}
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers, on_delivery=self._report, **extra)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _was_committed(self, batch: Batch, error: Any) -> bool:
        """After an error that leaves the outcome unknown: begins again, and looks at what is stored."""
        now_s = time.monotonic()
        if len(self._reopened) == REOPENED_MAX and now_s - self._reopened[0] < 60:
            raise TailError(f"the transaction failed again: {error.str()}; does another agent run with this --id?")
        self._reopened.append(now_s)
        self._producer = self._open()
        stored = self.load()
        changed = all(stored.get(key) == position for key, position in batch.changed.items())
        return changed and not batch.gone & set(stored)

    def poll(self) -> None:
        """Nothing is on its way between two batches."""

    def close(self, timeout_s: float | None) -> int:
        return 0
