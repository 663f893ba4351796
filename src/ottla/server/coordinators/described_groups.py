"""Descriptions of groups. A row may show what is not committed yet, and is answered once it is: a new coordinator would
not know it otherwise, and epochs would be seen to go back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any

from ottla.drivers.cooperative import run_yielding
from ottla.drivers.coordinators.group_coordinator import CommitWait, CommitWaits
from ottla.errors import ErrorCode, KafkaError
from ottla.server.api import RequestContext, Response
from ottla.server.connections.long_answers import ROWS_PER_STEP, row_by_row

Failed = Callable[[str, KafkaError], Mapping[str, Any]]
Waiting = dict[CommitWait, list[int]]
"""The positions of the rows that wait, by what they wait for."""


def described(
    context: RequestContext, group_ids: Sequence[str], row_of: Callable[[str], Mapping[str, Any]], failed: Failed
) -> Response | Awaitable[Response]:
    """A response with a row for each group, made by `row_of`; by `failed` where what that read is not committed."""
    groups, known, waiting, position = context.node.groups, CommitWaits(), Waiting(), -1

    def row(group_id: str) -> Mapping[str, Any]:
        nonlocal position
        found = row_of(group_id)
        position += 1
        if found["error_code"] is ErrorCode.group_authorization_failed:
            return found  # nothing was read
        uncommitted = groups.commit_wait(groups.partition_of(group_id), known)
        if uncommitted is not None:
            waiting.setdefault(uncommitted, []).append(position)
        return found

    response = row_by_row("groups", group_ids, row)
    if isinstance(response, Mapping) and not waiting:
        return response
    return _once_committed(response, group_ids, waiting, failed)


async def _once_committed(
    response: Response | Awaitable[Response], group_ids: Sequence[str], waiting: Waiting, failed: Failed
) -> Response:
    found: Response = await response if isinstance(response, Awaitable) else response
    assert isinstance(found, dict)
    for uncommitted, positions in waiting.items():
        try:
            await uncommitted.wait()
        except KafkaError as error:
            await run_yielding(_failing(found["groups"], positions, group_ids, failed, error))
    return found


def _failing(
    rows: list[Mapping[str, Any]], positions: Sequence[int], group_ids: Sequence[str], failed: Failed, error: KafkaError
) -> Generator[None, None, None]:
    for number, position in enumerate(positions, start=1):
        rows[position] = failed(group_ids[position], error)
        if number % ROWS_PER_STEP == 0:
            yield
