"""Connections that one task leaves to the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.config import ClientConfig
from ottla.spark import connection_pool

A, B = ClientConfig(("a:1",)), ClientConfig(("b:1",))


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    connection_pool._pool.clear()
    yield
    connection_pool._pool.clear()


def test_a_cluster_is_kept_for_those_who_ask_for_the_same() -> None:
    with connection_pool.cluster(A) as first, connection_pool.cluster(A) as at_once:
        assert first is not at_once
    with connection_pool.cluster(A) as again, connection_pool.cluster(B) as other:
        assert again is first  # given back last
        assert other is not again


def test_it_is_not_kept_after_a_failure_but_after_a_limit() -> None:
    with pytest.raises(OSError), connection_pool.cluster(A) as failed:
        raise OSError
    with connection_pool.cluster(A) as another:
        assert another is not failed

    def task() -> Iterator[object]:
        with connection_pool.cluster(A) as mine:
            yield mine

    reading = task()
    mine = next(reading)
    reading.close()  # type: ignore[attr-defined]
    with connection_pool.cluster(A) as again:
        assert again is mine is another


def test_a_fork_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with connection_pool.cluster(A) as parents:
        pass
    monkeypatch.setattr(connection_pool, "_owner", -1)
    with connection_pool.cluster(A) as childs:
        assert childs is not parents


def test_only_a_few_are_kept() -> None:
    for number in range(10):
        with connection_pool.cluster(ClientConfig((f"a:{number + 1}",))):
            pass
    assert list(connection_pool._pool) == [ClientConfig((f"a:{number + 1}",)) for number in range(6, 10)]
