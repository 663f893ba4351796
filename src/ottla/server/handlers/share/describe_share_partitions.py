"""DescribeSharePartitions, version 0, an API that Kafka does not have (`tools/protocol_schemas.py`): what only the
leader of a partition knows of the share groups that read it.

Behind `ottla share describe` and the console, which ask each broker. A share-partition that nobody reads at the moment
has no row; nor has one of a group or a topic that the asker may not describe.
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
    from ottla.protocol.schemas.received import DescribeSharePartitionsRequest
    from ottla.protocol.schemas.sent import DescribedSharePartition, DescribeSharePartitionsResponse

LOOK_COST = 1
BATCH_COST = 5
"""The counts of a batch in flight, found by a look through its runs."""


@api(
    ApiKey.DESCRIBE_SHARE_PARTITIONS,
    versions=(0, 0),
    needs=(
        of_groups(Operation.DESCRIBE, "groups", refused=Refused.OMITTED),
        of_topics(Operation.DESCRIBE, "partitions.topic", refused=Refused.OMITTED),
    ),
)
def handle(
    context: RequestContext, request: DescribeSharePartitionsRequest
) -> Handling[DescribeSharePartitionsResponse]:
    node = context.node
    visible = allowed(context, Operation.DESCRIBE, ResourceType.GROUP, log_denial=False)
    visible_topics = allowed(context, Operation.DESCRIBE, log_denial=False)
    groups = {each for each in request.groups if each in visible}
    rows: list[DescribedSharePartition] = []
    for led in [*node.share.partitions]:
        yield LOOK_COST
        core = led.core  # None once it is another leader's
        topic, number = led.partition.topic_partition
        if core is None or led.key.group_id not in groups or topic not in visible_topics:
            continue
        acquired, redelivered = core.window.held()
        rows.append(
            {
                "group_id": led.key.group_id,
                "topic": topic,
                "partition": number,
                "start_offset": core.window.start_offset,
                "acquired_records": acquired,
                "redelivered_records": redelivered,
                "waiting_records": 0 if core.selection is None else core.selection.waiting(),
                "archived_records": led.metrics.archived,
            }
        )
        yield LOOK_COST + BATCH_COST * len(core.window.batches)
    return {"error_code": ErrorCode.none, "error_message": None, "node_id": node.node_id, "partitions": rows}
