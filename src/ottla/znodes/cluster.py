"""Znodes of the cluster as a whole: its id, its controller, its brokers, features, producer ids and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.protocol.schemas.records import DelegationTokenRecord
from ottla.znodes.tree import BadZnode, Fields, desanitized, fields_of, sanitized, to_json

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
FEATURE: Final = "/feature"
PRODUCER_IDS: Final = "/latest_producer_id_block"
TOKENS: Final = "/delegation_token/tokens"
MIGRATION: Final = "/migration"
DELETIONS: Final = "/admin/delete_topics"
REASSIGNMENTS: Final = "/admin/reassign_partitions"
CONSUMERS: Final = "/consumers"

OFF: Final = "ottla_off"
"""Features at level 0, which no release of Kafka has in its map: to Ottla's controllers a feature that is not named has
its default level."""

PRODUCER_IDS_MAX: Final = (1 << 63) - 1


def decode_cluster_id(data: bytes) -> str:
    """Raises BadZnode."""
    fields = fields_of(CLUSTER_ID, data)
    fields.version(1)
    return fields.text("id")


def encode_cluster_id(cluster_id: str) -> bytes:
    return to_json({"version": "1", "id": cluster_id})


class Controller(NamedTuple):
    broker_id: int
    kraft_epoch: int = -1
    """Epoch of a KRaft controller while a cluster is migrated (KIP-866); -1 for a broker."""


def decode_controller(data: bytes) -> Controller:
    """Raises BadZnode."""
    fields = fields_of(CONTROLLER, data)
    version = fields.version(1, 2)
    return Controller(fields.integer("brokerid"), fields.integer("kraftControllerEpoch", -1) if version == 2 else -1)


def encode_controller(controller: Controller, now_ms: int, more: Mapping[str, Any] | None = None) -> bytes:
    """`more` are members that brokers ignore."""
    kraft = {} if controller.kraft_epoch < 0 else {"kraftControllerEpoch": controller.kraft_epoch}
    version = 2 if kraft else 1
    head = {"version": version, "brokerid": controller.broker_id, "timestamp": str(now_ms)}
    return to_json({**head, **kraft, **(more or {})})


def decode_controller_epoch(data: bytes) -> int:
    """Raises BadZnode."""
    try:
        epoch = int(data)
    except ValueError:
        raise BadZnode(CONTROLLER_EPOCH, "is damaged: it is no whole number") from None
    if epoch < 0:
        raise BadZnode(CONTROLLER_EPOCH, "is damaged: it is negative")
    return epoch


class BrokerEndpoint(NamedTuple):
    listener: str
    host: str
    port: int
    protocol: str


class Broker(NamedTuple):
    """A broker that runs, as it registered itself."""

    id: int
    endpoints: Sequence[BrokerEndpoint]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = {}


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def decode_broker(path: str, data: bytes) -> Broker:
    """Versions 1 to 5: endpoints came with 2 (0.9), racks with 3, names of listeners with 4, features with 5. Raises
    BadZnode."""
    fields = fields_of(path, data)
    version = fields.version(1, 2, 3, 4, 5)
    try:
        broker_id = int(path.rpartition("/")[2])
    except ValueError:
        raise BadZnode(path, "is no broker: its name is no number") from None
    rack = fields.text("rack") if version >= 3 and "rack" in fields else None
    if version == 1:
        endpoints = [BrokerEndpoint("PLAINTEXT", fields.text("host"), fields.integer("port"), "PLAINTEXT")]
        return Broker(broker_id, endpoints, rack)
    protocols = {}
    if version >= 4:
        protocols = {name: str(value) for name, value in fields.object("listener_security_protocol_map").items()}
    endpoints = [_endpoint(path, text, protocols) for text in fields.texts("endpoints")]
    features = feature_ranges(path, fields.object("features", optional=True)) if version >= 5 else {}
    return Broker(broker_id, endpoints, rack, features)


def feature_ranges(path: str, fields: Fields) -> dict[str, tuple[int, int]]:
    """The lowest and the highest level of each feature. Raises BadZnode."""
    found = {}
    for name, levels in fields.items():
        level = Fields(path, levels)
        found[name] = level.integer("min_version"), level.integer("max_version")
    return found


def encode_feature_ranges(ranges: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, int]]:
    return {name: {"min_version": low, "max_version": high} for name, (low, high) in ranges.items()}


def _endpoint(path: str, text: str, protocols: Mapping[str, str]) -> BrokerEndpoint:
    listener, _, place = text.partition("://")
    host, _, port = place.rpartition(":")
    if not listener or not port.isdigit():
        raise BadZnode(path, f"is damaged: {text!r} is no endpoint")
    return BrokerEndpoint(listener, host.strip("[]"), int(port), protocols.get(listener, listener))


def encode_broker(broker: Broker, now_ms: int, jmx_port: int = -1) -> bytes:
    """In version 5. Host and port are those of a plaintext listener, for clients of 0.8."""
    plain = next((each for each in broker.endpoints if each.protocol == "PLAINTEXT"), None)
    places = [f"[{each.host}]" if ":" in each.host else each.host for each in broker.endpoints]
    return to_json(
        {
            "version": 5,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "jmx_port": jmx_port,
            "timestamp": str(now_ms),
            "endpoints": [
                f"{e.listener}://{place}:{e.port}" for e, place in zip(broker.endpoints, places, strict=True)
            ],
            "listener_security_protocol_map": {each.listener: each.protocol for each in broker.endpoints},
            **({} if broker.rack is None else {"rack": broker.rack}),
            "features": encode_feature_ranges(broker.features),
        }
    )


def decode_features(data: bytes) -> dict[str, int]:
    """Finalized levels, none where the znode says that the feature is disabled. Version 1 has minima too. Raises
    BadZnode."""
    fields = fields_of(FEATURE, data)
    fields.version(1, 2)
    status = fields.integer("status")
    if status not in (0, 1):
        raise BadZnode(FEATURE, f"has status {status}; this software knows 0 and 1")
    levels = fields.object("features", optional=True).items()
    found = {name: Fields(FEATURE, level).integer("max_version_level") for name, level in levels}
    if OFF in fields:
        found.update(dict.fromkeys(fields.texts(OFF), 0))
    return found if status == 1 else {}


def encode_features(levels: Mapping[str, int]) -> bytes:
    """In version 2 (3.3)."""
    features = {name: {"max_version_level": level} for name, level in sorted(levels.items()) if level}
    off = sorted(levels.keys() - features.keys())
    return to_json({"version": 2, "status": 1, "features": features, **({OFF: off} if off else {})})


def decode_producer_ids(data: bytes) -> int:
    """The first id behind the last block that was handed out; 0 where none was. Raises BadZnode."""
    if not data:
        return 0
    fields = fields_of(PRODUCER_IDS, data)
    fields.version(1)
    end = fields.integer("block_end")
    if not 0 <= end < PRODUCER_IDS_MAX:
        raise BadZnode(PRODUCER_IDS, f"is damaged: block_end is {end}")
    return end + 1


def encode_producer_ids(next_producer_id: int, block_size: int = 1000) -> bytes:
    """The block that ends before `next_producer_id`, as if it were the last one that a broker took."""
    start, end = max(next_producer_id - block_size, 0), next_producer_id - 1
    return to_json({"version": 1, "broker": -1, "block_start": str(start), "block_end": str(end)})


def decode_token(path: str, data: bytes) -> DelegationTokenRecord:
    """Version 1, 2, or 3, which names who asked for it (3.3). The principals are encoded. Raises BadZnode."""
    fields = fields_of(path, data)
    version = fields.version(1, 2, 3)
    owner = _principal(path, fields.text("owner"))
    requester = _principal(path, fields.text("tokenRequester")) if version == 3 else owner
    renewers = tuple(_principal(path, each) for each in fields.texts("renewers"))
    issued, latest, expiry = (fields.integer(name) for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp"))
    return DelegationTokenRecord(owner, requester, renewers, issued, latest, expiry, fields.text("tokenId"))


def _principal(path: str, text: str) -> str:
    found = desanitized(path, text)
    if ":" not in found:
        raise BadZnode(path, f"is damaged: {text!r} is no principal")
    return found


def encode_token(token: DelegationTokenRecord) -> bytes:
    """In version 3; where who asked is the owner in version 1, which all releases read."""
    asked = {} if token.requester == token.owner else {"tokenRequester": sanitized(token.requester)}
    return to_json(
        {
            "version": 3 if asked else 1,
            "owner": sanitized(token.owner),
            **asked,
            "renewers": [sanitized(each) for each in token.renewers],
            "issueTimestamp": token.issue_timestamp,
            "maxTimestamp": token.max_timestamp,
            "expiryTimestamp": token.expiration_timestamp,
            "tokenId": token.token_id,
        }
    )
