"""Records, a line each: made by `python -m tools.protocol_schemas`, never edited.

Their classes are attributes of this module, which the package makes when they are first asked for.
"""

TABLE = """\
AbortTransactionRecord metadata 25 0 0+: Reason string 0+ ?0+ #0@0+ =null
AbortedTxn data - 0 none: ProducerId int64 0+; FirstOffset int64 0+; LastOffset int64 0+; LastStableOffset int64 0+
AccessControlEntryRecord metadata 18 0 0+: Id uuid 0+; ResourceType int8 0+; ResourceName string 0+; PatternType int8 0+; Principal string 0+; Host string 0+; Operation int8 0+; PermissionType int8 0+
BeginTransactionRecord metadata 23 0 0+: Name string 0+ ?0+ #0@0+ =null
BrokerRegistrationChangeRecord metadata 17 0-3 0+: BrokerId int32 0+; BrokerEpoch int64 0+; Fenced int8 0+ #0@0+; InControlledShutdown int8 1+ #1@1+; LogDirs []uuid 2+ #2@2+ ~; CordonedLogDirs []uuid 3+ ?3+ #3@3+ =null ~
ClearElrRecord metadata 28 0 0+: TopicName string 0+
ClientQuotaRecord metadata 14 0 0+: Entity []QuotaEntityData 0+ {EntityType string 0+; EntityName string 0+ ?0+}; Key string 0+; Value float64 0+; Remove bool 0+
ConfigRecord metadata 4 0 0+: ResourceType int8 0+; ResourceName string 0+; Name string 0+; Value string 0+ ?0+
ConsumerGroupCurrentMemberAssignmentKey coordinator-key 8 0 none: GroupId string 0; MemberId string 0
ConsumerGroupCurrentMemberAssignmentValue coordinator-value 8 0 0+: MemberEpoch int32 0+; PreviousMemberEpoch int32 0+; State int8 0+; AssignedPartitions []CurrentPartitions 0+ {TopicId uuid 0+; Partitions []int32 0+; AssignmentEpochs []int32 0+ ?0+ #0@0+}; PartitionsPendingRevocation []CurrentPartitions 0+ {TopicId uuid 0+; Partitions []int32 0+; AssignmentEpochs []int32 0+ ?0+ #0@0+}
ConsumerGroupMemberMetadataKey coordinator-key 5 0 none: GroupId string 0; MemberId string 0
ConsumerGroupMemberMetadataValue coordinator-value 5 0 0+: InstanceId string 0+ ?0+ =null; RackId string 0+ ?0+ =null; ClientId string 0+; ClientHost string 0+; SubscribedTopicNames []string 0+; SubscribedTopicRegex string 0+ ?0+ =null; RebalanceTimeoutMs int32 0+ =-1; ServerAssignor string 0+ ?0+ =null; ClassicMemberMetadata ClassicMemberMetadata 0+ ?0+ #0@0+ {SessionTimeoutMs int32 0+; SupportedProtocols []ClassicProtocol 0+ {Name string 0+; Metadata bytes 0+}}
ConsumerGroupMetadataKey coordinator-key 3 0 none: GroupId string 0
ConsumerGroupMetadataValue coordinator-value 3 0 0+: Epoch int32 0+; MetadataHash int64 0+ #0@0+ =0
ConsumerGroupPartitionMetadataKey coordinator-key 4 0 none: GroupId string 0
ConsumerGroupPartitionMetadataValue coordinator-value 4 0 0+: Topics []SubscribedTopic 0+ {TopicId uuid 0+; TopicName string 0+; NumPartitions int32 0+; PartitionMetadata []PartitionRacks 0+ {Partition int32 0+; Racks []string 0+}}
ConsumerGroupRegularExpressionKey coordinator-key 16 0 none: GroupId string 0; RegularExpression string 0
ConsumerGroupRegularExpressionValue coordinator-value 16 0 0+: Topics []string 0+; Version int64 0+; Timestamp int64 0+
ConsumerGroupTargetAssignmentMemberKey coordinator-key 7 0 none: GroupId string 0; MemberId string 0
ConsumerGroupTargetAssignmentMemberValue coordinator-value 7 0 0+: TopicPartitions []TargetPartitions 0+ {TopicId uuid 0+; Partitions []int32 0+}
ConsumerGroupTargetAssignmentMetadataKey coordinator-key 6 0 none: GroupId string 0
ConsumerGroupTargetAssignmentMetadataValue coordinator-value 6 0 0+: AssignmentEpoch int32 0+; AssignmentTimestamp int64 0+ #0@0+ =0 ~
ConsumerProtocolAssignment data - 0-3 none: AssignedPartitions []TopicNumbers 0+ {Topic string 0+; Partitions []int32 0+}; UserData bytes 0+ ?0+ =null
ConsumerProtocolSubscription data - 0-3 none: Topics []string 0+; UserData bytes 0+ ?0+ =null; OwnedPartitions []TopicNumbers 1+ ~ {Topic string 0+; Partitions []int32 0+}; GenerationId int32 2+ =-1 ~; RackId string 3+ ?3+ =null ~
ControlRecordTypeSchema data - 0 none: Type int16 0+
DefaultPrincipalData data - 0 0+: Type string 0+; Name string 0+; TokenAuthenticated bool 0+
DelegationTokenRecord metadata 10 0 0+: Owner string 0+; Requester string 0+; Renewers []string 0+; IssueTimestamp int64 0+; MaxTimestamp int64 0+; ExpirationTimestamp int64 0+; TokenId string 0+
EndTransactionRecord metadata 24 0 0+:
EndTxnMarker data - 0 none: CoordinatorEpoch int32 0+
FeatureLevelRecord metadata 12 0 0+: Name string 0+; FeatureLevel int16 0+
FenceBrokerRecord metadata 7 0 0+: Id int32 0+; Epoch int64 0+
GroupMetadataKey coordinator-key 2 0 none: group string 0
GroupMetadataValue coordinator-value 2 0-4 4+: protocolType string 0+; generation int32 0+; protocol string 0+ ?0+; leader string 0+ ?0+; currentStateTimestamp int64 2+ =-1 ~; members []MemberMetadata 0+ {memberId string 0+; groupInstanceId string 3+ ?3+ =null ~; clientId string 0+; clientHost string 0+; rebalanceTimeout int32 1+ =-1 ~; sessionTimeout int32 0+; subscription bytes 0+; assignment bytes 0+}
KRaftVersionRecord data - 0 0+: Version int16 0+; KraftVersion int16 0+
LeaderChangeMessage data - 0-1 0+: Version int16 0+; LeaderId int32 0+; Voters []LeaderChangeVoter 0+ {VoterId int32 0+; VoterDirectoryId uuid 1+ ~}; GrantingVoters []LeaderChangeVoter 0+ {VoterId int32 0+; VoterDirectoryId uuid 1+ ~}
LegacyOffsetCommitKey coordinator-key 0 0 none: group string 0; topic string 0; partition int32 0
LegacyOffsetCommitValue coordinator-value 0 0 none: offset int64 0; metadata string 0; commitTimestamp int64 0
NoOpRecord metadata 20 0 0+:
OffsetCommitKey coordinator-key 1 0 none: group string 0; topic string 0; partition int32 0
OffsetCommitValue coordinator-value 1 0-4 4+: offset int64 0+; leaderEpoch int32 3+ =-1 ~; metadata string 0+; commitTimestamp int64 0+; expireTimestamp int64 1 =-1 ~; topicId uuid 4+ #0@4+ ~
PartitionChangeRecord metadata 5 0-2 0+: PartitionId int32 0+ =-1; TopicId uuid 0+; Isr []int32 0+ ?0+ #0@0+ =null; Leader int32 0+ #1@0+ =-2; Replicas []int32 0+ ?0+ #2@0+ =null; RemovingReplicas []int32 0+ ?0+ #3@0+ =null; AddingReplicas []int32 0+ ?0+ #4@0+ =null; LeaderRecoveryState int8 0+ #5@0+ =-1; Directories []uuid 1+ ?1+ #8@1+ =null ~; EligibleLeaderReplicas []int32 2+ ?2+ #6@2+ =null ~; LastKnownElr []int32 2+ ?2+ #7@2+ =null ~
PartitionRecord metadata 3 0-2 0+: PartitionId int32 0+ =-1; TopicId uuid 0+; Replicas []int32 0+; Isr []int32 0+; RemovingReplicas []int32 0+; AddingReplicas []int32 0+; Leader int32 0+ =-1; LeaderRecoveryState int8 0+ #0@0+ =0; LeaderEpoch int32 0+ =-1; PartitionEpoch int32 0+ =-1; Directories []uuid 1+ ~; EligibleLeaderReplicas []int32 2+ ?2+ #1@2+ =null ~; LastKnownElr []int32 2+ ?2+ #2@2+ =null ~
ProducerIdsRecord metadata 15 0 0+: BrokerId int32 0+; BrokerEpoch int64 0+ =-1; NextProducerId int64 0+
ProducerSnapshot data - 1 none: Crc uint32 1; ProducerEntries []ProducerEntry 1 {ProducerId int64 1; Epoch int16 1; LastSequence int32 1; LastOffset int64 1; OffsetDelta int32 1; Timestamp int64 1; CoordinatorEpoch int32 1; CurrentTxnFirstOffset int64 1}
QuorumStateData data - 0-1 0+: ClusterId string 0; LeaderId int32 0+ =-1; LeaderEpoch int32 0+ =-1; VotedId int32 0+ =-1; VotedDirectoryId uuid 1+; AppliedOffset int64 0; CurrentVoters []QuorumStateVoter 0 ?0 {VoterId int32 0}
RegisterBrokerRecord metadata 0 0-4 0+: BrokerId int32 0+; IsMigratingZkBroker bool 2+ =false; IncarnationId uuid 0+; BrokerEpoch int64 0+; EndPoints []EndpointData 0+ {Name string 0+; Host string 0+; Port uint16 0+; SecurityProtocol int16 0+}; Features []FeatureRange 0+ {Name string 0+; MinSupportedVersion int16 0+; MaxSupportedVersion int16 0+}; Rack string 0+ ?0+ =null; Fenced bool 0+ =true; InControlledShutdown bool 1+ =false; LogDirs []uuid 3+ #0@3+ ~; CordonedLogDirs []uuid 4+ ?4+ #1@4+ =null ~
RegisterControllerRecord metadata 27 0 0+: ControllerId int32 0+; IncarnationId uuid 0+; ZkMigrationReady bool 0+; EndPoints []EndpointData 0+ {Name string 0+; Host string 0+; Port uint16 0+; SecurityProtocol int16 0+}; Features []FeatureRange 0+ {Name string 0+; MinSupportedVersion int16 0+; MaxSupportedVersion int16 0+}
RemoteLogSegmentMetadataRecord metadata 0 0 0+: RemoteLogSegmentId RemoteLogSegmentIdEntry 0+ {TopicIdPartition TopicIdPartitionEntry 0+ {Name string 0+; Id uuid 0+; Partition int32 0+}; Id uuid 0+}; StartOffset int64 0+; EndOffset int64 0+; BrokerId int32 0+; MaxTimestampMs int64 0+; EventTimestampMs int64 0+; SegmentLeaderEpochs []SegmentLeaderEpochEntry 0+ {LeaderEpoch int32 0+; Offset int64 0+}; SegmentSizeInBytes int32 0+; CustomMetadata bytes 0+ ?0+ =null; RemoteLogSegmentState int8 0+; TxnIndexEmpty bool 0+ #0@0+
RemoteLogSegmentMetadataSnapshotRecord metadata 3 0 0+: SegmentId uuid 0+; StartOffset int64 0+; EndOffset int64 0+; BrokerId int32 0+; MaxTimestampMs int64 0+; EventTimestampMs int64 0+; SegmentLeaderEpochs []SegmentLeaderEpochEntry 0+ {LeaderEpoch int32 0+; Offset int64 0+}; SegmentSizeInBytes int32 0+; CustomMetadata bytes 0+ ?0+ =null; RemoteLogSegmentState int8 0+; TxnIndexEmpty bool 0+ #0@0+
RemoteLogSegmentMetadataUpdateRecord metadata 1 0 0+: RemoteLogSegmentId RemoteLogSegmentIdEntry 0+ {TopicIdPartition TopicIdPartitionEntry 0+ {Name string 0+; Id uuid 0+; Partition int32 0+}; Id uuid 0+}; BrokerId int32 0+; EventTimestampMs int64 0+; CustomMetadata bytes 0+ ?0+ =null; RemoteLogSegmentState int8 0+
RemotePartitionDeleteMetadataRecord metadata 2 0 0+: TopicIdPartition TopicIdPartitionEntry 0+ {Name string 0+; Id uuid 0+; Partition int32 0+}; BrokerId int32 0+; EventTimestampMs int64 0+; RemotePartitionDeleteState int8 0+
RemoveAccessControlEntryRecord metadata 19 0 0+: Id uuid 0+
RemoveDelegationTokenRecord metadata 26 0 0+: TokenId string 0+
RemoveTopicRecord metadata 9 0 0+: TopicId uuid 0+
RemoveUserScramCredentialRecord metadata 22 0 0+: Name string 0+; Mechanism int8 0+
RequestHeader header - 1-2 2+: RequestApiKey int16 0+; RequestApiVersion int16 0+; CorrelationId int32 0+; ClientId string 1+ ?1+ !
RequestHeader@3.9 header - 0 2+: RequestApiKey int16 0+; RequestApiVersion int16 0+; CorrelationId int32 0+
ResponseHeader header - 0-1 1+: CorrelationId int32 0+
ShareGroupCurrentMemberAssignmentKey coordinator-key 14 0 none: GroupId string 0; MemberId string 0
ShareGroupCurrentMemberAssignmentValue coordinator-value 14 0 0+: MemberEpoch int32 0+; PreviousMemberEpoch int32 0+; State int8 0+; AssignedPartitions []SharePartitions 0+ {TopicId uuid 0+; Partitions []int32 0+}
ShareGroupMemberMetadataKey coordinator-key 10 0 none: GroupId string 0; MemberId string 0
ShareGroupMemberMetadataValue coordinator-value 10 0 0+: RackId string 0+ ?0+ =null; ClientId string 0+; ClientHost string 0+; SubscribedTopicNames []string 0+
ShareGroupMetadataKey coordinator-key 11 0 none: GroupId string 0
ShareGroupMetadataValue coordinator-value 11 0 0+: Epoch int32 0+; MetadataHash int64 0+
ShareGroupStatePartitionMetadataKey coordinator-key 15 0 none: GroupId string 0
ShareGroupStatePartitionMetadataValue coordinator-value 15 0 0+: InitializingTopics []TopicPartitionsInfo 0+ {TopicId uuid 0+; TopicName string 0+; Partitions []int32 0+}; InitializedTopics []TopicPartitionsInfo 0+ {TopicId uuid 0+; TopicName string 0+; Partitions []int32 0+}; DeletingTopics []SharedTopic 0+ {TopicId uuid 0+; TopicName string 0+}
ShareGroupTargetAssignmentMemberKey coordinator-key 13 0 none: GroupId string 0; MemberId string 0
ShareGroupTargetAssignmentMemberValue coordinator-value 13 0 0+: TopicPartitions []SharePartitions 0+ {TopicId uuid 0+; Partitions []int32 0+}
ShareGroupTargetAssignmentMetadataKey coordinator-key 12 0 none: GroupId string 0
ShareGroupTargetAssignmentMetadataValue coordinator-value 12 0 0+: AssignmentEpoch int32 0+; AssignmentTimestamp int64 0+ #0@0+ =0 ~
ShareSnapshotKey coordinator-key 0 0 none: GroupId string 0; TopicId uuid 0; Partition int32 0
ShareSnapshotValue coordinator-value 0 0 0+: SnapshotEpoch int32 0+; StateEpoch int32 0+; LeaderEpoch int32 0+; StartOffset int64 0+; DeliveryCompleteCount int32 0+ #0@0+ =-1; CreateTimestamp int64 0+; WriteTimestamp int64 0+; StateBatches []StateBatch 0+ {FirstOffset int64 0+; LastOffset int64 0+; DeliveryState int8 0+; DeliveryCount int16 0+}
ShareUpdateKey coordinator-key 1 0 none: GroupId string 0; TopicId uuid 0; Partition int32 0
ShareUpdateValue coordinator-value 1 0 0+: SnapshotEpoch int32 0+; LeaderEpoch int32 0+; StartOffset int64 0+; DeliveryCompleteCount int32 0+ #0@0+ =-1; StateBatches []StateBatch 0+ {FirstOffset int64 0+; LastOffset int64 0+; DeliveryState int8 0+; DeliveryCount int16 0+}
SnapshotFooterRecord data - 0 0+: Version int16 0+
SnapshotHeaderRecord data - 0 0+: Version int16 0+; LastContainedLogTimestamp int64 0+
StreamsGroupCurrentMemberAssignmentKey coordinator-key 22 0 none: GroupId string 0; MemberId string 0
StreamsGroupCurrentMemberAssignmentValue coordinator-value 22 0 0+: MemberEpoch int32 0+; PreviousMemberEpoch int32 0+; State int8 0+; ActiveTasks []CurrentTasks 0+ {SubtopologyId string 0+; Partitions []int32 0+; AssignmentEpochs []int32 0+ ?0+ #0@0+}; StandbyTasks []CurrentTasks 0+ {SubtopologyId string 0+; Partitions []int32 0+; AssignmentEpochs []int32 0+ ?0+ #0@0+}; WarmupTasks []CurrentTasks 0+ {SubtopologyId string 0+; Partitions []int32 0+; AssignmentEpochs []int32 0+ ?0+ #0@0+}; ActiveTasksPendingRevocation []CurrentTasks 0+ {SubtopologyId string 0+; Partitions []int32 0+; AssignmentEpochs []int32 0+ ?0+ #0@0+}; StandbyTasksPendingRevocation []CurrentTasks 0+ {SubtopologyId string 0+; Partitions []int32 0+; AssignmentEpochs []int32 0+ ?0+ #0@0+}; WarmupTasksPendingRevocation []CurrentTasks 0+ {SubtopologyId string 0+; Partitions []int32 0+; AssignmentEpochs []int32 0+ ?0+ #0@0+}
StreamsGroupMemberMetadataKey coordinator-key 19 0 none: GroupId string 0; MemberId string 0
StreamsGroupMemberMetadataValue coordinator-value 19 0 0+: InstanceId string 0+ ?0+ =null; RackId string 0+ ?0+ =null; ClientId string 0+; ClientHost string 0+; RebalanceTimeoutMs int32 0+ =-1; TopologyEpoch int32 0+; ProcessId string 0+; UserEndpoint StreamsEndpoint 0+ ?0+ =null {Host string 0+; Port uint16 0+}; ClientTags []KeyValue 0+ {Key string 0+; Value string 0+}
StreamsGroupMetadataKey coordinator-key 17 0 none: GroupId string 0
StreamsGroupMetadataValue coordinator-value 17 0 0+: Epoch int32 0+; MetadataHash int64 0+; ValidatedTopologyEpoch int32 0+ #0@0+ =-1; LastAssignmentConfigs []LastAssignmentConfig 0+ ?0+ #1@0+ =null {Key string 0+; Value string 0+}; StoredDescriptionTopologyEpoch int32 0+ #2@0+ =-1; FailedDescriptionTopologyEpoch int32 0+ #3@0+ =-1
StreamsGroupTargetAssignmentMemberKey coordinator-key 21 0 none: GroupId string 0; MemberId string 0
StreamsGroupTargetAssignmentMemberValue coordinator-value 21 0 0+: ActiveTasks []TargetTasks 0+ {SubtopologyId string 0+; Partitions []int32 0+}; StandbyTasks []TargetTasks 0+ {SubtopologyId string 0+; Partitions []int32 0+}; WarmupTasks []TargetTasks 0+ {SubtopologyId string 0+; Partitions []int32 0+}
StreamsGroupTargetAssignmentMetadataKey coordinator-key 20 0 none: GroupId string 0
StreamsGroupTargetAssignmentMetadataValue coordinator-value 20 0 0+: AssignmentEpoch int32 0+; AssignmentTimestamp int64 0+ #0@0+ =0 ~
StreamsGroupTopologyKey coordinator-key 23 0 none: GroupId string 0
StreamsGroupTopologyValue coordinator-value 23 0 0+: Epoch int32 0+; Subtopologies []Subtopology 0+ {SubtopologyId string 0+; SourceTopics []string 0+; SourceTopicRegex []string 0+; StateChangelogTopics []TopicInfo 0+ {Name string 0+; Partitions int32 0+; ReplicationFactor int16 0+; TopicConfigs []TopicConfig 0+ {key string 0+; value string 0+}}; RepartitionSinkTopics []string 0+; RepartitionSourceTopics []TopicInfo 0+ {Name string 0+; Partitions int32 0+; ReplicationFactor int16 0+; TopicConfigs []TopicConfig 0+ {key string 0+; value string 0+}}; CopartitionGroups []CopartitionGroup 0+ {SourceTopics []int16 0+; SourceTopicRegex []int16 0+; RepartitionSourceTopics []int16 0+}}; Description bytes 0+ #1331@0+
TopicRecord metadata 2 0 0+: Name string 0+; TopicId uuid 0+
TopologyDescription data - 0 0+: Subtopologies []DescribedSubtopology 0+ {SubtopologyId string 0+; Nodes []TopologyNode 0+ {Name string 0+; NodeType int8 0+; SourceTopics []string 0+; SinkTopic string 0+ ?0+ =null; Stores []string 0+; Successors []string 0+}}; GlobalStores []GlobalStore 0+ {Source TopologyNode 0+ {Name string 0+; NodeType int8 0+; SourceTopics []string 0+; SinkTopic string 0+ ?0+ =null; Stores []string 0+; Successors []string 0+}; Processor TopologyNode 0+ {Name string 0+; NodeType int8 0+; SourceTopics []string 0+; SinkTopic string 0+ ?0+ =null; Stores []string 0+; Successors []string 0+}}
TransactionLogKey coordinator-key 0 0 none: TransactionalId string 0
TransactionLogValue coordinator-value 0 0-1 1+: ProducerId int64 0+; PreviousProducerId int64 1+ #0@1+ =-1 ~; NextProducerId int64 1+ #1@1+ =-1 ~; ProducerEpoch int16 0+; NextProducerEpoch int16 1+ #3@1+ =-1 ~; TransactionTimeoutMs int32 0+; TransactionStatus int8 0+; TransactionPartitions []PartitionsSchema 0+ ?0+ {Topic string 0+; PartitionIds []int32 0+}; TransactionLastUpdateTimestampMs int64 0+; TransactionStartTimestampMs int64 0+; ClientTransactionVersion int16 1+ #2@1+ =0 ~; LastProducerEpoch int16 1+ #4@1+ =-1 ~
UnfenceBrokerRecord metadata 8 0 0+: Id int32 0+; Epoch int64 0+
UnregisterBrokerRecord metadata 1 0 0+: BrokerId int32 0+; BrokerEpoch int64 0+
UnregisterControllerRecord metadata 29 0 0+: ControllerId int32 0+
UserScramCredentialRecord metadata 11 0 0+: Name string 0+; Mechanism int8 0+; Salt bytes 0+ *; StoredKey bytes 0+ *; ServerKey bytes 0+ *; Iterations int32 0+
VotersRecord data - 0 0+: Version int16 0+; Voters []Voter 0+ {VoterId int32 0+; VoterDirectoryId uuid 0+; Endpoints []VoterEndpoint 0+ {Name string 0+; Host string 0+; Port uint16 0+}; KraftVersionFeature KRaftVersionRange 0+ {MinSupportedVersion int16 0+; MaxSupportedVersion int16 0+}}
ZkMigrationStateRecord metadata 21 0 0+: ZkMigrationState int8 0+
"""
