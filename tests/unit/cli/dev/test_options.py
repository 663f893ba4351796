"""`ottla dev`: which ports it takes, and what its options may be."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from ottla.cli.dev import command as dev
from ottla.cli.exits import MISUSED, CommandFailed

PLAN: dict[str, Any] = {
    "port": 0, "registry_port": None, "http_port": 0, "listen": "127.0.0.1", "advertise": None, "no_registry": True,
}  # fmt: skip


def plan(**changes: Any) -> dev.Plan:
    given = {**PLAN, **changes}
    return dev._plan(**{name: given[name] for name in PLAN})


def test_the_usual_port_if_it_is_free_else_any() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert dev._port("127.0.0.1", None, port, "--port", set()) == 0
    assert dev._port("127.0.0.1", None, port, "--port", set()) == port
    assert dev._port("127.0.0.1", None, port, "--http-port", {port}) == 0
    with pytest.raises(CommandFailed, match=f"port {port} is taken"):
        dev._port("127.0.0.1", port, 1, "--http-port", {port})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("orders", ("orders", -1)), ("orders:3", ("orders", 3))],
)
def test_topics(text: str, expected: tuple[str, int]) -> None:
    found = dev._topic(text)
    assert (found["name"], found["num_partitions"]) == expected


@pytest.mark.parametrize("text", ["", ":3", "a/b", "orders:", "orders:0", "orders:x", "orders:-1", "orders:³"])
def test_no_topics(text: str) -> None:
    with pytest.raises(CommandFailed) as failure:
        dev._topic(text)
    assert failure.value.exit_code == MISUSED


def test_listeners() -> None:
    assert plan().settings()["listeners"] == "PLAINTEXT://127.0.0.1:0"
    assert plan(listen="0.0.0.0").settings()["advertised.listeners"] == "PLAINTEXT://127.0.0.1:0"
    both = plan(advertise="host.docker.internal:0").settings()
    assert both["listeners"] == "PLAINTEXT://127.0.0.1:0,CONTAINERS://0.0.0.0:0"
    assert both["advertised.listeners"] == "PLAINTEXT://127.0.0.1:0,CONTAINERS://host.docker.internal:0"
    assert [each["ottla.allow.open.listeners"] for each in (plan().settings(), both)] == ["false", "true"]
    six = plan(listen="::1", advertise="[fd00::1]:0").settings()
    assert six["advertised.listeners"] == "PLAINTEXT://[::1]:0,CONTAINERS://[fd00::1]:0"


@pytest.mark.parametrize("text", ["", "http://x", "host:x", "host:70000", ":9092", "a b", "a,b"])
def test_no_host_to_advertise(text: str) -> None:
    with pytest.raises(CommandFailed, match="--advertise wants HOST or HOST:PORT"):
        plan(advertise=text)


def test_what_contradicts_itself() -> None:
    assert plan(registry_port=0).registry_port is None
    with pytest.raises(CommandFailed, match="ottla dev sets listeners itself: use --port"):
        dev.dev(set=["listeners=PLAINTEXT://:1"])
