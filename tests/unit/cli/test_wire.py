"""Connections of commands say which node they mean (KIP-1242): a port that another cluster has got is not used."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ottla.cli import wire
from ottla.cli.cluster.members import members
from ottla.cli.exits import FAILED, OK, UNREACHABLE, CommandFailed
from ottla.cli.main import main
from ottla.client.connection import OtherNode
from ottla.model import MeantNode
from ottla.protocol.messages import ApiKey
from ottla.testing import Broker
from peers.kafka import hold_port

LISTING = {"states_filter": []}


@pytest.fixture(scope="module")
def others() -> Iterator[Broker]:
    """The broker of another cluster."""
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def misled(others: Broker) -> Iterator[str]:
    """Where a broker listens whose address, as its cluster names it, is that of the other cluster's broker."""
    with hold_port() as held:
        port = held.getsockname()[1]
        with Broker({"advertised.listeners": f"PLAINTEXT://{others.bootstrap}"}, port=port):
            yield f"127.0.0.1:{port}"


def test_a_node_that_a_cluster_has_named_is_meant(others: Broker) -> None:
    (node,) = members(others.bootstrap).running
    metadata = wire.ask(others.bootstrap, ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
    for address in (node.address, wire.broker_addresses(metadata)[node.id]):
        assert isinstance(address, wire.NodeAddress) and address == others.bootstrap
        assert address.meant == MeantNode(metadata["cluster_id"], node.id)
        assert wire.ask(address, ApiKey.LIST_GROUPS, LISTING)["groups"] == []


def test_another_node_at_its_address_is_refused(others: Broker) -> None:
    (node,) = members(others.bootstrap).running
    assert node.cluster_id is not None
    for meant in (MeantNode("AAAAAAAAAAAAAAAAAAAAAA", node.id), MeantNode(node.cluster_id, 77)):
        address = wire.NodeAddress("127.0.0.1", others.port, meant)
        with pytest.raises(OtherNode, match=f"another node has the address of {meant}"):
            wire.Link(address)
        with pytest.raises(
            CommandFailed, match=f"another node has the address of {meant}, and was not used"
        ) as failure:
            wire.ask(address, ApiKey.LIST_GROUPS, LISTING)
        assert failure.value.exit_code == UNREACHABLE
        assert "ottla cluster describe" in str(failure.value)
    assert wire.ask(others.bootstrap, ApiKey.LIST_GROUPS, LISTING)["groups"] == [], "--bootstrap means whoever answers"


def test_addresses() -> None:
    assert wire.node_address("::1", 9092, 1, "c") == "[::1]:9092"
    assert type(wire.node_address("host", 9092, 1, None)) is str, "a cluster that has not said its id"


@pytest.mark.parametrize("command", ["config get --broker 1", "config set num.io.threads=3 --broker 1"])
def test_commands_do_not_use_it(misled: str, others: Broker, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([*command.split(), "--bootstrap", misled]) == UNREACHABLE
    said = capsys.readouterr().err
    assert f"{others.bootstrap}: another node has the address of node 1 of cluster " in said
    assert main(["config", "get", "num.io.threads", "--broker", "1", "--json", "--bootstrap", others.bootstrap]) == OK
    assert '"8"' in capsys.readouterr().out


def test_commands_that_ask_every_broker_say_which_one_is_another(
    misled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "describe", "--json", "--bootstrap", misled]) == OK
    (broker,) = json.loads(capsys.readouterr().out)["brokers"]
    (failure,) = broker["failures"]
    assert "another node has the address of node 1 of cluster" in failure and broker["bytes"] is None
    assert main(["cluster", "api-versions", "--bootstrap", misled]) == FAILED
    assert "another node has the address of node 1 of cluster" in capsys.readouterr().err
