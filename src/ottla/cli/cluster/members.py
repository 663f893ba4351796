"""The members of a cluster: its brokers, offline ones too, and the active controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.cli import wire
from ottla.cli.exits import CommandFailed
from ottla.protocol.messages import ApiKey

INCLUDES_FENCED = 2
"""Version of DescribeCluster that names fenced brokers too (KIP-1073)."""
CONTROLLER_S_MAX = 4.0
"""How long the leader of the quorum may take to be named."""


@dataclass(frozen=True)
class Member:
    """A registered broker."""

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool
    cluster_id: str | None = None
    """None where the cluster has not said it."""

    @property
    def address(self) -> str:
        return wire.node_address(self.host, self.port, self.id, self.cluster_id)


@dataclass(frozen=True)
class Members:
    cluster_id: str
    running: list[Member]
    fenced: list[Member] | None
    """Brokers that are not running, or not heard of; None where the cluster does not tell, before Kafka 4.0."""


def members(bootstrap: str) -> Members:
    """The members by id. They are not taken from metadata, which lists brokers that have just gone. Raises
    CommandFailed."""
    if wire.version_max(bootstrap, ApiKey.DESCRIBE_CLUSTER) < INCLUDES_FENCED:
        answer = wire.ask(bootstrap, ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
        listed = sorted((_member(each, "node_id", answer) for each in answer["brokers"]), key=lambda each: each.id)
        return Members(answer["cluster_id"] or "", listed, None)
    values = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": True}
    answer = wire.ask(bootstrap, ApiKey.DESCRIBE_CLUSTER, values)
    wire.ensure_none(answer, bootstrap)
    found = sorted((_member(each, "broker_id", answer) for each in answer["brokers"]), key=lambda each: each.id)
    return Members(
        answer["cluster_id"], [each for each in found if not each.fenced], [each for each in found if each.fenced]
    )


def controllers(bootstrap: str) -> Members:
    """The controllers of the quorum, as one of them knows their addresses (KIP-919). Raises CommandFailed, also where a
    broker has the address."""
    values = {"include_cluster_authorized_operations": False, "endpoint_type": 2, "include_fenced_brokers": False}
    answer = wire.ask(bootstrap, ApiKey.DESCRIBE_CLUSTER, values)
    wire.ensure_none(answer, bootstrap)
    found = sorted((_member(each, "broker_id", answer) for each in answer["brokers"]), key=lambda each: each.id)
    return Members(answer["cluster_id"], found, None)


def _member(row: Mapping[str, Any], name: str, answer: Mapping[str, Any]) -> Member:
    fenced = bool(row.get("is_fenced", False))
    return Member(row[name], row["host"], row["port"], row["rack"], fenced, answer.get("cluster_id"))


def quorum_leader(bootstrap: str) -> int | None:
    """The leader of the metadata quorum, which is the active controller; None where none is known. The controller that
    Metadata and DescribeCluster name is any broker that passes requests on (KIP-590)."""
    try:
        answer = wire.ask(bootstrap, ApiKey.DESCRIBE_QUORUM, wire.QUORUM_ASKED, CONTROLLER_S_MAX)
        row = answer["topics"][0]["partitions"][0]
    except (CommandFailed, LookupError):
        return None
    return None if row["error_code"] or row["leader_id"] < 0 else int(row["leader_id"])
