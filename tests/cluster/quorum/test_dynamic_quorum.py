"""A dynamic quorum of real processes: formatted with one voter, controllers added and removed by commands (KIP-853)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.model import uuid_from_base64, uuid_to_base64
from ottla.protocol.messages import ApiKey
from peers.kafka import free_port
from tests.cluster.admin import ask, create, quorum, until
from tests.cluster.processes import ONE_REPLICA, Voter, identity, ottla_quorum, start_together
from tests.cluster.quorum.test_quorum import leader_of
from tests.node import FOR_EVER, NodeProcess

CLIENT = {"client_software_name": "test", "client_software_version": "1"}
QUICK = {"controller.quorum.election.timeout.ms": "500", "controller.quorum.fetch.timeout.ms": "1000"}


def ottla(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "ottla.cli.main", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def options(node: Voter) -> list[str]:
    return [word for name, value in node.settings.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Voter]]:
    """Three, not formatted; the others know where the first one is."""
    found = [Voter(tmp_path / f"node-{number}", is_broker=True) for number in (1, 2, 3)]
    for number, node in enumerate(found, 1):
        node.settings = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.listener.names": "CONTROLLER",
            "listeners": node.listeners,
            "controller.quorum.bootstrap.servers": found[0].controller,
            **ONE_REPLICA,
            **FOR_EVER,
            **QUICK,
        }
    yield found
    for node in found:
        if node.process is not None:
            node.kill()


def voters(node: NodeProcess) -> dict[int, str]:
    return {each["replica_id"]: str(each["replica_directory_id"]) for each in quorum(node.bootstrap)["current_voters"]}


def test_a_controller_joins_votes_and_leaves(nodes: list[Voter]) -> None:
    one, two, _ = nodes
    ottla("storage", "format", str(one.data), "--standalone", *options(one))
    assert "not formatted" not in ottla("storage", "info", str(one.data), *options(one))
    one.start()
    first = identity(one.data)
    assert voters(one) == {1: str(uuid_from_base64(first.directory_id or ""))}
    assert create(one.bootstrap, "before") == 0
    ottla(
        "storage",
        "format",
        str(two.data),
        "--no-initial-controllers",
        "--cluster-id",
        first.cluster_id or "",
        *options(two),
    )
    two.start()
    second = identity(two.data).directory_id or ""
    until(lambda: [each["replica_id"] for each in quorum(one.bootstrap)["observers"]], lambda found: 2 in found)
    ottla("quorum", "add", "2", second, f"CONTROLLER://{two.controller}", "--bootstrap", one.bootstrap)
    assert set(voters(one)) == {1, 2}
    assert "voter" in ottla("quorum", "describe", "--bootstrap", two.bootstrap)
    ottla("quorum", "remove", "1", first.directory_id or "", "--bootstrap", two.bootstrap)
    until(lambda: leader_of([two.bootstrap]), lambda leader: leader == 2)
    assert set(voters(two)) == {2}
    assert create(two.bootstrap, "after") == 0


JOINS = {"controller.quorum.auto.join.enable": "true"}
UPGRADE = 1


def observers(node: NodeProcess) -> list[int]:
    return [each["replica_id"] for each in quorum(node.bootstrap)["observers"]]


def ports(node: NodeProcess) -> dict[int, int]:
    """Ports of the controllers' listeners."""
    return {each["node_id"]: each["listeners"][0]["port"] for each in quorum(node.bootstrap)["nodes"]}


def metrics(node: NodeProcess) -> dict[str, str]:
    """The quorum metrics of a node."""
    with urllib.request.urlopen(f"http://{node.settings['ottla.http.listener']}/metrics", timeout=60) as page:
        text = page.read().decode()
    found = re.findall(r"^kafka_server_raft_metrics_(\w+)(?:{\w+=\"([\w-]+)\"})? (\S+)$", text, re.M)
    return {name: label or value for name, label, value in found}


def upgrade(address: str, level: int) -> int:
    """The error code of a change of `kraft.version`."""
    update = {"feature": "kraft.version", "max_version_level": level, "upgrade_type": UPGRADE}
    asked = {"timeout": 30_000, "feature_updates": [update], "validate_only": False}
    return int(ask(address, ApiKey.UPDATE_FEATURES, 1, asked)["error_code"])


def test_a_controller_joins_by_itself_and_takes_the_place_of_what_it_was(nodes: list[Voter]) -> None:
    one, two, three = nodes
    two.settings |= JOINS
    three.settings |= JOINS
    for node in nodes:
        node.settings["ottla.http.listener"] = f"127.0.0.1:{free_port()}"
    ottla("storage", "format", str(one.data), "--standalone", *options(one))
    for node in nodes:
        node.start()
    until(lambda: set(voters(one)), {1, 2, 3}.__eq__)
    before = voters(one)
    told = [metrics(each) for each in nodes]
    assert [each["current_state"] for each in told] == ["leader", "follower", "follower"]
    assert [each["current_vote"] for each in told] == ["1", "-1", "-1"]
    nowhere = uuid_to_base64(UUID(int=0))
    assert [each["current_vote_directory_id"] for each in told] == [
        uuid_to_base64(UUID(before[1])),
        nowhere,
        nowhere,
    ]
    for each in told:
        assert each["current_leader"] == "1"
        assert (each["number_of_voters"], each["number_unknown_voter_connections"]) == ("3", "0")
        assert int(each["high_watermark"]) <= int(each["log_end_offset"])
    two.kill()
    shutil.rmtree(two.data)  # it comes back with an empty disk, which is another replica
    two.begin()
    found = until(lambda: voters(one), lambda found: found.get(2, before[2]) != before[2])
    assert {**found, 2: before[2]} == before
    second = identity(two.data).directory_id or ""
    ottla("quorum", "remove", "2", second, "--bootstrap", one.bootstrap)
    until(lambda: observers(one), lambda found: 2 in found)
    assert create(one.bootstrap, "after") == 0
    assert set(voters(one)) == {1, 3}, "who was let go does not come back before it is started again"


def test_a_static_quorum_becomes_a_dynamic_one(tmp_path: Path) -> None:
    nodes = ottla_quorum(tmp_path, settings=QUICK, count=3)
    try:
        start_together(nodes)
        first, second, third = nodes
        until(lambda: upgrade(first.bootstrap, 1), lambda code: code == 0)
        assert upgrade(first.bootstrap, 1) == 0, "it is so already"
        assert upgrade(second.bootstrap, 0) == ErrorCode.invalid_update_version
        ids = [str(uuid_from_base64(identity(node.data).directory_id or "")) for node in nodes]
        assert until(lambda: voters(third), dict(enumerate(ids, 1)).__eq__)
        finalized = ask(first.bootstrap, ApiKey.API_VERSIONS, 3, CLIENT)["finalized_features"]
        assert {"name": "kraft.version", "max_version_level": 1, "min_version_level": 1} in finalized
        for node in nodes:
            node.kill()
        moved = Voter(third.data, is_broker=True)  # the settings still name the old address of the third
        third.settings["listeners"] = moved.listeners
        start_together([first, second])
        third.begin()
        port = int(moved.controller.rpartition(":")[2])
        assert until(lambda: ports(first), lambda found: found.get(3) == port)
        ottla("quorum", "remove", "1", identity(first.data).directory_id or "", "--bootstrap", second.bootstrap)
        assert set(voters(second)) == {2, 3}
        assert create(second.bootstrap, "after") == 0
    finally:
        for node in nodes:
            if node.process is not None:
                node.kill()
