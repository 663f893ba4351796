"""SaslAuthenticate, versions 0-2 (KIP-152, KIP-368): one token of a mechanism and the answer to it.

From version 1 on the answer that completes a login says for how many milliseconds it holds. The states are in
`server/authentication.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, api
from ottla.server.authentication import authenticate
from ottla.server.permissions import Open

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import SaslAuthenticateRequest
    from ottla.protocol.schemas.sent import SaslAuthenticateResponse


def _on_error(context: RequestContext, request: SaslAuthenticateRequest, error: KafkaError) -> SaslAuthenticateResponse:
    return {"error_code": error.code, "error_message": error.message, "auth_bytes": b""}


@api(ApiKey.SASL_AUTHENTICATE, versions=(0, 2), needs=Open("with it a client says who it is"), on_error=_on_error)
def handle(context: RequestContext, request: SaslAuthenticateRequest) -> Any:
    return authenticate(context, request.auth_bytes)
