"""What is counted of share groups."""

from __future__ import annotations

from ottla.metrics.instruments import Histogram
from ottla.metrics.shared import ShareMetrics, SharePartitionMetrics


def bucket(of: Histogram) -> list[tuple[float, int]]:
    return [(bound, count) for bound, count in zip([*of.bounds, -1.0], of.counts, strict=True) if count]


def test_fetches_are_counted_by_group_until_nobody_of_it_is_left() -> None:
    metrics = ShareMetrics()
    metrics.fetched("g", 1, 4, 0.002)
    metrics.fetched("g", 4, 4, 0.002)
    metrics.fetched("h", 0, 1, 0.0)
    assert [(name, bucket(ratio)) for name, ratio, _ in metrics.groups()] == [
        ("g", [(25.0, 1), (100.0, 1)]),
        ("h", [(0.0, 1)]),
    ]
    metrics.remove_group("g")
    metrics.remove_group("g")
    assert [name for name, _, _ in metrics.groups()] == ["h"]


def test_a_fetch_keeps_others_away_for_a_part_of_the_time() -> None:
    metrics = SharePartitionMetrics()
    metrics.fetch_begins(10.0)
    metrics.fetch_ends(10.0)
    metrics.fetch_begins(13.0)
    metrics.fetch_ends(14.0)
    assert bucket(metrics.lock_ratio) == [(25.0, 1), (100.0, 1)]
    assert metrics.lock_seconds.sum == 1.0
