"""Handles a missing topic that is written to: a misspelt one is not created silently."""

from __future__ import annotations

import difflib
import sys

from ottla.cli.client import admin_client, error_of, failure, topics_of, wait
from ottla.cli.exits import CommandFailed
from ottla.cli.output import visible
from ottla.cli.wire import ask, failure_of, topic_setting
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey


def ensure_topic(bootstrap: str, topic: str, create: bool) -> None:
    """Creates a missing topic where `create`, or whoever sits at the terminal, says so. Raises CommandFailed."""
    if topic_setting(bootstrap, topic, "max.message.bytes") is not None:
        return
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    client = admin_client(bootstrap)
    known = sorted(topics_of(client).topics)
    if topic in known:  # its settings may not be seen
        return
    _ensure_may_be_seen(bootstrap, topic)
    close = difflib.get_close_matches(topic, known, 3, 0.6)
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    if not create and not _is_wanted(f"topic {topic!r} does not exist{meant}"):
        raise CommandFailed(
            f"topic {topic!r} does not exist{meant}\n  create it with --create, or: ottla topic create {topic}"
        )
    try:
        wait(client.create_topics([NewTopic(topic, num_partitions=-1, replication_factor=-1)])[topic])
    except KafkaException as error:
        if error_of(error).name() != "TOPIC_ALREADY_EXISTS":
            raise failure(error, f"topic {topic!r}: ") from None


def _ensure_may_be_seen(bootstrap: str, topic: str) -> None:
    """Raises CommandFailed for a topic that this user may not describe, whether it exists or not."""
    asked = {"topics": [{"topic_id": None, "name": topic}], "allow_auto_topic_creation": False}
    (found,) = ask(bootstrap, ApiKey.METADATA, asked)["topics"]
    if found["error_code"] == ErrorCode.topic_authorization_failed:
        raise failure_of(found["error_code"], f"topic {topic!r}: ")


def _is_wanted(sentence: str) -> bool:
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"ottla: {visible(sentence)}\n  create it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
