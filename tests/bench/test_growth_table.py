"""What the table of a growing cluster says of what its clients saw."""

from __future__ import annotations

import pytest

from bench.workloads.growth import PARTITIONS, VALUE_BYTES, Seen, figures, missing, rows


def seen() -> Seen:
    """Each partition is acknowledged ten records a second for ten seconds, but none of the third from 4 to 6 s."""
    found = Seen()
    for tick in range(100):
        for partition in range(PARTITIONS):
            at = tick / 10
            if partition == 3 and 4 < at < 6:
                continue
            found.at.append(at)
            found.latency_s.append(0.5 if at >= 8 else 0.01)
            found.partition.append(partition)
            found.acknowledged[partition] += 1
            found.read[partition] += 1
    return found


def test_a_phase_has_its_own_figures() -> None:
    found = seen()
    found.failures.append((5.5, "timed out"))
    quiet, broken, slow = (figures(found, *times) for times in ((0.0, 2.0), (3.0, 7.0), (8.0, 10.0)))
    assert quiet["MB/s"] == pytest.approx(10 * PARTITIONS * VALUE_BYTES / 1e6)
    assert (quiet["p99 ms"], slow["p50 ms"]) == (pytest.approx(10), pytest.approx(500))
    assert [each["failed"] for each in (quiet, broken, slow)] == [0, 1, 0]
    assert quiet["longest gap ms"] == pytest.approx(100)
    assert broken["longest gap ms"] == pytest.approx(2000)


def test_a_partition_that_stays_silent_to_the_end_has_a_gap() -> None:
    assert figures(seen(), 3.5, 5.9)["longest gap ms"] == pytest.approx(1900)


def test_what_was_not_read_is_missing_and_so_is_what_nobody_wrote() -> None:
    found = seen()
    assert missing(found) == 0
    found.read[0] -= 2
    found.read[1] += 1
    assert missing(found) == 3


def test_rows_have_the_median_and_the_worst_gap() -> None:
    rounds = [
        {"MB/s": rate, "longest gap ms": gap, "failed": 1.0} for rate, gap in ((10.0, 5.0), (30.0, 7.0), (20.0, 6.0))
    ]
    assert rows({"six nodes": rounds}) == [{"phase": "six nodes", "MB/s": "20", "longest gap ms": "7", "failed": "3"}]
