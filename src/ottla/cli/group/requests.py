"""What brokers know of groups, asked of the broker that coordinates each.

In our own codec: where librdkafka 2.16 cannot decode what a member is assigned, it says _DESTROY or aborts the process.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from ottla.cli import wire
from ottla.cli.client import REQUEST_TIMEOUT_S, nobody_answers
from ottla.cli.exits import UNREACHABLE, CommandFailed
from ottla.cli.group import shares as group_shares
from ottla.cli.group.shares import Place, Shared
from ottla.client.assignments import assigned_places as assigned_places
from ottla.errors import ErrorCode
from ottla.model import OFFSETS_TOPIC
from ottla.protocol.messages import ApiKey

CONSUMER_TYPES = ("", "consumer")
"""Protocol types of what Kafka's tools take for a group of consumers; one without a type has only commits."""
CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
"""The protocols of groups: DescribeGroups', and those of KIP-848, KIP-932 and KIP-1071."""
LISTED_TYPES = (*CONSUMER_TYPES, SHARE, STREAMS)
DEAD = "Dead"
PAUSE_S = 0.1

_PASSING = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)
_NO_NEWER_GROUP = frozenset({ErrorCode.group_id_not_found, ErrorCode.unsupported_version})
_NEWER = (
    (CONSUMER, ApiKey.CONSUMER_GROUP_DESCRIBE, 0, ApiKey.CONSUMER_GROUP_DESCRIBE),
    (SHARE, ApiKey.SHARE_GROUP_DESCRIBE, 1, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS),
    (STREAMS, ApiKey.STREAMS_GROUP_DESCRIBE, 0, ApiKey.STREAMS_GROUP_DESCRIBE),
)
"""How groups of each protocol are asked for, and the version of an API that a broker must have for that."""
_INVALID_ARG = -186
"""librdkafka's, for what is no group of consumers."""
_NO_PROTOCOL = "the server there does not speak Kafka's protocol"


class Answer(NamedTuple):
    """A coordinator's answer about a group: a row of DescribeGroups, or of its protocol's own description."""

    coordinator: str
    described: Mapping[str, Any]
    kind: str
    committed: Mapping[Place, int]
    shared: Mapping[Place, Shared]
    """Progress of a share group, which commits no offsets."""


def names_of_groups(bootstrap: str) -> list[str]:
    """Every group of consumers, of a streams application, or share group in the cluster, in order, but for one whose id
    is empty: no command takes that.

    Raises CommandFailed where a broker could not be asked.
    """
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        addresses = wire.leaders_of(bootstrap, OFFSETS_TOPIC)  # no other broker has groups
        try:
            rows = [row for address in addresses for row in _listed(address, deadline)]
        except CommandFailed as failure:  # in Kafka, a broker that was killed leads until its session ends
            if failure.exit_code != UNREACHABLE or time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE_S)
        else:
            return sorted({row["group_id"] for row in rows if row["protocol_type"] in LISTED_TYPES} - {""})


def _listed(address: str, deadline: float) -> list[dict[str, Any]]:
    """The groups that one broker coordinates, once it has loaded them. Raises CommandFailed."""
    while True:
        answer = wire.ask(address, ApiKey.LIST_GROUPS, {"states_filter": []})
        if answer["error_code"] not in _PASSING or time.monotonic() >= deadline:
            wire.ensure_none(answer, f"groups of {address}")
            groups: list[dict[str, Any]] = answer["groups"]
            return groups
        time.sleep(PAUSE_S)


def ask(bootstrap: str, names: Sequence[str]) -> dict[str, Answer]:
    """The state of these groups; a missing one is Dead. Waits out temporary errors, such as a loading coordinator.
    Raises CommandFailed."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    found: dict[str, Answer] = {}
    while left := [name for name in names if name not in found]:
        failures: list[CommandFailed] = []
        for address, theirs in _coordinators(bootstrap, left, failures).items():
            try:
                found |= _answers(address, theirs, failures)
            except OSError as error:
                failures.append(wire.no_answer(address, address, error))
        if failures:
            if time.monotonic() >= deadline:
                raise failures[0]
            time.sleep(PAUSE_S)
    return found


def coordinators_of(bootstrap: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Address of a broker to the groups that it coordinates. Raises CommandFailed."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        failures: list[CommandFailed] = []
        found = _coordinators(bootstrap, names, failures)
        if not failures:
            return found
        if time.monotonic() >= deadline:
            raise failures[0]
        time.sleep(PAUSE_S)


def _coordinators(bootstrap: str, names: Sequence[str], failures: list[CommandFailed]) -> dict[str, list[str]]:
    """Address of a broker to the groups that it coordinates; `failures` gets why one has no coordinator now."""
    found: dict[str, list[str]] = {}
    answer = wire.ask(bootstrap, ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": names})
    rows = {row["key"]: row for row in answer["coordinators"]}
    for name in names:
        row = rows.get(name)
        if row is None:
            raise nobody_answers(f"{bootstrap}: {_NO_PROTOCOL}")
        if not _has_failed(name, row, failures):
            found.setdefault(f"{row['host']}:{row['port']}", []).append(name)
    return found


def _answers(address: str, names: Sequence[str], failures: list[CommandFailed]) -> dict[str, Answer]:
    """The answers of one coordinator about its groups. Raises OSError and CommandFailed."""
    wanted = [{"group_id": name, "topics": None} for name in names]
    with closing(wire.Link(address)) as link:
        described = _by_group(
            link.ask(ApiKey.DESCRIBE_GROUPS, {"groups": names, "include_authorized_operations": False}), names
        )
        commits = _by_group(link.ask(ApiKey.OFFSET_FETCH, {"groups": wanted, "require_stable": False}), names)
        newer = _newer_groups(link, [name for name in names if described[name]["group_state"] == DEAD])
        of_share_groups = [name for name, (kind, _) in newer.items() if kind == SHARE]
        shared = group_shares.offsets(link, of_share_groups) if of_share_groups else {}
    found = {}
    for name in names:
        group_type, row = newer.get(name, (CLASSIC, described[name]))
        if _has_failed(name, row, failures):
            continue
        if commits[name]["error_code"] == ErrorCode.group_id_not_found:
            committed = {}
        elif _has_failed(name, commits[name], failures):
            continue
        else:
            committed = _committed(commits[name])
        kind = row.get("protocol_type") or ""
        if kind not in CONSUMER_TYPES:
            raise wire.failure_of(_INVALID_ARG, f"group {name!r}: ", f"GroupId {name} is not a consumer group ({kind})")
        found[name] = Answer(address, row, group_type, committed, shared.get(name, {}))
    return found


def _newer_groups(link: wire.Link, names: Sequence[str]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Groups of a newer protocol, with type and description: for DescribeGroups they do not exist."""
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for kind, key, version, needs in _NEWER:
        left = [name for name in names if name not in found]
        if left and link.version_max(needs) >= version:
            values = {"group_ids": left, "include_authorized_operations": False}
            rows = _by_group(link.ask(key, values), left)
            found |= {name: (kind, row) for name, row in rows.items() if row["error_code"] not in _NO_NEWER_GROUP}
    return found


def _by_group(answer: Mapping[str, Any], names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Raises OSError where one is missing."""
    rows = {row["group_id"]: row for row in answer["groups"]}
    if not rows.keys() >= set(names):
        raise OSError(_NO_PROTOCOL)
    return rows


def _has_failed(name: str, row: Mapping[str, Any], failures: list[CommandFailed]) -> bool:
    """Whether a row says that there is nothing to be had now, which `failures` gets. Raises what does not pass."""
    code = row["error_code"]
    if not code:
        return False
    failure = wire.failure_of(int(code), f"group {name!r}: ", row.get("error_message") or None)
    if code not in _PASSING:
        raise failure
    failures.append(failure)
    return True


def _committed(row: Mapping[str, Any]) -> dict[Place, int]:
    return {
        (topic["name"], part["partition_index"]): part["committed_offset"]
        for topic in row["topics"]
        for part in topic["partitions"]
        if part["committed_offset"] >= 0
    }
