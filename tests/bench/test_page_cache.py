"""Free memory becomes page cache before a measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.method import page_cache
from bench.method.page_cache import PageCache


def free_memory(monkeypatch: pytest.MonkeyPatch, mb: list[int]) -> None:
    monkeypatch.setattr(page_cache, "free_bytes", lambda: mb.pop(0) << 20)


def test_it_reads_until_the_kernel_takes_pages_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free_memory(monkeypatch, [800, 544, 288, 200])
    cache = PageCache(tmp_path)
    assert cache.fill() == 3 * (256 << 20)
    assert cache.path.stat().st_blocks == 0, "the file takes space on the disk"


def test_it_reads_on_where_it_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was read before may still be in memory, and would take none."""
    free_memory(monkeypatch, [300, 290, 310, 54, 50])
    cache = PageCache(tmp_path)
    assert cache.fill() == 256 << 20
    assert cache.fill() == 2 * (256 << 20)
    assert cache.path.stat().st_size == 3 * (256 << 20)


def test_a_system_that_does_not_say_what_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free_memory(monkeypatch, [0])
    assert PageCache(tmp_path).fill() == 0
