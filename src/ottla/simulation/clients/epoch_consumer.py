"""Simulated clients that look at leader epochs, as Kafka's do (KIP-320): a consumer, and one that looks up by time.

Each takes no metadata of an older epoch than it knows (`Metadata.updateLatestMetadata`), and names the newest in every
fetch and look-up. A leader of another epoch answers FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH then, and the client
asks for the leader again. So only the leader of the newest epoch can say that an offset is out of range or that nothing
is of a time or later, and no promise is kept if it does.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.simulation.checks.history import Key
from ottla.simulation.clients.clients import Client, Consumer
from ottla.simulation.clients.trimmer import Trimmer
from ottla.simulation.clients.wire import Disconnected, Wire

OTHER_EPOCH = frozenset({ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch})


class _FollowsEpochs(Client):
    key: Key
    newest = -1
    """The newest leader epoch that it has seen."""

    async def where(self) -> str:
        """Raises Disconnected where the broker that was asked knows an older epoch only, or no leader."""
        topic, number = self.key
        asked = {"topics": ({"name": topic, "topic_id": None},), "allow_auto_topic_creation": False}
        with closing(await Wire.connect(self.network, self.random.choice(self.servers))) as wire:
            response = await wire.ask(ApiKey.METADATA, 9, asked)
        hosts = {broker["node_id"]: str(broker["host"]) for broker in response["brokers"]}
        for each in response["topics"][0]["partitions"]:
            if each["partition_index"] == number and each["leader_id"] in hosts:
                if each["leader_epoch"] < self.newest:
                    self.world.counts["older metadata left out"] += 1
                    raise Disconnected(f"{wire.host} knows epoch {each['leader_epoch']}, not {self.newest}")
                self.newest = each["leader_epoch"]
                return hosts[each["leader_id"]]
        raise Disconnected(f"nobody leads {self.key}")

    def check_retriable(self, error: int, what: str) -> None:
        if error not in OTHER_EPOCH:
            super().check_retriable(error, what)
            return
        self.world.counts[f"error {ErrorCode(error).name}"] += 1
        self.note(f"{what}: {ErrorCode(error).name}")


class EpochConsumer(_FollowsEpochs, Consumer):
    def drop_state(self) -> None:
        super().drop_state()
        self.newest = -1

    async def fetch(self, wire: Wire, wait_s: float, epoch: int = -1, replica: int = -1) -> Any:
        return await super().fetch(wire, wait_s, self.newest if epoch < 0 and replica < 0 else epoch, replica)


class EpochTrimmer(_FollowsEpochs, Trimmer):
    """A new process keeps the newest epoch, as it keeps what it expects to find: seed 87 met a leader that had been cut
    off, and that found nothing of what the next one had acknowledged."""
