"""Facts of a cluster for a plan of moves: its brokers, and the places and sizes of partitions."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla.cli import wire
from ottla.cli.cluster.members import members
from ottla.cli.exits import CommandFailed
from ottla.client.move_board import Broker, Partition
from ottla.protocol.messages import ApiKey

Key = tuple[str, int]


@dataclass(frozen=True)
class Facts:
    brokers: list[Broker]
    addresses: Mapping[int, str]
    partitions: list[Partition]
    in_sync: Mapping[Key, tuple[int, ...]]
    leaders: Mapping[Key, int]

    @property
    def bootstrap(self) -> str:
        """Every broker that is known: the one that was named first may go away."""
        return ",".join(self.addresses.values())

    def broker(self, broker_id: int) -> Broker:
        """Raises CommandFailed for one that is not there."""
        for each in self.brokers:
            if each.id == broker_id:
                return each
        known = ", ".join(str(each.id) for each in self.brokers)
        raise CommandFailed(f"broker {broker_id} is not running: running are {known}")


def facts(bootstrap: str, *, sample_s: float = 0.0) -> Facts:
    """Collect the facts of all topics; with `sample_s` also the growth rates of the logs, measured over that time.
    Raises CommandFailed."""
    running = members(bootstrap).running
    answer = wire.ask(bootstrap, ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
    brokers = [Broker(each.id, each.rack) for each in running]
    addresses = {each.id: each.address for each in running}
    rows = {
        (topic["name"], part["partition_index"]): part for topic in answer["topics"] for part in topic["partitions"]
    }
    sizes = _sizes(addresses)
    rates: dict[Key, float] = {}
    if sample_s > 0:
        began = time.monotonic()
        time.sleep(sample_s)
        later = _sizes(addresses)
        passed_s = time.monotonic() - began
        rates = {key: max(0, later.get(key, 0) - size) / passed_s for key, size in sizes.items()}
        sizes = later
    return Facts(
        brokers,
        addresses,
        [
            Partition(
                topic,
                number,
                tuple(part["replica_nodes"]),
                sizes.get((topic, number), 0),
                rates.get((topic, number), 0.0),
            )
            for (topic, number), part in sorted(rows.items())
        ],
        {key: tuple(part["isr_nodes"]) for key, part in rows.items()},
        {key: part["leader_id"] for key, part in rows.items()},
    )


def _sizes(addresses: Mapping[int, str]) -> dict[Key, int]:
    """Bytes of each partition: those of its largest replica."""
    found: dict[Key, int] = {}
    for sizes in sizes_by_broker(addresses).values():
        for key, size in sizes.items():
            found[key] = max(found.get(key, 0), size)
    return found


def sizes_by_broker(addresses: Mapping[int, str], only: Collection[int] | None = None) -> dict[int, dict[Key, int]]:
    """Bytes stored by each broker; a broker that does not answer is left out."""
    found: dict[int, dict[Key, int]] = {}
    for broker, address in addresses.items():
        if only is not None and broker not in only:
            continue
        try:
            directories = wire.log_directories(address)
        except CommandFailed:
            continue
        found[broker] = {key: size for each in directories for key, size in each["partitions"].items()}
    return found
