"""Changes of the voters, one at a time: what a leader refuses, and the set that comes of it (KIP-853).

A change is a VotersRecord in the log, which counts from there on; the next one waits until it is committed, so that
every majority of the old set meets every majority of the new one.
"""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError
from ottla.model import LeaderEpoch, Millis
from ottla.protocol.schemas.records import KRaftVersionRecord, Voter, VotersRecord
from ottla.quorum.core import QuorumCore
from ottla.quorum.leader import Leadership
from ottla.quorum.voters import ReplicaKey, VoterSet

CAUGHT_UP_MS = 3_600_000
"""A new voter must have been caught up within this, as of `LeaderState.isReplicaCaughtUp`."""


def check_leader(core: QuorumCore, change: str) -> Leadership:
    """Raises KafkaError unless this node leads and nothing is under way that others might still undo."""
    leadership = _active(core)
    if core.kraft_version < 1:
        what = f"Cluster doesn't support {change} voter because the kraft.version feature is {core.kraft_version}"
        raise KafkaError(ErrorCode.unsupported_version, what)
    _check_committed(core)
    return leadership


def check_new(core: QuorumCore, new: Voter) -> Leadership:
    """Whether a node that does not vote may be asked what it supports, to be `added`. Raises KafkaError."""
    leadership = check_leader(core, "adding")
    if new.voter_id in core.voters:
        what = f"The voter id {new.voter_id} is already part of the set of voters {[*map(str, core.voters.keys)]}."
        raise KafkaError(ErrorCode.duplicate_voter, what)
    return leadership


def added(core: QuorumCore, new: Voter, now: Millis) -> VotersRecord:
    """The voters with one more, which has to follow the leader closely. Raises KafkaError."""
    leadership = check_new(core, new)
    supported = new.kraft_version_feature
    if not supported.min_supported_version <= core.kraft_version <= supported.max_supported_version:
        low, high = supported.min_supported_version, supported.max_supported_version
        what = f"voter {new.voter_id} supports kraft.version {low} to {high}, and {core.kraft_version} is in use"
        raise KafkaError(ErrorCode.invalid_request, what)
    key = ReplicaKey(new.voter_id, new.voter_directory_id)
    seen = leadership.observers.get(key)
    if seen is None or seen.last_caught_up_ms < max(0, now - CAUGHT_UP_MS):
        what = f"replica {key.node_id} with directory {key.directory_id} has not caught up with the leader"
        raise KafkaError(ErrorCode.request_timed_out, what)
    return core.voters.with_voter(new).record()


def removed(core: QuorumCore, key: ReplicaKey, now: Millis) -> VotersRecord:
    """The voters without one, which may be the leader itself. Raises KafkaError, also if fewer than a majority of the
    remaining voters fetch: nothing could be committed then, not even the removal. (Kafka does not check this.)"""
    leadership = check_leader(core, "removing")
    if key not in core.voters.keys:
        raise KafkaError(ErrorCode.voter_not_found, f"replica {key.node_id} is not among the voters")
    if len(core.voters) == 1:
        raise KafkaError(ErrorCode.invalid_request, f"voter {key.node_id} is the only one")
    left, since = core.voters.without(key.node_id), max(0, now - core.timing.fetch_timeout_ms)
    there = [id_ for id_, each in leadership.voters.items() if id_ == core.node_id or each.last_fetch_ms >= since]
    if sum(each in left for each in there) < left.majority:
        away = [each.node_id for each in left.keys if each.node_id not in there]
        what = f"removing voter {key.node_id} would leave no majority: voters {away} do not fetch; remove those first"
        raise KafkaError(ErrorCode.invalid_request, what)
    return left.record()


def updated(core: QuorumCore, epoch: LeaderEpoch, new: Voter, listener: str) -> VotersRecord | None:
    """The voters with other listeners of one; None where nothing changes in the log. Raises KafkaError.

    In a static quorum what a voter says is only noted, for `upgraded`. `listener` is the one that controllers use.
    """
    if epoch < core.epoch:
        raise KafkaError(ErrorCode.fenced_leader_epoch)
    if epoch > core.epoch:
        raise KafkaError(ErrorCode.unknown_leader_epoch)
    leadership = _active(core)
    supported = new.kraft_version_feature
    if not supported.min_supported_version <= core.kraft_version <= supported.max_supported_version:
        raise KafkaError(ErrorCode.invalid_request, f"kraft.version is {core.kraft_version}")
    if listener not in {each.name for each in new.endpoints}:
        raise KafkaError(ErrorCode.invalid_request, f"the voter has no listener {listener}")
    if core.kraft_version < 1:
        if new.voter_id not in core.voters:
            raise KafkaError(ErrorCode.voter_not_found, f"node {new.voter_id} is not among the voters")
        leadership.said[new.voter_id] = new
        return None
    _check_committed(core)
    if core.voters.find(ReplicaKey(new.voter_id, new.voter_directory_id)) is None:
        raise KafkaError(ErrorCode.voter_not_found, f"replica {new.voter_id} is not among the voters")
    changed = core.voters.with_voter(new)
    return None if changed == core.voters else changed.record()


def upgraded(core: QuorumCore, version: int) -> tuple[KRaftVersionRecord, VotersRecord] | tuple[()]:
    """From a static quorum to one whose voters change: they become those of the settings, with the directories and
    listeners that each has said to this leader; nothing where that is so already. Raises KafkaError."""
    leadership = _active(core)
    if version == core.kraft_version:
        return ()
    what = f"Invalid update version {version} for feature kraft.version."
    if version < core.kraft_version:
        raise KafkaError(ErrorCode.invalid_update_version, f"{what} Can't downgrade the version of this feature.")
    known = dict(leadership.said)
    if core.own is not None:
        known[core.node_id] = core.own
    if unknown := [str(each.voter_id) for each in core.voters if each.voter_id not in known]:
        why = f"It is not known yet where voter {', '.join(unknown)} is reached, and in which directory its log is."
        raise KafkaError(ErrorCode.invalid_update_version, f"{what} {why}")
    chosen = [known[each.voter_id] for each in core.voters]
    if old := [str(each.voter_id) for each in chosen if each.kraft_version_feature.max_supported_version < version]:
        raise KafkaError(ErrorCode.invalid_update_version, f"{what} Voter {', '.join(old)} does not support it.")
    return KRaftVersionRecord(0, version), VoterSet(chosen).record()


def _active(core: QuorumCore) -> Leadership:
    """Raises KafkaError unless this node leads and nothing before its epoch can change any more."""
    if core.leadership is None:
        raise KafkaError(ErrorCode.not_leader_or_follower)
    if not core.is_active:
        raise KafkaError(ErrorCode.request_timed_out, "the leader has not committed anything in its epoch yet")
    return core.leadership


def _check_committed(core: QuorumCore) -> None:
    if core.configurations.newest.offset >= core.high_watermark:
        raise KafkaError(ErrorCode.request_timed_out, "the voter change before this one is not committed yet")
