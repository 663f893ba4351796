"""The load of `ottla check`: producers and groups on threads of their own, which write down what they are told."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.histories.records import History, Record, Session, Write, Writer

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

TICK_S = 0.01
"""Between two portions of a producer."""
COMMIT_EVERY_S = 0.5
REJOIN_EVERY_S = 8.0
"""How long a member that comes and goes stays."""
POLL_S = 0.2
RECORD_BYTES = 100
REQUEST_MS_MAX = 10_000
DELIVERY_MS_MAX = 30_000
"""After this time a record counts as not acknowledged: its outcome is unknown."""
RETRY_S = 0.5
"""Before a producer or consumer that has given up is made again."""


@dataclass(frozen=True)
class Plan:
    """The options of a run. `client` are librdkafka's settings for all clients."""

    client: Mapping[str, Any] = field(repr=False)
    topic: str
    partitions: int
    run: str
    rate: int
    """Records per second, all producers together."""
    acks: str
    producers: int
    groups: int
    members: int


@dataclass
class Tally:
    """Counters for the summary."""

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    read: int = 0
    assignments: int = 0
    given_up: int = 0
    """Producers that could not go on and were made again."""
    gap_s: float = 0.0
    """The longest time in which a partition acknowledged nothing."""
    gap_partition: int = 0
    failures: dict[str, int] = field(default_factory=dict)


class Load:
    """Runs from `start` until `end_writing`, then `end_reading`. Its threads end by themselves after these."""

    def __init__(self, plan: Plan, history: History) -> None:
        self.plan = plan
        self.tally = Tally()
        self.committed: dict[tuple[str, int], int] = {}
        """The highest offset of each group and partition whose commit was answered."""
        self.positions: dict[tuple[str, int], int] = {}
        """Position of each group."""
        self._history = history
        self._writers: dict[int, Writer] = dict(history.writers)
        history.writers = self._writers
        self._lock = threading.Lock()
        self._stop_writing = threading.Event()
        self._stop_reading = threading.Event()
        self._writing: list[threading.Thread] = []
        self._reading: list[threading.Thread] = []
        self._last_ack_s: dict[int, float] = {}

    def start(self) -> None:
        now = time.monotonic()
        self._last_ack_s = dict.fromkeys(range(self.plan.partitions), now)
        for number in range(self.plan.producers):
            # Idempotence asks for acks=all; every other producer goes without, as many programs do.
            idempotent = self.plan.acks == "all" and number % 2 == 0
            self._writing.append(threading.Thread(target=self._write, args=(idempotent,), daemon=True))
        for group in self._history.groups:
            for number in range(self.plan.members):
                rejoins = group == self._history.groups[-1] and number == 1
                self._reading.append(threading.Thread(target=self._read, args=(group, number, rejoins), daemon=True))
        for each in (*self._reading, *self._writing):
            each.start()

    def end_writing(self) -> None:
        """Stop sending, and wait for the records sent, at most as long as records wait for an acknowledgement."""
        self._stop_writing.set()
        join(self._writing, DELIVERY_MS_MAX / 1000 + 5)
        with self._lock:
            for number in self._last_ack_s:
                self._note_gap(number, time.monotonic())

    def end_reading(self) -> None:
        self._stop_reading.set()
        join(self._reading, REQUEST_MS_MAX / 1000 + 5)

    # Producers

    def _write(self, idempotent: bool) -> None:
        from confluent_kafka import KafkaException

        number = -1
        while not self._stop_writing.is_set():
            with self._lock:
                number = len(self._writers)
                self._writers[number] = Writer(idempotent, self.plan.acks)
            try:
                self._write_as(number, idempotent)
            except KafkaException as error:  # fatal for an idempotent producer: what it promises ends with it
                self._note_failure(error)
                with self._lock:
                    self.tally.given_up += 1
                self._stop_writing.wait(RETRY_S)

    def _write_as(self, number: int, idempotent: bool) -> None:
        from confluent_kafka import KafkaError, KafkaException, Producer

        producer = Producer(
            {
                **quiet(self.plan.client),
                "enable.idempotence": idempotent,
                "acks": self.plan.acks,
                "linger.ms": 5,
                "request.timeout.ms": REQUEST_MS_MAX,
                "message.timeout.ms": DELIVERY_MS_MAX,
                # With more on the way at once, and no idempotence, a record that is sent again may overtake others.
                **({} if idempotent else {"max.in.flight.requests.per.connection": 1}),
            }
        )
        each_s = self.plan.producers / self.plan.rate
        due, sequence = time.monotonic(), 0
        try:
            while not self._stop_writing.is_set():
                now = time.monotonic()
                while due <= now and not self._stop_writing.is_set():
                    self._send(producer, number, sequence)
                    sequence += 1
                    due += each_s
                due = max(due, now - 1.0)  # what a stop of a second has missed is not made up for
                producer.poll(0)
                self._stop_writing.wait(TICK_S)
        finally:
            with suppress(KafkaException, KafkaError):  # type: ignore[arg-type]  # raised, though no exception
                producer.flush(DELIVERY_MS_MAX / 1000 + 2)

    def _send(self, producer: Producer, number: int, sequence: int) -> None:
        place = sequence % self.plan.partitions
        write = Write(place)
        key = (number, sequence)
        self._history.writes[key] = write
        value = f"ottla-check {self.plan.run} {number} {sequence} ".encode().ljust(RECORD_BYTES, b".")
        while True:
            try:
                producer.produce(self.plan.topic, value, partition=place, on_delivery=partial(self._delivered, write))
                break
            except BufferError:
                producer.poll(TICK_S)
                if self._stop_writing.is_set():
                    del self._history.writes[key]
                    return
        with self._lock:
            self.tally.sent += 1

    def _delivered(self, write: Write, error: Any, message: Any) -> None:
        if error is not None:
            self._note_failure(error)
            with self._lock:
                self.tally.failed += 1
            return
        write.acknowledged = True
        offset = message.offset()
        write.offset = offset if offset is not None and offset >= 0 and self.plan.acks != "0" else None
        with self._lock:
            self.tally.acknowledged += 1
            self._note_gap(write.partition, time.monotonic())

    def _note_gap(self, number: int, now: float) -> None:
        gap_s = now - self._last_ack_s[number]
        self._last_ack_s[number] = now
        if gap_s > self.tally.gap_s:
            self.tally.gap_s, self.tally.gap_partition = gap_s, number

    def _note_failure(self, error: Any) -> None:
        from ottla.cli.client import explain

        sentence = explain(error)[0].partition("\n")[0]
        with self._lock:
            self.tally.failures[sentence] = self.tally.failures.get(sentence, 0) + 1

    # Consumers

    def _read(self, group: str, number: int, rejoins: bool) -> None:
        turn = 0
        while not self._stop_reading.is_set():
            turn += 1
            try:
                member = _Member(self, group, f"consumer {number + 1}" + (f" (stay {turn})" if rejoins else ""))
                leave_s = time.monotonic() + REJOIN_EVERY_S if rejoins else float("inf")
                try:
                    while not self._stop_reading.is_set() and time.monotonic() < leave_s:
                        member.read()
                finally:
                    member.close()
            except Exception as error:
                self._note_failure(error)
                self._stop_reading.wait(RETRY_S)

    def begin(self, group: str, member: str, numbers: list[int]) -> dict[int, Session]:
        """Assigned: what the group has committed so far is what it may not go behind."""
        with self._lock:
            self.tally.assignments += 1
            sessions = {
                number: Session(group, member, number, self.committed.get((group, number))) for number in numbers
            }
            self._history.sessions += sessions.values()
        return sessions

    def note_read(self, session: Session, offset: int, value: bytes | None) -> None:
        session.reads.append(record_of(self.plan.run, offset, value))
        key = (session.group, session.partition)
        with self._lock:
            self.tally.read += 1
            self.positions[key] = max(self.positions.get(key, 0), offset + 1)

    def note_committed(self, group: str, number: int, offset: int) -> None:
        with self._lock:
            self.committed[group, number] = max(self.committed.get((group, number), 0), offset)


class _Member:
    """A consumer in a group, which commits what it has read."""

    def __init__(self, load: Load, group: str, name: str) -> None:
        from confluent_kafka import Consumer

        self._load = load
        self._group = group
        self._name = name
        self._sessions: dict[int, Session] = {}
        self._next: dict[int, int] = {}
        self._committed_s = time.monotonic()
        self._consumer: Consumer = Consumer(
            {
                **quiet(load.plan.client),
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                "session.timeout.ms": REQUEST_MS_MAX,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.subscribe(
            [load.plan.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def read(self) -> None:
        """Wait for a record, a moment at most. One at a time: of several, some may be of an assignment that is over."""
        message = self._consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            number, offset = int(message.partition() or 0), int(message.offset() or 0)
            session = self._sessions.get(number)
            if session is not None:
                self._load.note_read(session, offset, message.value())
                self._next[number] = offset + 1
        if time.monotonic() - self._committed_s > COMMIT_EVERY_S:
            self._commit()

    def close(self) -> None:
        try:
            self._commit()
        finally:
            self._consumer.close()

    def _assigned(self, _: Consumer, places: list[Any]) -> None:
        self._sessions = self._load.begin(self._group, self._name, [each.partition for each in places])
        self._next = {}

    def _revoked(self, _: Consumer, places: list[Any]) -> None:
        self._commit()
        self._lost(_, places)

    def _lost(self, _: Consumer, places: list[Any]) -> None:
        self._sessions, self._next = {}, {}

    def _commit(self) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        self._committed_s = time.monotonic()
        offsets = [TopicPartition(self._load.plan.topic, number, offset) for number, offset in self._next.items()]
        if not offsets:
            return
        with suppress(KafkaException):  # the next one says the same and more
            for each in self._consumer.commit(offsets=offsets, asynchronous=False) or ():
                if each.error is None:
                    self._load.note_committed(self._group, each.partition, each.offset)
        self._next = {}


def quiet(client: Mapping[str, Any]) -> dict[str, Any]:
    """A client's settings, for one that neither prints nor raises what it says of itself: what fails says so too."""
    logger = logging.Logger("librdkafka", logging.CRITICAL + 1)
    return {**client, "logger": logger, "error_cb": lambda error: None}


def record_of(run: str, offset: int, value: bytes | None) -> Record:
    """The record described by its own value."""
    parts = (value or b"").split(b" ")
    if len(parts) >= 4 and parts[0] == b"ottla-check" and parts[1] == run.encode():
        with suppress(ValueError):
            return Record(offset, int(parts[2]), int(parts[3]))
    return Record(offset, -1, -1)


def join(threads: list[threading.Thread], limit_s: float) -> None:
    """Wait for all of them, so long at most."""
    deadline = time.monotonic() + limit_s
    for each in threads:
        each.join(max(0.0, deadline - time.monotonic()))
