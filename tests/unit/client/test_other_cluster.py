"""The node that a connection means (KIP-1242): ApiVersions 5 on the wire, and clusters that exchange their ports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.client.cluster import LATEST, Cluster
from ottla.client.config import ClientConfig
from ottla.client.connection import Connection, OtherNode
from ottla.errors import ErrorCode
from ottla.model import MeantNode, TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.testing import Broker

HOST = "127.0.0.1"
AT = TopicPartition("both", 0)


def config_of(broker: Broker) -> ClientConfig:
    return ClientConfig((broker.bootstrap,), request_timeout_s=10)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    with (
        Broker(topics={"both": 1}, keep=tmp_path / "a") as a,
        Broker(topics={"both": 1}, keep=tmp_path / "b") as b,
    ):
        yield a, b


def identity(broker: Broker) -> MeantNode:
    connection = Connection(HOST, broker.port, config_of(broker))
    answer = connection.ask(ApiKey.METADATA, 12, {"topics": [], "allow_auto_topic_creation": False})
    connection.close()
    return MeantNode(answer["cluster_id"], answer["brokers"][0]["node_id"])


def test_a_node_answers_who_means_it(brokers: tuple[Broker, Broker]) -> None:
    """The codes are those of Kafka 4.4."""
    a, _ = brokers
    cluster_id, node_id = identity(a)
    with pytest.raises(OtherNode, match="node 77 of cluster"):
        Connection(HOST, a.port, config_of(a), meant=MeantNode(cluster_id, 77))
    connection = Connection(HOST, a.port, config_of(a), meant=MeantNode(cluster_id, node_id))

    def code(**meant: object) -> tuple[ErrorCode, bool]:
        values = {"client_software_name": "test", "client_software_version": "1", **meant}
        answer = connection.ask(ApiKey.API_VERSIONS, 5, values)
        return answer["error_code"], bool(answer["api_keys"])

    assert code() == (ErrorCode.none, True)
    assert code(cluster_id=cluster_id, node_id=node_id) == (ErrorCode.none, True)
    assert code(cluster_id="other", node_id=node_id) == (ErrorCode.rebootstrap_required, False)
    assert code(cluster_id=cluster_id, node_id=node_id + 1) == (ErrorCode.rebootstrap_required, False)
    assert code(cluster_id="", node_id=node_id) == (ErrorCode.rebootstrap_required, False)
    assert code(cluster_id=cluster_id) == code(node_id=node_id) == (ErrorCode.invalid_request, False)
    connection.close()


def test_clusters_that_exchange_their_ports(brokers: tuple[Broker, Broker], tmp_path: Path) -> None:
    """The client is refused by the other cluster's node, bootstraps again, and writes nothing there."""
    a, b = brokers
    port_a, port_b = a.port, b.port
    client = Cluster(config_of(a))
    assert client.offsets({AT: LATEST})[AT].offset == 0
    client.commit_offsets("g", {AT: 1})
    a.stop()
    b.stop()
    client.close()  # connections, not what is known of the cluster
    with Broker(keep=tmp_path / "a", port=port_b) as a, Broker(keep=tmp_path / "b", port=port_a) as b:
        with pytest.raises(OtherNode):
            client.connection(client.leader(*AT).node_id)
        assert client.node_ids == []
        client.config = replace(client.config, bootstrap=(a.bootstrap,))  # what a name in DNS does
        client.commit_offsets("g", {AT: 2})
        assert client.committed_offsets("g") == {AT: 2}
        client.close()
        there = Cluster(config_of(b))
        assert there.committed_offsets("g") == {}
        there.close()
