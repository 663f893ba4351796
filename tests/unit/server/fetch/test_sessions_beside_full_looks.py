"""A session that looks at what has changed answers as one that looks at everything, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.metadata.image import PartitionRegistration
from ottla.protocol.messages import ApiKey
from ottla.replication.partition import Partition
from ottla.replication.record_deletion import delete_records
from ottla.server.node import Node
from tests.unit.server import stub
from tests.unit.server.node import TIME, Client, batch, fetch_values, running

TURNS = 400
TOPICS = ("a", "b", "c")
PARTITIONS = 4


class Walk:
    """Two sessions with the same requests, and what happens to the partitions between these."""

    def __init__(self, node: Node, clients: list[Client], seed: int) -> None:
        self.node = node
        self.lazy, self.thorough, self.other = clients
        self.random = Random(seed)
        self.epochs = [0, 0]
        self.ids = [0, 0]
        self.done: Counter[str] = Counter()
        self.ends: Counter[tuple[str, int]] = Counter()
        self.spared = self.spared_of_followers = 0

    def partition(self) -> Partition | None:
        topic, number = self.random.choice(TOPICS), self.random.randrange(PARTITIONS)
        return self.node.replicas.by_name.get(topic, {}).get(number)

    async def event(self) -> None:
        happens = self.random.choices(
            ["append", "trim", "retain", "lead", "follow", "replicate", "cut", "delete", "create", "wake"],
            [30, 4, 2, 3, 3, 30, 1, 1, 4, 1],
        )[0]
        partition = self.partition()
        if happens == "create":
            name = self.random.choice(TOPICS)
            if name in self.node.replicas.by_name:
                return
            await self.other.create(name, {"segment.bytes": "1048576", "retention.ms": "-1"}, PARTITIONS)
        elif partition is None:
            return
        elif happens == "replicate":
            if partition.is_leader:
                return
            self.replicate(partition)
        elif happens == "cut":
            if partition.is_leader or partition.log.high_watermark == partition.log.log_end_offset:
                return
            await self.node.logs.truncate({partition.log: partition.log.high_watermark})
            self.ends[partition.topic_partition] = partition.log.log_end_offset
        elif happens == "append":
            topic, number = partition.topic_partition
            made = batch(self.random.choice([10, 400]), self.random.randrange(1, 4))
            found = await self.other.produce(topic, made, partition=number)
            self.ends[topic, number] = found["base_offset"] + 1
        elif happens == "trim" and partition.is_leader:
            delete_records(partition, self.random.randrange(partition.log.high_watermark + 1))
        elif happens == "retain":
            partition.log.advance_log_start(partition.log.high_watermark)  # as retention does, past the partition
        elif happens in ("lead", "follow"):
            leader = partition.node_id if happens == "lead" else 99
            made_up = PartitionRegistration(
                partition.replicas, (leader,), leader, partition.leader_epoch + 1, partition.partition_epoch + 1, ()
            )
            if partition.update(made_up):
                partition.wake()
        elif happens == "wake":
            partition.wake()
        elif happens == "delete":
            topic = partition.topic_partition.topic
            values = {"topics": [{"name": topic, "topic_id": None}], "timeout": 1000}
            await self.other.ask(ApiKey.DELETE_TOPICS, 6, values)
            self.ends = Counter({key: end for key, end in self.ends.items() if key[0] != topic})
        self.done[happens] += 1

    def replicate(self, partition: Partition) -> None:
        """What its leader says: records or not, and a high watermark."""
        log = partition.log
        if self.random.random() < 0.6:
            made = batch(10, base_offset=log.log_end_offset, leader_epoch=partition.leader_epoch)
            partition.append_as_follower(made, partition.leader_epoch, now_ms=TIME)
            self.ends[partition.topic_partition] = log.log_end_offset
        partition.follow(self.random.randint(log.high_watermark, log.log_end_offset), log.log_start_offset)

    def request(self) -> dict[str, Any]:
        """The partitions that a request names, a few of them forgotten."""
        rows: dict[str, list[dict[str, int]]] = {}
        forgotten: dict[str, list[int]] = {}
        for topic in TOPICS:
            for number in range(PARTITIONS):
                luck = self.random.random()
                if luck < 0.3 or not self.epochs[0]:
                    end = self.ends[topic, number]
                    offset = self.random.choice([0, end, end, end, end, end + 1])
                    epoch = self.random.choice([-1, -1, -1, 0])
                    size = self.random.choice([1, 300, 1 << 20])
                    row = {"partition": number, "fetch_offset": offset, "partition_max_bytes": size}
                    rows.setdefault(topic, []).append({**row, "current_leader_epoch": epoch})
                elif luck < 0.33:
                    forgotten.setdefault(topic, []).append(number)
        return {
            "topics": [{"topic": topic, "partitions": some} for topic, some in rows.items()],
            "forgotten_topics_data": [{"topic": topic, "partitions": some} for topic, some in forgotten.items()],
            "max_bytes": self.random.choice([300, 1 << 20]),
            "isolation_level": self.random.randrange(2),
        }

    async def compare(self) -> None:
        asked = self.request()
        answers = []
        for which, client in enumerate((self.lazy, self.thorough)):
            session = next((each for each in self.node.sessions if each.id == self.ids[which]), None)
            if session is not None and which:
                for cached in session.partitions.values():
                    cached.look_again()
            elif session is not None:
                watched = [each for each in session.partitions.values() if each.watched is not None]
                self.spared += len(watched)
                self.spared_of_followers += sum(not each.watched.is_leader for each in watched)
            more = {**asked, "session_id": self.ids[which], "session_epoch": self.epochs[which]}
            answer = await client.ask(ApiKey.FETCH, 12, {**fetch_values("a", 0), **more})
            if not self.epochs[which]:
                self.ids[which] = answer["session_id"]
            self.epochs[which] += 1
            answers.append({**answer, "session_id": 0})
        assert answers[0] == answers[1], (dict(self.done), asked)
        if answers[0]["error_code"]:
            self.ids, self.epochs = [0, 0], [0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_a_session_that_looks_at_changes_answers_as_one_that_looks_at_everything(tmp_path: Path, seed: int) -> None:
    """Appends, deletions of records and topics, leaders that come and go, partitions that are forgotten, and limits."""

    async def test() -> None:
        async with running(str(tmp_path), {"delete.topic.enable": "true"}) as node:
            clients = [await Client.connect(node) for _ in range(3)]
            walk = Walk(node, clients, seed)
            for topic in TOPICS:
                await walk.other.create(topic, partitions=PARTITIONS)
            for _ in range(TURNS):
                for _ in range(walk.random.randrange(3)):
                    await walk.event()
                await walk.compare()
            for client in clients:
                client.close()
            assert len(walk.done) >= 9 and walk.done["append"] > 100 and walk.done["replicate"] > 10, walk.done
            assert walk.spared_of_followers > TURNS // 10, walk.spared_of_followers
            assert walk.spared > TURNS // 2, walk.spared
            watched = {cached for session in node.sessions for cached in session.partitions.values()}
            for partition in node.replicas:
                assert partition.sessions.keys() <= watched
                assert all(cached.watched is partition for cached in partition.sessions)

    stub.run(test())


def test_a_waiting_fetch_counts_bytes_of_all_partitions_of_its_session(tmp_path: Path) -> None:
    """Two that had nothing: the bytes of both together are enough, those of one twice as well."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client, other = await Client.connect(node), await Client.connect(node)
            await client.create("t", partitions=3)
            rows = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for n in range(3)]
            first = {**fetch_values("t", 0), "topics": [{"topic": "t", "partitions": rows}], "session_epoch": 0}
            session_id = (await client.ask(ApiKey.FETCH, 12, first))["session_id"]
            size, ends = len(batch(500)), [0, 0, 0]
            for turn, numbers in enumerate([(0, 1), (2, 2), (1, 0, 1)]):
                asked = [{**rows[n], "fetch_offset": ends[n]} for n in range(3)] if turn else []
                topics = [{"topic": "t", "partitions": asked}] if asked else []
                wanted = {"max_wait": 600_000, "min_bytes": len(numbers) * size, "topics": topics}
                more = {**wanted, "session_id": session_id, "session_epoch": turn + 1}
                client.send(ApiKey.FETCH, 12, {**fetch_values("t", 0), **more})
                answer = asyncio.ensure_future(client.receive(ApiKey.FETCH, 12))
                for number in numbers:
                    await other.ask(ApiKey.METADATA, 12, {"topics": []})
                    assert not answer.done()
                    ends[number] = (await other.produce("t", batch(500), partition=number))["base_offset"] + 1
                found = {
                    row["partition_index"] for row in (await asyncio.wait_for(answer, 30))["responses"][0]["partitions"]
                }
                assert found == set(numbers), turn
            assert sum(len(session.waiting) for session in node.sessions) == 0
            client.close()
            other.close()

    stub.run(test())
