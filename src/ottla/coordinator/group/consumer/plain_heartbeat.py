"""The heartbeat in which nothing is new, as nearly all are, of a member that has what its group gives it: it costs a
look at the epochs and a new deadline. Anything else is for `heartbeat.py`, which would give these the same answer."""

from __future__ import annotations

from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.timers import start_session
from ottla.coordinator.group.requests import PlainHeartbeat
from ottla.coordinator.group.state import GroupState
from ottla.model import Millis


def plain_heartbeat(state: GroupState, heard: PlainHeartbeat) -> Millis | None:
    """Begin the member's session again, and return the interval to its next heartbeat. None: something is to be done or
    to be refused, or is not settled; nothing has changed."""
    group = state.groups.get(heard.group_id)
    if not isinstance(group, ConsumerGroup) or group.patterns:  # patterns may be due
        return None
    member = group.members.get(heard.member_id)
    epoch = heard.member_epoch
    if (
        member is None
        or not epoch == group.epoch == group.assignment_epoch
        or not member.is_reconciled_to(epoch)
        or member.uses_classic_protocol
        or (member.client_id, member.client_host) != (heard.client_id, heard.client_host)
        or (heard.instance_id is not None and group.static_members.get(heard.instance_id) != heard.member_id)
        or group.has_metadata_expired(state.now.wall_ms)
    ):
        return None
    start_session(state, heard.group_id, member)
    return state.consumer_config(heard.group_id).heartbeat_interval_ms
