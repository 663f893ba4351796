"""What Ottla's records have beside Kafka's definitions, in their form; `tools/protocol_schemas.py` merges both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final


def _row(name: str, type_: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "versions": "0+", **more}


STRUCTS: Final = {
    "ClientQuotaRecord EntityData": "QuotaEntityData",
    "ConsumerGroupCurrentMemberAssignmentValue TopicPartitions": "CurrentPartitions",
    "ConsumerGroupPartitionMetadataValue PartitionMetadata": "PartitionRacks",
    "ConsumerGroupPartitionMetadataValue TopicMetadata": "SubscribedTopic",
    "ConsumerGroupTargetAssignmentMemberValue TopicPartition": "TargetPartitions",
    "ConsumerProtocolAssignment TopicPartition": "TopicNumbers",
    "ConsumerProtocolSubscription TopicPartition": "TopicNumbers",
    "LeaderChangeMessage Voter": "LeaderChangeVoter",
    "QuorumStateData Voter": "QuorumStateVoter",
    "RegisterBrokerRecord BrokerEndpoint": "EndpointData",
    "RegisterBrokerRecord BrokerFeature": "FeatureRange",
    "RegisterControllerRecord ControllerEndpoint": "EndpointData",
    "RegisterControllerRecord ControllerFeature": "FeatureRange",
    "ShareGroupCurrentMemberAssignmentValue TopicPartitions": "SharePartitions",
    "ShareGroupStatePartitionMetadataValue TopicInfo": "SharedTopic",
    "ShareGroupTargetAssignmentMemberValue TopicPartition": "SharePartitions",
    "StreamsGroupCurrentMemberAssignmentValue TaskIds": "CurrentTasks",
    "StreamsGroupMemberMetadataValue Endpoint": "StreamsEndpoint",
    "StreamsGroupTargetAssignmentMemberValue TaskIds": "TargetTasks",
    "VotersRecord Endpoint": "VoterEndpoint",
    "VotersRecord KRaftVersionFeature": "KRaftVersionRange",
}
"""Names of structs where Kafka's says little outside its message: message and Kafka's name -> ours."""

_NULL: Final = {"default": "null"}
_DROPPED: Final = {"ignorable": True}
_SECRET: Final = {"secret": True}

CHANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "KRaftVersionRecord.KRaftVersion": {"name": "KraftVersion"},
    "Voter.KRaftVersionFeature": {"name": "KraftVersionFeature"},
    "TopicNumbers.Topic": {"versions": "0+"},  # so that it is one struct in both messages
    "TopicNumbers.Partitions": {"versions": "0+"},
    "UserScramCredentialRecord.Salt": _SECRET,
    "UserScramCredentialRecord.StoredKey": _SECRET,
    "UserScramCredentialRecord.ServerKey": _SECRET,
    # Nullable, and null where nothing is said; in Kafka's classes they are empty then.
    "ConsumerGroupMemberMetadataValue.InstanceId": _NULL,
    "ConsumerGroupMemberMetadataValue.RackId": _NULL,
    "ConsumerGroupMemberMetadataValue.SubscribedTopicRegex": _NULL,
    "ConsumerGroupMemberMetadataValue.ServerAssignor": _NULL,
    "RegisterBrokerRecord.Rack": _NULL,
    "ShareGroupMemberMetadataValue.RackId": _NULL,
    "StreamsGroupMemberMetadataValue.InstanceId": _NULL,
    "StreamsGroupMemberMetadataValue.RackId": _NULL,
    "StreamsGroupMetadataValue.LastAssignmentConfigs": _NULL,
    # Left out without an error in a version that lacks the field, as Kafka's records do where they are made.
    "BrokerRegistrationChangeRecord.LogDirs": _DROPPED,
    "BrokerRegistrationChangeRecord.CordonedLogDirs": _DROPPED,
    "LeaderChangeVoter.VoterDirectoryId": _DROPPED,
    "PartitionChangeRecord.Directories": _DROPPED,
    "PartitionChangeRecord.EligibleLeaderReplicas": _DROPPED,
    "PartitionChangeRecord.LastKnownElr": _DROPPED,
    "PartitionRecord.Directories": _DROPPED,
    "PartitionRecord.EligibleLeaderReplicas": _DROPPED,
    "PartitionRecord.LastKnownElr": _DROPPED,
    "RegisterBrokerRecord.LogDirs": _DROPPED,
    "RegisterBrokerRecord.CordonedLogDirs": _DROPPED,
    "TransactionLogValue.PreviousProducerId": _DROPPED,
    "TransactionLogValue.NextProducerId": _DROPPED,
    "TransactionLogValue.NextProducerEpoch": _DROPPED,
    "TransactionLogValue.ClientTransactionVersion": _DROPPED,
}
"""What is not as in Kafka's definition of a field."""

OWN_FIELDS: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    # The epoch before the last change of epochs, by which a retry is recognised. Newer than Kafka 4.4, which skips the
    # tag (KAFKA-20357).
    "TransactionLogValue": [
        _row(
            "LastProducerEpoch", "int16", versions="1+", tag=4, taggedVersions="1+", default="-1", ignorable=True
        )
    ],
    # A `TopologyDescription` (KIP-1331). A field of ours: Kafka, which gives descriptions to a plug-in, passes over the
    # tag, and deletes the record with the group.
    "StreamsGroupTopologyValue": [_row("Description", "bytes", tag=1331, taggedVersions="0+")],
}  # fmt: skip
"""Fields that Kafka's records lack."""

_NODE: Final = [
    _row("Name", "string"), _row("NodeType", "int8"), _row("SourceTopics", "[]string"),
    _row("SinkTopic", "string", nullableVersions="0+", default="null"), _row("Stores", "[]string"),
    _row("Successors", "[]string"),
]  # fmt: skip

OWN_RECORDS: Final = [
    {
        "name": "TopologyDescription",
        "type": "data",
        "validVersions": "0",
        "flexibleVersions": "0+",
        "fields": [
            _row("Subtopologies", "[]DescribedSubtopology", fields=[
                _row("SubtopologyId", "string"), _row("Nodes", "[]TopologyNode", fields=_NODE),
            ]),
            _row("GlobalStores", "[]GlobalStore", fields=[
                _row("Source", "TopologyNode", fields=_NODE), _row("Processor", "TopologyNode", fields=_NODE),
            ]),
        ],
    },
]  # fmt: skip
"""Records that only Ottla has."""
