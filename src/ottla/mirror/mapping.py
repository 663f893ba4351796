"""Offsets of a source's partition as offsets of its mirror, exactly, and the other way round.

Records are copied one to one and in order, but their offsets differ: markers of transactions, aborted records and
compaction leave gaps on both sides. What is kept is runs, in which both sides go on by one.
"""

from __future__ import annotations

import base64
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.model import Offset

INFLATED_BYTES_MAX: Final = 16 << 20
"""Limit of what a block is inflated to, whatever a record of the control topic claims: a run takes three bytes or a few
more, and a block is made of some hundred runs."""
VARINT_BITS_MAX: Final = 63

Place = tuple[str, int]
"""A topic's name and a partition."""


class Run(NamedTuple):
    """A run of records from offset `source` on, copied from offset `destination` on."""

    source: Offset
    destination: Offset
    records: int


class Stretch(NamedTuple):
    """`records` consecutive offsets of one side, each with a record."""

    start: Offset
    records: int


class Block(NamedTuple):
    """Consecutive runs in a byte or two each: there is one run for each transaction of the mirror."""

    source: Offset
    destination: Offset
    source_end: Offset
    destination_end: Offset
    records: int
    packed: str
    """For each run the gaps before it at both sides and its records, in varints (LEB128), deflated, as base64."""

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Block:
        """A block of at least one run."""
        first = runs[0]
        source, destination, out = first.source, first.destination, bytearray()
        for run in runs:
            for number in (run.source - source, run.destination - destination, run.records):
                while number > 0x7F:
                    out.append(number & 0x7F | 0x80)
                    number >>= 7
                out.append(number)
            source, destination = run.source + run.records, run.destination + run.records
        packed = base64.b64encode(zlib.compress(bytes(out))).decode()
        records = sum(run.records for run in runs)
        return cls(first.source, first.destination, source, destination, records, packed)

    def runs(self) -> list[Run]:
        """Raises ValueError for what is no block."""
        numbers, number, shift = [], 0, 0
        for byte in self._inflated():
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                numbers.append(number)
                number, shift = 0, 0
            elif shift >= VARINT_BITS_MAX:
                raise ValueError("a number of a block has too many bytes")
        if shift or len(numbers) % 3:
            raise ValueError("a block ends within a run")
        source, destination, found = self.source, self.destination, []
        for at in range(0, len(numbers), 3):
            run = Run(source + numbers[at], destination + numbers[at + 1], numbers[at + 2])
            found.append(run)
            source, destination = run.source + run.records, run.destination + run.records
        return found

    def _inflated(self) -> bytes:
        """Raises ValueError."""
        inflating = zlib.decompressobj()
        try:
            found = inflating.decompress(base64.b64decode(self.packed), INFLATED_BYTES_MAX)
        except zlib.error as error:
            raise ValueError(f"a block cannot be inflated: {error}") from error
        if not inflating.eof:
            raise ValueError(f"a block is cut off, or takes more than {INFLATED_BYTES_MAX} bytes")
        return found


class Runs:
    """Ascending on both sides: blocks, and runs behind them."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self.blocks: list[Block] = []
        self.tail: list[Run] = []
        self.extend(runs)

    def __bool__(self) -> bool:
        return bool(self.blocks or self.tail)

    def __iter__(self) -> Iterator[Run]:
        for block in self.blocks:
            yield from block.runs()
        yield from self.tail

    def extend(self, runs: Iterable[Run]) -> None:
        """Add what was copied next; runs that go on where the last one ends become one with it. Raises ValueError for
        those that go back."""
        for run in runs:
            ends = (self.source_end(), self.destination_end())
            if run.source < ends[0] or run.destination < ends[1]:
                raise ValueError(f"{run} lies before {ends}, where the last one ends")
            if self.tail and ends == (run.source, run.destination):
                last = self.tail.pop()
                run = Run(last.source, last.destination, last.records + run.records)
            self.tail.append(run)

    def add(self, block: Block) -> None:
        """A block behind all that is there. Raises ValueError as `extend` does."""
        if self.tail or block.source < self.source_end() or block.destination < self.destination_end():
            raise ValueError(f"a block from {block.source} on lies before the end of others")
        self.blocks.append(block)

    def pack(self) -> Block:
        """Make a block of all runs that are in none."""
        block = Block.of(self.tail)
        self.blocks.append(block)
        self.tail = []
        return block

    def source_end(self) -> Offset:
        """Behind the last record at the source; 0 where there is none."""
        if self.tail:
            return self.tail[-1].source + self.tail[-1].records
        return self.blocks[-1].source_end if self.blocks else 0

    def destination_end(self) -> Offset:
        """Likewise at the destination."""
        if self.tail:
            return self.tail[-1].destination + self.tail[-1].records
        return self.blocks[-1].destination_end if self.blocks else 0

    def translate(self, offset: Offset, end: Offset) -> Offset:
        """The destination offset of the first record with this source offset or a later one; `end` if there is none."""
        at = bisect_right(self.blocks, offset, key=lambda block: block.source_end)
        if at < len(self.blocks):
            return _translated(self.blocks[at].runs(), offset, end)
        return _translated(self.tail, offset, end)

    def back(self, offset: Offset, end: Offset) -> Offset:
        """The reverse of `translate`."""
        at = bisect_right(self.blocks, offset, key=lambda block: block.destination_end)
        runs = self.blocks[at].runs() if at < len(self.blocks) else self.tail
        return _translated([Run(run.destination, run.source, run.records) for run in runs], offset, end)

    def source_end_before(self, offset: Offset) -> Offset:
        """Behind the last record of the runs that begin before an offset of the source; 0 where there are none."""
        at = bisect_left(self.blocks, offset, key=lambda block: block.source) - 1
        runs = self.tail
        if at >= 0 and (at + 1 < len(self.blocks) or not runs or runs[0].source >= offset):
            runs = self.blocks[at].runs()
        last = bisect_left(runs, offset, key=lambda run: run.source) - 1
        return runs[last].source + runs[last].records if last >= 0 else 0


def _translated(runs: Sequence[Run], offset: Offset, end: Offset) -> Offset:
    at = bisect_right(runs, offset, key=lambda run: run.source) - 1
    if at >= 0 and offset < runs[at].source + runs[at].records:
        return runs[at].destination + offset - runs[at].source
    return runs[at + 1].destination if at + 1 < len(runs) else end


@dataclass
class Mapping:
    """Mapping of one partition. `through`: every record of the source before it has been copied."""

    runs: Runs = field(default_factory=Runs)
    origin: Offset = 0
    """Where the destination ended before anything was copied, or before copying went on after a failback."""
    start: Offset = 0
    """Where copying began at the source, or went on after a failback."""
    through: Offset = 0

    def end(self) -> Offset:
        """Behind the last copied record at the destination."""
        return max(self.runs.destination_end(), self.origin)

    def source_end(self) -> Offset:
        """Where copying goes on: behind the last copied record at the source, or behind all that was looked at."""
        return max(self.runs.source_end(), self.start, self.through)

    def translate(self, offset: Offset) -> Offset | None:
        """Where a group goes on at the destination which goes on at `offset` at the source.

        That is at the first copied record with this offset or a later one. None where the mirror has not come there,
        and for what lies before `start` and was not copied.
        """
        if offset > self.source_end() or self.runs.source_end_before(self.start) <= offset < self.start:
            return None
        return self.runs.translate(offset, self.end())

    def back(self, offset: Offset) -> Offset | None:
        """The reverse of `translate`: an offset of the destination as one of the source. None past what was copied."""
        if offset > self.end():
            return None
        return self.runs.back(offset, self.source_end())


def stretches(offsets: Iterable[Offset]) -> list[Stretch]:
    """Ascending offsets as stretches without gaps."""
    found: list[Stretch] = []
    for offset in offsets:
        add_stretch(found, Stretch(offset, 1))
    return found


def add_stretch(found: list[Stretch], more: Stretch) -> None:
    """Add what comes next: one that goes on where the last one ends becomes one with it."""
    if found and found[-1].start + found[-1].records == more.start:
        found[-1] = Stretch(found[-1].start, found[-1].records + more.records)
    else:
        found.append(more)


def paired(source: Iterable[Stretch], destination: Iterable[Stretch]) -> list[Run]:
    """The n-th record of one side with the n-th of the other. Raises ValueError where one side has more records."""
    runs = []
    left, right = list(source)[::-1], list(destination)[::-1]
    while left and right:
        one, other = left.pop(), right.pop()
        count = min(one.records, other.records)
        runs.append(Run(one.start, other.start, count))
        if one.records > count:
            left.append(Stretch(one.start + count, one.records - count))
        if other.records > count:
            right.append(Stretch(other.start + count, other.records - count))
    if left or right:
        more = "source" if left else "destination"
        raise ValueError(f"the {more} has {sum(each.records for each in left or right)} records more")
    return runs
