"""Descriptions of topologies (KIP-1331): a member is asked for one, and it is kept with the group's topology.

Kafka hands them to a plug-in. Here they are a field of the topology's record, so that they are written with the two
epochs that Kafka keeps of them in one batch, survive with the group, and go with it.
"""

from __future__ import annotations

from typing import Final

from ottla.coordinator.effects import Token
from ottla.coordinator.group.modern_group import put
from ottla.coordinator.group.requests import StreamsDescription
from ottla.coordinator.group.state import GroupState
from ottla.coordinator.group.streams.describe import find
from ottla.coordinator.group.streams.group import TOPOLOGY, Asked, StreamsGroup, Topology
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.codec import encode

FIRST_PAUSE_MS: Final = 30_000
LONGEST_PAUSE_MS: Final = 3_600_000
"""Kafka's `StreamsGroupTopologyDescriptionBackoff`; without its chance."""

RECORD_BYTES_MAX: Final = 512 * 1024
"""Bytes of a topology with its description. A record must fit into a batch of `__consumer_offsets`, a megabyte."""

ITEMS_MAX: Final = 5_000
"""Nodes, and names in them, that a description may have; who describes a group waits some 10 ms for that many."""


def is_required(state: GroupState, group: StreamsGroup, topology: Topology) -> bool:
    """Whether to ask the member whose heartbeat this is; one after another, with pauses, until there is one or it was
    refused."""
    if topology.value.description or group.failed_description_epoch == topology.epoch:
        return False
    asked, now_ms = group.asked, state.now.timer_ms
    if asked is not None and asked.epoch == topology.epoch:
        if now_ms < asked.again_ms:
            return False
        attempts = asked.attempts + 1
    else:
        attempts = 0
    pause_ms = min(FIRST_PAUSE_MS << min(attempts, 10), LONGEST_PAUSE_MS)
    group.asked = Asked(topology.epoch, attempts, now_ms + pause_ms)
    return True


def check(request: StreamsDescription) -> None:
    """Raises INVALID_REQUEST."""
    for what, text in (("MemberId", request.member_id), ("GroupId", request.group_id)):
        if not text.strip():
            raise KafkaError(ErrorCode.invalid_request, f"{what} can't be empty.")


def update(state: GroupState, token: Token, request: StreamsDescription) -> None:
    """Replies with a StreamsGroupTopologyDescriptionUpdate response. Raises GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or
    INVALID_REQUEST."""
    check(request)
    group = find(state, request.group_id)
    group.member(request.member_id)
    topology, epoch = group.topology, request.topology_epoch
    current = -1 if topology is None else topology.epoch
    if topology is None or epoch != current:
        message = f"Topology epoch {epoch} does not match the group's current topology epoch {current}."
        raise KafkaError(ErrorCode.invalid_request, message)
    if request.wrong is not None:
        raise KafkaError(ErrorCode.invalid_request, request.wrong)
    value = topology.with_description(request.description)
    refused = None
    if request.items > ITEMS_MAX:
        refused = f"The description has {request.items} nodes and names; the limit is {ITEMS_MAX}."
    elif (size := len(encode(value, 0))) > RECORD_BYTES_MAX:
        refused = f"The topology takes {size} bytes with its description; the limit is {RECORD_BYTES_MAX}."
    if refused is None:
        records = [put(group.key(TOPOLOGY), value), group.described_record(stored=epoch)]
    else:
        records = [group.described_record(failed=epoch)]
    asked, group.asked = group.asked, None

    def undone() -> None:
        group.asked = asked

    state.apply(records, undone)
    error = ErrorCode.none if refused is None else ErrorCode.streams_topology_description_update_failed
    state.reply(token, {"error_code": error, "error_message": refused})
