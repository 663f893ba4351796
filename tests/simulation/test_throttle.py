"""Moves of replicas under a throttle, bytes against virtual time (KIP-73)."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.simulation.world import EPOCH_MS
from tests.simulation.test_three_nodes import NODES, Cluster

BROKER, TOPIC = 4, 2
RECORD_BYTES = 100_000
RECORDS = 40
RATE = 400_000
FULL_S = RECORDS * RECORD_BYTES / RATE


class Moving(Cluster):
    async def fill(self) -> None:
        """One partition of node 1 with some megabytes."""
        topic = {
            "name": "t",
            "num_partitions": -1,
            "replication_factor": -1,
            "configs": [],
            "assignments": [{"partition_index": 0, "broker_ids": [1]}],
        }
        values = {"topics": [topic], "timeout": 30_000, "validate_only": False}
        answer = await self.ask(NODES[0], ApiKey.CREATE_TOPICS, 7, values)
        assert not answer["topics"][0]["error_code"]
        await self.until(lambda: all(each.image.topic("t") is not None for each in self.nodes()))
        for number in range(RECORDS):
            batch = bytes(build_batch([SimpleRecord(EPOCH_MS, None, bytes([number]) * RECORD_BYTES)]))
            data = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
            values = {"transactional_id": None, "acks": -1, "timeout": 1500, "topic_data": data}
            answer = await self.ask(NODES[0], ApiKey.PRODUCE, 9, values)
            assert not answer["responses"][0]["partition_responses"][0]["error_code"]

    async def configure(self, resources: dict[tuple[int, str], dict[str, str]]) -> None:
        """A broker's own through itself, as clients do."""
        for (kind, name), configs in resources.items():
            changes = [{"name": key, "config_operation": 0, "value": value} for key, value in configs.items()]
            row = {"resource_type": kind, "resource_name": name, "configs": changes}
            host = NODES[int(name) - 1] if kind == BROKER else NODES[0]
            values = {"resources": [row], "validate_only": False}
            answer = await self.ask(host, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values)
            assert [each["error_code"] for each in answer["responses"]] == [ErrorCode.none]

    async def move(self) -> float:
        """To node 2; how many seconds it took."""
        partition = {"partition_index": 0, "replicas": [2]}
        values = {"timeout": 30_000, "topics": [{"name": "t", "partitions": [partition]}]}
        answer = await self.ask(NODES[0], ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, values)
        assert not answer["error_code"] and not answer["responses"][0]["partitions"][0]["error_code"]
        began_s = self.world.time.now_s

        def is_there() -> bool:
            topic = self.nodes()[0].image.topic("t")
            assert topic is not None
            return topic.partitions[0].replicas == (2,)

        await self.until(is_there, 60)
        return self.world.time.now_s - began_s


def throttle(*sides: str) -> dict[tuple[int, str], dict[str, str]]:
    rates = {f"{side}.replication.throttled.rate": str(RATE) for side in sides}
    replicas = {"leader": "0:1", "follower": "0:2"}
    lists = {f"{side}.replication.throttled.replicas": replicas[side] for side in sides}
    return {**{(BROKER, str(node_id)): rates for node_id in (1, 2, 3)}, (TOPIC, "t"): lists}


@pytest.mark.parametrize("sides", [("leader",), ("follower",), ("leader", "follower")])
def test_a_move_takes_as_long_as_its_throttle_says(sides: tuple[str, ...]) -> None:
    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Moving)
        await cluster.fill()
        await cluster.configure(throttle(*sides))
        assert FULL_S * 0.6 < await cluster.move() < FULL_S * 1.6
        follower = cluster.machines[1].node
        assert follower is not None and follower.replication is not None
        assert follower.metrics.replication.bytes_in > RECORDS * RECORD_BYTES
        for side in sides:
            node = cluster.machines[0 if side == "leader" else 1].node
            assert node is not None and node.replication is not None
            found = getattr(node.replication, f"{side}_throttle").bytes_per_second()
            assert RATE / 3 < found < RATE * 1.5

    Moving(1).run(work)


def test_without_a_throttle_it_is_over_at_once() -> None:
    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Moving)
        await cluster.fill()
        assert await cluster.move() < FULL_S / 2

    Moving(1).run(work)
