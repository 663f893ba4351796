"""What a consumer of a share group is told when the share coordinator cannot keep what it said."""

from __future__ import annotations

import pytest

from ottla.drivers.replication.share_partitions import error_of
from ottla.errors import ErrorCode

E = ErrorCode
HEARD = {
    E.none: E.none,
    E.group_id_not_found: E.group_id_not_found,
    E.fenced_leader_epoch: E.not_leader_or_follower,
    E.fenced_state_epoch: E.not_leader_or_follower,
    **dict.fromkeys((E.unknown_topic_or_partition, E.invalid_request), E.unknown_topic_or_partition),
    **dict.fromkeys(
        (E.not_coordinator, E.coordinator_not_available, E.coordinator_load_in_progress, E.network_exception,
         E.request_timed_out, E.not_enough_replicas, E.not_enough_replicas_after_append, E.not_leader_or_follower,
         E.kafka_storage_error, E.broker_not_available, E.unsupported_version),
        E.coordinator_not_available,
    ),
    E.unknown_server_error: E.unknown_server_error,
}  # fmt: skip


@pytest.mark.parametrize("said", HEARD)
def test_what_a_share_coordinator_says_has_a_name(said: ErrorCode) -> None:
    """The coordinator failed over (NETWORK_EXCEPTION), or could not write: none of it is UNKNOWN_SERVER_ERROR."""
    assert error_of({"partition": 0, "error_code": said, "error_message": None}) is HEARD[said]


def test_nothing_that_passes_is_unknown() -> None:
    passing = [code for code in E if code.retriable]
    told = {error_of({"partition": 0, "error_code": code, "error_message": None}) for code in passing}
    assert told == {E.coordinator_not_available, E.not_leader_or_follower, E.unknown_topic_or_partition}
