"""What a node says of the ports at which other machines reach it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.compiled import how
from ottla.config.server import ServerConfig
from ottla.errors import OttlaError
from ottla.server.listeners.exposure import EVERYONE, open_ports, refuse_open_ports, warnings
from ottla.server.main import announce

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
EVERYWHERE = "port 9092 is bound to every interface, not only to the loopback address"


def started(**settings: str) -> Any:
    """A node that listens at these addresses, and was given port 9092 where any was asked for."""
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    config = ServerConfig.load(overrides={"log.dirs": "/data", **overrides}, host_name=lambda: "localhost")
    return SimpleNamespace(config=config, ports={each.name: each.port or 9092 for each in config.listeners}, http=None)


@pytest.mark.parametrize(
    ("listeners", "places"),
    [
        ("PLAINTEXT://127.0.0.1:9092", []),
        ("PLAINTEXT://127.0.0.9:9092", []),
        ("PLAINTEXT://[::1]:9092", []),
        ("PLAINTEXT://localhost:9092", []),
        ("PLAINTEXT://:9092", [("", 9092, "PLAINTEXT")]),
        ("PLAINTEXT://:0", [("", 9092, "PLAINTEXT")]),
        ("PLAINTEXT://0.0.0.0:9092", [("", 9092, "PLAINTEXT")]),
        ("PLAINTEXT://[::]:9092", [("", 9092, "PLAINTEXT")]),
        ("PLAINTEXT://10.1.2.3:9092", [("10.1.2.3", 9092, "PLAINTEXT")]),
        ("PLAINTEXT://somewhere:9092", [("somewhere", 9092, "PLAINTEXT")]),
    ],
)
def test_which_ports_are_open(listeners: str, places: list[tuple[str, int, str]]) -> None:
    node = started(listeners=listeners, advertised_listeners="PLAINTEXT://127.0.0.1:9092")
    assert open_ports(node.config, node.ports) == places
    assert len(warnings(places)) == (2 if places else 0)


@pytest.mark.parametrize(
    ("settings", "is_open"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, True),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092"}, False),
        ({"listeners": "PLAINTEXT://:9092", "ottla_allow_open_listeners": "true"}, False),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092", "ottla_http_listener": ":9644"}, True),
    ],
)
def test_a_start_with_open_ports_is_refused(settings: dict[str, str], is_open: bool) -> None:
    config = started(**settings, advertised_listeners="PLAINTEXT://127.0.0.1:9092").config
    if not is_open:
        refuse_open_ports(config)
        return
    with pytest.raises(OttlaError, match=r"allow it: --set ottla\.allow\.open\.listeners=true"):
        refuse_open_ports(config)


def test_the_line_of_a_start_says_both(capsys: pytest.CaptureFixture[str]) -> None:
    node = started(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://127.0.0.1:9092")
    asyncio.run(announce(node, asyncio.Event()))
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == f"ottla: listening on 127.0.0.1:9092, data in /data ({how()})"
    assert (second, third) == (f"  PLAINTEXT {EVERYWHERE}", f"  {EVERYONE}")
    node = started(listeners="PLAINTEXT://127.0.0.1:9092")
    asyncio.run(announce(node, asyncio.Event()))
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_the_ports_for_other_nodes_and_for_metrics_count_too() -> None:
    node = started(
        node_id="1",
        listeners="PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093",
        controller_listener_names="CONTROLLER",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        process_roles="broker,controller",
        controller_quorum_voters="1@127.0.0.1:9093",
        ottla_http_listener=":9644",
    )
    assert [each[1:] for each in open_ports(node.config, node.ports)] == [(9093, "CONTROLLER"), (9644, "HTTP")]


@pytest.mark.parametrize(
    ("changes", "is_open"),
    [
        ({}, False),
        ({"ottla.sasl.oauthbearer.unsecured.tokens": "true"}, True),
        ({"ottla.sasl.oauthbearer.unsecured.tokens": "true", "sasl.enabled.mechanisms": "PLAIN"}, False),
        ({"ottla.sasl.oauthbearer.unsecured.tokens": "true", "authorizer.class.name": AUTHORIZER}, True),
        (
            {
                "ottla.sasl.oauthbearer.unsecured.tokens": "true",
                "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
            },
            False,
        ),
    ],
)
def test_a_login_that_believes_anyone_keeps_nobody_out(changes: dict[str, str], is_open: bool) -> None:
    """With unsigned tokens everybody who reaches the port can be a super user."""
    settings = {
        "listeners": "SASL_PLAINTEXT://:9092",
        "advertised.listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "super.users": "User:admin",
        **changes,
    }
    config = ServerConfig.load(overrides={"log.dirs": "/data", **settings}, host_name=lambda: "localhost")
    found = open_ports(config, {})
    assert [each[2] for each in found] == (["SASL_PLAINTEXT"] if is_open else [])
