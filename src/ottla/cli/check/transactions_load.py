"""The load of `ottla check --transactions`: transactional producers, a group that consumes, transforms and produces in
transactions, and readers of what is committed, on threads of their own, which write down what they are told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.cli.check.load import REQUEST_MS_MAX, RETRY_S, join, quiet
from ottla.histories.transactions import History, Seen, Transaction, Value

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer

WRITERS = 3
MEMBERS = 2
"""Members of the group."""
READERS = 2
ABORTED = 0.25
"""How many transactions are aborted."""
VALUES_MAX = 5
"""Values of a transaction."""
CONSUMED_MAX = 20
"""Values that a member of the group consumes in a transaction, at most."""
TRANSACTION_MS_MAX = 15_000
"""Then the coordinator aborts it."""
CALL_S = 5.0
"""After which a call of librdkafka comes back, to be made again where it may."""
POLL_S = 0.2


@dataclass(frozen=True)
class Plan:
    """The options of a run. `client` are librdkafka's settings for all clients."""

    client: Mapping[str, Any] = field(repr=False)
    topic: str
    partitions: int
    run: str
    rate: int
    """Values a second, of all writers together."""
    isolation: str = "read_committed"
    """Isolation level of the readers and the group. With another level the check reports violations of which the
    cluster is innocent."""

    @property
    def group(self) -> str:
        return f"{self.topic}-{self.run}-copiers"


@dataclass
class Tally:
    """Counters for the summary."""

    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    read: int = 0
    consumed: int = 0
    given_up: int = 0
    """Producers that could not go on and were made again."""
    failures: dict[str, int] = field(default_factory=dict)


class Load:
    """Runs from `start` until `end_writing`, then `end_reading`."""

    def __init__(self, plan: Plan, history: History) -> None:
        self.plan = plan
        self.history = history
        self.tally = Tally()
        self.stop_writing = threading.Event()
        self.stop_reading = threading.Event()
        self._lock = threading.Lock()
        self._writing: list[threading.Thread] = []
        self._reading: list[threading.Thread] = []

    def start(self) -> None:
        for number in range(WRITERS):
            self._writing.append(threading.Thread(target=_Writer(self, f"writer-{number + 1}").run, daemon=True))
        for number in range(MEMBERS):
            self._writing.append(threading.Thread(target=_Copier(self, f"copier-{number + 1}").run, daemon=True))
        for number in range(READERS):
            self._reading.append(threading.Thread(target=self._read, args=(f"reader {number + 1}",), daemon=True))
        for each in (*self._reading, *self._writing):
            each.start()

    def end_writing(self, limit_s: float) -> None:
        """No transaction begins any more; those that are open are ended, or left to the coordinator after `limit_s`."""
        self.stop_writing.set()
        join(self._writing, limit_s)

    def end_reading(self) -> None:
        self.stop_reading.set()
        join(self._reading, REQUEST_MS_MAX / 1000 + 5)

    # What is written down

    def begin(self, who: str, reads: list[Value]) -> Transaction:
        with self._lock:
            made = Transaction(len(self.history.transactions), who, reads=reads)
            self.history.transactions[made.number] = made
        return made

    def decided(self, transaction: Transaction, committed: bool | None) -> None:
        transaction.committed = committed
        with self._lock:
            self.tally.committed += committed is True
            self.tally.aborted += committed is False
            self.tally.unknown += committed is None

    def note_failure(self, error: Exception) -> None:
        from ottla.cli.client import explain

        found = error.args[0] if error.args else None
        text = explain(found)[0].partition("\n")[0] if hasattr(found, "code") else repr(error)
        with self._lock:
            self.tally.failures[text] = self.tally.failures.get(text, 0) + 1

    def gave_up(self, error: Exception) -> None:
        self.note_failure(error)
        with self._lock:
            self.tally.given_up += 1

    def saw(self, reader: str, value: Value) -> None:
        transaction = self.history.transactions.get(value.transaction)
        asked = transaction is not None and transaction.asked
        with self._lock:
            self.tally.read += 1
            self.history.seen.append(Seen(reader, value, asked))

    def consumed(self, count: int) -> None:
        with self._lock:
            self.tally.consumed += count

    # Readers

    def _read(self, name: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer: Consumer = Consumer(consumer_settings(self.plan, f"{self.plan.topic}-{self.plan.run}-{name[-1]}"))
        try:
            starts = self.history.starts
            consumer.assign([TopicPartition(self.plan.topic, n, starts.get(n, 0)) for n in range(self.plan.partitions)])
            while not self.stop_reading.is_set():
                message = consumer.poll(POLL_S)
                if message is not None and message.error() is None:
                    self.saw(name, value_of(self.plan.run, message))
        except Exception as error:
            self.gave_up(error)
        finally:
            consumer.close()


class _Writer:
    """One transactional producer after the other, all with one transactional id."""

    def __init__(self, load: Load, name: str) -> None:
        self.load = load
        self.name = name
        self.random = random.Random(f"{load.plan.run}/{name}")
        self.each_s = WRITERS * VALUES_MAX / 2 / load.plan.rate
        """For each transaction."""

    def run(self) -> None:
        """Run the load; in the end a last producer ends what an earlier one may have left open."""
        load = self.load
        clean = False
        while not (clean and load.stop_writing.is_set()):
            clean = False
            try:
                producer = self._producer()
                self._again(partial(producer.init_transactions, CALL_S))
                clean = True
                self._work(producer)
            except Exception as error:  # what one of a fenced or failed producer is, librdkafka says in many ways
                clean = False
                load.gave_up(error)
                time.sleep(RETRY_S)

    def _producer(self) -> Producer:
        from confluent_kafka import Producer

        return Producer(
            {
                **quiet(self.load.plan.client),
                "transactional.id": f"{self.load.plan.topic}-{self.name}",
                "transaction.timeout.ms": TRANSACTION_MS_MAX,
                "linger.ms": 2,
                "request.timeout.ms": REQUEST_MS_MAX,
                "socket.timeout.ms": REQUEST_MS_MAX,
            }
        )

    def _work(self, producer: Producer) -> None:
        due = time.monotonic()
        while not self.load.stop_writing.is_set():
            due = max(due + self.each_s, time.monotonic())
            self.transaction(producer, [])
            self.load.stop_writing.wait(max(0.0, due - time.monotonic()))

    def transaction(
        self, producer: Producer, reads: list[Value], offsets: Callable[[Producer], None] = lambda producer: None
    ) -> bool:
        """Whether it is committed. Raises KafkaException where the producer cannot go on."""
        from confluent_kafka import KafkaException

        load, plan = self.load, self.load.plan
        transaction = load.begin(self.name, reads)
        aborts = self.random.random() < ABORTED
        try:
            producer.begin_transaction()
            for index in range(self.random.randint(1, VALUES_MAX)):
                partition = self.random.randrange(plan.partitions)
                transaction.appends.append(partition)
                value = f"ottla-check {plan.run} {transaction.number} {index} ".encode().ljust(60, b".")
                producer.produce(plan.topic, value, partition=partition)
                producer.poll(0)
            offsets(producer)
            if aborts:
                producer.flush(CALL_S)  # else librdkafka throws away what it has not sent
                self._again(lambda: producer.abort_transaction(CALL_S))
                load.decided(transaction, committed=False)
                return False
            transaction.asked = True
            self._again(lambda: producer.commit_transaction(CALL_S))
            load.decided(transaction, committed=True)
            return True
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                load.note_failure(error)
                self._again(lambda: producer.abort_transaction(CALL_S))
                load.decided(transaction, committed=False)
                return False
            load.decided(transaction, None if transaction.asked else False)
            raise

    def _again(self, call: Callable[[], Any]) -> None:
        """Retry while the client allows it, and as long as its transaction can be open. Raises KafkaException."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + TRANSACTION_MS_MAX / 1000
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise


class _Copier(_Writer):
    """A member of the group, which writes about what it consumes and commits the offsets in the same transaction."""

    def _work(self, producer: Producer) -> None:
        from confluent_kafka import Consumer

        plan = self.load.plan
        consumer: Consumer = Consumer(
            {**consumer_settings(plan, plan.group), "session.timeout.ms": REQUEST_MS_MAX, "fetch.wait.max.ms": 100}
        )
        consumer.subscribe([plan.topic], on_assign=self._rebalanced, on_revoke=self._rebalanced)
        try:
            while not self.load.stop_writing.is_set():
                began_s = time.monotonic()
                messages = self._consume(consumer)
                if not messages or self._copy(producer, consumer, messages):
                    self.load.stop_writing.wait(max(0.0, began_s + 4 * self.each_s - time.monotonic()))
                else:
                    self._rewind(consumer)
        finally:
            consumer.close()

    def _rebalanced(self, consumer: Consumer, places: list[Any]) -> None:
        """Drop what was read: it belongs to another member now, or is read again from the committed offset."""
        self.messages: list[Message] = []

    def _consume(self, consumer: Consumer) -> list[Message]:
        """Some messages of the present assignment. One at a time: with several, some may be of one that is over."""
        self.messages = []
        until_s = time.monotonic() + POLL_S
        while len(self.messages) < CONSUMED_MAX:
            message = consumer.poll(max(0.0, until_s - time.monotonic()))
            if message is None:
                break
            if message.error() is None:
                self.messages.append(message)
        return self.messages

    def _copy(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> bool:
        from confluent_kafka import TopicPartition

        plan = self.load.plan
        reads = [value_of(plan.run, each) for each in messages]
        for each in reads:
            self.load.saw(self.name, each)
        ends = {each.partition: each.offset + 1 for each in reads}
        places = [TopicPartition(plan.topic, number, offset) for number, offset in ends.items()]

        def offsets(producer: Producer) -> None:
            metadata = consumer.consumer_group_metadata()
            self._again(lambda: _in_time(lambda: producer.send_offsets_to_transaction(places, metadata, CALL_S)))

        committed = self.transaction(producer, reads, offsets)
        if committed:
            self.load.consumed(len(reads))
        return committed

    def _rewind(self, consumer: Consumer) -> None:
        """Seek to the end of the last committed transaction. Raises KafkaException."""
        from confluent_kafka import TopicPartition

        places: list[TopicPartition] = []

        def find() -> None:
            places[:] = consumer.committed(consumer.assignment(), CALL_S)

        self._again(find)
        for each in places:
            offset = each.offset if each.offset >= 0 else self.load.history.starts.get(each.partition, 0)
            consumer.seek(TopicPartition(each.topic, each.partition, offset))


def _in_time(call: Callable[[], Any]) -> None:
    """For the one call of librdkafka that may wait for ever, for a coordinator that left the cluster for a moment (its
    issue 5511): the producer is given up then, and the call left to itself. Raises KafkaException."""
    from confluent_kafka import KafkaError, KafkaException

    raised: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(2 * CALL_S)
    if thread.is_alive():
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "librdkafka hangs"))
    if raised:
        raise raised[0]


def consumer_settings(plan: Plan, group: str) -> dict[str, Any]:
    return {
        **quiet(plan.client),
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": plan.isolation,
    }


def value_of(run: str, message: Any) -> Value:
    """The value described by a message."""
    place = int(message.partition() or 0), int(message.offset() or 0)
    parts = (message.value() or b"").split(b" ")
    if len(parts) >= 4 and parts[0] == b"ottla-check" and parts[1] == run.encode():
        with suppress(ValueError):
            return Value(*place, int(parts[2]), int(parts[3]))
    return Value(*place, -1, -1)
