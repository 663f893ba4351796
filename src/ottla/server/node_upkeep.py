"""Keeps the parts of a node in step with its metadata: at each change of it, and each second what is due by then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from ottla.logs import errors_logged, fields
from ottla.metadata.image import ConfigResourceType
from ottla.model import SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from ottla.server.listeners.listening import changing_quotas, limit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.drivers.logs.log_cleaner import LogCleaner
    from ottla.drivers.replication.replication import Replication
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage
    from ottla.model import NodeId
    from ottla.replication.partition import Partition
    from ottla.server.listeners.listening import GuardedNode
    from ottla.server.metadata.metadata_changes import FollowingNode
    from ottla.server.replicas.directory_events import DirectoryEvents

    class KeptNode(GuardedNode, FollowingNode, Protocol):
        """A node, for its upkeep."""

        replication: Replication | None
        lost: Mapping[NodeId, int]

        @property
        def cleaner(self) -> LogCleaner: ...
        @property
        def directories(self) -> DirectoryEvents: ...


_LOG = logging.getLogger("ottla.node")

_COORDINATORS = {TRANSACTION_TOPIC: "transactions", SHARE_STATE_TOPIC: "share_coordinator"}
"""Topics of coordinators that are made when they are needed."""


class NodeUpkeep:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: KeptNode, closers: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        self._node = node
        self._closers = closers

    def apply_settings(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The dynamic settings of this node, and the quotas of its clients where nobody has to wait for them."""
        node = self._node
        if not node.serving:
            list(changing_quotas(node, delta))  # at once
        if any(resource.type == ConfigResourceType.BROKER for resource in delta.configs):
            changed = node.config.apply_dynamic(
                image.config(ConfigResourceType.BROKER, ""),
                image.config(ConfigResourceType.BROKER, str(node.node_id)),
            )
            if node.tls is not None:
                node.tls.settings_changed()
            if changed:
                self._settings_changed(changed, image)

    def _settings_changed(self, names: Collection[str], image: MetadataImage) -> None:
        node = self._node
        _LOG.info("settings changed", extra=fields(names=",".join(sorted(names))))
        node.log_settings.changed()
        node.cleaner.settings_changed()
        limit(node)
        if "cordoned.log.dirs" in names and node.config.is_broker:
            node.directories.note_cordoned()
            node.lifecycle.say_now()
        for topic in node.replicas.by_name:
            node.replicas.update_topic_config(image, topic)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A metadata change: dynamic settings of this node first, since new logs take their defaults from them."""
        self.apply_settings(delta, image)
        node = self._node
        has_others = node.away is not None or len(image.brokers) != (node.node_id in image.brokers)
        pushed = any(resource.type == ConfigResourceType.CLIENT_METRICS for resource in delta.configs)
        if node.serving or has_others or pushed:  # a node alone starts without
            from ottla.server.metadata.metadata_changes import follow

            follow(node, delta, image)
        node.replicas.apply(delta, image)
        if node.replication is None and node.replicas.has_peers:
            self._start_replication()
        if node.replication is not None:
            node.replication.apply(delta, image)
        if node.lifecycle.broker_epoch >= 0:
            node.directories.note_placed()

    def _start_replication(self) -> None:
        from ottla.drivers.metadata.lost_brokers import LostBrokers
        from ottla.drivers.replication.replication import Replication  # a node that is alone does without

        node = self._node
        node.replication = Replication(node)
        lost = LostBrokers(node.network, node.inter_broker_listener, node.config.ottla_failover_confirm_ms / 1000)
        node.lost = lost.epochs
        node.replication.on_peer_lost.append(lambda node_id: lost.suspect(node.image.brokers.get(node_id)))
        self._closers += (node.replication.stop, lost.stop)

    def coordinate(self, partition: Partition) -> None:
        """Have the coordinator made that leads its first partition: coordinators hear of all others themselves."""
        topic = partition.topic_partition.topic
        if partition.is_leader and topic in _COORDINATORS:
            assert getattr(self._node, _COORDINATORS[topic])

    async def periodic(self) -> None:
        """Run the due tasks. The failure of one does not stop the others. Raises nothing."""
        node = self._node
        now_ms = node.clock.now_ms()
        with errors_logged(_LOG, "a periodic task"):
            node.replicas.open_missing(node.image)
            if node.replication is not None:  # for what could be opened now
                node.replication.apply(None, node.image)
            node.directories.note_placed()
        with errors_logged(_LOG, "a periodic task"):
            node.replicas.reconsider(int(asyncio.get_running_loop().time() * 1000))
            node.logs.periodic(now_ms)
        with errors_logged(_LOG, "a periodic task"):
            await node.logs.background(now_ms)
