"""A change of the metadata as changes of znodes: what a controller that lives in ZooKeeper commits.

Within a topic, the states of partitions come before the assignment of their replicas, and those of new partitions
behind it: a change that is too large for one request may stop half-way, and what is there then is a topic whose new
partitions have no state yet, which every controller knows how to complete.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple

from ottla.config.definitions import is_sensitive
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta, TopicDelta
from ottla.metadata.image import (
    DIRECTORY_MIGRATING,
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from ottla.security.acls import Binding, Operation, binding
from ottla.znodes import acls, cluster, configs, topics
from ottla.znodes.tree import DEFAULT_NAME, sanitized

GROUP_CONFIGS: Final = "/config/groups"
CLIENT_METRICS_CONFIGS: Final = "/config/client-metrics"
"""Settings that brokers with ZooKeeper never had; other tools leave these znodes alone."""

_CONFIG_ROOTS: Final = {
    ConfigResourceType.TOPIC: configs.TOPIC_CONFIGS,
    ConfigResourceType.BROKER: configs.BROKER_CONFIGS,
    ConfigResourceType.GROUP: GROUP_CONFIGS,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}

DIRECTORIES_UNKNOWN: Final = frozenset({DIRECTORY_MIGRATING})

PARTITIONS_AT_ONCE: Final = 500
"""A larger topic is deleted part by part, so that the wish stands there first: the next controller goes on with it."""

CHANGES_PER_STEP: Final = 100
"""A state costs some 10 us to be written as JSON."""


ZNODE_BYTES_MAX: Final = 1_000_000
"""`jute.maxbuffer` is a megabyte on most servers, and the assignment of a topic is one znode."""
PARTITIONS_FREE: Final = 5000
"""A topic with fewer partitions fits, however many replicas they have."""


class Kind(enum.Enum):
    NEW = "new"
    """It is not there, as far as is known."""
    SET = "set"
    """It is there, as far as is known."""
    PARENT = "parent"
    """It is to be there, whatever it holds."""
    GONE = "gone"
    """It is not to be there, nor anything below it."""


class Change(NamedTuple):
    path: str
    kind: Kind
    data: bytes = b""
    times: int = 1
    """How often it is set: the version of a partition's state is its partition epoch."""


Encrypt = Callable[[str], str]
Changes = Generator[None, None, list[Change]]


def check(delta: MetadataDelta, *, can_encrypt: bool) -> None:
    """Raises KafkaError for what no znode can say: UNSUPPORTED_VERSION for the level of metadata.version,
    INVALID_REQUEST for an ACL, INVALID_CONFIG for a password without a secret to encrypt it, POLICY_VIOLATION for a
    topic that is too large."""
    if delta.base.offset >= 0 and {features.METADATA_VERSION, features.KRAFT_VERSION} & delta.features.keys():
        raise KafkaError(
            ErrorCode.unsupported_version, "a cluster that lives in ZooKeeper has no other level of metadata.version"
        )
    for topic in delta.topics.values():
        _check_size(topic)
    for resource, settings in delta.configs.items():
        if resource.type == ConfigResourceType.BROKER and not can_encrypt:
            secret = next((name for name, value in settings.items() if value is not None and is_sensitive(name)), None)
            if secret is not None:
                raise KafkaError(
                    ErrorCode.invalid_config,
                    f"{secret} is a password: ZooKeeper keeps it only where the brokers have a password.encoder.secret",
                )
    for acl in delta.acls.values():
        if acl is not None and (acl.operation == Operation.TWO_PHASE_COMMIT or "/" in acl.host):
            raise KafkaError(
                ErrorCode.invalid_request, "an ACL in ZooKeeper knows neither TwoPhaseCommit nor a network of hosts"
            )


def _check_size(topic: TopicDelta) -> None:
    partitions = {**({} if topic.base is None else topic.base.partitions), **topic.changes}
    if len(partitions) <= PARTITIONS_FREE:
        return
    size = sum(9 + len(str(number)) + 6 * len(each.replicas) for number, each in partitions.items())
    if size > ZNODE_BYTES_MAX:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"topic {topic.name} with {len(partitions)} partitions does not fit into a znode",
        )


def changes_of(delta: MetadataDelta, image: MetadataImage, controller_epoch: int, encrypt: Encrypt | None) -> Changes:
    """The changes that `delta` means, in the order in which they are to be made; `image` is what it led to.

    What brokers register is theirs to write. `encrypt` is None where no password can come (`check`).
    """
    found: list[Change] = []
    for part in (
        _topics(delta, image, controller_epoch),
        _configs(delta, image, encrypt),
        _entities(delta, image),
        _acls(delta, image),
        _others(delta, image),
    ):
        for number, change in enumerate(part, start=1):
            if change is not None:
                found.append(change)
            if number % CHANGES_PER_STEP == 0:
                yield
    return found


def _topics(delta: MetadataDelta, image: MetadataImage, controller_epoch: int) -> Iterator[Change]:
    for gone in delta.deleted_topics.values():
        if len(gone.partitions) > PARTITIONS_AT_ONCE:
            yield Change(f"{cluster.DELETIONS}/{gone.name}", Kind.PARENT)
        yield Change(topics.topic_path(gone.name), Kind.GONE)
        yield Change(f"{configs.TOPIC_CONFIGS}/{gone.name}", Kind.GONE)
        yield Change(f"{cluster.DELETIONS}/{gone.name}", Kind.GONE)
    for topic in delta.topics.values():
        if topic.changes or topic.created:
            yield from _topic(topic, image.topics_by_id[topic.id], controller_epoch, image)


def _topic(topic: TopicDelta, now: TopicImage, controller_epoch: int, image: MetadataImage) -> Iterator[Change]:
    def state(number: int, partition: PartitionRegistration, kind: Kind, times: int) -> Change:
        content = topics.PartitionState(
            partition.leader,
            partition.leader_epoch,
            partition.isr,
            controller_epoch,
            partition.recovery_state,
            () if DIRECTORIES_UNKNOWN.issuperset(partition.directories) else partition.directories,
        )
        return Change(topics.state_path(topic.name, number), kind, topics.encode_state(content), times)

    added = {}
    is_assigned = topic.created
    for number, partition in sorted(topic.changes.items()):
        before = topic.previous(number)
        if before is None:
            added[number] = partition
            continue
        is_assigned |= assignment(before) != assignment(partition)
        if times := partition.partition_epoch - before.partition_epoch:
            yield state(number, partition, Kind.SET, times)
    if topic.created:
        content = configs.encode_config(image.topic_config(topic.name))
        yield Change(f"{configs.TOPIC_CONFIGS}/{topic.name}", Kind.NEW, content)
    if is_assigned or added:
        kind = Kind.NEW if topic.created else Kind.SET
        yield Change(topics.topic_path(topic.name), kind, topics.encode_topic(topics.topic_znode(now)))
    if topic.created:
        yield Change(topics.partitions_path(topic.name), Kind.NEW)
    for number, partition in added.items():
        yield Change(topics.state_path(topic.name, number).rpartition("/")[0], Kind.NEW)
        yield state(number, partition, Kind.NEW, 1)
        if partition.partition_epoch:  # a znode begins with version 0
            yield state(number, partition, Kind.SET, partition.partition_epoch)


def assignment(partition: PartitionRegistration) -> tuple[tuple[int, ...], ...]:
    return partition.replicas, partition.adding, partition.removing


def _configs(delta: MetadataDelta, image: MetadataImage, encrypt: Encrypt | None) -> Iterator[Change]:
    created = {each.name for each in delta.created_topics()}
    for resource in delta.configs:
        kind = ConfigResourceType(resource.type)
        is_topic = kind == ConfigResourceType.TOPIC
        if is_topic and (resource.name in created or resource.name not in image.topics_by_name):
            continue
        settings = dict(image.config(resource.type, resource.name))
        if kind == ConfigResourceType.BROKER and encrypt is not None:
            settings = {name: encrypt(value) if is_sensitive(name) else value for name, value in settings.items()}
        path = config_path(resource)
        if kind in (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS):
            yield Change(_CONFIG_ROOTS[kind], Kind.PARENT)
        yield Change(path, Kind.SET if is_topic else Kind.NEW, configs.encode_config(settings))


def config_path(resource: ConfigResource) -> str:
    """Where the settings of a resource are."""
    kind = ConfigResourceType(resource.type)
    if kind == ConfigResourceType.BROKER:
        return f"{configs.BROKER_CONFIGS}/{resource.name or DEFAULT_NAME}"
    name = resource.name if kind == ConfigResourceType.TOPIC else sanitized(resource.name)
    return f"{_CONFIG_ROOTS[kind]}/{name}"


def _entities(delta: MetadataDelta, image: MetadataImage) -> Iterator[Change]:
    changed = dict.fromkeys((*delta.client_quotas, *((("user", user),) for user, _ in delta.scram_credentials)))
    for entity in changed:
        user = dict(entity).get("user") if len(entity) == 1 else None
        credentials = [each for (name, _), each in sorted(image.scram_credentials.items()) if name == user]
        path = configs.entity_path(entity)
        if path.startswith(configs.USERS) and "/clients/" in path:
            own = path.rpartition("/clients/")[0]
            yield Change(own, Kind.PARENT)
            yield Change(f"{own}/clients", Kind.PARENT)
        yield Change(path, Kind.NEW, configs.encode_entity(image.client_quotas.get(entity, {}), credentials))


def _acls(delta: MetadataDelta, image: MetadataImage) -> Iterator[Change | None]:
    """A None for each ACL that is looked at."""
    wanted: dict[str, list[Binding]] = {}
    parents: dict[str, None] = {}
    for acl_id, acl in delta.acls.items():
        record = delta.base.acls.get(acl_id) if acl is None else acl
        if record is not None:
            wanted[acls.acl_path(record.resource_type, record.pattern_type, record.resource_name)] = []
    for record in image.acls.values() if wanted else ():
        path = acls.acl_path(record.resource_type, record.pattern_type, record.resource_name)
        if path in wanted:
            wanted[path].append(binding(record))
        for at in range(len(path)):
            if path[at] == "/" and path[:at] in wanted:
                parents[path[:at]] = None
        yield None
    for path, found in sorted(wanted.items()):
        if not found:  # a name may begin another one: `a`, and `a/b` below it
            yield Change(path, Kind.SET) if path in parents else Change(path, Kind.GONE)
            continue
        parts = path[1:].split("/")
        for depth in range(1, len(parts)):
            yield Change("/" + "/".join(parts[:depth]), Kind.PARENT)
        yield Change(path, Kind.NEW, acls.encode_acls(found))


def _others(delta: MetadataDelta, image: MetadataImage) -> Iterator[Change]:
    for token_id, token in sorted(delta.delegation_tokens.items()):
        path = f"{cluster.TOKENS}/{token_id}"
        if token is None:
            yield Change(path, Kind.GONE)
        else:
            known = token_id in delta.base.delegation_tokens
            yield Change(path, Kind.SET if known else Kind.NEW, cluster.encode_token(token))
    if delta.next_producer_id is not None and delta.next_producer_id > 0:
        yield Change(cluster.PRODUCER_IDS, Kind.SET, cluster.encode_producer_ids(delta.next_producer_id))
    if delta.features:
        others = sorted(features.SUPPORTED.keys() - {features.METADATA_VERSION, features.KRAFT_VERSION})
        levels = {name: image.features.get(name, 0) for name in others}  # what is not named has its default level
        yield Change(cluster.FEATURE, Kind.SET, cluster.encode_features(levels))
