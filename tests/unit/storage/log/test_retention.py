"""Which segments retention takes: the limits to the millisecond and to the byte, as Kafka's `UnifiedLog` has them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ottla.storage.config import LogConfig
from ottla.storage.log.deletable_segments import count_deletable

NOW = 1_000_000


@dataclass
class Facts:
    base_offset: int
    size: int
    newest: int

    def retention_timestamp(self) -> int:
        return self.newest


def deletable(config: LogConfig, *newest: int, high_watermark: int = 1000, log_start: int = 0) -> int:
    """Deletable segments among segments of 100 bytes and ten offsets each."""
    segments = [Facts(10 * number, 100, each) for number, each in enumerate(newest)]
    return count_deletable(
        segments,
        config,
        log_start_offset=log_start,
        high_watermark=high_watermark,
        log_end_offset=10 * len(segments),
        now_ms=NOW,
    )


@pytest.mark.parametrize(("age_ms", "expected"), [(4999, 0), (5000, 0), (5001, 1)])
def test_a_segment_goes_when_it_is_older_than_the_limit(age_ms: int, expected: int) -> None:
    assert deletable(LogConfig(retention_ms=5000), NOW - age_ms, NOW) == expected


@pytest.mark.parametrize(("limit", "expected"), [(99, 2), (100, 2), (101, 1), (200, 1), (201, 0), (300, 0)])
def test_segments_go_while_what_stays_is_not_below_the_limit(limit: int, expected: int) -> None:
    assert deletable(LogConfig(retention_bytes=limit, retention_ms=-1), NOW, NOW, NOW) == expected


@pytest.mark.parametrize(("high_watermark", "expected"), [(9, 0), (10, 1), (19, 1), (20, 2)])
def test_what_is_not_committed_stays(high_watermark: int, expected: int) -> None:
    assert deletable(LogConfig(retention_ms=1), 0, 0, high_watermark=high_watermark) == expected


@pytest.mark.parametrize(("log_start", "expected"), [(9, 0), (10, 1), (25, 2), (30, 2)])
def test_what_is_below_the_log_start_goes_whatever_the_policy(log_start: int, expected: int) -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=1)
    assert deletable(config, 0, 0, 0, log_start=log_start) == expected
