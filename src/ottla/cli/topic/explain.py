"""`ottla topic explain`: what a topic's settings and replicas mean, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ottla.cli.client import admin_client, failure, wait
from ottla.cli.client_security import ClientFile
from ottla.cli.config.command import Resource
from ottla.cli.config.command import describe as describe_settings
from ottla.cli.exits import OK
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import bold, print_json
from ottla.cli.units import print_wrapped
from ottla.cli.values import TopicName
from ottla.config.explained import TOPIC
from ottla.config.topic_explained import Facts, explanation

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def explain_topic(
    *topics: Annotated[TopicName, Parameter(help="One or more topics.", required=True)],
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Explain how safe a topic is: which broker losses it survives, acks, power loss, and how long records are kept."""
    client = admin_client(bootstrap)
    explained = [(name, list(explanation(_facts(client, bootstrap, name)))) for name in topics]
    if json:
        print_json([{"topic": name, **dict(paragraphs)} for name, paragraphs in explained])
        return OK
    for number, (name, paragraphs) in enumerate(explained):
        if number:
            print()
        print(bold(name))
        for heading, text in paragraphs:
            print_wrapped(f"  {heading:<9}", text)
    return OK


def described(client: AdminClient, name: str) -> Any:
    """A topic as librdkafka describes it. Raises CommandFailed."""
    from confluent_kafka import KafkaException, TopicCollection

    try:
        return wait(client.describe_topics(TopicCollection([name]))[name])
    except KafkaException as exception:
        raise failure(exception, f"topic {name!r}: ") from exception


def _facts(client: AdminClient, bootstrap: str, name: str) -> Facts:
    topic = described(client, name)
    partitions = sorted(topic.partitions, key=lambda each: int(each.id))
    settings = {each.name: each.value or "" for each in describe_settings(bootstrap, Resource(TOPIC, name))}
    return Facts(
        name,
        len(wait(client.describe_cluster()).nodes),
        [len(each.replicas) for each in partitions],
        [len(each.isr) for each in partitions],
        [each.id for each in partitions if each.leader is None],
        settings,
        [len({node.rack for node in each.replicas}) for each in partitions if all(n.rack for n in each.replicas)],
    )
