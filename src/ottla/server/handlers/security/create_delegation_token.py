"""CreateDelegationToken, versions 1-3 (KIP-48; version 3, KIP-373: for another owner). The controller makes the token.

Whoever asks for a token of somebody else needs CREATE_TOKENS on that user; one's own needs nothing. The HMAC is told
here, once, and else only by DescribeDelegationToken.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.controller.tokens import not_created, principals_of
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.metadata.forwarding import forwarded
from ottla.server.security.delegation_tokens import check_may_ask, may_create_for
from ottla.server.security.permissions import Need

if TYPE_CHECKING:
    from ottla.protocol.schemas import received, sent


def _asked(request: received.CreateDelegationTokenRequest) -> sent.CreateDelegationTokenRequest:
    return {
        "owner_principal_type": request.owner_principal_type,
        "owner_principal_name": request.owner_principal_name,
    }


def _on_error(
    context: RequestContext, request: received.CreateDelegationTokenRequest, error: KafkaError
) -> sent.CreateDelegationTokenResponse:
    return not_created(_asked(request), context.principal, error.code)


@api(
    ApiKey.CREATE_DELEGATION_TOKEN,
    versions=(1, 3),
    needs=(
        Need(
            Operation.CREATE_TOKENS,
            ResourceType.USER,
            "owner_principal_name",
            versions=(3, 3),
            when="for another owner than oneself",
        ),
    ),
    on_error=_on_error,
)
def handle(
    context: RequestContext, request: received.CreateDelegationTokenRequest
) -> Awaitable[sent.CreateDelegationTokenResponse]:
    check_may_ask(context)
    owner, _ = principals_of(_asked(request), context.principal)
    if not may_create_for(context, owner):
        raise KafkaError(ErrorCode.delegation_token_authorization_failed)
    if any(each.principal_type != "User" for each in request.renewers):
        raise KafkaError(ErrorCode.invalid_principal_type)
    return forwarded(context, request)
