"""AlterClientQuotas, versions 0-1 (KIP-546): the controller decides, every node enforces (`server/clients/quotas.py`).

Rows of the answer stand for themselves, one for each entity.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.metadata.forwarding import forwarded
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import AlterClientQuotasRequest, AlterClientQuotasRequestEntryData
    from ottla.protocol.schemas.sent import AlterClientQuotasResponse, AlterClientQuotasResponseEntryData, EntityData


def _on_error(
    context: RequestContext, request: AlterClientQuotasRequest, error: KafkaError
) -> AlterClientQuotasResponse:
    def row_of(entry: AlterClientQuotasRequestEntryData) -> AlterClientQuotasResponseEntryData:
        entity: list[EntityData] = [
            {"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity
        ]
        return {"entity": entity, "error_code": error.code, "error_message": error.message}

    return {"entries": RowsOf(request.entries, row_of)}


@api(
    ApiKey.ALTER_CLIENT_QUOTAS,
    versions=(0, 1),
    needs=(cluster(Operation.ALTER_CONFIGS, at_controller=True),),
    on_error=_on_error,
)
def handle(context: RequestContext, request: AlterClientQuotasRequest) -> Awaitable[AlterClientQuotasResponse]:
    return forwarded(context, request)
