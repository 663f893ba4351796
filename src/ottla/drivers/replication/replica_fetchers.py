"""Fetchers by leader: they come and go with the partitions (`ReplicaFetcherManager`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from ottla.drivers.nodes.node_client import NodeClient
from ottla.drivers.replication.replica_fetcher import FetcherHost, ReplicaFetcher, key_of
from ottla.model import NodeId, TopicPartition
from ottla.network import Address
from ottla.replication.follower import Followed
from ottla.replication.partition import Partition
from ottla.replication.session_request import PartitionKey

_Number = tuple[NodeId, int]
"""Leader and number of the fetcher."""


class ReplicaFetchers:
    """All methods belong to the event loop's thread."""

    def __init__(
        self, host: FetcherHost, new_client: Callable[[NodeId, int], NodeClient], per_leader: Callable[[], int]
    ) -> None:
        """`per_leader` gives `num.replica.fetchers`."""
        self._host = host
        self._new_client = new_client
        self._per_leader = per_leader
        self._fetchers: dict[_Number, ReplicaFetcher] = {}
        self._of: dict[PartitionKey, ReplicaFetcher] = {}
        self._stopping: dict[asyncio.Task[None], None] = {}

    def __iter__(self) -> Iterator[ReplicaFetcher]:
        return iter(self._fetchers.values())

    def __len__(self) -> int:
        """Partitions that are followed."""
        return len(self._of)

    def lag(self) -> dict[TopicPartition, int]:
        """Committed records that the leaders had and this node did not, by their last answers."""
        return {followed.topic_partition: followed.lag for fetcher in self for followed in fetcher.partitions.values()}

    def follow(self, partition: Partition, address: Address) -> None:
        """Fetch a partition from its leader, in its leader epoch, from now on."""
        followed = Followed(partition, partition.leader_id, partition.leader_epoch)
        key = key_of(followed)
        number = partition.leader_id, (partition.topic_id.int + key[1]) % self._per_leader()
        fetcher = self._fetchers.get(number)
        if fetcher is not None and fetcher.address != address:
            self._move(number, fetcher, address)
            fetcher = self._fetchers[number]
        if fetcher is None:
            fetcher = self._begin(number, address)
        before = self._of.get(key)
        if before is not None and before is not fetcher:
            self.leave(partition)
        self._of[key] = fetcher
        fetcher.add(followed)

    def leave(self, partition: Partition) -> None:
        """Fetch it no more."""
        key = partition.topic_id, partition.topic_partition.partition
        fetcher = self._of.pop(key, None)
        if fetcher is not None:
            fetcher.remove(key)

    def moved(self, leader_id: NodeId, address: Address) -> None:
        """A leader listens elsewhere now."""
        for number, fetcher in list(self._fetchers.items()):
            if fetcher.leader_id == leader_id and fetcher.address != address:
                self._move(number, fetcher, address)

    def ended(self, leader_id: NodeId) -> None:
        """A leader was fenced, is gone or has started again: fetches that wait for it are sent again."""
        for fetcher in self._fetchers.values():
            if fetcher.leader_id == leader_id:
                fetcher.leader_ended()

    def stop_idle(self) -> None:
        """End fetchers that nothing is fetched with any more."""
        for number, fetcher in list(self._fetchers.items()):
            if not fetcher.partitions:
                del self._fetchers[number]
                self._end(fetcher)

    async def stop(self) -> None:
        for fetcher in self._fetchers.values():
            self._end(fetcher)
        self._fetchers.clear()
        self._of.clear()
        if self._stopping:
            await asyncio.wait(list(self._stopping))

    def _begin(self, number: _Number, address: Address) -> ReplicaFetcher:
        fetcher = ReplicaFetcher(self._host, number[0], address, self._new_client(*number))
        self._fetchers[number] = fetcher
        fetcher.start()
        return fetcher

    def _move(self, number: _Number, fetcher: ReplicaFetcher, address: Address) -> None:
        self._end(fetcher)
        successor = self._begin(number, address)
        for key, followed in fetcher.partitions.items():
            followed.asked = None
            successor.add(followed)
            self._of[key] = successor

    def _end(self, fetcher: ReplicaFetcher) -> None:
        task = asyncio.get_running_loop().create_task(fetcher.stop())
        self._stopping[task] = None
        task.add_done_callback(self._stopping.pop)
