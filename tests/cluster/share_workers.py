"""Workers of a share group that go on while nodes of a cluster die, and what they have seen of each record."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from confluent_kafka import Producer

from ottla.protocol.messages import ApiKey
from tests.cluster.admin import ask
from tests.conformance.groups.share_consumers import ClientFails, Consumer, Delivered
from tests.conformance.line_program import Program

FLUSH_S = 180.0
RELEASED = 0.1
"""The share of records that a worker gives back."""


class Seen:
    """Records that all workers have seen. Only the worker that holds the lock changes it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.delivered: Counter[str] = Counter()
        self.accepted: dict[str, float] = {}
        """When the acceptance of a record was answered."""
        self.late: list[str] = []
        """Records that were fetched after the answer to their acceptance."""
        self.failures: Counter[str] = Counter()

    def came(self, records: list[Delivered], fetched_since_s: float) -> None:
        with self.lock:
            for each in records:
                self.delivered[each.value] += 1
                if self.accepted.get(each.value, fetched_since_s) < fetched_since_s:
                    self.late.append(each.value)

    def answered(self, accepted: list[Delivered], failures: dict[int, str]) -> None:
        with self.lock:
            self.failures.update(failures.values())
            for each in accepted:
                if each.partition not in failures:
                    # The first answer: one whose lock had ended is answered the same when the record is done with.
                    self.accepted.setdefault(each.value, time.monotonic())

    def failed(self, error: ClientFails) -> None:
        with self.lock:
            self.failures[str(error).split(" ")[0]] += 1


class Worker(threading.Thread):
    """Polls, accepts most of what it gets, gives the rest back, and joins again where its client fails."""

    def __init__(self, at: Program, bootstrap: str, group: str, topic: str, seen: Seen, seed: int) -> None:
        super().__init__(daemon=True)
        self._at, self._where = at, (bootstrap, group, topic)
        self._seen = seen
        self._random = random.Random(seed)
        self._stop_asked = threading.Event()
        self.crashed: BaseException | None = None

    def stop(self) -> None:
        self._stop_asked.set()
        self.join(120)

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self._as_a_member()
        except BaseException as error:
            self.crashed = error

    def _as_a_member(self) -> None:
        member = Consumer(self._at, *self._where)
        # A client may hold what it was sent after a poll has ended: the fetch was asked for since the poll before,
        # which took all that there was.
        began_s = before_s = time.monotonic()
        try:
            while not self._stop_asked.is_set():
                before_s, began_s = began_s, time.monotonic()
                records = member.poll(300)
                self._seen.came(records, before_s)
                back = [each for each in records if self._random.random() < RELEASED]
                accepted = [each for each in records if each not in back]
                member.acknowledge("RELEASE", back)
                member.acknowledge("ACCEPT", accepted)
                if records:
                    self._seen.answered(accepted, member.commit())
        except ClientFails as error:
            self._seen.failed(error)
        finally:
            member.close()


class ShareWriter(threading.Thread):
    """Writes records until it is stopped, and remembers those that were acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._topic, self._partitions = topic, partitions
        self._stop_asked = threading.Event()
        self.written: set[str] = set()

    def run(self) -> None:
        number = 0
        while not self._stop_asked.wait(0.01):
            place = number % self._partitions
            self._producer.produce(self._topic, str(number), partition=place, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: object, message: object) -> None:
        assert error is None
        self.written.add(message.value().decode())  # type: ignore[attr-defined]

    def stop(self) -> None:
        """Raises AssertionError where a record is not acknowledged in the end."""
        self._stop_asked.set()
        self.join(60)
        assert self._producer.flush(FLUSH_S) == 0


def backlog(address: str, group: str, partitions: int) -> int:
    """Records that are not done with; -1 where this broker does not know."""
    asked = {"groups": [{"group_id": group, "topics": None}]}
    (row,) = ask(address, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, asked)["groups"]
    lags = [part["lag"] for topic in row["topics"] for part in topic["partitions"]]
    return sum(lags) if not row["error_code"] and len(lags) == partitions and min(lags) >= 0 else -1
