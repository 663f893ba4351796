"""A share group with dead letters on three nodes that die: each record is accepted or dead, once, in order by key.

    python -m tests.cluster.share_proof --records 1000000            # by hand
    python -m tests.cluster.share_proof --records 1000000 --keyed

`brokers/test_share_proof.py` plays a small one.

One record in a hundred fails: it is rejected, or given back or held until it was delivered as often as it may be. The
workers are raw members, which know of each acknowledgement whether it was answered; while they work, the leaders of the
state, of the records and of the letters are killed in turn.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import zlib
from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import iterate_batches, iterate_records
from ottla.testing import Cluster
from tests.cluster.admin import ask
from tests.conformance.groups.raw_share_member import ACCEPT, GROUP, REJECT, RELEASE, RawMember, alter
from tests.conformance.groups.raw_share_member import raise_share_version as raise_version
from tests.conformance.pair import Wire

SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000", "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}  # fmt: skip
NAME, LETTERS = "g", "dlq.work"
PARTITIONS, WORKERS = 2, 4
LOCK_MS, DELIVERIES_MAX = 5_000, 3
LIMIT_S = 600.0
HEADERS = {
    "__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.offset", "__dlq.errors.group", "__dlq.errors.message",
}  # fmt: skip
HOLD = 0
"""Nothing is said of the record: its lock ends."""


def fate_of(number: int) -> int:
    """What workers say of a record. The failing ones are spread over the keys: one that is held keeps its key for as
    long as all its locks."""
    chance = zlib.crc32(b"%d" % number)
    return (REJECT, RELEASE, HOLD, REJECT)[chance // 100 % 4] if chance % 100 == 0 else ACCEPT


class Place(NamedTuple):
    partition: int
    offset: int


class Seen:
    """What all workers know of the records."""

    def __init__(self, keys: int) -> None:
        self.lock = threading.Lock()
        self.accepted: Counter[Place] = Counter()
        """Acceptances that were answered without an error."""
        self.rejected: set[Place] = set()
        self.doubtful: set[Place] = set()
        """Places of which an acceptance was not answered, or with an error."""
        self.numbers: dict[Place, int] = {}
        self.keys = keys
        self.newest: dict[int, tuple[int, float]] = {}
        """The last record of each key that was delivered, and when that was known."""
        self.out_of_order: list[tuple[Place, int]] = []
        self.deliveries = 0
        self.failures: Counter[int] = Counter()

    def came(self, place: Place, number: int, asked_s: float) -> None:
        """A record came with a fetch that was sent at a time. A record before one that came earlier is out of order,
        unless it was on its way already: a new leader delivers again what a worker may still have."""
        self.deliveries += 1
        assert self.numbers.setdefault(place, number) == number
        newest, since_s = self.newest.get(number % self.keys, (-1, 0.0))
        if place.offset < newest and since_s < asked_s:
            self.out_of_order.append((place, newest))
        if place.offset > newest:
            self.newest[number % self.keys] = place.offset, time.monotonic()


class Worker(threading.Thread):
    """Works through one partition, on whatever node leads it."""

    def __init__(self, cluster: Cluster, topic_id: UUID, partition: int, name: str, seen: Seen) -> None:
        super().__init__(daemon=True)
        self._cluster, self._topic_id, self._partition, self._member = cluster, topic_id, partition, name
        self._seen = seen
        self._wire: Wire | None = None
        self._epoch = 0
        self._said: dict[Place, int] = {}
        """What the next request says of records."""
        self.is_stopped = False
        self.crashed: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_stopped:
                try:
                    self._turn()
                except OSError:
                    self._lost()
        except BaseException as error:
            self.crashed = error

    def _lost(self) -> None:
        """The connection is gone, and with it what became of the acknowledgements."""
        self._note(self._said, is_kept=False)
        self._said = {}
        if self._wire is not None:
            self._wire.socket.close()
        self._wire = None
        time.sleep(0.1)

    def _note(self, said: dict[Place, int], *, is_kept: bool) -> None:
        with self._seen.lock:
            for place, type_ in said.items():
                if type_ == ACCEPT and is_kept:
                    self._seen.accepted[place] += 1
                elif type_ == ACCEPT:
                    self._seen.doubtful.add(place)
                elif type_ == REJECT:
                    self._seen.rejected.add(place)

    def _turn(self) -> None:
        if self._wire is None:
            leader = self._cluster.leader("work", self._partition)
            self._wire, self._epoch = Wire(self._cluster.addresses[leader]), 0
        asked_s, said = time.monotonic(), self._said
        row = {"partition_index": self._partition, "acknowledgement_batches": _as_batches(said)}
        answer = self._wire.ask(
            ApiKey.SHARE_FETCH,
            1,
            {
                "group_id": NAME,
                "member_id": self._member,
                "share_session_epoch": self._epoch,
                "max_wait": 300,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": 500,
                "batch_size": 500,
                "forgotten_topics_data": [],
                "topics": [{"topic_id": self._topic_id, "partitions": [row]}] if said or not self._epoch else [],
            },
        )
        if answer is None:
            raise ConnectionError("closed")
        if answer["error_code"]:
            raise ConnectionError(answer["error_code"])
        self._epoch += 1
        rows = [row for topic in answer["responses"] for row in topic["partitions"]]
        refused = next((row["acknowledge_error_code"] for row in rows if row["acknowledge_error_code"]), 0)
        self._note(said, is_kept=not refused)
        self._said = {}
        for row in rows:
            for code in (row["error_code"], refused):
                self._seen.failures[code] += bool(code)
            if row["error_code"]:
                raise ConnectionError(row["error_code"])
            self._take(row, asked_s)

    def _take(self, row: dict[str, Any], asked_s: float) -> None:
        data = row["records"] or b""
        values = {each.offset: each.value for at, _ in iterate_batches(data) for each in iterate_records(data, at)}
        with self._seen.lock:
            for batch in row["acquired_records"]:
                for offset in range(batch["first_offset"], batch["last_offset"] + 1):
                    place, number = Place(self._partition, offset), int(values[offset])
                    self._seen.came(place, number, asked_s)
                    if (fate := fate_of(number)) != HOLD:
                        self._said[place] = fate


def _as_batches(said: dict[Place, int]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for place, type_ in said.items():
        if rows and rows[-1]["last_offset"] + 1 == place.offset:
            rows[-1]["last_offset"] = place.offset
            rows[-1]["acknowledge_types"].append(type_)
        else:
            rows.append({"first_offset": place.offset, "last_offset": place.offset, "acknowledge_types": [type_]})
    return rows


class Result(NamedTuple):
    accepted: int
    dead: int
    letters: int
    deliveries: int
    kills: int
    seconds: float
    failures: Counter[int]

    def __str__(self) -> str:
        rate = (self.accepted + self.dead) / self.seconds
        return (
            f"{self.accepted:,} accepted and {self.dead:,} dead with {self.letters:,} letters, {self.deliveries:,} "
            f"deliveries, {self.kills} kills, {rate:,.0f} records/s; errors answered: {dict(self.failures)}"
        )


def prove(records: int, *, keyed: bool, kills: int = 3, lock_ms: int = LOCK_MS) -> Result:
    """Raises AssertionError for a record that is lost, doubled or out of order."""
    with Cluster(3, SETTINGS, topics={"work": PARTITIONS}) as cluster:
        address = next(iter(cluster.addresses.values()))
        raise_version(address)
        cluster.create_topic(LETTERS, PARTITIONS, errors_deadletterqueue_group_enable="true")
        settings: dict[str, str | None] = {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": str(DELIVERIES_MAX),
            "share.record.lock.duration.ms": str(lock_ms),
            "errors.deadletterqueue.topic.name": LETTERS,
            **({"ottla.share.order": "key"} if keyed else {}),
        }
        assert alter(address, GROUP, NAME, settings)[0] == 0
        keys = max(PARTITIONS, records // 50) // PARTITIONS * PARTITIONS
        _fill(cluster, records, keys)
        (found,) = ask(
            address,
            ApiKey.METADATA,
            12,
            {
                "topics": [{"topic_id": None, "name": "work"}],
                "allow_auto_topic_creation": False,
            },
        )["topics"]
        member = RawMember(address, NAME, "work", found["topic_id"])
        seen = Seen(keys)
        _until(lambda: _joined(member), seen)
        workers = [
            Worker(cluster, found["topic_id"], number % PARTITIONS, f"w{number}", seen) for number in range(WORKERS)
        ]
        began_s = time.monotonic()
        for worker in workers:
            worker.start()
        _kill(cluster, seen, records, kills)
        _until(lambda: _backlog(cluster) == 0, seen)
        seconds = time.monotonic() - began_s
        for worker in workers:
            worker.is_stopped = True
            worker.join(60)
            assert worker.crashed is None, worker.crashed
        letters = _letters(cluster)
        return _checked(records, seen, letters, keyed=keyed, kills=kills, seconds=seconds)


def _joined(member: RawMember) -> bool:
    """Whether the member could join within its time, by which the group has a state."""
    with suppress(AssertionError):
        member.join()
        return True
    return False


def _checked(records: int, seen: Seen, letters: Counter[Place], *, keyed: bool, kills: int, seconds: float) -> Result:
    assert len(seen.numbers) == records, f"{records - len(seen.numbers)} records were never delivered"
    poison = {place for place, number in seen.numbers.items() if fate_of(number) != ACCEPT}
    accepted = seen.accepted.keys()
    assert not [place for place, times in seen.accepted.items() if times > 1], "accepted twice"
    assert not accepted & letters.keys(), "accepted, and dead"
    assert poison <= letters.keys(), f"{len(poison - letters.keys())} of the dead have no letter"
    lost = seen.numbers.keys() - accepted - letters.keys() - seen.doubtful
    assert not lost, f"neither accepted nor dead: {sorted(lost)[:10]}"
    if keyed:
        assert not seen.out_of_order, f"out of order: {seen.out_of_order[:10]}"
    dead = len(letters)
    return Result(records - dead, dead, letters.total(), seen.deliveries, kills, seconds, seen.failures)


def _fill(cluster: Cluster, records: int, keys: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for number in range(records):
        key = number % keys
        while True:
            try:
                producer.produce("work", b"%d" % number, b"key-%d" % key, partition=key % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(LIMIT_S) == 0


def _until(condition: Any, seen: Seen) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, (len(seen.accepted), dict(seen.failures))
        time.sleep(0.1)


def _kill(cluster: Cluster, seen: Seen, records: int, kills: int) -> None:
    """Kill leaders in turn, spread over the run, each once all replicas are in sync again."""
    for number in range(kills):
        wanted = records * (number + 1) // (kills + 2)
        _until(lambda wanted=wanted: len(seen.accepted) >= wanted, seen)
        _until(lambda: _is_whole(cluster), seen)
        victim = cluster.leader(("work", "__share_group_state", LETTERS)[number % 3])
        cluster.kill(victim)
        time.sleep(1)  # the fault itself: for so long the node is away
        cluster.restart(victim)


def _is_whole(cluster: Cluster) -> bool:
    for address in cluster.addresses.values():
        with suppress(OSError):
            answer = ask(address, ApiKey.METADATA, 12, {"topics": None, "allow_auto_topic_creation": False})
            return all(len(part["isr_nodes"]) == 3 for topic in answer["topics"] for part in topic["partitions"])
    return False


def _backlog(cluster: Cluster) -> int:
    for address in cluster.addresses.values():
        with suppress(OSError):
            asked = {"groups": [{"group_id": NAME, "topics": None}]}
            (row,) = ask(address, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, asked)["groups"]
            lags = [part["lag"] for topic in row["topics"] for part in topic["partitions"]]
            if not row["error_code"] and len(lags) == PARTITIONS and min(lags) >= 0:
                return sum(lags)
    return -1


def _letters(cluster: Cluster) -> Counter[Place]:
    """The places of the records that have letters. Each has its headers."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "letters", "enable.auto.commit": False})
    ends = {}
    for number in range(PARTITIONS):
        part = TopicPartition(LETTERS, number, 0)
        ends[number] = consumer.get_watermark_offsets(part, timeout=60)[1]
    consumer.assign([TopicPartition(LETTERS, number, 0) for number in range(PARTITIONS)])
    found: Counter[Place] = Counter()
    left, deadline = sum(ends.values()), time.monotonic() + LIMIT_S
    while left and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None
            headers = {name: value.decode() if value else "" for name, value in message.headers() or ()}
            assert headers.keys() >= HEADERS, headers
            found[Place(int(headers["__dlq.errors.partition"]), int(headers["__dlq.errors.offset"]))] += 1
            left -= 1
    consumer.close()
    assert not left
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keyed", action="store_true")
    parser.add_argument("--kills", type=int, default=9)
    parser.add_argument(
        "--lock-ms",
        type=int,
        default=LOCK_MS,
        help="a record that is held keeps its window for three locks: without an order by key that is the rate",
    )
    options = parser.parse_args()
    print(prove(options.records, keyed=options.keyed, kills=options.kills, lock_ms=options.lock_ms))
    return 0


if __name__ == "__main__":
    sys.exit(main())
