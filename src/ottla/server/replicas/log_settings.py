"""What a node's settings, and those of its topics, say to logs, cleaner, scrubber, and to the state of producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.drivers.logs.log_cleaner import CleanerSettings
from ottla.storage.config import LogConfig
from ottla.storage.producers.producer_state import ProducerSettings

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig
    from ottla.drivers.logs.scrubber import ScrubSettings
    from ottla.metadata.image import MetadataImage


class LogSettings:
    """Reads the settings whenever it is asked; call `changed` after a dynamic one changed."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._defaults: LogConfig | None = None
        self.producers = ProducerSettings()
        """Shared by all partitions, and kept up to date."""
        self.changed()

    def changed(self) -> None:
        self._defaults = None
        self.producers.expiration_ms = self._config.producer_id_expiration_ms
        self.producers.verifies_transactions = self._config.transaction_partition_verification_enable

    @property
    def defaults(self) -> LogConfig:
        """Settings of a log whose topic has none of its own."""
        if self._defaults is None:
            self._defaults = LogConfig.from_properties(self._config.log_config_properties())
        return self._defaults

    def of_topic(self, image: MetadataImage, topic: str) -> LogConfig:
        overrides = image.topic_config(topic)
        if not overrides:
            return self.defaults
        return LogConfig.from_properties(self._config.log_config_properties(overrides))

    def of_cleaner(self) -> CleanerSettings:
        config = self._config
        return CleanerSettings(
            enable=config.log_cleaner_enable,
            threads=config.log_cleaner_threads,
            io_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
            io_buffer_bytes=config.log_cleaner_io_buffer_size,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            backoff_ms=config.log_cleaner_backoff_ms,
        )

    def of_scrubber(self) -> ScrubSettings:
        from ottla.drivers.logs.scrubber import ScrubSettings  # comes with the first record

        config = self._config
        return ScrubSettings(
            bytes_per_second=config.ottla_log_scrub_bytes_per_second,
            interval_ms=config.ottla_log_scrub_interval_ms,
        )
