"""Ids of an account in slots, beside a plain dict: batches that add, look up, drop, and are lost unsaved."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not set up: no pyspark here")
from ottla.pipelines.ledger_ids import SLOT_IDS_MAX, Ids


class Map:
    """Of Spark's state what is used; counts its calls."""

    def __init__(self) -> None:
        self.values: dict[tuple[Any], tuple[Any]] = {}
        self.calls = 0

    def getValue(self, key: tuple[Any]) -> tuple[Any] | None:
        self.calls += 1
        return self.values.get(key)

    def updateValue(self, key: tuple[Any], value: tuple[Any]) -> None:
        self.calls += 1
        self.values[key] = value

    def removeKey(self, key: tuple[Any]) -> None:
        self.calls += 1
        self.values.pop(key, None)


def test_as_a_dict() -> None:
    dice, state, slots, known = random.Random(3), Map(), 1, dict[str, int]()
    for batch in range(200):
        ids, new = Ids(state, slots), dict(known)  # type: ignore[arg-type]
        for _ in range(dice.choice((1, 5, 300))):
            name = f"é{dice.randrange(20_000)}"
            assert (name in ids) == (name in new)
            if name not in new:
                ids.add(name, batch)
                new[name] = batch
        if batch % 10 == 9:
            ids.drop_older(batch - 60)
            new = {name: day for name, day in new.items() if day >= batch - 60}
        if dice.random() < 0.2:
            continue  # the batch fails before it is saved, and what it did is not there
        ids.save()
        slots, known = ids.slots, new
    assert slots > 8
    ids = Ids(state, slots)  # type: ignore[arg-type]
    assert all(name in ids for name in known) and "nobody" not in ids
    ids.drop_older(1000)
    ids.save()
    assert not state.values


def test_a_batch_costs_few_calls() -> None:
    state = Map()
    ids = Ids(state, 1)  # type: ignore[arg-type]
    for number in range(SLOT_IDS_MAX):
        ids.add(str(number), 1)
    ids.save()
    assert state.calls == 2
    ids = Ids(state, ids.slots)  # type: ignore[arg-type]
    ids.add("one more", 1)
    ids.save()
    assert ids.slots == 2 and state.calls <= 6
