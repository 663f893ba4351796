"""ListTransactions, versions 0-2: the transactional ids that this node coordinates (KIP-664). Version 1 filters by how
long a transaction runs (KIP-994), version 2 by a regular expression that the whole id matches (KIP-1152)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.coordinator.transaction.admin import Filter
from ottla.coordinator.transaction.transaction import STATES_BY_TITLE
from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.protocol.regular_expression import InvalidRegularExpression, RegularExpression
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.security.authorization import allowed
from ottla.server.security.permissions import Refused, of_ids

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ListTransactionsRequest
    from ottla.protocol.schemas.sent import ListTransactionsResponse, ListTransactionsResponseTransactionState

    Rows: TypeAlias = list[ListTransactionsResponseTransactionState]

NEEDS: Final = (of_ids(Operation.DESCRIBE, "transaction_states.transactional_id", refused=Refused.OMITTED),)


@api(ApiKey.LIST_TRANSACTIONS, versions=(0, 2), needs=NEEDS)
async def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    pattern = _pattern(request.transactional_id_pattern)
    unknown = await run_yielding(_unknown_states(request.state_filters))
    wanted = Filter(
        frozenset(request.state_filters),
        frozenset(request.producer_id_filters),
        request.duration_filter,
    )
    found = await run_yielding(context.node.transactions.list_transactions(wanted))
    if pattern is not None:
        found = await context.node.fs.run(partial(_matching, found, pattern))
    if context.node.authorizer is not None:
        found = await run_yielding(_visible(context, found))
    return {"error_code": ErrorCode.none, "unknown_state_filters": unknown, "transaction_states": found}


def _matching(rows: Rows, pattern: RegularExpression) -> Rows:
    """Runs in a thread, since RE2 releases the interpreter's lock: an id may have 32,767 bytes, of which each can cost
    ten microseconds.
    """
    return [row for row in rows if pattern.matches(row["transactional_id"])]


def _visible(context: RequestContext, rows: Rows) -> Generator[int, None, Rows]:
    """The rows of ids that the client may describe."""
    visible = allowed(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, log_denial=False)
    found = []
    for row in rows:
        if row["transactional_id"] in visible:
            found.append(row)
        yield 2
    return found


def _unknown_states(titles: Sequence[str]) -> Generator[int, None, list[str]]:
    unknown: dict[str, None] = {}
    for title in titles:
        if title not in STATES_BY_TITLE:
            unknown[title] = None
        yield 1
    return list(unknown)


def _pattern(text: str | None) -> RegularExpression | None:
    if not text:
        return None
    try:
        return RegularExpression(text)
    except InvalidRegularExpression as error:
        reason = f"Transaction ID pattern `{text}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.invalid_regular_expression, reason) from None
