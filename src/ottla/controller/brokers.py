"""Registration of nodes, and the life of a broker as the controller sees it (Kafka's `ClusterControlManager`,
`BrokerHeartbeatManager` and `ReplicationControlManager`).

A broker registers, which gives it an epoch; it is fenced until a heartbeat says that it has caught up with the
metadata, fenced again when its heartbeats fail to come, and asks for a controlled shutdown with one (KIP-631).
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.config.effective import EffectiveConfig
from ottla.controller import broker_partitions
from ottla.controller.broker_sessions import BrokerSessions
from ottla.controller.decision import Decision, Steps
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.metadata.image import (
    DIRECTORIES_RESERVED,
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    MetadataImage,
)
from ottla.metadata.writer import broker_record, controller_record
from ottla.model import NodeId
from ottla.protocol.schemas import records as r

if TYPE_CHECKING:
    from ottla.protocol.schemas import sent

Request = Mapping[str, Any]


def register_controller(
    image: MetadataImage, request: sent.ControllerRegistrationRequest
) -> Decision[sent.ControllerRegistrationResponse]:
    """ControllerRegistration: a controller registers its endpoints and supported features (KIP-919)."""
    response: sent.ControllerRegistrationResponse = {"error_code": ErrorCode.none, "error_message": None}
    if not features.supports_controller_registration(image.features):
        return Decision(response)
    registration = ControllerRegistration(
        request["controller_id"], request["incarnation_id"], _endpoints(request), _ranges(request)
    )
    if image.controllers.get(registration.id) == registration:
        return Decision(response)
    return Decision(response, [controller_record(registration)])


def register_broker(
    image: MetadataImage, request: sent.BrokerRegistrationRequest, cluster_id: str, config: EffectiveConfig
) -> Steps[sent.BrokerRegistrationResponse]:
    """BrokerRegistration. The broker epoch of the response is the offset of the registration record, and so grows with
    every restart. An incarnation that registers again keeps its epoch.

    What a new incarnation means for partitions comes before its registration, so that a crash in between leaves nothing
    undone: it is out of every ISR, and if its predecessor did not shut down cleanly, eligible nowhere (KIP-966).

    Raises KafkaError INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION, UNSUPPORTED_VERSION.
    """
    if request["cluster_id"] != cluster_id:
        why = f"Expected cluster ID {cluster_id}, but got cluster ID {request['cluster_id']}"
        raise KafkaError(ErrorCode.inconsistent_cluster_id, why)
    node_id = request["broker_id"]
    log_dirs = tuple(sorted(request.get("log_dirs") or ()))
    if features.supports_directories(image.features):
        _check_directories(image, node_id, log_dirs)
    _check_features(image, request)
    before = image.brokers.get(node_id)
    is_same = before is not None and before.incarnation_id == request["incarnation_id"]
    records: list[Any] = []
    if not is_same:
        is_clean = _was_clean(before, request)
        gone = (
            broker_partitions.leave if is_clean or not features.supports_elr(image.features) else broker_partitions.lose
        )
        yield from gone(image, config, node_id, records)
    registration = BrokerRegistration(
        id=node_id,
        epoch=image.offset + len(records) + 1,
        incarnation_id=request["incarnation_id"],
        endpoints=_endpoints(request),
        features=_ranges(request),
        rack=request["rack"],
        fenced=True,
        log_dirs=log_dirs,
    )
    if before is not None and is_same:
        registration = replace(
            registration, epoch=before.epoch, fenced=before.fenced, in_controlled_shutdown=before.in_controlled_shutdown
        )
    records.append(broker_record(registration))
    response: sent.BrokerRegistrationResponse = {"error_code": ErrorCode.none, "broker_epoch": registration.epoch}
    return Decision(response, records, atomic=False)


def _was_clean(before: BrokerRegistration | None, request: Request) -> bool:
    """Whether the broker still has what it had: it sends the epoch that it stored at its clean shutdown. A broker too
    old to send it (before version 3 of the request) does not count as clean.
    """
    return bool(request.get("previous_broker_epoch", -1) == (-2 if before is None else before.epoch))


def _check_directories(image: MetadataImage, node_id: NodeId, log_dirs: Sequence[UUID]) -> None:
    if not log_dirs:
        raise _invalid("No directories specified in request")
    if len(set(log_dirs)) != len(log_dirs):
        raise _invalid("Duplicate directory ID in request")
    if not DIRECTORIES_RESERVED.isdisjoint(log_dirs):
        raise _invalid("Reserved directory ID in request")
    for other in image.brokers.values():
        taken = [each for each in log_dirs if other.id != node_id and each in other.log_dirs]
        if taken:
            raise _invalid(f"Broker {other.id} already registered with directory {taken[0]}")


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_registration, why)


def _check_features(image: MetadataImage, request: Request) -> None:
    """Every finalized level must be one that the broker can work with."""
    ranges = _ranges(request)
    if features.METADATA_VERSION not in ranges:
        raise _invalid("Request features do not contain 'metadata.version'")
    for name, level in image.features.items():
        if name == features.KRAFT_VERSION:
            continue
        low, high = ranges.get(name, (0, 0))
        if level and not low <= level <= high:
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {low} and {high}, inclusive.",
            )


def _endpoints(request: Request) -> dict[str, Endpoint]:
    return {
        each["name"]: Endpoint(each["host"], each["port"], each["security_protocol"]) for each in request["listeners"]
    }


def _ranges(request: Request) -> dict[str, tuple[int, int]]:
    return {
        each["name"]: (each["min_supported_version"], each["max_supported_version"]) for each in request["features"]
    }


def unregister_broker(
    image: MetadataImage, request: sent.UnregisterBrokerRequest, config: EffectiveConfig
) -> Steps[sent.UnregisterBrokerResponse]:
    """UnregisterBroker. Raises KafkaError BROKER_ID_NOT_REGISTERED."""
    node_id = request["broker_id"]
    broker = image.brokers.get(node_id)
    if broker is None:
        raise KafkaError(ErrorCode.broker_id_not_registered, f"Broker ID {node_id} is not currently registered")
    records: list[Any] = []
    yield from broker_partitions.leave(image, config, node_id, records)
    records.append(r.UnregisterBrokerRecord(node_id, broker.epoch))
    return Decision({"error_code": ErrorCode.none, "error_message": ""}, records, atomic=False)


def unregister_controller(
    image: MetadataImage, request: sent.UnregisterControllerRequest, active: NodeId
) -> Decision[sent.UnregisterControllerResponse]:
    """UnregisterController: the registration of a controller goes; one that runs registers again. Raises KafkaError
    INVALID_REQUEST for the `active` one, UNSUPPORTED_VERSION below 4.4-IV2, CONTROLLER_ID_NOT_REGISTERED."""
    if request["controller_id"] == active:  # nothing would register it again before the next election
        raise KafkaError(ErrorCode.invalid_request, "Controller cannot unregister itself while it is active.")
    if not features.supports_controller_unregistration(image.features):
        why = "The current MetadataVersion is too old to support controller unregistration."
        raise KafkaError(ErrorCode.unsupported_version, why)
    node_id = request["controller_id"]
    if node_id not in image.controllers:
        why = f"Controller ID {node_id} is not currently registered."
        raise KafkaError(ErrorCode.controller_id_not_registered, why)
    response: sent.UnregisterControllerResponse = {"error_code": ErrorCode.none, "error_message": None}
    return Decision(response, [r.UnregisterControllerRecord(node_id)])


def known(image: MetadataImage, request: Request) -> BrokerRegistration:
    """The registration of the broker that asks. Raises KafkaError STALE_BROKER_EPOCH, also where there is none."""
    node_id, epoch = request["broker_id"], request["broker_epoch"]
    broker = image.brokers.get(node_id)
    if broker is None:
        raise KafkaError(ErrorCode.stale_broker_epoch, f"No broker registration found for broker id {node_id}")
    if broker.epoch != epoch:
        why = f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}"
        raise KafkaError(ErrorCode.stale_broker_epoch, why)
    return broker


def unchanging(image: MetadataImage, request: Request) -> sent.BrokerHeartbeatResponse | None:
    """The answer to a heartbeat that changes nothing, as nearly all do; None for one to decide on. Raises KafkaError as
    `known`."""
    broker = known(image, request)
    if request.get("offline_log_dirs") and _failed(broker, request):
        return None
    if request.get("cordoned_log_dirs") is not None and _cordoned(image, broker, request) is not None:
        return None
    if broker.in_controlled_shutdown and not broker.fenced:
        return None
    caught_up = request["current_metadata_offset"] >= broker.epoch
    if request["want_shut_down"]:
        return _beat_answer(caught_up, fenced=True, shut_down=True) if broker.fenced else None
    stays = request["want_fence"] or not caught_up if broker.fenced else not request["want_fence"]
    return _beat_answer(caught_up, fenced=broker.fenced) if stays else None


def heartbeat(
    image: MetadataImage, request: sent.BrokerHeartbeatRequest, config: EffectiveConfig, sessions: BrokerSessions
) -> Steps[sent.BrokerHeartbeatResponse]:
    """BrokerHeartbeat: fences, unfences or lets go the broker, as it wants, and takes note of failed directories.

    A controlled shutdown first gives the leaderships away, and ends once the broker leads nothing and all others have
    heard so (`sessions`; the broker asks again until then). Raises KafkaError as `known`.
    """
    answer = unchanging(image, request)
    if answer is not None:
        return Decision(answer)
    broker = known(image, request)
    failed = _failed(broker, request)
    remaining = [each for each in broker.log_dirs if each not in failed] if failed else ()
    has_none = bool(failed) and not remaining  # which no record can say
    change = _changed(broker, log_dirs=remaining, cordoned_log_dirs=_cordoned(image, broker, request))
    is_stopping = not broker.fenced and sessions.is_shutting_down(broker.id)
    stops = is_stopping or bool(request["want_shut_down"])
    caught_up = request["current_metadata_offset"] >= broker.epoch
    answer = _beat_answer(caught_up, fenced=False)
    records: list[Any] = []
    if broker.fenced:
        returns = caught_up and not (stops or request["want_fence"] or failed)  # else it asks again
        if returns:
            change.fenced = -1
            yield from broker_partitions.come_back(image, config, broker.id, records)
        answer = _beat_answer(caught_up, fenced=not returns, shut_down=stops)
    elif (
        has_none
        or (request["want_fence"] and not is_stopping)
        or (stops and not (yield from _must_wait(image, broker, sessions)))
    ):
        change.fenced = 1
        yield from broker_partitions.leave(image, config, broker.id, records)
        if stops:
            sessions.drop(broker.id)  # the next process with its id need not wait
        answer = _beat_answer(caught_up, fenced=True, shut_down=stops)
    elif stops and not is_stopping:
        change.in_controlled_shutdown = 0 if broker.in_controlled_shutdown else 1
        yield from broker_partitions.leave(image, config, broker.id, records)
    elif failed:
        yield from broker_partitions.lose_directories(image, config, broker.id, failed, records)
    if change.fenced or change.in_controlled_shutdown or remaining or change.cordoned_log_dirs is not None:
        records.insert(0, change)
    if stops and not answer["is_fenced"]:
        sessions.begin_shutdown(broker.id, image.offset + len(records))
    return Decision(answer, records, atomic=False)


def _must_wait(
    image: MetadataImage, broker: BrokerRegistration, sessions: BrokerSessions
) -> Generator[None, None, bool]:
    """Whether a broker that wants to stop still leads something, or others have not heard yet who leads instead."""
    if (yield from broker_partitions.has_leaderships(image, broker.id)):
        return True
    return not sessions.may_shut_down(broker.id, image.brokers)


def _failed(broker: BrokerRegistration, request: Request) -> Collection[UUID]:
    """Directories that the broker says are offline, and that this controller thought to be online."""
    return [each for each in request.get("offline_log_dirs") or () if each in broker.log_dirs]


def _cordoned(image: MetadataImage, broker: BrokerRegistration, request: Request) -> tuple[UUID, ...] | None:
    """Directories that get no new partitions from now on (KIP-1066); None if unchanged."""
    asked = request.get("cordoned_log_dirs")
    if asked is None or not features.supports_cordoned_directories(image.features):
        return None
    return None if sorted(asked) == sorted(broker.cordoned_log_dirs) else tuple(asked)


def _beat_answer(caught_up: bool, *, fenced: bool, shut_down: bool = False) -> sent.BrokerHeartbeatResponse:
    return {
        "error_code": ErrorCode.none,
        "is_caught_up": caught_up,
        "is_fenced": fenced,
        "should_shut_down": shut_down,
    }


def _changed(
    broker: BrokerRegistration,
    *,
    fenced: int = 0,
    log_dirs: Sequence[UUID] = (),
    cordoned_log_dirs: tuple[UUID, ...] | None = None,
) -> r.BrokerRegistrationChangeRecord:
    return r.BrokerRegistrationChangeRecord(
        broker.id, broker.epoch, fenced=fenced, log_dirs=tuple(log_dirs), cordoned_log_dirs=cordoned_log_dirs
    )


def fence(image: MetadataImage, node_id: NodeId, config: EffectiveConfig) -> Steps[None]:
    """Fence a broker whose heartbeats fail to come: others lead where they can."""
    broker = image.brokers.get(node_id)
    if broker is None or broker.fenced:
        return Decision(None)
    records: list[Any] = []
    yield from broker_partitions.leave(image, config, node_id, records)
    records.append(_changed(broker, fenced=1))
    return Decision(None, records, atomic=False)
