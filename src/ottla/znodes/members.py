"""What Ottla's nodes say of themselves in the znodes of brokers and of the controller, beside what Kafka's say.

A member `ottla` in the JSON, which everybody else ignores. A broker has in it what a registration by request has and
`/brokers/ids` has not; a controller where its metadata log is followed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.metadata.image import BrokerRegistration, Endpoint, SecurityProtocol
from ottla.model import LeaderEpoch, NodeId, uuid_from_base64, uuid_to_base64
from ottla.znodes import cluster
from ottla.znodes.tree import BadZnode, Fields, fields_of

OWN: Final = "ottla"


class ControllerAddress(NamedTuple):
    """The active controller: the node, its epoch, and where brokers follow its log."""

    node_id: NodeId
    epoch: LeaderEpoch
    host: str
    port: int


def encode_controller(controller: ControllerAddress, now_ms: int) -> bytes:
    own = {"epoch": controller.epoch, "host": controller.host, "port": controller.port}
    return cluster.encode_controller(cluster.Controller(controller.node_id), now_ms, {OWN: own})


def decode_controller(data: bytes) -> ControllerAddress | None:
    """None for a controller that is no node of Ottla. Raises BadZnode."""
    found = cluster.decode_controller(data)
    fields = fields_of(cluster.CONTROLLER, data)
    if OWN not in fields:
        return None
    own = fields.object(OWN)
    return ControllerAddress(found.broker_id, own.integer("epoch"), own.text("host"), own.integer("port"))


class Member(NamedTuple):
    """A broker that runs."""

    id: NodeId
    incarnation_id: UUID
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    log_dirs: Sequence[UUID]


def encode_member(member: Member, now_ms: int, jmx_port: int = -1) -> bytes:
    endpoints = [
        cluster.BrokerEndpoint(name, each.host, each.port, SecurityProtocol(each.security_protocol).name)
        for name, each in member.endpoints.items()
    ]
    # No features beside the endpoints: tools of Kafka 2.8 refuse every broker where one is supported from level 0 on.
    plain = cluster.encode_broker(cluster.Broker(member.id, endpoints, member.rack), now_ms, jmx_port)
    own = {
        "features": cluster.encode_feature_ranges(member.features),
        "incarnation_id": uuid_to_base64(member.incarnation_id),
        "log_dirs": [uuid_to_base64(each) for each in member.log_dirs],
    }
    return json.dumps({**json.loads(plain), OWN: own}, separators=(",", ":"), ensure_ascii=False).encode()


def decode_member(path: str, data: bytes) -> Member | None:
    """None for a broker that is no node of Ottla. Raises BadZnode."""
    broker = cluster.decode_broker(path, data)
    fields = fields_of(path, data)
    if OWN not in fields:
        return None
    own = fields.object(OWN)
    endpoints = {}
    for each in broker.endpoints:
        if each.protocol not in SecurityProtocol.__members__:
            raise BadZnode(path, f"has a listener with the security protocol {each.protocol}")
        endpoints[each.listener] = Endpoint(each.host, each.port, SecurityProtocol[each.protocol])
    directories = tuple(sorted(_id(own, text) for text in own.texts("log_dirs")))
    incarnation_id = _id(own, own.text("incarnation_id"))
    features = broker.features  # where a node of the first release of this mode wrote them
    if "features" in own:
        features = cluster.feature_ranges(path, own.object("features"))
    return Member(broker.id, incarnation_id, endpoints, features, broker.rack, directories)


def _id(fields: Fields, text: str) -> UUID:
    try:
        return uuid_from_base64(text)
    except ValueError:
        raise BadZnode(fields.path, f"is damaged: {text!r} is no id") from None


def registration(member: Member, epoch: int) -> BrokerRegistration:
    """The broker as a new controller finds it: whoever runs is unfenced."""
    return BrokerRegistration(
        id=member.id,
        epoch=epoch,
        incarnation_id=member.incarnation_id,
        endpoints=member.endpoints,
        features=member.features,
        rack=member.rack,
        fenced=False,
        log_dirs=tuple(member.log_dirs),
    )


def registration_request(member: Member, cluster_id: str) -> dict[str, Any]:
    """The request that the broker would register with where there is no ZooKeeper."""
    return {
        "broker_id": member.id,
        "cluster_id": cluster_id,
        "incarnation_id": member.incarnation_id,
        "listeners": [
            {"name": name, "host": end.host, "port": end.port, "security_protocol": end.security_protocol}
            for name, end in member.endpoints.items()
        ],
        "features": [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, (low, high) in member.features.items()
        ],
        "rack": member.rack,
        "is_migrating_zk_broker": False,
        "log_dirs": tuple(member.log_dirs),
        "previous_broker_epoch": -1,
    }
