"""What a small quorum is like between two events, what may never be, and which states are the same but for names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any, NamedTuple

from ottla.quorum.election import LogEnd
from ottla.quorum.state import Role

IDS = (1, 2, 3)

Log = tuple[int, ...]
"""The epoch of each record; with its offset it says which record it is. One that changes the voters has them too, as
bits above `VOTERS_UNIT`."""

VOTERS_UNIT = 1000


class Node(NamedTuple):
    role: Role
    leader: int
    epoch: int
    voted: int
    log: Log
    durable: int
    high_watermark: int
    granted: tuple[int, ...] | None = None
    """As candidate: who voted for it. Who voted against it is left out: it may give up at any time."""
    epoch_start: int = -1
    ends: tuple[int, ...] = ()
    """As leader: what each voter has on disk."""
    fetched: bool = False
    """As follower, where there are pre-votes: whether the leader has answered."""
    start: int = 0
    """Where there are snapshots: what of `log` is in the newest one alone."""


Message = tuple[Any, ...]


class State(NamedTuple):
    nodes: tuple[Node, ...]
    messages: tuple[Message, ...] = ()
    """Sorted; none is there twice."""
    leaders: tuple[tuple[int, int], ...] = ()
    """All leaders of all epochs so far."""
    committed: Log = ()
    """The most that was ever committed."""


class Violation(AssertionError):
    pass


def checked(state: State, number: int, before: Node, voters: Sequence[int]) -> State:
    """The state with its history, if it is one that may be. Raises Violation."""
    node = state.nodes[number - 1]
    if node.epoch < before.epoch:
        raise Violation(f"epoch of node {number} went back from {before.epoch} to {node.epoch}")
    if node.role is Role.LEADER and before.role is not Role.LEADER:
        led = dict(state.leaders)
        if node.epoch in led:
            raise Violation(f"two leaders of epoch {node.epoch}, or one that leads it twice")
        led[node.epoch] = number
        if node.log[: len(state.committed)] != state.committed:
            raise Violation(f"leader of epoch {node.epoch} lacks what is committed")
        state = state._replace(leaders=tuple(sorted(led.items())))
    if node.role is Role.CANDIDATE and before.role is not Role.CANDIDATE:
        others = [each for id_, each in zip(IDS, state.nodes, strict=True) if id_ != number]
        if all(each.fetched or (each.role is Role.LEADER and any(it.fetched for it in others)) for each in others):
            raise Violation("an election although all others have heard the leader")
    if node.high_watermark >= 0:
        prefix = node.log[: node.high_watermark]
        if len(prefix) < node.high_watermark:
            raise Violation("the high watermark is beyond the log")
        shorter = min(len(prefix), len(state.committed))
        if prefix[:shorter] != state.committed[:shorter]:
            raise Violation("committed twice and not the same")
        if len(prefix) > len(state.committed):
            those = [state.nodes[id_ - 1] for id_ in voters]
            holders = sum(each.log[: min(each.durable, len(prefix))] == prefix for each in those)
            if holders <= len(voters) // 2:
                raise Violation("committed without a majority")
            state = state._replace(committed=prefix)
    if before.role is node.role and before.high_watermark > node.high_watermark >= 0:
        raise Violation("the high watermark went back")
    return state


def least(state: State) -> State:
    """A canonical state among those that differ only in the numbering of nodes."""
    return min((_renamed(state, names) for names in NAMES), key=_order)


def _order(state: State) -> str:
    return repr(state)


def _renamed(state: State, names: dict[int, int]) -> State:
    back = sorted(IDS, key=lambda id_: names[id_])
    nodes = tuple(
        node._replace(
            leader=names[node.leader],
            voted=names[node.voted],
            granted=None if node.granted is None else tuple(sorted(names[each] for each in node.granted)),
            ends=tuple(node.ends[id_ - 1] for id_ in back) if node.ends else (),
            log=_log_renamed(node.log, names),
        )
        for node in (state.nodes[id_ - 1] for id_ in back)
    )
    messages = tuple(sorted((_message_renamed(each, names) for each in state.messages), key=repr))
    leaders = tuple((epoch, names[id_]) for epoch, id_ in state.leaders)
    return State(nodes, messages, leaders, _log_renamed(state.committed, names))


def _log_renamed(log: Log, names: dict[int, int]) -> Log:
    if not log or max(log) < VOTERS_UNIT:
        return log
    return tuple(
        record % VOTERS_UNIT + VOTERS_UNIT * sum(1 << names[id_] for id_ in IDS if record // VOTERS_UNIT & 1 << id_)
        for record in log
    )


def _message_renamed(message: Message, names: dict[int, int]) -> Message:
    kind, source, target, *rest = message
    if kind in LEADER_AT:
        at = LEADER_AT[kind] - 3
        rest[at] = names[rest[at]]
        if kind == "fetched":
            rest[-1] = _log_renamed(rest[-1], names)
    return (kind, names[source], names[target], *rest)


NAMES = [{-1: -1, **dict(zip(IDS, order, strict=True))} for order in permutations(IDS)]
LEADER_AT = {"voted": 6, "fetched": 5}
"""Where a message names a leader."""


def with_message(messages: tuple[Message, ...], message: Message) -> tuple[Message, ...]:
    return messages if message in messages else tuple(sorted((*messages, message), key=repr))


def end_of(log: Log, epoch: int, start: int) -> tuple[int, int]:
    """The newest epoch of a log up to `epoch`, and where it ends; (-1, -1) for one later than any. Of what is before
    the log's start nothing is known (`LeaderEpochs.end_offset_for`)."""
    if not log or epoch > log_end(log).epoch:
        return -1, -1
    end = start + sum(each % VOTERS_UNIT <= epoch for each in log[start:])
    return (log_end(log[:end]).epoch, end) if end > start else (epoch, start)


def log_end(log: Log) -> LogEnd:
    """With the epoch of the log or of the snapshot, whichever is newer (`QuorumNode.last_epoch`)."""
    return LogEnd(max((each % VOTERS_UNIT for each in log), default=0), len(log))
