"""Three controllers, alone or in one process with their brokers: real processes, killed, stopped and started again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from tests.cluster.admin import ask, brokers, create, quorum, until
from tests.cluster.processes import Voter, ottla_broker, ottla_quorum, start_together
from tests.node import NodeProcess

QUICK = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}


def leader_of(addresses: list[str]) -> int:
    """The leader of the quorum, according to the nodes that are up; -1 while they disagree."""
    found = set()
    for address in addresses:
        with contextlib.suppress(OSError, IndexError):
            found.add(quorum(address)["leader_id"])
    return found.pop() if len(found) == 1 else -1


def topics(address: str) -> set[str]:
    asked = {"topics": None, "allow_auto_topic_creation": False}
    return {each["name"] for each in ask(address, ApiKey.METADATA, 12, asked)["topics"]}


def all_unfenced(address: str, count: int) -> bool:
    with contextlib.suppress(OSError):
        return brokers(address) == dict.fromkeys(range(1, count + 1), False)
    return False


@pytest.fixture
def combined(tmp_path: Path) -> Iterator[list[Voter]]:
    nodes = ottla_quorum(tmp_path, settings=QUICK)
    try:
        start_together(nodes)
        for node in nodes:
            until(lambda node=node: all_unfenced(node.bootstrap, 3), bool)  # type: ignore[misc]
        yield nodes
    finally:
        end(nodes)


def end(nodes: list[Voter]) -> None:
    for node in nodes:
        if node.process is not None:
            node.process.terminate()
    for node in nodes:
        if node.process is not None:
            node.process.wait(60)
            node.process = None


class Creating(threading.Thread):
    """Creates topics at one node after the other, each until it is there; `acknowledged` are those."""

    def __init__(self, addresses: list[str], count: int) -> None:
        super().__init__(daemon=True)
        self.addresses = addresses
        self.count = count
        self.acknowledged: list[str] = []
        self.refused: list[int] = []

    def run(self) -> None:
        attempt = 0
        while len(self.acknowledged) < self.count:
            name = f"t{len(self.acknowledged)}"
            attempt += 1
            with contextlib.suppress(OSError):
                code = create(self.addresses[attempt % len(self.addresses)], name)
                if code in (ErrorCode.none, ErrorCode.topic_already_exists):
                    self.acknowledged.append(name)
                elif code != ErrorCode.request_timed_out:
                    self.refused.append(code)


def test_the_active_controller_is_killed_while_topics_are_created(combined: list[Voter]) -> None:
    for round_number in range(2):
        creating = Creating([each.bootstrap for each in combined], 40 + 40 * round_number)
        creating.start()
        until(lambda c=creating: len(c.acknowledged), lambda n: n >= 5)  # type: ignore[misc]
        victim = combined[leader_of([each.bootstrap for each in combined]) - 1]
        victim.kill()
        survivors = [each for each in combined if each is not victim]
        until(lambda s=survivors: leader_of([each.bootstrap for each in s]), lambda found: found > 0)  # type: ignore[misc]
        creating.join(60)
        assert not creating.is_alive() and creating.refused == []
        acknowledged = set(creating.acknowledged)
        for each in survivors:
            until(lambda e=each: topics(e.bootstrap), acknowledged.issubset)  # type: ignore[misc]
        victim.start()
        until(lambda v=victim: all_unfenced(v.bootstrap, 3), bool)  # type: ignore[misc]
        until(lambda v=victim: topics(v.bootstrap), acknowledged.issubset)  # type: ignore[misc]


def test_all_go_down_and_come_up_again(combined: list[Voter]) -> None:
    assert create(combined[0].bootstrap, "before") == 0
    for clean in (True, False):
        for node in combined:
            assert node.process is not None
            node.process.terminate() if clean else node.process.kill()
        for node in combined:
            assert node.process is not None
            assert node.process.wait(60) == (0 if clean else -9)
        start_together(combined)
        for node in combined:
            until(lambda n=node: all_unfenced(n.bootstrap, 3), bool)  # type: ignore[misc]
            until(lambda n=node: topics(n.bootstrap), {"before"}.issubset)  # type: ignore[misc]
    assert create(combined[2].bootstrap, "after") == 0
    until(lambda: topics(combined[1].bootstrap), lambda found: {"before", "after"} <= found)


def test_brokers_live_on_while_their_controllers_change(tmp_path: Path) -> None:
    """A broker that is first waits; when the active controller stops, another takes over, and no broker is fenced."""
    controllers = ottla_quorum(tmp_path, "controller", QUICK)
    addresses = ",".join(each.controller for each in controllers)
    members: list[NodeProcess] = [
        ottla_broker(tmp_path / f"broker-{number}", addresses, QUICK, node_id=10 + number) for number in (1, 2)
    ]
    both = {11: False, 12: False}
    try:
        for each in (*members, *controllers):
            each.begin()
        for each in (*controllers, *members):
            each.wait_ready()
        until(lambda: brokers(members[0].bootstrap), both.__eq__)
        for number in range(3):
            active = controllers[until(lambda: quorum(members[0].bootstrap)["leader_id"], lambda n: n > 0) - 1]
            if number % 2:
                active.kill()
            else:
                assert active.stop() == 0
            assert create(members[number % 2].bootstrap, f"t{number}") == 0
            until(lambda: brokers(members[1].bootstrap), both.__eq__)
            active.start()
        for member in members:
            until(lambda m=member: topics(m.bootstrap), {"t0", "t1", "t2"}.__le__)  # type: ignore[misc]
            assert member.stop() == 0
    finally:
        for each in members:
            if each.process is not None:
                each.stop()
        end(controllers)


def test_a_node_alone_gets_company_while_it_runs(tmp_path: Path) -> None:
    """Another node that is both finds its cluster by asking, and follows as one that does not vote; the first one
    answers all the while."""
    first, second = ottla_quorum(tmp_path, settings=QUICK, count=2)
    for node in (first, second):
        del node.settings["controller.quorum.voters"], node.settings["ottla.cluster.id"]
    second.settings["controller.quorum.bootstrap.servers"] = first.controller
    try:
        first.start()
        assert create(first.bootstrap, "before") == 0
        second.start()
        for node in (first, second):
            until(lambda n=node: all_unfenced(n.bootstrap, 2), bool)  # type: ignore[misc]
            found = quorum(node.bootstrap)
            assert [each["replica_id"] for each in found["current_voters"]] == [1]
            assert [each["replica_id"] for each in found["observers"]] == [2]
            until(lambda n=node: {each["node_id"] for each in quorum(n.bootstrap)["nodes"]}, {1, 2}.__eq__)  # type: ignore[misc]
        assert create(second.bootstrap, "after") == 0
        for node in (first, second):
            until(lambda n=node: topics(n.bootstrap), {"before", "after"}.issubset)  # type: ignore[misc]
        assert second.stop() == 0
        until(lambda: brokers(first.bootstrap)[2], bool)
        second.start()
        until(lambda: all_unfenced(first.bootstrap, 2), bool)
    finally:
        end([second, first])
