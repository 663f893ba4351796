"""All logs of a node: loading, creation, deletion, retention, checkpoints and the clean-shutdown marker.

Kafka's `LogManager` without its threads: the server calls `periodic` from its timers.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from ottla.clock import Clock
from ottla.filesystem import FileSystem
from ottla.model import Millis, TopicPartition
from ottla.storage.config import LogConfig
from ottla.storage.log import Log


class LogManager:
    """The logs under `log_dirs`."""

    def __init__(
        self,
        fs: FileSystem,
        log_dirs: Sequence[str],
        defaults: LogConfig,
        clock: Clock,
        random: random_module.Random,
        *,
        topic_config: Callable[[str], LogConfig] | None = None,
        producer_id_expiration_ms: Millis = 86_400_000,
        retention_check_interval_ms: Millis = 300_000,
        flush_scheduler_interval_ms: Millis = 2**63 - 1,
        recovery_point_checkpoint_interval_ms: Millis = 60_000,
        log_start_checkpoint_interval_ms: Millis = 60_000,
    ) -> None:
        """`topic_config` gives the configuration of a topic's logs while loading; `defaults` serves without it."""

    def lock(self) -> None:
        """Take the `.lock` of every log directory. Raises `OttlaError` when another process holds one."""

    def load(self, *, skip: frozenset[str] = frozenset({"__cluster_metadata"})) -> None:
        """Load every partition directory of every log directory except those of the topics in `skip`.

        A directory that fails is taken offline, the rest is served.
        """

    @property
    def online_dirs(self) -> list[str]: ...
    @property
    def offline_dirs(self) -> list[str]: ...

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log, or None. Raises nothing."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Log]: ...
    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig | None = None,
        *,
        log_dir: str | None = None,
    ) -> Log:
        """The existing log or a new one, in the directory with the fewest logs. Writes `partition.metadata`.

        Raises `KafkaError` KAFKA_STORAGE_ERROR if no directory is online, INCONSISTENT_TOPIC_ID if the log on disk
        belongs to another topic of that name.
        """
        raise NotImplementedError

    def delete(self, topic_partition: TopicPartition) -> None:
        """Forget the log and rename its directory; its files go after `file.delete.delay.ms`, by `remove_deleted`."""

    def delete_strays(self, is_stray: Callable[[Log], bool]) -> list[TopicPartition]:
        """Set aside (`...-stray`) the logs that the metadata no longer assigns to this node."""
        raise NotImplementedError

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """Give the new configuration to every log of a topic."""

    def periodic(self, now_ms: Millis) -> None:
        """Do what is due: retention, flush.ms, producer expiry, recovery-point and log-start checkpoints. Call about every second."""

    async def remove_deleted(self, now_ms: Millis) -> int:
        """Unlink, off the loop, the files and directories whose delay is over; returns how many."""
        raise NotImplementedError

    def shutdown(self, *, broker_epoch: int = -1) -> None:
        """Close every log, write the checkpoints and the clean-shutdown markers, release the locks."""
