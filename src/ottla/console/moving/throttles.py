"""The throttle of moves, as `kafka-reassign-partitions` and `ottla cluster balance` set it: a rate on every broker, and
on each topic the replicas that it is for.

Kafka takes no throttle away by itself. One that is left behind slows down replicas that catch up after a restart, so
pages say that it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.client.move_plan import RATES, REPLICAS
from ottla.client.requests import asked_settings, changed_settings
from ottla.config.explained import BROKER, TOPIC, entry_of
from ottla.console.asking import Asking
from ottla.console.brokers import Brokers, ensure_none
from ottla.console.cluster import ROWS_PER_REQUEST, Cluster
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey

EVERY: Final = "*"
"""In place of a list: all replicas of the topic."""
FRESH_S: Final = 30.0
_TOPIC_OWN, _BROKER_OWN, _ALL_BROKERS = 1, 2, 3
"""Sources of a setting that changes while brokers run."""

Rates = dict[int, int]
"""Bytes a second by broker, the lower of sending and fetching; brokers without a throttle are left out."""
Lists = dict[str, tuple[str, str]]
"""Throttled replicas of topics that have some: those of leaders and of followers."""
Moving = Mapping[tuple[str, int], tuple[Sequence[int], Sequence[int]]]
"""By topic and partition: brokers that have a copy, and brokers that get one."""


class Throttles(NamedTuple):
    """What brokers say of their rates."""

    by_source: dict[int, dict[tuple[int, str], int]]
    """By broker: rates by the source and the name of the setting."""
    failures: dict[int, KafkaError | OSError]
    """Why brokers say nothing, by broker."""

    @property
    def rates(self) -> Rates:
        return {node: min(each.values()) for node, each in self.by_source.items()}


def look(brokers: Brokers, cluster: Cluster) -> Throttles:
    """One request to each broker. Raises KafkaError, OSError where none answers."""

    def asked(node: int) -> Callable[[], list[tuple[str, int, str]]]:
        wanted = asked_settings(BROKER, [str(node)], RATES)
        return lambda: _entries(brokers.ask(node, ApiKey.DESCRIBE_CONFIGS, wanted)["results"][0], RATES)

    found = Throttles({}, {})
    nodes = list(cluster.nodes)
    for node, answer in zip(nodes, brokers.gather([asked(node) for node in nodes]), strict=True):
        if isinstance(answer, KafkaError | OSError):
            found.failures[node] = answer
            continue
        for name, source, value in answer:
            if source in (_BROKER_OWN, _ALL_BROKERS) and value.isdecimal():
                found.by_source.setdefault(node, {})[source, name] = int(value)
    if nodes and len(found.failures) == len(nodes):
        raise found.failures[nodes[0]]
    return found


def read_rates(brokers: Brokers, cluster: Cluster) -> tuple[Rates, list[int]]:
    """The rates, and the brokers that are away and tell none. Raises KafkaError, and OSError where none answers."""
    found = _ensured(look(brokers, cluster))
    holding = {node for topic in cluster.topics.values() for each in topic.partitions for node in each.replicas}
    return found.rates, sorted(found.failures.keys() | holding - cluster.nodes.keys())


def _ensured(found: Throttles) -> Throttles:
    """Raises KafkaError where a broker refuses: an act does all or nothing."""
    for error in found.failures.values():
        if isinstance(error, KafkaError):
            raise error
    return found


def read_lists(brokers: Brokers, topics: Collection[str]) -> Lists:
    """Raises KafkaError, OSError."""
    found: Lists = {}
    names = sorted(topics)
    for begin in range(0, len(names), ROWS_PER_REQUEST):
        asked = asked_settings(TOPIC, names[begin : begin + ROWS_PER_REQUEST], REPLICAS)
        for result in brokers.ask_any(ApiKey.DESCRIBE_CONFIGS, asked)["results"]:
            own = {name: value for name, source, value in _entries(result, REPLICAS) if source == _TOPIC_OWN and value}
            if own:
                found[result["resource_name"]] = own.get(REPLICAS[0], ""), own.get(REPLICAS[1], "")
    return found


def _entries(result: Mapping[str, Any], names: Sequence[str]) -> list[tuple[str, int, str]]:
    """Raises KafkaError."""
    ensure_none(ApiKey.DESCRIBE_CONFIGS, result, result["resource_name"])
    rows = [entry_of(each) for each in result["configs"]]
    return [(each.name, each.source, each.value or "") for each in rows if each.name in names]


def set_rate(asking: Asking, cluster: Cluster, rate: int, moving: Moving) -> Iterator[None]:
    """Set the rate on all brokers that are up, and the replicas on the topics, beside those that are throttled already;
    yields after each change. Raises KafkaError, OSError."""
    lists = _joined(read_lists(asking.brokers, {topic for topic, _ in moving}), moving)
    for topic, both in lists.items():
        _change(asking, TOPIC, topic, dict(zip(REPLICAS, both, strict=True)))
        yield
    for node in cluster.nodes:
        _change(asking, BROKER, str(node), dict.fromkeys(RATES, str(rate)))
        yield


def _joined(there: Lists, moving: Moving) -> Lists:
    added: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, number), (holding, adding) in moving.items():
        leaders, followers = added.setdefault(topic, ([], []))
        leaders += [f"{number}:{broker}" for broker in holding]
        followers += [f"{number}:{broker}" for broker in adding]
    return {
        topic: (_union(there.get(topic, ("", ""))[0], leaders), _union(there.get(topic, ("", ""))[1], followers))
        for topic, (leaders, followers) in added.items()
    }


def _union(there: str, more: Sequence[str]) -> str:
    if there == EVERY:
        return EVERY
    return ",".join(dict.fromkeys([*filter(None, there.split(",")), *more]))


def remove(asking: Asking, cluster: Cluster) -> list[tuple[str, KafkaError]]:
    """All rates and lists of the brokers that are up and of the topics that the user sees. What could not be removed,
    and why. Raises OSError, and KafkaError where the settings cannot be read, or nothing could be removed."""
    rates = _ensured(look(asking.brokers, cluster)).by_source
    lists = read_lists(asking.brokers, cluster.topics)
    has_default = any(source == _ALL_BROKERS for found in rates.values() for source, _ in found)
    changes = [
        *([("all brokers", BROKER, "", RATES)] if has_default else []),
        *(
            (f"broker {node}", BROKER, str(node), RATES)
            for node, found in rates.items()
            if any(source == _BROKER_OWN for source, _ in found)
        ),
        *((f"topic {topic}", TOPIC, topic, REPLICAS) for topic in lists),
    ]
    failures: list[tuple[str, KafkaError]] = []
    for what, kind, name, settings in changes:
        try:
            _change(asking, kind, name, dict.fromkeys(settings))
        except KafkaError as error:
            failures.append((what, error))
    if failures and len(failures) == len(changes):
        raise failures[0][1]
    return failures


def _change(asking: Asking, kind: int, name: str, values: Mapping[str, str | None]) -> None:
    """None removes a setting. Raises KafkaError, OSError."""
    node = int(name) if kind == BROKER and name else None
    asked = changed_settings(kind, name, values)
    for each in asking.brokers.change(ApiKey.INCREMENTAL_ALTER_CONFIGS, asked, node)["responses"]:
        ensure_none(ApiKey.INCREMENTAL_ALTER_CONFIGS, each, name or "all brokers")
