"""Members of share groups: Java's KafkaShareConsumer and franz-go's share groups, driven line by line.

One process has any number of consumers (`clients/tools/ShareConsumerLines.java`, `clients/go/cmd/franz-share`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from ottla.protocol.messages import ApiKey
from tests.conformance.clients import build
from tests.conformance.line_program import Program, java_program
from tests.conformance.pair import Wire
from tests.oracle import RELEASE

LIMIT_S = 120.0
GROUP = 32
"""The resource type of a group's settings."""

JAVA, GO = "KafkaShareConsumer", "franz-go"
_numbers = itertools.count()


class Delivered(NamedTuple):
    partition: int
    offset: int
    count: int
    """Which delivery of the record this is, from one."""
    value: str

    @property
    def place(self) -> str:
        return f"{self.partition},{self.offset}"


class ClientFails(Exception):
    """An exception of the client."""


def program(client: str, release: str = RELEASE) -> Program:
    """A process for consumers of one kind. Skips the test where its language is not installed."""
    if client == JAVA:
        return Program(java_program("ShareConsumerLines", release))
    if reason := build.missing("go"):
        pytest.skip(reason)
    return Program([f"{build.build('go')}/bin/franz-share"])


def version(of: Program) -> str:
    return of.ask("version x")[0]


class Consumer:
    """A member of a share group. Every call raises ClientFails where the client throws."""

    def __init__(
        self,
        at: Program,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        records_max: int = 500,
        explicit: bool = True,
        acquire: str = "batch_optimized",
    ) -> None:
        """`explicit` acknowledgement is `share.acknowledgement.mode` of Java's consumer; franz-go's accepts what was
        not acknowledged before the next poll. `acquire` is `share.acquire.mode`."""
        self._at = at
        self.name = f"member-{next(_numbers)}"
        self.is_closed = False
        mode = "explicit" if explicit else "implicit"
        self._ask("open", bootstrap, group, topic, str(records_max), mode, acquire)

    def poll(self, wait_ms: int = 500) -> list[Delivered]:
        found = []
        for word in self._ask("poll", str(wait_ms)).split():
            partition, offset, count, value = word.split(",", 3)
            found.append(Delivered(int(partition), int(offset), int(count), value))
        return found

    def some(self) -> list[Delivered]:
        """Polls until there are records."""
        deadline = time.monotonic() + LIMIT_S
        while not (found := self.poll()):
            assert time.monotonic() < deadline, f"{self.name} gets no records"
        return found

    def acknowledge(self, type_: str, records: Iterable[Delivered]) -> None:
        """As ACCEPT, RELEASE, REJECT or RENEW; sent by `commit` or with the next poll."""
        if places := [each.place for each in records]:
            self._ask("acknowledge", type_, *places)

    def commit(self) -> dict[int, str]:
        """Waits until what was acknowledged is answered; the errors, by partition."""
        return {int(number): error for number, error in (w.split(",", 1) for w in self._ask("commit").split())}

    def finish(self, records: Iterable[Delivered], type_: str = "ACCEPT") -> None:
        self.acknowledge(type_, records)
        assert self.commit() == {}

    def take(self, count: int) -> list[Delivered]:
        """So many records, each poll's accepted before the next."""
        found: list[Delivered] = []
        while len(found) < count:
            some = self.some()
            self.finish(some)
            found += some
        return found

    def none_left(self, looks: int = 4) -> bool:
        """Whether some fetches that wait as long as they do by default find nothing."""
        return not any(self.poll() for _ in range(looks))

    def close(self) -> None:
        """Gives back what it has and has not acknowledged. Only the first call does anything."""
        if not self.is_closed:
            self.is_closed = True
            self._ask("close")

    def _ask(self, command: str, *words: str) -> str:
        answer, _ = self._at.ask(" ".join((command, self.name, *words)))
        if answer.startswith("thrown "):
            raise ClientFails(answer.removeprefix("thrown "))
        return answer


def configure(bootstrap: str, group: str, **settings: str) -> None:
    """Set `share.NAME` of a group; with underscores for dots."""
    rows = [
        {"name": f"share.{name.replace('_', '.')}", "config_operation": 0, "value": value}
        for name, value in settings.items()
    ]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": rows}
    asked = {"resources": [resource], "validate_only": False}
    for row in Wire(bootstrap.split(",")[0]).ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)["responses"]:
        assert not row["error_code"], row


def write(bootstrap: str, topic: str, values: Iterable[str], *, partition: int = 0, codec: str = "none") -> None:
    settings = {"linger.ms": 20, "enable.idempotence": True, "compression.codec": codec}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(LIMIT_S) == 0
