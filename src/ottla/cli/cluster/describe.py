"""`ottla cluster describe`: the brokers, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.cli import wire
from ottla.cli.client_security import ClientFile
from ottla.cli.cluster.members import members, quorum_leader
from ottla.cli.exits import OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import bold, human_bytes, plural, print_json, print_table
from ottla.cli.topic.partition_health import LACKS, MIN_ISR, partitions
from ottla.metadata.features import METADATA_VERSION, METADATA_VERSIONS
from ottla.server.listeners.exposure import ALLOW


def describe(
    *, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, client_config: ClientFile = None
) -> int:
    """Show the cluster id, the brokers with the partitions and bytes each holds, and unhealthy partitions.

    The controller is the leader of the metadata quorum, as `ottla quorum describe` names it.
    """
    cluster = view(bootstrap)
    if json:
        print_json(cluster)
        return OK
    leader = "has no leader" if cluster["controller"] is None else f"is led by node {cluster['controller']}"
    print(f"{bold(cluster['cluster_id'])}  {plural(len(cluster['brokers']), 'broker')}, the quorum {leader}")
    print_table(
        ("BROKER>", "ADDRESS", "RACK", "LEADS>", "REPLICAS>", "SIZE>", "FREE>"),
        [
            (b["id"], b["address"], b["rack"], b["leads"], b["replicas"], _size(b["bytes"]), _size(b["free_bytes"]))
            for b in cluster["brokers"]
        ],
        indent=2,
    )
    print(f"  {plural(cluster['topics'], 'topic')}, {plural(cluster['partitions'], 'partition')}", end="")
    print(f"; metadata version {metadata_version(cluster['features'])}")
    print(f"  {_counts(cluster)}")
    for broker in cluster["fenced_brokers"] or ():
        print(f"  fenced: broker {broker['id']} ({broker['address']}), which is not running or cannot be reached")
    for heading, key in (("without a leader", "leaderless"), ("with missing replicas", "under_replicated")):
        for each in cluster[key]:
            print(f"  {heading}: {each['topic']} partition {each['partition']}")
    for broker in cluster["brokers"]:
        for failure in broker["failures"]:
            print(f"  broker {broker['id']}: {failure}")
        if broker["is_open"]:
            print(f"  broker {broker['id']}: whoever reaches it may do everything there ({ALLOW}=true)")
    return OK


def _counts(cluster: Mapping[str, Any]) -> str:
    """How many partitions lack something, and how many brokers are fenced."""
    fenced = cluster["fenced_brokers"]
    return (
        f"{len(cluster['leaderless']):,} offline, {len(cluster['under_replicated']):,} under-replicated, "
        f"{len(cluster['at_min_isr']):,} at {MIN_ISR}, {len(cluster['under_min_isr']):,} below it"
        + ("" if fenced is None else f"; {plural(len(fenced), 'fenced broker')}")
    )


def _size(count: int | None) -> str | None:
    return None if count is None else human_bytes(count)


def metadata_version(features: Mapping[str, int]) -> str:
    """The agreed metadata.version by its release: `4.3-IV0`."""
    level = features.get(METADATA_VERSION, 0)
    return next((each.name for each in METADATA_VERSIONS if each.level == level), str(level))


def view(bootstrap: str) -> dict[str, Any]:
    """Everything that `describe` shows. Raises CommandFailed."""
    there = members(bootstrap)
    found = partitions(bootstrap)
    brokers = []
    for node in there.running:
        broker: dict[str, Any] = {
            "id": node.id,
            "address": node.address,
            "rack": node.rack,
            "leads": sum(each.leader == node.id for each in found),
            "replicas": sum(node.id in each.replicas for each in found),
            "is_open": wire.broker_setting(node.address, node.id, ALLOW) == "true",
        }
        brokers.append(broker | _stored(node.address))
    fenced = there.fenced
    return {
        "cluster_id": there.cluster_id,
        "controller": quorum_leader(bootstrap),
        "brokers": brokers,
        "fenced_brokers": None if fenced is None else [{"id": each.id, "address": each.address} for each in fenced],
        "topics": len({each.topic for each in found}),
        "partitions": len(found),
        "features": dict(sorted(wire.finalized_features(bootstrap).items())),
        **{
            "leaderless" if name == "offline" else name: [
                {"topic": each.topic, "partition": each.partition} for each in found if lacks(each)
            ]
            for name, (lacks, _) in LACKS.items()
        },
    }


def _stored(address: str) -> dict[str, Any]:
    """Contents of a broker's log directories. A broker that does not answer is reported in the result."""
    try:
        directories = wire.log_directories(address)
    except CommandFailed as failure:
        first = str(failure).partition("\n")[0]
        return {"bytes": None, "free_bytes": None, "log_dirs": [], "failures": [first]}
    free = [each["free_bytes"] for each in directories if each["free_bytes"] is not None]
    return {
        "bytes": sum(sum(each["partitions"].values()) for each in directories),
        "free_bytes": sum(free) if free else None,
        "log_dirs": [each["path"] for each in directories],
        "failures": [f"{each['path']} is offline ({each['error']})" for each in directories if each["error"]],
    }
