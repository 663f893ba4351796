"""SaslHandshake, versions 0-1 (KIP-43, KIP-152, KIP-368): which mechanism a client will log in by.

Behind version 0 the mechanism's tokens follow as they are, behind version 1 in SaslAuthenticate. A client that is
logged in begins another authentication with it; where there is nothing to log in to, ILLEGAL_SASL_STATE is the answer.
The states are in `server/security/authentication.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api
from ottla.server.security.permissions import Open

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import SaslHandshakeRequest
    from ottla.protocol.schemas.sent import SaslHandshakeResponse


def _on_error(context: RequestContext, request: SaslHandshakeRequest, error: KafkaError) -> SaslHandshakeResponse:
    return {"error_code": error.code, "mechanisms": []}


@api(ApiKey.SASL_HANDSHAKE, versions=(0, 1), needs=Open("with it a client says who it is"), on_error=_on_error)
def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse | Awaitable[Response]:
    login = None if context.session is None else context.session.login
    if login is None:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
    return login.handshake(context.api_version, request.mechanism)
