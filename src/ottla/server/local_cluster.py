"""Several nodes on one machine: which of them are controllers, their settings, and new directories of one cluster."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random as random_module

    from ottla.filesystem import FileSystem
    from ottla.model import Millis

CONTROLLERS_MAX = 3
"""Two of three are a majority: one may be away. More on one machine add work, and no safety."""
REPLICAS_MAX = 3
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Place:
    """Where a node listens; `controller_port` for other nodes, where it is a controller."""

    node_id: int
    port: int
    controller_port: int
    host: str = LOOPBACK


def controller_count(nodes: int) -> int:
    """Number of controllers for `nodes` nodes. Two controllers survive no loss, so a single one is safer."""
    return min(CONTROLLERS_MAX, nodes) if nodes > 2 else 1


def node_settings(places: Sequence[Place]) -> dict[int, dict[str, str]]:
    """The settings of each node by its id: the first ones are controllers, all are brokers."""
    voters = places[: controller_count(len(places))]
    copies = min(REPLICAS_MAX, len(places))
    shared = {
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": ",".join(f"{each.node_id}@{each.host}:{each.controller_port}" for each in voters),
        "controller.quorum.auto.join.enable": "true",
        "group.initial.rebalance.delay.ms": "0",
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(max(1, copies - 1)),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(max(1, copies - 1)),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(max(1, copies - 1)),
    }
    return {each.node_id: _own(each, each in voters) | shared for each in places}


def _own(place: Place, is_controller: bool) -> dict[str, str]:
    listeners = f"PLAINTEXT://{place.host}:{place.port}"
    if is_controller:
        listeners += f",CONTROLLER://{place.host}:{place.controller_port}"
    return {
        "process.roles": "broker,controller" if is_controller else "broker",
        "node.id": str(place.node_id),
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://{place.host}:{place.port}",
    }


def format_directory(
    fs: FileSystem,
    directory: str,
    settings: Mapping[str, str],
    cluster_id: str,
    random: random_module.Random,
    now: Millis,
    credentials: Sequence[Any] = (),
) -> None:
    """Make a node's new directory one of a cluster, which begins with `credentials`, records of users of SCRAM
    (KIP-900); one that is of a cluster already stays as it is."""
    from ottla.drivers.metadata.directories import bootstrap_checkpoint
    from ottla.quorum.snapshot import BOOTSTRAP_FILE
    from ottla.storage.checkpoints.meta_properties import (
        MetaProperties,
        random_directory_id,
        read_meta_properties,
        write_meta_properties,
    )

    fs.makedirs(directory)
    if read_meta_properties(fs, directory) is not None:
        return
    if "controller" in settings["process.roles"]:
        data = bootstrap_checkpoint(now, credentials)
        fs.write_atomic(posixpath.join(directory, BOOTSTRAP_FILE), data, private=True)
    meta = MetaProperties(cluster_id, int(settings["node.id"]), random_directory_id(random))
    write_meta_properties(fs, directory, meta)
