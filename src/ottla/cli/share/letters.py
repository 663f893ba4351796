"""Dead letters as they are read from a topic: of one share group, with what their headers say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli import client as clients
from ottla.cli.exits import CommandFailed
from ottla.cli.interrupts import call, in_thread
from ottla.cli.output import bytes_field, iso_time
from ottla.replication.share.dead_letters import Reason

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

Header = tuple[str, bytes | None]

POLL_S = 0.5
CLOSE_S = 2.0
SILENCE_S = 30.0
"""Without a record for so long a partition is not served."""

ATTEMPTS, DELIVERIES, HISTORY = "__ottla.redrive.attempts", "__ottla.redrive.deliveries", "__ottla.redrive.history"
"""Headers of a record that was put back: how often, after how many deliveries before, and a line for each time."""
CONTEXT = ("__dlq.errors.", "__ottla.dlq.")
"""What the headers of a letter that are not its record's start with."""
_REASONS = {each.value: each.name.lower() for each in Reason}


class Letter(NamedTuple):
    partition: int
    offset: int
    """Where the letter is."""
    timestamp_ms: int
    group: str
    topic: str
    source_partition: int
    source_offset: int
    """Where the record is."""
    deliveries: int
    message: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    """The record's own, if the letter has them."""
    has_headers: bool
    """Whether the letter says what headers the record had."""

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.source_partition}@{self.source_offset}"

    @property
    def reason(self) -> str:
        return _REASONS.get(self.message, self.message)

    @property
    def attempts(self) -> int:
        """How often the record was put back before."""
        return number_of(self.headers, ATTEMPTS)

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "topic": self.topic,
            "partition": self.source_partition,
            "offset": self.source_offset,
            "reason": self.reason,
            "message": self.message,
            "deliveries": self.deliveries,
            "redriven": self.attempts,
            "time": iso_time(self.timestamp_ms),
            "letter_partition": self.partition,
            "letter_offset": self.offset,
            **bytes_field("key", self.key),
            **bytes_field("value", self.value),
        }


def number_of(headers: Sequence[Header], name: str) -> int:
    """The last header of a name as a number; 0 for none."""
    found = [value for each, value in headers if each == name and value is not None and value.isdigit()]
    return int(found[-1]) if found else 0


def letter_of(message: Message) -> Letter | None:
    """None for a record that is no dead letter of a share group."""
    headers: list[Header] = [*(message.headers() or ())]
    known = {name: value for name, value in headers if name.startswith(CONTEXT)}  # the last of a name counts

    def text(name: str) -> str:
        return (known.get(f"__dlq.errors.{name}") or b"").decode(errors="replace")

    place, offset, count = text("partition"), text("offset"), text("delivery.count")
    if not (text("group") and text("topic") and place.isdecimal() and offset.isdecimal()):
        return None
    own = [each for each in headers if not each[0].startswith(CONTEXT)]
    return Letter(
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        text("group"),
        text("topic"),
        int(place),
        int(offset),
        int(count) if count.isdecimal() else 0,
        text("message"),
        message.key(),
        message.value(),
        own,
        bool(own) or "__ottla.dlq.timestamp" in known,
    )


def reader(bootstrap: str, group: str, *, committed: bool = True) -> Consumer:
    """A client that reads without joining the group."""
    return clients.consumer(
        bootstrap,
        {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        },
    )


def close(consumer: Consumer) -> None:
    """It has nothing to commit: a broker that does not answer is not waited for."""
    with suppress(TimeoutError):
        in_thread(consumer.close, limit_s=CLOSE_S)


def partitions_of(consumer: Consumer, topic: str) -> list[int]:
    """Raises CommandFailed where there is no such topic."""
    metadata = in_thread(consumer.list_topics, topic, clients.REQUEST_TIMEOUT_S).topics[topic]
    if metadata.error is not None or not metadata.partitions:
        raise CommandFailed(
            f"there are no dead letters: topic {topic!r} does not exist\n  see what is wrong with: ottla share describe"
        )
    return sorted(metadata.partitions)


def letters(consumer: Consumer, topic: str, starts: Mapping[int, int]) -> Iterator[Letter | tuple[int, int]]:
    """The letters from these offsets to the ends of now, those of all groups; where a partition ends, (number, end)."""
    from confluent_kafka import KafkaError, TopicPartition

    ends = {}
    for number, start in starts.items():
        _, end = in_thread(consumer.get_watermark_offsets, TopicPartition(topic, number), clients.REQUEST_TIMEOUT_S)
        ends[number] = end
        if start >= end:
            yield number, end
    left = {number for number, start in starts.items() if start < ends[number]}
    consumer.assign([TopicPartition(topic, number, starts[number]) for number in sorted(left)])
    silent_s = 0.0
    while left:
        message = call(consumer.poll, POLL_S)
        if message is None:
            silent_s += POLL_S
            if silent_s > SILENCE_S:
                raise CommandFailed(f"{topic}: partitions {sorted(left)} are not served")
            continue
        silent_s = 0.0
        number = message.partition() or 0
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise CommandFailed(clients.explain(error, f"{topic}: ")[0])
        offset = message.offset() or 0
        is_over = error is not None or offset >= ends[number] - 1
        if error is None and number in left and offset < ends[number]:
            letter = letter_of(message)
            if letter is not None:
                yield letter
        if is_over and number in left:
            left.discard(number)
            yield number, ends[number]
