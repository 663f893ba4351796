"""A node's client of the ensemble, and the znodes that every cluster has."""

from __future__ import annotations

import random as random_module
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.config.secret import revealed
from ottla.drivers.zookeeper.access import EnsembleAccess
from ottla.drivers.zookeeper.tree import ensure
from ottla.errors import OttlaError
from ottla.model import NodeId
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import ZooKeeperError

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig

PERSISTENT = (
    "/consumers", "/brokers/ids", "/brokers/topics", "/brokers/seqid", "/config/changes", "/config/topics",
    "/config/brokers", "/config/clients", "/config/users", "/config/ips", "/admin/delete_topics",
    "/isr_change_notification", "/log_dir_event_notification", "/latest_producer_id_block",
    "/delegation_token/tokens", "/kafka-acl", "/kafka-acl-changes", "/kafka-acl-extended/prefixed",
    "/kafka-acl-extended-changes",
)  # fmt: skip
"""Znodes that every cluster has (`KafkaZkClient.createTopLevelPaths`)."""


class ZooKeeperSettings(NamedTuple):
    node_id: NodeId
    connect: str
    session_timeout_ms: int
    connection_timeout_ms: int
    requests_max: int
    secrets: Sequence[str] = ()
    """`password.encoder.secret` and the one before it."""


def zookeeper_settings(config: ServerConfig) -> ZooKeeperSettings:
    secrets = (config.password_encoder_secret, config.password_encoder_old_secret)
    timeout_ms = config.zookeeper_session_timeout_ms
    return ZooKeeperSettings(
        config.node_id,
        config.zookeeper_connect or "",
        timeout_ms,
        config.zookeeper_connection_timeout_ms or timeout_ms,
        config.zookeeper_max_in_flight_requests,
        tuple(revealed(each) for each in secrets if each),
    )


def client_of(settings: ZooKeeperSettings, access: EnsembleAccess, random: random_module.Random) -> ZooKeeper:
    """Not started yet. Raises OttlaError for a `zookeeper.connect` that is none."""
    try:
        return ZooKeeper(
            access.network,
            settings.connect,
            random=random,
            login=access.login,
            session_timeout_ms=settings.session_timeout_ms,
            request_timeout_ms=settings.session_timeout_ms,
            requests_max=settings.requests_max,
        )
    except ValueError as error:
        raise OttlaError(f"zookeeper.connect: {error}") from None


async def prepare(
    client: ZooKeeper, settings: ZooKeeperSettings, access: EnsembleAccess, random: random_module.Random
) -> None:
    """Wait for a server, and have what every cluster has. Raises ZooKeeperError."""
    await client.wait_connected(settings.connection_timeout_ms)
    if await client.exists("/") is None:  # Kafka's brokers create their chroot too
        servers, _, chroot = settings.connect.partition("/")
        async with client_of(settings._replace(connect=servers), access, random) as above:
            await ensure(above, "/" + chroot, access.acl)
    for path in PERSISTENT:
        await ensure(client, path, access.acl)


def unusable(settings: ZooKeeperSettings, error: ZooKeeperError) -> OttlaError:
    return OttlaError(f"zookeeper.connect: {settings.connect} cannot be used: {error}")
