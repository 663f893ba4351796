"""DescribeTransactions, version 0: how transactional ids are (KIP-664). While a transaction ends, its partitions are
those that have no marker yet."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api
from ottla.server.long_answers import RowsOf, row_by_row


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return {"transaction_states": RowsOf(request.transactional_ids, lambda each: _failed(each, error))}


@api(ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), on_error=_on_error)
def handle(context: RequestContext, request: Any) -> Response | Awaitable[Response]:
    ids = request.transactional_ids
    return row_by_row(context, "transaction_states", ids, lambda each: _describe(context, each))


def _describe(context: RequestContext, transactional_id: str) -> dict[str, Any]:
    try:
        return context.node.transactions.describe(transactional_id)
    except KafkaError as error:
        return _failed(transactional_id, error)


def _failed(transactional_id: str, error: KafkaError) -> dict[str, Any]:
    return {"error_code": error.code, "transactional_id": transactional_id}
