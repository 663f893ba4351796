"""What a log has to do: the topic settings of Kafka that storage acts on, as one frozen object.

Names are Kafka's topic settings with underscores for dots, defaults are Kafka's (`LogConfig`, `TopicConfig`). Parsing
and range checks of what people write belong to `ottla.config`; `from_properties` takes values that passed them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ottla.model import Millis

LONG_MAX = 2**63 - 1
WEEK_MS = 7 * 24 * 60 * 60 * 1000

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log. Sizes are in bytes; -1 means no limit for the two retentions."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: Millis = WEEK_MS
    segment_jitter_ms: Millis = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    retention_ms: Millis = WEEK_MS
    retention_bytes: int = -1
    max_message_bytes: int = 1024 * 1024 + 12
    max_decompressed_message_bytes: int = 2**31 - 9
    flush_messages: int = LONG_MAX
    flush_ms: Millis = LONG_MAX
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: Millis = 24 * 60 * 60 * 1000
    min_compaction_lag_ms: Millis = 0
    max_compaction_lag_ms: Millis = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: Millis = LONG_MAX
    message_timestamp_after_max_ms: Millis = 60 * 60 * 1000
    file_delete_delay_ms: Millis = 60_000
    preallocate: bool = False
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    remote_storage_enable: bool = False

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def uses_log_append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LogConfig:
        """The configuration for checked topic settings by Kafka's names; absent ones default, unknown ones are ignored.

        Raises `ValueError` for text that is not of the setting's type.
        """
        values: dict[str, Any] = {}
        for name, (key, parse) in _PARSERS.items():
            text = properties.get(key)
            if text is not None:
                values[name] = parse(text)
        return cls(**values)


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"expected true or false, got {text!r}")
    return lowered == "true"


def _policy(text: str) -> frozenset[str]:
    return frozenset(part.strip().lower() for part in text.split(",") if part.strip())


_BY_TYPE: dict[str, Callable[[str], Any]] = {
    "int": int,
    "Millis": int,
    "float": float,
    "bool": _boolean,
    "str": str.strip,
    "frozenset[str]": _policy,
}
_PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    field.name: (field.name.replace("_", "."), _BY_TYPE[str(field.type)]) for field in fields(LogConfig)
}
