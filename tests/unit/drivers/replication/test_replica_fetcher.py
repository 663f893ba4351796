"""A fetcher whose leader does not answer: when it asks again, and whom it tells."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from ottla.drivers.nodes.node_client import NodeClient
from ottla.drivers.replication.replica_fetcher import FetcherHost, FetcherSettings
from ottla.drivers.replication.replica_fetchers import ReplicaFetchers
from ottla.model import TopicPartition
from ottla.network import SystemNetwork
from ottla.protocol.messages import ApiKey
from ottla.replication.partition import Partition
from tests.unit.drivers.nodes.test_node_client import Held, peer_and_client, run

LEADER = 2


def followed() -> Partition:
    log = SimpleNamespace(
        safe_end_offset=5, log_end_offset=5, log_start_offset=0, latest_epoch=3, flush=lambda *_: None
    )
    partition = SimpleNamespace(
        log=log, leader_id=LEADER, leader_epoch=3, topic_id=UUID(int=1), topic_partition=TopicPartition("t", 0)
    )
    return cast(Partition, partition)


def test_a_leader_that_started_again_is_asked_again_though_no_reset_came() -> None:
    """Its former process cannot answer the fetch that waits. It is no reason to take the new one for lost."""

    async def body() -> None:
        async with peer_and_client() as (peer, _, address):
            peer.served.append((ApiKey.FETCH, 0, 17))
            lost: list[int] = []
            host: Any = FetcherHost(
                logs=cast(Any, SimpleNamespace()),
                clock=cast(Any, SimpleNamespace(now_ms=lambda: 0)),
                settings=lambda: FetcherSettings(1, 500, 1, 1000, 1000, 10, 30_000),
                broker_epoch=lambda: 1,
                traffic=cast(Any, SimpleNamespace(bytes_in=0)),
                throttle=cast(Any, SimpleNamespace(is_used_up=lambda: False)),
                on_lost=lost.append,
            )
            fetchers = ReplicaFetchers(
                host, lambda *_: NodeClient(SystemNetwork(), "test", random.Random(1)), lambda: 1
            )
            for number, (end, told) in enumerate([(None, []), ("another", []), ("its own", []), ("reset", [LEADER])]):
                peer.answer = held = Held(1)
                if end is None:
                    fetchers.follow(followed(), address)
                elif end == "another":
                    fetchers.ended(LEADER + 1)
                    continue
                elif end == "its own":
                    fetchers.ended(LEADER)
                else:
                    peer.writers[-1].close()
                await held.all_there.wait()
                assert lost == told, (number, end)
            assert peer.connections == 3
            await fetchers.stop()

    run(asyncio.wait_for(body(), 30))
