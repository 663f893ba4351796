"""Real nodes from a seed, under faults of clients, network, process, power, disk and clock.

A failure names its seed: `ottla sim --seed N --kind KIND` replays it and prints the history.
"""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.server.node import Node
from ottla.simulation import reports, scenario
from ottla.simulation.faults import cluster_faults, faults
from ottla.simulation.runs import (
    applications,
    group_protocols,
    queues,
    quorum,
    security_run,
    single,
    streams,
    transactions,
)
from ottla.simulation.world import World
from ottla.testing.disk import OPERATIONS, Fault
from ottla.testing.loop import SimulatedLoop

ROOT = Path(__file__).resolve().parents[2]

FIRST_SEED = int(os.environ.get("OTTLA_SIMULATION_SEED", "1"))
SEEDS_PER_KIND = int(os.environ.get("OTTLA_SIMULATION_SEEDS", "2"))
"""Far more by hand: `ottla sim --seeds 1-1000`."""

MET: dict[str, tuple[str, ...]] = {
    "calm": ("metadata checks", "started", "retried after deletion"),
    "network": ("stalled", "reset", "produce retried"),
    "kill": ("kill", "produce retried"),
    "power": ("power loss", "crash at a disk call", "produce retried"),
    "disk": ("error kafka_storage_error", "produce retried"),
    "mixed": ("fault", "produce retried"),
    "cluster": ("power loss", "stalled", "produce retried"),
    "quorum": ("leaders elected", "taken over", "fenced replicas", "stalled", "produce retried", "fetched again"),
    "long": ("leaders elected", "taken over", "produce retried"),
    "in zookeeper": ("leaders elected", "quorum leaders", "zookeeper commits", "trees compared", "produce retried"),
    "transactions": (
        "EndTxn replayed",
        "late writes",
        "fenced producers",
        "commits of zombies",
        "transactional batches sent twice",
        "nemesis: of transactions",
        "error concurrent_transactions",
        "transactional disconnected",
    ),
    "groups": (
        "nemesis: of groups",
        "consumer group unknown_member_id",
        "consumermember disconnected",
        "share member disconnected",
        "share redeliveries",
    ),
    "queues": ("back-offs checked", "times of delivery checked", "order checked", "share redeliveries"),
    "streams": ("warm-ups", "consumer group unknown_member_id", "streamsmember disconnected"),
    "applications": ("consumer group unreleased_instance_id", "assignments heard", "tags missed"),
    "security": ("nemesis: of security", "logins by tokens", "denied", "quorum leaders", "user disconnected"),
}
"""What all runs of a kind together have to meet."""


SHORT = {queues.QUEUES: 3, applications.APPLICATIONS: 1}
"""Kinds that add checks to the runs of another one: one short seed of each."""

DEAR = {quorum.QUORUM: 5, "in zookeeper": 1, "long": 1, "transactions": 1, "groups": 1, "security": 1}
"""The dearest kinds: a seed that meets all that has to be met. Others are played in `make nightly`."""


@pytest.mark.parametrize("kind", scenario.KINDS)
def test_nodes_keep_their_promises(kind: str, monkeypatch: Any) -> None:
    by_hand = (FIRST_SEED, SEEDS_PER_KIND) != (1, 2)
    one = SHORT if by_hand else {**SHORT, **DEAR}
    first = one.get(kind, FIRST_SEED)
    play(kind, range(first, first + (1 if kind in one else SEEDS_PER_KIND)), monkeypatch)


@pytest.mark.nightly("tests/simulation/test_nodes.py::test_nodes_keep_their_promises")
@pytest.mark.parametrize("kind", DEAR)
def test_nodes_keep_their_promises_with_further_seeds(kind: str, monkeypatch: Any) -> None:
    play(kind, range(1, 6), monkeypatch)


def play(kind: str, seeds: range, monkeypatch: Any) -> None:
    """One node; a controller and a broker on machines of their own; clusters. The long ones are shorter here."""
    monkeypatch.setattr(quorum, "LONG_SECONDS", (60.0, 80.0))
    monkeypatch.setattr(cluster_faults, "TAKEN_OVER", 1.0)
    monkeypatch.setattr(cluster_faults, "ROTTEN", 1.0)
    monkeypatch.setattr(transactions.TransactionRun, "lasts_s", (8.0, 10.0))
    monkeypatch.setattr(group_protocols.GroupRun, "lasts_s", (6.0, 8.0))
    monkeypatch.setattr(security_run.SecurityRun, "lasts_s", (6.0, 8.0))
    counts: Counter[str] = Counter()
    traces = set()
    for seed in seeds:
        outcome = scenario.run(seed, kind)
        assert not outcome.failures, f"seed {seed}: {outcome.failures}"
        counts += outcome.counts
        traces.add(outcome.digest)
    assert len(traces) == len(seeds), "another seed, another trace"
    assert not [each for each in MET[kind] if not counts[each]], counts


SAME = {**dict.fromkeys(("mixed", faults.CLUSTER), 16), quorum.QUORUM: 40, transactions.TRANSACTIONS: 17,
        group_protocols.GROUPS: 5, security_run.SECURITY: 20}  # fmt: skip
"""A seed of each kind of machines. `calm`, `network`, `kill`, `power` and `disk` have none of their own: `mixed` has
their machine, clients and code (`simulation.single`), and the faults of all of them, as a test below holds. Of `quorum`
it is a short run of three nodes, both broker and controller, whose voters change."""


@pytest.mark.parametrize("kind", SAME)
def test_the_same_seed_gives_the_same_trace_whatever_the_hash_seed(kind: str) -> None:
    """Byte for byte, with everything that is written, sent and logged in it."""
    command = [sys.executable, "-m", "ottla.cli.main", "sim", "--seed", str(SAME[kind]), "--kind", kind, "--digest"]
    runs = [
        subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE)
        for seed in ("1", "77")
    ]
    digests = [run.communicate(timeout=300)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert len(digests[0]) > 60
    assert digests[0] == digests[1]


def test_mixed_runs_have_the_faults_of_every_kind_of_one_node() -> None:
    """So what is true of their traces is true of the traces of the others."""
    world = World(0)
    world.machine(faults.NODE, {})
    found = {kind: {each.__name__ for each in faults.Nemesis(world, (), kind).faults} for kind in single.KINDS}
    world.close()
    assert all(found[kind] for kind in single.KINDS if kind != "calm")
    assert found["mixed"] == set().union(*found.values()) and "_jump" in found["mixed"]


def test_disk_errors_are_of_every_operation_and_change_nothing_else(monkeypatch: Any) -> None:
    """On an idle machine, checks what is drawn, and that later draws are unchanged."""

    async def at_once(nemesis: faults.Nemesis, seconds: float) -> None:
        nemesis.random.uniform(0.1, 2 * seconds)

    async def at_no_time(nemesis: faults.Nemesis, fault: Fault) -> None:
        pass

    def drawn(elsewhere: float) -> tuple[set[str], list[float]]:
        monkeypatch.setattr(faults, "ERRORS_ELSEWHERE", elsewhere)
        world = World(0)
        machine = world.machine(faults.NODE, {})
        met = set()

        def fail(operation: str, *args: Any, **options: Any) -> Fault:
            met.add(operation)
            return Fault(operation, 0, "", 0, 0)

        monkeypatch.setattr(machine.disk, "fail", fail)
        nemesis = faults.Nemesis(world, (), "disk")
        after = []

        async def work() -> None:
            for _ in range(100):
                for error in (nemesis._read_error, nemesis._write_error, nemesis._fsync_error):
                    await error()
                    after.append(nemesis.random.random())

        world.run(work(), seconds_max=1)
        world.close()
        return met, after

    monkeypatch.setattr(faults.Nemesis, "_lasting", at_once)
    monkeypatch.setattr(faults.Nemesis, "_fired", at_no_time)
    assert drawn(faults.ERRORS_ELSEWHERE)[0] == OPERATIONS
    assert drawn(0.0)[0] == {"read", "write", "fsync"}
    assert drawn(0.0)[1] == drawn(1.0)[1]


def test_crashes_at_awaits_come_where_there_was_none_yet(monkeypatch: Any) -> None:
    """And the run says where they were."""
    monkeypatch.setattr(faults.Nemesis, "_kill", faults.Nemesis._kill_at_await)
    monkeypatch.setattr(faults.Nemesis, "_kill_at_disk", faults.Nemesis._kill_at_await)
    outcome = scenario.run(FIRST_SEED, "kill")
    assert not outcome.failures
    crashes = outcome.counts["crash at an await"]
    assert crashes >= 5 and len(outcome.crashed_at) == outcome.counts["places of crashes"]
    assert len(outcome.crashed_at) > crashes / 2, outcome.crashed_at
    assert sum("ends after: " in line for line in outcome.lines) == crashes
    tally = reports.Tally()
    tally.add(outcome)
    assert f"crashes at awaits: {crashes}, at {len(outcome.crashed_at)} different places" in str(tally)


def test_a_run_that_met_little_violated_nothing() -> None:
    outcome = scenario.Outcome(1, "calm", "", 1, "", [], Counter(), ["it met no kill"], 1.0, 1.0)
    tally = reports.Tally()
    for each in (outcome, replace(outcome, met_little=True)):
        tally.add(each)
    assert tally.failed == [(1, "calm")]
    assert tally.met_little == 1
    assert "FAILED" in reports.summary(outcome)
    assert reports.summary(replace(outcome, met_little=True)).endswith("not met: it met no kill")


OF_CLIENTS = ("acknowledged", "read", "checked", "commits", "offset fetches", "rebalanced", "group commits")
OF_EVERY_RUN = tuple((each,) for each in OF_CLIENTS)
OF_ONE_NODE = (*OF_EVERY_RUN, ("retried after deletion",), ("admin",))

NEEDED: dict[str, tuple[tuple[str, ...], ...]] = {
    "calm": (*OF_ONE_NODE, ("started",)),
    "network": (
        *OF_ONE_NODE,
        tuple(f"{each} disconnected" for each in ("producer", "consumer", "committer", "admin")),
    ),
    "kill": (*OF_ONE_NODE, ("kill",)),
    "power": (*OF_ONE_NODE, ("power loss",)),
    "disk": (*OF_ONE_NODE, ("error kafka_storage_error", "disk error")),
    "mixed": (*OF_ONE_NODE, ("produce retried",)),
    "cluster": (
        *OF_EVERY_RUN, ("retried after deletion",), ("produce retried",), ("kill", "power loss", "stopped", "stalled"),
    ),
    "quorum": (
        *OF_EVERY_RUN, ("looked up by time",), ("trimmed",), ("quorum states checked",),
        ("partition states checked",), ("fault",), ("images compared",), ("leaders elected",), ("replicas compared",),
        ("quorum leaders",), ("voters changed",), ("in the second directory",), ("ISR shrunk",), ("ISR expanded",),
    ),
}  # fmt: skip
"""What a run of a kind has to have met: of each group one."""

NEEDED["long"] = NEEDED["quorum"]
NEEDED["transactions"] = tuple(
    (each,)
    for each in (
        "transactional producers", "transactional writes", "transactional offset commits", "transactions committed",
        "transactions aborted", "transactions checked", "transactions over several partitions", "committed reads",
        "copies checked", "fault", "leaders elected",
    )
)  # fmt: skip

NEEDED["security"] = tuple(
    (each,)
    for each in (
        "security changes", "logins", "logins refused", "logins by tokens", "allowed", "denied", "secrets checked",
        "fault", "quorum leaders",
    )
)  # fmt: skip
NEEDED["groups"] = tuple(
    (each,)
    for each in (
        "consumer heartbeats", "consumer group assignments", "consumer group commits", "share deliveries",
        "share acknowledgements", "share redeliveries", "coordinators compared", "jobs checked", "dead letters",
        "fault", "leaders elected",
    )
)  # fmt: skip

NEEDED["streams"] = tuple((each,) for each in (*streams.ALWAYS, "leaders elected"))
NEEDED["applications"] = tuple((each,) for each in (*applications.ALWAYS, "leaders elected"))
NEEDED["in zookeeper"] = tuple(
    (each,) for each in (*quorum.ALWAYS, "zookeeper commits", "trees compared", "quorum leaders")
)
NEEDED["queues"] = (
    *NEEDED["groups"], *((each,) for each in ("back-offs checked", "times of delivery checked", "order checked")),
)  # fmt: skip

SAID_AS = {
    "images compared": ("images to compare",),
    "leaders elected": ("change of leader",),
    "replicas compared": ("change of leader",),
    "quorum leaders": ("election of the quorum",),
    "voters changed": ("change of voters",),
    "in the second directory": ("log in the second directory",),
    "ISR shrunk": ("left the ISR",),
    "ISR expanded": ("joined it",),
}
"""Names in the report of a run that did not meet it."""


@pytest.mark.parametrize("kind", scenario.KINDS)
def test_a_run_of_any_kind_without_what_it_is_about_fails(kind: str, monkeypatch: Any) -> None:
    """A run in which only the given things happen fails if one is missing, and names it."""
    plan = quorum.Plan(3, 3, True, 3, 2, 1, False, 10.0, is_dynamic=True, has_two_disks=True)
    monkeypatch.setattr(quorum.QuorumRun, "make_plan", lambda run: plan)
    monkeypatch.setattr(transactions.TransactionRun, "make_plan", lambda run: plan)
    monkeypatch.setattr(group_protocols.GroupRun, "make_plan", lambda run: plan)
    monkeypatch.setattr(security_run.SecurityRun, "make_plan", lambda run: plan)

    def outcome(met: Iterable[str]) -> scenario.Outcome:
        async def main(run: single.Run) -> None:
            run.world.counts.update(met)

        monkeypatch.setattr(single.Run, "main", main)
        return scenario.run(1, kind)

    everything = {each for group in NEEDED[kind] for each in group}
    assert outcome(everything).failures == []
    for group in NEEDED[kind]:
        failures = outcome(everything - {*group}).failures
        assert len(failures) == 1 and failures[0].startswith("the run met no"), (group, failures)
        assert any(each in failures[0] for each in (*group, *SAID_AS.get(group[0], ()))), (group, failures)
        for each in group:
            assert outcome(everything - {*group} | {each}).failures == []


def test_a_run_that_did_not_meet_what_it_is_about_fails(monkeypatch: Any) -> None:
    async def nothing(nemesis: faults.Nemesis) -> None:
        """No faults."""

    monkeypatch.setattr(single.Nemesis, "run", nothing)
    assert any("the run met none of" in each for each in scenario.run(1, "network").failures)


def test_a_cluster_that_met_nothing_fails() -> None:
    """It names each fault that its plan required."""
    plan = quorum.Plan(3, 3, True, 3, 2, 1, False, 10.0, is_dynamic=True, has_two_disks=True)
    play = quorum.QuorumRun(1, quorum.QUORUM, plan)
    missed = " ".join(play.missed())
    play.world.close()
    for each in (
        "acknowledged",
        "rebalanced",
        "images to compare",
        "change of leader",
        "election of the quorum",
        "change of voters",
        "log in the second directory",
        "replica that left the ISR",
    ):
        assert f"the run met no {each}" in missed


def test_what_is_logged_afterwards_is_as_before() -> None:
    """Python keeps, for each logger, what it found to be enabled."""
    world, logger = World(0), logging.getLogger("ottla.node")
    assert not logger.isEnabledFor(logging.INFO)
    with world.logging():
        assert logger.isEnabledFor(logging.INFO)
    world.close()
    assert not logger.isEnabledFor(logging.INFO)


def test_nothing_of_a_run_is_left_behind_it(monkeypatch: Any) -> None:
    """How long many seeds can be played in one process is a matter of memory: each left its whole world once."""
    monkeypatch.setattr(faults, "FAULT_SECONDS", 1.0)
    counts = []
    for seed in range(1, 5):
        outcome = scenario.run(seed, "kill" if seed % 2 else "calm")
        assert outcome.steps > 1000
        del outcome
        gc.collect()
        counts.append(len(gc.get_objects()))
        left = [each for each in gc.get_objects() if type(each) in (SimulatedLoop, World, Node)]
        assert not left
    assert counts[-1] - counts[1] < 5000, "one seed makes fifty times as many"
