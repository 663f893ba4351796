"""An authorizer with rules of the test's own, and a request for every API."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.security.acls import SUPPORTED_OPERATIONS, Operation, ResourceType
from ottla.server.security.authorization import ERRORS, rules_changed
from tests import kio_oracle
from tests.unit.server.counting import filled
from tests.unit.server.node import batch

REFUSALS = frozenset(ERRORS.values())

_NUMBERS = itertools.count()
Allows = Callable[[Operation, ResourceType, str], bool]


def nothing(operation: Operation, kind: ResourceType, name: str) -> bool:
    return False


def everything(operation: Operation, kind: ResourceType, name: str) -> bool:
    return True


class Asked(NamedTuple):
    principal: str
    host: str
    operation: Operation
    kind: ResourceType
    name: str

    @property
    def what(self) -> tuple[Operation, ResourceType]:
        return self.operation, self.kind


class Rules:
    """Stands for `ottla.security.authorizer.Authorizer`. It has no implied operations, so what is asked is seen."""

    def __init__(self, allows: Allows = nothing) -> None:
        self.allows = allows
        self.generation = 0
        self.asked: list[Asked] = []

    def is_allowed(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str, *, log_denial: bool = True
    ) -> bool:
        self.asked.append(Asked(principal, host, operation, kind, name))
        return self.allows(operation, kind, name)

    def is_allowed_for_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        return self.is_allowed(principal, host, operation, kind, "")

    def authorized_operations(self, principal: str, host: str, kind: ResourceType, name: str) -> int:
        return sum(1 << each for each in SUPPORTED_OPERATIONS[kind] if self.allows(each, kind, name))


def rule(node: Any, allows: Allows) -> Rules:
    """Let a node decide by these rules from now on."""
    rules = node.authorizer = Rules(allows)
    rules_changed(node)
    return rules


def refusals(answer: Any) -> set[ErrorCode]:
    """The authorization errors anywhere in an answer."""
    found: set[ErrorCode] = set()
    if isinstance(answer, Mapping):
        for name, value in answer.items():
            if name.endswith("error_code") and value in REFUSALS:
                found.add(ErrorCode(value))
            found |= refusals(value)
    elif isinstance(answer, list | tuple):
        for each in answer:
            found |= refusals(each)
    return found


def requests(key: int, version: int, topic_id: UUID) -> Iterator[dict[str, Any]]:
    """Requests in good form, about the topic `t`."""
    values = filled(kio_oracle.request_class(key, version), (), True)
    if key == ApiKey.TXN_OFFSET_COMMIT:  # kio has the field's name before Kafka 4.4
        values["generation_id_or_member_epoch"] = values.pop("generation_id", -1)
    _of_topic(values, topic_id)
    values.update({name: value for name, value in _OWN.get(ApiKey(key), {}).items() if name in values})
    if key == ApiKey.PRODUCE:
        for each in values["topic_data"]:
            each["partition_data"] = [{"index": 0, "records": batch()}]
        yield values
        transactional = batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        data = [{**each, "partition_data": [{"index": 0, "records": transactional}]} for each in values["topic_data"]]
        yield {**values, "transactional_id": "x", "topic_data": data}
        return
    if key == ApiKey.METADATA:
        for each in values["topics"]:
            each["topic_id"] = None
        missing = [{**each, "name": f"missing-{next(_NUMBERS)}"} for each in values["topics"]]
        yield {**values, "topics": missing}
    if key == ApiKey.CREATE_TOPICS:
        for each in values["topics"]:
            each.update(name="new", assignments=[], configs=[], num_partitions=1, replication_factor=1)
    if key == ApiKey.SHARE_FETCH:
        for each in values["topics"]:
            each["partitions"] = [{**row, "acknowledgement_batches": []} for row in each["partitions"]]
    if key == ApiKey.DELETE_TOPICS and version >= 6:
        yield {**values, "topics": [{"name": None, "topic_id": topic_id}]}
        values["topics"] = [{"name": "t", "topic_id": None}]
    if key == ApiKey.FETCH and version < 15:
        yield {**values, "replica_id": 1}
    yield values
    if key == ApiKey.INIT_PRODUCER_ID:
        yield {**values, "transactional_id": None}
    if key == ApiKey.FIND_COORDINATOR and version >= 1:
        yield {**values, "key_type": 1}
        if version >= 6:
            yield {**values, "key_type": 2, "coordinator_keys": ["g:AAAAAAAAAAAAAAAAAAAAAA:0"]}
    if key in (ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        for kind, name in ((4, ""), (32, "g")):
            yield {
                **values,
                "resources": [
                    {**each, "resource_type": kind, "resource_name": name, **_no_configs(each)}
                    for each in values["resources"]
                ],
            }
    if key in (ApiKey.METADATA, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.OFFSET_FETCH) and version >= 2 and "topics" in values:
        yield {**values, "topics": None}
    if key == ApiKey.STREAMS_GROUP_HEARTBEAT:
        subtopology = {
            "subtopology_id": "0",
            "source_topics": ["t"],
            "source_topic_regex": [],
            "state_changelog_topics": [],
            "repartition_sink_topics": [],
            "repartition_source_topics": [],
            "copartition_groups": [],
        }
        yield {**values, "topology": {"epoch": 1, "subtopologies": [subtopology]}}


def _no_configs(resource: Mapping[str, Any]) -> dict[str, Any]:
    return {"configs": []} if "configs" in resource else {}


_OWN: Mapping[ApiKey, Mapping[str, Any]] = {
    ApiKey.PRODUCE: {"acks": -1, "transactional_id": None},
    ApiKey.FETCH: {"replica_id": -1, "max_wait": 0, "session_epoch": -1, "session_id": 0, "isolation_level": 0},
    ApiKey.METADATA: {
        "include_cluster_authorized_operations": True, "include_topic_authorized_operations": True,
        "allow_auto_topic_creation": True,
    },
    ApiKey.DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {"member_epoch": 0, "subscribed_topic_names": ["t"], "topic_partitions": []},
    ApiKey.SHARE_GROUP_HEARTBEAT: {"member_epoch": 0, "member_id": "m", "subscribed_topic_names": ["t"]},
    ApiKey.SHARE_FETCH: {"share_session_epoch": 0, "member_id": "m", "max_wait": 0, "forgotten_topics_data": []},
    ApiKey.SHARE_ACKNOWLEDGE: {"share_session_epoch": 1, "member_id": "m"},
    ApiKey.CREATE_TOPICS: {"validate_only": True},
    ApiKey.CREATE_PARTITIONS: {"validate_only": True},
    ApiKey.OFFSET_DELETE: {"group_id": "g"},
    ApiKey.DELETE_TOPICS: {"topic_names": ["t"]},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"cursor": None},
    ApiKey.SYNC_GROUP: {"protocol_type": "consumer", "protocol_name": "range"},
    ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": [2]},
}  # fmt: skip


def _of_topic(values: Any, topic_id: UUID) -> None:
    if isinstance(values, dict):
        for name, value in values.items():
            if name == "topic_id":
                values[name] = topic_id
            else:
                _of_topic(value, topic_id)
    elif isinstance(values, list):
        for each in values:
            _of_topic(each, topic_id)
