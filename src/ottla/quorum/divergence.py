"""Where the log of a replica and that of the leader part, and when a snapshot is needed (KIP-595, KIP-630)."""

from __future__ import annotations

from ottla.model import LeaderEpoch, Offset
from ottla.quorum.election import LogEnd
from ottla.quorum.snapshot import SnapshotId


def needs_snapshot(start: Offset, oldest: SnapshotId | None, offset: Offset, last_epoch: LeaderEpoch) -> bool:
    """Whether what a replica needs from `offset` on, or what the `last_epoch` of its log is to be compared with, is not
    in the leader's log any more. `start` and `oldest` are the leader's log start and oldest snapshot."""
    if oldest is None or (start == offset == last_epoch == 0):
        return False
    at_start = offset == start == oldest.end_offset and last_epoch != oldest.epoch
    return offset < start or at_start or last_epoch < oldest.epoch


def divergence(
    offset: Offset, last_epoch: LeaderEpoch, own: tuple[LeaderEpoch, Offset], log_end: LogEnd
) -> tuple[LeaderEpoch, Offset] | None:
    """(an epoch, where it ends in the leader's log) up to which a replica that ends at `offset` with `last_epoch` may
    agree with the leader; None while its log is a prefix.

    `own` is the leader's answer about `last_epoch`: the newest epoch up to that, and where that ends.
    """
    if offset == last_epoch == 0:
        return None
    epoch, end = own
    if epoch < 0:  # later than any epoch of the log
        epoch, end = log_end
    return (epoch, end) if epoch != last_epoch or end < offset else None
