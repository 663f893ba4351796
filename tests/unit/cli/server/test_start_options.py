"""`ottla server start`: its options, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.server.start import StartOptions, load_config, load_configs, parse
from ottla.errors import OttlaError


def test_every_option_in_both_spellings() -> None:
    arguments = ["data", "--config", "f.properties", "--set", "a=b=c", "--set=d=", "--listen=127.0.0.1:1234"]
    expected = StartOptions("data", "f.properties", {"a": "b=c", "d": ""}, "127.0.0.1:1234")
    assert parse(arguments) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set"],
        ["--set", "novalue"],
        ["--set", "=x"],
        ["--listen", "9092"],
        ["--listen", "host:x"],
        ["--what"],
        ["a", "b"],
    ],
)
def test_a_mistake_says_so(arguments: list[str]) -> None:
    with pytest.raises(CommandFailed) as failure:
        parse(arguments)
    assert failure.value.exit_code == MISUSED


def test_directory_and_listener_become_settings() -> None:
    config = load_config(parse(["/some/where", "--listen", "127.0.0.1:1234", "--http", ":9404"]), {})
    assert config["ottla.http.listener"] == ":9404"
    assert config.log_dirs == ("/some/where",)
    assert [(listener.host, listener.port) for listener in config.listeners] == [("127.0.0.1", 1234)]


def test_command_line_wins_over_environment() -> None:
    config = load_config(parse(["--set", "num.partitions=4"]), {"OTTLA_NUM_PARTITIONS": "3", "OTTLA_LOG_DIRS": "/env"})
    assert config["num.partitions"] == 4
    assert config.log_dirs == ("/env",)


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(OttlaError, match="cannot read the configuration file /nowhere: No such file"):
        load_config(parse(["--config", "/nowhere"]), {})


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(OttlaError, match=r"no\.such\.setting"):
        load_config(parse(["--set", "no.such.setting=1"]), {})


def test_a_starting_node_loads_no_command_line_library() -> None:
    code = (
        "import sys, ottla.cli.main as m\n"
        "assert m.main(['server', 'start', '--set', 'num.partitions=0']) == 2\n"
        "print(*sorted({'cyclopts', 'rich', 'confluent_kafka'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
    assert "num.partitions=0" in result.stderr


def texts(*arguments: str, environ: dict[str, str] | None = None) -> list[dict[str, str]]:
    return [dict(each.static) for each in load_configs(parse(arguments), environ or {})]


def test_several_nodes_are_a_cluster_of_their_own() -> None:
    found = texts("/data", "--nodes", "4", "--listen", "127.0.0.1:7000", "--http", "127.0.0.1:9404")
    assert [each["node.id"] for each in found] == ["1", "2", "3", "4"]
    assert [each["process.roles"] for each in found] == ["broker,controller"] * 3 + ["broker"]
    assert [each["log.dirs"] for each in found] == [f"/data/node-{n}" for n in range(1, 5)]
    assert found[1]["listeners"] == "PLAINTEXT://127.0.0.1:7001,CONTROLLER://127.0.0.1:17001"
    assert found[3]["listeners"] == "PLAINTEXT://127.0.0.1:7003"
    assert {each["controller.quorum.voters"] for each in found} == {
        "1@127.0.0.1:17000,2@127.0.0.1:17001,3@127.0.0.1:17002"
    }
    assert [each["ottla.http.listener"] for each in found] == [f"127.0.0.1:{port}" for port in range(9404, 9408)]
    assert {each["default.replication.factor"] for each in found} == {"3"}
    assert len({each["broker.rack"] for each in found}) == 1


def test_what_was_said_counts_for_each_node() -> None:
    settings = ("--set", "default.replication.factor=2", "--set", "broker.rack=r7", "--set", "node.id=10")
    found = texts("--nodes", "3", *settings, environ={"OTTLA_MIN_INSYNC_REPLICAS": "1"})
    assert [each["node.id"] for each in found] == ["10", "11", "12"]
    assert {(each["default.replication.factor"], each["min.insync.replicas"]) for each in found} == {("2", "1")}
    assert {each["broker.rack"] for each in found} == {"r7"}
    assert found[0]["controller.quorum.voters"].startswith("10@127.0.0.1:19092,11@")


def test_several_brokers_join_a_quorum() -> None:
    joins = (
        "process.roles=broker",
        "controller.quorum.bootstrap.servers=127.0.0.1:9093",
        "node.id=5",
        "controller.listener.names=CONTROLLER",
        "listeners=PLAINTEXT://127.0.0.1:7000",
    )
    found = texts("/data", "--nodes", "2", *(part for each in joins for part in ("--set", each)))
    assert [each["node.id"] for each in found] == ["5", "6"]
    assert [each["listeners"] for each in found] == ["PLAINTEXT://127.0.0.1:7000", "PLAINTEXT://127.0.0.1:7001"]
    assert {each["process.roles"] for each in found} == {"broker"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--nodes", "0"], "--nodes must be a whole number from 1 to 100, not '0'"),
        (["--nodes", "two"], "--nodes must be"),
        (["--nodes"], "--nodes needs a value"),
        (["--nodes", "2", "--listen", "127.0.0.1:0"], "which must not be 0"),
        (["--nodes", "9", "--listen", "127.0.0.1:65530"], "too few ports"),
        (["--nodes", "2", "--set", "controller.quorum.voters=1@a:1"], "name one already"),
    ],
)
def test_nodes_that_cannot_be(arguments: list[str], sentence: str) -> None:
    with pytest.raises(CommandFailed, match=sentence) as failed:
        texts(*arguments)
    assert failed.value.exit_code == MISUSED
