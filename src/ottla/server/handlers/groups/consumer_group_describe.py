"""ConsumerGroupDescribe, versions 0-1: state, epochs and members of consumer groups (KIP-848).

Version 1 says of each member which protocol it uses (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.kinds import kind_of
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, Response, api
from ottla.server.connections.long_answers import RowsOf, row_by_row
from ottla.server.coordinators.groups_enabled import check_enabled
from ottla.server.handlers.groups.describe_groups import NOT_ASKED, operations_on
from ottla.server.security.authorization import allowed, authorize
from ottla.server.security.permissions import of_groups, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ConsumerGroupDescribeRequest
    from ottla.protocol.schemas.sent import (
        ConsumerGroupDescribeResponse,
        ConsumerGroupDescribeResponseAssignment,
        ConsumerGroupDescribeResponseDescribedGroup,
    )

HIDDEN: Final = "The group has described topic(s) that the client is not authorized to describe."


def on_error(
    context: RequestContext, request: ConsumerGroupDescribeRequest, error: KafkaError
) -> ConsumerGroupDescribeResponse:
    return {"groups": RowsOf(request.group_ids, lambda group_id: _failed(group_id, error))}


NEEDS: Final = (of_groups(Operation.DESCRIBE, "group_ids"), of_topics(Operation.DESCRIBE, "groups.members.assignment"))


@api(ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), needs=NEEDS, on_error=on_error)
def handle(context: RequestContext, request: ConsumerGroupDescribeRequest) -> Response | Awaitable[Response]:
    check_enabled(context, "consumer")
    return row_by_row("groups", request.group_ids, lambda group_id: _describe(context, request, group_id))


def _describe(
    context: RequestContext, request: ConsumerGroupDescribeRequest, group_id: str
) -> ConsumerGroupDescribeResponseDescribedGroup:
    describe = kind_of("consumer").describe
    try:
        authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        found: ConsumerGroupDescribeResponseDescribedGroup = context.node.groups.read_committed(describe, group_id)
        check_topics(context, topics_of(each["assignment"] for each in found["members"]), HIDDEN)
        check_topics(context, topics_of(each["target_assignment"] for each in found["members"]), HIDDEN)
    except KafkaError as error:
        return _failed(group_id, error)
    operations = operations_on(context, group_id) if request.include_authorized_operations else NOT_ASKED
    return {"error_code": ErrorCode.none, "error_message": None, **found, "authorized_operations": operations}


def topics_of(assignments: Iterable[ConsumerGroupDescribeResponseAssignment]) -> Iterator[str]:
    """The names of the topics that members have, or are to have."""
    for assignment in assignments:
        for each in assignment["topic_partitions"]:
            yield each["topic_name"]


def check_topics(context: RequestContext, names: Iterable[str], message: str) -> None:
    """Raises TOPIC_AUTHORIZATION_FAILED for a group with a topic that the client may not describe."""
    if context.node.authorizer is None:
        return
    visible = allowed(context, Operation.DESCRIBE)
    if not all(name in visible for name in names):
        raise KafkaError(ErrorCode.topic_authorization_failed, message)


def _failed(group_id: str, error: KafkaError) -> ConsumerGroupDescribeResponseDescribedGroup:
    return {
        "error_code": error.code,
        "error_message": error.message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
        "authorized_operations": NOT_ASKED,
    }
