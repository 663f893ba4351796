"""Epochs that a replica of the metadata log does not believe (`ottla.quorum.epochs`): what is logged of them, and what
a start makes of those on disk."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.logs import fields
from ottla.model import Buffer, LeaderEpoch, NodeId
from ottla.protocol.records.record_batch import iterate_batches
from ottla.quorum.core import QuorumCore
from ottla.quorum.epochs import EPOCH_LAST, EPOCHS_AHEAD_MAX, EPOCHS_LEFT_MIN

if TYPE_CHECKING:
    from ottla.drivers.quorum.quorum_ports import Doubting

_LOG = logging.getLogger("ottla.controller")

LOGGED_EVERY_MS = 60_000
"""How often a claim that is not believed is logged at most."""


def believes(node: Doubting, epoch: LeaderEpoch, who: NodeId) -> bool:
    """Whether a node adopts an epoch that `who` claims; one that it does not is logged."""
    if node.core.believes(epoch, node.now_ms()):
        return True
    log_doubt(node, epoch, who)
    return False


def log_doubt(node: Doubting, epoch: LeaderEpoch, who: NodeId) -> None:
    """Log that a node does not believe an epoch, now and then: others may claim it many times a second."""
    now = node.now_ms()
    if node.doubts_logged_ms is None or now - node.doubts_logged_ms >= LOGGED_EVERY_MS:
        node.doubts_logged_ms = now
        _LOG.error(
            "an epoch is claimed that no election can have reached, and is not adopted; if this node logs that of "
            "most voters, its own quorum-state is wrong: stop it and run ottla quorum repair",
            extra=fields(claimed_epoch=epoch, epoch=node.epoch, node=who),
        )


def check_epochs(records: Buffer, epoch: LeaderEpoch) -> None:
    """The leader of an epoch has no records of a later one. Raises KafkaError CORRUPT_MESSAGE."""
    for _, header in iterate_batches(memoryview(records)):
        if header.leader_epoch > epoch:
            raise KafkaError(
                ErrorCode.corrupt_message,
                f"the leader of epoch {epoch} sent records of epoch {header.leader_epoch} at {header.base_offset}",
            )


def check_stored(core: QuorumCore, directory: str, *, has_state: bool) -> None:
    """Look at the epochs on disk at a start. Raises OttlaError for a log that is further ahead of `quorum-state` than
    it can be: such a replica would win elections by records that are none."""
    stored, last = core.epoch, core.last_epoch
    if has_state and last > stored + EPOCHS_AHEAD_MAX:
        raise OttlaError(
            f"the metadata log in {directory} ends with epoch {last}, its quorum-state is of epoch {stored}: one of "
            "them is damaged. If there are other voters, reformat this controller's metadata directory and let it "
            "copy the log; if not, delete quorum-state"
        )
    if core.is_far_ahead:
        if core.alone:
            found = fields(stored_epoch=stored, log_epoch=last)
            _LOG.warning("quorum-state has an impossible epoch: the epoch of the log is used", extra=found)
            stored = last
        else:
            found = fields(stored_epoch=stored, log_epoch=last, directory=directory)
            _LOG.error(
                "quorum-state is further ahead of the log than elections can explain: if this node finds no leader "
                "to follow, stop it and run ottla quorum repair on its log directory",
                extra=found,
            )
    if core.alone and max(stored, last) >= EPOCH_LAST:
        raise OttlaError(f"no epochs are left for another election: run `ottla quorum repair` for {directory}")
    if EPOCH_LAST - max(stored, last) < EPOCHS_LEFT_MIN:
        found = fields(epoch=max(stored, last), elections_left=EPOCH_LAST - max(stored, last))
        _LOG.error(
            "the metadata quorum is running out of epochs: stop every node and run ottla quorum repair on its log "
            "directory",
            extra=found,
        )


def epochs_problem(core: QuorumCore) -> str | None:
    """What is wrong with the epochs of a voter that runs, in a sentence for operators."""
    stored, last = core.epoch, core.last_epoch
    if core.is_far_ahead and not core.alone:
        return (
            f"quorum-state has epoch {stored}, and the log ends with {last}: elections cannot have brought it so far. "
            "If this node follows no leader, stop it and run ottla quorum repair on its log directory"
        )
    if EPOCH_LAST - max(stored, last) < EPOCHS_LEFT_MIN:
        return (
            f"the metadata quorum runs out of epochs, {EPOCH_LAST - max(stored, last)} elections are left: stop every "
            "node and run ottla quorum repair on its log directory"
        )
    return None
