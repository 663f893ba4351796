"""`produce` and `consume` of `Broker` and `Cluster`: records in and out without a client of the test's own.

`wire.py` does the work, on blocking sockets; it is loaded with the first call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.testing.process import BrokerError
from ottla.testing.records import TIMEOUT_S, Headers, Record, Text, Value, kind_of

if TYPE_CHECKING:
    from threading import Event


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
            raise TypeError(f"values are str, bytes, None, Record, or a list of those, not {kind_of(values)}")
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
