"""A tree of znodes as a cluster: what each znode says, what is wrong with it, and the records of a metadata log."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import NO_LEADER, ConfigResourceType, MetadataImage
from ottla.metadata.replay import replay
from ottla.model import TopicId, uuid_to_base64
from ottla.protocol.schemas import records as r
from ottla.security.acls import Binding
from ottla.znodes import cluster, configs
from ottla.znodes.acls import decode_acls, read_acls
from ottla.znodes.findings import Findings
from ottla.znodes.passwords import WrongSecret, decrypted, is_encrypted
from ottla.znodes.topics import TOPICS, PartitionState, TopicZnode, decode_state, decode_topic, state_path, topic_path
from ottla.znodes.tree import DEFAULT_NAME, BadZnode, Children, Tree, Znode, desanitized

IDS_RESERVED = 100
"""Kafka gives the first ids a meaning of their own."""


class Partition(NamedTuple):
    state: PartitionState
    epoch: int
    """The version of the state's znode."""


@dataclass(slots=True)
class Topic:
    name: str
    assignment: TopicZnode
    partitions: dict[int, Partition]


@dataclass(slots=True)
class ZnodeCluster:
    """What a tree says. Lists and mappings are in an order that depends on the content alone."""

    cluster_id: str = ""
    controller: cluster.Controller | None = None
    controller_epoch: int = 0
    brokers: list[cluster.Broker] = field(default_factory=list)
    """The brokers that run."""
    topics: list[Topic] = field(default_factory=list)
    deleted: list[Topic] = field(default_factory=list)
    """Topics whose deletion was under way, once `unfinished.finish` has taken them out of the others."""
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """By broker id, `` for all brokers; passwords are decrypted."""
    quotas: dict[configs.Entity, dict[str, float]] = field(default_factory=dict)
    credentials: list[r.UserScramCredentialRecord] = field(default_factory=list)
    acls: list[Binding] = field(default_factory=list)
    tokens: list[r.DelegationTokenRecord] = field(default_factory=list)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics)


class Reader:
    """Reads one tree; a znode that cannot be read is a finding, and the others are read nevertheless."""

    def __init__(self, tree: Tree, secrets: Sequence[str] = ()) -> None:
        """`secrets` are values of `password.encoder.secret`, the newest first."""
        self.tree = tree
        self.secrets = secrets
        self.children = Children(tree)
        self.cluster = ZnodeCluster()
        self.findings = Findings()

    def read(self) -> ZnodeCluster:
        for part in (
            self._cluster,
            self._brokers,
            self._topics,
            self._configs,
            self._entities,
            self._acls,
            self._tokens,
        ):
            self._guarded(part)
        return self.cluster

    def _guarded(self, part: Callable[..., None], *of: Any) -> None:
        try:
            part(*of)
        except BadZnode as error:
            self.findings.bad(error)

    def _one(self, path: str, attribute: str, decode: Callable[[bytes], Any]) -> None:
        found = self.tree.get(path)
        if found is not None:
            setattr(self.cluster, attribute, decode(found.data))

    def _cluster(self) -> None:
        def of(path: str, attribute: str, decode: Callable[[bytes], Any]) -> None:
            self._guarded(self._one, path, attribute, decode)

        of(cluster.CLUSTER_ID, "cluster_id", cluster.decode_cluster_id)
        of(cluster.CONTROLLER, "controller", cluster.decode_controller)
        of(cluster.CONTROLLER_EPOCH, "controller_epoch", cluster.decode_controller_epoch)
        of(cluster.FEATURE, "features", cluster.decode_features)
        of(cluster.PRODUCER_IDS, "next_producer_id", cluster.decode_producer_ids)

    def _brokers(self) -> None:
        for name in self.children.of(cluster.BROKER_IDS):
            self._guarded(self._broker, f"{cluster.BROKER_IDS}/{name}")

    def _broker(self, path: str) -> None:
        self.cluster.brokers.append(cluster.decode_broker(path, self.tree[path].data))

    def _topics(self) -> None:
        for name in self.children.of(TOPICS):
            path = topic_path(name)
            try:
                assignment = decode_topic(path, self.tree[path].data)
            except BadZnode as error:
                self.findings.bad(error)
                continue
            self.cluster.topics.append(Topic(name, assignment, self._partitions(name, assignment)))

    def _partitions(self, topic: str, assignment: TopicZnode) -> dict[int, Partition]:
        found: dict[int, Partition] = {}
        for number in assignment.replicas:
            path = state_path(topic, number)
            znode = self.tree.get(path)
            if znode is None:
                continue
            try:
                found[number] = Partition(decode_state(path, znode.data), znode.version)
            except BadZnode as error:
                self.findings.bad(error)
        return found

    def _configs(self) -> None:
        for name in self.children.of(configs.TOPIC_CONFIGS):
            self._guarded(self._topic_config, f"{configs.TOPIC_CONFIGS}/{name}", name)
        for name in self.children.of(configs.BROKER_CONFIGS):
            self._guarded(self._broker_config, f"{configs.BROKER_CONFIGS}/{name}", name)

    def _topic_config(self, path: str, name: str) -> None:
        found = configs.decode_config(path, self.tree[path].data)
        if found:
            self.cluster.topic_configs[desanitized(path, name)] = found

    def _broker_config(self, path: str, name: str) -> None:
        found = configs.decode_config(path, self.tree[path].data)
        for setting, value in found.items():
            if is_encrypted(value):
                try:
                    found[setting] = decrypted(value, self.secrets)
                except WrongSecret:
                    raise BadZnode(
                        path,
                        f"{setting} is encrypted, and no secret that was given opens it: give "
                        "password.encoder.secret as it was for this broker",
                    ) from None
        if found:
            self.cluster.broker_configs["" if name == DEFAULT_NAME else desanitized(path, name)] = found

    def _entities(self) -> None:
        for root, kind in configs.QUOTA_KINDS.items():
            for name in self.children.of(root):
                path = f"{root}/{name}"
                self._guarded(self._entity, path, ((kind, name),))
                for client in self.children.of(f"{path}/clients") if root == configs.USERS else ():
                    self._guarded(self._entity, f"{path}/clients/{client}", (("client-id", client), (kind, name)))

    def _entity(self, path: str, names: tuple[tuple[str, str], ...]) -> None:
        entity = tuple((kind, configs.entity_name(path, name)) for kind, name in names)
        user = dict(entity).get("user") if len(entity) == 1 else None
        found = configs.decode_entity(path, self.tree[path].data, user)
        if found.quotas:
            self.cluster.quotas[entity] = found.quotas
        for name in found.unknown:
            self.findings.lose(path, f"{name} is no quota that this software knows")
        if found.credentials and user is None:
            self.findings.lose(path, "has a SCRAM credential that belongs to no user")
        else:
            self.cluster.credentials += found.credentials

    def _acls(self) -> None:
        for path, kind, pattern, name in read_acls(self.tree, self.children):
            data = self.tree.get(path, Znode()).data
            if data:
                self._guarded(self._resource, path, data, kind, pattern, name)

    def _resource(self, path: str, data: bytes, kind: int, pattern: int, name: str) -> None:
        self.cluster.acls += decode_acls(path, data, kind, pattern, name)

    def _tokens(self) -> None:
        for name in self.children.of(cluster.TOKENS):
            self._guarded(self._token, f"{cluster.TOKENS}/{name}")

    def _token(self, path: str) -> None:
        self.cluster.tokens.append(cluster.decode_token(path, self.tree[path].data))


def made_up_id(seed: bytes, *parts: object) -> UUID:
    """An id that is the same on every host that knows the seed, and no other cluster's: a topic's that had none, or an
    ACL's. As Kafka's random ones it begins with no dash, and is none of the reserved."""
    text = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    for attempt in range(1 << 16):
        digest = hashlib.sha256(b"%d\0%b\0%b" % (attempt, seed, text)).digest()[:16]
        found = UUID(bytes=digest, version=4)
        if found.int >= IDS_RESERVED and not uuid_to_base64(found).startswith("-"):
            return found
    raise AssertionError("no id in 65,536 attempts")


def topic_id_of(topic: Topic, seed: bytes) -> TopicId:
    """The topic's id, or the one that is made up for it."""
    return topic.assignment.topic_id or made_up_id(seed, "topic", topic.name)


def records_of(found: ZnodeCluster, seed: bytes, levels: Mapping[str, int], *, keep_leaders: bool) -> Iterator[Any]:
    """The records of a metadata log that say what the tree said, in an order that depends on it alone.

    Without `keep_leaders` nobody leads: no broker is registered yet, and each partition gets a leader of its in-sync
    set, with the next leader epoch, as soon as one of them is there. Directories stay unnamed (`DIRECTORY_MIGRATING`):
    each broker finds its replicas where they are.
    """
    yield r.FeatureLevelRecord(features.METADATA_VERSION, levels[features.METADATA_VERSION])
    for name, level in sorted(levels.items()):
        if name != features.METADATA_VERSION and level:
            yield r.FeatureLevelRecord(name, level)
    for topic in found.topics:
        yield from _topic(topic, topic_id_of(topic, seed), keep_leaders=keep_leaders)
    for kind, named in (
        (ConfigResourceType.TOPIC, found.topic_configs),
        (ConfigResourceType.BROKER, found.broker_configs),
    ):
        for name, settings in sorted(named.items()):
            for key, value in sorted(settings.items()):
                yield r.ConfigRecord(kind, name, key, value)
    for entity, quotas in found.quotas.items():
        for key, quota in sorted(quotas.items()):
            yield r.ClientQuotaRecord(tuple(r.QuotaEntityData(kind, name) for kind, name in entity), key, quota)
    if found.next_producer_id > 0:
        yield r.ProducerIdsRecord(-1, -1, found.next_producer_id)
    for acl in dict.fromkeys(found.acls):
        yield r.AccessControlEntryRecord(made_up_id(seed, "acl", *acl), *acl)
    yield from found.credentials
    yield from found.tokens


def _topic(topic: Topic, topic_id: TopicId, *, keep_leaders: bool) -> Iterator[Any]:
    yield r.TopicRecord(topic.name, topic_id)
    assignment = topic.assignment
    for number, replicas in assignment.replicas.items():
        state, epoch = topic.partitions[number]
        yield r.PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=replicas,
            isr=state.isr,
            removing_replicas=assignment.removing.get(number, ()),
            adding_replicas=assignment.adding.get(number, ()),
            leader=state.leader if keep_leaders else NO_LEADER,
            leader_recovery_state=state.recovery_state,
            leader_epoch=state.leader_epoch,
            partition_epoch=epoch,
            directories=state.directories,
        )


def image_of(records: Iterator[Any], cluster_id: str) -> MetadataImage:
    """The image that the records build."""
    delta = MetadataDelta(MetadataImage(cluster_id=cluster_id))
    for record in records:
        replay(record, delta)
    return delta.apply(-1, -1, -1)
