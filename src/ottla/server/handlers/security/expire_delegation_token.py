"""ExpireDelegationToken, versions 1-2 (KIP-48): a token, named by its HMAC, ends now or after a period.

No ACL is asked for: its owner and those who were named as renewers may, and nobody else. Connections that were made
with the token stay open until their sessions end.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.controller.tokens import NO_TIMESTAMP
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, api
from ottla.server.metadata.forwarding import forwarded
from ottla.server.security.delegation_tokens import check_may_ask
from ottla.server.security.permissions import Open

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ExpireDelegationTokenRequest
    from ottla.protocol.schemas.sent import ExpireDelegationTokenResponse


def _on_error(
    context: RequestContext, request: ExpireDelegationTokenRequest, error: KafkaError
) -> ExpireDelegationTokenResponse:
    return {"error_code": error.code, "expiry_timestamp": NO_TIMESTAMP}


@api(
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    versions=(1, 2),
    needs=Open("a token's owner and renewers may, and nobody else"),
    on_error=_on_error,
)
def handle(context: RequestContext, request: ExpireDelegationTokenRequest) -> Awaitable[ExpireDelegationTokenResponse]:
    check_may_ask(context)
    return forwarded(context, request)
