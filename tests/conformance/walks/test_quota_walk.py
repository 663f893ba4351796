"""The arithmetic of quotas beside Kafka's own classes in a JVM: rates, spans, delays and tokens, to the last bit."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ottla.quotas.arithmetic import Rate, TokenBucket, Windows, delay_ms, refill_ms
from tests.conformance.line_program import Lines

START_MS = 1_700_000_000_000
STEPS = 400


@pytest.fixture(scope="module")
def kafka() -> Iterator[Lines]:
    lines = Lines("QuotaLines")
    yield lines
    lines.close()


@pytest.mark.parametrize("seed", range(8))
def test_rates_and_tokens_are_those_of_kafka(kafka: Lines, seed: int) -> None:
    dice = random.Random(seed)
    windows = Windows(dice.choice((1, 2, 3, 11)), dice.choice((1, 100, 1000, 5000)))
    quota = dice.choice((0.5, 1.0, 7.25, 1000.0, 1e6))
    kafka.ask(f"new {windows.samples} {windows.size_ms} {quota}")
    now_ms = START_MS
    rate, bucket = Rate(windows), TokenBucket(windows, now_ms)
    beyond = 0
    for _ in range(STEPS):
        now_ms += dice.choice(
            (
                0,
                0,
                1,
                7,
                windows.size_ms // 2,
                windows.size_ms,
                3 * windows.size_ms + 1,
                windows.size_ms * windows.samples,
                1 if dice.random() < 0.9 else 3_600_000,
            )
        )
        if dice.random() < 0.7:
            value = dice.choice((1.0, quota / 3, quota * dice.random() * 30, -quota / 7))
            kafka.ask(f"record {value} {now_ms}")
            rate.record(value, now_ms)
            bucket.record(value, quota, now_ms)
            continue
        found, tokens = rate.measure(now_ms), None
        span_ms = rate.span_ms(now_ms)
        tokens = bucket.measure(quota, now_ms)
        delay = delay_ms(found, quota, span_ms)
        theirs = kafka.ask(f"measure {now_ms}")[0].split()
        assert [float(theirs[0]), int(theirs[1]), int(theirs[2])] == [found, span_ms, delay]
        assert [float(theirs[3]), int(theirs[4])] == [tokens, refill_ms(tokens, quota)]
        beyond += delay > 0 or tokens < 0
    assert beyond, "some of it was more than the quota"
