"""Changes of finalized feature levels (Kafka's `FeatureControlManager`, KIP-584, KIP-778)."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.controller.bootstrap import elr_settings
from ottla.controller.decision import Decision
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.metadata.image import MetadataImage
from ottla.protocol.schemas.records import FeatureLevelRecord

if TYPE_CHECKING:
    from ottla.protocol.schemas import sent


class UpgradeType(enum.IntEnum):
    """Kinds of changes of a level, as numbered in UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


_KINDS: frozenset[int] = frozenset(UpgradeType)


def update_features(
    image: MetadataImage,
    request: sent.UpdateFeaturesRequest,
    static_min_isr: str,
    node_id: int,
    voters: Sequence[int] = (),
) -> Decision[sent.UpdateFeaturesResponse]:
    """UpdateFeatures. One change that is refused refuses all; before version 2 each feature has a row of the response.

    `node_id` is this controller, `voters` are all that vote. With eligible leader replicas `min.insync.replicas`
    becomes one for the whole cluster (`elr_settings`).

    Raises KafkaError INVALID_UPDATE_VERSION, whose message the top level of the response carries.
    """
    updates = request["feature_updates"]
    proposed = dict(image.features)
    proposed.update({update["feature"]: update["max_version_level"] for update in updates})
    try:
        changes = [_update(image, update, proposed, node_id, voters) for update in updates]
    except KafkaError as error:
        why = f"The update failed for all features since the following feature had an error: {error.message}"
        raise KafkaError(error.code, why) from error
    # The level of the quorum is set by a record of its own.
    records: list[Any] = [each for each in changes if each.name != features.KRAFT_VERSION]
    if features.supports_elr(proposed) and not features.supports_elr(image.features):
        records += elr_settings(image, static_min_isr)
    rows: list[sent.UpdatableFeatureResult] = [
        {"feature": update["feature"], "error_code": ErrorCode.none, "error_message": "NONE"} for update in updates
    ]
    return Decision({"results": rows}, () if request.get("validate_only") else records)


def kraft_level(request: sent.UpdateFeaturesRequest) -> int | None:
    """The level of `kraft.version` that UpdateFeatures asks for; None where it does not."""
    updates = request["feature_updates"]
    return next((each["max_version_level"] for each in updates if each["feature"] == features.KRAFT_VERSION), None)


def upgrade_type(update: sent.FeatureUpdateKey) -> int:
    """Version 0 of the request only knows whether a downgrade is allowed."""
    if update.get("upgrade_type") is None:
        return UpgradeType.SAFE_DOWNGRADE if update.get("allow_downgrade") else UpgradeType.UPGRADE
    return int(update["upgrade_type"])


def _update(
    image: MetadataImage,
    update: sent.FeatureUpdateKey,
    proposed: Mapping[str, int],
    node_id: int,
    voters: Sequence[int],
) -> FeatureLevelRecord:
    name, level = update["feature"], update["max_version_level"]
    kind = upgrade_type(update)
    is_metadata = name == features.METADATA_VERSION
    current = features.metadata_version(image.features) if is_metadata else image.features.get(name, 0)
    if kind not in _KINDS:
        raise _refused(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _refused(name, level, "A feature version cannot be less than 0.")
    _check_supported(image, name, level, node_id, voters)
    if level < current and kind == UpgradeType.UPGRADE:
        why = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
        raise _refused(name, level, why + "downgrade.")
    if level > current and kind != UpgradeType.UPGRADE:
        raise _refused(name, level, "Can't downgrade to a newer version.")
    if is_metadata:
        _check_metadata_downgrade(current, level, kind)
    elif name not in features.SUPPORTED:
        raise _refused(name, level, f"Feature {name} not found.")
    else:
        _check_dependency(name, level, proposed)
    return FeatureLevelRecord(name, level)


def _check_supported(image: MetadataImage, name: str, level: int, node_id: int, voters: Sequence[int]) -> None:
    """Every node has to know the level: this controller, the brokers, and the other controllers, which say so in their
    registrations. Before 3.7-IV0 they have none."""
    nodes = [(f"Local controller {node_id}", features.SUPPORTED)]
    nodes += [(f"Broker {broker.id}", broker.features) for broker in image.brokers.values()]
    nodes += [(f"Controller {each.id}", each.features) for each in image.controllers.values() if each.id != node_id]
    for who, supported in nodes:
        low, high = supported.get(name, (0, 0))
        if low <= level <= high:
            continue
        if high == 0:
            raise _refused(name, level, f"{who} does not support this feature.")
        raise _refused(name, level, f"{who} only supports versions {low}-{high}")
    if features.supports_controller_registration(image.features):
        for voter in voters:
            if voter != node_id and voter not in image.controllers:
                why = f"controller {voter} has not registered, and may not support this feature"
                raise _refused(name, level, why)


def _check_metadata_downgrade(current: int, level: int, kind: int) -> None:
    """A downgrade must not lose what only newer records can say."""
    if level >= current:
        return
    lost = any(release.changes_records for release in features.METADATA_VERSIONS if level < release.level <= current)
    if not lost:
        return
    why = "Refusing to perform the requested downgrade because it might delete metadata information."
    if kind == UpgradeType.UNSAFE_DOWNGRADE:
        why = "Unsafe metadata downgrade is not supported in this version."
    message = f"Unsupported metadata.version downgrade from {current} to {level}. {why}"
    raise KafkaError(ErrorCode.invalid_update_version, message)


def _check_dependency(name: str, level: int, proposed: Mapping[str, int]) -> None:
    needed = features.required_metadata_version(name, level)
    if proposed.get(features.METADATA_VERSION, features.METADATA_VERSION_MIN) < needed:
        raise _refused(
            name, level, f"{name} could not be set to {level} because it depends on metadata.version level {needed}"
        )


def _refused(name: str, level: int, why: str) -> KafkaError:
    message = f"Invalid update version {level} for feature {name}. {why}"
    return KafkaError(ErrorCode.invalid_update_version, message)
