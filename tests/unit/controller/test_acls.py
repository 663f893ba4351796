"""Decisions about ACLs, with the errors of Kafka's `AclApis` and `AclControlManager`."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from ottla.controller import acls as module
from ottla.controller.acls import create_acls, delete_acls
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.replay import replay
from ottla.protocol.internal.metadata_records import encode_record
from ottla.protocol.schemas import records as r
from ottla.security.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from ottla.steps import at_once

READ, WRITE = int(Operation.READ), int(Operation.WRITE)


def creation(name: str = "orders", **more: Any) -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": 3,
        **more,
    }


def wanted(**more: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **more,
    }


def after(image: MetadataImage, records: Any) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        replay(record, delta)
    return delta.apply(image.offset + 1, 1, 1)


def created(image: MetadataImage, *creations: dict[str, Any], seed: int = 1) -> tuple[list[Any], MetadataImage]:
    decision = at_once(create_acls(image, {"creations": creations}, random.Random(seed)))
    return decision.response["results"], after(image, decision.records)


def test_an_acl_is_one_record() -> None:
    decision = at_once(create_acls(EMPTY_IMAGE, {"creations": [creation()]}, random.Random(1)))
    (record,) = decision.records
    assert decision.response == {"results": [{"error_code": 0, "error_message": ""}]}
    assert record == r.AccessControlEntryRecord(record.id, 2, "orders", 3, "User:alice", "*", READ, 3)
    assert record.id.version == 4
    frame = encode_record(record, 0)  # frame 1, API 18, version 0, then Kafka's fields in their order
    assert frame == b"\x01\x12\x00" + record.id.bytes + b"\x02\x07orders\x03\x0bUser:alice\x02*\x03\x03\x00"


def test_what_is_there_is_not_written_again() -> None:
    rows, image = created(EMPTY_IMAGE, creation(), creation(), creation("other"))
    assert [row["error_code"] for row in rows] == [0, 0, 0] and len(image.acls) == 2
    rows, again = created(image, creation(), creation("third"), seed=2)
    assert [row["error_code"] for row in rows] == [0, 0] and len(again.acls) == 3


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"resource_type": 0}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 1}, "Invalid patternType ANY"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"resource_pattern_type": 9}, "Invalid patternType UNKNOWN"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 55}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"permission_type": 0}, "Invalid permissionType UNKNOWN"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal type from the "
            "principal name)",
        ),
    ],
)
def test_what_no_acl_may_be(asked: dict[str, Any], why: str) -> None:
    """Beside one that is good, which is made."""
    rows, image = created(EMPTY_IMAGE, creation(**asked), creation("good"))
    assert rows[0] == {"error_code": ErrorCode.invalid_request, "error_message": why}
    assert rows[1]["error_code"] == 0
    assert [acl.resource_name for acl in image.acls.values()] == ["good"]


def test_what_kafka_takes_as_it_is() -> None:
    odd = [
        creation(CLUSTER_NAME, resource_type=4, resource_pattern_type=4),
        creation(host="localhost"),
        creation(operation=int(Operation.CLUSTER_ACTION)),
        creation("*" * 300),
    ]
    rows, image = created(EMPTY_IMAGE, *odd)
    assert {row["error_code"] for row in rows} == {0} and len(image.acls) == len(odd)


def at_level(level: int) -> MetadataImage:
    return after(EMPTY_IMAGE, [r.FeatureLevelRecord("metadata.version", level)])


def test_networks_need_a_newer_cluster() -> None:
    """Below 4.4-IV1 whatever has a slash is refused, as in Kafka: brokers would compare it as text."""
    hosts = ("10.0.0.0/8", "2001:db8::/32", "10.0.0.0/33", "no/network")
    rows, image = created(at_level(31), *(creation(host=host) for host in hosts))
    assert {(row["error_code"], row["error_message"]) for row in rows} == {
        (
            ErrorCode.unsupported_version,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        )
    }
    assert not image.acls
    rows, image = created(at_level(32), *(creation(host=host) for host in hosts))
    assert [row["error_code"] for row in rows] == [0, 0, ErrorCode.invalid_request, ErrorCode.invalid_request]
    assert rows[2]["error_message"].startswith("Invalid CIDR notation '10.0.0.0/33'")
    assert {acl.host for acl in image.acls.values()} == {"10.0.0.0/8", "2001:db8::/32"}


def test_a_network_is_kept_as_it_was_written() -> None:
    """Two ways to write one network are two ACLs, as in Kafka, and a filter names one of them."""
    hosts = ("10.0.0.0/8", "10.1.2.3/8", "10.0.0.0/08")
    _, image = created(at_level(33), *(creation(host=host) for host in hosts))
    assert sorted(acl.host for acl in image.acls.values()) == sorted(hosts)


@pytest.mark.parametrize("level", [31, 33])
def test_an_acl_needs_a_host(level: int) -> None:
    rows, _ = created(at_level(level), creation(host=""))
    assert rows[0] == {"error_code": ErrorCode.invalid_request, "error_message": "Host pattern cannot be null or empty"}


def test_more_than_one_batch_holds_is_refused_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECORDS_PER_DECISION_MAX", 3)
    _, image = created(EMPTY_IMAGE, *map(creation, "abc"))
    with pytest.raises(KafkaError) as raised:
        created(EMPTY_IMAGE, *map(creation, "abcd"))
    assert raised.value.code is ErrorCode.policy_violation
    image = after(image, [r.AccessControlEntryRecord(UUID(int=9), 2, "d", 3, "User:alice", "*", READ, 3)])
    decision = at_once(delete_acls(image, {"filters": [wanted(), wanted(resource_name_filter="a")]}))
    rows = decision.response["filter_results"]
    assert rows[0]["error_code"] == ErrorCode.policy_violation and rows[0]["matching_acls"] == []
    assert rows[1]["error_code"] == 0 and len(decision.records) == 1


def test_what_filters_match_is_deleted() -> None:
    _, image = created(
        EMPTY_IMAGE, creation(), creation(operation=WRITE), creation("ord", resource_pattern_type=4), creation("other")
    )
    filters = [
        wanted(resource_type_filter=2, resource_name_filter="orders", pattern_type_filter=int(PatternType.MATCH)),
        wanted(
            resource_type_filter=2,
            resource_name_filter="orders",
            pattern_type_filter=3,
            principal_filter="User:alice",
            host_filter="*",
            operation=WRITE,
            permission_type=3,
        ),
        wanted(principal_filter="User:bob"),
        wanted(pattern_type_filter=0),
        wanted(operation=0),
    ]
    decision = at_once(delete_acls(image, {"filters": filters}))
    rows = decision.response["filter_results"]
    found = [sorted((acl["resource_name"], acl["operation"]) for acl in row["matching_acls"]) for row in rows]
    assert found == [[("ord", READ), ("orders", READ), ("orders", WRITE)], [("orders", WRITE)], [], [], []]
    assert [(row["error_code"], row["error_message"]) for row in rows] == [
        (0, None),
        (0, None),
        (0, None),
        (ErrorCode.invalid_request, "Unknown patternFilter."),
        (ErrorCode.invalid_request, "Unknown entryFilter."),
    ]
    assert len(decision.records) == 3, "each once, though two filters matched one"
    left = after(image, decision.records)
    assert [acl.resource_name for acl in left.acls.values()] == ["other"]
    gone = decision.records[0]
    assert encode_record(gone, 0) == b"\x01\x13\x00" + gone.id.bytes + b"\x00"


def test_an_acl_that_is_gone_can_be_made_again() -> None:
    _, image = created(EMPTY_IMAGE, creation())
    decision = at_once(delete_acls(image, {"filters": [wanted()]}))
    _, image = created(after(image, decision.records), creation(), seed=2)
    assert len(image.acls) == 1
    acl = next(iter(image.acls.values()))
    assert (acl.resource_type, acl.permission_type) == (ResourceType.TOPIC, Permission.ALLOW)
