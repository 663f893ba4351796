"""What a mirror asks of either cluster: topics, configs, offsets of groups, and where partitions end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from ottla.client import librdkafka
from ottla.client.cluster import EARLIEST, LATEST
from ottla.client.cluster import Cluster as Client
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.security import PLAINTEXT, Security
from ottla.errors import ErrorCode, KafkaError
from ottla.mirror.mapping import Place
from ottla.model import ZERO_UUID, Offset
from ottla.model import TopicPartition as At

TIMEOUT_S: Final = 30.0
EXCLUDED_CONFIGS: Final = frozenset({
    "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
    "message.timestamp.difference.max.ms", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
    "message.timestamp.type", "unclean.leader.election.enable", "min.insync.replicas",
})  # fmt: skip
"""Configs that stay each cluster's own, as `config.properties.exclude` of MirrorMaker 2 has them; limits to timestamps
too, which would refuse records that the source took."""


class Remote:
    """One cluster, by its bootstrap addresses. Methods raise KafkaException, KafkaError, OSError."""

    def __init__(self, bootstrap: str, security: Security = PLAINTEXT) -> None:
        self.bootstrap = bootstrap
        self.security = security

    @cached_property
    def admin(self) -> AdminClient:
        """Connected when first used: a source that is lost is not to be knocked at."""
        return AdminClient(
            {
                "bootstrap.servers": self.bootstrap,
                "client.id": "ottla-mirror",
                "log_level": 0,
                **librdkafka.settings_of(self.security),
            }
        )

    def topics(self) -> dict[str, int]:
        """Names and numbers of partitions."""
        found = self.admin.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """Topic ids (KIP-516), of those that have one."""
        with self._client() as cluster:
            found = cluster.partitions(names)
        return {at.topic: str(leader.topic_id) for at, leader in found.items() if leader.topic_id != ZERO_UUID}

    @contextlib.contextmanager
    def _client(self) -> Iterator[Client]:
        with contextlib.closing(
            Client(ClientConfig(parse_addresses(self.bootstrap), "ottla-mirror", security=self.security))
        ) as cluster:
            yield cluster

    def configs(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        """Settings of each topic itself, without defaults."""
        if not names:
            return {}
        asked = self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
        found: dict[str, dict[str, str]] = {}
        for resource, answer in asked.items():
            entries: Mapping[str, Any] = answer.result(TIMEOUT_S)
            found[resource.name] = {
                name: entry.value
                for name, entry in entries.items()
                if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value and entry.value is not None
            }
        return found

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        self.admin.create_topics([NewTopic(name, partitions, config=dict(configs))])[name].result(TIMEOUT_S)

    def grow(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(TIMEOUT_S)

    def set_configs(self, name: str, values: Mapping[str, str | None]) -> None:
        """Values to set; None to go back to the default."""
        entries = [
            ConfigEntry(
                key,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in values.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def ends(self, places: Iterable[Place], *, committed: bool = True) -> dict[Place, Offset]:
        """Where each partition ends, for readers of committed records or for all."""
        wanted = {At(topic, partition) for topic, partition in places}
        if not wanted:
            return {}
        with self._client() as cluster:
            # A topic just created or grown may take a moment to be led.
            deadline = time.monotonic() + TIMEOUT_S
            while not (known := set(cluster.partitions({at.topic for at in wanted}))) >= wanted:
                if time.monotonic() > deadline:
                    raise KafkaError(ErrorCode.unknown_topic_or_partition, str(min(wanted - known)))
                time.sleep(0.05)
            found = cluster.offsets(dict.fromkeys(wanted, LATEST), read_committed=committed)
        return {(at.topic, at.partition): one.offset for at, one in found.items()}

    def starts(self, places: Iterable[Place]) -> dict[Place, Offset]:
        """Where each partition begins."""
        with self._client() as cluster:
            found = cluster.offsets({At(*place): EARLIEST for place in places})
        return {(at.topic, at.partition): one.offset for at, one in found.items()}

    def groups(self) -> list[str]:
        listed = self.admin.list_consumer_groups().result(TIMEOUT_S)
        return sorted(group.group_id for group in listed.valid)

    def committed(self, group: str) -> dict[Place, Offset]:
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = asked[group].result(TIMEOUT_S).topic_partitions or []
        return {(at.topic, at.partition): at.offset for at in found if at.error is None and at.offset >= 0}

    def commit(self, group: str, offsets: Mapping[Place, Offset]) -> bool:
        """Commit them for a group without members; False where it has some, which the coordinator sees to.

        No leader epoch goes along: the source's would be wrong here (KIP-1279), and none is checked against the
        destination's own (KIP-320).
        """
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        try:
            answer = self.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])
            written = answer[group].result(TIMEOUT_S).topic_partitions or []
        except KafkaException as error:
            if error.args[0].name() in ("UNKNOWN_MEMBER_ID", "_STATE", "NON_EMPTY_GROUP", "ILLEGAL_GENERATION"):
                return False
            raise
        for at in written:
            if at.error is not None:
                if at.error.name() in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP", "ILLEGAL_GENERATION"):
                    return False
                raise KafkaException(at.error)
        return True
