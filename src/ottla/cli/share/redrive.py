"""`ottla share redrive`: puts dead letters back into their topics, each exactly once.

A transaction has some records and the position behind their letters (`position.py`). Its transactional id is the
group's: another redrive of the group is fenced before the position is read. What was interrupted is finished or rolled
back by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.cli import client as clients
from ottla.cli.exits import CommandFailed
from ottla.cli.share.letters import (
    ATTEMPTS,
    DELIVERIES,
    HISTORY,
    POLL_S,
    Header,
    Letter,
    letters,
    number_of,
    partitions_of,
    reader,
)
from ottla.cli.share.position import Position, parse, position_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, Producer

LETTERS_MAX = 10_000
"""Letters of one run, which are kept in memory."""
PER_TRANSACTION = 100
TRANSACTION_MS = 60_000
ORIGINAL_S = 10.0
"""How long a record is waited for."""


def id_of(group: str) -> str:
    """The transactional id of a group's redrives, and the consumer group whose commits are its position."""
    return f"ottla-redrive.{group}"


@dataclass
class Plan:
    """What a redrive would do."""

    topic: str
    positions: Mapping[int, Position]
    letters: dict[int, list[Letter]] = field(default_factory=dict)
    """Letters of the group that are not put back yet, by the partition that they are in."""
    ends: dict[int, int] = field(default_factory=dict)
    """Up to where each partition was read."""
    chosen: set[tuple[int, int]] = field(default_factory=set)
    """Partition and offset of those to be put back."""
    done_before: int = 0
    is_cut: bool = False
    """Whether there are more letters than a run takes."""

    def to_do(self) -> Iterator[Letter]:
        for number in sorted(self.letters):
            for each in self.letters[number]:
                if (number, each.offset) in self.chosen:
                    yield each


def positions(consumer: Consumer, topic: str, numbers: Sequence[int]) -> dict[int, Position]:
    """Raises CommandFailed."""
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(topic, number) for number in numbers]
    try:
        return {
            each.partition: parse(each.offset, each.metadata)
            for each in consumer.committed(asked, clients.REQUEST_TIMEOUT_S)
        }
    except ValueError as error:
        raise CommandFailed(f"the position of the redrive cannot be read: {error}") from error


def plan(
    consumer: Consumer, topic: str, group: str, wants: Callable[[Letter], bool], limit: int | None
) -> Plan:  # fmt: skip
    """Raises CommandFailed."""
    numbers = partitions_of(consumer, topic)
    made = Plan(topic, positions(consumer, topic, numbers))
    starts = {number: made.positions[number].offset for number in numbers}
    count = 0
    for found in letters(consumer, topic, starts):
        if not isinstance(found, Letter):
            made.ends[found[0]] = max(found[1], made.positions[found[0]].offset)
            continue
        made.ends[found.partition] = found.offset + 1
        if found.group != group:
            continue
        if made.positions[found.partition].has(found.offset):
            made.done_before += 1
            continue
        made.letters.setdefault(found.partition, []).append(found)
        count += 1
        if wants(found) and (limit is None or len(made.chosen) < limit):
            made.chosen.add((found.partition, found.offset))
        if count >= LETTERS_MAX:
            made.is_cut = True
            break
    for number in numbers:
        made.ends.setdefault(number, starts[number])
    return made


class Originals:
    """Records where they were written: letters of Kafka 4.4 have no headers of theirs, and often no payload."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = reader(bootstrap, group, committed=False)
        self._at: tuple[str, int, int] | None = None

    def close(self) -> None:
        self._consumer.close()

    def find(self, letter: Letter) -> tuple[bytes | None, bytes | None, list[Header]] | None:
        """Key, value and headers; None where the record is no more."""
        from confluent_kafka import KafkaError, TopicPartition

        place = letter.topic, letter.source_partition, letter.source_offset
        if self._at != place:
            self._consumer.assign([TopicPartition(*place)])
        self._at = None
        deadline_s = time.monotonic() + ORIGINAL_S
        while time.monotonic() < deadline_s:
            message = self._consumer.poll(POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() in (KafkaError._PARTITION_EOF, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
                                    KafkaError.UNKNOWN_TOPIC_OR_PART):  # fmt: skip
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
        (ATTEMPTS, str(attempts).encode()), (DELIVERIES, str(deliveries).encode()), (HISTORY, history.encode()),
    ]  # fmt: skip
    return key, value, own


class Redriving:
    """One run."""

    def __init__(self, bootstrap: str, group: str) -> None:
        """Fences other runs of the group. Raises KafkaException."""
        from confluent_kafka import Producer

        self.producer: Producer = Producer(clients.settings(bootstrap, {
            "transactional.id": id_of(group), "transaction.timeout.ms": TRANSACTION_MS, "linger.ms": 5,
        }))  # fmt: skip
        self.producer.init_transactions(clients.REQUEST_TIMEOUT_S)
        self._originals = Originals(bootstrap, id_of(group))
        self.written = 0
        self.lost: list[Letter] = []
        """Letters whose records are nowhere any more."""

    def close(self) -> None:
        self._originals.close()

    def run(self, consumer: Consumer, made: Plan, rate: float | None) -> None:
        """Put back what is chosen. Raises CommandFailed, KafkaException."""
        began_s = time.monotonic()
        done: set[tuple[int, int]] = set()
        chunk: list[tuple[Letter, Any]] = []
        size = PER_TRANSACTION if rate is None else max(1, min(PER_TRANSACTION, int(rate)))
        for letter in made.to_do():
            record = record_of(letter, self._originals)
            if record is None:
                self.lost.append(letter)
                continue
            chunk.append((letter, record))
            if len(chunk) == size:
                self._commit(consumer, made, chunk, done)
                chunk = []
                if rate is not None:
                    time.sleep(max(0.0, began_s + self.written / rate - time.monotonic()))
        if chunk:
            self._commit(consumer, made, chunk, done)

    def _commit(
        self, consumer: Consumer, made: Plan, chunk: Sequence[tuple[Letter, Any]], done: set[tuple[int, int]]
    ) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        done |= {(letter.partition, letter.offset) for letter, _ in chunk}
        offsets = []
        for number in sorted({letter.partition for letter, _ in chunk}):
            position = self._position(made, number, done)
            try:
                metadata = position.metadata()
            except ValueError as error:
                raise CommandFailed(f"{error}: put more of them back at once, with fewer filters") from error
            offsets.append(TopicPartition(made.topic, number, position.offset, metadata))
        producer = self.producer
        producer.begin_transaction()
        try:
            for letter, (key, value, headers) in chunk:
                producer.produce(letter.topic, value, key, partition=letter.source_partition, headers=headers)
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), clients.REQUEST_TIMEOUT_S)
            producer.commit_transaction(clients.REQUEST_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                producer.abort_transaction(clients.REQUEST_TIMEOUT_S)
            raise
        self.written += len(chunk)

    @staticmethod
    def _position(made: Plan, number: int, done: set[tuple[int, int]]) -> Position:
        """What is put back in a partition now, with what was before."""
        before = made.positions[number]
        known = [(each.offset, (number, each.offset) in done) for each in made.letters.get(number, ())]
        end = max(made.ends[number], before.offset)
        if made.is_cut:  # what lies behind is not known
            known.append((end, False))
        for first, last in before.ranges:
            known += [(first, True), (last, True)]
        return position_of(sorted(known), end)
