"""Deadlines by key, against a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.timers import Timers

KEYS = st.sampled_from("abc")
STEPS = st.lists(st.one_of(st.tuples(st.just("schedule"), KEYS, st.integers(0, 20)),
                           st.tuples(st.just("cancel"), KEYS, st.just(0)),
                           st.tuples(st.just("advance"), st.just(""), st.integers(0, 20))), max_size=40)  # fmt: skip


@given(STEPS)
def test_timers_expire_at_their_last_deadline_and_in_order(steps: list[tuple[str, str, int]]) -> None:
    timers, model = Timers(), dict[str, int]()
    now = 0
    for verb, key, number in steps:
        if verb == "schedule":
            timers.schedule(key, now + number)
            model[key] = now + number
        elif verb == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            now += number
            expired: list[str] = []
            while (found := timers.pop_expired(now)) is not None:
                expired.append(str(found))
            due = [key for key, deadline in model.items() if deadline <= now]
            assert sorted(expired) == sorted(due)
            assert [model[key] for key in expired] == sorted(model[key] for key in due)
            for key in due:
                del model[key]
        assert timers.next_deadline() == min(model.values(), default=None)
        assert len(timers) == len(model)
        assert all(key in timers for key in model)


def test_a_deadline_that_moves_out_costs_no_heap_entry() -> None:
    timers = Timers()
    for deadline in range(1_000):
        timers.schedule("session", deadline)
    assert len(timers._heap) == 1
    assert timers.pop_expired(998) is None
    assert timers.pop_expired(999) == "session"
