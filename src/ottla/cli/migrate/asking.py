"""Asks a cluster for its survey: brokers over the wire, controllers at their own listener where that answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli import wire
from ottla.cli.cluster.members import Member, Members, members
from ottla.cli.cluster.reassign import under_way
from ottla.cli.exits import CommandFailed
from ottla.cli.migrate.survey import KAFKA, OTTLA, Entry, Node, Partition, Quorum, Survey, Voter
from ottla.client.requests import asked_settings
from ottla.errors import ErrorCode
from ottla.metadata.features import KRAFT_VERSION
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.client.security import Security

ANSWER_S = 5.0
"""For one node: one that hangs is named, and does not hold up the survey of the others."""
TOPICS_AT_ONCE = 200
"""Topics whose settings one request asks for: an answer has forty rows for each."""
TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5
"""Sources of a setting, as DescribeConfigs numbers them."""
OWN_SETTING = "ottla.event.loop"
"""A setting that every node of Ottla shows, and no node of Kafka."""
MIN_IN_SYNC = "min.insync.replicas"


def survey(bootstrap: str, controllers: Security | None = None) -> Survey:
    """All but the records of internal topics. `controllers` is the security of listeners of controllers, where it is
    not that of --bootstrap. Raises CommandFailed."""
    found = members(bootstrap)
    described = quorum(bootstrap)
    answer = wire.ask(bootstrap, ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
    topics, min_in_sync = _topic_settings(bootstrap, [each["name"] for each in answer["topics"]])
    state, places = described or (None, {})
    features = wire.finalized_features(bootstrap)
    if state is not None and features.get(KRAFT_VERSION):
        state = Quorum(state.leader, state.high_watermark, state.voters, state.observers, is_dynamic=True)
    return Survey(
        found.cluster_id,
        tuple(_nodes(found, state, places, controllers)),
        state,
        features,
        partitions=tuple(partitions_of(answer)),
        topics=topics,
        min_in_sync=min_in_sync,
        reassignments=tuple(sorted(under_way(bootstrap))),
        tokens=_tokens(bootstrap),
    )


def partitions_of(answer: Mapping[str, Any]) -> Iterable[Partition]:
    """The partitions in an answer to Metadata, by their names."""
    for topic in sorted(answer["topics"], key=lambda each: each["name"]):
        for part in sorted(topic["partitions"], key=lambda each: each["partition_index"]):
            yield Partition(
                topic["name"],
                part["partition_index"],
                tuple(part["replica_nodes"]),
                tuple(part["isr_nodes"]),
                part["leader_id"],
            )


def quorum(bootstrap: str) -> tuple[Quorum, dict[int, str]] | None:
    """The metadata quorum, and where the listeners of its controllers are. None for a cluster with ZooKeeper. Raises
    CommandFailed."""
    if wire.version_max(bootstrap, ApiKey.DESCRIBE_QUORUM) < 0:
        return None
    answer, row = wire.quorum(bootstrap)
    voters = tuple(
        Voter(
            each["replica_id"], each["log_end_offset"], each["last_fetch_timestamp"], each["last_caught_up_timestamp"]
        )
        for each in row["current_voters"]
    )
    places = {
        each["node_id"]: wire.plain_address(each["listeners"][0]["host"], each["listeners"][0]["port"])
        for each in answer.get("nodes") or ()
        if each["listeners"]
    }
    observers = tuple(each["replica_id"] for each in row["observers"])
    return Quorum(row["leader_id"], row["high_watermark"], voters, observers), places


def _nodes(
    found: Members, state: Quorum | None, places: Mapping[int, str], controllers: Security | None
) -> Iterable[Node]:
    voters = set() if state is None else {each.id for each in state.voters}
    brokers: dict[int, Member] = {each.id: each for each in (*found.running, *(found.fenced or ()))}
    followers = () if state is None else state.observers  # controllers without a vote among them
    for node_id in sorted({*brokers, *voters, *followers}):
        broker = brokers.get(node_id)
        address = broker.address if broker is not None else places.get(node_id, "")
        yield _asked(
            Node(
                node_id,
                broker is not None,
                node_id in voters,
                address,
                None if broker is None else broker.rack,
                broker is not None and broker.fenced,
            ),
            controllers if broker is None else None,
        )


def _asked(node: Node, secured: Security | None) -> Node:
    """The node with what it says of itself; as it was where it does not answer."""
    from dataclasses import replace

    if not node.address:
        return node
    try:
        link = wire.Link(node.address, ANSWER_S, secured)
    except (OSError, CommandFailed):
        return node
    try:
        entries = _configs(link, BROKER, [str(node.id)], None)[str(node.id)]
        directories = link.ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": []})["results"] if node.is_broker else ()
    except (OSError, CommandFailed, LookupError, ValueError):
        return node
    finally:
        link.close()
    return replace(
        node,
        kind=OTTLA if any(each["name"] == OWN_SETTING for each in entries) else KAFKA,
        settings={
            each["name"]: Entry(each["value"], each["config_source"] == STATIC_BROKER, bool(each["is_sensitive"]))
            for each in entries
            if each["config_source"] != DEFAULT and not each["name"].startswith("ottla.")
        },
        offline_directories=tuple(each["log_dir"] for each in directories if each["error_code"]),
    )


def kind_of(address: str, node_id: int, secured: Security | None = None) -> str | None:
    """KAFKA or OTTLA, by what answers at a node; None where nothing answers."""
    try:
        link = wire.Link(address, ANSWER_S, secured)
    except (OSError, CommandFailed):
        return None
    try:
        found = _configs(link, BROKER, [str(node_id)], [OWN_SETTING]).get(str(node_id), [])
    except (OSError, CommandFailed, LookupError, ValueError):
        return None
    finally:
        link.close()
    return OTTLA if any(each["name"] == OWN_SETTING for each in found) else KAFKA


def _configs(link: Any, kind: int, names: Sequence[str], keys: Sequence[str] | None) -> dict[str, list[dict[str, Any]]]:
    """Raises OSError, CommandFailed."""
    results = link.ask(ApiKey.DESCRIBE_CONFIGS, asked_settings(kind, names, keys))["results"]
    for each in results:
        wire.ensure_none(each, f"settings of {each['resource_name']}")
    return {each["resource_name"]: list(each["configs"] or ()) for each in results}


def _topic_settings(bootstrap: str, names: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, int]]:
    """Each topic's own settings, and min.insync.replicas in effect. Raises CommandFailed."""
    own: dict[str, dict[str, str]] = {}
    least: dict[str, int] = {}
    for begin in range(0, len(names), TOPICS_AT_ONCE):
        values = asked_settings(TOPIC, names[begin : begin + TOPICS_AT_ONCE])
        for row in wire.ask(bootstrap, ApiKey.DESCRIBE_CONFIGS, values)["results"]:
            if row["error_code"] == ErrorCode.unknown_topic_or_partition:
                continue  # deleted meanwhile
            wire.ensure_none(row, f"settings of topic {row['resource_name']!r}")
            own[row["resource_name"]] = {
                each["name"]: each["value"] or "" for each in row["configs"] if each["config_source"] == DYNAMIC_TOPIC
            }
            text = next((each["value"] for each in row["configs"] if each["name"] == MIN_IN_SYNC), None)
            least[row["resource_name"]] = int(text or 1)
    return own, least


def _tokens(bootstrap: str) -> int | None:
    answer = wire.ask(bootstrap, ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": None})
    if answer["error_code"] == ErrorCode.delegation_token_auth_disabled:
        return 0
    return None if answer["error_code"] else len(answer["tokens"])
