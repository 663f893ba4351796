"""The `_schemas` topic: made if it is not there, read from its beginning to its end, then followed.

One thread reads. Whoever has written waits until that thread has read it back, so that an answer is given only for what
is in the log, and in the state, and would be there after a restart.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import OttlaError
from ottla.logs import fields
from ottla.registry import records
from ottla.registry.records import Key
from ottla.registry.state import State

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer
    from confluent_kafka.admin import AdminClient

_LOG = logging.getLogger("ottla.registry")

READ_BACK_S: Final = 30.0
"""How long a write may take until it is read back, and a start until all is read that was there."""
REPLICATION_MAX: Final = 3
END_MS_MAX: Final = 100
"""How long it takes to be told that the end is reached, where a transaction's marker is the last that is there."""
_POLL_S: Final = 0.2
"""How long the reader may not notice that it is to stop."""
_PASSED_OVER_MAX: Final = 10_000
"""Offsets remembered of records that were not taken in; only those of writes under way are asked for."""

_SILENT: Final = logging.Logger("librdkafka")
_SILENT.addHandler(logging.NullHandler())
"""Where librdkafka says what calls and callbacks say, too: that it is fenced, above all."""


class StoreError(OttlaError):
    """The topic cannot be read or written."""


class StoreClosed(StoreError):
    """This instance is stopping: nothing is read any more."""


class StoreTimeout(StoreError):
    """The operation took too long; a write may have been done."""


class RecordTooLarge(StoreError):
    """The topic does not take a record of this size."""


class Fenced(StoreError):
    """Another instance writes now: this write was not done, and no later one will be."""


class Topic:
    """Reads the topic into a state, from when it is `open` to when it is `close`d."""

    def __init__(self, settings: Mapping[str, Any], name: str, state: State) -> None:
        """`settings` are librdkafka's."""
        self.name = name
        self.state = state
        self.settings = dict(settings)
        self.cluster_id = ""
        """Cluster id of the brokers, once it is open."""
        self._position = 0
        """Invariant: every record below it is in the state."""
        self._moved = threading.Condition()
        self._passed_over: deque[int] = deque(maxlen=_PASSED_OVER_MAX)
        self._stopping = threading.Event()
        self._failure: str | None = None
        self._thread: threading.Thread | None = None
        self._consumer: Consumer | None = None
        self._admin: AdminClient | None = None

    def open(self) -> None:
        """Returns when all that was there is read. Raises StoreError."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        self.cluster_id = ensure(self.settings, self.name)
        self._consumer = Consumer(
            {
                **self.settings,
                "group.id": f"schema-registry-{self.name}",  # librdkafka wants one; it is not joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.error.backoff.ms": 50,
                "fetch.wait.max.ms": END_MS_MAX,
                "logger": _SILENT,
            }
        )
        self._consumer.assign([TopicPartition(self.name, 0, OFFSET_BEGINNING)])
        self._thread = threading.Thread(target=self._read, name="schemas reader", daemon=True)
        self._thread.start()
        self.wait_to_end()

    def close(self) -> None:
        with self._moved:
            self._stopping.set()
            self._moved.notify_all()
        if self._thread is not None:
            self._thread.join()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def wait_for(self, offset: int, timeout_s: float = READ_BACK_S) -> bool:
        """Return when the record at an offset is read: False if it was passed over. Raises StoreTimeout and
        StoreClosed."""
        with self._moved:
            if not self._wait_past(offset, timeout_s):
                raise StoreTimeout(f"a record written to {self.name} was not read back in {timeout_s:g} s")
            return offset not in self._passed_over

    def wait_to_end(self, timeout_s: float = READ_BACK_S) -> None:
        """Return when all that is committed by now is read. Raises StoreError."""
        end = self._end(timeout_s)
        with self._moved:
            if not self._wait_past(end - 1, timeout_s):
                why = f": {self._failure}" if self._failure else ""
                raise StoreTimeout(f"{self.name} was not read to its end in {timeout_s:g} s{why}")

    def _wait_past(self, offset: int, timeout_s: float) -> bool:
        """Wait, with the condition held; whether the record was read in time. Raises StoreClosed."""
        self._moved.wait_for(lambda: self._position > offset or self._stopping.is_set(), timeout_s)
        if self._position > offset:
            return True
        if self._stopping.is_set():
            raise StoreClosed("the registry is stopping")
        return False

    def _end(self, timeout_s: float) -> int:
        """The last stable offset, asked for on a connection that the reader does not wait on."""
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient, OffsetSpec

        if self._admin is None:
            self._admin = AdminClient(self.settings)
        at = TopicPartition(self.name, 0)
        try:
            asked = self._admin.list_offsets(
                {at: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=timeout_s,
            )
            return int(asked[at].result().offset)
        except KafkaException as error:
            raise StoreError(f"the end of {self.name} cannot be asked for: {error.args[0].str()}") from error

    def _read(self) -> None:
        assert self._consumer is not None
        while not self._stopping.is_set():
            message = self._consumer.poll(_POLL_S)
            if message is not None:
                self._take(message)

    def _take(self, message: Message) -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._failure = error.str()
            _LOG.warning("reading the schemas failed", extra=fields(topic=self.name, error=error.str()))
            return
        offset = message.offset()
        assert offset is not None
        taken = error is not None or self._apply(message)
        with self._moved:
            if not taken:
                self._passed_over.append(offset)
            self._position = max(self._position, offset + (error is None))
            self._moved.notify_all()

    def _apply(self, message: Message) -> bool:
        try:
            key = records.decode_key(message.key())
            taken = self.state.apply(key, message.value(), message.timestamp()[1])
        except records.UnreadableRecord as error:
            _LOG.warning(
                "a record of the schemas topic was skipped",
                extra=fields(topic=self.name, offset=message.offset(), error=str(error)),
            )
            return False
        except Exception as error:  # whatever is written to the topic, reading goes on
            _LOG.error(
                "a record of the schemas topic could not be applied",
                exc_info=error,
                extra=fields(topic=self.name, offset=message.offset()),
            )
            return False
        if not taken:
            _LOG.error(
                "a schema was skipped: another has its id",
                extra=fields(topic=self.name, offset=message.offset(), subject=key.subject, version=key.version),
            )
        return taken


class Writer:
    """The right to write, which whoever asks for it next takes away.

    A transactional id stands behind it (KIP-98): once another instance has it, no write of this one is committed.
    """

    def __init__(self, topic: Topic) -> None:
        """Take the right, and read all that others have written before. Raises StoreError."""
        from confluent_kafka import KafkaException, Producer

        self._topic = topic
        try:
            self._producer: Producer = Producer(
                {
                    **topic.settings,
                    "transactional.id": f"schema-registry-{topic.name}",
                    "transaction.timeout.ms": int(READ_BACK_S * 1000),
                    "linger.ms": 0,
                    "logger": _SILENT,
                }
            )
            self._producer.init_transactions(READ_BACK_S)
        except KafkaException as error:
            raise _store_error(error) from error
        self.write({Key(records.NOOP): None})

    def write(self, entries: Mapping[Key, bytes | None]) -> None:
        """Write records, all of them or none, and wait until they are read back. Raises StoreError, Fenced."""
        from confluent_kafka import KafkaException

        offsets: list[int] = []
        failures: list[Any] = []

        def delivered(error: Any, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets.append(message.offset() or 0)

        try:
            self._producer.begin_transaction()
            for key, value in entries.items():
                self._producer.produce(self._topic.name, value, key.encode(), partition=0, on_delivery=delivered)
            self._producer.flush(READ_BACK_S)
            if failures:
                raise KafkaException(failures[0])
            self._producer.commit_transaction(READ_BACK_S)
        except (KafkaException, SystemError) as error:
            failure = _kafka_exception(error)
            self._abort(failure)
            raise _store_error(failure) from failure
        taken = [self._topic.wait_for(offset) for offset in offsets]
        if not all(taken):
            raise StoreError("another instance has assigned the id at the same time")

    def _abort(self, error: Any) -> None:
        from confluent_kafka import KafkaException

        if error.args[0].fatal():
            return
        try:
            self._producer.abort_transaction(READ_BACK_S)
        except KafkaException as failure:
            _LOG.warning("a transaction is left to time out", extra=fields(error=str(failure)))


def _kafka_exception(error: BaseException) -> BaseException:
    """A fatal error that comes up while callbacks are called makes Python complain of the callback: what stands behind
    that. Raises what is another error."""
    from confluent_kafka import KafkaException

    if isinstance(error, SystemError):
        if not isinstance(error.__cause__, KafkaException):
            raise error
        return error.__cause__
    return error


def _store_error(error: Any) -> StoreError:
    from confluent_kafka import KafkaError

    cause = error.args[0]
    if cause.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED):
        return Fenced("another instance writes now")
    if cause.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return RecordTooLarge(cause.str())
    if cause.code() == KafkaError._TIMED_OUT:
        return StoreTimeout(cause.str())
    if cause.fatal():
        return Fenced(cause.str())
    return StoreError(cause.str())


def ensure(settings: Mapping[str, Any], name: str) -> str:
    """The topic is there: one partition, compacted. Returns the cluster's id. Raises StoreError for another kind."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(dict(settings))
    try:
        metadata = admin.list_topics(timeout=READ_BACK_S)
        if name not in metadata.topics:
            factor = min(REPLICATION_MAX, len(metadata.brokers))
            wanted = NewTopic(name, 1, factor, config={"cleanup.policy": "compact"})
            try:
                admin.create_topics([wanted])[name].result()
                _LOG.info("created the schemas topic", extra=fields(topic=name, replication_factor=factor))
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        partitions, policy = _partitions(admin, name), _cleanup_policy(admin, name)
    except KafkaException as error:
        raise StoreError(f"topic {name} cannot be created or described: {error.args[0].str()}") from error
    if partitions != 1:
        raise StoreError(f"the schemas topic must have one partition, but {name} has {partitions}")
    if policy != "compact":
        raise StoreError(f"the schemas topic must be compacted, but {name} has cleanup.policy={policy}")
    return metadata.cluster_id or ""


def _cleanup_policy(admin: Any, name: str) -> str:
    """A broker that has not yet heard of a topic that was just created is asked again."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, name)
    deadline = time.monotonic() + READ_BACK_S
    while True:
        try:
            return str(admin.describe_configs([resource])[resource].result()["cleanup.policy"].value)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _partitions(admin: Any, name: str) -> int:
    """How many; a topic that was just made may not be known at once."""
    deadline = time.monotonic() + READ_BACK_S
    while True:
        found = admin.list_topics(name, timeout=READ_BACK_S).topics[name]
        if found.error is None and found.partitions and all(each.leader >= 0 for each in found.partitions.values()):
            return len(found.partitions)
        if time.monotonic() > deadline:
            raise StoreTimeout(f"topic {name} has no leader: {found.error}")
        time.sleep(0.02)
