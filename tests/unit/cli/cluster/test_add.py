"""How nodes that are added at once come by ids and ports of their own, and what becomes of one that comes by none."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.cluster import add as cluster_add
from ottla.cli.cluster import claim as cluster_claim
from ottla.cli.cluster.claim import Claim, claim, one_at_a_time
from ottla.cli.cluster.up import node_config
from ottla.cli.exits import MISUSED, CommandFailed
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import Endpoint
from ottla.protocol.messages import ApiKey
from ottla.server.main import _refused
from ottla.server.supervisor import Supervised
from tests.unit.cli.fake_cluster import BOOTSTRAP, FakeCluster, serve

HERE = {"PLAINTEXT": Endpoint("127.0.0.1", 9004)}


class Registrations:
    """What the controller makes of registrations: a later one with another incarnation wins until the first heartbeat,
    and then is refused (KIP-631)."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.incarnations: dict[int, Any] = {}
        self.epochs: dict[int, int] = {}
        self.sessions: set[int] = set()
        self.between: Callable[[], None] = lambda: None
        """What others do between a registration and its heartbeat."""
        cluster.answers[ApiKey.BROKER_REGISTRATION] = self.register
        cluster.answers[ApiKey.BROKER_HEARTBEAT] = self.beat

    def register(self, values: Mapping[str, Any]) -> dict[str, Any]:
        broker, incarnation = values["broker_id"], values["incarnation_id"]
        assert values["cluster_id"] == self.cluster.cluster_id and values["listeners"] and values["log_dirs"]
        if broker in self.sessions and self.incarnations[broker] != incarnation:
            return {"error_code": ErrorCode.duplicate_broker_registration, "broker_epoch": -1}
        self.incarnations[broker] = incarnation
        self.epochs[broker] = self.epochs.get(broker, 0) + 1
        return {"error_code": 0, "broker_epoch": self.epochs[broker]}

    def beat(self, values: Mapping[str, Any]) -> dict[str, Any]:
        assert values["want_fence"]
        between, self.between = self.between, lambda: None
        between()
        if self.epochs[values["broker_id"]] != values["broker_epoch"]:
            return {"error_code": ErrorCode.stale_broker_epoch}
        self.sessions.add(values["broker_id"])
        return {"error_code": 0}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return serve(monkeypatch, FakeCluster())


def test_one_of_several_has_an_id(cluster: FakeCluster) -> None:
    controller = Registrations(cluster)
    first = claim(cluster.bootstrap, "cluster", 4, HERE)
    assert first is not None and controller.incarnations[4] == first.incarnation_id
    assert claim(cluster.bootstrap, "cluster", 4, HERE) is None
    assert claim(cluster.bootstrap, "cluster", 5, HERE) is not None


def test_who_registers_and_is_overtaken_before_its_heartbeat_has_no_id(cluster: FakeCluster) -> None:
    controller = Registrations(cluster)
    winners: list[Claim | None] = []
    controller.between = lambda: winners.append(claim(cluster.bootstrap, "cluster", 4, HERE))
    assert claim(cluster.bootstrap, "cluster", 4, HERE) is None
    assert winners == [Claim(controller.incarnations[4])]


def test_the_controller_moves_meanwhile(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Registrations(cluster)
    refused = iter([ErrorCode.not_controller, ErrorCode.not_controller])
    monkeypatch.setattr(cluster_claim.time, "sleep", lambda seconds: None)

    def register(values: Mapping[str, Any]) -> dict[str, Any]:
        code = next(refused, None)
        return controller.register(values) if code is None else {"error_code": code, "broker_epoch": -1}

    cluster.answers[ApiKey.BROKER_REGISTRATION] = register
    assert claim(cluster.bootstrap, "cluster", 4, HERE) is not None
    cluster.answers[ApiKey.BROKER_REGISTRATION] = lambda values: {"error_code": ErrorCode.unsupported_version}
    with pytest.raises(CommandFailed, match="node 4 cannot be registered"):
        claim(cluster.bootstrap, "cluster", 4, HERE)


def joined(cluster: FakeCluster, directory: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """What `ottla cluster add` did before it runs the node."""
    found: list[Any] = []
    monkeypatch.setattr(cluster_add, "_run", lambda directory, joined, bootstrap, release: found.append(joined) or 0)
    monkeypatch.setattr(cluster_claim.tempfile, "gettempdir", lambda: str(directory.parent))
    monkeypatch.setattr(cluster_add, "describe_settings", lambda bootstrap, resource: [])
    cluster_add.add(directory, bootstrap=cluster.bootstrap, **options)
    return found[0]


def test_ids_that_are_taken_are_passed_over_before_anything_is_written(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = Registrations(cluster)
    for taken in (4, 5):
        assert claim(cluster.bootstrap, "cluster", taken, HERE) is not None
        controller.between = lambda: None
    done = joined(cluster, tmp_path / "n", monkeypatch)
    assert node_config(tmp_path / "n").node_id == 6
    assert done.incarnation_id == controller.incarnations[6]
    said = capsys.readouterr().out
    assert "id 4 was taken by another node meanwhile\n" in said and "id 5 was taken" in said
    assert f"node 6 in {tmp_path}/n, at 127.0.0.1:" in said
    assert not (tmp_path / "n" / "data").exists(), "the node formats it"


def test_a_node_that_everybody_could_use_claims_no_id(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Registrations(cluster)
    with pytest.raises(CommandFailed, match=r"PLAINTEXT port 9092 is bound to 10\.1\.2\.3") as refused:
        joined(cluster, tmp_path / "n", monkeypatch, listen="10.1.2.3:9092")
    assert refused.value.exit_code == MISUSED
    assert not (tmp_path / "n").exists() and not controller.incarnations
    joined(cluster, tmp_path / "n", monkeypatch, listen="10.1.2.3:9092", set=["ottla.allow.open.listeners=true"])
    assert node_config(tmp_path / "n")["ottla.allow.open.listeners"]


def test_an_id_that_was_asked_for_and_is_taken_leaves_nothing_behind(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Registrations(cluster)
    assert claim(cluster.bootstrap, "cluster", 7, HERE) is not None
    for taken in (2, 7):  # registered, and taken meanwhile
        with pytest.raises(CommandFailed, match=f"node {taken} belongs to the cluster already") as refused:
            joined(cluster, tmp_path / "n", monkeypatch, node_id=taken)
        assert refused.value.exit_code == MISUSED
    assert not (tmp_path / "n").exists()


def test_settings_that_no_node_takes_claim_nothing(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Registrations(cluster)
    with pytest.raises(CommandFailed, match=r"num\.partitions"):
        joined(cluster, tmp_path / "n", monkeypatch, set=["num.partitions=x"])
    assert controller.incarnations == {} and not (tmp_path / "n").exists()


def test_the_incarnation_is_of_the_first_process_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later process with it would be taken for the same one, which has not been away."""
    made: list[Supervised] = []

    class Fake:
        def __init__(self, nodes: list[Supervised], **more: Any) -> None:
            made.extend(nodes)

        def run(self) -> int:
            return 0

    monkeypatch.setattr("ottla.server.supervisor.Supervisor", Fake)
    (tmp_path / "server.properties").write_text("node.id=4\nlisteners=PLAINTEXT://127.0.0.1:9004\n")
    incarnation = cluster_claim.uuid4()
    cluster_add._run(tmp_path, cluster_add.Joined(incarnation), BOOTSTRAP)
    (node,) = made
    name = "ottla.broker.incarnation.id"
    assert node.first is not None and node.first[name] == str(incarnation)
    assert node.config[name] is None


def test_nodes_of_one_machine_are_added_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_claim.tempfile, "gettempdir", lambda: str(tmp_path))
    said: list[str] = []
    waits = 0

    def sleep(seconds: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            release()

    monkeypatch.setattr(cluster_claim.time, "sleep", sleep)
    with one_at_a_time(said.append) as release, one_at_a_time(said.append):
        assert (waits, said) == (3, ["waiting for another node to be added on this machine"])
        descriptor = os.open(next(tmp_path.iterdir()), os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


@pytest.mark.parametrize("code", [ErrorCode.duplicate_broker_registration, ErrorCode.stale_broker_epoch])
def test_a_node_whose_id_another_process_has_says_so(code: ErrorCode) -> None:
    said = _refused(4, KafkaError(code, "Another broker is registered with that broker id."))
    assert "the cluster refused node 4" in said and "another process runs with node.id=4" in said


def test_the_id_is_that_of_the_directory_where_nobody_has_it(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the one before was removed: its directory may be there still."""
    Registrations(cluster)
    for name, expected in (("node-9", 9), ("node-2", 4), ("other", 4)):
        cluster.asked.clear()
        Registrations(cluster)
        joined(cluster, tmp_path / name, monkeypatch)
        assert node_config(tmp_path / name).node_id == expected


def test_controllers_that_cannot_be_asked(cluster: FakeCluster) -> None:
    """Before Kafka 3.7: as it was, the next id that nobody is registered with."""
    cluster.answers[ApiKey.API_VERSIONS] = lambda values: {"error_code": 0, "api_keys": []}
    assert claim(cluster.bootstrap, "cluster", 4, HERE) == Claim(None)
