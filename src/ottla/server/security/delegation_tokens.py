"""Connections that may be used for requests about delegation tokens, as `KafkaApis.allowTokenRequests` has it.

A client that showed a token itself is refused, else tokens would live for ever, and so is an unknown one: on a
PLAINTEXT listener, or on an SSL listener without a certificate. The broker that sends an Envelope has looked at its
client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.principal import TokenPrincipal
from ottla.security.acls import Operation, ResourceType
from ottla.server.security.authorization import is_allowed

if TYPE_CHECKING:
    from ottla.server.api import RequestContext

ANONYMOUS = "User:ANONYMOUS"


def may_ask(context: RequestContext) -> bool:
    """Whether this connection may be used for requests about tokens."""
    if isinstance(context.principal, TokenPrincipal):
        return False
    if context.session is None:
        return True
    protocol = _protocol(context)
    return protocol != "PLAINTEXT" and not (protocol == "SSL" and context.principal == ANONYMOUS)


def check_may_ask(context: RequestContext) -> None:
    """Raises DELEGATION_TOKEN_REQUEST_NOT_ALLOWED."""
    if not may_ask(context):
        raise KafkaError(
            ErrorCode.delegation_token_request_not_allowed,
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
            "authenticated channels.",
        )


def may_create_for(context: RequestContext, owner: str) -> bool:
    """Whether the client may have tokens of somebody else (KIP-373)."""
    return owner == context.principal or is_allowed(context, Operation.CREATE_TOKENS, ResourceType.USER, owner)


def _protocol(context: RequestContext) -> str:
    listeners: Any = context.node.listeners
    return next((each.protocol for each in listeners if each.name == context.listener_name), "PLAINTEXT")
