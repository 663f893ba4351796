"""Finalized features: what this software supports, and what each `metadata.version` lets a record say.

Levels are those of Kafka 4.4 (`MetadataVersion`, `Feature`), so that either software can open the other's directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.protocol.schemas.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"

METADATA_VERSION_3_9: Final = 21
METADATA_VERSION_4_3: Final = 30
METADATA_VERSION_4_4: Final = 33
METADATA_VERSION_MIN: Final = 7


class FeatureRelease(NamedTuple):
    """A level of `metadata.version`, the release that brought it, and whether it changed what records say."""

    level: int
    name: str
    changes_records: bool


METADATA_VERSIONS: Final = tuple(
    FeatureRelease(*entry)
    for entry in (
        (7, "3.3-IV3", True), (8, "3.4-IV0", True), (9, "3.5-IV0", False), (10, "3.5-IV1", False),
        (11, "3.5-IV2", True), (12, "3.6-IV0", False), (13, "3.6-IV1", True), (14, "3.6-IV2", True),
        (15, "3.7-IV0", True), (16, "3.7-IV1", False), (17, "3.7-IV2", True), (18, "3.7-IV3", False),
        (19, "3.7-IV4", False), (20, "3.8-IV0", False), (21, "3.9-IV0", False), (22, "4.0-IV0", False),
        (23, "4.0-IV1", True), (24, "4.0-IV2", False), (25, "4.0-IV3", False), (26, "4.1-IV0", False),
        (27, "4.1-IV1", False), (28, "4.2-IV0", False), (29, "4.2-IV1", False), (30, "4.3-IV0", True),
        (31, "4.4-IV0", False), (32, "4.4-IV1", True), (33, "4.4-IV2", True),
    )
)  # fmt: skip
"""Levels that this software supports, oldest first. Kafka 4.4 also knows 4.5-IV0 (34), which is not for production
there; it is refused here."""

UNSTABLE_METADATA_VERSIONS: Final = (FeatureRelease(34, "4.5-IV0", False),)
"""Known and not supported: no release of Kafka calls them production, and a JVM node takes one only with
`unstable.feature.versions.enable`. 4.5-IV0 stands in the jars of 4.4 and changes neither a record nor a request yet."""

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {
    GROUP_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_4_4),
    SHARE_VERSION: (0, 2),
    STREAMS_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    ELR_VERSION: (0, 1),
}
"""Feature to (lowest, highest) level that this node can work with, as a node registers them."""

BOOTSTRAP: Final[Mapping[str, int]] = {
    METADATA_VERSION: METADATA_VERSION_4_4,
    ELR_VERSION: 1,
    GROUP_VERSION: 1,
    SHARE_VERSION: 2,
    STREAMS_VERSION: 1,
    TRANSACTION_VERSION: 2,
}
"""Levels of a freshly formatted directory, in the order in which `kafka-storage format` writes them."""

_SINCE: Final = (
    (ELR_VERSION, 1, 26), (GROUP_VERSION, 1, 22), (SHARE_VERSION, 1, 28), (SHARE_VERSION, 2, 31),
    (STREAMS_VERSION, 1, 29), (TRANSACTION_VERSION, 2, 24),
)  # fmt: skip
"""(feature, its level, the `metadata.version` that came with it), as `Feature.defaultLevel` has them."""

_REQUIRED_METADATA_VERSION: Final[Mapping[tuple[str, int], int]] = {(ELR_VERSION, 1): 23}


def required_metadata_version(name: str, level: int) -> int:
    """The `metadata.version` that a feature's level needs (`Feature.validateVersion`). All but one go with any."""
    return _REQUIRED_METADATA_VERSION.get((name, level), METADATA_VERSION_MIN)


def default_levels(level: int) -> dict[str, int]:
    """The levels of all features that go with a level of `metadata.version`: those of a cluster that is formatted for
    it, or upgraded to it by its release. `metadata.version` is first, the others in order of their names."""
    found = {METADATA_VERSION: level}
    for name in sorted({name for name, _, _ in _SINCE}):
        found[name] = max((each for of, each, since in _SINCE if of == name and level >= since), default=0)
    return found


def release_levels(level: int) -> dict[str, int]:
    """`default_levels` and the level of `kraft.version`: what `kafka-features upgrade --release-version` asks for. A
    directory is formatted for voters that can change by other options, whatever its release."""
    return {**default_levels(level), KRAFT_VERSION: int(level >= METADATA_VERSION_3_9)}


def metadata_version_name(level: int) -> str:
    """The release of a level: `4.4-IV2`; its number where it is not one of `METADATA_VERSIONS`."""
    return next((each.name for each in METADATA_VERSIONS if each.level == level), str(level))


def metadata_version_of(release: str) -> int | None:
    """The level of a name as `4.4-IV1`, or the newest one of a release as `4.4` or `4.4.0`; None for any other. What
    follows a second dot is not looked at, as in Kafka."""
    short = ".".join(release.split(".")[:2])
    levels = [each.level for each in METADATA_VERSIONS if short == each.name or each.name.startswith(f"{short}-")]
    return max(levels, default=None)


def unsupported(levels: Mapping[str, int]) -> list[tuple[str, int, int, int]]:
    """(feature, its level, lowest, highest that this software supports) of each finalized level that is none of
    them. A feature at level 0 is off."""
    found = []
    for name, level in sorted(levels.items()):
        low, high = SUPPORTED.get(name, (0, 0))
        if level and not low <= level <= high:
            found.append((name, level, low, high))
    return found


def why_unsupported(levels: Mapping[str, int]) -> str | None:
    """A sentence about finalized levels that this software does not support; None where it supports all."""
    found = unsupported(levels)
    if not found:
        return None
    parts = []
    for name, level, low, high in found:
        at, least, most = str(level), str(low), str(high)
        if name == METADATA_VERSION:
            least, most = metadata_version_name(low), f"{metadata_version_name(high)} ({high})"
        known = f"this software supports {least} to {most}" if high else "this software does not know that feature"
        parts.append(f"{name} is {at}, and {known}")
    return "; ".join(parts)


def metadata_version(features: Mapping[str, int]) -> int:
    """The finalized level; the lowest where the log has none, as Kafka assumes."""
    return features.get(METADATA_VERSION, METADATA_VERSION_MIN)


def record_version(record_class: type, level: int) -> int:
    """The version in which a record is written under a level of `metadata.version`."""
    for since, version in _RECORD_VERSIONS.get(record_class, ()):
        if level >= since:
            return version
    return 0


_RECORD_VERSIONS: Final[dict[type, tuple[tuple[int, int], ...]]] = {
    RegisterBrokerRecord: ((30, 4), (17, 3), (8, 2), (7, 1)),
    PartitionRecord: ((23, 2), (17, 1)),
    PartitionChangeRecord: ((23, 2), (17, 1)),
    BrokerRegistrationChangeRecord: ((30, 3), (17, 2), (7, 1)),
}
"""(level from which, record version), newest first. KIP-858 came with 17, KIP-966 with 23, KIP-1066 with 30."""


def supports_elr(features: Mapping[str, int]) -> bool:
    """Whether eligible leader replicas are kept (KIP-966)."""
    return features.get(ELR_VERSION, 0) >= 1 and metadata_version(features) >= 23


def supports_directories(features: Mapping[str, int]) -> bool:
    """Whether partitions say in which log directory their replicas are (KIP-858)."""
    return metadata_version(features) >= 17


def supports_cordoned_directories(features: Mapping[str, int]) -> bool:
    """Whether brokers say which log directories take no new partitions (KIP-1066)."""
    return metadata_version(features) >= 30


def supports_networks_in_acls(features: Mapping[str, int]) -> bool:
    """Whether the host of an ACL may be a network in CIDR notation (KIP-1276)."""
    return metadata_version(features) >= 32


def supports_controller_unregistration(features: Mapping[str, int]) -> bool:
    """Whether a controller's registration can be removed (4.4-IV2)."""
    return metadata_version(features) >= 33


def bumps_epoch_on_shrink(level: int) -> bool:
    """Whether a smaller ISR needs a new leader epoch, as brokers before 3.6 do (KAFKA-15021)."""
    return level < 12


def supports_scram(features: Mapping[str, int]) -> bool:
    """Whether the metadata holds SCRAM credentials (KIP-900)."""
    return metadata_version(features) >= 11


def supports_delegation_tokens(features: Mapping[str, int]) -> bool:
    """Whether the metadata holds delegation tokens (3.6-IV2)."""
    return metadata_version(features) >= 14


def supports_controller_registration(features: Mapping[str, int]) -> bool:
    return metadata_version(features) >= 15


def supports_metadata_transactions(features: Mapping[str, int]) -> bool:
    return metadata_version(features) >= 13
