"""DescribeTransactions, version 0: how transactional ids are (KIP-664). While a transaction ends, its partitions are
those that have no marker yet."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, Response, api
from ottla.server.connections.long_answers import RowsOf, row_by_row
from ottla.server.security.authorization import allowed, authorize
from ottla.server.security.permissions import Refused, of_ids, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeTransactionsRequest
    from ottla.protocol.schemas.sent import DescribeTransactionsResponse
    from ottla.protocol.schemas.sent import DescribeTransactionsResponseTransactionState as TransactionState


def _on_error(
    context: RequestContext, request: DescribeTransactionsRequest, error: KafkaError
) -> DescribeTransactionsResponse:
    return {"transaction_states": RowsOf(request.transactional_ids, lambda each: _failed(each, error))}


NEEDS: Final = (
    of_ids(Operation.DESCRIBE, "transactional_ids"),
    of_topics(Operation.DESCRIBE, "transaction_states.topics.topic", refused=Refused.OMITTED),
)


@api(ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), needs=NEEDS, on_error=_on_error)
def handle(context: RequestContext, request: DescribeTransactionsRequest) -> Response | Awaitable[Response]:
    ids = request.transactional_ids
    return row_by_row("transaction_states", ids, lambda each: _describe(context, each))


def _describe(context: RequestContext, transactional_id: str) -> TransactionState:
    try:
        authorize(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        found = context.node.transactions.describe(transactional_id)
        if context.node.authorizer is not None and "topics" in found:
            visible = allowed(context, Operation.DESCRIBE, log_denial=False)
            found = {**found, "topics": [each for each in found["topics"] if each["topic"] in visible]}
        return found
    except KafkaError as error:
        return _failed(transactional_id, error)


def _failed(transactional_id: str, error: KafkaError) -> TransactionState:
    return {"error_code": error.code, "transactional_id": transactional_id}
