"""Ids of an account, beside a plain dict: batches that add, look up, forget, and are lost unsaved."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not set up: no pyspark here")
from ottla.pipelines.ledger_ids import BLOCK_SLOTS, RECENT_MAX, SLOT_IDS_MAX, Ids


class Map:
    """The used part of Spark's map state; counts its calls and bytes written."""

    def __init__(self) -> None:
        self.values: dict[tuple[Any], tuple[bytes]] = {}
        self.calls = self.written = 0

    def getValue(self, key: tuple[Any]) -> tuple[bytes] | None:
        self.calls += 1
        return self.values.get(key)

    def updateValue(self, key: tuple[Any], value: tuple[bytes]) -> None:
        self.calls += 1
        self.written += len(value[0])
        self.values[key] = value

    def removeKey(self, key: tuple[Any]) -> None:
        self.calls += 1
        self.values.pop(key, None)


class Account:
    """What is kept between batches."""

    def __init__(self) -> None:
        self.ids, self.filters = Map(), Map()
        self.slots, self.recent = 0, b""

    def batch(self) -> Ids:
        return Ids(self.ids, self.filters, self.slots, self.recent)  # type: ignore[arg-type]

    def save(self, batch: Ids, oldest: int) -> None:
        batch.save(oldest)
        self.slots, self.recent = batch.slots, batch.recent


@pytest.mark.parametrize("seed", [3, 4])
def test_as_a_dict(seed: int) -> None:
    dice, account, known, most = random.Random(seed), Account(), dict[str, int](), 0
    for batch in range(300):
        ids, new, oldest = account.batch(), dict(known), batch - 200
        for _ in range(dice.choice((1, 5, 2000))):
            name = f"é{dice.randrange(200_000)}"
            assert ids.known(name, oldest) == (new.get(name, -1000) >= oldest)
            if not ids.known(name, oldest):
                day = dice.choice((batch, batch, oldest))
                ids.add(name, day)
                new[name] = day
        if dice.random() < 0.2:
            continue  # the batch fails before it is saved, and what it did is not there
        account.save(ids, oldest)
        known, most = new, max(most, account.slots)
    assert most > BLOCK_SLOTS
    ids = account.batch()
    assert all(ids.known(name, 99) == (day >= 99) for name, day in known.items()) and not ids.known("nobody", 99)
    # Much later they are gone, and take no room.
    for number in range(SLOT_IDS_MAX * most):
        ids.add(f"late {number}", 1000)
    account.save(ids, 900)
    assert sum(len(value[0]) for value in account.ids.values.values()) == SLOT_IDS_MAX * most * 20
    assert {key for (key,) in account.ids.values} == set(range(account.slots))
    assert len(account.filters.values) == -(-account.slots // BLOCK_SLOTS)


def test_fewer_slots_when_there_are_fewer_ids() -> None:
    account = Account()
    for count, day in ((40 * SLOT_IDS_MAX, 1), (10 * SLOT_IDS_MAX, 50)):
        ids = account.batch()
        for number in range(count):
            ids.add(f"{day} {number}", day)
        account.save(ids, day - 7)
    assert account.slots == len(account.ids.values) == 16 and len(account.filters.values) == 1
    assert account.batch().known("50 7", 43) and not account.batch().known("1 7", 0)
    ids = account.batch()
    for number in range(10 * SLOT_IDS_MAX):
        ids.add(f"late {number}", 60)
    account.save(ids, 61)
    assert (account.slots, account.recent, account.ids.values) == (1, b"", {(0,): (b"",)})


def test_a_batch_costs_few_calls() -> None:
    account = Account()
    ids = account.batch()
    for number in range(RECENT_MAX):
        ids.add(str(number), 1)
    account.save(ids, 0)
    assert account.batch().known("7", 0) and not account.batch().known("one more", 0)
    assert account.ids.calls == account.filters.calls == 0
    ids = account.batch()
    ids.add("one more", 1)
    account.save(ids, 0)
    assert (account.slots, account.ids.calls, account.filters.calls) == (1, 1, 1)
    # What is new costs the slots nothing, but for one in a thousand that only seems to be there.
    ids = account.batch()
    assert sum(ids.known(f"new {number}", 0) for number in range(200)) == 0
    assert account.ids.calls <= 2 and account.filters.calls == 2


def test_an_id_is_written_a_few_times() -> None:
    account, each = Account(), 500
    for batch in range(100):
        ids = account.batch()
        for number in range(each):
            assert not ids.known(f"{batch} {number}", 0)
            ids.add(f"{batch} {number}", 1)
        account.save(ids, 0)
    assert 3 < account.ids.written / (100 * each * 20) < 12
