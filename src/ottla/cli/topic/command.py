"""`ottla topic ...`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ottla.cli.batch_results import report_each
from ottla.cli.client import admin_client, topics_of, wait
from ottla.cli.client_security import ClientFile
from ottla.cli.cluster.moves import replicate
from ottla.cli.exits import MISUSED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag, parse_settings
from ottla.cli.output import bold, plural, print_json, print_table
from ottla.cli.topic.elect import elect
from ottla.cli.topic.explain import described, explain_topic
from ottla.cli.topic.partition_health import LACKS, partitions
from ottla.cli.values import PartitionCount, ReplicaCount, SettingName, Text, TopicName

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = App(name="topic", help="Create, show, explain, alter and delete topics.", sort_key=2)
app.command(explain_topic, name="explain", sort_key=6)
app.command(replicate, sort_key=7)
app.command(elect, sort_key=8)

Names = Annotated[TopicName, Parameter(help="One or more topics.", required=True)]
_PRESENT = ("TOPIC_ALREADY_EXISTS", "exists already")
_MISSING = ("UNKNOWN_TOPIC_OR_PART", "does not exist")
"""What is no error with --if-not-exists and --if-exists, and what is printed then."""

Settings = Annotated[list[Text] | None, Parameter(negative="", consume_multiple=False)]


@app.command
def create(
    *topics: Names,
    partitions: Annotated[PartitionCount | None, Parameter(alias="-p")] = None,
    replication_factor: Annotated[ReplicaCount | None, Parameter(alias="-r")] = None,
    set: Settings = None,
    if_not_exists: Flag = False,
    dry_run: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Create topics.

    Parameters
    ----------
    partitions
        Number of partitions. Default: the broker's num.partitions.
    replication_factor
        Copies of each partition. Default: the broker's default.replication.factor.
    set
        A topic setting as name=value, for example retention.ms=3600000; may be repeated.
    if_not_exists
        Succeed if the topic exists already.
    dry_run
        Let the broker check the request without creating anything.
    """
    from confluent_kafka.admin import NewTopic

    config = parse_settings(set or (), "--set")
    _ensure_known(config)
    new = [
        NewTopic(name, num_partitions=partitions or -1, replication_factor=replication_factor or -1, config=config)
        for name in topics
    ]
    client = admin_client(bootstrap)
    futures = client.create_topics(new, validate_only=dry_run)
    verb = "can be created" if dry_run else "created"
    return report_each("topic", futures, verb, json, ignored=_PRESENT if if_not_exists else None)


@app.command
def delete(
    *topics: Names,
    if_exists: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Delete topics and every record in them.

    Parameters
    ----------
    if_exists
        Succeed if the topic does not exist.
    """
    client = admin_client(bootstrap)  # its requests die with it, so it has to have a name
    futures = client.delete_topics(list(topics))
    return report_each("topic", futures, "deleted", json, ignored=_MISSING if if_exists else None)


@app.command
def alter(
    topic: TopicName,
    /,
    *,
    partitions: Annotated[PartitionCount | None, Parameter(alias="-p")] = None,
    set: Settings = None,
    unset: Annotated[list[SettingName] | None, Parameter(negative="", consume_multiple=False)] = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Change a topic's settings, or add partitions to it.

    Parameters
    ----------
    topic
        Which.
    partitions
        The new number of partitions; it can only grow.
    set
        A topic setting as name=value; may be repeated.
    unset
        A setting to reset to its default; may be repeated.
    """
    changes = parse_settings(set or (), "--set")
    if partitions is None and not changes and not unset:
        raise CommandFailed("nothing to change: give --partitions, --set or --unset", MISUSED)
    _ensure_known([*changes, *(unset or ())])
    client = admin_client(bootstrap)
    if changes or unset:
        code = report_each("topic", _alter_configs(client, topic, changes, unset or ()), "altered", json)
        if code != OK or partitions is None:
            return code
    from confluent_kafka.admin import NewPartitions

    futures = client.create_partitions([NewPartitions(topic, partitions or 0)])
    return report_each("topic", futures, f"now has {plural(partitions or 0, 'partition')}", json)


def _ensure_known(names: Iterable[str]) -> None:
    from ottla.config import definitions
    from ottla.config.explained import misspelt

    sentence = misspelt(names, definitions.TOPIC, "topics")
    if sentence is not None:
        raise CommandFailed(sentence, MISUSED)


def _alter_configs(
    client: AdminClient, topic: str, changes: Mapping[str, str], removals: Sequence[str]
) -> dict[str, Future[Any]]:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in changes.items()]
    entries += [ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in removals]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    (future,) = client.incremental_alter_configs([resource]).values()
    return {topic: future}


@app.command(name="list")
def list_(
    *,
    internal: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """List topics.

    Parameters
    ----------
    internal
        Include internal topics such as __consumer_offsets.
    """
    client = admin_client(bootstrap)
    found = topics_of(client).topics
    topics = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(p.replicas) for p in topic.partitions.values()), default=0),
        }
        for name, topic in sorted(found.items())
        if internal or not name.startswith("__")
    ]
    if json:
        print_json(topics)
    elif topics:
        print_table(("TOPIC", "PARTITIONS>", "REPLICAS>"), [list(topic.values()) for topic in topics])
    else:
        print("no topics yet; create one with: ottla topic create NAME")
    return OK


@app.command
def describe(
    *topics: Annotated[
        TopicName, Parameter(help="One or more topics. With an option that selects partitions: default all topics.")
    ],
    under_replicated: Flag = False,
    offline: Flag = False,
    at_min_isr: Flag = False,
    under_min_isr: Flag = False,
    all_settings: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Show a topic's settings and its partitions with leaders, replicas and offsets, or only the unhealthy partitions.

    Parameters
    ----------
    under_replicated
        Only partitions with a replica out of sync.
    offline
        Only partitions without a leader.
    at_min_isr
        Only partitions with exactly min.insync.replicas in sync: if one more is lost, acks=all is refused.
    under_min_isr
        Only partitions with fewer than min.insync.replicas in sync, or without a leader.
    all_settings
        Show every setting, not only those that differ from the default.
    """
    flags = {
        "under_replicated": under_replicated,
        "offline": offline,
        "at_min_isr": at_min_isr,
        "under_min_isr": under_min_isr,
    }
    asked = [name for name, given in flags.items() if given]
    if len(asked) > 1 or (asked and all_settings):
        options = ["--" + each.replace("_", "-") for each in [*asked, *(["all_settings"] if all_settings else [])]]
        raise CommandFailed(f"{' and '.join(options)} cannot be used together", MISUSED)
    if asked:
        return _describe_lacking(bootstrap, topics, asked[0], json)
    if not topics:
        raise CommandFailed(
            "name topics, or select partitions of all topics, for example with --under-replicated", MISUSED
        )
    client = admin_client(bootstrap)
    described = [_describe(client, name, all_settings) for name in topics]
    if json:
        print_json(described)
        return OK
    for number, topic in enumerate(described):
        if number:
            print()
        _print_topic(topic)
    return OK


def _describe_lacking(bootstrap: str, topics: Sequence[str], what: str, as_json: bool) -> int:
    lacks, sentence = LACKS[what]
    found = [each for each in partitions(bootstrap, topics) if lacks(each)]
    if as_json:
        names = ("topic", "partition", "leader", "replicas", "isr", "min_isr")
        print_json([{name: getattr(each, name) for name in names} for each in found])
    elif found:
        print_table(
            ("TOPIC", "PARTITION>", "LEADER>", "REPLICAS", "IN SYNC", "MIN>"),
            [
                (
                    each.topic,
                    each.partition,
                    "none" if each.leader is None else each.leader,
                    ",".join(map(str, each.replicas)),
                    ",".join(map(str, each.isr)),
                    each.min_isr,
                )
                for each in found
            ],
        )
    else:
        print(" ".join(("no partition", *(("of", ", ".join(topics)) if topics else ()), sentence)))
    return OK


def _describe(client: AdminClient, name: str, all_settings: bool) -> dict[str, Any]:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import ConfigResource, ConfigSource, OffsetSpec, ResourceType

    topic = described(client, name)
    (future,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    settings = {
        entry.name: entry.value
        for entry in wait(future).values()
        if all_settings or entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }

    def offsets(spec: Callable[[], Any]) -> dict[int, int | None]:
        led = {TopicPartition(name, p.id): spec() for p in topic.partitions if p.leader is not None}
        return {tp.partition: _offset_or_none(future) for tp, future in client.list_offsets(led).items()}

    starts, ends = offsets(OffsetSpec.earliest), offsets(OffsetSpec.latest)
    return {
        "topic": name,
        # As Kafka writes ids: librdkafka uses the other alphabet of base64.
        "topic_id": str(topic.topic_id).replace("+", "-").replace("/", "_"),
        "internal": topic.is_internal,
        "settings": dict(sorted(settings.items())),
        "partitions": [
            {
                "partition": p.id,
                "leader": p.leader.id if p.leader is not None else None,
                "replicas": [node.id for node in p.replicas],
                "isr": [node.id for node in p.isr],
                "start_offset": starts.get(p.id),
                "end_offset": ends.get(p.id),
            }
            for p in topic.partitions
        ],
    }


def _offset_or_none(future: Future[Any]) -> int | None:
    from confluent_kafka import KafkaException

    try:
        return int(wait(future).offset)
    except KafkaException:
        return None


def _print_topic(topic: Mapping[str, Any]) -> None:
    partitions = topic["partitions"]
    internal = ", internal" if topic["internal"] else ""
    print(f"{bold(topic['topic'])}  {plural(len(partitions), 'partition')}, id {topic['topic_id']}{internal}")
    print_table(
        ("PARTITION>", "LEADER>", "REPLICAS", "IN SYNC", "START>", "END>"),
        [
            (
                p["partition"],
                "none" if p["leader"] is None else p["leader"],
                ",".join(map(str, p["replicas"])),
                ",".join(map(str, p["isr"])),
                p["start_offset"],
                p["end_offset"],
            )
            for p in partitions
        ],
        indent=2,
    )
    if topic["settings"]:
        print_table(("SETTING", "VALUE"), topic["settings"].items(), indent=2)
