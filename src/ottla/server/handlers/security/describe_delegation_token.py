"""DescribeDelegationToken, versions 1-3 (KIP-48, KIP-373): the tokens of this node's image that the client may see.

Those that it owns, asked for or may renew; others with DESCRIBE on the token or DESCRIBE_TOKENS on their owner. HMACs
are among what is told: who may describe a token may use it, as in Kafka. An empty list of owners gives no token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.tokens import said_of
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.security.tokens import Token, may_see
from ottla.server.api import Handling, RequestContext, api
from ottla.server.security.authorization import is_allowed
from ottla.server.security.delegation_tokens import check_may_ask
from ottla.server.security.permissions import Need, Refused

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeDelegationTokenRequest
    from ottla.protocol.schemas.sent import DescribedDelegationToken, DescribeDelegationTokenResponse

LOOK_COST = 1
ROW_COST = 10


def _on_error(
    context: RequestContext, request: DescribeDelegationTokenRequest, error: KafkaError
) -> DescribeDelegationTokenResponse:
    return {"error_code": error.code, "tokens": []}


@api(
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    versions=(1, 3),
    needs=(
        Need(
            Operation.DESCRIBE,
            ResourceType.DELEGATION_TOKEN,
            "tokens",
            refused=Refused.OMITTED,
            when="tokens that one neither owns, asked for nor may renew",
        ),
        Need(
            Operation.DESCRIBE_TOKENS,
            ResourceType.USER,
            "tokens",
            refused=Refused.OMITTED,
            when="in place of DESCRIBE on the token",
        ),
    ),
    on_error=_on_error,
)
def handle(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> Handling[DescribeDelegationTokenResponse]:
    check_may_ask(context)
    node = context.node
    secret = node.config.delegation_token_secret_key
    if not secret:
        raise KafkaError(ErrorCode.delegation_token_auth_disabled)
    owners = None
    if request.owners is not None:
        owners = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
        if not owners:
            return {"error_code": ErrorCode.none, "tokens": []}
    rows: list[DescribedDelegationToken] = []
    for token in node.image.delegation_tokens.values():
        yield LOOK_COST
        if is_shown(context, token, owners):
            rows.append(said_of(token, secret))
            yield ROW_COST
    return {"error_code": ErrorCode.none, "tokens": rows}


def is_shown(context: RequestContext, token: Token, owners: set[str] | None) -> bool:
    """`DelegationTokenManager.filterToken`."""
    if owners is not None and not any(may_see(token, owner) for owner in owners):
        return False
    return (
        may_see(token, context.principal)
        or is_allowed(context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, log_denial=False)
        or is_allowed(context, Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, log_denial=False)
    )
