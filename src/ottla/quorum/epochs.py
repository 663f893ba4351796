"""How far an epoch that others claim may be ahead of a replica's own (`EpochLimit`).

Raft lets any message move a replica to any later epoch. Epochs are an int32, so that one wrong message or one damaged
`quorum-state` could use them all up, and no election would be possible any more. A replica therefore adopts what real
elections can have reached while it was away or did not listen, and more only from a majority of the voters: they are
there, so that staying behind would protect nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.model import LeaderEpoch, Millis, NodeId
from ottla.quorum.voters import VoterSet

EPOCH_LAST = (1 << 31) - 1

EPOCHS_AHEAD_MAX = 1 << 20
"""How many epochs a replica skips at most: an election a minute for two years, or one a second for twelve days."""

EPOCHS_PER_SECOND = 100
"""How fast a replica may skip epochs for long, once it has skipped so many: an election takes longer than 10 ms, for
votes are fsynced. Whoever sends wrong requests without a pause needs 248 days for all epochs."""

CLAIM_MS_MAX = 10_000
"""For how long the answer of a voter counts towards a majority: a replica that looks for a leader asks each of them
every second or two, and one that was wrong may have been repaired since."""

EPOCHS_LEFT_MIN = EPOCHS_AHEAD_MAX
"""A replica with fewer epochs left says so at its start: it is time for `ottla quorum repair`."""

_LAST_FROM = EPOCH_LAST - EPOCHS_LEFT_MIN + 1
_RENUMBERED_FROM = _LAST_FROM - (0x3F << 24)
"""First epoch of a repaired log. A repair changes the first byte of an epoch, from 7f to 40, and no other one: no crash
can leave it half written. A thousand million elections are left then."""


def is_among_the_last(epoch: LeaderEpoch) -> bool:
    """Whether fewer than `EPOCHS_LEFT_MIN` elections can follow."""
    return epoch >= _LAST_FROM


def are_doubtful(epoch: LeaderEpoch, of_log: LeaderEpoch) -> bool:
    """Whether the epochs on disk are further apart than elections bring them, or among the last ones."""
    return abs(epoch - of_log) > EPOCHS_AHEAD_MAX or EPOCH_LAST - max(epoch, of_log) < EPOCHS_LEFT_MIN


def renumbered(epoch: LeaderEpoch) -> LeaderEpoch:
    """Where a repair moves an epoch: the last ones to above 2^30, in the same order on every node, the others nowhere.
    So no vote is given twice, and logs agree after it where they did before."""
    return epoch - _LAST_FROM + _RENUMBERED_FROM if is_among_the_last(epoch) else epoch


def was_renumbered(epoch: LeaderEpoch) -> bool:
    """Whether a repair moves epochs to where this one is."""
    return _RENUMBERED_FROM <= epoch < _RENUMBERED_FROM + EPOCHS_LEFT_MIN


@dataclass(slots=True)
class EpochLimit:
    """Invariant: of the epochs that are left, no claim takes more than half, unless it is the next one."""

    left: int = EPOCHS_AHEAD_MAX
    """How many epochs may be skipped, at `since_ms`."""
    since_ms: Millis = 0
    claims: dict[NodeId, tuple[LeaderEpoch, Millis]] = field(default_factory=dict)
    """The latest epochs claimed by voters, with their times, that are too far ahead to be believed of each alone."""

    def allows(self, own: LeaderEpoch, claimed: LeaderEpoch, now: Millis) -> bool:
        """Whether a replica in epoch `own` may adopt a later one because somebody says so."""
        skipped = claimed - own - 1
        return claimed <= EPOCH_LAST and (skipped <= 0 or skipped <= min(self._left(now), (EPOCH_LAST - own) // 2))

    def spend(self, own: LeaderEpoch, adopted: LeaderEpoch, now: Millis) -> None:
        """A replica in epoch `own` adopts a later one."""
        if adopted > own + 1:
            self.left = max(0, self._left(now) - (adopted - own - 1))
            self.since_ms = now
        self.claims.clear()

    def proven(self, voter: NodeId, claimed: LeaderEpoch, voters: VoterSet, now: Millis) -> LeaderEpoch | None:
        """A voter answered with an epoch that is not allowed. The latest epoch that a majority of the voters has
        reached by such answers of the last seconds; None while they are too few."""
        if voter not in voters or claimed > EPOCH_LAST:
            return None
        self.claims[voter] = claimed, now
        fresh = {node_id: epoch for node_id, (epoch, at) in self.claims.items() if now - at <= CLAIM_MS_MAX}
        reached = sorted((epoch for node_id, epoch in fresh.items() if node_id in voters), reverse=True)
        return reached[voters.majority - 1] if len(reached) >= voters.majority else None

    def _left(self, now: Millis) -> int:
        return min(EPOCHS_AHEAD_MAX, self.left + max(0, now - self.since_ms) * EPOCHS_PER_SECOND // 1000)
