"""Changes of settings of topics, brokers, groups and client metrics (Kafka's `ConfigAdminManager`, which checks on the
broker, and `ConfigurationControlManager` with its validator, which decides on the controller).

A resource is changed whole or not at all; each has its row in the response.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.config import definitions
from ottla.config.effective import EffectiveConfig
from ottla.config.setting import Type
from ottla.config.validation import (
    validate_broker_configs,
    validate_client_metrics_configs,
    validate_group_configs,
    validate_topic_configs,
    validate_topic_name,
)
from ottla.controller.bootstrap import MIN_ISR
from ottla.controller.decision import ITEMS_PER_STEP, Decision, Steps
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.metadata.image import ConfigResource, ConfigResourceType, Configs, MetadataImage
from ottla.model import NodeId
from ottla.protocol.schemas.records import ClearElrRecord, ConfigRecord

if TYPE_CHECKING:
    from ottla.protocol.schemas import sent

Request = Mapping[str, Any]


class Operation(enum.IntEnum):
    """Operations of IncrementalAlterConfigs on one setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_SPLITTABLE_TABLES = {
    ConfigResourceType.TOPIC: definitions.TOPIC,
    ConfigResourceType.BROKER: definitions.BROKER,
    ConfigResourceType.GROUP: definitions.GROUP,
    ConfigResourceType.CLIENT_METRICS: definitions.CLIENT_METRICS,
}

Proposal = Callable[[Request, ConfigResource, Configs], dict[str, str | None]]
"""The changes that a resource of the request asks for, given its present settings: new value, or None to remove."""


def incremental_alter_configs(
    image: MetadataImage, request: sent.IncrementalAlterConfigsRequest, config: EffectiveConfig
) -> Steps[sent.IncrementalAlterConfigsResponse]:
    """IncrementalAlterConfigs. Resources of type BROKER_LOGGER must have been handled before."""
    return _alter(image, request, config, _operations, null_allowed=_is_delete)


def alter_configs(
    image: MetadataImage, request: sent.AlterConfigsRequest, config: EffectiveConfig
) -> Steps[sent.AlterConfigsResponse]:
    """AlterConfigs, the older form: the given settings replace all that the resource has."""
    return _alter(image, request, config, _replacement, null_allowed=_never)


def refused_by_broker(
    image: MetadataImage, request: Request, node_id: NodeId, *, incremental: bool, log_dirs: Sequence[str] = ()
) -> Generator[None, None, dict[int, KafkaError]]:
    """What the broker that is asked refuses before it passes the rest on, by place in the request
    (`ConfigAdminManager.preprocess`): a broker has only its own settings and those of all brokers changed, and nobody
    else checks their values, for a controller of Kafka does not."""
    propose, null_allowed = (_operations, _is_delete) if incremental else (_replacement, _never)
    times = _times(request)
    refused = {}
    for place, each in enumerate(request["resources"]):
        if place % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield
        resource = ConfigResource(each["resource_type"], each["resource_name"])
        if incremental and resource.type == ConfigResourceType.BROKER_LOGGER:
            continue
        try:
            if times[resource] > 1:
                raise _more_than_once()
            _check_form(each["configs"], null_allowed)
            _check_resource(resource)
            if resource.type == ConfigResourceType.BROKER:
                if resource.name and int(resource.name) != node_id:
                    why = f"Unexpected broker id, expected {node_id}, but received {resource.name}"
                    raise KafkaError(ErrorCode.invalid_request, why)
                current = image.configs.get(resource, {})
                validate_broker_configs(
                    _merged(current, propose(each, resource, current)),
                    per_broker=bool(resource.name),
                    log_dirs=log_dirs,
                )
        except KafkaError as error:
            refused[place] = error.with_traceback(None)  # which would keep the request
    return refused


def changed_by(image: MetadataImage, each: Request, *, incremental: bool) -> Mapping[str, str | None]:
    """What a resource of a request changes: new values by name, None for what is removed. Raises KafkaError for a
    malformed one."""
    propose = _operations if incremental else _replacement
    resource = ConfigResource(each["resource_type"], each["resource_name"])
    return propose(each, resource, image.configs.get(resource, {}))


def _merged(current: Configs, changes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**current, **changes}.items() if value is not None}


def _times(request: Request) -> Counter[tuple[int, str]]:
    return Counter((each["resource_type"], each["resource_name"]) for each in request["resources"])


def _more_than_once() -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, "Each resource must appear at most once.")


def _never(entry: Request) -> bool:
    return False


def _is_delete(entry: Request) -> bool:
    return bool(entry["config_operation"] == Operation.DELETE)


def _alter(
    image: MetadataImage,
    request: Request,
    config: EffectiveConfig,
    propose: Proposal,
    *,
    null_allowed: Callable[[Request], bool],
) -> Steps[sent.AlterConfigsResponse]:
    times = _times(request)
    rows: list[sent.AlterConfigsResourceResponse] = []
    records: list[Any] = []
    for index, each in enumerate(request["resources"], start=1):
        if index % ITEMS_PER_STEP == 0:
            yield
        resource = ConfigResource(each["resource_type"], each["resource_name"])
        row: sent.AlterConfigsResourceResponse = {
            "resource_type": resource.type,
            "resource_name": resource.name,
            "error_message": None,
        }
        try:
            if times[resource] > 1:
                raise _more_than_once()
            _check_form(each["configs"], null_allowed)
            _check_resource(resource)
            current = image.configs.get(resource, {})
            changes = propose(each, resource, current)
            _check_values(resource, _merged(current, changes), config)
            _check_exists(image, resource)
            _check_min_isr(image, resource, changes)
            records += _records(image, resource, current, changes)
        except KafkaError as error:
            row["error_code"], row["error_message"] = error.code, error.message
        rows.append(row)
    return Decision({"responses": rows}, () if request.get("validate_only") else records)


def _check_form(entries: Sequence[Request], null_allowed: Callable[[Request], bool]) -> None:
    if len({entry["name"] for entry in entries}) != len(entries):
        raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    nulls = [entry["name"] for entry in entries if entry["value"] is None and not null_allowed(entry)]
    if nulls:
        raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(nulls)}")


def _check_resource(resource: ConfigResource) -> None:
    """The type is known and the name can be one."""
    kind, name = resource
    if kind == ConfigResourceType.BROKER:
        if not name:
            return
        try:
            int(name)
        except ValueError:
            why = f"Node id must be an integer, but it is: {name}"
            raise KafkaError(ErrorCode.invalid_request, why) from None
    elif kind not in (ConfigResourceType.TOPIC, ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP):
        raise KafkaError(ErrorCode.invalid_request, f"Unknown resource type {kind}")


def _operations(each: Request, resource: ConfigResource, current: Configs) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for entry in each["configs"]:
        name, value, operation = entry["name"], entry["value"], entry["config_operation"]
        if operation == Operation.SET:
            changes[name] = value
        elif operation == Operation.DELETE:
            changes[name] = None
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            changes[name] = _edited_list(resource, name, current.get(name), value, Operation(operation))
        else:
            raise KafkaError(ErrorCode.invalid_request, f"Unknown operations type {operation}")
    return changes


def _edited_list(resource: ConfigResource, name: str, current: str | None, value: str, operation: Operation) -> str:
    setting = _SPLITTABLE_TABLES[ConfigResourceType(resource.type)].get(name)
    if setting is None or setting.type is not Type.LIST:
        if resource.type == ConfigResourceType.BROKER:
            verb = operation.name.lower()
            why = f"Config value {verb} is not allowed for config key: {name}"
        else:
            why = f"Can't {operation.name} to key {name} because its type is not LIST."
        raise KafkaError(ErrorCode.invalid_config, why)
    text = setting.default if current is None else current
    parts = [part for part in (text or "").split(",") if part]
    for item in value.split(","):
        if operation == Operation.APPEND and item not in parts:
            parts.append(item)
        elif operation == Operation.SUBTRACT and item in parts:
            parts.remove(item)
    return ",".join(parts)


def _replacement(each: Request, resource: ConfigResource, current: Configs) -> dict[str, str | None]:
    given = {entry["name"]: entry["value"] for entry in each["configs"]}
    return {**given, **{name: None for name in current if name not in given}}


def _check_values(resource: ConfigResource, configs: Mapping[str, str], config: EffectiveConfig) -> None:
    kind, name = resource
    if kind == ConfigResourceType.TOPIC:
        if not name:
            raise KafkaError(ErrorCode.invalid_request, "Default topic resources are not allowed.")
        validate_topic_name(name)
        validate_topic_configs(configs, config.topic_defaults())
    elif kind == ConfigResourceType.BROKER:
        pass  # `refused_by_broker`: the broker may be one of Kafka, which knows what its settings may be
    elif kind == ConfigResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.invalid_request, "Default group resources are not allowed.")
        validate_group_configs(configs, config)
    else:
        if not name:
            raise KafkaError(ErrorCode.invalid_request, "Subscription name can't be empty")
        validate_client_metrics_configs(configs)


def _check_exists(image: MetadataImage, resource: ConfigResource) -> None:
    if resource.type == ConfigResourceType.TOPIC and image.topic(resource.name) is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{resource.name}' does not exist.")


def _check_min_isr(image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]) -> None:
    """With eligible leader replicas one value holds for all brokers (KIP-966)."""
    if resource.type != ConfigResourceType.BROKER or MIN_ISR not in changes:
        return
    if not features.supports_elr(image.features):
        return
    if resource.name:
        why = f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
        raise KafkaError(ErrorCode.invalid_config, why)
    if changes[MIN_ISR] is None:
        why = f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
        raise KafkaError(ErrorCode.invalid_config, why)


def _records(
    image: MetadataImage, resource: ConfigResource, current: Configs, changes: Mapping[str, str | None]
) -> list[Any]:
    """A broker's settings are recorded even if they are the same, so that brokers reload keystores (KAFKA-14136).

    Who is eligible to lead was judged by the old `min.insync.replicas`; a new one makes that void.
    """
    is_broker = resource.type == ConfigResourceType.BROKER
    records: list[Any] = [
        ConfigRecord(resource.type, resource.name, name, value)
        for name, value in changes.items()
        if is_broker or current.get(name) != value
    ]
    changed = MIN_ISR in changes and current.get(MIN_ISR) != changes[MIN_ISR]
    if changed and features.supports_elr(image.features):
        if resource.type == ConfigResourceType.TOPIC:
            records.append(ClearElrRecord(resource.name))
        elif is_broker and not resource.name:
            records.append(ClearElrRecord(""))
    return records
