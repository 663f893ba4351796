"""Sample data for the pipelines that come with Ottla (`ottla pipeline feed`): input such as a user's own might be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, NamedTuple

SPAN: Final = timedelta(hours=3)
"""The records are spread over as long, up to now: most windows and sessions of a pipeline are over then."""


class Sample(NamedTuple):
    """A record. `setting` is the pipeline's setting that names its topic."""

    setting: str
    key: str | None
    value: str


Samples = Callable[[int, datetime, Random], Iterator[Sample]]
"""Makes as many records as it is told, up to a moment, in the order of their times."""

_USERS: Final = ("ada", "ben", "cyd", "dan", "eve", "fay", "gil", "hal")
_HOSTS: Final = ("web-1", "web-2", "db-1")


def samples(name: str, count: int, now: datetime, random: Random) -> Iterator[Sample]:
    """The samples of the pipeline `name`. Raises KeyError for one that does not come with Ottla."""
    return _SAMPLES[name](count, now, random)


def _times(count: int, now: datetime) -> Iterator[tuple[int, datetime]]:
    for number in range(count):
        yield number, now - SPAN * ((count - number - 1) / max(count, 1))


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(setting: str, key: str | None, **fields: Any) -> Sample:
    return Sample(setting, key, json.dumps(fields))


def _activity(count: int, now: datetime, random: Random) -> Iterator[Sample]:
    """Visitors come in waves: each has half an hour and more of rest between its visits."""
    for _, at in _times(count, now):
        wave = int(at.timestamp() // 1800)
        user = _USERS[(2 * wave + random.randrange(2)) % len(_USERS)]
        page = random.choices(("/", "/product", "/cart", "/checkout"), (5, 4, 2, 1))[0]
        yield _json("input", user, user=user, page=page, at=_text(at))


def _metrics(count: int, now: datetime, random: Random) -> Iterator[Sample]:
    """The second host is busy for the middle third of the time."""
    for number, at in _times(count, now):
        host, is_busy = _HOSTS[number % 3], number % 3 == 1 and count < 3 * number < 2 * count
        cpu = random.uniform(0.92, 1) if is_busy else random.uniform(0.1, 0.7)
        yield _json("input", host, host=host, name="cpu", value=round(cpu, 3), at=_text(at))


def _logs(count: int, now: datetime, random: Random) -> Iterator[Sample]:
    for _, at in _times(count, now):
        level = random.choices(("INFO", "WARN", "ERROR"), (90, 7, 3))[0]
        said = {"INFO": "request served", "WARN": "request was slow", "ERROR": "request failed: no route"}[level]
        yield Sample("input", random.choice(_HOSTS), f"{_text(at)} {level} {said} in {random.randrange(900)} ms")


def _ledger(count: int, now: datetime, random: Random) -> Iterator[Sample]:
    """Deposits first, then all kinds; some take more than there is. Ids are new each time."""
    run = int(now.timestamp() * 1000)
    for number, at in _times(count, now):
        account, other = random.sample(_USERS, 2)
        kind = "deposit" if number < count // 4 else random.choice(("deposit", "withdraw", "transfer"))
        to, amount = other if kind == "transfer" else None, random.randrange(1, 50_000)
        id = f"{run}-{number}"
        yield _json("input", account, id=id, kind=kind, account=account, to=to, amount=amount, at=_text(at))


def _ticks(count: int, now: datetime, random: Random) -> Iterator[Sample]:
    prices = {"ACME": 100.0, "OTTL": 20.0, "KFKA": 50.0}
    for _, at in _times(count, now):
        symbol = random.choice(sorted(prices))
        prices[symbol] = max(1.0, prices[symbol] * random.uniform(0.995, 1.005))
        size = random.randrange(1, 500)
        yield _json("input", symbol, symbol=symbol, price=round(prices[symbol], 2), size=size, at=_text(at))


def _join(count: int, now: datetime, random: Random) -> Iterator[Sample]:
    """Nine of ten orders are paid, some minutes later."""
    run = int(now.timestamp() * 1000)
    found: list[tuple[datetime, Sample]] = []
    for number, at in _times(count - count // 2, now):
        order, amount, ordered = f"{run}-{number}", random.randrange(100, 9000) / 100, at - timedelta(minutes=15)
        customer = random.choice(_USERS)
        found.append(
            (ordered, _json("orders", order, order=order, customer=customer, amount=amount, at=_text(ordered)))
        )
        if number % 10 and len(found) < count:
            paid = ordered + timedelta(seconds=random.randrange(5, 900))
            found.append(
                (paid, _json("payments", order, payment=f"p{order}", order=order, amount=amount, at=_text(paid)))
            )
    yield from (sample for _, sample in sorted(found, key=lambda each: each[0]))


def _numbers(setting: str) -> Samples:
    def numbers(count: int, now: datetime, random: Random) -> Iterator[Sample]:
        for number in range(count):
            yield _json(setting, str(number), id=number, name=f"{random.choice(_USERS)}-{number}")

    return numbers


_SAMPLES: Final[dict[str, Samples]] = {
    "activity": _activity, "metrics": _metrics, "logs": _logs, "ledger": _ledger, "ticks": _ticks, "join": _join,
    "replay": _numbers("input"), "lake": _numbers("input"), "postgres": _numbers("input"), "mirror": _numbers("topics"),
}  # fmt: skip
NAMES: Final = tuple(sorted(_SAMPLES))

MIRRORED: Final = "orders"
"""Where samples for a mirror go, which takes all topics of the other cluster."""
HINTS: Final = {
    "lake": "--set kind=parquet --set table=DIRECTORY --set schema='id BIGINT, name STRING'",
    "postgres": "--set into=TABLE --set columns='id BIGINT, name STRING'",
}
"""Additional options that a run of these pipelines needs."""
