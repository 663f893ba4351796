"""`ottla cluster api-versions`: brokers with different versions, brokers that do not answer, APIs that nobody knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.cli import wire
from ottla.cli.cluster.api_versions import api_versions, name_of, used
from ottla.cli.exits import FAILED, OK
from tests.unit.cli.fake_cluster import FakeCluster, serve

OLD = {0: (3, 11), 18: (0, 4)}
NEW = {0: (3, 13), 18: (0, 9), 94: (0, 0), 19_999: (0, 2), 20_000: (0, 0)}


def at(monkeypatch: pytest.MonkeyPatch, versions: Mapping[int, Mapping[int, tuple[int, int]]]) -> None:
    """From now on brokers answer with these versions; others are not there."""

    class Link:
        def __init__(self, address: str, *rest: Any) -> None:
            number = int(address.rpartition(":")[2]) - 9000
            if number not in versions:
                raise ConnectionRefusedError("Connection refused")
            self.versions = versions[number]

        def close(self) -> None:
            pass

    monkeypatch.setattr(wire, "Link", Link)


def test_brokers_that_are_alike_are_shown_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = serve(monkeypatch, FakeCluster(ids=[1, 2, 3, 4], fenced={4}))
    at(monkeypatch, {1: NEW, 2: OLD, 3: NEW})
    assert api_versions(bootstrap=cluster.bootstrap) == OK
    assert capsys.readouterr().out.splitlines() == [
        "brokers 1 (127.0.0.1:9001), 3 (127.0.0.1:9003)",
        "    KEY  API                   VERSIONS  USED",
        "      0  Produce               3-13        13",
        "     18  ApiVersions           0-9          5",
        "     94  UnregisterController  0            0",
        "  19999                        0-2",
        "  20000  ListClients           0            0",
        "",
        "broker 2 (127.0.0.1:9002)",
        "  KEY  API          VERSIONS  USED",
        "    0  Produce      3-11        11",
        "   18  ApiVersions  0-4          4",
        "fenced: broker 4 (127.0.0.1:9004), which is not running or cannot be reached",
    ]


def test_a_broker_that_does_not_answer_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = serve(monkeypatch, FakeCluster(ids=[1, 2, 3], fenced={3}))
    at(monkeypatch, {1: OLD})
    assert api_versions(json=True, bootstrap=cluster.bootstrap) == FAILED
    printed = capsys.readouterr()
    assert printed.err == "ottla: broker 2 at 127.0.0.1:9002: Connection refused\n"
    apis = [
        {"key": 0, "api": "Produce", "min": 3, "max": 11, "used": 11},
        {"key": 18, "api": "ApiVersions", "min": 0, "max": 4, "used": 4},
    ]
    rows = [(1, apis, None, False), (2, [], "Connection refused", False), (3, [], None, True)]
    assert json.loads(printed.out) == [
        {
            "broker": number,
            "address": f"127.0.0.1:{9000 + number}",
            "rack": None,
            "fenced": fenced,
            "failure": why,
            "apis": found,
        }
        for number, found, why, fenced in rows
    ]


def test_controllers_are_asked_at_their_own_addresses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = serve(monkeypatch, FakeCluster(ids=[1, 2]))
    asked: list[Mapping[str, Any]] = []
    answer = wire.ask

    def ask(bootstrap: str, key: Any, values: Mapping[str, Any], *rest: Any) -> dict[str, Any]:
        asked.append({"at": bootstrap, **values})
        return answer(bootstrap, key, values, *rest)

    monkeypatch.setattr(wire, "ask", ask)
    at(monkeypatch, {1: OLD})
    assert api_versions(bootstrap="127.0.0.1:1", bootstrap_controller=cluster.bootstrap) == FAILED
    assert [(each["at"], each["endpoint_type"]) for each in asked] == [(cluster.bootstrap, 2)]
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == "controller 1 (127.0.0.1:9001)"
    assert printed.err == "ottla: controller 2 at 127.0.0.1:9002: Connection refused\n"


def test_the_version_that_is_used() -> None:
    assert used(18, (0, 3)) == 3
    assert used(18, (0, 99)) == 5, "the newest of this release"
    assert used(18, (6, 99)) is None, "newer than this release"
    assert used(0, (0, 2)) is None, "older than Kafka 4.0 (KIP-896)"
    assert used(19_999, (0, 0)) is None
    assert name_of(19_999) is None
