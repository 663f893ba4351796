"""Which node `ottla cluster describe` calls the controller, and where a broker is that has just gone."""

from __future__ import annotations

import json

import pytest

from ottla.cli.cluster import reassign
from ottla.cli.cluster import restart as cluster_restart
from ottla.cli.cluster.describe import describe
from ottla.cli.cluster.facts import facts
from ottla.cli.cluster.members import members, quorum_leader
from ottla.cli.exits import CommandFailed
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from tests.unit.cli.fake_cluster import FakeCluster, serve


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_the_controller_is_the_leader_of_the_quorum(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: int
) -> None:
    """Metadata of the broker that is asked names another one."""
    serve(monkeypatch, FakeCluster())
    describe(json=True, bootstrap=f"127.0.0.1:{9000 + asked}")
    assert json.loads(capsys.readouterr().out)["controller"] == 2
    describe(bootstrap=f"127.0.0.1:{9000 + asked}")
    assert capsys.readouterr().out.startswith("cluster  3 brokers, the quorum is led by node 2\n")


@pytest.mark.parametrize("row", [{"error_code": 0, "leader_id": -1}, {"error_code": ErrorCode.leader_not_available}])
def test_no_leader(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], row: dict[str, int]) -> None:
    cluster = serve(monkeypatch, FakeCluster())
    cluster.answers[ApiKey.DESCRIBE_QUORUM] = lambda values: {"topics": [{"partitions": [row]}]}
    describe(json=True, bootstrap=cluster.bootstrap)
    assert json.loads(capsys.readouterr().out)["controller"] is None
    describe(bootstrap=cluster.bootstrap)
    assert "the quorum has no leader" in capsys.readouterr().out


def test_brokers_that_let_everybody_in(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Apache Kafka does not know the setting: nothing is said then."""
    cluster = serve(monkeypatch, FakeCluster())
    describe(bootstrap=cluster.bootstrap)
    assert "whoever" not in capsys.readouterr().out
    row = {"name": "ottla.allow.open.listeners", "value": "true"}
    cluster.answers[ApiKey.DESCRIBE_CONFIGS] = lambda values: {"results": [{"configs": [row]}]}
    describe(bootstrap=cluster.bootstrap)
    assert capsys.readouterr().out.count(": whoever reaches it may do everything there (ottla.allow.open") == 3


def test_a_broker_that_has_gone_is_fenced_and_not_running(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though Metadata lists it."""
    cluster = serve(monkeypatch, FakeCluster(fenced={3}, partitions={("t", 0): (3, 1), ("t", 1): (1, 2)}))
    describe(json=True, bootstrap=cluster.bootstrap)
    found = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in found["brokers"]] == [1, 2]
    assert found["fenced_brokers"] == [{"id": 3, "address": "127.0.0.1:9003"}]
    assert sorted(facts(cluster.bootstrap).addresses) == [1, 2]
    with pytest.raises(CommandFailed, match="broker 3 is not running: running are 1, 2"):
        facts(cluster.bootstrap).broker(3)
    now = facts(cluster.bootstrap)
    cluster.fenced.clear()
    assert cluster_restart._trouble(facts(cluster.bootstrap), now) == "node 3 is down"


def test_a_cluster_that_does_not_tell_who_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka before 4.0: what Metadata lists."""
    cluster = serve(monkeypatch, FakeCluster())
    cluster.answers[ApiKey.API_VERSIONS] = lambda values: {"error_code": 0, "api_keys": []}
    found = members(cluster.bootstrap)
    assert ([each.id for each in found.running], found.fenced) == ([1, 2, 3], None)
    assert quorum_leader(cluster.bootstrap) == 2


def test_the_restart_comes_to_the_leader_of_the_quorum_last(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = serve(monkeypatch, FakeCluster(quorum_leader=1))
    assert cluster_restart._order(facts(cluster.bootstrap), None) == [2, 3, 1]


def test_the_restart_ends_with_an_election_of_preferred_leaders(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = serve(monkeypatch, FakeCluster(partitions={("t", 0): (1, 2), ("t", 1): (2, 3)}))
    cluster_restart.restart(command="true {id}", bootstrap=cluster.bootstrap)
    assert [each for each in cluster.asked if each is ApiKey.ELECT_LEADERS] == [ApiKey.ELECT_LEADERS]
    assert cluster.asked[-1] is ApiKey.ELECT_LEADERS
    assert capsys.readouterr().out.endswith("3 nodes restarted, and 2 leaders moved back\n")
    cluster_restart.restart(command="true {id}", node=[2], bootstrap=cluster.bootstrap)
    assert cluster.asked[-1] is ApiKey.ELECT_LEADERS


def test_preferred_leaders_are_elected_when_all_replicas_are_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = serve(monkeypatch, FakeCluster(fenced={3}, partitions={("t", 0): (3, 1)}))
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        assert ApiKey.ELECT_LEADERS not in cluster.asked
        if looks == 3:
            cluster.fenced.clear()

    monkeypatch.setattr(reassign.time, "sleep", sleep)
    reassign.elect_when_in_sync("127.0.0.1:9001", 60)
    assert (looks, cluster.asked[-1]) == (3, ApiKey.ELECT_LEADERS)
    reassign.elect_when_in_sync("127.0.0.1:9001", 0)  # some stay away: those that can lead do
    assert cluster.asked[-1] is ApiKey.ELECT_LEADERS
