"""Records of a share-partition that die: a member has rejected them, or they were delivered as often as they may be.

Where the group has a topic for dead letters (KIP-1191), such a record is ARCHIVING, and the share coordinator keeps
that, before its letter is written; then it is ARCHIVED. It is not delivered again in between. A leader that fails
before the second state is kept leaves the letter to the next leader, which writes it again: a dead record has a letter
at least once.

Not dead are records that aborted transactions wrote, gaps that a member acknowledges as such, and what lies before the
start of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from ottla.model import Millis, Offset, TopicPartition
from ottla.protocol.internal.share_records import DeliveryState
from ottla.protocol.records.record_batch import Record
from ottla.protocol.schemas.records import StateBatch


class Reason(Enum):
    """Why a record is dead, with Kafka's sentence for the header `__dlq.errors.message`."""

    REJECTED = "Offset rejected by client."
    DELIVERIES = "Offset delivery count exceeded the threshold."


class DeadRecords(NamedTuple):
    """Offsets in a row, both ends included, that died of one reason."""

    first_offset: Offset
    last_offset: Offset
    delivery_count: int
    reason: Reason


def add_dead(dead: list[DeadRecords], more: DeadRecords) -> None:
    """Add to a list what may continue its end."""
    if dead and dead[-1].last_offset + 1 == more.first_offset and dead[-1][2:] == more[2:]:
        dead[-1] = dead[-1]._replace(last_offset=more.last_offset)
    else:
        dead.append(more)


def left_by_the_last_leader(batches: Iterable[StateBatch], count_limit: int) -> Iterator[DeadRecords]:
    """Records whose letters the leader before has begun to write. The reason is not kept: with as many deliveries as
    may be, it is taken to be that (`SharePartition.maybeResumeDlqArchiving`)."""
    for each in batches:
        if each.delivery_state == DeliveryState.ARCHIVING:
            reason = Reason.DELIVERIES if each.delivery_count >= count_limit else Reason.REJECTED
            yield DeadRecords(each.first_offset, each.last_offset, each.delivery_count, reason)


class LostLetters(NamedTuple):
    """Letters of a group that could not be written, the last of them."""

    place: TopicPartition
    """The partition of the records."""
    first_offset: Offset
    timestamp_ms: Millis
    why: str


# Topics

TOPIC: Final = "errors.deadletterqueue.topic.name"
COPY: Final = "errors.deadletterqueue.copy.record.enable"
"""Settings of a group."""
ENABLE: Final = "errors.deadletterqueue.group.enable"
"""A setting of the topic."""
PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"
"""Settings of brokers."""

SHARE_VERSION_MIN: Final = 2
"""The level of share.version that allows dead letters."""


def problem(name: str, *, prefix: str, enabled: bool | None, may_create: bool) -> str | None:
    """Why a topic cannot have dead letters, in the order in which Kafka asks; None if it can. `enabled` is what the
    topic says, None where it does not exist."""
    if not name:
        return f"the group has no {TOPIC}"
    if name.startswith("__"):
        return f"{name} is the name of an internal topic"
    if enabled is False:
        return f"topic {name} has not {ENABLE}=true"
    if not name.startswith(prefix):
        return f"{name} does not start with {prefix!r} ({PREFIX})"
    if enabled is None and not may_create:
        return f"topic {name} does not exist, and {CREATE} is false"
    return None


# Letters


class Source(NamedTuple):
    """Where dead records are from."""

    topic: str
    partition: int
    group_id: str


def context_headers(
    source: Source, offset: Offset, count: int, reason: Reason, record: Record | None, *, told: bool
) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a letter, in Kafka's order: of 4.4, without those of its record. With `told` those come first, and
    Ottla's own last: the reason as a word, and the record's own timestamp."""
    headers = (
        ("__dlq.errors.topic", source.topic.encode()),
        ("__dlq.errors.partition", str(source.partition).encode()),
        ("__dlq.errors.offset", str(offset).encode()),
        ("__dlq.errors.group", source.group_id.encode()),
        ("__dlq.errors.delivery.count", str(count).encode()),
        ("__dlq.errors.message", reason.value.encode()),
    )
    if not told:
        return headers
    own = [("__ottla.dlq.reason", reason.name.lower().encode())]
    if record is None:
        return (*headers, *own)
    own.append(("__ottla.dlq.timestamp", str(record.timestamp).encode()))
    return (*record.headers, *headers, *own)
