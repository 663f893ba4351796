"""Plays one seed. A run without the events it is about fails, like one that violated a guarantee."""

from __future__ import annotations

import gc
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from ottla.simulation.faults import faults
from ottla.simulation.runs import (
    applications,
    group_protocols,
    in_zookeeper,
    queues,
    quorum,
    security_run,
    single,
    streams,
    transactions,
)
from ottla.simulation.world import Violation
from ottla.simulation.zookeeper.run import KINDS as ZOOKEEPER_KINDS
from ottla.simulation.zookeeper.run import ZooKeeperRun
from ottla.testing.loop import Stuck

KINDS = (
    *single.KINDS, faults.CLUSTER, quorum.QUORUM, quorum.LONG, transactions.TRANSACTIONS, group_protocols.GROUPS,
    queues.QUEUES, streams.STREAMS, applications.APPLICATIONS, security_run.SECURITY, in_zookeeper.IN_ZOOKEEPER,
)  # fmt: skip

THRESHOLDS = 50_000, 20, 20
"""How often objects are looked through for dead cycles while a seed is played (`gc.set_threshold`)."""


@dataclass
class Outcome:
    seed: int
    kind: str
    about: str
    """What the seed chose."""
    nodes: int
    digest: str
    lines: list[str]
    counts: Counter[str]
    failures: list[str] = field(default_factory=list)
    simulated_s: float = 0.0
    real_s: float = 0.0
    cpu_s: float = 0.0
    """Processor time, which a busy machine changes least."""
    steps: int = 0
    crashed_at: frozenset[str] = frozenset()
    """What the last events were of nodes that were killed at awaits."""
    met_little: bool = False
    """Whether `failures` are only of what the run did not meet: no guarantee was violated. A test's seeds are chosen so
    that they meet all of it."""


def make(seed: int, kind: str) -> single.Run | ZooKeeperRun:
    if kind in ZOOKEEPER_KINDS:
        return ZooKeeperRun(seed, kind)
    if kind == transactions.TRANSACTIONS:
        return transactions.TransactionRun(seed)
    if kind == group_protocols.GROUPS:
        return group_protocols.GroupRun(seed)
    if kind == queues.QUEUES:
        return queues.QueueRun(seed)
    if kind == streams.STREAMS:
        return streams.StreamsRun(seed)
    if kind == applications.APPLICATIONS:
        return applications.ApplicationRun(seed)
    if kind == security_run.SECURITY:
        return security_run.SecurityRun(seed)
    if kind == in_zookeeper.IN_ZOOKEEPER:
        return in_zookeeper.InZooKeeperRun(seed)
    return quorum.QuorumRun(seed, kind) if kind in quorum.KINDS else single.Run(seed, kind)


@contextmanager
def _few_collections() -> Iterator[None]:
    """A world is full of cycles that live as long as it does: what was there before it is not looked through with it,
    and what is left of it is, once, in the end. As often as usual, that took an eighth of a run."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.collect()
        gc.set_threshold(*before)
        gc.unfreeze()


def run(seed: int, kind: str | None = None) -> Outcome:
    """Play one seed. Never raises for what went wrong: that is in `failures`."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    chosen = kind or Random(f"{seed}/kind").choice(single.KINDS)
    with _few_collections():
        outcome = _play(seed, chosen)
    outcome.real_s, outcome.cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    return outcome


def _play(seed: int, chosen: str) -> Outcome:
    play = make(seed, chosen)
    world = play.world
    failures: list[str] = []
    with world.logging():
        try:
            world.run(play.main(), seconds_max=play.seconds_max)
        except Violation:
            pass
        except Stuck as error:
            failures.append(f"stuck: {error}")
        except Exception as error:  # what a checker did not expect
            failures.append(f"{error!r} {traceback.format_exc()}")
        digest, lines = world.digest(), world.lines
        world.close()
        failures += world.violations
        missed = [] if failures else play.missed()
    counts = play.counts()
    return Outcome(
        seed,
        play.kind,
        play.about,
        len(world.machines),
        digest,
        lines,
        counts,
        failures + missed,
        world.time.now_s,
        steps=world.time.steps,
        crashed_at=frozenset(world.crashed_at),
        met_little=bool(missed),
    )
