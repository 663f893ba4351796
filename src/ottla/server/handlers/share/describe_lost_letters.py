"""DescribeLostLetters, version 0, an API that Kafka does not have (`tools/protocol_schemas.py`): why a broker could not
write the last dead letters of share groups (KIP-1191).

Behind `ottla share describe`, which asks each broker: the leader of a record writes its letter. Groups whose letters
are written, or that the asker may not describe, have no row; nor has one whose row would name a topic that the asker
may not describe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import Handling, RequestContext, api
from ottla.server.security.authorization import allowed
from ottla.server.security.permissions import Refused, of_groups, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeLostLettersRequest
    from ottla.protocol.schemas.sent import DescribeLostLettersResponse, LostLetters

LOOK_COST = 1
ROW_COST = 5


@api(
    ApiKey.DESCRIBE_LOST_LETTERS,
    versions=(0, 0),
    needs=(
        of_groups(Operation.DESCRIBE, "groups", refused=Refused.OMITTED),
        of_topics(Operation.DESCRIBE, "groups.topic", refused=Refused.OMITTED),
    ),
)
def handle(context: RequestContext, request: DescribeLostLettersRequest) -> Handling[DescribeLostLettersResponse]:
    node = context.node
    visible = allowed(context, Operation.DESCRIBE, ResourceType.GROUP, log_denial=False)
    visible_topics = allowed(context, Operation.DESCRIBE, log_denial=False)
    lost = node.share.partitions.lost_letters
    rows: list[LostLetters] = []
    for group_id in request.groups:
        yield LOOK_COST
        found = lost.get(group_id)
        if found is not None and group_id in visible:
            topic, partition = found.place
            if topic not in visible_topics:
                continue
            rows.append(
                {
                    "group_id": group_id,
                    "topic": topic,
                    "partition": partition,
                    "first_offset": found.first_offset,
                    "timestamp_ms": found.timestamp_ms,
                    "message": found.why,
                }
            )
            yield ROW_COST
    return {"error_code": ErrorCode.none, "error_message": None, "node_id": node.node_id, "groups": rows}
