"""A leader knows the same of a follower whose session looks at changes as of one whose session looks at everything.

Two nodes have the same life: one is asked by a session as it is, the other by one that is told to look at everything.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.image import PartitionRegistration
from ottla.protocol.messages import ApiKey
from ottla.replication.partition import Partition
from ottla.replication.record_deletion import delete_records, low_watermark, wait_for_deletion
from ottla.server.node import Node
from tests.unit.server import stub
from tests.unit.server.node import Client, batch, fetch_values, running

TURNS = 300
TOPICS = ("a", "b")
PARTITIONS = 5
ME, FOLLOWER, OTHER = 1, 2, 3


class Side:
    """A leader, and the follower that asks it."""

    def __init__(self, node: Node, follower: Client, client: Client) -> None:
        self.node, self.follower, self.client = node, follower, client
        self.session_id = self.epoch = 0
        self.asked_ms: list[int] = []
        """By the loop's clock, when each turn's request was sent."""
        self.answered_ms = 0
        self.caught_up: list[Any] = []
        """The in-sync sets that the controller would be asked for."""

    def partition(self, topic: str, number: int) -> Partition:
        return self.node.replicas.by_name[topic][number]

    async def produce(self, topic: str, number: int) -> None:
        await self.client.produce(topic, batch(), partition=number, acks=1)

    def decide(self, topic: str, number: int, isr: tuple[int, ...], leader: int, *, new_epoch: bool) -> None:
        partition = self.partition(topic, number)
        made_up = PartitionRegistration(
            (ME, FOLLOWER, OTHER), isr, leader, partition.leader_epoch + new_epoch, partition.partition_epoch + 1, ()
        )
        if partition.update(made_up):
            partition.wake()

    async def ask(self, asked: dict[str, Any]) -> Any:
        """One request of the follower, in a millisecond of its own."""
        loop = asyncio.get_running_loop()
        passed = asyncio.Event()
        loop.call_at((self.answered_ms + 2) / 1000, passed.set)
        await passed.wait()
        self.asked_ms.append(int(loop.time() * 1000))
        more = {"session_id": self.session_id, "session_epoch": self.epoch, "replica_id": FOLLOWER}
        answer = await self.follower.ask(ApiKey.FETCH, 12, {**fetch_values("a", 0), **asked, **more})
        self.answered_ms = int(loop.time() * 1000)
        self.session_id, self.epoch = answer["session_id"] or self.session_id, self.epoch + 1
        return {**answer, "session_id": 0}

    def known(self) -> dict[Any, Any]:
        """All that each partition knows of the follower, with turns for times."""
        known = {}
        for partition in self.node.replicas:
            replica = partition.others.get(FOLLOWER)
            if replica is not None:
                turns = [bisect_right(self.asked_ms, time) for time in (replica.caught_up_ms, replica.fetched_ms)]
                ends = replica.end_offset, replica.fetched_at_end, replica.log_start_offset
                log = partition.log
                mine = log.high_watermark, partition.isr, partition.sole_in_sync, low_watermark(partition)
                known[partition.topic_partition] = (turns, ends, mine)
        return known


class Life:
    def __init__(self, sides: list[Side], seed: int) -> None:
        self.sides = sides
        self.random = Random(seed)
        self.done: Counter[str] = Counter()
        self.offsets: dict[tuple[str, int], int] = {}
        """Log ends of the follower."""
        self.spared = 0

    async def event(self) -> None:
        happens = self.random.choices(
            ["append", "trim", "shrink", "grow", "elect", "lose", "other", "wait", "truncate", "wake"],
            [30, 3, 4, 8, 3, 1, 20, 3, 2, 1],
        )[0]
        topic, number = self.random.choice(TOPICS), self.random.randrange(PARTITIONS)
        partition = self.sides[0].partition(topic, number)
        if happens not in ("elect", "lose", "wake") and not partition.is_leader:
            return
        where = self.random.random()
        for side in self.sides:
            partition = side.partition(topic, number)
            log = partition.log
            if happens == "append":
                await side.produce(topic, number)
            elif happens == "trim":
                delete_records(partition, int(where * (log.high_watermark + 1)))
            elif happens == "shrink":
                side.decide(topic, number, (ME, OTHER), ME, new_epoch=False)
            elif happens == "grow":
                side.decide(topic, number, (ME, OTHER, FOLLOWER), ME, new_epoch=False)
            elif happens in ("elect", "lose"):
                side.decide(topic, number, (ME, OTHER, FOLLOWER), ME if happens == "elect" else OTHER, new_epoch=True)
            elif happens == "other" and partition.others:
                partition.on_follower_fetch(OTHER, log.log_end_offset, -1, side.asked_ms[-1] if side.asked_ms else 0)
            elif happens == "wait":
                wait_for_deletion(partition, log.log_start_offset + 1, lambda error: None)
            elif happens == "truncate":
                partition.withdraw_isr()
            elif happens == "wake":
                partition.wake()
        self.done[happens] += 1

    def request(self) -> dict[str, Any]:
        """The follower has got what it was sent, or some of it, and names those partitions."""
        rows: dict[str, list[dict[str, int]]] = {}
        is_first = not self.sides[0].epoch
        for topic in TOPICS:
            for number in range(PARTITIONS):
                partition = self.sides[0].partition(topic, number)
                end = partition.log.log_end_offset
                have = self.offsets.get((topic, number), 0)
                luck = self.random.random()
                offset = end if luck < 0.35 else self.random.randint(min(have, end), end) if luck < 0.45 else have
                if offset != have or is_first or luck > 0.97:
                    self.offsets[topic, number] = offset
                    epoch = self.random.choice([-1, -1, partition.leader_epoch])
                    row = {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                    start = min(partition.log.log_start_offset, offset)
                    rows.setdefault(topic, []).append({**row, "current_leader_epoch": epoch, "log_start_offset": start})
        return {"topics": [{"topic": topic, "partitions": some} for topic, some in rows.items()]}

    async def turn(self) -> None:
        asked = self.request()
        answers = []
        for side in self.sides:
            answers.append(await side.ask(asked))
            (session,) = [each for each in side.node.sessions if each.id == side.session_id]
            if side is self.sides[1]:
                for cached in session.partitions.values():
                    cached.look_again()
            else:
                self.spared += sum(cached.watched is not None for cached in session.partitions.values())
        assert answers[0] == answers[1], (dict(self.done), asked)
        assert self.sides[0].known() == self.sides[1].known(), dict(self.done)
        assert self.sides[0].caught_up == self.sides[1].caught_up, dict(self.done)


@pytest.mark.parametrize("seed", range(2))
def test_a_leader_knows_a_follower_as_if_every_request_named_every_partition(tmp_path: Path, seed: int) -> None:
    """Log ends, when it was caught up, high watermarks, and that it is to join the in-sync set: after every request."""

    async def test() -> None:
        async with running(str(tmp_path / "1")) as first, running(str(tmp_path / "2")) as second:
            sides = [Side(node, await Client.connect(node), await Client.connect(node)) for node in (first, second)]
            for side in sides:
                for topic in TOPICS:
                    await side.client.create(topic, partitions=PARTITIONS)
                for partition in side.node.replicas:
                    asks, partition.live_epoch = side.caught_up, lambda node_id: 0
                    partition.on_caught_up = lambda each, isr, asks=asks: asks.append((each.topic_partition, isr))
                    topic, number = partition.topic_partition
                    side.decide(topic, number, (ME, OTHER, FOLLOWER), ME, new_epoch=True)
            life = Life(sides, seed)
            for _ in range(TURNS):
                for _ in range(life.random.randrange(4)):
                    await life.event()
                await life.turn()
            assert len(life.done) == 10 and life.done["append"] > 50, life.done
            assert life.spared > TURNS, life.spared
            assert sides[0].caught_up
            for side in sides:
                side.follower.close()
                side.client.close()

    stub.run(test())


def test_a_follower_of_an_earlier_epoch_is_refused_though_nothing_else_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-903: its requests name no partition, and none of these has told its session of a change."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            side = Side(node, await Client.connect(node), await Client.connect(node))
            await side.client.create("t", partitions=3)
            live = 5
            monkeypatch.setattr(node.replicas, "live_epoch", lambda node_id: live)
            for partition in node.replicas:
                partition.live_epoch = lambda node_id: live
                side.decide("t", partition.topic_partition.partition, (ME, FOLLOWER), ME, new_epoch=True)
            rows = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for number in range(3)]
            topics = [{"topic_id": node.replicas.ids["t"], "partitions": rows}]
            state = {"replica_id": FOLLOWER, "replica_epoch": 5}
            found = []
            for turn in range(5):
                named = {"topics": topics if turn == 0 else [], "replica_state": state}
                session = {"session_id": side.session_id, "session_epoch": turn}
                answer = await side.follower.ask(ApiKey.FETCH, 16, {**fetch_values("t", 0), **named, **session})
                side.session_id = answer["session_id"]
                found.append([row["error_code"] for topic in answer["responses"] for row in topic["partitions"]])
                if turn == 2:
                    assert all(partition.end_sessions for partition in node.replicas)
                    live = 6
            assert found == [[0] * 3, [], [], *2 * [[ErrorCode.not_leader_or_follower] * 3]]
            side.follower.close()
            side.client.close()

    stub.run(test())
