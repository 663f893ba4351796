"""DescribeUserScramCredentials, version 0 (KIP-554): which SCRAM credentials users have, with their iterations.

From this node's metadata image; nothing of a password is told. Without names, of all users. A user that is named twice
gets DUPLICATE_RESOURCE, one without a credential RESOURCE_NOT_FOUND (`ScramImage.describe`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.security.sasl.scram import BY_NUMBER
from ottla.server.api import Handling, RequestContext, api
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeUserScramCredentialsRequest
    from ottla.protocol.schemas.records import UserScramCredentialRecord
    from ottla.protocol.schemas.sent import (
        CredentialInfo,
        DescribeUserScramCredentialsResponse,
        DescribeUserScramCredentialsResult,
    )

LOOK_COST = 1
ROW_COST = 5


def _on_error(
    context: RequestContext, request: DescribeUserScramCredentialsRequest, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    return {"error_code": error.code, "error_message": error.message, "results": []}


@api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), needs=(cluster(Operation.DESCRIBE),), on_error=_on_error)
def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Handling[DescribeUserScramCredentialsResponse]:
    credentials = context.node.image.scram_credentials
    times: dict[str, int] = Counter(each.name for each in request.users or ())
    if not times:
        for name, _ in credentials:
            times[name] = 1
            yield LOOK_COST
    results: list[DescribeUserScramCredentialsResult] = []
    for name, count in times.items():
        results.append(_result(name, count, credentials))
        yield ROW_COST
    return {"error_code": ErrorCode.none, "error_message": "", "results": results}


def _result(
    name: str, times: int, credentials: Mapping[tuple[str, int], UserScramCredentialRecord]
) -> DescribeUserScramCredentialsResult:
    if times > 1:
        what = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _refused(name, ErrorCode.duplicate_resource, what)
    infos: list[CredentialInfo] = [
        {"mechanism": number, "iterations": found.iterations}
        for number in BY_NUMBER
        if (found := credentials.get((name, number))) is not None
    ]
    if not infos:
        what = f"Attempt to describe a user credential that does not exist: {name}"
        return _refused(name, ErrorCode.resource_not_found, what)
    return {"user": name, "error_code": ErrorCode.none, "error_message": "", "credential_infos": infos}


def _refused(name: str, code: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return {"user": name, "error_code": code, "error_message": message, "credential_infos": []}
