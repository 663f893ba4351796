"""`ottla share redrive`: puts dead letters back into their topics, each exactly once.

A transaction has some records and the position behind their letters (`position.py`). Its transactional id is the
group's: another redrive of the group is fenced before the position is read. What was interrupted is finished or rolled
back by the next one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli import client as clients
from ottla.cli.exits import CommandFailed
from ottla.cli.interrupts import call, in_thread
from ottla.cli.share.letters import (
    ATTEMPTS,
    DELIVERIES,
    HISTORY,
    POLL_S,
    Header,
    Letter,
    close,
    letters,
    number_of,
    partitions_of,
    reader,
)
from ottla.cli.share.position import Position, Progress, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, Producer

LETTERS_AT_ONCE = 1_000
BYTES_AT_ONCE = 32 << 20
"""Letters that are kept in memory until they are put back; one record can be beyond the bytes."""
PER_TRANSACTION = 100
TRANSACTION_MS = 60_000
ORIGINAL_S = 10.0
"""How long a record is waited for."""


def id_of(group: str) -> str:
    """The transactional id of a group's redrives, and the consumer group whose commits are its position."""
    return f"ottla-redrive.{group}"


def positions(consumer: Consumer, topic: str, numbers: Sequence[int]) -> dict[int, Position]:
    """Raises CommandFailed."""
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(topic, number) for number in numbers]
    try:
        return {
            each.partition: parse(each.offset, each.metadata)
            for each in in_thread(consumer.committed, asked, clients.REQUEST_TIMEOUT_S)
        }
    except ValueError as error:
        raise CommandFailed(f"the position of the redrive cannot be read: {error}") from error


class Letters:
    """The letters of a group up to the ends of their topic now, with how far they are put back."""

    def __init__(
        self, consumer: Consumer, topic: str, group: str, wants: Callable[[Letter], bool], limit: int | None
    ) -> None:
        """Chooses what `wants` does, `limit` letters at most. Raises CommandFailed."""
        self.topic = topic
        self.progress = {
            number: Progress(position)
            for number, position in positions(consumer, topic, partitions_of(consumer, topic)).items()
        }
        self.chosen: Counter[tuple[str, int]] = Counter()
        """Letters by the partition that the record came from."""
        self.left = 0
        """Letters that are not chosen."""
        self.done_before = 0
        self._consumer, self._group, self._wants, self._limit = consumer, group, wants, limit

    def chunks(self) -> Iterator[list[Letter]]:
        """Chosen letters, some at once, in the order of their partitions and offsets. Raises CommandFailed."""
        chunk: list[Letter] = []
        size = 0
        starts = {number: progress.start for number, progress in self.progress.items()}
        for found in letters(self._consumer, self.topic, starts):
            if not isinstance(found, Letter):
                self.progress[found[0]].read_to(found[1])
                continue
            if not self._is_chosen(found):
                continue
            chunk.append(found)
            size += len(found.key or b"") + len(found.value or b"")
            if len(chunk) == LETTERS_AT_ONCE or size >= BYTES_AT_ONCE:
                yield sorted(chunk, key=place_of)
                chunk, size = [], 0
        if chunk:
            yield sorted(chunk, key=place_of)

    def _is_chosen(self, letter: Letter) -> bool:
        progress = self.progress[letter.partition]
        is_done = progress.has(letter.offset)
        if letter.group != self._group:
            return False
        if is_done:
            self.done_before += 1
            return False
        is_chosen = self._wants(letter) and (self._limit is None or self.chosen.total() < self._limit)
        progress.add(letter.offset, stays=not is_chosen)
        if is_chosen:
            self.chosen[letter.topic, letter.source_partition] += 1
        else:
            self.left += 1
        return is_chosen


def place_of(letter: Letter) -> tuple[int, int]:
    """Where a letter is."""
    return letter.partition, letter.offset


class Originals:
    """Records where they were written: letters of Kafka 4.4 have no headers of theirs, and often no payload."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = reader(bootstrap, group, committed=False)
        self._at: tuple[str, int, int] | None = None

    def close(self) -> None:
        close(self._consumer)

    def find(self, letter: Letter) -> tuple[bytes | None, bytes | None, list[Header]] | None:
        """Key, value and headers; None where the record is no more."""
        from confluent_kafka import KafkaError, TopicPartition

        place = letter.topic, letter.source_partition, letter.source_offset
        if self._at != place:
            self._consumer.assign([TopicPartition(*place)])
        self._at = None
        deadline_s = time.monotonic() + ORIGINAL_S
        while time.monotonic() < deadline_s:
            message = call(self._consumer.poll, POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() in (
                    KafkaError._PARTITION_EOF,
                    KafkaError._UNKNOWN_TOPIC,
                    KafkaError._UNKNOWN_PARTITION,
                    KafkaError.UNKNOWN_TOPIC_OR_PART,
                ):
                    return None
                continue
            if message.offset() != letter.source_offset:
                return None
            self._at = place[0], place[1], place[2] + 1
            return message.key(), message.value(), [*(message.headers() or ())]
        return None


def record_of(letter: Letter, originals: Originals) -> tuple[bytes | None, bytes | None, list[Header]] | None:
    """What is to be written again, with its history; None where there is neither record nor payload."""
    has_payload = letter.key is not None or letter.value is not None or letter.has_headers
    found = None if letter.has_headers else originals.find(letter)
    if found is not None and has_payload and found[:2] != (letter.key, letter.value):
        found = None  # the topic was made again since: another record is there
    if found is None:
        if not has_payload:
            return None
        found = letter.key, letter.value, [*letter.headers]
    key, value, headers = found
    attempts = number_of(headers, ATTEMPTS) + 1
    deliveries = number_of(headers, DELIVERIES) + letter.deliveries
    own = [each for each in headers if each[0] not in (ATTEMPTS, DELIVERIES)]
    history = f"{letter.group} {letter.place} {letter.deliveries} {letter.reason}"
    own += [
        (ATTEMPTS, str(attempts).encode()),
        (DELIVERIES, str(deliveries).encode()),
        (HISTORY, history.encode()),
    ]
    return key, value, own


class Redriving:
    """One run."""

    def __init__(self, bootstrap: str, group: str) -> None:
        """Fences other runs of the group. Raises KafkaException."""
        from confluent_kafka import Producer

        self.producer: Producer = Producer(
            clients.settings(
                bootstrap,
                {
                    "transactional.id": id_of(group),
                    "transaction.timeout.ms": TRANSACTION_MS,
                    "linger.ms": 5,
                },
            )
        )
        in_thread(self.producer.init_transactions, clients.REQUEST_TIMEOUT_S)
        self._originals = Originals(bootstrap, id_of(group))
        self.written = 0
        self.lost: list[Letter] = []
        """Letters whose records are nowhere any more."""

    def close(self) -> None:
        self._originals.close()

    def run(self, consumer: Consumer, found: Letters, rate: float | None) -> None:
        """Put back what is chosen. Raises CommandFailed, KafkaException."""
        began_s = time.monotonic()
        size = PER_TRANSACTION if rate is None else max(1, min(PER_TRANSACTION, int(rate)))
        for chunk in found.chunks():
            written: list[tuple[Letter, Any]] = []
            for letter in chunk:
                record = record_of(letter, self._originals)
                if record is None:
                    self.lost.append(letter)
                    continue
                written.append((letter, record))
                if len(written) == size:
                    self._commit(consumer, found, written)
                    written = []
                    if rate is not None:
                        time.sleep(max(0.0, began_s + self.written / rate - time.monotonic()))
            if written:
                self._commit(consumer, found, written)

    def _commit(self, consumer: Consumer, found: Letters, written: Sequence[tuple[Letter, Any]]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        done: dict[int, set[int]] = {}
        for letter, _ in written:
            done.setdefault(letter.partition, set()).add(letter.offset)
        made = {number: found.progress[number].with_done(offsets) for number, offsets in sorted(done.items())}
        try:
            commits = [TopicPartition(found.topic, at, each.offset, each.metadata()) for at, each in made.items()]
        except ValueError as error:
            raise CommandFailed(f"{error}: put more of them back at once, with fewer filters") from error
        producer = self.producer
        producer.begin_transaction()
        try:
            for letter, (key, value, headers) in written:
                producer.produce(letter.topic, value, key, partition=letter.source_partition, headers=headers)
            group, limit_s = consumer.consumer_group_metadata(), clients.REQUEST_TIMEOUT_S
            in_thread(producer.send_offsets_to_transaction, commits, group, limit_s)
            in_thread(producer.commit_transaction, limit_s)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                in_thread(producer.abort_transaction, clients.REQUEST_TIMEOUT_S)
            raise
        self.written += len(written)
        for number, position in made.items():
            found.progress[number].put_back(done[number], position)
