"""SaslAuthenticate, versions 0-2 (KIP-152, KIP-368): one token of a mechanism and the answer to it.

From version 1 on the answer that completes a login says for how many milliseconds it holds. The states are in
`server/security/authentication.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api
from ottla.server.security.authentication import answered_late
from ottla.server.security.permissions import Open

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import SaslAuthenticateRequest
    from ottla.protocol.schemas.sent import SaslAuthenticateResponse


def _on_error(context: RequestContext, request: SaslAuthenticateRequest, error: KafkaError) -> SaslAuthenticateResponse:
    return {"error_code": error.code, "error_message": error.message, "auth_bytes": b""}


@api(ApiKey.SASL_AUTHENTICATE, versions=(0, 2), needs=Open("with it a client says who it is"), on_error=_on_error)
def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse | Awaitable[Response]:
    login = None if context.session is None else context.session.login
    return answered_late() if login is None else login.authenticate(context.api_version, request.auth_bytes)
