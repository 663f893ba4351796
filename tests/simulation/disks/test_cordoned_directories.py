"""Log directories that are to get no new partitions (KIP-1066)."""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.simulation.world import DIRECTORY, Machine
from tests.simulation.disks.test_failed_directory import PARTITIONS, SPARE, TOPIC, Loaded
from tests.simulation.disks.test_log_mover import ask, move
from tests.simulation.test_three_nodes import NODES, Cluster


async def cordon(cluster: Cluster, machine: Machine, value: str) -> int:
    change = {"name": "cordoned.log.dirs", "config_operation": 0, "value": value}
    row = {"resource_type": 4, "resource_name": str(machine.node_id), "configs": [change]}
    values = {"resources": [row], "validate_only": False}
    answer = await ask(cluster, machine.name, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values)
    return int(answer["responses"][0]["error_code"])


def known(cluster: Cluster, machine: Machine) -> int:
    """How many cordoned directories of a node the metadata names."""
    return len(cluster.nodes()[0].image.brokers[machine.node_id].cordoned_log_dirs)


def test_a_cordoned_directory_and_a_cordoned_broker() -> None:
    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        machine = cluster.machines[2]
        assert await cordon(cluster, machine, "/nowhere") == ErrorCode.invalid_request
        assert await cordon(cluster, machine, SPARE) == ErrorCode.none
        await cluster.until(lambda: known(cluster, machine) == 1)
        await cluster.load()
        assert cluster.held_in(machine, SPARE) == []
        assert cluster.held_in(machine, DIRECTORY) == list(range(PARTITIONS))
        assert await move(cluster, machine, SPARE, [0]) == [ErrorCode.invalid_replica_assignment]
        assert await cordon(cluster, machine, "*") == ErrorCode.none
        await cluster.until(lambda: known(cluster, machine) == 2)
        assert await cluster.create("more", NODES[0], 8, 2) == ErrorCode.none
        await cluster.until(lambda: cluster.nodes()[0].image.topic("more") is not None)
        topic = cluster.nodes()[0].image.topic("more")
        assert topic is not None
        assert all(set(each.replicas) == {1, 2} for each in topic.partitions.values())
        assert await cluster.create("all", NODES[0], 1, 3) == ErrorCode.invalid_replication_factor
        machine.crash(power_loss=False)  # the setting outlives it
        machine.start()
        await cluster.until(cluster.is_settled)
        assert known(cluster, machine) == 2
        assert await cordon(cluster, machine, "") == ErrorCode.none
        await cluster.until(lambda: known(cluster, machine) == 0)
        assert await cluster.create("all", NODES[0], 1, 3) == ErrorCode.none
        assert cluster.held_in(machine, DIRECTORY) == list(range(PARTITIONS)), TOPIC
        await cluster.more_is_acknowledged()
        await cluster.end()

    Loaded(8).run(work)
