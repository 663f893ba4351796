"""What keeps a cluster from being imported, and what an import does not carry over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.config import definitions
from ottla.znodes import cluster, configs
from ottla.znodes.findings import Findings, numbers
from ottla.znodes.reading import Reader, Topic
from ottla.znodes.topics import TOPICS, state_path, topic_path
from ottla.znodes.tree import BadZnode, fields_of
from ottla.znodes.unfinished import finish

IMPORT: str = "/ottla_migration"
"""The znode in which the first execution of an import leaves what it decided."""

NAMED_MAX = 20
"""Findings of one kind that are listed one by one."""


def checked(reader: Reader, *, own_controller: bool = False) -> Findings:
    """The findings of the reader and those of the cluster as a whole, in which what is under way is `finish`ed.
    `own_controller`: `/controller` is the import's, which goes on."""
    found = Findings((*reader.findings, *finish(reader)))
    for part in (_identity(reader, own_controller), _brokers(reader), _topics(reader)):
        for each in part:
            found.refuse(*each)
    _lost(reader, found)
    return found


Places = Iterator[tuple[str, str]]


def _identity(reader: Reader, own_controller: bool) -> Places:
    if cluster.CLUSTER_ID not in reader.tree:
        yield cluster.CLUSTER_ID, "is missing: this is no cluster of Kafka's; is the chroot right?"
    if cluster.MIGRATION in reader.tree:
        yield from _migration(reader)
    if cluster.CONTROLLER not in reader.tree or own_controller:
        return
    controller = reader.cluster.controller
    who = "somebody" if controller is None else f"broker {controller.broker_id}"
    if controller is not None and controller.kraft_epoch >= 0:
        who = f"KRaft controller {controller.broker_id}"
    yield cluster.CONTROLLER, f"{who} is the controller: stop all brokers, and wait until their sessions have expired"


def decode_migration(data: bytes) -> int:
    """The KRaft controller of Kafka's own migration; -1 where none has begun. Raises BadZnode."""
    fields = fields_of(cluster.MIGRATION, data)
    fields.version(0)
    return fields.integer("kraft_controller_id", -1)


def _migration(reader: Reader) -> Places:
    try:
        controller = decode_migration(reader.tree[cluster.MIGRATION].data)
    except BadZnode as error:
        yield error.path, error.why
        return
    if controller >= 0:
        yield (
            cluster.MIGRATION,
            (
                f"KRaft controller {controller} of Kafka's own migration (KIP-866) has begun here: finish it, or roll "
                "it back and delete this znode"
            ),
        )


def _brokers(reader: Reader) -> Places:
    for broker in reader.cluster.brokers:
        places = ", ".join(f"{each.host}:{each.port}" for each in broker.endpoints) or "no listener"
        path = cluster.broker_path(broker.id)
        yield path, f"broker {broker.id} ({places}) still runs: stop it, and wait until its session has expired"


def _topics(reader: Reader) -> Places:
    by_id: dict[object, str] = {}
    for topic in reader.cluster.topics:
        path, rows = topic_path(topic.name), topic.assignment.replicas
        if not rows:
            yield path, "has no partitions: it was never finished; start the brokers until it is, or delete it"
        elif list(rows) != list(range(len(rows))):
            yield path, f"is damaged: its partitions are {numbers(rows)}, with gaps"
        yield from _states(reader, topic)
        topic_id = topic.assignment.topic_id
        if topic_id is not None and by_id.setdefault(topic_id, topic.name) != topic.name:
            yield path, f"has the topic id of {by_id[topic_id]}"


def _states(reader: Reader, topic: Topic) -> Places:
    missing = []
    for number, replicas in topic.assignment.replicas.items():
        path = state_path(topic.name, number)
        found = topic.partitions.get(number)
        if found is None:
            if path not in reader.tree:
                missing.append(number)
            continue
        state = found.state
        if not replicas or len(set(replicas)) != len(replicas):
            yield topic_path(topic.name), f"is damaged: the replicas of partition {number} are {list(replicas)}"
        if not state.isr or not set(state.isr) <= set(replicas):
            yield path, f"its in-sync set is {list(state.isr)} of replicas {list(replicas)}"
        if state.leader_epoch < 0:
            yield path, f"its leader epoch is {state.leader_epoch}"
        if state.controller_epoch > reader.cluster.controller_epoch:
            yield (
                path,
                (
                    f"was written in controller epoch {state.controller_epoch}, and {cluster.CONTROLLER_EPOCH} is "
                    f"{reader.cluster.controller_epoch}"
                ),
            )
    if missing:
        yield (
            topic_path(topic.name),
            (f"partitions {numbers(missing)} have no state: start the brokers until they are finished"),
        )
    known = topic.assignment.replicas
    others = [name for name in reader.children.of(f"{TOPICS}/{topic.name}/partitions") if name not in map(str, known)]
    if others:
        yield topic_path(topic.name), f"has no replicas for its partitions {', '.join(others[:NAMED_MAX])}"


def _lost(reader: Reader, found: Findings) -> None:
    topics = {topic.name for topic in reader.cluster.topics}
    for name in sorted(reader.cluster.topic_configs):
        if name not in topics:
            found.note(f"{configs.TOPIC_CONFIGS}/{name}", "settings of a topic that is not there are left out")
    groups = reader.children.of(cluster.CONSUMERS)
    with_offsets = [name for name in groups if reader.children.of(f"{cluster.CONSUMERS}/{name}/offsets")]
    for name in with_offsets[:NAMED_MAX]:
        path = f"{cluster.CONSUMERS}/{name}/offsets"
        found.lose(path, "offsets that consumers of 0.8 keep in ZooKeeper; they stay where they are")
    if len(with_offsets) > NAMED_MAX:
        found.lose(cluster.CONSUMERS, f"so do those of {len(with_offsets) - NAMED_MAX} more groups")
    for name, level in sorted(reader.cluster.features.items()):
        if level:
            found.lose(cluster.FEATURE, f"{name} at level {level}")
    _without_effect(reader, found)


def _without_effect(reader: Reader, found: Findings) -> None:
    """Settings that are kept, for the way back, and mean nothing to Ottla."""
    names: dict[str, list[str]] = {}
    for topic, settings in sorted(reader.cluster.topic_configs.items()):
        for name in settings:
            if name not in definitions.TOPIC and name not in definitions.THROTTLES:
                names.setdefault(name, []).append(topic)
    for name, of in sorted(names.items()):
        where = f"{configs.TOPIC_CONFIGS}/{of[0]}"
        more = f", and {len(of) - 1} more topics" if len(of) > 1 else ""
        found.note(where, f"{name} has no effect in Ottla; it is kept for the way back{more}")
    for broker, settings in sorted(reader.cluster.broker_configs.items()):
        path = f"{configs.BROKER_CONFIGS}/{broker or '<default>'}"
        for name in _not_dynamic(settings):
            found.note(path, f"{name} cannot be set dynamically in Ottla: put it into the settings file")


def _not_dynamic(settings: Sequence[str] | dict[str, str]) -> list[str]:
    from ottla.config.setting import Mode

    found = []
    for name in settings:
        plain = name.partition("listener.name.")[2].partition(".")[2] or name
        setting = next(
            (each for key, each in definitions.BROKER.items() if plain == key or plain.endswith(f".{key}")), None
        )
        if setting is not None and setting.mode is Mode.READ_ONLY and name not in definitions.THROTTLES:
            found.append(name)
    return sorted(found)
