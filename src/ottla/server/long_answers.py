"""Responses with thousands of rows, encoded in turns so that no other client waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.drivers.turns import in_turns
from ottla.errors import ErrorCode
from ottla.protocol.messages import ROWS_PER_STEP, encode_response_in_steps
from ottla.server.api import EncodedResponse, RequestContext, Response


async def encoded(
    context: RequestContext, values: Mapping[str, Any], rows: str, *, shared: str | None = None
) -> Response:
    """`values` as a response; see `encode_response_in_steps`."""
    if len(values[rows]) <= ROWS_PER_STEP:
        return values
    stats = context.node.metrics.api(context.api_key)
    for row in values[rows]:
        if code := row.get("error_code"):
            stats.failed(ErrorCode(code).name.upper())
    return EncodedResponse(
        await in_turns(
            encode_response_in_steps(context.api_key, context.api_version, context.correlation_id, values, rows, shared)
        )
    )
