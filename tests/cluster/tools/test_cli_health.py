"""`ottla topic describe --under-replicated` and so on, `topic elect` and `cluster describe` on three nodes one of which
is killed, beside what Kafka's tools say of the same cluster."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator

import pytest

from ottla.testing import Cluster
from tests.cluster.admin import brokers, create, in_sync_sets, leaders, until
from tests.conformance.cli.test_cli import ottla
from tests.conformance.shell import Shell

PARTITIONS = 6
FLAGS = {
    "--under-replicated": "--under-replicated-partitions",
    "--offline": "--unavailable-partitions",
    "--at-min-isr": "--at-min-isr-partitions",
    "--under-min-isr": "--under-min-isr-partitions",
}
"""Kafka's name of each."""

Found = set[tuple[str, int]]


@pytest.fixture
def three() -> Iterator[Cluster]:
    """With `led` on all nodes, and `alone` on the third."""
    with Cluster(3, {"auto.leader.rebalance.enable": "false"}) as cluster:
        assert create(cluster.addresses[1], "led", PARTITIONS, factor=3) == 0
        assert create(cluster.addresses[1], "alone", replicas=[3]) == 0
        for address in cluster.addresses.values():
            until(lambda address=address: in_sync_sets(address, "alone"), [[3]].__eq__)  # type: ignore[misc]
            until(lambda address=address: brokers(address), dict.fromkeys(cluster.nodes, False).__eq__)  # type: ignore[misc]
        yield cluster


def lacking(cluster: Cluster, flag: str, *topics: str) -> Found:
    rows = json.loads(ottla(cluster.bootstrap, "topic", "describe", flag, "--json", *topics))
    assert all(set(each) == {"topic", "partition", "leader", "replicas", "isr", "min_isr"} for each in rows)
    return {(each["topic"], each["partition"]) for each in rows}


def as_kafka(cluster: Cluster, shell: Shell, flag: str) -> Found:
    asked = ("TopicCommand", "--bootstrap-server", cluster.bootstrap, "--describe", FLAGS[flag])
    rows = re.findall(r"Topic: (\S+)\tPartition: (\d+)", shell.run(*asked).out)
    return {(topic, int(number)) for topic, number in rows}


LED: Found = {("led", number) for number in range(PARTITIONS)}
ALONE: Found = {("alone", 0)}
WHOLE = {"--under-replicated": set(), "--offline": set(), "--at-min-isr": set(), "--under-min-isr": ALONE}
"""`min.insync.replicas` is 2: one replica is never enough."""
KILLED = {"--under-replicated": LED | ALONE, "--offline": ALONE, "--at-min-isr": LED, "--under-min-isr": ALONE}


def ensure_described(cluster: Cluster, expected: dict[str, Found], fenced: list[int]) -> None:
    assert {flag: lacking(cluster, flag) for flag in FLAGS} == expected
    described = json.loads(ottla(cluster.bootstrap, "cluster", "describe", "--json"))
    assert [each["id"] for each in described["fenced_brokers"]] == fenced
    counts = [len(described[each]) for each in ("leaderless", "under_replicated", "at_min_isr", "under_min_isr")]
    wanted = ("--offline", "--under-replicated", "--at-min-isr", "--under-min-isr")
    assert counts == [len(expected[each]) for each in wanted]
    said = "{} offline, {} under-replicated, {} at min.insync.replicas, {} below it; ".format(*counts)
    assert f"{said}{len(fenced)} fenced broker" in ottla(cluster.bootstrap, "cluster", "describe")


def kill_the_third(cluster: Cluster) -> None:
    cluster.kill(3)
    for node in (1, 2):
        until(lambda node=node: brokers(cluster.addresses[node]), {1: False, 2: False, 3: True}.__eq__)  # type: ignore[misc]
        until(lambda node=node: in_sync_sets(cluster.addresses[node], "led"), ([[1, 2]] * PARTITIONS).__eq__)  # type: ignore[misc]


def test_a_node_is_killed_and_comes_back(three: Cluster) -> None:
    one = three.addresses[1]
    preferred = [leader for leader, _ in leaders(one, "led")]
    ensure_described(three, WHOLE, [])
    assert ottla(three.bootstrap, "topic", "describe", "--offline") == "no partition has no leader\n"

    kill_the_third(three)
    ensure_described(three, KILLED, [3])
    assert lacking(three, "--under-replicated", "alone") == ALONE
    text = ottla(three.bootstrap, "topic", "describe", "--offline")
    assert text.splitlines()[1].split() == ["alone", "0", "none", "3", "2"]
    moved = [number for number, leader in enumerate(preferred) if leader == 3]
    assert moved
    refused = ottla(three.bootstrap, "topic", "elect", "led", code=1)
    assert refused.count("(PREFERRED_LEADER_NOT_AVAILABLE)") == len(moved)
    refused = ottla(three.bootstrap, "topic", "elect", "alone", "--unclean", code=1)
    assert "(ELIGIBLE_LEADERS_NOT_AVAILABLE)" in refused

    three.restart(3)
    for node in three.nodes:
        address = three.addresses[node]
        until(lambda address=address: in_sync_sets(address, "led"), ([[1, 2, 3]] * PARTITIONS).__eq__)  # type: ignore[misc]
        until(lambda address=address: in_sync_sets(address, "alone"), [[3]].__eq__)  # type: ignore[misc]
    ensure_described(three, WHOLE, [])
    first, *others = moved
    said = ottla(three.bootstrap, "topic", "elect", "led", "--partition", str(first))
    assert said == f"led partition {first}: broker 3 leads now\n1 leader elected\n"
    until(lambda: leaders(one, "led")[first][0], (3).__eq__)
    rows = json.loads(ottla(three.bootstrap, "topic", "elect", "--json"))
    assert {each["partition"] for each in rows if each["topic"] == "led" and each["elected"]} == set(others)
    until(lambda: [leader for leader, _ in leaders(one, "led")], preferred.__eq__)
    assert ottla(three.bootstrap, "topic", "elect") == "every partition already has its preferred leader\n"


def test_an_unclean_election(three: Cluster) -> None:
    """The only one that was in sync is away, and the other is back: it leads when somebody says so, and not before."""
    two = three.addresses[2]
    assert create(two, "lossy", replicas=[3, 1]) == 0
    ottla(three.bootstrap, "topic", "alter", "lossy", "--set", "min.insync.replicas=1")
    until(lambda: in_sync_sets(two, "lossy"), [[1, 3]].__eq__)
    three.kill(1)
    until(lambda: in_sync_sets(two, "lossy"), [[3]].__eq__)
    three.kill(3)
    three.restart(1)
    for node in (1, 2):
        until(lambda node=node: brokers(three.addresses[node]), {1: False, 2: False, 3: True}.__eq__)  # type: ignore[misc]
        until(lambda node=node: in_sync_sets(three.addresses[node], "lossy"), [[]].__eq__)  # type: ignore[misc]
    assert lacking(three, "--offline", "lossy") == {("lossy", 0)}
    assert "(PREFERRED_LEADER_NOT_AVAILABLE)" in ottla(three.bootstrap, "topic", "elect", "lossy", code=1)
    (row,) = json.loads(ottla(three.bootstrap, "topic", "elect", "lossy", "--unclean", "--json"))
    assert (row["elected"], row["error"]) == (True, None)
    until(lambda: [leader for leader, _ in leaders(two, "lossy")], [1].__eq__)
    said = ottla(three.bootstrap, "topic", "elect", "lossy", "--unclean")
    assert said == "lossy partition 0: broker 1 leads already\n"


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")
def test_the_same_partitions_as_kafkas_tool_finds(three: Cluster, shell: Shell) -> None:
    assert {flag: as_kafka(three, shell, flag) for flag in FLAGS} == WHOLE
    kill_the_third(three)
    assert {flag: as_kafka(three, shell, flag) for flag in FLAGS} == KILLED
    assert {flag: lacking(three, flag) for flag in FLAGS} == KILLED
