"""A number for a broker that has none, as Kafka's brokers get theirs: `broker.id=-1`.

Each change of `/brokers/seqid` raises its version, which nobody else gets; the number is as far above
`reserved.broker.max.id`, below which brokers have their numbers from their files (`KafkaServer.generateBrokerId`).
"""

from __future__ import annotations

import random as random_module
from typing import TYPE_CHECKING

from ottla.drivers.zookeeper.access import ensemble_access
from ottla.drivers.zookeeper.ensemble_client import client_of, prepare, unusable, zookeeper_settings
from ottla.filesystem import FileSystem
from ottla.model import NodeId
from ottla.network import Network
from ottla.storage.checkpoints.meta_properties import read_meta_properties
from ottla.zookeeper.errors import ZooKeeperError

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig

SEQUENCE = "/brokers/seqid"


def known_id(config: ServerConfig, fs: FileSystem) -> NodeId | None:
    """The number that the broker was given before, by its directories. Raises OttlaError."""
    for path in (*config.log_dirs, config.metadata_log_dir):
        meta = read_meta_properties(fs, path)
        if meta is not None and meta.node_id is not None:
            return meta.node_id
    return None


async def generated_id(config: ServerConfig, fs: FileSystem, network: Network, random: random_module.Random) -> NodeId:
    """A number that no broker of the cluster had before. Raises OttlaError."""
    settings = zookeeper_settings(config)
    access = ensemble_access(network, config.static, fs.read_bytes)
    try:
        async with client_of(settings, access, random) as client:
            await prepare(client, settings, access, random)
            stat = await client.set(SEQUENCE, b"")
    except ZooKeeperError as error:
        raise unusable(settings, error) from error
    finally:
        access.close()
    return config.reserved_broker_max_id + stat.version
