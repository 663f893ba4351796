"""Plans which replicas move where: to balance brokers, to drain some, to change a topic's replication factor. Brokers
and partitions in, moves out, no broker in sight.

A move never leaves a partition's copies in fewer racks than they could be in. What is moved anyhow is placed such that
brokers are as even as they can be; see `move_board.py` for what that is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ottla.client.move_board import Board, Broker, Evening, Leading, Partition

ROUNDS_MAX = 10
"""A step of one kind may make another one possible; most plans take two."""
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Settings of a broker that hold moves back: what it sends, and what it fetches, in bytes a second."""
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Settings of a topic: the replicas that are held back, as those of leaders and of followers."""


class PlanImpossible(Exception):
    """Says why there is no such plan, and what to do: `help` with a `command`."""

    def __init__(self, why: str, help: str = "", command: str = "") -> None:
        super().__init__(why)
        self.help, self.command = help, command


@dataclass(frozen=True)
class Move:
    """A partition's replicas, before and after. The same in another order is another leader."""

    partition: Partition
    after: tuple[int, ...]

    @property
    def adds(self) -> tuple[int, ...]:
        return tuple(each for each in self.after if each not in self.partition.replicas)

    @property
    def bytes(self) -> int:
        """Bytes to copy."""
        return self.partition.bytes * len(self.adds)


def plan_balance(brokers: Sequence[Broker], partitions: Sequence[Partition]) -> list[Move]:
    """Moves after which brokers hold, and lead, about the same; none where they do already. Nothing is less even then
    than it was: replicas, bytes, leaders."""
    if len(brokers) < 2 or not partitions:
        return []
    board = Board(brokers, partitions)
    replicas, leaders = Evening(board), Leading(board)
    for _ in range(ROUNDS_MAX):
        steps = (replicas.counts, replicas.bytes, replicas.rates, leaders.counts, leaders.rates)
        if not sum(step() for step in steps):
            break
    return _moves(board)


def _moves(board: Board) -> list[Move]:
    return [Move(partition, tuple(after)) for partition, after in board.changed()]


def _even_out_what_changes(board: Board) -> None:
    """Place the new replicas of partitions that are moved anyhow, and choose their leaders so that brokers are even."""

    def is_new(partition: Partition, broker: int) -> bool:
        return broker not in partition.replicas

    replicas, leaders = Evening(board, is_new), Leading(board, board.is_changed)
    for _ in range(ROUNDS_MAX):
        if not sum(step() for step in (replicas.counts, replicas.bytes, leaders.counts)):
            break


def plan_drain(
    brokers: Sequence[Broker], partitions: Sequence[Partition], leaving: Collection[int], *, fewer_copies: bool = False
) -> list[Move]:
    """Moves after which nothing is on brokers `leaving`. Raises PlanImpossible where too few others are left, unless a
    partition may have `fewer_copies` then."""
    board = Board(brokers, partitions, leaving)
    if not board.allowed:
        raise PlanImpossible("no broker would remain")
    # The largest first: what is small evens out what they leave.
    for each in sorted(board.partitions, key=lambda each: (-each.bytes, each.key)):
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
                    f"topic {each.topic!r} has {len(each.replicas)} copies, but only {len(board.allowed)} other "
                    f"brokers are left: add --fewer-copies",
                    "or reduce them with",
                    f"ottla topic replicate {each.topic} --factor {len(board.allowed)}",
                )
        if after != list(each.replicas):
            board.put(each, after)
    _even_out_what_changes(board)
    return _moves(board)


def plan_replicate(
    brokers: Sequence[Broker], partitions: Sequence[Partition], topics: Collection[str], factor: int
) -> list[Move]:
    """Moves after which the topics have `factor` copies of each partition. Raises PlanImpossible with fewer brokers."""
    if factor > len(brokers):
        why = f"{factor} copies need {factor} brokers, but there are {len(brokers)}"
        raise PlanImpossible(why, "add one with", "ottla cluster add DIRECTORY")
    board = Board(brokers, partitions)
    for each in sorted(board.partitions, key=lambda each: (-each.bytes, each.key)):
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
    _even_out_what_changes(board)
    return _moves(board)


def _most_dispensable(board: Board, replicas: list[int]) -> int:
    """Never the first, which leads: one whose rack has another, then that of the heaviest broker, one that is away
    before all."""

    def rank(broker: int) -> tuple[int, bool, int, int, int]:
        rest = [each for each in replicas if each != broker]
        return board.spread(rest), broker not in board.racks, board.counts[broker], board.bytes[broker], broker

    return max(replicas[1:], key=rank)


def summary(brokers: Sequence[Broker], partitions: Sequence[Partition], moves: Sequence[Move]) -> list[dict[str, int]]:
    """Partitions and leaders of each broker before and after."""
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
