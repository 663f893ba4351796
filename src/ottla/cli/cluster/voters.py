"""The voters of the metadata quorum, as the commands that add and remove nodes see and change them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Set
from typing import Any
from uuid import UUID

from ottla.cli import wire
from ottla.cli.exits import CommandFailed
from ottla.cli.options import asked_at
from ottla.errors import ErrorCode
from ottla.metadata.features import KRAFT_VERSION
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey

POLL_S = 0.2
PATIENCE_S = 30.0
_RETRIED = frozenset(
    {
        ErrorCode.not_controller, ErrorCode.not_leader_or_follower, ErrorCode.request_timed_out,
        ErrorCode.network_exception, ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available,
    }
)  # fmt: skip
"""Errors that are retried: the leader moves, or the previous voter change is not committed yet."""


def quorum_of(bootstrap: str) -> Mapping[str, Any]:
    """The leader's description of the quorum. Raises CommandFailed."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = wire.ask(bootstrap, ApiKey.DESCRIBE_QUORUM, wire.QUORUM_ASKED)
        row = answer["topics"][0]["partitions"][0] if answer["topics"] else {}
        code = int(answer.get("error_code") or row.get("error_code") or 0)
        if not code and row:
            return answer
        if (code and code not in _RETRIED) or time.monotonic() > deadline:
            raise wire.failure_of(code or ErrorCode.leader_not_available, "the quorum", row.get("error_message"))
        time.sleep(POLL_S)


def voters_of(quorum: Mapping[str, Any]) -> dict[int, UUID | None]:
    """The voters by node id, with their directories as far as the leader knows them."""
    rows = quorum["topics"][0]["partitions"][0]["current_voters"]
    found = {each["replica_id"]: each["replica_directory_id"] for each in rows}
    return {node_id: None if directory_id == ZERO_UUID else directory_id for node_id, directory_id in found.items()}


def make_dynamic(bootstrap: str) -> bool:
    """Let the voters be changed from now on: a quorum that began with `controller.quorum.voters` needs that once, and
    there is no way back. Returns whether it was needed. Raises CommandFailed."""
    if wire.finalized_features(bootstrap).get(KRAFT_VERSION, 0) >= 1:
        return False
    update = {"feature": KRAFT_VERSION, "max_version_level": 1, "upgrade_type": 1}
    values = {"timeout": int(PATIENCE_S * 1000), "feature_updates": [update], "validate_only": False}
    _insist(bootstrap, ApiKey.UPDATE_FEATURES, values, {ErrorCode.invalid_update_version})
    return True


def let_go(bootstrap: str, nodes: Iterable[int]) -> list[int]:
    """Remove those of `nodes` that are voters from the quorum; one voter stays. Returns the removed. Raises
    CommandFailed."""
    wanted = set(nodes)
    voters = voters_of(quorum_of(bootstrap))
    leaving = [each for each in sorted(voters, reverse=True) if each in wanted]
    if not leaving:
        return []
    if len(leaving) == len(voters):
        named = ", ".join(map(str, leaving))
        raise CommandFailed(
            f"controller {named} is the only voter\n  add another one first: "
            f"{asked_at('ottla cluster add DIRECTORY --controller', bootstrap)}"
        )
    make_dynamic(bootstrap)
    for node_id in leaving:
        directory_id = voters_of(quorum_of(bootstrap)).get(node_id)
        if directory_id is None:
            continue
        values = {"cluster_id": None, "voter_id": node_id, "voter_directory_id": directory_id}
        _insist(bootstrap, ApiKey.REMOVE_RAFT_VOTER, values, done={ErrorCode.voter_not_found})
    return sorted(leaving)


def _insist(
    bootstrap: str,
    key: ApiKey,
    values: Mapping[str, Any],
    retried: Set[int] = frozenset(),
    done: Set[int] = frozenset(),
) -> None:
    """Ask until the leader agrees, or says what no patience helps against. Raises CommandFailed."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = wire.ask(bootstrap, key, values)
        code = int(answer.get("error_code") or 0)
        if not code or code in done:
            return
        if code not in _RETRIED | retried or time.monotonic() > deadline:
            raise wire.failure_of(code, "the quorum: ", answer.get("error_message"))
        time.sleep(POLL_S)
