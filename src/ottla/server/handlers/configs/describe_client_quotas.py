"""DescribeClientQuotas, versions 0-1 (KIP-546): the quotas of this broker's metadata image that a filter fits.

A component asks for a type of entity: with a name, as the default, or with whatever name. An entity may have types that
no component asks for unless the filter is strict.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.quotas.limits import CLIENT_ID, IP, USER
from ottla.security.acls import Operation
from ottla.server.api import Handling, RequestContext, api
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ComponentData, DescribeClientQuotasRequest
    from ottla.protocol.schemas.sent import DescribeClientQuotasResponse, DescribeClientQuotasResponseEntryData

EXACT, DEFAULT, SPECIFIED = range(3)
"""How a component matches."""

LOOK_COST = 1
ROW_COST = 8


def _on_error(
    context: RequestContext, request: DescribeClientQuotasRequest, error: KafkaError
) -> DescribeClientQuotasResponse:
    return {"error_code": error.code, "error_message": error.message, "entries": None}


@api(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), needs=(cluster(Operation.DESCRIBE_CONFIGS),), on_error=_on_error)
def handle(context: RequestContext, request: DescribeClientQuotasRequest) -> Handling[DescribeClientQuotasResponse]:
    wanted = _wanted(request.components)
    entries: list[DescribeClientQuotasResponseEntryData] = []
    for entity, quotas in context.node.image.client_quotas.items():
        yield LOOK_COST
        names = dict(entity)
        if request.strict and len(names) != len(wanted):
            continue
        if not all(kind in names and (any_name or names[kind] == name) for kind, (any_name, name) in wanted.items()):
            continue
        entries.append(
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "values": [{"key": key, "value": value} for key, value in quotas.items()],
            }
        )
        yield ROW_COST
    return {"error_code": ErrorCode.none, "error_message": "", "entries": entries}


def _wanted(components: Iterable[ComponentData]) -> dict[str, tuple[bool, str | None]]:
    """(whether any name will do, name) by type. Raises KafkaError."""
    wanted: dict[str, tuple[bool, str | None]] = {}
    for each in components:
        kind, name = each.entity_type, each.match
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (IP, USER, CLIENT_ID):
            raise KafkaError(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
        if each.match_type == EXACT:
            if name is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        elif each.match_type not in (DEFAULT, SPECIFIED):
            raise _invalid(f"Unknown match type {each.match_type}")
        elif name is not None:
            how = "DEFAULT" if each.match_type == DEFAULT else "SPECIFIED"
            raise _invalid(f"Request specified MATCH_TYPE_{how}, but also specified a match string.")
        wanted[kind] = (each.match_type == SPECIFIED, name)
    if IP in wanted and len(wanted) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    return wanted


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
