"""`ottla cluster describe`: the brokers, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cyclopts import App

from ottla.cli import wire
from ottla.cli.client import admin_client, topics_of, wait
from ottla.cli.exits import OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import bold, human_bytes, plural, print_json, print_table
from ottla.metadata.features import METADATA_VERSION, METADATA_VERSIONS

app = App(name="cluster", help="See the brokers of a cluster.", sort_key=7)


@app.command
def describe(*, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> int:
    """Show the cluster's identity, its brokers with what each leads and stores, and partitions that are in trouble."""
    cluster = view(bootstrap)
    if json:
        print_json(cluster)
        return OK
    controller = "none" if cluster["controller"] is None else f"broker {cluster['controller']}"
    print(f"{bold(cluster['cluster_id'])}  controller {controller}, {plural(len(cluster['brokers']), 'broker')}")
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
    for heading, key in (("without a leader", "leaderless"), ("with missing copies", "under_replicated")):
        for each in cluster[key]:
            print(f"  {heading}: {each['topic']} partition {each['partition']}")
    for broker in cluster["brokers"]:
        for failure in broker["failures"]:
            print(f"  broker {broker['id']}: {failure}")
    return OK


def _size(count: int | None) -> str | None:
    return None if count is None else human_bytes(count)


def metadata_version(features: Mapping[str, int]) -> str:
    """The agreed metadata.version by its release: `4.3-IV0`."""
    level = features.get(METADATA_VERSION, 0)
    return next((each.name for each in METADATA_VERSIONS if each.level == level), str(level))


def view(bootstrap: str) -> dict[str, Any]:
    """Everything that `describe` shows. Raises KafkaException, CommandFailed."""
    client = admin_client(bootstrap)
    answer: Any = wait(client.describe_cluster())
    metadata = topics_of(client)
    partitions = [(name, part) for name, topic in sorted(metadata.topics.items()) for part in topic.partitions.values()]
    brokers = []
    for node in sorted(answer.nodes, key=lambda each: int(each.id)):
        address = f"{node.host}:{node.port}"
        broker: dict[str, Any] = {
            "id": node.id,
            "address": address,
            "rack": node.rack,
            "leads": sum(part.leader == node.id for _, part in partitions),
            "replicas": sum(node.id in part.replicas for _, part in partitions),
        }
        brokers.append(broker | _stored(address))
    return {
        "cluster_id": answer.cluster_id,
        "controller": answer.controller.id if answer.controller is not None else None,
        "brokers": brokers,
        "topics": len(metadata.topics),
        "partitions": len(partitions),
        "features": dict(sorted(wire.finalized_features(bootstrap).items())),
        "leaderless": [{"topic": name, "partition": part.id} for name, part in partitions if part.leader < 0],
        "under_replicated": [
            {"topic": name, "partition": part.id} for name, part in partitions if len(part.isrs) < len(part.replicas)
        ],
    }


def _stored(address: str) -> dict[str, Any]:
    """What a broker's log directories hold. A broker that does not answer is a line of the answer, not its end."""
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
