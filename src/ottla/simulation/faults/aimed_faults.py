"""Faults of the one broker that a run is about: who coordinates, or leads what matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.simulation.checks.history import Key
from ottla.simulation.clients.clients import Client
from ottla.simulation.faults.cluster_faults import ClusterNemesis
from ottla.simulation.world import Machine, World


class AimedNemesis(ClusterNemesis):
    """The leader of what `aim` says is lost more often than anybody else; no disk is replaced."""

    what: ClassVar[str]
    """What the run is about."""

    def __init__(
        self, world: World, clients: Sequence[Client], seconds: float, voters: Sequence[str], brokers: Sequence[str]
    ) -> None:
        super().__init__(world, clients, seconds, voters, brokers)
        self.faults = [each for each in self.faults if each != self._wipe]
        self.faults += [self._of_leader] * 10 + [self._kill_client] * 3

    def aim(self) -> Key:
        """A partition, at random."""
        raise NotImplementedError

    async def _of_leader(self) -> None:
        key = self.aim()
        leader = self._leader_of(key)
        if leader is None:
            return
        await self._lose(leader, f"which leads {key}")

    async def _lose(self, machine: Machine, which: str) -> None:
        self.machine = machine
        self._says(f"of {self.what}: {machine.name}, {which}")
        what = self.random.choice(
            (
                self._kill,
                self._kill_at_await,
                self._kill_at_await,
                self._power_at_await,
                self._kill_at_disk,
                self._pause,
                self._isolated,
                self._between_leaders,
            )
        )
        await what()

    async def _isolated(self) -> None:
        """Cut off from all other nodes; clients still reach it."""
        name = self.machine.name
        self._cut_between([name], [each for each in self.world.machines if each != name])
        await self._lasting(3)
        self.world.network.heal()

    async def _between_leaders(self) -> None:
        """Cut between it and one other broker, in both directions or one."""
        others = [each.name for each in self.brokers if each is not self.machine]
        if not others:
            return
        other, name = self.random.choice(others), self.machine.name
        ways = [(name, other), (other, name)]
        for source, target in self.random.choice((ways, ways[:1], ways[1:])):
            self.world.network.cut(source, target)
        await self._lasting(2)
        self.world.network.heal()
