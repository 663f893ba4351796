"""Which of the eight levels holds for whom, beside the list of them in Kafka's documentation."""

from __future__ import annotations

import itertools

import pytest

from ottla.quotas.arithmetic import Windows
from ottla.quotas.limits import Limits, Tags
from ottla.quotas.usage import IDLE_MS_MAX, USAGES_MAX, ClientQuota, Permits

LEVELS = [
    (("client-id", "c"), ("user", "u")), (("client-id", None), ("user", "u")), (("user", "u"),),
    (("client-id", "c"), ("user", None)), (("client-id", None), ("user", None)), (("user", None),),
    (("client-id", "c"),), (("client-id", None),),
]  # fmt: skip
"""From the most specific to the least (`ClientQuotaManager`)."""


def test_the_most_specific_level_holds() -> None:
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(8), count) for count in range(1, 9)):
        limits = Limits()
        for level in chosen:
            limits.change(LEVELS[level], float(level + 1))
        assert limits.of(limits.tags("u", "c")) == chosen[0] + 1
        for level in chosen:
            limits.change(LEVELS[level], None)
        assert not limits and limits.of(limits.tags("u", "c")) is None


@pytest.mark.parametrize(
    ("level", "one", "other", "shared"),
    [
        (2, ("u", "c"), ("u", "d"), True),
        (5, ("u", "c"), ("u", "d"), True),
        (5, ("u", "c"), ("v", "c"), False),
        (6, ("u", "c"), ("v", "c"), True),
        (7, ("u", "c"), ("u", "d"), False),
        (1, ("u", "c"), ("u", "d"), False),
    ],
)
def test_who_shares_a_quota(level: int, one: tuple[str, str], other: tuple[str, str], shared: bool) -> None:
    limits = Limits()
    limits.change(LEVELS[level], 1.0)
    assert limits.of(limits.tags(*one)) == limits.of(limits.tags(*other)) == 1.0
    assert (limits.tags(*one) == limits.tags(*other)) is shared


def test_a_client_without_an_id_has_the_quotas_of_users_only() -> None:
    limits = Limits()
    limits.change(LEVELS[7], 1.0)
    assert limits.of(limits.tags("u", None)) is None
    limits.change(LEVELS[2], 2.0)
    assert limits.tags("u", None) == Tags("u", "")
    assert limits.of(limits.tags("u", None)) == 2.0


def test_a_change_holds_for_what_was_used_before() -> None:
    quota = ClientQuota("producer_byte_rate", Windows())
    quota.change(LEVELS[7], 100.0)
    assert quota.record("u", "c", 1100, 1000) == 1000
    quota.change(LEVELS[6], 1000.0)
    assert quota.record("u", "c", 0, 1000) == 0
    quota.change(LEVELS[6], None)
    assert quota.record("u", "c", 0, 1000) == 1000


def test_usages_are_bounded() -> None:
    quota = ClientQuota("producer_byte_rate", Windows())
    quota.change(LEVELS[7], 100.0)
    quota.record("u", "first", 1, 0)
    quota.record("u", "second", 1, IDLE_MS_MAX + 1)
    assert [usage.tags.client_id for usage in quota] == ["second"]
    now_ms = 2 * IDLE_MS_MAX
    for number in range(3 * USAGES_MAX):
        now_ms += 5
        quota.record("u", f"c{number}", 1, now_ms)
        assert len(list(quota)) <= USAGES_MAX + 201 if number % 1000 == 0 else True
    assert len(list(quota)) < 2 * USAGES_MAX


@pytest.mark.parametrize("strict", [False, True])
def test_permits(strict: bool) -> None:
    """11 tokens at first, one a second."""
    quota = ClientQuota("controller_mutation_rate", Windows(), tokens=True)
    quota.change(LEVELS[7], 1.0)
    now_ms = 5000
    permits = Permits(quota, "u", "c", lambda: now_ms, strict=strict)
    assert permits.take(10) and permits.take(3)
    assert permits.delay_ms() == (0 if strict else 2000)
    assert permits.take(1) is not strict
    assert permits.delay_ms() == (2000 if strict else 3000)
    now_ms += 500
    assert permits.delay_ms() == (1500 if strict else 2500)
    now_ms += 3000
    assert permits.delay_ms() == 0
    assert permits.take(1)
