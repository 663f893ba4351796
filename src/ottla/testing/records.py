"""`produce` and `consume` of `Broker` and `Cluster`: records in and out without a client of the test's own.

`wire.py` does the work, on blocking sockets; it is loaded with the first call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ottla.testing.process import BrokerError

if TYPE_CHECKING:
    from threading import Event

Text: TypeAlias = str | bytes | None
"""`str` is encoded as UTF-8; None is Kafka's null (a tombstone, as a value)."""
Headers: TypeAlias = Mapping[str, Text] | Iterable[tuple[str, Text]]

TIMEOUT_S = 30.0
"""How long `produce` and `consume` wait unless told otherwise."""


@dataclass(frozen=True, slots=True, init=False)
class Record:
    """One record: what `consume` returns, and what `produce` takes where a value alone is not enough.

    `partition`, `timestamp` (milliseconds since 1970) and `offset` are -1 where they are not given: `produce` then
    chooses the partition, and stamps the record with the present time.
    """

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int
    timestamp: int
    offset: int
    topic: str

    def __init__(
        self,
        value: Text = None,
        key: Text = None,
        headers: Headers = (),
        partition: int = -1,
        timestamp: int = -1,
        offset: int = -1,
        topic: str = "",
    ) -> None:
        """Raises TypeError for a key, a value or a header that is neither text nor bytes."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        fields = {
            "value": _as_bytes("value", value),
            "key": _as_bytes("key", key),
            "headers": tuple((name, _as_bytes(f"header {name}", each)) for name, each in pairs),
            "partition": partition,
            "timestamp": timestamp,
            "offset": offset,
            "topic": topic,
        }
        for name, each in fields.items():
            object.__setattr__(self, name, each)


Value: TypeAlias = Text | Record


class ConsumeTimeout(BrokerError, TimeoutError):
    """Fewer records came than were asked for. `records` has those that came."""

    def __init__(self, what: str, records: list[Record]) -> None:
        super().__init__(what)
        self.records = records


class Exchange:
    """The methods, for whatever has the address of a broker."""

    bootstrap: str

    def produce(
        self,
        topic: str,
        values: Value | Iterable[Value],
        *,
        key: Text = None,
        headers: Headers = (),
        partition: int = -1,
        timestamp: int = -1,
        timeout: float = TIMEOUT_S,
    ) -> list[Record]:
        """Write one value, or several, and return them as records with their partitions and offsets.

        A value is `bytes`, `str`, None, or a `Record`, which has its own key, headers, partition and timestamp; the
        keywords are for values that are not Records. A record with a key goes where Kafka's Java client sends it;
        those of one call without a key go to one partition, the next call's to the next. Returns when all in-sync
        replicas have them, each once. A missing topic is created if the broker's settings allow that.

        Raises BrokerError, TypeError.
        """
        from ottla.testing.wire import produce

        if values is None or isinstance(values, str | bytes | Record):
            given: Iterable[Value] = [values]
        elif isinstance(values, Mapping) or not isinstance(values, Iterable):
            raise TypeError(f"values are str, bytes, None, Record, or a list of those, not {_kind(values)}")
        else:
            given = values
        headers = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        records = [
            each if isinstance(each, Record) else Record(each, key, headers, partition, timestamp) for each in given
        ]
        return produce(self._address(), topic, records, timeout)

    def consume(
        self,
        topic: str,
        count: int | None = None,
        *,
        timeout: float = TIMEOUT_S,
        group: str | None = None,
        read_committed: bool = True,
        given_up: Event | None = None,
    ) -> list[Record]:
        """The records of a topic, from its beginning, in the order of partitions and offsets.

        Without `count` all that are there now, possibly none; with it exactly that many, which are waited for. With
        `group` it goes on where the group has committed, and commits what it returns; it joins no group, so nothing
        rebalances, and a group with members in it refuses the commit. Records of aborted transactions, and of open
        ones, are left out unless `read_committed` is False. Another thread ends the wait by setting `given_up`.

        Raises ConsumeTimeout, which says how many came and has them; BrokerError.
        """
        from ottla.testing.wire import consume

        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            raise ValueError(f"count wants a number from 0, or None for all that is there, not {count!r}")
        return consume(self._address(), topic, count, timeout, group, read_committed, given_up)

    def _address(self) -> str:
        """Raises BrokerError before the first start."""
        if not self.bootstrap:
            what = type(self).__name__
            raise BrokerError(f"the {what.lower()} is not started: use `with {what}() as ...:` or start()")
        return self.bootstrap


def _as_bytes(what: str, text: object) -> bytes | None:
    if text is None or isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, bytearray | memoryview):
        return bytes(text)
    raise TypeError(f"{what} is str, bytes or None, not {_kind(text)}")


def _kind(value: object) -> str:
    return f"{type(value).__name__}: encode it first, for example with json.dumps"
