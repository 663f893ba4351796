"""StoreUserScramCredentials, version 0, an API that Kafka does not have (`tools/protocol_schemas.py`).

It takes SCRAM credentials as a cluster stores them, where AlterUserScramCredentials takes salted passwords: a mirror
has nothing else of another cluster's users. The controller decides, and the records are the same. Keys are taken
only where delegation tokens are given: from a known client over a listener that is not plaintext, and not from one that
showed a delegation token.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.metadata.forwarding import forwarded
from ottla.server.security.delegation_tokens import may_ask
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import StoredScramCredential, StoreUserScramCredentialsRequest
    from ottla.protocol.schemas.sent import StoreUserScramCredentialsResponse, StoreUserScramCredentialsResult

NOT_HERE = (
    "Stored credentials are taken only from a known client over TLS or SASL, and not from one that showed a "
    "delegation token"
)


def _on_error(
    context: RequestContext, request: StoreUserScramCredentialsRequest, error: KafkaError
) -> StoreUserScramCredentialsResponse:
    def row(asked: StoredScramCredential) -> StoreUserScramCredentialsResult:
        return {
            "user": asked.name,
            "mechanism": asked.mechanism,
            "error_code": error.code,
            "error_message": error.message,
        }

    return {"results": RowsOf(request.credentials, row)}


@api(
    ApiKey.STORE_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    needs=(cluster(Operation.ALTER, at_controller=True),),
    on_error=_on_error,
)
def handle(
    context: RequestContext, request: StoreUserScramCredentialsRequest
) -> Awaitable[StoreUserScramCredentialsResponse]:
    if not may_ask(context):
        raise KafkaError(ErrorCode.security_disabled, NOT_HERE)
    elsewhere = context.node.metadata.controller_versions
    if elsewhere and context.api_key not in elsewhere:
        raise KafkaError(ErrorCode.unsupported_version, "The active controller does not take stored credentials")
    return forwarded(context, request)
