"""ListGroups and DeleteGroups."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ottla.coordinator.effects import Token
from ottla.coordinator.group.offsets import tombstone
from ottla.coordinator.group.requests import DeleteGroups
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode
from ottla.protocol.internal.group_records import GroupRecord

if TYPE_CHECKING:
    from ottla.coordinator.group.group import Group
    from ottla.protocol.schemas.sent import ListedGroup


def list_groups(state: GroupState, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Groups in any of `states` and of any of `types`, both as `wanted` gives them; no filter where empty."""
    return [
        {
            "group_id": group.group_id,
            "protocol_type": group.protocol_type or "",
            "group_state": group.shown_state,
            "group_type": group.group_type,
        }
        for group in state.groups.values()
        if (not states or _STATES.get(group.shown_state, group.shown_state.lower()) in states)
        and (not types or group.group_type in types)
    ]


_STATES = {"NotReady": "not_ready"}
"""States whose names in filters are not just in lower case, as Kafka has it."""


def wanted(names: Iterable[str]) -> frozenset[str]:
    """A filter that a client sent: Kafka looks neither at case nor at spaces around."""
    return frozenset(name.strip().lower() for name in names)


def delete_groups(state: GroupState, token: Token, request: DeleteGroups) -> None:
    """Delete empty groups with their offsets; replies with the error of each."""
    results: dict[str, ErrorCode] = {}
    deleted: list[Group] = []
    records: list[GroupRecord] = []
    for group_id in request.group_ids:
        group = state.groups.get(group_id)
        if group_id in results:
            continue
        if group is None:
            results[group_id] = ErrorCode.group_id_not_found
        elif not group.is_empty:
            results[group_id] = ErrorCode.non_empty_group
        elif not group.keeps_offsets:  # the state of its shares is elsewhere, and would come back with its name
            results[group_id] = ErrorCode.unsupported_version
        else:
            results[group_id] = ErrorCode.none
            partitions = state.offsets_in_flight(group_id)
            partitions.update((topic, partition) for topic, partition, _ in state.offsets.items(group_id))
            partitions.update(state.offsets.pending_items(group_id))
            records += [tombstone(group_id, *found) for found in sorted(partitions)]
            records += group.tombstones()
            deleted.append(group)
    if records:
        state.write(records, *state.detach(deleted))
    state.reply(token, {"groups": results})
