"""What a replica of the metadata log measures of itself: how long commits and elections take, how many records it
appends and fetches, and how much of the time it has nothing to do (`KafkaRaftMetrics`, KIP-595)."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from ottla import clock
from ottla.metrics.windows import Windows
from ottla.model import Offset
from ottla.quorum.core import QuorumCore
from ottla.quorum.state import Role
from ottla.quorum.voters import ReplicaKey

P = ParamSpec("P")
R = TypeVar("R")

_ELECTING = (Role.PROSPECTIVE, Role.CANDIDATE)


NOBODY = ReplicaKey(-1)


def state_of(core: QuorumCore) -> str:
    """State of a node in Kafka's words (KIP-595, 996); there, a leader that resigned is unattached."""
    if core.role is Role.FOLLOWER and not core.is_voter:
        return "observer"
    voted = core.role in (Role.PROSPECTIVE, Role.UNATTACHED) and core.stored.voted_id >= 0
    return f"{core.role.value}-voted" if voted else core.role.value


def vote_of(core: QuorumCore) -> ReplicaKey:
    """The replica it voted for in this epoch; the directory is known only in a dynamic quorum."""
    if core.role in (Role.LEADER, Role.CANDIDATE):
        return core.me
    if core.role is Role.RESIGNED or core.stored.voted_id < 0:
        return NOBODY
    return ReplicaKey(core.stored.voted_id, core.stored.voted_directory_id)


class _Append(NamedTuple):
    end: Offset
    records: int
    at_s: float


class QuorumMetrics:
    """All methods belong to the event loop's thread."""

    def __init__(
        self, window_s: float = 30.0, windows: int = 2, elapsed_s: Callable[[], float] = clock.elapsed_s
    ) -> None:
        self._elapsed_s = elapsed_s
        self._commit_ms = Windows(window_s, windows)
        self._election_ms = Windows(window_s, windows)
        self._appended = Windows(window_s, windows)
        self._fetched = Windows(window_s, windows)
        self._busy_s = Windows(window_s, windows)
        self._pending: deque[_Append] = deque()
        """Appends of this node as leader that are not committed."""
        self._role = Role.UNATTACHED
        self._election_s: float | None = None
        """Since when this node stands for election; None while it does not."""
        self._step_s: float | None = None
        """When what it does now began; None while it does nothing."""

    def begin_step(self) -> bool:
        """Begin to measure work. Returns False within another step, which continues after this one."""
        if self._step_s is not None:
            return False
        self._step_s = self._elapsed_s()
        return True

    def end_step(self) -> None:
        """End the measurement that `begin_step` started."""
        assert self._step_s is not None
        now_s = self._elapsed_s()
        self._busy_s.record(now_s - self._step_s, now_s)
        self._step_s = None

    def appended(self, end: Offset, records: int) -> None:
        """Count an append as leader; the log now ends at `end`."""
        if records:
            now_s = self._elapsed_s()
            self._pending.append(_Append(end, records, now_s))
            self._appended.record(records, now_s)

    def fetched(self, records: int) -> None:
        """Count records appended as follower."""
        self._fetched.record(records, self._elapsed_s())

    def committed(self, high_watermark: Offset) -> None:
        """Record the commit latency. The time of records appended together is divided over them, as in Kafka."""
        now_s, pending = self._elapsed_s(), self._pending
        while pending and pending[0].end <= high_watermark:
            append = pending.popleft()
            self._commit_ms.record((now_s - append.at_s) * 1000 / append.records, now_s)

    def in_role(self, role: Role) -> None:
        """The role after a step. An election lasts until this node leads or follows; who is alone wins it in a step."""
        before, self._role = self._role, role
        now_s = self._elapsed_s()
        if role is not Role.LEADER:
            self._pending.clear()
        if role in _ELECTING:
            if self._election_s is None:
                self._election_s = now_s
        elif role in (Role.LEADER, Role.FOLLOWER):
            began_s = self._election_s
            if began_s is None and role is Role.LEADER and before is not Role.LEADER:
                began_s = self._step_s
            if began_s is not None:
                self._election_ms.record((now_s - began_s) * 1000, now_s)
            self._election_s = None

    def values(self) -> dict[str, float]:
        """Values by Kafka's names, with underscores; times in milliseconds, NaN if there was none."""
        now_s = self._elapsed_s()
        return {
            "commit_latency_avg": self._commit_ms.average(now_s),
            "commit_latency_max": self._commit_ms.maximum(now_s),
            "election_latency_avg": self._election_ms.average(now_s),
            "election_latency_max": self._election_ms.maximum(now_s),
            "append_records_rate": self._appended.per_second(now_s),
            "fetch_records_rate": self._fetched.per_second(now_s),
            "poll_idle_ratio_avg": max(0.0, 1.0 - self._busy_s.per_second(now_s)),
        }


class _Measured(Protocol):
    @property
    def metrics(self) -> QuorumMetrics: ...


M = TypeVar("M", bound=_Measured)


def step(function: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """Decorates a function, whose first argument is a replica, as work of that: the replica is idle otherwise."""

    @functools.wraps(function)
    def timed(node: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        is_outermost = node.metrics.begin_step()
        try:
            return function(node, *args, **kwargs)
        finally:
            if is_outermost:
                node.metrics.end_step()

    return timed
