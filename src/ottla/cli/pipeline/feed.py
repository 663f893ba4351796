"""`ottla pipeline feed`: sample data into the topics that a pipeline reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from ottla.cli import client_security
from ottla.cli.client import REQUEST_TIMEOUT_S, producer
from ottla.cli.exits import FAILED, MISUSED, CommandFailed
from ottla.cli.interrupts import in_thread
from ottla.cli.pipeline import samples

IN_FLIGHT_MAX: Final = 10_000
"""Records that wait to be acknowledged."""


def feed(
    kind: str, settings: Mapping[str, Any], bootstrap: str, count: int, seed: int, partitions: int
) -> dict[str, int]:
    """Produce samples of the pipeline `kind`; returns how many each topic got. Topics that are missing are created.
    Raises CommandFailed."""
    if kind not in samples.NAMES:
        known = ", ".join(samples.NAMES)
        raise CommandFailed(f"there is no sample data for {kind}; use --like NAME with one of {known}", MISUSED)
    random = Random(seed)
    now = datetime.now(UTC)
    records = list(samples.samples(kind, count, now, random))
    topics = {
        each: samples.MIRRORED if each == "topics" else str(settings.get(each, ""))
        for each in sorted({record.setting for record in records})
    }
    if missing := [setting for setting, topic in topics.items() if not topic]:
        raise CommandFailed(f"the pipeline lacks the setting {missing[0]}, which names a topic", MISUSED)
    in_thread(lambda: _ensure(bootstrap, set(topics.values()), partitions))
    client = producer(bootstrap, {"linger.ms": 20, "compression.type": "lz4"})
    done: Counter[str] = Counter()
    failures: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error.str())
        else:
            done[message.topic()] += 1

    for record in records:
        client.produce(topics[record.setting], record.value, record.key, on_delivery=delivered)
        while len(client) > IN_FLIGHT_MAX:
            client.poll(0.1)
        client.poll(0)
    left = in_thread(lambda: client.flush(REQUEST_TIMEOUT_S))
    if failures or left:
        why = failures[0] if failures else "the broker does not answer"
        raise CommandFailed(
            f"{len(records) - sum(done.values()):,} of {len(records):,} records were not stored: {why}", FAILED
        )
    return dict(sorted(done.items()))


def _ensure(bootstrap: str, topics: set[str], partitions: int) -> None:
    from ottla.errors import KafkaError
    from ottla.pipelines.runner.topics import Topics

    there = Topics(bootstrap, security=client_security.current())
    try:
        for topic in sorted(topics):
            there.ensure(topic, partitions, {})
    except (KafkaError, OSError, ValueError) as error:
        raise CommandFailed(f"the topics cannot be created: {error}", FAILED) from None
    finally:
        there.close()
