"""What simulated transactions wrote, were told and were seen, and what of it contradicts the promises of transactions.

A transaction appends values, each there once, to lists: the partitions of two topics. Nothing may be lost in these runs
(everything is fsynced, no disk is replaced), so that what a committed transaction wrote is there, what another one
wrote is never seen, and of one whose producer heard nothing either all is there or nothing.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ottla.histories import transactions
from ottla.histories.findings import Finding
from ottla.histories.transactions import Seen, Transaction, Value, of_read
from ottla.protocol.records.record_batch import crc_is_valid, iterate_batches, iterate_records, read_end_marker
from ottla.simulation.checks.history import Key
from ottla.simulation.world import World


class TransactionHistory:
    """All transactions of a run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history = transactions.History()
        self.places: dict[bytes, tuple[int, int]] = {}
        """The transaction of each value, and its index there."""
        self.seen: dict[tuple[Key, int], bytes] = {}
        """What readers of committed records got."""
        self.given: dict[tuple[int, int], tuple[str, str]] = {}
        """The receiver of each producer id and epoch, and its transactional id."""
        self.newest: dict[str, tuple[int, int]] = {}
        """The newest producer id and epoch that anybody was told, by transactional id."""
        self._elections: dict[Key, tuple[int, float]] = {}
        self.counts: Counter[str] = Counter()

    def give(self, producer: tuple[int, int], owner: str, who: str) -> None:
        """A producer was told its id and epoch."""
        self.newest[owner] = max(producer, self.newest.get(owner, producer))
        other = self.given.setdefault(producer, (owner, who))
        if other != (owner, who):
            self.world.violated(f"one producer of an epoch: {who} ({owner}) got {producer}, as {other} did")

    def steady_s(self, key: Key) -> float:
        """For how long a partition has had the leader that it has, at least."""
        now_s, count = self.world.time.now_s, self.world.elections[key]
        known = self._elections.get(key)
        if known is None or known[0] != count:
            known = self._elections[key] = count, now_s if count else -math.inf
        return now_s - known[1]

    def begin(self, owner: str, who: str) -> Transaction:
        number = len(self.history.transactions)
        made = self.history.transactions[number] = Transaction(number, f"{who} ({owner})")
        return made

    def append(self, transaction: Transaction, key: Key, text: str = "", *, late: bool = False) -> bytes:
        """The value to write; only an abort makes late ones."""
        index = len(transaction.appends)
        value = f"{transaction.number}/{index} {text}".encode()
        self.places[value] = transaction.number, index
        transaction.appends.append(key)
        if late:
            transaction.late[index] = None
        return value

    def decide(self, transaction: Transaction, committed: bool | None) -> None:
        """What its producer knows of it now; None: it may be committed or not."""
        transaction.committed = committed
        name = {True: "committed", False: "aborted", None: "undecided"}[committed]
        self.counts[f"transactions {name}"] += 1
        self.world.trace(transaction.who.partition(" ")[0], f"{transaction} is {name}")

    def saw(self, key: Key, offset: int, value: bytes, who: str) -> None:
        """A reader of committed records got a value."""
        self.counts["committed reads"] += 1
        at = self._value(key, offset, value)
        transaction = self.history.transactions.get(at.transaction)
        seen = Seen(who, at, transaction is not None and transaction.asked)
        self._judge(of_read(self.history, seen))
        if self.seen.setdefault((key, offset), value) != value:
            self.world.violated(
                f"unrepeatable read: {value!r} at {offset} of {key} by {who}, {self.seen[key, offset]!r} before"
            )
        self.history.seen.append(seen)

    def _value(self, key: Key, offset: int, value: bytes) -> Value:
        place = self.places.get(value)
        if place is None:
            raise self.world.violated(f"phantom: {value!r} at {offset} of {key}, which nobody wrote")
        return Value(key, offset, *place)

    def _judge(self, found: Iterable[Finding[transactions.Kind]]) -> None:
        for kind, key, text in found:
            if not kind.is_allowed:
                self.world.violated(f"{kind.name.lower()}: {key}: {text}")

    # In the end.

    def check(self, found: dict[Key, dict[int, bytes]]) -> None:
        """`found`: what is committed. Each transaction is there once and whole, in its order, or not at all, and what
        was read is there still."""
        log = self.history.log
        for key, values in found.items():
            log[key] = [self._value(key, offset, value) for offset, value in values.items()]
        self._judge(transactions.findings(self.history))
        places: dict[int, dict[Key, None]] = {}
        for value in itertools.chain.from_iterable(log.values()):
            places.setdefault(value.transaction, {})[value.partition] = None
        written = [each for each in self.history.transactions.values() if each.appends]
        self.counts["transactions checked"] += len(written)
        self.counts["transactions over several partitions"] += sum(len(keys) > 1 for keys in places.values())

    def check_copies(self, inputs: dict[Key, dict[int, bytes]], offsets: dict[Key, int], copied: list[bytes]) -> None:
        """Check that each input below the committed offset has one copy, and the others none."""
        copies = Counter(source_of(value) for value in copied)
        for key, values in inputs.items():
            for offset in values:
                number, wanted = copies.pop((key[1], offset), 0), int(offset < offsets[key])
                if number != wanted:
                    text = f"{offset} of {key} was copied {number} times, the offset committed is {offsets[key]}"
                    name = "copied twice" if number > wanted else "lost input"
                    self.world.violated(f"offset and output are atomic: {name}: {text}")
                self.counts["copies checked"] += wanted
        if copies:
            self.world.violated(f"offset and output are atomic: copies of what is not there: {dict(copies)}")


def source_of(value: bytes) -> tuple[int, int]:
    """The partition and the offset of what is a copy."""
    partition, offset = value.split(b" ")[1].split(b":")
    return int(partition), int(offset)


def committed(answer: dict[str, Any], position: int) -> Iterator[tuple[int, bytes | None]]:
    """What a consumer takes of a read_committed answer, as Kafka's does: each value from `position` on with its offset,
    and where the next fetch begins, with None."""
    records = answer["records"] or b""
    starts = sorted((each["first_offset"], each["producer_id"]) for each in answer["aborted_transactions"] or ())
    aborted: dict[int, None] = {}
    for at, header in iterate_batches(records):
        assert crc_is_valid(records, at, header)
        while starts and starts[0][0] <= header.last_offset:
            aborted[starts.pop(0)[1]] = None
        if header.is_control:
            marker = read_end_marker(records[at : at + header.size])
            if marker is not None and marker.is_abort:
                aborted.pop(header.producer_id, None)
        elif not (header.is_transactional and header.producer_id in aborted):
            for record in iterate_records(records, at):
                if record.offset >= position:
                    yield record.offset, record.value or b""
        yield header.next_offset, None
