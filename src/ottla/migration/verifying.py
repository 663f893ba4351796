"""Compares what the ensemble says with the image of the cluster that was imported from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ottla.metadata.image import MetadataImage, acl_content
from ottla.znodes.reading import ZnodeCluster, image_of, records_of

CONFIGS = ("configs", "client_quotas", "scram_credentials", "delegation_tokens")


def differences(found: ZnodeCluster, seed: bytes, levels: Mapping[str, int], image: MetadataImage) -> Iterator[str]:
    """A sentence for each difference that an import must not make. Leaders, in-sync sets, and epochs that grew are
    none."""
    expected = image_of(records_of(found, seed, levels, keep_leaders=True), found.cluster_id)
    names = {topic.name for topic in expected.topics}, {topic.name for topic in image.topics}
    for name in sorted(names[0] - names[1]):
        yield f"topic {name} is missing"
    for name in sorted(names[1] - names[0]):
        yield f"topic {name} is new"
    for name in sorted(names[0] & names[1]):
        yield from _topic(name, expected, image)
    for what in CONFIGS:
        yield from _mapping(what.replace("_", " "), getattr(expected, what), getattr(image, what))
    before, after = ({acl_content(acl) for acl in each.acls.values()} for each in (expected, image))
    for acl in sorted(before - after):
        yield f"ACL {acl} is missing"
    for acl in sorted(after - before):
        yield f"ACL {acl} is new"
    if image.next_producer_id < expected.next_producer_id:
        yield f"producer ids go on at {image.next_producer_id}, and {expected.next_producer_id} is used"


def _topic(name: str, expected: MetadataImage, image: MetadataImage) -> Iterator[str]:
    before, after = expected.topics_by_name[name], image.topics_by_name[name]
    if before.id != after.id:
        yield f"topic {name} has id {after.id}, not {before.id}"
    if before.partitions.keys() != after.partitions.keys():
        yield f"topic {name} has {len(after.partitions)} partitions, not {len(before.partitions)}"
        return
    for number, was in before.partitions.items():
        now = after.partitions[number]
        done = tuple(each for each in was.replicas if each not in was.removing)  # of a reassignment
        if now.replicas not in (was.replicas, done):
            yield f"{name}-{number} has replicas {list(now.replicas)}, not {list(was.replicas)}"
        if now.leader_epoch < was.leader_epoch:
            yield f"{name}-{number} has leader epoch {now.leader_epoch}, below {was.leader_epoch}"


def _mapping(what: str, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> Iterator[str]:
    for key in sorted({*before, *after}, key=str):
        if key not in after:
            yield f"{what} of {_shown(key)}: missing"
        elif key not in before:
            yield f"{what} of {_shown(key)}: new"
        elif before[key] != after[key]:
            yield f"{what} of {_shown(key)}: changed"


def _shown(key: Any) -> str:
    return key if isinstance(key, str) else " ".join(str(part) for part in key)
