"""A broker's file of the time of ZooKeeper: the number of the broker."""

from __future__ import annotations

import pytest

from ottla.config.server import ServerConfig
from ottla.config.zookeeper import IdIsGenerated
from ottla.errors import OttlaError

CONNECT = {"zookeeper.connect": "zk:2181", "log.dirs": "/x", "listeners": "PLAINTEXT://127.0.0.1:9092"}


@pytest.mark.parametrize("given", [{}, {"broker.id": "-1"}, {"broker.id": " -1 "}])
def test_a_file_without_a_number_leaves_it_to_the_cluster(given: dict[str, str]) -> None:
    with pytest.raises(IdIsGenerated, match=r"ottla server start.*--set node\.id=NUMBER"):
        ServerConfig.load(overrides=CONNECT | given)
    config = ServerConfig.load(overrides=CONNECT | given | {"node.id": "1001"})
    assert (config.node_id, config.broker_id) == (1001, 1001)


def test_numbers_of_files_and_of_the_cluster_are_apart() -> None:
    """As `KafkaConfig.validateValues` of 3.9."""
    assert ServerConfig.load(overrides=CONNECT | {"broker.id": "1000"}).node_id == 1000
    with pytest.raises(OttlaError, match="1001, but numbers above reserved"):
        ServerConfig.load(overrides=CONNECT | {"broker.id": "1001"})
    for more in ({"broker.id.generation.enable": "false"}, {"reserved.broker.max.id": "2000"}):
        assert ServerConfig.load(overrides=CONNECT | {"broker.id": "1001"} | more).node_id == 1001
    with pytest.raises(OttlaError, match=r"broker\.id is missing"):
        ServerConfig.load(overrides=CONNECT | {"broker.id.generation.enable": "false"})
    with pytest.raises(OttlaError, match=r"broker\.id is 2 but node\.id is 3"):
        ServerConfig.load(overrides=CONNECT | {"broker.id": "2", "node.id": "3"})
