"""OffsetForLeaderEpoch, versions 2-4: where a leader epoch ends in the leader's log (KIP-101, KIP-279, KIP-320).

Followers learn that from fetches. One that asks all the same cannot append what it got from here, or finds no end to
diverging: the leader then has its log checked for damage from where the follower is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Handling, RequestContext, api
from ottla.server.security.authorization import allowed
from ottla.server.security.permissions import of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import OffsetForLeaderEpochRequest
    from ottla.protocol.schemas.sent import (
        OffsetForLeaderEpochResponse,
        OffsetForLeaderEpochResponseEpochEndOffset,
        OffsetForLeaderTopicResult,
    )

WITH_REPLICA_ID = 3
"""Version from which on a request says whether a replica or a client asks."""

NO_REPLICA = -1


NEEDS = (of_topics(Operation.DESCRIBE, "topics.topic", instead=(Operation.CLUSTER_ACTION,)),)


@api(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), needs=NEEDS)
def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> Handling[OffsetForLeaderEpochResponse]:
    topics: list[OffsetForLeaderTopicResult] = []
    replica_id = request.replica_id if context.api_version >= WITH_REPLICA_ID else NO_REPLICA
    visible = allowed(context, Operation.DESCRIBE, on_cluster=Operation.CLUSTER_ACTION)
    for topic in request.topics:
        answers: list[OffsetForLeaderEpochResponseEpochEndOffset] = []
        for asked in topic.partitions:
            epoch, end, error = -1, -1, ErrorCode.none
            try:
                if topic.topic not in visible:
                    raise KafkaError(ErrorCode.topic_authorization_failed)
                partition = context.node.replicas.find(topic.topic, asked.partition)
                partition.check_leader(asked.current_leader_epoch)
                epoch, end = partition.end_of_epoch(asked.leader_epoch)
                follower = partition.others.get(replica_id)
                if follower is not None and follower.end_offset >= 0:
                    partition.log.health.report(follower.end_offset)
            except KafkaError as refused:
                error = refused.code
            answers.append(
                {"partition": asked.partition, "error_code": error, "leader_epoch": epoch, "end_offset": end}
            )
            yield ROW_COST
        topics.append({"topic": topic.topic, "partitions": answers})
    return {"topics": topics}
