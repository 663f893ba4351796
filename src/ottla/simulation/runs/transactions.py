"""A run of transactions: writers and copiers of old and new clients, pairs of them with one transactional id, on a
cluster whose coordinators and leaders are lost in the middle of them.

Everything is fsynced and no disk is replaced, so that nothing of what a client was told may be untrue in the end:
read_committed shows neither aborted nor unfinished transactions, each is there whole or not at all, nothing committed
is lost or there twice, offsets are committed with the output, and once nothing breaks any more every partition becomes
stable.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TypeVar

from ottla.coordinator.partitioning import partition_for
from ottla.model import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.simulation.checks.history import Key
from ottla.simulation.checks.transaction_history import TransactionHistory
from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.copiers import COPIERS, COPIES, LISTS, PARTITIONS, CommittedReader, Copier, Writer
from ottla.simulation.clients.groups import log_of
from ottla.simulation.clients.transactional import TIMEOUT_MS, Transactional
from ottla.simulation.faults.aimed_faults import AimedNemesis
from ottla.simulation.runs.quorum import AimedRun, Plan
from ottla.simulation.world import LOG_PARTITIONS

TRANSACTIONS = "transactions"

T = TypeVar("T", bound=Transactional)

STABLE_SECONDS_MAX = 20.0
"""After the last client is done, every partition is stable within this: a transaction that nobody ends is aborted
`TIMEOUT_MS` after it began, and markers are written again until they are there."""

assert TIMEOUT_MS < STABLE_SECONDS_MAX * 1000

ALWAYS = (
    "transactional producers", "transactional writes", "transactional offset commits", "transactions committed",
    "transactions aborted", "transactions checked", "transactions over several partitions", "committed reads",
    "copies checked", "fault",
)  # fmt: skip


class TransactionNemesis(AimedNemesis):
    """Aims at nodes that coordinate a transaction or hold its records more often than at others."""

    what = "transactions"

    def aim(self) -> Key:
        owner = self.random.choice(("writer-1", "writer-2", "copier-0", "copier-1"))
        keys = [
            (TRANSACTION_TOPIC, partition_for(owner, LOG_PARTITIONS)),
            (TRANSACTION_TOPIC, partition_for(owner, LOG_PARTITIONS)),
            log_of(COPIERS),
            (LISTS, self.random.randrange(PARTITIONS)),
        ]
        return self.random.choice(keys)


class TransactionRun(AimedRun):
    nemesis = TransactionNemesis
    always = ALWAYS
    topics = (LISTS, COPIES)
    watched = (LISTS, COPIES)

    def __init__(self, seed: int, kind: str = TRANSACTIONS, plan: Plan | None = None) -> None:
        super().__init__(seed, kind, plan, fsynced=True)
        self.transaction_history = TransactionHistory(self.world)

    def more_settings(self) -> dict[str, str]:
        return {
            "transaction.state.log.num.partitions": str(LOG_PARTITIONS),
            "transaction.state.log.replication.factor": str(self.plan.replicas),
            "transaction.state.log.min.isr": str(self.plan.min_isr),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        }

    def make_clients(self) -> list[Client]:
        world, history, servers, transaction_history = self.world, self.history, self.servers, self.transaction_history
        writers = [
            Writer(world, history, f"w{version}{each}", servers, transaction_history, f"writer-{version}", version)
            for version in (1, 2)
            for each in "ab"
        ]
        copiers = [
            Copier(
                world,
                history,
                f"copier{number}{each}",
                servers,
                transaction_history,
                f"copier-{number}",
                version,
                number,
            )
            for number, version in enumerate((1, 2))
            for each in "ab"
        ]
        return [*writers, *copiers, *(self.reader(f"r{number}", key) for number, key in enumerate(self.lists()))]

    def lists(self) -> list[Key]:
        return [(topic, number) for topic in (LISTS, COPIES) for number in range(PARTITIONS)]

    def reader(self, name: str, key: Key) -> CommittedReader:
        return CommittedReader(self.world, self.history, name, self.servers, self.transaction_history, key)

    async def check(self) -> None:
        world = self.world
        await self.settle()
        await self._asking(
            Writer(world, self.history, "leaver", self.servers, self.transaction_history, "left", 2)
        ).abandon()
        await self._become_stable()
        found = {}
        for key in self.lists():
            last = self.reader(f"last-{key[0]}-{key[1]}", key)
            last.stopping = True
            found[key] = await self._patiently(last.read_all, key)
        self.transaction_history.check(found)
        offsets = {(LISTS, number): await self._committed(number) for number in range(PARTITIONS)}
        copied = [value for key in found if key[0] == COPIES for value in found[key].values()]
        self.transaction_history.check_copies({key: found[key] for key in offsets}, offsets, copied)

    async def _become_stable(self) -> None:
        """The last stable offset advances, also where nobody ends a transaction."""
        logs = [(topic, number) for topic in (OFFSETS_TOPIC, TRANSACTION_TOPIC) for number in range(LOG_PARTITIONS)]
        deadline_s = self.world.time.now_s + STABLE_SECONDS_MAX
        for key in (*self.lists(), *logs):
            reader = self.reader(f"stable-{key[0]}-{key[1]}", key)
            reader.stopping = True
            while what := await self._patiently(reader.unstable, key):
                if self.world.time.now_s > deadline_s:
                    self.world.violated(f"the last stable offset advances: {STABLE_SECONDS_MAX} s later still {what}")
                await asyncio.sleep(0.5)

    async def _committed(self, number: int) -> int:
        """How far a list is copied."""
        name, owner = f"asker{number}", f"copier-{number}"
        asker = Copier(self.world, self.history, name, self.servers, self.transaction_history, owner, 2, number)
        return await self._asking(asker).committed()

    def _asking(self, client: T) -> T:
        """One that does nothing by itself, and what it is asked to in this process."""
        client.stopping = True
        client.network = self._network(client.name)
        return client

    def counts(self) -> Counter[str]:
        return super().counts() + self.transaction_history.counts
