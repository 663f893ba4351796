"""`--throttle` of Ottla's own commands (KIP-73): set while replicas move, and gone however that ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.cli.cluster.reassign import RATES, REPLICAS
from ottla.protocol.messages import ApiKey
from tests.cluster.admin import ask, create, in_sync, until
from tests.cluster.brokers.test_life import produce
from tests.cluster.processes import BROKERS, addresses, three_brokers
from tests.conformance.cli.test_cli import ottla
from tests.node import NodeProcess

Nodes = dict[int, NodeProcess]
SLOW = ("--throttle", "10000")
VALUES = [f"{number}".ljust(10_000, ".") for number in range(1000)]
"""10 MB: at 10 KB a second they take far longer than any test."""
LIMIT_S = 120
BROKER, TOPIC = 4, 2


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Nodes]:
    with three_brokers(tmp_path, lambda node_id, data: {}) as nodes:
        assert create(nodes[1].bootstrap, "t", replicas=[1]) == 0
        assert create(nodes[1].bootstrap, "other", replicas=[1]) == 0
        produce(addresses(nodes), "t", VALUES)
        yield nodes


def settings(nodes: Nodes, kind: int, name: str, wanted: tuple[str, ...]) -> dict[str, str]:
    """The settings of a resource that are set by the broker itself or by the first of `wanted`."""
    where = nodes[int(name) if kind == BROKER else 1].bootstrap
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": wanted}
    values = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    (found,) = ask(where, ApiKey.DESCRIBE_CONFIGS, 4, values)["results"]
    return {each["name"]: each["value"] for each in found["configs"] if each["value"]}


def throttles(nodes: Nodes) -> list[dict[str, str]]:
    """Throttles of the brokers, then of the topics."""
    brokers = [settings(nodes, BROKER, str(node_id), RATES) for node_id in BROKERS]
    return [*brokers, *(settings(nodes, TOPIC, name, REPLICAS) for name in ("t", "other"))]


def set_for(lists: tuple[str, str]) -> list[dict[str, str]]:
    """What `throttles` finds while `t` moves with `SLOW`."""
    rates = dict.fromkeys(RATES, "10000")
    return [rates, rates, rates, dict(zip(REPLICAS, lists, strict=True)), {}]


NONE: list[dict[str, str]] = [{}, {}, {}, {}, {}]


def under_way(nodes: Nodes) -> bool:
    answer = ask(nodes[1].bootstrap, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": 9000, "topics": None})
    return bool(answer["topics"])


@contextmanager
def moving(nodes: Nodes, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that moves `t` slowly, once it does."""
    with subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", *arguments, *SLOW],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OTTLA_BOOTSTRAP": addresses(nodes)},
    ) as process:
        try:
            until(lambda: process.poll() is not None or under_way(nodes), bool)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_throttle_is_set_while_replicas_move_and_gone_after_a_signal(three: Nodes, number: signal.Signals) -> None:
    with moving(three, "topic", "replicate", "t", "--factor", "3") as process:
        until(lambda: throttles(three), set_for(("0:1", "0:2,0:3")).__eq__)
        assert in_sync(three[1].bootstrap, "t") == [1] and under_way(three)
        process.send_signal(number)
        printed, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 128 + number, printed
        assert "now unthrottled" in printed and "ottla cluster balance --watch" in printed
    until(lambda: throttles(three), NONE.__eq__)
    until(lambda: sorted(in_sync(three[1].bootstrap, "t")), list(BROKERS).__eq__)
    until(lambda: under_way(three), lambda found: not found)


def test_a_cancel_takes_every_throttle_away(three: Nodes) -> None:
    """The throttles of a move whose command was killed, and of a topic that does not move any more."""
    with moving(three, "topic", "replicate", "t", "--factor", "3") as process:
        until(lambda: throttles(three), set_for(("0:1", "0:2,0:3")).__eq__)
        process.kill()
        process.wait(LIMIT_S)
    bootstrap = addresses(three)
    ottla(bootstrap, "config", "set", "leader.replication.throttled.replicas=0:1", "--topic", "other")
    assert throttles(three) == [*set_for(("0:1", "0:2,0:3"))[:-1], {"leader.replication.throttled.replicas": "0:1"}]
    assert under_way(three)
    assert json.loads(ottla(bootstrap, "cluster", "balance", "--cancel", "--json")) == {"cancelled": 1}
    until(lambda: throttles(three), NONE.__eq__)
    until(lambda: under_way(three), lambda found: not found)
    assert in_sync(three[1].bootstrap, "t") == [1]


def test_a_throttle_is_gone_when_the_moves_are_over(three: Nodes) -> None:
    bootstrap = addresses(three)
    fast = ("--throttle", "1G")
    ottla(bootstrap, "topic", "replicate", "t", "--factor", "2", *fast)
    until(lambda: throttles(three), NONE.__eq__)
    ottla(bootstrap, "cluster", "drain", "1", *fast)
    until(lambda: throttles(three), NONE.__eq__)
    assert sorted(in_sync(three[2].bootstrap, "t")) == [2, 3]
