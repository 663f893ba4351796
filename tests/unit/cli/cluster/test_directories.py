"""Which nodes `ottla cluster up` brings up, how it is told where they are, what `remove` leaves, and hints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import app
from ottla.cli.cluster import add as cluster_add
from ottla.cli.cluster import claim as cluster_claim
from ottla.cli.cluster import up as cluster_up
from ottla.cli.cluster.up import node_directories, removed_directories
from ottla.cli.exits import MISUSED, OK, CommandFailed
from ottla.protocol.messages import ApiKey
from tests.unit.cli.cluster.test_add import Registrations
from tests.unit.cli.fake_cluster import FakeCluster, serve


def hints(text: str) -> list[list[str]]:
    """The commands that a text names."""
    found = re.findall(r"(?:with|from|first|by|see): (ottla [^\n;]*)", text)
    return [shlex.split(each)[1:] for each in found]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The nodes of each `cluster up` and `cluster add`; none of them really starts."""
    found: list[list[int]] = []

    class Fake:
        def __init__(self, nodes: list[Any], **more: Any) -> None:
            found.append([each.node_id for each in nodes])

        def run(self) -> int:
            return OK

    monkeypatch.setattr("ottla.server.supervisor.Supervisor", Fake)
    return found


@pytest.fixture
def cluster(
    tmp_path: Path, started: list[list[int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> FakeCluster:
    """Four nodes in the directory "my shop", the last of which was stopped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster_claim.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(cluster_add, "describe_settings", lambda bootstrap, resource: [])
    app.run(["cluster", "up", "4", "my shop"])
    assert started.pop() == [1, 2, 3, 4]
    found = serve(monkeypatch, FakeCluster(ids=[1, 2, 3, 4], fenced={4}))
    meta = (tmp_path / "my shop" / "node-1" / "data" / "meta.properties").read_text()
    found.cluster_id = re.findall(r"cluster.id=(.*)", meta)[0]
    found.directory = str(tmp_path / "my shop" / "node-1" / "data")
    monkeypatch.setenv("OTTLA_BOOTSTRAP", found.bootstrap)

    def unregister(values: Any) -> dict[str, Any]:
        found.ids.remove(values["broker_id"])
        return {"error_code": 0, "error_message": None}

    found.answers[ApiKey.UNREGISTER_BROKER] = unregister
    Registrations(found)
    return found


def refused(*arguments: str) -> str:
    with pytest.raises(CommandFailed) as failure:
        app.run(list(arguments))
    assert failure.value.exit_code == MISUSED
    return str(failure.value)


def test_what_was_removed_stays_out(
    cluster: FakeCluster, started: list[list[int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app.run(["cluster", "remove", "4"])
    said = capsys.readouterr().out
    assert "broker 4 is no longer part of this cluster" in said and f"{tmp_path}/my shop/node-4 stays" in said
    assert sorted(node_directories(tmp_path / "my shop")) == [1, 2, 3]
    assert sorted(removed_directories(tmp_path / "my shop")) == [4]
    for arguments in (["3", "my shop"], ["my shop"]):
        assert app.run(["cluster", "up", *arguments]) == OK
        assert started.pop() == [1, 2, 3]
    said = refused("cluster", "up", "4", "my shop")
    assert "has 3 nodes, not 4: omit the number" in said
    up, add = hints(said)
    assert app.run(up) == OK and started.pop() == [1, 2, 3]
    assert add == ["cluster", "add", "my shop/node-5"], "the directory of the removed one is not taken for another"
    assert app.run(add) == OK and started.pop() == [5]
    (again,) = hints("with: " + (tmp_path / "my shop" / "node-4" / "removed").read_text().splitlines()[1])
    assert app.run(again) == OK and started.pop() == [4], "whoever says so brings it back"
    assert app.run(["cluster", "up", "my shop"]) == OK and started.pop() == [1, 2, 3, 4, 5]


def test_a_directory_of_another_cluster_is_not_marked(cluster: FakeCluster, tmp_path: Path) -> None:
    """The brokers may be on other machines, where the same path is another thing."""
    cluster.cluster_id = "other"
    app.run(["cluster", "remove", "4"])
    assert sorted(node_directories(tmp_path / "my shop")) == [1, 2, 3, 4]


def test_the_first_argument_is_a_number_or_a_directory(
    started: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, directory, nodes in (
        ([], "ottla-cluster", 3),
        (["2"], "ottla-cluster", 2),
        (["1", "a"], "a", 1),
        (["b"], "b", 3),
        (["./3"], "3", 3),
    ):
        if directory == "ottla-cluster" and nodes == 2:
            assert "has 3 nodes, not 2" in refused("cluster", "up", *arguments)
            continue
        app.run(["cluster", "up", *arguments])
        assert started.pop() == list(range(1, nodes + 1))
        assert len(node_directories(tmp_path / directory)) == nodes
    assert "'shop' is not a number" in refused("cluster", "up", "shop", "more")
    assert "from 1 to 100, not 0" in refused("cluster", "up", "0", "c")
    assert "from 1 to 100, not -1" in refused("cluster", "up", "--", "-1", "c")
    assert not (tmp_path / "c").exists()


SOURCES = Path(app.__file__).parent


def test_commands_that_messages_name_are_there() -> None:
    """Commands named in all files of the command line: a noun and its verb, as somebody copies them from the screen."""
    application = app.application()
    named: set[tuple[str, str]] = set()
    for path in SOURCES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        named.update(re.findall(r"(?:with|from|first|by|see): ottla ([a-z]+) ([a-z]+)", text))
        named.update(re.findall(r"asked_at\(f?['\"]ottla ([a-z]+) ([a-z]+)", text))
    assert {("cluster", "add"), ("cluster", "balance"), ("cluster", "describe"), ("quorum", "describe")} <= named
    for noun, verb in named:
        chain, _, _ = application.parse_commands([noun, verb])
        assert chain[0] == noun and (len(chain) == 2 or noun in ("consume", "produce", "check", "sql")), (noun, verb)


def test_nodes_that_everybody_could_use_are_not_made(started: list[list[int]], tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"allow it: --set ottla\.allow\.open\.listeners=true") as refused:
        cluster_up.up("1", tmp_path / "c", port=0, set=["ottla.http.listener=:9404"])
    assert refused.value.exit_code == MISUSED
    assert not started and node_directories(tmp_path / "c") == {}
