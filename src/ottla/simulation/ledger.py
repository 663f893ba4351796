"""What simulated transactions wrote, were told and were seen, and what of it contradicts the promises of transactions.

A transaction appends values, each there once, to lists: the partitions of two topics. Nothing may be lost in these runs
(everything is fsynced, no disk is replaced), so that what a committed transaction wrote is there, what another one
wrote is never seen, and of one whose producer heard nothing either all is there or nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.protocol.record_batch import crc_is_valid, iterate_batches, iterate_records, read_end_marker
from ottla.simulation.history import Key
from ottla.simulation.world import World


class Append(NamedTuple):
    key: Key
    value: bytes


@dataclass
class Transaction:
    number: int
    owner: str
    """The transactional id."""
    who: str
    """The process."""
    appends: list[Append] = field(default_factory=list)
    late: dict[bytes, None] = field(default_factory=dict)
    """Values that were sent when the transaction was over or about to be; only an abort makes such."""
    may_commit: bool = False
    """Whether anybody asked to commit it."""
    decided: bool | None = None
    """Whether it is committed, as far as its producer was told."""

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.who} ({self.owner})"


class Ledger:
    """All transactions of a run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.transactions: list[Transaction] = []
        self.of_value: dict[bytes, Transaction] = {}
        self.seen: dict[Key, dict[int, bytes]] = {}
        """What readers of committed records got, by offset."""
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
        made = Transaction(len(self.transactions), owner, who)
        self.transactions.append(made)
        return made

    def append(self, transaction: Transaction, key: Key, text: str = "", *, late: bool = False) -> bytes:
        """The value to write."""
        number = len(transaction.appends) + len(transaction.late)
        value = f"{transaction.number}/{number} {text}".encode()
        self.of_value[value] = transaction
        if late:
            transaction.late[value] = None
        else:
            transaction.appends.append(Append(key, value))
        return value

    def decide(self, transaction: Transaction, committed: bool | None) -> None:
        """What its producer knows of it now; None: it may be committed or not."""
        transaction.decided = committed
        name = {True: "committed", False: "aborted", None: "undecided"}[committed]
        self.counts[f"transactions {name}"] += 1
        self.world.trace(transaction.who, f"{transaction} is {name}")

    def saw(self, key: Key, offset: int, value: bytes, who: str) -> None:
        """A reader of committed records got a value."""
        self.counts["committed reads"] += 1
        transaction = self.of_value.get(value)
        where = f"{who} read {value!r} at {offset} of {key}"
        if transaction is None:
            raise self.world.violated(f"phantom: {where}, which nobody wrote")
        if transaction.decided is False:
            self.world.violated(f"aborted read: {where}, {transaction} was aborted")
        if not transaction.may_commit:
            self.world.violated(f"intermediate read: {where}, nobody asked to commit {transaction}")
        if value in transaction.late:
            self.world.violated(f"aborted read: {where}, which {transaction} wrote after its end")
        known = self.seen.setdefault(key, {}).setdefault(offset, value)
        if known != value:
            self.world.violated(f"unrepeatable read: {where}, {known!r} was there before")

    # In the end.

    def check_final(self, key: Key, found: dict[int, bytes]) -> None:
        """What was read is there still. `found`: what is committed in a partition."""
        for offset, value in self.seen.get(key, {}).items():
            if found.get(offset) != value:
                self.world.violated(f"lost: {value!r} was read at {offset} of {key}, now it is {found.get(offset)!r}")

    def check_atomic(self, found: dict[Key, dict[int, bytes]]) -> None:
        """Each transaction is there once and whole, in its order, or not at all."""
        places: dict[bytes, list[tuple[Key, int]]] = {}
        for key, values in found.items():
            for offset, value in values.items():
                places.setdefault(value, []).append((key, offset))
        for transaction in self.transactions:
            there = [each for each in transaction.appends if each.value in places]
            if transaction.decided and len(there) < len(transaction.appends):
                missing = [each for each in transaction.appends if each not in there]
                self.world.violated(f"lost: {transaction} was committed, {missing} is not there")
            if there and len(there) < len(transaction.appends):
                missing = [each for each in transaction.appends if each not in there]
                self.world.violated(f"not atomic: of {transaction} {missing} is not there, {there} is")
            last: dict[Key, int] = {}
            for key, value in there:
                if len(places[value]) > 1:
                    self.world.violated(f"duplicate: {value!r} of {transaction} is at {places[value]}")
                ((at, offset),) = places[value]
                if at != key or offset <= last.get(key, -1):
                    self.world.violated(f"reordered: {value!r} of {transaction} is at {offset} of {at}: {last}")
                last[key] = offset
            self.counts["transactions checked"] += bool(transaction.appends)
            self.counts["transactions over several partitions"] += len(last) > 1

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
