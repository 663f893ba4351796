"""`python -m tests.conformance.migration [PARTITIONS]`: time and memory of the import of a large cluster.

Fills a ZooKeeper with topics of 100 partitions, three replicas each, and runs the command's `--plan` and `--execute`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from uuid import UUID

from ottla.metadata import features
from ottla.migration.rollback import batches, changes
from ottla.network import SystemNetwork
from ottla.protocol.schemas import records as r
from ottla.znodes.cluster import CONTROLLER_EPOCH
from ottla.znodes.reading import image_of
from ottla.znodes.tree import Znode
from ottla.znodes.writing import WriteOptions, Writer
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.messages import Create
from peers.zookeeper import ZooKeeperPeer

EACH = 100


def _tree(partitions: int) -> dict[str, Znode]:
    records: list[object] = [r.FeatureLevelRecord(features.METADATA_VERSION, features.METADATA_VERSION_4_4)]
    for number in range(partitions // EACH):
        topic_id = UUID(int=(1 << 100) + number)
        records.append(r.TopicRecord(f"topic-{number:06}", topic_id))
        for each in range(EACH):
            brokers = tuple((number + each + at) % 9 + 1 for at in range(3))
            records.append(r.PartitionRecord(each, topic_id, brokers, brokers, leader=brokers[0], leader_epoch=3))
    image = image_of(iter(records), "a-large-cluster")
    return {**Writer(image, WriteOptions(True, controller_epoch=1)).write(), CONTROLLER_EPOCH: Znode(b"1")}


async def _fill(connect: str, partitions: int) -> None:
    parents = ("/brokers", "/brokers/topics", "/config", "/cluster")
    ops = list(changes({path: Znode() for path in parents}, _tree(partitions)))
    async with ZooKeeper(SystemNetwork(), connect, random=random.Random(1), session_timeout_ms=60_000) as client:
        await client.multi([Create(path) for path in parents])
        for batch in batches(ops):
            await client.multi(batch)


def _measured(command: list[str]) -> tuple[float, float, int]:
    """Seconds by the clock and of the processor, and the largest memory in MiB."""
    began = time.perf_counter()
    pid = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10


def main(partitions: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        peer = ZooKeeperPeer(Path(name) / "zookeeper", flags=("-Xmx2g",), settings={"tickTime": "3000"})
        peer.start()
        try:
            asyncio.run(_fill(peer.connect, partitions))
            config = Path(name) / "node.properties"
            config.write_text(
                f"process.roles=broker,controller\nnode.id=1\nlog.dirs={name}/data\nlisteners=PLAINTEXT://127.0.0.1:19092,"
                "CONTROLLER://127.0.0.1:19093\ncontroller.listener.names=CONTROLLER\n"
                "controller.quorum.voters=1@127.0.0.1:19093,2@127.0.0.1:19094,3@127.0.0.1:19095\n"
            )
            own = [sys.executable, "-m", "ottla.cli.main", "migrate", "zookeeper", "--connect", peer.connect]
            print("partitions  command    seconds  of the processor  memory (MiB)")
            for mode in ("--plan", "--execute"):
                clock, processor, memory = _measured([*own, mode, "--config", str(config)])
                print(f"{partitions:10,}  {mode:9}  {clock:7.1f}  {processor:16.1f}  {memory:12,}")
            (snapshot,) = Path(name, "data", "__cluster_metadata-0").glob("*.checkpoint")
            print(f"snapshot: {snapshot.stat().st_size:,} bytes")
        finally:
            peer.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
