"""Reads the internal topics of a cluster, and counts the records in them that Ottla does not know."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from ottla.cli.client import consumer, explain
from ottla.cli.interrupts import call
from ottla.cli.migrate.survey import Partition, Records
from ottla.model import INTERNAL_TOPICS, OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from ottla.protocol.internal.codec import MalformedRecord

POLL_S: Final = 1.0
SILENCE_S: Final = 20.0
"""How long no record may come before the rest counts as unread."""
AT_ONCE: Final = 500


def unknown_kind(topic: str, key: bytes | None, value: bytes | None) -> str | None:
    """What a record is if Ottla does not know it: its kind or version by number; None for a known one."""
    try:
        if _decoded(topic, key or b"", value) is not None:
            return None
    except MalformedRecord as error:
        return f"{topic}: {error}"
    kind = int.from_bytes((key or b"")[:2], "big", signed=True)
    return f"{topic}: records of the unknown kind {kind}"


def _decoded(topic: str, key: bytes, value: bytes | None) -> Any:
    """None for an unknown kind. Raises MalformedRecord."""
    if topic == OFFSETS_TOPIC:
        from ottla.protocol.internal.group_records import decode_record as of_group

        return of_group(key, value)
    if topic == TRANSACTION_TOPIC:
        from ottla.protocol.internal.transaction_records import decode_record as of_transaction

        return of_transaction(key, value)
    assert topic == SHARE_STATE_TOPIC
    from ottla.protocol.internal.share_records import decode_record as of_share

    return of_share(key, value)


def read(bootstrap: str, partitions: Iterable[Partition], records_max: int) -> Records:
    """Read from the beginning up to `records_max` records of all internal topics together. Raises CommandFailed."""
    from confluent_kafka import KafkaException, TopicPartition

    wanted = [each.key for each in partitions if each.topic in INTERNAL_TOPICS and each.leader >= 0]
    if not wanted:
        return Records()
    client = consumer(
        bootstrap,
        {
            "group.id": "ottla-migrate-check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
            "check.crcs": True,
        },
    )
    unknown: Counter[str] = Counter()
    read, left, failure = 0, set(wanted), None
    try:
        client.assign([TopicPartition(topic, number, 0) for topic, number in wanted])
        heard = time.monotonic()
        while left and read < records_max and time.monotonic() < heard + SILENCE_S:
            for each in call(client.consume, AT_ONCE, POLL_S):
                heard = time.monotonic()
                error = each.error()
                if error is None:
                    read += 1
                    found = unknown_kind(str(each.topic()), each.key(), each.value())
                    unknown.update(() if found is None else (found,))
                elif error.name() == "_PARTITION_EOF":
                    left.discard((each.topic(), each.partition()))
                else:
                    raise KafkaException(error)
    except KafkaException as error:
        failure = explain(error.args[0], "")[0]
    finally:
        client.close()
    return Records(read, dict(unknown), len(left), failure)
