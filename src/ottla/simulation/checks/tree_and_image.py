"""Whether ZooKeeper's tree and the metadata of a cluster that lives in it say the same, once nothing is under way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from ottla.drivers.zookeeper.tree import ROOTS
from ottla.metadata import features
from ottla.metadata.image import MetadataImage, acl_content
from ottla.znodes.reading import image_of
from ottla.znodes.state import read_state
from ottla.znodes.tree import Tree, Znode

_NEW = UUID(int=0)


def below(tree: Mapping[str, tuple[bytes, int]], chroot: str) -> dict[str, Znode]:
    """What a controller reads, of a whole ensemble's data and versions by path."""
    found = {}
    for path, content in tree.items():
        own = path.removeprefix(chroot)
        if path.startswith(f"{chroot}/") and any(own == root or own.startswith(f"{root}/") for root in ROOTS):
            found[own] = Znode(*content)
    return found


def differences(tree: Tree, image: MetadataImage) -> Iterator[str]:
    """A sentence for each. Raises BadZnode."""
    state = read_state(tree, image.cluster_id, 0, (), lambda: _NEW)
    for change in state.before:
        yield f"{change.path} has no id"
    wanted = image_of(iter(state.records), image.cluster_id)
    levels = {name: level for name, level in image.features.items() if name != features.KRAFT_VERSION}
    yield from _mapping(
        "feature", {k: v for k, v in wanted.features.items() if v}, {k: v for k, v in levels.items() if v}
    )
    yield from _mapping("topic", _topics(wanted), _topics(image))
    for name in ("configs", "client_quotas", "scram_credentials", "delegation_tokens"):
        yield from _mapping(name, getattr(wanted, name), getattr(image, name))
    yield from _mapping("ACL", *({acl_content(acl): True for acl in each.acls.values()} for each in (wanted, image)))
    yield from _mapping("brokers", dict.fromkeys(state.members, True), dict.fromkeys(image.brokers, True))
    if wanted.next_producer_id != image.next_producer_id:
        yield f"producer ids go on at {wanted.next_producer_id} in the tree, at {image.next_producer_id} in the image"


def _topics(image: MetadataImage) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for topic in image.topics:
        found[topic.name] = topic.id
        for number, partition in topic.partitions.items():
            found[topic.name, number] = partition
    return found


def _mapping(what: str, tree: Mapping[Any, Any], image: Mapping[Any, Any]) -> Iterator[str]:
    for key in sorted({*tree, *image}, key=str):
        if tree.get(key) != image.get(key):
            yield f"{what} {key}: {tree.get(key)} in the tree, {image.get(key)} in the image"
