"""AlterClientQuotas, versions 0-1 (KIP-546): the controller decides, every node enforces (`server/quotas.py`).

Rows of the answer stand for themselves, one for each entity.
"""

from __future__ import annotations

from typing import Any

from ottla.drivers.cooperative import run_yielding
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, Response, api
from ottla.server.forwarding import to_controller
from ottla.server.long_answers import RowsOf
from ottla.server.permissions import cluster


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    row = {"error_code": error.code, "error_message": error.message}
    return {"entries": RowsOf(request.entries, lambda entry: {"entity": entry.entity, **row})}


@api(
    ApiKey.ALTER_CLIENT_QUOTAS,
    versions=(0, 1),
    needs=(cluster(Operation.ALTER_CONFIGS, at_controller=True),),
    on_error=_on_error,
)
async def handle(context: RequestContext, request: Any) -> Response:
    return await to_controller(context, await run_yielding(plain_in_steps(request)))
