"""Which replicas go where: to even out brokers, to empty one, to give a topic more copies or fewer. Brokers and
partitions in, moves out, no broker in sight.

A replica weighs what it takes of its cluster: of the bytes kept, of the bytes written, and of the number of replicas. A
move never leaves a partition's copies in fewer racks than they could be in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

BYTES_SHARE, RATE_SHARE, COUNT_SHARE = 0.5, 0.3, 0.2
"""How much each measure counts. Where nothing is kept, or nothing written, the others count for all."""
TOLERANCE = 0.05
"""Of the mean weight: brokers that are closer are even. Moving more than that costs more than it brings."""
GAIN_MIN = 0.99
"""What is moved weighs less than the two brokers differ by, or they would only change places."""
ROUNDS_MAX = 10
MOVES_MAX = 10_000
"""In one plan; another one continues."""


class PlanImpossible(Exception):
    """Says why there is no such plan, and what to do."""


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
    def key(self) -> tuple[str, int]:
        return self.topic, self.number


@dataclass(frozen=True)
class Move:
    """A partition's replicas, before and after. The same in another order is another leader."""

    partition: Partition
    after: tuple[int, ...]

    @property
    def adds(self) -> tuple[int, ...]:
        return tuple(each for each in self.after if each not in self.partition.replicas)

    @property
    def removes(self) -> tuple[int, ...]:
        return tuple(each for each in self.partition.replicas if each not in self.after)

    @property
    def bytes(self) -> int:
        """To be copied."""
        return self.partition.bytes * len(self.adds)


class _Board:
    """Where everything stands while a plan is made. `allowed` brokers may be given more."""

    def __init__(
        self, brokers: Sequence[Broker], partitions: Sequence[Partition], leaving: Collection[int] = ()
    ) -> None:
        self.racks = {each.id: each.rack for each in brokers}
        self.allowed = [each.id for each in sorted(brokers, key=lambda each: each.id) if each.id not in leaving]
        self.partitions = sorted(partitions, key=lambda each: each.key)
        self.replicas = {each.key: list(each.replicas) for each in self.partitions}
        self.weights = self._weigh()
        self.load: dict[int, float] = dict.fromkeys(self.allowed, 0.0)
        self.leads: dict[int, float] = dict.fromkeys(self.allowed, 0.0)
        for each in self.partitions:
            for broker in each.replicas:
                self._add(broker, self.weights[each.key])
            if each.replicas:
                self.leads[each.replicas[0]] = self.leads.get(each.replicas[0], 0.0) + self.weights[each.key]

    def _weigh(self) -> dict[tuple[str, int], float]:
        measures: list[tuple[float, Callable[[Partition], float]]] = [
            (BYTES_SHARE, lambda each: float(each.bytes)),
            (RATE_SHARE, lambda each: each.rate),
            (COUNT_SHARE, lambda each: 1.0),
        ]
        totals = [(share, of, sum(of(each) * len(each.replicas) for each in self.partitions)) for share, of in measures]
        totals = [each for each in totals if each[2] > 0]
        whole = sum(share for share, _, _ in totals)
        return {
            each.key: sum(share / whole * of(each) / total for share, of, total in totals) for each in self.partitions
        }

    def _add(self, broker: int, weight: float) -> None:
        self.load[broker] = self.load.get(broker, 0.0) + weight

    def put(self, partition: Partition, replicas: list[int]) -> None:
        """Give a partition other replicas."""
        before, weight = self.replicas[partition.key], self.weights[partition.key]
        for broker in before:
            self._add(broker, -weight)
        for broker in replicas:
            self._add(broker, weight)
        self.leads[before[0]] -= weight
        self.leads[replicas[0]] = self.leads.get(replicas[0], 0.0) + weight
        self.replicas[partition.key] = replicas

    def spread(self, replicas: Iterable[int]) -> int:
        """In how many racks they are. Brokers without a rack are each in one of their own."""
        return len({self.racks.get(each) or each for each in replicas})

    def lightest(self, others: Sequence[int]) -> int | None:
        """The broker that a further replica beside `others` goes to: in another rack where that can be, then the one
        with least on it."""
        free = [each for each in self.allowed if each not in others]
        return min(free, key=lambda each: (-self.spread([*others, each]), self.load[each], each), default=None)

    def moves(self) -> list[Move]:
        return [
            Move(each, tuple(self.replicas[each.key]))
            for each in self.partitions
            if tuple(self.replicas[each.key]) != each.replicas
        ]


def plan_balance(brokers: Sequence[Broker], partitions: Sequence[Partition]) -> list[Move]:
    """Moves after which brokers hold, and lead, about the same; none where they do already."""
    if len(brokers) < 2 or not partitions:
        return []
    placed = list(partitions)
    for _ in range(ROUNDS_MAX):  # a sum of floats in another order may decide a close one otherwise
        board = _Board(brokers, placed)
        for _ in range(MOVES_MAX):
            if not _even_out(board):
                break
        _even_out_leaders(board)
        if not board.moves():
            break
        placed = [replace(each, replicas=tuple(board.replicas[each.key])) for each in placed]
    before = {each.key: each for each in partitions}
    moves = [Move(before[each.key], each.replicas) for each in placed if each.replicas != before[each.key].replicas]
    return sorted(moves, key=lambda move: move.partition.key)


def _even_out(board: _Board) -> bool:
    """The one move that brings the heaviest broker and a light one closest together. Whether there was one."""
    mean = sum(board.load[each] for each in board.allowed) / len(board.allowed)
    heavy = max(board.allowed, key=lambda each: (board.load[each], each))
    held = [each for each in board.partitions if heavy in board.replicas[each.key]]
    for light in sorted(board.allowed, key=lambda each: (board.load[each], each)):
        gap = board.load[heavy] - board.load[light]
        if gap <= mean * TOLERANCE:
            return False
        best: tuple[float, Partition, list[int]] | None = None
        for each in held:
            weight, before = board.weights[each.key], board.replicas[each.key]
            if light in before or weight > gap * GAIN_MIN:
                continue
            after = [light if broker == heavy else broker for broker in before]
            if board.spread(after) < board.spread(before):
                continue
            rest = abs(gap - 2 * weight)
            if best is None or rest < best[0]:
                best = rest, each, after
        if best is not None:
            board.put(best[1], best[2])
            return True
    return False


def _even_out_leaders(board: _Board) -> None:
    for _ in range(MOVES_MAX):
        mean = sum(board.leads.values()) / len(board.allowed)
        best: tuple[float, Partition, list[int]] | None = None
        for each in board.partitions:
            weight, before = board.weights[each.key], board.replicas[each.key]
            for place, broker in enumerate(before[1:], 1):
                gain = board.leads[before[0]] - board.leads[broker] - weight
                if gain > mean * TOLERANCE and (best is None or gain > best[0]):
                    after = [broker, *before[:place], *before[place + 1 :]]
                    best = gain, each, after
        if best is None:
            return
        board.put(best[1], best[2])


def plan_drain(
    brokers: Sequence[Broker], partitions: Sequence[Partition], leaving: Collection[int], *, fewer_copies: bool = False
) -> list[Move]:
    """Moves after which nothing is on brokers `leaving`. Raises PlanImpossible where too few others are left, unless a
    partition may have `fewer_copies` then."""
    board = _Board(brokers, partitions, leaving)
    if not board.allowed:
        raise PlanImpossible("no broker would be left")
    # The largest first: what is small evens out what they leave.
    for each in sorted(board.partitions, key=lambda each: (-board.weights[each.key], each.key)):
        after = list(each.replicas)
        for broker in each.replicas:
            if broker not in leaving:
                continue
            place = after.index(broker)
            rest = after[:place] + after[place + 1 :]
            other = board.lightest(rest)
            if other is not None:
                after[place] = other
            elif fewer_copies and rest:
                after = rest
            else:
                raise PlanImpossible(
                    f"topic {each.topic!r} has {len(each.replicas)} copies, and {len(board.allowed)} other brokers are "
                    f"too few for them\n  reduce them with: ottla topic replicate {each.topic} --factor "
                    f"{len(board.allowed)}, or add --fewer-copies"
                )
        if after != list(each.replicas):
            board.put(each, after)
    return board.moves()


def plan_replicate(
    brokers: Sequence[Broker], partitions: Sequence[Partition], topics: Collection[str], factor: int
) -> list[Move]:
    """Moves after which the topics have `factor` copies of each partition. Raises PlanImpossible with fewer brokers."""
    if factor > len(brokers):
        raise PlanImpossible(
            f"{factor} copies need {factor} brokers, and there are {len(brokers)}\n  add one with: ottla cluster add"
        )
    board = _Board(brokers, partitions)
    for each in sorted(board.partitions, key=lambda each: (-board.weights[each.key], each.key)):
        if each.topic not in topics:
            continue
        after = list(each.replicas)
        while len(after) < factor:
            other = board.lightest(after)
            if other is None:  # a replica is on a broker that is away
                break
            after.append(other)
        while len(after) > factor:
            after.remove(_most_dispensable(board, after))
        if after != list(each.replicas):
            board.put(each, after)
    _even_out_new_leaders(board, topics)
    return board.moves()


def _most_dispensable(board: _Board, replicas: list[int]) -> int:
    """Never the first, which leads: one whose rack has another, then that of the heaviest broker."""

    def rank(broker: int) -> tuple[int, float, int]:
        rest = [each for each in replicas if each != broker]
        return board.spread(rest), board.load.get(broker, float("inf")), broker

    return max(replicas[1:], key=rank)


def _even_out_new_leaders(board: _Board, topics: Collection[str]) -> None:
    """Of what is moved anyhow, let each broker be the preferred leader of its part."""
    moved = [each for each in board.partitions if each.topic in topics and len(board.replicas[each.key]) > 1]
    for each in sorted(moved, key=lambda each: (-board.weights[each.key], each.key)):
        before, weight = board.replicas[each.key], board.weights[each.key]
        leader = min(before, key=lambda broker: (board.leads.get(broker, 0.0), before.index(broker)))
        if board.leads[before[0]] - board.leads.get(leader, 0.0) > weight:
            board.put(each, [leader, *(broker for broker in before if broker != leader)])


def summary(brokers: Sequence[Broker], partitions: Sequence[Partition], moves: Sequence[Move]) -> list[dict[str, int]]:
    """What each broker holds and leads before and after."""
    after = {each.partition.key: each.after for each in moves}
    rows: dict[int, dict[str, int]] = {each.id: defaultdict(int, broker=each.id) for each in brokers}
    for each in partitions:
        for when, replicas in (("before", each.replicas), ("after", after.get(each.key, each.replicas))):
            for place, broker in enumerate(replicas):
                row = rows.setdefault(broker, defaultdict(int, broker=broker))
                row[f"replicas_{when}"] += 1
                row[f"bytes_{when}"] += each.bytes
                row[f"leads_{when}"] += place == 0
    names = [f"{what}_{when}" for what in ("replicas", "leads", "bytes") for when in ("before", "after")]
    return [{"broker": broker, **{name: row[name] for name in names}} for broker, row in sorted(rows.items())]
