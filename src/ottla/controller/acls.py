"""Creation and deletion of ACLs (Kafka's `AclApis` and `AclControlManager`).

Every ACL and every filter of a request stands for itself. ANY and MATCH, which only filters may have, are refused with
INVALID_REQUEST, where Kafka fails with UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.controller.decision import RECORDS_PER_DECISION_MAX, Decision, Steps
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.metadata.image import ACLS_PER_STEP, AclContent, MetadataImage, acl_content
from ottla.model import random_uuid
from ottla.protocol.schemas.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.security.acls import CLUSTER_NAME, AclFilter, Operation, PatternType, Permission, ResourceType, network

if TYPE_CHECKING:
    from ottla.protocol.schemas import sent

ACLS_AT_ONCE = 200
"""Checking a new ACL costs some microseconds."""

_CONCRETE = {
    ResourceType: frozenset(ResourceType) - {ResourceType.UNKNOWN, ResourceType.ANY},
    PatternType: frozenset({PatternType.LITERAL, PatternType.PREFIXED}),
    Operation: frozenset(Operation) - {Operation.UNKNOWN, Operation.ANY},
    Permission: frozenset({Permission.DENY, Permission.ALLOW}),
}
"""The codes that an ACL may have."""


def create_acls(
    image: MetadataImage, request: sent.CreateAclsRequest, random: random_module.Random
) -> Steps[sent.CreateAclsResponse]:
    """CreateAcls. An ACL that exists already is created again without a record."""
    known = yield from image.acls.by_content()
    rows: list[sent.AclCreationResult] = []
    records: dict[AclContent, AccessControlEntryRecord] = {}
    for number, asked in enumerate(request["creations"], start=1):
        if number % ACLS_AT_ONCE == 0:
            yield
        why = _refusal(asked, image)
        rows.append(
            {"error_code": ErrorCode.none if why is None else why.code, "error_message": why.message if why else ""}
        )
        if why is None:
            record = AccessControlEntryRecord(
                random_uuid(random),
                asked["resource_type"],
                asked["resource_name"],
                asked["resource_pattern_type"],
                asked["principal"],
                asked["host"],
                asked["operation"],
                asked["permission_type"],
            )
            content = acl_content(record)
            if content not in known and content not in records:
                records[content] = record
    if len(records) > RECORDS_PER_DECISION_MAX:
        raise KafkaError(ErrorCode.policy_violation, "Unable to perform excessively large batch operation.")
    return Decision({"results": rows}, list(records.values()))


def _refusal(asked: Mapping[str, Any], image: MetadataImage) -> KafkaError | None:
    kind, name = asked["resource_type"], asked["resource_name"]
    if kind == ResourceType.CLUSTER and name != CLUSTER_NAME:
        return _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        return _invalid("Invalid empty resource name")
    for field, what, codes in (
        ("resource_type", "resourceType", ResourceType),
        ("resource_pattern_type", "patternType", PatternType),
        ("operation", "operation", Operation),
        ("permission_type", "permissionType", Permission),
    ):
        if asked[field] not in _CONCRETE[codes]:
            return _invalid(f"Invalid {what} {_named(codes, asked[field])}")
    if ":" not in asked["principal"]:
        return _invalid(
            f"Could not parse principal from `{asked['principal']}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    return _host_refusal(asked["host"], networks=features.supports_networks_in_acls(image.features))


def _host_refusal(host: str, *, networks: bool) -> KafkaError | None:
    """What has a slash is a network in CIDR notation (KIP-1276). Any other text may be a host."""
    if not host:
        return _invalid("Host pattern cannot be null or empty")
    if "/" not in host:
        return None
    if not networks:
        why = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        return KafkaError(ErrorCode.unsupported_version, why)
    if network(host) is None:
        return _invalid(f"Invalid CIDR notation '{host}': an address and the length of a prefix, as 10.0.0.0/8")
    return None


def delete_acls(image: MetadataImage, request: sent.DeleteAclsRequest) -> Steps[sent.DeleteAclsResponse]:
    """DeleteAcls. An ACL that two filters match is in the rows of both."""
    rows: list[sent.DeleteAclsFilterResult] = []
    gone: dict[UUID, None] = {}
    for asked in request["filters"]:
        wanted = AclFilter(
            asked["resource_type_filter"],
            asked["resource_name_filter"],
            asked["pattern_type_filter"],
            asked["principal_filter"],
            asked["host_filter"],
            asked["operation"],
            asked["permission_type"],
        )
        found: list[UUID] = []
        error: KafkaError | None = None
        if wanted.unknown_part is not None:
            error = _invalid(f"Unknown {wanted.unknown_part}.")
        else:
            found = yield from _found(image, wanted)
            if len(gone.keys() | dict.fromkeys(found).keys()) > RECORDS_PER_DECISION_MAX:
                why = f"Cannot remove more than {RECORDS_PER_DECISION_MAX} acls in a single delete operation."
                error, found = KafkaError(ErrorCode.policy_violation, why), []
        gone.update(dict.fromkeys(found))
        matching = yield from _rows(image, found)
        rows.append(
            {
                "error_code": ErrorCode.none if error is None else error.code,
                "error_message": None if error is None else error.message,
                "matching_acls": matching,
            }
        )
        yield
    return Decision({"filter_results": rows}, [RemoveAccessControlEntryRecord(each) for each in gone])


def _found(image: MetadataImage, wanted: AclFilter) -> Generator[None, None, list[UUID]]:
    """Ids of the ACLs that a filter matches; one that names a single ACL whole is looked up."""
    if wanted.is_exact:
        known = yield from image.acls.by_content()
        exact = known.get(wanted)  # type: ignore[arg-type]  # nothing in it is None
        return [] if exact is None else [exact]
    found = []
    for number, (acl_id, acl) in enumerate(image.acls.items(), start=1):
        if wanted.matches(acl):
            found.append(acl_id)
        if number % ACLS_PER_STEP == 0:
            yield
    return found


def _rows(image: MetadataImage, found: list[UUID]) -> Generator[None, None, list[sent.DeleteAclsMatchingAcl]]:
    rows: list[sent.DeleteAclsMatchingAcl] = []
    for number, acl_id in enumerate(found, start=1):
        acl = image.acls[acl_id]
        rows.append(
            {
                "error_code": ErrorCode.none,
                "error_message": None,
                "resource_type": acl.resource_type,
                "resource_name": acl.resource_name,
                "pattern_type": acl.pattern_type,
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission_type,
            }
        )
        if number % ACLS_AT_ONCE == 0:
            yield
    return rows


def _named(codes: Any, code: int) -> str:
    """Kafka's name of a code; one that it does not know is UNKNOWN."""
    return str(codes(code).name) if code in frozenset(codes) else "UNKNOWN"


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
