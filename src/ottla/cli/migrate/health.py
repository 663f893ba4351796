"""Whether a node may be taken away now, and whether one that came back is whole. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ottla.cli.migrate.survey import Key, Partition, Quorum
from ottla.cli.output import plural


@dataclass(frozen=True)
class Look:
    """The state of a cluster at a moment."""

    running: frozenset[int]
    """Brokers that are registered and not fenced."""
    partitions: tuple[Partition, ...]
    quorum: Quorum
    moving: tuple[Key, ...] = ()


def trouble(look: Look, brokers: Collection[int], away: int | None = None) -> str:
    """Why no node may be stopped; nothing where one may. `away` is the node that is being exchanged already."""
    missing = sorted({*brokers} - look.running - {away})
    if missing:
        return f"node {missing[0]} is not running"
    if look.quorum.leader < 0:
        return "the metadata quorum has no leader"
    late = [each for each in look.quorum.late() if each != away]
    if late:
        return f"controller {late[0]} is away, or behind the metadata log"
    if look.moving:
        return f"{plural(len(look.moving), 'partition')} being moved, the first is {_name(look.moving[0])}"
    behind = [each for each in look.partitions if {*each.replicas} - {*each.in_sync} - {away}]
    if behind:
        return f"{plural(len(behind), 'partition')} with missing replicas, the first is {_name(behind[0].key)}"
    lost = [each for each in look.partitions if each.leader < 0 and {*each.replicas} - {away}]
    if lost:
        return f"{plural(len(lost), 'partition')} without a leader, the first is {_name(lost[0].key)}"
    return ""


def unfinished(look: Look, brokers: Collection[int], node: int, mark: Quorum) -> str:
    """Why a node that was started is not whole yet; nothing where it is. `mark` is the quorum when it was started: a
    voter has to have caught up since then. Its end says nothing: the leader remembers that of one that is away."""
    voter = next((each for each in look.quorum.voters if each.id == node), None)
    if voter is not None and voter.caught_up_ms <= mark.now_ms:
        return f"controller {node} has not caught up with the metadata log"
    if node in brokers and node not in look.running:
        return f"node {node} has not registered"
    lost = [each for each in look.partitions if each.leader < 0]
    if lost:
        return f"{plural(len(lost), 'partition')} without a leader, the first is {_name(lost[0].key)}"
    return trouble(look, brokers)


def _name(key: Key) -> str:
    return f"{key[0]}-{key[1]}"
