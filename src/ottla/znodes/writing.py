"""An image as a tree of znodes, as a broker with ZooKeeper would have written them; what no znode can say is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.config.definitions import is_sensitive
from ottla.metadata import features
from ottla.metadata.image import ConfigResourceType, MetadataImage
from ottla.security.acls import Binding, Operation, binding
from ottla.znodes import acls, cluster, configs, topics
from ottla.znodes.findings import Findings
from ottla.znodes.tree import DEFAULT_NAME, Znode, is_path

OWNED: tuple[str, ...] = (
    topics.TOPICS, configs.TOPIC_CONFIGS, configs.BROKER_CONFIGS, configs.CLIENTS, configs.USERS, configs.IPS,
    acls.LITERAL_ACLS, acls.PREFIXED_ACLS, cluster.TOKENS,
)  # fmt: skip
"""Subtrees that an image says all of: what it does not have there is gone."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    with_ids: bool
    """Whether topics have ids in ZooKeeper: those of a cluster before 2.8 have none."""
    controller_epoch: int
    """Epoch in all states; not above `/controller_epoch`, or brokers refuse them."""
    encrypt: Callable[[str], str] | None = None
    """Encrypts a broker's password; None where no secret is known."""


class Writer:
    """Writes one image."""

    def __init__(self, image: MetadataImage, options: WriteOptions) -> None:
        self.image = image
        self.options = options
        self.findings = Findings()
        """What no znode can say, by the znode that would."""

    def write(self) -> dict[str, Znode]:
        """The znodes of all `OWNED` subtrees, without the roots, and those of the cluster as a whole."""
        tree: dict[str, Znode] = {}
        for part in (self._topics, self._configs, self._entities, self._acls, self._tokens, self._cluster):
            for path, znode in part():
                if not is_path(path):
                    self.findings.lose(path, "is no path that ZooKeeper takes")
                    continue
                tree[path] = znode
                parent = path.rpartition("/")[0]
                while parent and parent not in tree and parent not in OWNED:
                    tree[parent] = Znode()
                    parent = parent.rpartition("/")[0]
        for name, level in sorted(self.image.features.items()):
            if level and name not in (features.METADATA_VERSION, features.KRAFT_VERSION):
                text = (
                    f"{name} is at level {level}: what came with it (groups, records, transactions) may be unreadable"
                )
                self.findings.lose(cluster.FEATURE, text)
        return tree

    def _topics(self) -> Iterator[tuple[str, Znode]]:
        for topic in sorted(self.image.topics, key=lambda each: each.name):
            yield (
                topics.topic_path(topic.name),
                Znode(topics.encode_topic(topics.topic_znode(topic, with_id=self.options.with_ids))),
            )
            for number, partition in topic.partitions.items():
                path = topics.state_path(topic.name, number)
                isr = partition.isr
                if not isr and partition.elr:
                    isr = partition.elr
                    self.findings.note(path, "the eligible leader replicas become the in-sync set")
                state = topics.PartitionState(
                    partition.leader,
                    partition.leader_epoch,
                    isr,
                    self.options.controller_epoch,
                    partition.recovery_state,
                )
                yield path, Znode(topics.encode_state(state), partition.partition_epoch)

    def _configs(self) -> Iterator[tuple[str, Znode]]:
        for topic in sorted(each.name for each in self.image.topics):
            yield f"{configs.TOPIC_CONFIGS}/{topic}", Znode(configs.encode_config(self.image.topic_config(topic)))
        for resource, settings in sorted(self.image.configs.items()):
            if resource.type == ConfigResourceType.BROKER:
                path = f"{configs.BROKER_CONFIGS}/{resource.name or DEFAULT_NAME}"
                yield path, Znode(configs.encode_config(self._encrypted(path, settings)))
            elif resource.type != ConfigResourceType.TOPIC:
                kind = ConfigResourceType(resource.type).name.lower().replace("_", " ")
                self.findings.lose(configs.CONFIG, f"settings of {kind} {resource.name}: {', '.join(sorted(settings))}")

    def _encrypted(self, path: str, settings: Any) -> dict[str, str]:
        found = {}
        for name, value in settings.items():
            if not is_sensitive(name):
                found[name] = value
            elif self.options.encrypt is not None:
                found[name] = self.options.encrypt(value)
            else:
                self.findings.refuse(
                    path, f"{name} is a password, and there is no password.encoder.secret to encrypt it"
                )
        return found

    def _entities(self) -> Iterator[tuple[str, Znode]]:
        quotas: dict[configs.Entity, Any] = dict(self.image.client_quotas)
        credentials: dict[configs.Entity, list[Any]] = {}
        for (user, _), record in sorted(self.image.scram_credentials.items()):
            credentials.setdefault((("user", user),), []).append(record)
        for entity in dict.fromkeys((*quotas, *credentials)):
            znode = Znode(configs.encode_entity(quotas.get(entity, {}), credentials.get(entity, [])))
            yield configs.entity_path(entity), znode

    def _acls(self) -> Iterator[tuple[str, Znode]]:
        by_path: dict[str, list[Binding]] = {}
        for record in self.image.acls.values():
            path = acls.acl_path(record.resource_type, record.pattern_type, record.resource_name)
            if record.operation == Operation.TWO_PHASE_COMMIT:
                self.findings.lose(path, f"an ACL of {record.principal} for TwoPhaseCommit")
                continue
            if "/" in record.host:
                self.findings.lose(path, f"an ACL of {record.principal} for the network {record.host}")
                continue
            by_path.setdefault(path, []).append(binding(record))
        for path, found in sorted(by_path.items()):
            yield path, Znode(acls.encode_acls(found))

    def _tokens(self) -> Iterator[tuple[str, Znode]]:
        for token_id, token in sorted(self.image.delegation_tokens.items()):
            yield f"{cluster.TOKENS}/{token_id}", Znode(cluster.encode_token(token))

    def _cluster(self) -> Iterator[tuple[str, Znode]]:
        yield cluster.CLUSTER_ID, Znode(cluster.encode_cluster_id(self.image.cluster_id))
        if self.image.next_producer_id > 0:
            yield cluster.PRODUCER_IDS, Znode(cluster.encode_producer_ids(self.image.next_producer_id))
