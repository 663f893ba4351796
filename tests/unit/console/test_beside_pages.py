"""Pages of what runs beside the brokers, and of all brokers' settings: pipelines, mirrors, settings."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.client.config import ClientConfig
from ottla.console import hung
from ottla.console.asking import Asking, NotFound, Site, User
from ottla.console.masks import Masks
from ottla.console.routes import PAGES
from ottla.console.snapshots import Snapshots
from ottla.console.views import pipelines
from ottla.errors import ErrorCode
from ottla.pipelines.runner.state import Directory, QueryStatus, Status
from ottla.testing import Broker
from tests.unit.console.fake_cluster import FakeBrokers, user

LIMIT_S = 3.0
"""What waiting once takes on a busy machine."""
BY_NAME = {each.name: each for each in PAGES}


def shown(brokers: FakeBrokers, page: str, directory: Path | None = None, **query: str) -> tuple[Any, Asking]:
    asking = Asking(user(brokers), Site(Masks(), pipelines=directory), BY_NAME[page].parameters({}, query))
    return BY_NAME[page].view(asking), asking


class Refusing(FakeBrokers):
    def list_partition_reassignments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"error_code": ErrorCode.cluster_authorization_failed, "topics": []}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A pipeline that runs, and one whose process has gone."""
    running, gone = Directory(tmp_path, "mirror"), Directory(tmp_path, "totals")
    query = QueryStatus("copy", rows=2**60, batch=4, rows_per_s=12.5, lag_records=7, lag_s=1.5, error="late")
    with running.locked():
        running.write(
            Status("mirror", "running", 1, "2026-11-28T09:00:00Z", settings={"password": "cAnArY"}, queries=[query])
        )
        gone.path.mkdir()
        gone.write(Status("totals", "running", dead_letters=3, queries=[QueryStatus("q")]))
        yield tmp_path


def test_pipelines(directory: Path) -> None:
    page, asking = shown(FakeBrokers(), "pipelines", directory)
    assert asking.problems == {}
    assert [(each.name, each.state, each.is_bad, each.dead_letters) for each in page.rows] == [
        ("mirror", "running", False, "0"),
        ("totals", "died", True, "3"),
    ]
    (query,) = page.rows[0].queries
    assert (query.rows, query.batch, query.lag, query.behind_s) == (str(2**60), 4, "7", 1.5)
    assert page.rows[1].queries[0].batch is None
    assert "cAnArY" not in repr(page)


def test_pipelines_need_the_right_to_see_the_cluster(directory: Path) -> None:
    page, asking = shown(Refusing(), "pipelines", directory)
    assert (page.rows, page.directory) == ([], "")
    assert asking.problems["pipelines"].right == "Describe on the cluster"
    page, asking = shown(Refusing(["mirror-offsets.a"]), "mirror", directory, source="a")
    assert page.runs == []


def test_a_status_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "status.json").write_text("{")
    page, asking = shown(FakeBrokers(), "pipelines", tmp_path)
    assert page.rows == []
    assert "cannot be read" in asking.problems["pipelines"].sentence


def test_a_disk_that_hangs_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By all users together, and it is read again when it is back."""
    monkeypatch.setattr(hung, "ANSWER_S", 0.3)
    site = Site(Masks(), pipelines=tmp_path)
    (tmp_path / "slow").mkdir()
    status = tmp_path / "slow" / "status.json"
    os.mkfifo(status)  # who opens it to read waits until somebody writes

    def page() -> Asking:
        asking = Asking(user(FakeBrokers()), site, BY_NAME["pipelines"].parameters({}, {}))
        assert BY_NAME["pipelines"].view(asking).rows == []
        return asking

    try:
        for limit_s in (LIMIT_S, hung.ANSWER_S / 2):
            began = time.monotonic()
            assert page().problems["pipelines"].sentence == f"{tmp_path} does not answer: the disk may hang."
            assert time.monotonic() - began < limit_s
    finally:
        status.write_text("{")
    monkeypatch.setattr(hung, "ANSWER_S", LIMIT_S)  # the reading that is under way is waited for
    assert "cannot be read" in page().problems["pipelines"].sentence


@pytest.fixture
def hanging() -> Iterator[str]:
    """The address of a broker that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_mirror_whose_broker_hangs_is_waited_for_once(hanging: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hung, "ANSWER_S", 0.3)
    brokers = FakeBrokers(["mirror-offsets.old"])
    brokers.config = ClientConfig((hanging,), request_timeout_s=3 * hung.ANSWER_S)
    with ThreadPoolExecutor(1) as executor:
        one = User(None, brokers, Snapshots(executor))
        for limit_s in (LIMIT_S, hung.ANSWER_S / 2):
            asking = Asking(one, Site(Masks()), BY_NAME["mirror"].parameters({}, {}))
            began = time.monotonic()
            page = BY_NAME["mirror"].view(asking)
            assert time.monotonic() - began < limit_s
            assert (page.sources, page.rows) == (["old"], [])
            assert "does not answer" in asking.problems["mirror"].sentence


def test_a_mirror_by_its_control_topic(tmp_path: Path) -> None:
    """Beside a broker: only that shows that the topic is read as the mirror writes it."""
    written = {
        '["through","orders",1]': 12,
        '["through","orders",0]': 7,
        '["role","orders"]': "owned",
        '["through","far",0]': 3,
        '["role","old.far"]': "mirror",
        '["moved","g"]': True,
        json.dumps(["made", json.dumps(["acl", "User:ann"])]): True,
    }
    with Broker(topics={"mirror-offsets.old": 1, "orders": 2, "old.far": 1, "mirror-offsets.bad": 1}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for key, value in written.items():
            producer.produce("mirror-offsets.old", json.dumps(value), key)
        producer.produce("mirror-offsets.bad", "{}", "no key")
        assert producer.flush(60) == 0
        names = ["mirror-offsets.old", "mirror-offsets.bad", "orders", "old.far"]
        brokers = FakeBrokers(names)
        brokers.config = ClientConfig((broker.bootstrap,))
        page, asking = shown(brokers, "mirror", tmp_path, source="old")
        assert asking.problems == {}
        assert page.sources == ["bad", "old"]
        assert [(each.topic, each.mirror, each.role, each.copied_to) for each in page.rows] == [
            ("far", "old.far", "mirror", ["3"]),
            ("orders", "orders", "owned", ["7", "12"]),
        ]
        assert (page.owned, page.groups, page.carried) == (1, ["g"], ["acl: User:ann"])
        page, asking = shown(brokers, "mirror", tmp_path, source="bad")
        assert "not a mirror's" in asking.problems["mirror"].sentence
        with pytest.raises(NotFound):
            shown(brokers, "mirror", tmp_path, source="none")


def test_without_a_mirror_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "read_mirror", lambda *_: pytest.fail("there is none"))
    page, asking = shown(FakeBrokers(["t"]), "mirror", tmp_path)
    assert (page.sources, page.source, asking.problems) == ([], "", {})


class Nodes(FakeBrokers):
    """Brokers 1, 2 and 3, of which the last does not answer, with settings of their own."""

    def metadata(self, values: Mapping[str, Any]) -> dict[str, Any]:
        brokers = [{"node_id": node, "host": "h", "port": 1, "rack": None} for node in (1, 2, 3)]
        return {**super().metadata(values), "brokers": brokers}

    def ask(self, node_id: int, key: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        if key.name == "DESCRIBE_CONFIGS" and node_id == 3:
            raise KafkaGone("node 3: connection refused")
        self.node = node_id
        return super().ask(node_id, key, values)

    def gather(self, calls: Any, executor: Any = None) -> list[Any]:
        found: list[Any] = []
        for call in calls:
            try:
                found.append(call())
            except OSError as error:
                found.append(error)
        return found

    def describe_configs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        def row(name: str, value: str, source: int = 4, *, secret: bool = False, fixed: bool = False) -> dict[str, Any]:
            return {
                "name": name,
                "value": value,
                "read_only": fixed,
                "config_source": source,
                "is_sensitive": secret,
                "synonyms": [],
            }

        configs = [
            row("node.id", str(self.node), fixed=True),
            row("num.io.threads", str(7 + self.node)),
            row("log.retention.hours", "168", 5),
            row("compression.type", "lz4", 3),
            row("ssl.key.password", f"cAnArY{self.node}", secret=True),
            *([row("new.setting", "1")] if self.node == 2 else []),
        ]
        result = {"error_code": 0, "resource_type": 4, "resource_name": str(self.node), "configs": configs}
        return {"results": [result]}


class KafkaGone(OSError):
    pass


def test_settings_of_all_brokers() -> None:
    page, asking = shown(Nodes(), "settings")
    assert page.nodes == [1, 2]
    assert "connection refused" in asking.problems["node 3"].sentence
    names = [each.setting.name for each in page.rows]
    assert names == ["new.setting", "num.io.threads", "compression.type", "node.id", "ssl.key.password"]
    by_name = {each.setting.name: each for each in page.rows}
    assert [(each.node, each.value) for each in by_name["num.io.threads"].by_node] == [(1, "8"), (2, "9")]
    assert by_name["new.setting"].missing == [1]
    assert by_name["node.id"].is_expected and by_name["node.id"].by_node
    assert by_name["compression.type"].by_node == []
    assert by_name["num.io.threads"].setting.what
    assert page.different == 2
    assert "cAnArY" not in repr(page)


@pytest.mark.parametrize(
    ("query", "count"), [({"show": "all"}, 6), ({"show": "different"}, 3), ({"q": "RETENTION"}, 1), ({"q": "zzz"}, 0)]
)
def test_settings_are_searched(query: dict[str, str], count: int) -> None:
    assert len(shown(Nodes(), "settings", **query)[0].rows) == count
