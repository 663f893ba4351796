"""What a survey means for the migration: findings by weight, each with what to do about it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from ottla.cli.migrate import node_settings
from ottla.cli.migrate.finding import FINE, LOOK, STOPS, WEIGHTS, Finding
from ottla.cli.migrate.survey import OTTLA, Node, Partition, Survey
from ottla.config import definitions
from ottla.config.tables.without_effect import why
from ottla.metadata.features import METADATA_VERSION, metadata_version_name, unsupported

VOTERS_MIN = 3
"""Voters of which one may be away."""
TIERED = "remote.storage.enable"


def findings(survey: Survey) -> list[Finding]:
    """All of them, the heaviest first."""
    found = [
        *_quorum(survey),
        *_features(survey),
        *_nodes(survey),
        *_partitions(survey),
        *_topics(survey),
        *_tokens(survey),
        *_records(survey),
        *node_settings.findings(survey),
    ]
    return sorted(found, key=lambda each: WEIGHTS.index(each.weight))


def stops_writes(partition: Partition, survey: Survey) -> bool:
    """Whether it refuses acks=all while one of its replicas is away."""
    return len(partition.replicas) - 1 < survey.min_in_sync.get(partition.topic, 1)


def _quorum(survey: Survey) -> Iterator[Finding]:
    state = survey.quorum
    if state is None:
        yield Finding(
            "zookeeper",
            STOPS,
            "the cluster has no metadata quorum: its state is in ZooKeeper",
            "let Kafka 3.9 migrate it to KRaft first (docs/migration/node-by-node.md)",
        )
        return
    kind = "dynamic" if state.is_dynamic else "static"
    ids = tuple(str(each.id) for each in state.voters)
    if state.leader < 0:
        yield Finding("quorum-leader", STOPS, "the metadata quorum has no leader", "start the controllers", ids)
    if len(state.voters) < VOTERS_MIN:
        yield Finding(
            "quorum-majority",
            LOOK,
            f"the {kind} quorum has {len(state.voters)} voter{'s' if len(state.voters) > 1 else ''}: it has no "
            "majority while one is away, so that nothing is elected, created or fenced then",
            "clients go on with the leaders they have; have a third controller first, or do it in a quiet hour",
            ids,
        )
    else:
        yield Finding("quorum", FINE, f"the {kind} quorum of {len(state.voters)} keeps a majority while one is away")
    late = () if state.leader < 0 else state.late()
    if late:
        yield Finding(
            "voters-behind",
            STOPS,
            "controllers are away, or behind the metadata log",
            "start them; see the lag with: ottla quorum describe",
            tuple(f"node {each}" for each in late),
        )


def _features(survey: Survey) -> Iterator[Finding]:
    wrong = unsupported(survey.features)
    for name, level, low, high in wrong:
        shown = f"{name} is {level}"
        if name == METADATA_VERSION:
            shown = f"{name} is {metadata_version_name(level)} ({level})"
        known = f"Ottla supports {low} to {high}" if high else "Ottla does not know this feature"
        advice = (
            "upgrade it with: kafka-features.sh upgrade"
            if high and level < low
            else "lower it with: kafka-features.sh downgrade"
        )
        yield Finding("features", STOPS, f"{shown}; {known}", advice, (name,))
    if not wrong:
        level = survey.features.get(METADATA_VERSION, 0)
        yield Finding(
            "features", FINE, f"metadata.version {metadata_version_name(level)} and all features are supported"
        )


_OF_NODES: Final[tuple[tuple[str, str, str, str, Callable[[Node], bool]], ...]] = (
    ("nodes-away", STOPS, "brokers are not running, or fenced",
     "start them, or unregister those that will not come back: ottla cluster remove ID",
     lambda node: node.fenced),
    ("nodes-silent", LOOK, "nodes did not answer, so that their settings were not looked at",
     "for controllers give --controller-config FILE with the security of their listener; they have to be "
     "reachable from here, or the walk sees of them only what the quorum says",
     lambda node: node.kind is None and not node.fenced),
    ("directories-offline", STOPS, "log directories are offline",
     "replace the disk, or remove the directory from log.dirs and let the replicas be copied",
     lambda node: bool(node.offline_directories)),
    ("nodes-ottla", FINE, "nodes that are Ottla already", "", lambda node: node.kind == OTTLA),
)  # fmt: skip
"""Findings about the nodes that a condition fits."""


def _nodes(survey: Survey) -> Iterator[Finding]:
    for code, weight, what, todo, fits in _OF_NODES:
        if found := [f"node {each.id}" for each in survey.nodes if fits(each)]:
            yield Finding(code, weight, what, todo, tuple(found))


_OF_PARTITIONS: Final[tuple[tuple[str, str, str, str, Callable[[Partition, Survey], bool]], ...]] = (
    ("partitions-offline", STOPS, "partitions have no leader", "start their replicas",
     lambda each, _: each.leader < 0),
    ("under-replicated", STOPS, "partitions have replicas that are not in sync",
     "wait, or find out why: ottla topic describe --under-replicated",
     lambda each, _: each.leader >= 0 and len(each.in_sync) < len(each.replicas)),
    ("one-replica", LOOK, "partitions with one replica are away while their node is",
     "give them a second replica first, or expect their clients to wait",
     lambda each, _: len(each.replicas) == 1),
    ("min-insync", LOOK,
     "partitions refuse acks=all while one replica is away: min.insync.replicas "
     "is as large as their number of replicas",
     "lower min.insync.replicas for the time of the walk, or add a replica",
     lambda each, survey: len(each.replicas) > 1 and stops_writes(each, survey)),
)  # fmt: skip
"""Findings about the partitions that a condition fits."""


def _partitions(survey: Survey) -> Iterator[Finding]:
    stops = False
    for code, weight, what, todo, fits in _OF_PARTITIONS:
        if found := [f"{each.topic}-{each.number}" for each in survey.partitions if fits(each, survey)]:
            stops |= weight == STOPS
            yield Finding(code, weight, what, todo, tuple(found))
    if survey.reassignments:
        yield Finding(
            "reassignments",
            STOPS,
            "partitions are being moved",
            "wait for the moves, or cancel them: kafka-reassign-partitions.sh --list, --cancel",
            tuple(f"{topic}-{number}" for topic, number in survey.reassignments),
        )
    if not stops:
        yield Finding(
            "in-sync", FINE, f"all {len(survey.partitions):,} partitions have a leader and all replicas in sync"
        )


def _topics(survey: Survey) -> Iterator[Finding]:
    tiered = [name for name, own in survey.topics.items() if own.get(TIERED, "").lower() == "true"]
    if tiered:
        yield Finding(
            "tiered",
            STOPS,
            "topics have records in tiered storage, which Ottla cannot read",
            "fetch them back before (remote.log.delete.on.disable after a copy of what is needed), or leave "
            "these topics behind",
            tuple(sorted(tiered)),
        )
    unknown, idle = defaultdict(list), defaultdict(list)
    for name, own in survey.topics.items():
        for setting in own:
            if setting not in definitions.TOPIC:
                unknown[setting].append(name)
            elif why(setting) is not None and setting != TIERED:
                idle[setting].append(name)
    for setting, names in sorted(unknown.items()):
        yield Finding(
            "topic-settings-unknown",
            LOOK,
            f"topics set {setting}, which Ottla does not know: it is kept and has no effect",
            "remove it, or do without",
            tuple(sorted(names)),
        )
    for setting, names in sorted(idle.items()):
        what = f"topics set {setting}, which has no effect in Ottla: {why(setting)}"
        yield Finding("topic-settings-idle", LOOK, what, "do without", tuple(sorted(names)))


def _tokens(survey: Survey) -> Iterator[Finding]:
    if survey.tokens:
        yield Finding(
            "tokens",
            LOOK,
            f"{survey.tokens} delegation tokens are in use",
            "they stay valid if delegation.token.secret.key is the same in every node's file",
        )


def _records(survey: Survey) -> Iterator[Finding]:
    found = survey.records
    if found is None:
        return
    for what, count in sorted(found.unknown.items()):
        yield Finding(
            "records-unknown",
            STOPS,
            f"{what}: {count:,} times",
            "they were written by a newer release, or "
            "are damaged: downgrade its feature, or compact the topic, and check again",
        )
    if found.failure is not None:
        yield Finding(
            "records-unread",
            LOOK,
            f"the internal topics could not be read: {found.failure}",
            "check again with a user that may read them",
        )
    elif found.partitions_left:
        yield Finding(
            "records-unread",
            LOOK,
            f"{found.read:,} records of internal topics are known; "
            f"{found.partitions_left} partitions were not read to their end",
            "read more with --records COUNT",
        )
    elif found.read and not found.unknown:
        yield Finding(
            "records", FINE, f"all {found.read:,} records of the internal topics are of known kinds and versions"
        )
