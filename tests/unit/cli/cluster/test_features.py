"""`ottla features`: which levels are asked for, and what is refused before anybody is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.cli import features
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.protocol.messages import ApiKey
from tests.unit.cli.fake_cluster import BOOTSTRAP, FakeCluster, serve

OF_4_3 = {
    "metadata.version": 30, "eligible.leader.replicas.version": 1, "group.version": 1, "share.version": 1,
    "streams.version": 1, "transaction.version": 2,
}  # fmt: skip


class Cluster:
    """Keeps what was asked, and refuses with `code`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.code = 0
        self.kraft = 0
        self.listeners: list[dict[str, Any]] = [{"name": "CONTROLLER", "host": "here", "port": 9093}]
        found = FakeCluster()
        found.answers[ApiKey.DESCRIBE_QUORUM] = lambda values: {
            "error_code": 0,
            "topics": [{"partitions": [{"error_code": 0, "current_voters": [{"replica_id": 1}]}]}],
            "nodes": [{"node_id": 1, "listeners": self.listeners}],
        }
        found.answers[ApiKey.UPDATE_FEATURES] = self._update
        found.answers[ApiKey.API_VERSIONS] = lambda values: {
            "error_code": 0,
            "finalized_features": [{"name": name, "max_version_level": level} for name, level in self.levels_now()],
        }
        serve(monkeypatch, found)

    def levels_now(self) -> list[tuple[str, int]]:
        return [*OF_4_3.items(), *([("kraft.version", self.kraft)] if self.kraft else ())]

    def _update(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(values)
        return {"error_code": self.code, "error_message": "because", "results": []}

    def levels(self) -> list[tuple[str, int, int]]:
        (asked,) = self.asked
        return [(each["feature"], each["max_version_level"], each["upgrade_type"]) for each in asked["feature_updates"]]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_a_release_changes_only_what_it_raises(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert features.upgrade(release="4.4", bootstrap=BOOTSTRAP) == OK
    assert cluster.levels() == [("metadata.version", 33, 1), ("share.version", 2, 1), ("kraft.version", 1, 1)]
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == [
        "metadata.version is 33 (4.4-IV2) (was 30 (4.3-IV0))",
        "share.version is 2 (was 1)",
        "kraft.version is 1 (was 0)",
    ]
    assert "ottla quorum add" in said[3]


def test_a_node_that_votes_alone_for_ever_keeps_its_quorum(cluster: Cluster) -> None:
    cluster.listeners = []
    assert features.upgrade(release="4.4", bootstrap=BOOTSTRAP) == OK
    assert cluster.levels() == [("metadata.version", 33, 1), ("share.version", 2, 1)]


def test_before_3_9_a_release_lowers_the_quorum_too(cluster: Cluster) -> None:
    """It is refused then, as where Kafka's tool asks."""
    cluster.kraft = 1
    assert features.downgrade(release="3.9", bootstrap=BOOTSTRAP) == OK
    assert "kraft.version" not in dict(each[:2] for each in cluster.levels())
    cluster.asked.clear()
    assert features.downgrade(release="3.8", bootstrap=BOOTSTRAP) == OK
    assert ("kraft.version", 0, 2) in cluster.levels()


def test_a_release_changes_only_what_it_lowers(cluster: Cluster) -> None:
    assert features.downgrade(release="4.2", dry_run=True, bootstrap=BOOTSTRAP) == OK
    assert cluster.levels() == [("metadata.version", 29, 2)] and cluster.asked[0]["validate_only"]


def test_features_by_name(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["metadata.version=4.4-IV1", "kraft.version=1"]
    assert features.upgrade(feature=asked, json=True, bootstrap=BOOTSTRAP) == OK
    assert cluster.levels() == [("metadata.version", 32, 1), ("kraft.version", 1, 1)]
    assert json.loads(capsys.readouterr().out)["changed"][1] == {"feature": "kraft.version", "before": 0, "level": 1}
    cluster.asked.clear()
    assert features.downgrade(feature=["share.version=0"], unsafe=True, bootstrap=BOOTSTRAP) == OK
    assert cluster.levels() == [("share.version", 0, 3)]


def test_nothing_to_change_asks_nothing(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.kraft = 1
    assert features.upgrade(release="4.3.0", bootstrap=BOOTSTRAP) == OK
    assert not cluster.asked and "nothing to change" in capsys.readouterr().out


def test_what_the_controller_refuses(cluster: Cluster) -> None:
    cluster.code = 95
    with pytest.raises(CommandFailed, match="because") as caught:
        features.upgrade(release="4.4", bootstrap=BOOTSTRAP)
    assert caught.value.exit_code == FAILED


@pytest.mark.parametrize(
    ("release", "feature"),
    [
        (None, None),
        ("4.4", ["share.version=2"]),
        ("4.5", None),
        ("4.4-IV9", None),
        ("4", None),
        ("", None),
        (None, ["share.version"]),
        (None, ["=2"]),
        (None, ["share.version=two"]),
        (None, ["share.version=-1"]),
        (None, ["share.version=99999"]),
        (None, ["a=1", "a=2"]),
        (None, ["metadata.version=x"]),
    ],
)
def test_arguments_that_name_no_level(cluster: Cluster, release: str | None, feature: list[str] | None) -> None:
    with pytest.raises(CommandFailed) as caught:
        features.upgrade(release=release, feature=feature, bootstrap=BOOTSTRAP)
    assert caught.value.exit_code == MISUSED and not cluster.asked


def test_levels_have_names(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert features.describe(json=True, bootstrap=BOOTSTRAP) == OK
    rows = {row["feature"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["metadata.version"] == {
        "feature": "metadata.version",
        "level": 30,
        "highest": 33,
        "release": "4.3-IV0",
    }
    assert rows["kraft.version"]["level"] == 0
