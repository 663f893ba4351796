"""What the handlers of transactional APIs have in common."""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.server.api import RequestContext


def fenced_before(version: int, context: RequestContext, error: int) -> ErrorCode:
    """Clients of versions before `version` know PRODUCER_FENCED as INVALID_PRODUCER_EPOCH (KIP-588)."""
    if error == ErrorCode.producer_fenced and context.api_version < version:
        return ErrorCode.invalid_producer_epoch
    return ErrorCode(error)
