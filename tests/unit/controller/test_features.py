from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.features import update_features
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.protocol.schemas.records import (
    ConfigRecord,
    FeatureLevelRecord,
    RegisterControllerRecord,
    UnregisterControllerRecord,
)
from tests.unit.metadata.images import apply, broker_records, feature_records

UP, SAFE, UNSAFE = 1, 2, 3


def cluster(level: int = 33) -> MetadataImage:
    return apply([*feature_records(level), RegisterControllerRecord(controller_id=1), *broker_records(1)])


def update(image: MetadataImage, *updates: tuple[str, int, int], validate_only: bool = False) -> list[Any]:
    asked = [{"feature": name, "max_version_level": level, "upgrade_type": kind} for name, level, kind in updates]
    return list(update_features(image, {"feature_updates": asked, "validate_only": validate_only}, "2", 1).records)


def test_levels_go_up_and_safely_down() -> None:
    assert update(cluster(28), ("metadata.version", 29, UP)) == [FeatureLevelRecord("metadata.version", 29)]
    assert update(cluster(29), ("metadata.version", 26, SAFE)) == [FeatureLevelRecord("metadata.version", 26)]
    assert update(cluster(), ("group.version", 0, SAFE)) == [FeatureLevelRecord("group.version", 0)]
    assert not update(cluster(), ("group.version", 0, SAFE), validate_only=True)


def test_the_first_version_of_the_request_knows_only_allow_downgrade() -> None:
    asked = {"feature": "group.version", "max_version_level": 0, "allow_downgrade": True}
    assert list(update_features(cluster(), {"feature_updates": [asked]}, "2", 1).records)


DOWN = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)
LOST = "Refusing to perform the requested downgrade because it might delete metadata information."


@pytest.mark.parametrize(
    ("name", "level", "kind", "why"),
    [
        ("metadata.version", 34, UP, "Local controller 1 only supports versions 7-33"),
        ("metadata.version", 29, UP, DOWN),
        ("metadata.version", -1, SAFE, "A feature version cannot be less than 0."),
        ("nope", 1, UP, "Local controller 1 does not support this feature."),
        ("nope", 0, UP, "Feature nope not found."),
        ("group.version", 0, UP, DOWN),
        ("group.version", 1, 7, "The controller does not support the given upgrade type."),
    ],
)
def test_what_is_refused_says_why(name: str, level: int, kind: int, why: str) -> None:
    with pytest.raises(KafkaError) as caught:
        update(cluster(), (name, level, kind))
    assert caught.value.code == ErrorCode.invalid_update_version
    assert caught.value.message == (
        "The update failed for all features since the following feature had an error: "
        f"Invalid update version {level} for feature {name}. {why}"
    )


@pytest.mark.parametrize(("kind", "why"), [(SAFE, LOST), (UNSAFE, "Unsafe metadata downgrade is not supported")])
def test_metadata_that_older_records_cannot_hold_is_kept(kind: int, why: str) -> None:
    with pytest.raises(KafkaError, match=why):
        update(cluster(), ("metadata.version", 29, kind))


def test_a_feature_waits_for_the_metadata_version_it_needs() -> None:
    with pytest.raises(KafkaError, match=r"depends on metadata\.version level 23"):
        update(cluster(22), ("eligible.leader.replicas.version", 1, UP))
    assert update(cluster(22), ("metadata.version", 23, UP), ("eligible.leader.replicas.version", 1, UP))


def test_every_broker_must_support_a_level() -> None:
    record = broker_records(2)[0]
    record.features = ()
    image = apply([record], cluster())
    with pytest.raises(KafkaError, match="Broker 2 does not support this feature"):
        update(image, ("group.version", 1, UP))


def test_every_controller_must_support_a_level() -> None:
    """One that voted before and has not registered may be of an older release; a removed one is not asked."""
    asked = {"feature_updates": [{"feature": "group.version", "max_version_level": 1, "upgrade_type": UP}]}
    image = apply([RegisterControllerRecord(controller_id=2)], cluster())
    with pytest.raises(KafkaError, match="Controller 2 does not support this feature"):
        update_features(image, asked, "2", 1)
    image = apply([UnregisterControllerRecord(2)], image)
    assert update_features(image, asked, "2", 1, (1,)).records
    with pytest.raises(KafkaError, match="controller 3 has not registered, and may not support this feature"):
        update_features(image, asked, "2", 1, (1, 3))
    assert update_features(apply(feature_records(14), image), asked, "2", 1, (1, 3)).records


def test_eligible_leader_replicas_need_one_min_isr_for_the_whole_cluster() -> None:
    """KIP-966: the controller's own is taken where there is none, and those of brokers go."""
    name = "eligible.leader.replicas.version"
    off = FeatureLevelRecord(name, 0)
    own = ConfigRecord(4, "1", "min.insync.replicas", "3")
    image = apply([off, own], cluster())
    level = FeatureLevelRecord(name, 1)
    assert update(image, (name, 1, UP)) == [
        level,
        ConfigRecord(4, "", "min.insync.replicas", "2"),
        ConfigRecord(4, "1", "min.insync.replicas", None),
    ]
    image = apply([off, ConfigRecord(4, "", "min.insync.replicas", "1")], cluster())
    assert update(image, (name, 1, UP)) == [level]
    assert len(update(apply([level], image), (name, 1, UP))) == 1
