"""Random walks of transactional producers, done in step on two brokers whose partitions verify nothing.

A step is one request, sent to both: batches of several producers and epochs, with sequences in and out of order;
markers as coordinators of two versions of transactions write them, early, late, repeated and of deposed coordinators;
offsets in and out of transactions; deletions; and reads of all kinds. Whatever is answered must be the same. An answer
of read_committed names aborted transactions up to the next entry of an index, which may differ: those count that
overlap what was read.

`python -m tests.conformance.walks.transaction_walk OTTLA KAFKA FIRST_SEED COUNT` walks by hand.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ottla.coordinator.partitioning import partition_for
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, iterate_batches
from tests.conformance.differential.differential import TIME, Comparison, Side

PRODUCERS = 3
PARTITIONS = 2
OFFSETS_PARTITIONS = 50
RECENT = TIME + 10**9
"""Behind the time of all records but markers, which have that of their append."""


class Producer:
    def __init__(self, producer_id: int) -> None:
        self.id = producer_id
        self.epoch = 0
        self.coordinator_epoch = 0
        self.sequences = [0] * PARTITIONS
        """The next in each partition."""
        self.batches: list[tuple[int, bytes]] = []
        """The last that were sent: partition and bytes."""


class Walk:
    def __init__(self, brokers: tuple[str, str], seed: int, run: str) -> None:
        self.dice = random.Random(seed)
        self.pair = Comparison(Side(brokers[0]), Side(brokers[1]), f"txnwalk-{run}-{seed}-")
        self.topic = self.pair.set_up("t", partitions=PARTITIONS, segment_ms=str(1 << 62))
        # Otherwise Kafka begins a segment for a marker, whose time is another, though it then refuses the marker.
        self.group = f"{self.pair.prefix}g"
        self.producers = [Producer(90_000 + seed * 10 + number) for number in range(PRODUCERS)]
        self.written = 0
        """Batches that were accepted."""
        self.trimmed: set[int] = set()
        """Partitions whose start was moved, in which Kafka finds no record by its time any more."""
        self.requests: set[str] = set()

    def run(self, steps: int) -> None:
        do: list[tuple[int, Callable[[], None]]] = [
            (40, self.produce),
            (20, self.end),
            (10, self.commit_in_transaction),
            (4, self.commit),
            (6, self.fetch_offsets),
            (14, self.fetch),
            (6, self.list_offsets),
            (4, self.describe),
            (1, self.delete_records),
            (2, self.delete_offsets),
        ]
        for _ in range(steps):
            (step,) = self.dice.choices([each for _, each in do], [weight for weight, _ in do])
            step()
            self.pair.check()
        for partition in range(PARTITIONS):
            for isolation in (0, 1):
                self.read(partition, 0, isolation)
        self.describe()
        self.fetch_offsets()
        self.pair.check()

    def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        self.requests.add(key.name)
        return self.pair.ask(key, version, values)[0]

    # Writing

    def produce(self) -> None:
        dice = self.dice
        producer = dice.choice(self.producers)
        if producer.batches and dice.random() < 0.15:
            partition, records = dice.choice(producer.batches[-6:])
        else:
            partition, count = dice.randrange(PARTITIONS), dice.choice((1, 1, 2, 5))
            epoch = producer.epoch + dice.choice((0,) * 12 + (-1, 1))
            sequence = producer.sequences[partition] + dice.choice((0,) * 12 + (-1, 1, 3))
            if epoch != producer.epoch and dice.random() < 0.7:
                sequence = 0
            value = bytes(dice.choice((3, 30, 300)))
            records = bytes(
                build_batch(
                    [SimpleRecord(TIME + n, b"k", value) for n in range(count)],
                    producer_id=producer.id,
                    producer_epoch=max(epoch, 0),
                    base_sequence=max(sequence, 0),
                    transactional=dice.random() < 0.9,
                    codec=dice.choice((0, 0, 0, 1)),
                )
            )
            producer.batches.append((partition, records))
        transactional_id = f"{self.pair.prefix}{producer.id}" if dice.random() < 0.95 else None
        rows = [{"index": partition, "records": records}]
        values = {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout": 9000,
            "topic_data": [{"name": self.topic, "partition_data": rows}],
        }
        answer = self.ask(ApiKey.PRODUCE, dice.choice((9, 10, 11)), values)
        if answer and not answer["responses"][0]["partition_responses"][0]["error_code"]:
            ((_, header),) = iterate_batches(records)
            self.written += 1
            self._now_at(producer, header.producer_epoch)
            producer.sequences[partition] = header.last_sequence + 1

    def _now_at(self, producer: Producer, epoch: int) -> None:
        if epoch > producer.epoch:
            producer.epoch = epoch
            producer.sequences = [0] * PARTITIONS

    def end(self) -> None:
        dice = self.dice
        producer = dice.choice(self.producers)
        transaction_version = dice.choice((0, 2, 2))
        epoch = producer.epoch + (transaction_version == 2) + dice.choice((0,) * 8 + (-1, 1))
        producer.coordinator_epoch += dice.choice((0,) * 8 + (1,))
        offsets = partition_for(self.group, OFFSETS_PARTITIONS)
        topics = [{"name": self.topic, "partition_indexes": dice.sample(range(PARTITIONS), dice.choice((1, 2)))}]
        if dice.random() < 0.5:
            topics.append({"name": "__consumer_offsets", "partition_indexes": [offsets]})
        if dice.random() < 0.1:
            topics.append({"name": self.topic + "-missing", "partition_indexes": [0]})
        marker = {
            "producer_id": producer.id,
            "producer_epoch": max(epoch, 0),
            "transaction_result": dice.random() < 0.5,
            "topics": topics,
            "coordinator_epoch": max(0, producer.coordinator_epoch + dice.choice((0,) * 8 + (-1,))),
            "transaction_version": transaction_version,
        }
        version = 2 if transaction_version else dice.choice((1, 2))
        answer = self.ask(ApiKey.WRITE_TXN_MARKERS, version, {"markers": [marker]})
        for row in answer["markers"][0]["topics"]:
            if any(not each["error_code"] for each in row["partitions"]):
                self._now_at(producer, max(epoch, 0))

    def commit_in_transaction(self) -> None:
        dice = self.dice
        producer = dice.choice(self.producers)
        values = {
            "transactional_id": f"{self.pair.prefix}{producer.id}",
            "group_id": self.group,
            "producer_id": producer.id,
            "producer_epoch": max(0, producer.epoch + dice.choice((0,) * 8 + (-1, 1))),
            "generation_id": dice.choice((-1,) * 9 + (1,)),
            "member_id": dice.choice(("",) * 9 + ("who",)),
            "group_instance_id": None,
            "topics": self._offsets(),
        }
        self.ask(ApiKey.TXN_OFFSET_COMMIT, dice.choice((3, 4)), values)

    def commit(self) -> None:
        values = {
            "group_id": self.group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": self._offsets(),
        }
        self.ask(ApiKey.OFFSET_COMMIT, 8, values)

    def _offsets(self) -> list[dict[str, Any]]:
        dice = self.dice
        rows = [
            {
                "partition_index": number,
                "committed_offset": dice.randrange(1000),
                "committed_leader_epoch": -1,
                "committed_metadata": dice.choice((None, "", "m", "x" * 5000 if dice.random() < 0.05 else "y")),
            }
            for number in dice.sample(range(PARTITIONS + 1), dice.choice((1, 2)))
        ]
        return [{"name": self.topic, "partitions": rows}]

    def delete_offsets(self) -> None:
        topics = [{"name": self.topic, "partitions": [{"partition_index": self.dice.randrange(PARTITIONS)}]}]
        self.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": self.group, "topics": topics})

    def delete_records(self) -> None:
        rows = [{"partition_index": self.dice.randrange(PARTITIONS), "offset": self.dice.randrange(10)}]
        self.trimmed.add(rows[0]["partition_index"])
        topics = [{"name": self.topic, "partitions": rows}]
        self.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 9000})

    # Reading

    def fetch_offsets(self) -> None:
        wanted = [{"name": self.topic, "partition_indexes": list(range(PARTITIONS))}]
        for stable in (True, False):
            values = {"group_id": self.group, "topics": wanted, "require_stable": stable}
            self.ask(ApiKey.OFFSET_FETCH, 7, values)

    def fetch(self) -> None:
        self.read(self.dice.randrange(PARTITIONS), self.dice.randrange(40), self.dice.randrange(2))

    def read(self, partition: int, offset: int, isolation: int) -> None:
        row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": self.dice.choice((200, 1 << 20))}
        values = {
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 24,
            "isolation_level": isolation,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": self.topic, "partitions": [row]}],
        }
        self.requests.add("FETCH")
        mine, theirs = (side.ask(ApiKey.FETCH, 12, values) for side in self.pair.sides)
        seen = [self._seen(answer["responses"][0]["partitions"][0], offset) for answer in (mine, theirs)]
        assert seen[0] == seen[1], f"fetch of {partition} at {offset}, isolation {isolation}:\n{seen[0]}\n{seen[1]}"

    def _seen(self, row: Mapping[str, Any], offset: int) -> dict[str, Any]:
        batches = [
            (
                header.base_offset,
                header.last_offset_delta,
                header.attributes,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.count,
            )
            for _, header in iterate_batches(row["records"] or b"")
        ]
        end = batches[-1][0] + batches[-1][1] if batches else -1
        aborted = row["aborted_transactions"]
        if aborted is not None:
            aborted = sorted(
                (each["producer_id"], each["first_offset"]) for each in aborted if each["first_offset"] <= end
            )
        names = ("error_code", "high_watermark", "last_stable_offset", "log_start_offset")
        return {"batches": batches, "aborted": aborted, **{name: row[name] for name in names}}

    def list_offsets(self) -> None:
        for isolation in (0, 1):
            rows = [
                {"partition_index": number, "current_leader_epoch": -1, "timestamp": self.dice.choice(times)}
                for number in range(PARTITIONS)
                for times in [(-1, -2) if number in self.trimmed else (-1, -2, TIME)]
            ]
            topics = [{"name": self.topic, "partitions": rows}]
            values = {"replica_id": -1, "isolation_level": isolation, "topics": topics}
            self.requests.add("LIST_OFFSETS")
            seen = [
                [
                    {**each, "timestamp": "now" if each["timestamp"] > RECENT else each["timestamp"]}
                    for each in side.ask(ApiKey.LIST_OFFSETS, 6, values)["topics"][0]["partitions"]
                ]
                for side in self.pair.sides
            ]
            by_number = [sorted(each, key=lambda row: str(row["partition_index"])) for each in seen]
            assert by_number[0] == by_number[1], f"{values}\n{by_number[0]}\n{by_number[1]}"

    def describe(self) -> None:
        topics = [{"name": self.topic, "partition_indexes": list(range(PARTITIONS))}]
        self.ask(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics})


if __name__ == "__main__":
    ottla, kafka, first, count = sys.argv[1:]
    for seed in range(int(first), int(first) + int(count)):
        walk = Walk((ottla, kafka), seed, "by-hand")
        walk.run(150)
        print(seed, walk.written, sorted(walk.requests))
