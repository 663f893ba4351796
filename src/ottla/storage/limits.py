"""What a topic's settings mean for segments and for validation."""

from __future__ import annotations

from functools import lru_cache

from ottla.protocol.records.compression import Codec
from ottla.storage.config import LogConfig
from ottla.storage.log.stamp import StampRules
from ottla.storage.log.validation import LONG_BATCH_BYTES, ValidationPolicy
from ottla.storage.segments.offset_index import OffsetIndex
from ottla.storage.segments.segment import RollLimits
from ottla.storage.segments.time_index import TimeIndex


@lru_cache(maxsize=256)
def limits_and_policy(config: LogConfig) -> tuple[RollLimits, ValidationPolicy, StampRules]:
    """What segments and validation need of a topic's settings; the many logs of a node share few configurations."""
    segment_ms = config.segment_ms
    if config.compact and config.max_compaction_lag_ms > 0:
        segment_ms = min(segment_ms, config.max_compaction_lag_ms)
    limits = RollLimits(
        config.segment_bytes,
        segment_ms,
        max(config.segment_index_bytes // OffsetIndex.ENTRY_SIZE, 1),
        max(config.segment_index_bytes // TimeIndex.ENTRY_SIZE - 1, 1),
    )
    kind = config.compression_type
    codec = None if kind == "producer" else Codec.NONE if kind == "uncompressed" else Codec[kind.upper()]
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    policy = ValidationPolicy(
        max_message_bytes=config.max_message_bytes,
        record_bytes_max=config.max_decompressed_message_bytes,
        codec=codec,
        level=None if codec is None else levels.get(codec),
        log_append_time=config.uses_log_append_time,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        compacted=config.compact,
    )
    as_sent = codec in (None, Codec.NONE) and not policy.log_append_time
    rules = StampRules(
        min(policy.max_message_bytes, config.segment_bytes, LONG_BATCH_BYTES) if as_sent else 0,
        policy.compacted,
        policy.timestamp_before_max_ms,
        policy.timestamp_after_max_ms,
    )
    return limits, policy, rules
