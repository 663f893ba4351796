"""Where every replica is while a plan of moves is made, and the steps that make brokers more even.

Three measures are kept even, each to one: replicas, bytes and leaders of a broker. Where bytes and replicas are at odds
replicas come first. No step of a plan widens what lies between the broker with the most and the broker with the least
of a measure. What is written to brokers is evened out as far as it costs none of these.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Key = tuple[str, int]

BYTES_TOLERANCE, RATE_TOLERANCE = 0.05, 0.2
"""Share of a broker's mean: brokers that are closer are even, and moving more costs more than it brings. Rates are of a
moment."""
BYTES_EVEN, RATE_EVEN = 1 << 20, 1 << 16
"""Brokers that differ by less are even too."""
GAIN_MIN = 0.99
"""A move must be smaller than the difference of the two brokers, or they would only change places."""
GOOD_ENOUGH = 0.1
"""A replica is taken without looking at the others if it is as close as this to what would be best."""
STEPS_MAX = 10_000
"""Steps of each kind in one plan; another plan continues."""
NEIGHBOURS = 4
"""So many replicas of about the wanted size are tried in exchange for one."""
DETOURS_MAX = 50
"""So many replicas are tried as the first part of a move by way of a third broker."""


@dataclass(frozen=True)
class Broker:
    id: int
    rack: str | None = None


@dataclass(frozen=True)
class Partition:
    """`replicas` begins with the preferred leader. `rate`: bytes written a second."""

    topic: str
    number: int
    replicas: tuple[int, ...]
    bytes: int = 0
    rate: float = 0.0

    @property
    def key(self) -> Key:
        return self.topic, self.number


Changed = list[tuple[Partition, list[int]]]
"""Partitions and their new replicas."""


class Board:
    """`allowed` brokers may be given more, and are those that are compared."""

    def __init__(
        self, brokers: Sequence[Broker], partitions: Sequence[Partition], leaving: Collection[int] = ()
    ) -> None:
        self.racks = {each.id: each.rack for each in brokers}
        self.allowed = sorted({each.id for each in brokers} - set(leaving))
        """Brokers that may receive replicas, sorted, without those that are leaving."""
        self.partitions = sorted(partitions, key=lambda each: each.key)
        self.replicas: dict[Key, list[int]] = {}
        self.counts: dict[int, int] = defaultdict(int)
        self.leads: dict[int, int] = defaultdict(int)
        self.bytes: dict[int, int] = defaultdict(int)
        self.rates: dict[int, int] = defaultdict(int)
        self.led_rates: dict[int, int] = defaultdict(int)
        """Bytes written to the partitions that a broker leads."""
        self.held: dict[int, dict[Key, Partition]] = defaultdict(dict)
        self.led: dict[tuple[int, int], dict[Key, Partition]] = defaultdict(dict)
        """The partitions that the first broker leads and the second could."""
        for each in self.partitions:
            self._note(each, list(each.replicas), 1)

    def put(self, partition: Partition, replicas: list[int]) -> None:
        """Give a partition other replicas."""
        self._note(partition, self.replicas[partition.key], -1)
        self._note(partition, replicas, 1)

    def _note(self, partition: Partition, replicas: list[int], sign: int) -> None:
        key, rate = partition.key, int(partition.rate)
        self.replicas[key] = replicas
        for broker in replicas:
            self.counts[broker] += sign
            self.bytes[broker] += sign * partition.bytes
            self.rates[broker] += sign * rate
            _keep(self.held[broker], partition, sign)
        if replicas:
            self.leads[replicas[0]] += sign
            self.led_rates[replicas[0]] += sign * rate
        for broker in replicas[1:]:
            _keep(self.led[replicas[0], broker], partition, sign)

    def spread(self, replicas: Iterable[int]) -> int:
        """Number of racks they are in. A broker without a rack counts as a rack of its own."""
        return len({self.racks.get(each) or each for each in replicas})

    def lightest(self, others: Sequence[int]) -> int | None:
        """The broker that a further replica beside `others` goes to: in another rack where that can be, then the one
        with the fewest, then the one that leads least, then the one with the fewest bytes."""

        def rank(broker: int) -> tuple[int, int, int, int, int]:
            spread = self.spread([*others, broker])
            return -spread, self.counts[broker], self.leads[broker], self.bytes[broker], broker

        return min((each for each in self.allowed if each not in others), key=rank, default=None)

    def changed(self) -> Changed:
        return [(each, self.replicas[each.key]) for each in self.partitions if self.is_changed(each)]

    def is_changed(self, partition: Partition) -> bool:
        return tuple(self.replicas[partition.key]) != partition.replicas


def _keep(place: dict[Key, Partition], partition: Partition, sign: int) -> None:
    if sign > 0:
        place[partition.key] = partition
    else:
        del place[partition.key]


def anywhere(partition: Partition, broker: int) -> bool:
    """Every replica may be moved."""
    return True


@dataclass(frozen=True)
class Limits:
    """Between the least and the most that a broker has of each measure: where it has to stay."""

    bytes: tuple[int, int]
    leads: tuple[int, int]

    @classmethod
    def of(cls, board: Board) -> Limits:
        return cls(_range(board, board.bytes), _range(board, board.leads))


def _range(board: Board, measure: Mapping[int, int]) -> tuple[int, int]:
    found = [measure[each] for each in board.allowed]
    return min(found), max(found)


class Evening:
    """The steps on a board. `may_move` says of a partition and a broker whether that replica may go elsewhere."""

    def __init__(self, board: Board, may_move: Callable[[Partition, int], bool] = anywhere) -> None:
        self._board = board
        self._may_move = may_move

    # Replicas

    def counts(self) -> bool:
        """Even out the number of replicas per broker. Returns whether anything was done."""
        return _repeated(self._count_step)

    def _count_step(self) -> bool:
        board, counts = self._board, self._board.counts
        limits = Limits.of(board)
        order = sorted(board.allowed, key=lambda each: (counts[each], board.bytes[each], each))

        def pairs() -> Iterator[tuple[int, int]]:
            for heavy in reversed(order):
                for light in order:
                    if counts[heavy] - counts[light] < 2:
                        break
                    yield heavy, light

        for heavy, light in pairs():
            found = self._best(heavy, light, limits)
            if found is not None:
                board.put(*found)
                return True
        return any(self._by_detour(heavy, light, order, limits) for heavy, light in pairs())

    def _best(self, heavy: int, light: int, limits: Limits) -> tuple[Partition, list[int]] | None:
        """The replica that goes from one broker to the other: with as many bytes as evens out these too."""
        board = self._board
        gap, steps = board.bytes[heavy] - board.bytes[light], board.counts[heavy] - board.counts[light]
        best: tuple[int, Partition, list[int]] | None = None
        for each in board.held[heavy].values():
            rest = abs(gap - steps * each.bytes)
            if best is not None and rest >= best[0]:
                continue
            after = self._moved(each, heavy, light, limits)
            if after is not None:
                best = rest, each, after
                if rest <= abs(gap) * GOOD_ENOUGH:
                    break
        return None if best is None else best[1:]

    def _by_detour(self, heavy: int, light: int, order: Sequence[int], limits: Limits) -> bool:
        """What both have already, or is too large for the one, may go to a third broker, which gives another on."""
        board = self._board
        for third in order:
            if third in (heavy, light):
                continue
            for each in sorted(board.held[heavy].values(), key=lambda each: each.key)[:DETOURS_MAX]:
                before = board.replicas[each.key]
                after = self._moved(each, heavy, third, limits)
                if after is None:
                    continue
                board.put(each, after)
                found = self._best(third, light, limits)
                if found is not None and found[0] is not each:
                    board.put(*found)
                    return True
                board.put(each, before)
        return False

    def _moved(self, partition: Partition, heavy: int, light: int, limits: Limits) -> list[int] | None:
        """The replicas with one of them moved; None where that may not be, or would make a measure less even."""
        held, (least, most) = self._board.bytes, limits.bytes
        if held[light] + partition.bytes > most or held[heavy] - partition.bytes < least:
            return None
        for after in self._replaced(partition, heavy, light):
            if self._leads_stay([(partition, after)], limits):
                return after
        return None

    def _replaced(self, partition: Partition, heavy: int, light: int) -> Iterator[list[int]]:
        """Ways to move a replica: in its place first, then led by one that was there."""
        board, before = self._board, self._board.replicas[partition.key]
        if light in before or not self._may_move(partition, heavy):
            return
        after = [light if broker == heavy else broker for broker in before]
        if board.spread(after) < board.spread(before):
            return
        yield after
        if before[0] == heavy:
            for place in range(1, len(after)):
                yield [after[place], *after[:place], *after[place + 1 :]]

    def _leads_stay(self, changes: Changed, limits: Limits) -> bool:
        """Whether no broker leads fewer or more then than the least and the most that one leads now."""
        board = self._board
        leads: dict[int, int] = {}
        for partition, after in changes:
            old, new = board.replicas[partition.key][0], after[0]
            if old != new:
                leads[old] = leads.get(old, board.leads[old]) - 1
                leads[new] = leads.get(new, board.leads[new]) + 1
        low, high = limits.leads
        return all(low <= leads[each] <= high for each in leads if each in board.allowed)

    # Bytes, and what is written

    def bytes(self) -> bool:
        """Even out the bytes per broker. Returns whether anything was done."""
        return _repeated(self._exchange_step, self._board.bytes, lambda each: each.bytes, BYTES_TOLERANCE, BYTES_EVEN)

    def rates(self) -> bool:
        """Even out the write rates of brokers, where the bytes stay as even as they are."""
        return _repeated(self._exchange_step, self._board.rates, lambda each: int(each.rate), RATE_TOLERANCE, RATE_EVEN)

    def _exchange_step(
        self, measure: Mapping[int, int], size: Callable[[Partition], int], share: float, floor: int
    ) -> bool:
        board, limits = self._board, Limits.of(self._board)
        for heavy, light, gap in uneven(board, measure, share, floor):
            changes = self._exchange(heavy, light, size, gap, limits)
            if changes is not None:
                for change in changes:
                    board.put(*change)
                return True
        return False

    def _exchange(
        self, heavy: int, light: int, size: Callable[[Partition], int], gap: int, limits: Limits
    ) -> Changed | None:
        """One replica that goes from a broker to another, or two that change places, such that these two come closest;
        None where none are allowed to."""
        board = self._board
        best: tuple[float, Changed] | None = None
        back = sorted(
            ((size(each), each) for each in board.held[light].values() if self._may_go(each, light, heavy)),
            key=lambda pair: (pair[0], pair[1].key),
        )
        sizes = [each for each, _ in back]
        one_more = board.counts[heavy] > board.counts[light]
        for each in sorted(board.held[heavy].values(), key=lambda each: each.key):
            given = size(each)
            if not given or not self._may_go(each, heavy, light):
                continue
            others: list[tuple[int, Partition | None]] = [(0, None)] if one_more else []
            place = bisect_left(sizes, given - gap / 2)
            others += back[max(0, place - NEIGHBOURS // 2) : place + NEIGHBOURS // 2]
            for taken, other in others:
                moved = given - taken
                rest = abs(gap - 2 * moved)
                if not 0 < moved <= gap * GAIN_MIN or (best is not None and rest >= best[0]):
                    continue
                changes = self._exchanged(each, other, heavy, light, limits)
                if changes is not None:
                    best = rest, changes
        return None if best is None else best[1]

    def _may_go(self, partition: Partition, heavy: int, light: int) -> bool:
        return next(self._replaced(partition, heavy, light), None) is not None

    def _exchanged(
        self, given: Partition, taken: Partition | None, heavy: int, light: int, limits: Limits
    ) -> Changed | None:
        board = self._board
        moved = given.bytes - (0 if taken is None else taken.bytes)
        before = board.bytes[heavy] - board.bytes[light]
        low, high = limits.bytes
        even = tolerance(board, board.bytes, BYTES_TOLERANCE, BYTES_EVEN)
        bound = max(abs(before), even if high - low <= even else 0)
        if abs(before - 2 * moved) > bound:
            return None
        if not (low <= board.bytes[heavy] - moved <= high and low <= board.bytes[light] + moved <= high):
            return None
        for after in self._replaced(given, heavy, light):
            if taken is None:
                if self._leads_stay([(given, after)], limits):
                    return [(given, after)]
                continue
            for back in self._replaced(taken, light, heavy):
                if self._leads_stay([(given, after), (taken, back)], limits):
                    return [(given, after), (taken, back)]
        return None


def _repeated(step: Callable[..., bool], *arguments: object) -> bool:
    """Repeat a step until it does nothing; returns whether it did anything."""
    steps = 0
    while steps < STEPS_MAX and step(*arguments):
        steps += 1
    return steps > 0


def tolerance(board: Board, measure: Mapping[int, int], share: float, floor: int) -> float:
    """Brokers that differ by no more are even."""
    return max(floor, share * sum(measure[each] for each in board.allowed) / len(board.allowed))


def uneven(board: Board, measure: Mapping[int, int], share: float, floor: int) -> Iterator[tuple[int, int, int]]:
    """Pairs of brokers that are not even: who has more, who has less, and by how much; the farthest apart first."""
    even = tolerance(board, measure, share, floor)
    order = sorted(board.allowed, key=lambda each: (measure[each], each))
    for heavy in reversed(order):
        for light in order:
            gap = measure[heavy] - measure[light]
            if gap <= even:
                break
            yield heavy, light, gap


class Leading:
    """Plans which replica leads each partition; a change of leader copies nothing. `among`: whose leaders may
    change.
    """

    def __init__(self, board: Board, among: Callable[[Partition], bool] = lambda partition: True) -> None:
        self._board = board
        self._among = among

    def counts(self) -> bool:
        """Even out how many partitions brokers lead. A leader that cannot go straight from the broker with most to one
        with few goes by way of others; where no such way is left, no other choice of leaders is more even (Harvey,
        Ladner, Lovász, Tamir: Semi-matchings for bipartite graphs and load balancing)."""
        return _repeated(self._count_step)

    def _count_step(self) -> bool:
        way = self._way()
        for partition, leader in way or ():
            self._lead(partition, leader)
        return way is not None

    def _way(self) -> list[tuple[Partition, int]] | None:
        """Partitions and their next leaders: the first broker leads one less then, and the last one more."""
        board = self._board
        for start in sorted(board.allowed, key=lambda each: (-board.leads[each], each)):
            came: dict[int, tuple[int, Partition]] = {}
            waiting = deque([start])
            while waiting:
                broker = waiting.popleft()
                for other in board.allowed:
                    if other != start and other not in came:
                        found = self._first(broker, other)
                        if found is not None:
                            came[other] = broker, found
                            waiting.append(other)
            end = min(came, key=lambda each: board.leads[each], default=start)  # the first found, so the nearest
            if board.leads[start] - board.leads[end] >= 2:
                return self._path(start, end, came)
        return None

    def _first(self, leader: int, other: int) -> Partition | None:
        return next((each for each in self._board.led[leader, other].values() if self._among(each)), None)

    @staticmethod
    def _path(start: int, end: int, came: Mapping[int, tuple[int, Partition]]) -> list[tuple[Partition, int]]:
        way = []
        while end != start:
            before, partition = came[end]
            way.append((partition, end))
            end = before
        return way

    def _lead(self, partition: Partition, leader: int) -> None:
        before = self._board.replicas[partition.key]
        self._board.put(partition, [leader, *(each for each in before if each != leader)])

    def rates(self) -> bool:
        """Even out the write rates of the partitions that brokers lead: two partitions change their leaders."""
        return _repeated(self._rate_step)

    def _rate_step(self) -> bool:
        for heavy, light, gap in uneven(self._board, self._board.led_rates, RATE_TOLERANCE, RATE_EVEN):
            given = self._by_rate(heavy, light)
            taken = self._by_rate(light, heavy)
            if not given or not taken:
                continue
            least = taken[0]
            fits = [each for each in given if 0 < int(each.rate) - int(least.rate) <= gap * GAIN_MIN]
            if fits:
                best = min(fits, key=lambda each: abs(gap - 2 * (int(each.rate) - int(least.rate))))
                self._lead(best, light)
                self._lead(least, heavy)
                return True
        return False

    def _by_rate(self, leader: int, other: int) -> list[Partition]:
        found = (each for each in self._board.led[leader, other].values() if self._among(each))
        return sorted(found, key=lambda each: (int(each.rate), each.key))
