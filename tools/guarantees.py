"""What is lost and what is unavailable, measured: every way to ask for safety against every way to lose it.

Three brokers and three controllers of the real code, one producer, one partition with three replicas. The table of
`docs/reference/guarantees.md` is made of this by `python -m tools.guarantees_page`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from ottla.simulation.checks.history import ACKS_ALL
from ottla.simulation.clients.clients import Client, Consumer, Producer
from ottla.simulation.runs.quorum import QUORUM, Plan, QuorumRun
from ottla.simulation.runs.single import QUIET_SECONDS_MAX
from ottla.simulation.world import Machine, Violation
from ottla.testing.loop import Stuck

BEFORE_SECONDS = 3.0
FAULT_SECONDS = 8.0
"""For how long what breaks stays so, unless it comes back by itself after a second."""


class Configuration(NamedTuple):
    acks: int
    min_isr: int
    is_unclean: bool
    is_flushed: bool

    def __str__(self) -> str:
        acks = "all" if self.acks == ACKS_ALL else self.acks
        return (
            f"acks={acks}, min.insync.replicas={self.min_isr}, unclean={str(self.is_unclean).lower()}, "
            f"flush.messages={'1' if self.is_flushed else 'default'}"
        )


def configurations() -> Iterator[Configuration]:
    """min.insync.replicas acts for acks=all only."""
    for acks, min_isr in ((0, 1), (1, 1), (ACKS_ALL, 1), (ACKS_ALL, 2)):
        for is_flushed in (False, True):
            for is_unclean in (False, True):
                yield Configuration(acks, min_isr, is_unclean, is_flushed)


class Measured(NamedTuple):
    """Measurements of one run."""

    acknowledged: int
    lost: int
    unavailable_s: float
    """The longest time without an acknowledgement; with acks=0 there is none to miss."""
    failure: str
    """A violated guarantee; there should be none."""


class _Run(QuorumRun):
    """One configuration and one event."""

    seconds_max = 60 + 2 * QUIET_SECONDS_MAX

    def __init__(self, seed: int, configuration: Configuration, event: str) -> None:
        self.event = event
        plan = Plan(3, 3, False, 3, configuration.min_isr, configuration.acks, configuration.is_unclean, 0)
        super().__init__(seed, QUORUM, plan, fsynced=configuration.is_flushed)
        for machine in self.world.machines.values():
            machine.interleaving = machine.disk.cold_probability = 0.0
        self.keys = self.keys[:1]

    def make_clients(self) -> list[Client]:
        producer = Producer(
            self.world,
            self.history,
            "producer",
            self.servers,
            self.keys[0],
            idempotent=False,
            in_flight=2,
            acks=self.plan.acks,
        )
        return [producer]

    async def main(self) -> None:
        await self.set_up()
        self.clients = self.make_clients()
        await asyncio.sleep(BEFORE_SECONDS)
        await EVENTS[self.event](self)
        self.world.network.heal()
        for machine in self.world.machines.values():
            if machine.loop is not None:
                machine.loop.resume()
            machine.comes_back()
        await asyncio.sleep(2)
        for client in self.clients:
            client.stopping = True
        while not all(client.done for client in self.clients):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        await asyncio.sleep(5)
        last = Consumer(self.world, self.history, "last", self.servers, self.keys[0])
        last.stopping = True
        self.history.check_final(self.keys[0], await self._patiently(last.read_all, self.keys[0]))

    def leader(self) -> Machine:
        registration = None if self.invariants.image is None else self.invariants.image.partition(*self.keys[0])
        wanted = -1 if registration is None else registration.leader
        found = [each for each in self.brokers() if each.node_id == wanted]
        return found[0] if found else self.brokers()[0]

    def brokers(self) -> list[Machine]:
        return [self.world.machines[name] for name in self.servers]

    def followers(self) -> list[Machine]:
        leader = self.leader()
        return [each for each in self.brokers() if each is not leader]


def _dies(machine: Machine, *, power_loss: bool, comes_back: bool = True) -> None:
    machine.wanted = comes_back
    if machine.loop is not None:
        machine.crash(power_loss=power_loss)


async def _kill(run: _Run) -> None:
    _dies(run.leader(), power_loss=False)
    await asyncio.sleep(FAULT_SECONDS)


async def _power(run: _Run) -> None:
    _dies(run.leader(), power_loss=True)
    await asyncio.sleep(FAULT_SECONDS)


async def _power_of_all(run: _Run) -> None:
    for machine in run.brokers():
        _dies(machine, power_loss=True)
    await asyncio.sleep(FAULT_SECONDS)


async def _cut_off(run: _Run) -> None:
    """Cut off from all other nodes; clients still reach it."""
    leader = run.leader()
    for other in run.world.machines:
        run.world.network.cut(leader.name, other)
        run.world.network.cut(other, leader.name)
    await asyncio.sleep(FAULT_SECONDS)


async def _pause(run: _Run) -> None:
    leader = run.leader()
    if leader.loop is not None:
        leader.loop.pause()
    await asyncio.sleep(FAULT_SECONDS)


async def _two_lost(run: _Run) -> None:
    """Both followers are lost for a while."""
    for machine in run.followers():
        _dies(machine, power_loss=False, comes_back=False)
    await asyncio.sleep(FAULT_SECONDS)


async def _one_after_the_other(run: _Run) -> None:
    """Both followers are lost, then the leader; then the followers come back, and last the leader."""
    leader, followers = run.leader(), run.followers()
    for machine in followers:
        _dies(machine, power_loss=False, comes_back=False)
    await asyncio.sleep(FAULT_SECONDS / 2)
    _dies(leader, power_loss=False, comes_back=False)
    await asyncio.sleep(1)
    for machine in followers:
        machine.comes_back()
    await asyncio.sleep(FAULT_SECONDS)


EVENTS: dict[str, Callable[[_Run], Awaitable[None]]] = {
    "kill -9 of the leader": _kill,
    "power loss of the leader": _power,
    "power loss of all brokers": _power_of_all,
    "leader cut off from the others": _cut_off,
    "leader paused": _pause,
    "both followers lost": _two_lost,
    "followers lost, then the leader; followers back": _one_after_the_other,
}


MEANING: dict[str, str] = {
    "kill -9 of the leader": "The leader's process is killed and starts again within a second.",
    "power loss of the leader": "The leader loses power and what it had not fsynced, and starts again within a second.",
    "power loss of all brokers": "All three lose power at once, and start again within a second.",
    "leader cut off from the others": "The leader and the other nodes cannot reach each other; clients still reach it.",
    "leader paused": "The leader is paused, as by SIGSTOP or a hung machine.",
    "both followers lost": "Both followers fail; the leader is left alone.",
    "followers lost, then the leader; followers back": "The followers die; the leader continues alone for four "
    "seconds and dies too. Then the followers return, without the "
    "records that it wrote alone, and the leader returns last.",
}
"""What happens in each."""


def measure(seed: int, configuration: Configuration, event: str) -> Measured:
    run = _Run(seed, configuration, event)
    world, failure = run.world, ""
    with world.logging():
        try:
            world.run(run.main(), run.seconds_max)
        except Violation as error:
            failure = str(error)
        except Stuck as error:
            failure = f"stuck: {error}"
        world.close()
    key, acknowledgements = run.keys[0], run.history.acknowledgements
    late = [time_s for time_s in acknowledgements.times[key] if time_s > BEFORE_SECONDS / 2]
    gap_s = acknowledgements.gap_s(key, late[0], late[-1]) if late else 0.0
    return Measured(run.history.counts["acknowledged"], run.history.lost, round(gap_s, 1), failure)


def measure_all(seeds: int) -> Iterator[dict[str, Any]]:
    """A row for each configuration and event: the worst of all seeds."""
    for configuration in configurations():
        for event in EVENTS:
            found = [measure(seed, configuration, event) for seed in range(1, seeds + 1)]
            yield {
                **configuration._asdict(),
                "event": event,
                "acknowledged": sum(each.acknowledged for each in found),
                "lost": sum(each.lost for each in found),
                "runs": seeds,
                "runs_with_losses": sum(each.lost > 0 for each in found),
                "unavailable_s": max(each.unavailable_s for each in found),
                "failures": [each.failure for each in found if each.failure],
            }
