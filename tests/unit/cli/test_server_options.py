"""`ottla server start`: its options, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.server import StartOptions, load_config, parse
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
