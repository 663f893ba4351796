"""Requests and responses as they are received: made by `python -m tools.message_types`, never edited.

Behind `#`: the versions of the message that have a field, where not all do. In others it has its default.
"""

from uuid import UUID

from ottla.model import Buffer
from ottla.protocol.schemas import Message

class AddOffsetsToTxnRequest(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

class AddOffsetsToTxnResponse(Message):
    throttle_time: int
    error_code: int

class AddPartitionsToTxnRequest(Message):
    transactions: tuple[AddPartitionsToTxnTransaction, ...]  # 4+
    v3_and_below_transactional_id: str  # 0-3
    v3_and_below_producer_id: int  # 0-3
    v3_and_below_producer_epoch: int  # 0-3
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...]  # 0-3

class AddPartitionsToTxnTransaction(Message):
    transactional_id: str  # 4+
    producer_id: int  # 4+
    producer_epoch: int  # 4+
    verify_only: bool  # 4+
    topics: tuple[AddPartitionsToTxnTopic, ...]  # 4+

class AddPartitionsToTxnTopic(Message):
    name: str
    partitions: tuple[int, ...]

class AddPartitionsToTxnResponse(Message):
    throttle_time: int
    error_code: int  # 4+
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...]  # 4+
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...]  # 0-3

class AddPartitionsToTxnResult(Message):
    transactional_id: str  # 4+
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...]  # 4+

class AddPartitionsToTxnTopicResult(Message):
    name: str
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...]

class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int
    partition_error_code: int

class AddRaftVoterRequest(Message):
    cluster_id: str | None
    timeout: int
    voter_id: int
    voter_directory_id: UUID
    listeners: tuple[AddRaftVoterRequestListener, ...]
    ack_when_committed: bool  # 1+

class AddRaftVoterRequestListener(Message):
    name: str
    host: str
    port: int

class AddRaftVoterResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None

class AllocateProducerIdsRequest(Message):
    broker_id: int
    broker_epoch: int

class AllocateProducerIdsResponse(Message):
    throttle_time: int
    error_code: int
    producer_id_start: int
    producer_id_len: int

class AlterClientQuotasRequest(Message):
    entries: tuple[AlterClientQuotasRequestEntryData, ...]
    validate_only: bool

class AlterClientQuotasRequestEntryData(Message):
    entity: tuple[EntityData, ...]
    ops: tuple[OpData, ...]

class EntityData(Message):
    entity_type: str
    entity_name: str | None

class OpData(Message):
    key: str
    value: float
    remove: bool

class AlterClientQuotasResponse(Message):
    throttle_time: int
    entries: tuple[AlterClientQuotasResponseEntryData, ...]

class AlterClientQuotasResponseEntryData(Message):
    error_code: int
    error_message: str | None
    entity: tuple[EntityData, ...]

class AlterConfigsRequest(Message):
    resources: tuple[AlterConfigsRequestAlterConfigsResource, ...]
    validate_only: bool

class AlterConfigsRequestAlterConfigsResource(Message):
    resource_type: int
    resource_name: str
    configs: tuple[AlterConfigsRequestAlterableConfig, ...]

class AlterConfigsRequestAlterableConfig(Message):
    name: str
    value: str | None

class AlterConfigsResponse(Message):
    throttle_time: int
    responses: tuple[AlterConfigsResourceResponse, ...]

class AlterConfigsResourceResponse(Message):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str

class AlterPartitionReassignmentsRequest(Message):
    timeout: int
    allow_replication_factor_change: bool  # 1+
    topics: tuple[ReassignableTopic, ...]

class ReassignableTopic(Message):
    name: str
    partitions: tuple[ReassignablePartition, ...]

class ReassignablePartition(Message):
    partition_index: int
    replicas: tuple[int, ...] | None

class AlterPartitionReassignmentsResponse(Message):
    throttle_time: int
    allow_replication_factor_change: bool  # 1+
    error_code: int
    error_message: str | None
    responses: tuple[ReassignableTopicResponse, ...]

class ReassignableTopicResponse(Message):
    name: str
    partitions: tuple[ReassignablePartitionResponse, ...]

class ReassignablePartitionResponse(Message):
    partition_index: int
    error_code: int
    error_message: str | None

class AlterPartitionRequest(Message):
    broker_id: int
    broker_epoch: int
    topics: tuple[AlterPartitionRequestTopicData, ...]

class AlterPartitionRequestTopicData(Message):
    topic_id: UUID
    partitions: tuple[AlterPartitionRequestPartitionData, ...]

class AlterPartitionRequestPartitionData(Message):
    partition_index: int
    leader_epoch: int
    new_isr: tuple[int, ...]  # 2
    new_isr_with_epochs: tuple[BrokerState, ...]  # 3+
    leader_recovery_state: int
    partition_epoch: int

class BrokerState(Message):
    broker_id: int  # 3+
    broker_epoch: int  # 3+

class AlterPartitionResponse(Message):
    throttle_time: int
    error_code: int
    topics: tuple[AlterPartitionResponseTopicData, ...]

class AlterPartitionResponseTopicData(Message):
    topic_id: UUID
    partitions: tuple[AlterPartitionResponsePartitionData, ...]

class AlterPartitionResponsePartitionData(Message):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int
    partition_epoch: int

class AlterReplicaLogDirsRequest(Message):
    dirs: tuple[AlterReplicaLogDir, ...]

class AlterReplicaLogDir(Message):
    path: str
    topics: tuple[AlterReplicaLogDirTopic, ...]

class AlterReplicaLogDirTopic(Message):
    name: str
    partitions: tuple[int, ...]

class AlterReplicaLogDirsResponse(Message):
    throttle_time: int
    results: tuple[AlterReplicaLogDirTopicResult, ...]

class AlterReplicaLogDirTopicResult(Message):
    topic_name: str
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...]

class AlterReplicaLogDirPartitionResult(Message):
    partition_index: int
    error_code: int

class AlterShareGroupOffsetsRequest(Message):
    group_id: str
    topics: tuple[AlterShareGroupOffsetsRequestTopic, ...]

class AlterShareGroupOffsetsRequestTopic(Message):
    topic_name: str
    partitions: tuple[AlterShareGroupOffsetsRequestPartition, ...]

class AlterShareGroupOffsetsRequestPartition(Message):
    partition_index: int
    start_offset: int

class AlterShareGroupOffsetsResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    responses: tuple[AlterShareGroupOffsetsResponseTopic, ...]

class AlterShareGroupOffsetsResponseTopic(Message):
    topic_name: str
    topic_id: UUID
    partitions: tuple[AlterShareGroupOffsetsResponsePartition, ...]

class AlterShareGroupOffsetsResponsePartition(Message):
    partition_index: int
    error_code: int
    error_message: str | None

class AlterUserScramCredentialsRequest(Message):
    deletions: tuple[ScramCredentialDeletion, ...]
    upsertions: tuple[ScramCredentialUpsertion, ...]

class ScramCredentialDeletion(Message):
    name: str
    mechanism: int

class ScramCredentialUpsertion(Message):
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

class AlterUserScramCredentialsResponse(Message):
    throttle_time: int
    results: tuple[AlterUserScramCredentialsResult, ...]

class AlterUserScramCredentialsResult(Message):
    user: str
    error_code: int
    error_message: str | None

class ApiVersionsRequest(Message):
    client_software_name: str  # 3+
    client_software_version: str  # 3+
    cluster_id: str | None  # 5+
    node_id: int  # 5+

class ApiVersionsResponse(Message):
    error_code: int
    api_keys: tuple[ApiVersion, ...]
    throttle_time: int  # 1+
    supported_features: tuple[SupportedFeatureKey, ...]  # 3+
    finalized_features_epoch: int  # 3+
    finalized_features: tuple[FinalizedFeatureKey, ...]  # 3+
    zk_migration_ready: bool  # 3+

class ApiVersion(Message):
    api_key: int
    min_version: int
    max_version: int

class SupportedFeatureKey(Message):
    name: str  # 3+
    min_version: int  # 3+
    max_version: int  # 3+

class FinalizedFeatureKey(Message):
    name: str  # 3+
    max_version_level: int  # 3+
    min_version_level: int  # 3+

class AssignReplicasToDirsRequest(Message):
    broker_id: int
    broker_epoch: int
    directories: tuple[AssignReplicasToDirsRequestDirectoryData, ...]

class AssignReplicasToDirsRequestDirectoryData(Message):
    id: UUID
    topics: tuple[AssignReplicasToDirsRequestTopicData, ...]

class AssignReplicasToDirsRequestTopicData(Message):
    topic_id: UUID
    partitions: tuple[AssignReplicasToDirsRequestPartitionData, ...]

class AssignReplicasToDirsRequestPartitionData(Message):
    partition_index: int

class AssignReplicasToDirsResponse(Message):
    throttle_time: int
    error_code: int
    directories: tuple[AssignReplicasToDirsResponseDirectoryData, ...]

class AssignReplicasToDirsResponseDirectoryData(Message):
    id: UUID
    topics: tuple[AssignReplicasToDirsResponseTopicData, ...]

class AssignReplicasToDirsResponseTopicData(Message):
    topic_id: UUID
    partitions: tuple[AssignReplicasToDirsResponsePartitionData, ...]

class AssignReplicasToDirsResponsePartitionData(Message):
    partition_index: int
    error_code: int

class BeginQuorumEpochRequest(Message):
    cluster_id: str | None
    voter_id: int  # 1+
    topics: tuple[BeginQuorumEpochRequestTopicData, ...]
    leader_endpoints: tuple[LeaderEndpoint, ...]  # 1+

class BeginQuorumEpochRequestTopicData(Message):
    topic_name: str
    partitions: tuple[BeginQuorumEpochRequestPartitionData, ...]

class BeginQuorumEpochRequestPartitionData(Message):
    partition_index: int
    voter_directory_id: UUID  # 1+
    leader_id: int
    leader_epoch: int

class LeaderEndpoint(Message):
    name: str  # 1+
    host: str  # 1+
    port: int  # 1+

class BeginQuorumEpochResponse(Message):
    error_code: int
    topics: tuple[BeginQuorumEpochResponseTopicData, ...]
    node_endpoints: tuple[BeginQuorumEpochResponseNodeEndpoint, ...]  # 1+

class BeginQuorumEpochResponseTopicData(Message):
    topic_name: str
    partitions: tuple[BeginQuorumEpochResponsePartitionData, ...]

class BeginQuorumEpochResponsePartitionData(Message):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int

class BeginQuorumEpochResponseNodeEndpoint(Message):
    node_id: int  # 1+
    host: str  # 1+
    port: int  # 1+

class BrokerHeartbeatRequest(Message):
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[UUID, ...]  # 1+
    cordoned_log_dirs: tuple[UUID, ...] | None  # 2+

class BrokerHeartbeatResponse(Message):
    throttle_time: int
    error_code: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool

class BrokerRegistrationRequest(Message):
    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    listeners: tuple[BrokerRegistrationRequestListener, ...]
    features: tuple[Feature, ...]
    rack: str | None
    is_migrating_zk_broker: bool  # 1+
    log_dirs: tuple[UUID, ...]  # 2+
    previous_broker_epoch: int  # 3+

class BrokerRegistrationRequestListener(Message):
    name: str
    host: str
    port: int
    security_protocol: int

class Feature(Message):
    name: str
    min_supported_version: int
    max_supported_version: int

class BrokerRegistrationResponse(Message):
    throttle_time: int
    error_code: int
    broker_epoch: int

class ConsumerGroupDescribeRequest(Message):
    group_ids: tuple[str, ...]
    include_authorized_operations: bool

class ConsumerGroupDescribeResponse(Message):
    throttle_time: int
    groups: tuple[ConsumerGroupDescribeResponseDescribedGroup, ...]

class ConsumerGroupDescribeResponseDescribedGroup(Message):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[ConsumerGroupDescribeResponseMember, ...]
    authorized_operations: int

class ConsumerGroupDescribeResponseMember(Message):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeResponseAssignment
    target_assignment: ConsumerGroupDescribeResponseAssignment
    member_type: int  # 1+

class ConsumerGroupDescribeResponseAssignment(Message):
    topic_partitions: tuple[ConsumerGroupDescribeResponseTopicPartitions, ...]

class ConsumerGroupDescribeResponseTopicPartitions(Message):
    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]

class ConsumerGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout: int
    subscribed_topic_names: tuple[str, ...] | None
    subscribed_topic_regex: str | None  # 1+
    server_assignor: str | None
    topic_partitions: tuple[ConsumerGroupHeartbeatRequestTopicPartitions, ...] | None

class ConsumerGroupHeartbeatRequestTopicPartitions(Message):
    topic_id: UUID
    partitions: tuple[int, ...]

class ConsumerGroupHeartbeatResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval: int
    assignment: ConsumerGroupHeartbeatResponseAssignment | None

class ConsumerGroupHeartbeatResponseAssignment(Message):
    topic_partitions: tuple[ConsumerGroupHeartbeatResponseTopicPartitions, ...]

class ConsumerGroupHeartbeatResponseTopicPartitions(Message):
    topic_id: UUID
    partitions: tuple[int, ...]

class ControllerRegistrationRequest(Message):
    controller_id: int
    incarnation_id: UUID
    zk_migration_ready: bool
    listeners: tuple[ControllerRegistrationRequestListener, ...]
    features: tuple[Feature, ...]

class ControllerRegistrationRequestListener(Message):
    name: str
    host: str
    port: int
    security_protocol: int

class ControllerRegistrationResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None

class CreateAclsRequest(Message):
    creations: tuple[AclCreation, ...]

class AclCreation(Message):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class CreateAclsResponse(Message):
    throttle_time: int
    results: tuple[AclCreationResult, ...]

class AclCreationResult(Message):
    error_code: int
    error_message: str | None

class CreateDelegationTokenRequest(Message):
    owner_principal_type: str | None  # 3+
    owner_principal_name: str | None  # 3+
    renewers: tuple[CreatableRenewers, ...]
    max_lifetime: int

class CreatableRenewers(Message):
    principal_type: str
    principal_name: str

class CreateDelegationTokenResponse(Message):
    error_code: int
    principal_type: str
    principal_name: str
    token_requester_principal_type: str  # 3+
    token_requester_principal_name: str  # 3+
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    token_id: str
    hmac: bytes
    throttle_time: int

class CreatePartitionsRequest(Message):
    topics: tuple[CreatePartitionsTopic, ...]
    timeout: int
    validate_only: bool

class CreatePartitionsTopic(Message):
    name: str
    count: int
    assignments: tuple[CreatePartitionsAssignment, ...] | None

class CreatePartitionsAssignment(Message):
    broker_ids: tuple[int, ...]

class CreatePartitionsResponse(Message):
    throttle_time: int
    results: tuple[CreatePartitionsTopicResult, ...]

class CreatePartitionsTopicResult(Message):
    name: str
    error_code: int
    error_message: str | None

class CreateTopicsRequest(Message):
    topics: tuple[CreatableTopic, ...]
    timeout: int
    validate_only: bool

class CreatableTopic(Message):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: tuple[CreatableReplicaAssignment, ...]
    configs: tuple[CreatableTopicConfig, ...]

class CreatableReplicaAssignment(Message):
    partition_index: int
    broker_ids: tuple[int, ...]

class CreatableTopicConfig(Message):
    name: str
    value: str | None

class CreateTopicsResponse(Message):
    throttle_time: int
    topics: tuple[CreatableTopicResult, ...]

class CreatableTopicResult(Message):
    name: str
    topic_id: UUID  # 7+
    error_code: int
    error_message: str | None
    topic_config_error_code: int  # 5+
    num_partitions: int  # 5+
    replication_factor: int  # 5+
    configs: tuple[CreatableTopicConfigs, ...] | None  # 5+

class CreatableTopicConfigs(Message):
    name: str  # 5+
    value: str | None  # 5+
    read_only: bool  # 5+
    config_source: int  # 5+
    is_sensitive: bool  # 5+

class DeleteAclsRequest(Message):
    filters: tuple[DeleteAclsFilter, ...]

class DeleteAclsFilter(Message):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class DeleteAclsResponse(Message):
    throttle_time: int
    filter_results: tuple[DeleteAclsFilterResult, ...]

class DeleteAclsFilterResult(Message):
    error_code: int
    error_message: str | None
    matching_acls: tuple[DeleteAclsMatchingAcl, ...]

class DeleteAclsMatchingAcl(Message):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class DeleteGroupsRequest(Message):
    groups_names: tuple[str, ...]

class DeleteGroupsResponse(Message):
    throttle_time: int
    results: tuple[DeletableGroupResult, ...]

class DeletableGroupResult(Message):
    group_id: str
    error_code: int
    error_message: str | None  # 3+

class DeleteRecordsRequest(Message):
    topics: tuple[DeleteRecordsTopic, ...]
    timeout: int

class DeleteRecordsTopic(Message):
    name: str
    partitions: tuple[DeleteRecordsPartition, ...]

class DeleteRecordsPartition(Message):
    partition_index: int
    offset: int

class DeleteRecordsResponse(Message):
    throttle_time: int
    topics: tuple[DeleteRecordsTopicResult, ...]

class DeleteRecordsTopicResult(Message):
    name: str
    partitions: tuple[DeleteRecordsPartitionResult, ...]

class DeleteRecordsPartitionResult(Message):
    partition_index: int
    low_watermark: int
    error_code: int

class DeleteShareGroupOffsetsRequest(Message):
    group_id: str
    topics: tuple[DeleteShareGroupOffsetsRequestTopic, ...]

class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: str

class DeleteShareGroupOffsetsResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    responses: tuple[DeleteShareGroupOffsetsResponseTopic, ...]

class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: str
    topic_id: UUID
    error_code: int
    error_message: str | None

class DeleteShareGroupStateRequest(Message):
    group_id: str
    topics: tuple[DeleteStateData, ...]

class DeleteStateData(Message):
    topic_id: UUID
    partitions: tuple[DeleteShareGroupStateRequestPartitionData, ...]

class DeleteShareGroupStateRequestPartitionData(Message):
    partition: int

class DeleteShareGroupStateResponse(Message):
    results: tuple[DeleteStateResult, ...]

class DeleteStateResult(Message):
    topic_id: UUID
    partitions: tuple[DeleteShareGroupStateResponsePartitionResult, ...]

class DeleteShareGroupStateResponsePartitionResult(Message):
    partition: int
    error_code: int
    error_message: str | None

class DeleteTopicsRequest(Message):
    topics: tuple[DeleteTopicState, ...]  # 6+
    topic_names: tuple[str, ...]  # 1-5
    timeout: int

class DeleteTopicState(Message):
    name: str | None  # 6+
    topic_id: UUID  # 6+

class DeleteTopicsResponse(Message):
    throttle_time: int
    responses: tuple[DeletableTopicResult, ...]

class DeletableTopicResult(Message):
    name: str | None
    topic_id: UUID  # 6+
    error_code: int
    error_message: str | None  # 5+

class DescribeAclsRequest(Message):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class DescribeAclsResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    resources: tuple[DescribeAclsResource, ...]

class DescribeAclsResource(Message):
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: tuple[AclDescription, ...]

class AclDescription(Message):
    principal: str
    host: str
    operation: int
    permission_type: int

class DescribeClientQuotasRequest(Message):
    components: tuple[ComponentData, ...]
    strict: bool

class ComponentData(Message):
    entity_type: str
    match_type: int
    match: str | None

class DescribeClientQuotasResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    entries: tuple[DescribeClientQuotasResponseEntryData, ...] | None

class DescribeClientQuotasResponseEntryData(Message):
    entity: tuple[EntityData, ...]
    values: tuple[ValueData, ...]

class ValueData(Message):
    key: str
    value: float

class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool
    endpoint_type: int  # 1+
    include_fenced_brokers: bool  # 2+

class DescribeClusterResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    endpoint_type: int  # 1+
    cluster_id: str
    controller_id: int
    brokers: tuple[DescribeClusterBroker, ...]
    cluster_authorized_operations: int

class DescribeClusterBroker(Message):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool  # 2+

class DescribeConfigsRequest(Message):
    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: bool
    include_documentation: bool  # 3+

class DescribeConfigsResource(Message):
    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None

class DescribeConfigsResponse(Message):
    throttle_time: int
    results: tuple[DescribeConfigsResult, ...]

class DescribeConfigsResult(Message):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: tuple[DescribeConfigsResourceResult, ...]

class DescribeConfigsResourceResult(Message):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: tuple[DescribeConfigsSynonym, ...]
    config_type: int  # 3+
    documentation: str | None  # 3+

class DescribeConfigsSynonym(Message):
    name: str
    value: str | None
    source: int

class DescribeDelegationTokenRequest(Message):
    owners: tuple[DescribeDelegationTokenOwner, ...] | None

class DescribeDelegationTokenOwner(Message):
    principal_type: str
    principal_name: str

class DescribeDelegationTokenResponse(Message):
    error_code: int
    tokens: tuple[DescribedDelegationToken, ...]
    throttle_time: int

class DescribedDelegationToken(Message):
    principal_type: str
    principal_name: str
    token_requester_principal_type: str  # 3+
    token_requester_principal_name: str  # 3+
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    token_id: str
    hmac: bytes
    renewers: tuple[DescribedDelegationTokenRenewer, ...]

class DescribedDelegationTokenRenewer(Message):
    principal_type: str
    principal_name: str

class DescribeGroupsRequest(Message):
    groups: tuple[str, ...]
    include_authorized_operations: bool  # 3+

class DescribeGroupsResponse(Message):
    throttle_time: int  # 1+
    groups: tuple[DescribeGroupsResponseDescribedGroup, ...]

class DescribeGroupsResponseDescribedGroup(Message):
    error_code: int
    error_message: str | None  # 6+
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: tuple[DescribedGroupMember, ...]
    authorized_operations: int  # 3+

class DescribedGroupMember(Message):
    member_id: str
    group_instance_id: str | None  # 4+
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes

class DescribeLogDirsRequest(Message):
    topics: tuple[DescribableLogDirTopic, ...] | None

class DescribableLogDirTopic(Message):
    topic: str
    partitions: tuple[int, ...]

class DescribeLogDirsResponse(Message):
    throttle_time: int
    error_code: int  # 3+
    results: tuple[DescribeLogDirsResult, ...]

class DescribeLogDirsResult(Message):
    error_code: int
    log_dir: str
    topics: tuple[DescribeLogDirsTopic, ...]
    total_bytes: int  # 4+
    usable_bytes: int  # 4+
    is_cordoned: bool  # 5+

class DescribeLogDirsTopic(Message):
    name: str
    partitions: tuple[DescribeLogDirsPartition, ...]

class DescribeLogDirsPartition(Message):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool

class DescribeLostLettersRequest(Message):
    groups: tuple[str, ...]

class DescribeLostLettersResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    groups: tuple[LostLetters, ...]

class LostLetters(Message):
    group_id: str
    topic: str
    partition: int
    first_offset: int
    timestamp_ms: int
    message: str

class DescribeProducersRequest(Message):
    topics: tuple[DescribeProducersRequestTopicRequest, ...]

class DescribeProducersRequestTopicRequest(Message):
    name: str
    partition_indexes: tuple[int, ...]

class DescribeProducersResponse(Message):
    throttle_time: int
    topics: tuple[TopicResponse, ...]

class TopicResponse(Message):
    name: str
    partitions: tuple[PartitionResponse, ...]

class PartitionResponse(Message):
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: tuple[ProducerState, ...]

class ProducerState(Message):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int

class DescribeQuorumRequest(Message):
    topics: tuple[DescribeQuorumRequestTopicData, ...]

class DescribeQuorumRequestTopicData(Message):
    topic_name: str
    partitions: tuple[DescribeQuorumRequestPartitionData, ...]

class DescribeQuorumRequestPartitionData(Message):
    partition_index: int

class DescribeQuorumResponse(Message):
    error_code: int
    error_message: str | None  # 2+
    topics: tuple[DescribeQuorumResponseTopicData, ...]
    nodes: tuple[Node, ...]  # 2+

class DescribeQuorumResponseTopicData(Message):
    topic_name: str
    partitions: tuple[DescribeQuorumResponsePartitionData, ...]

class DescribeQuorumResponsePartitionData(Message):
    partition_index: int
    error_code: int
    error_message: str | None  # 2+
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: tuple[DescribeQuorumResponseReplicaState, ...]
    observers: tuple[DescribeQuorumResponseReplicaState, ...]

class DescribeQuorumResponseReplicaState(Message):
    replica_id: int
    replica_directory_id: UUID  # 2+
    log_end_offset: int
    last_fetch_timestamp: int  # 1+
    last_caught_up_timestamp: int  # 1+

class Node(Message):
    node_id: int  # 2+
    listeners: tuple[DescribeQuorumResponseListener, ...]  # 2+

class DescribeQuorumResponseListener(Message):
    name: str  # 2+
    host: str  # 2+
    port: int  # 2+

class DescribeShareGroupOffsetsRequest(Message):
    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...]

class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: str
    topics: tuple[DescribeShareGroupOffsetsRequestTopic, ...] | None

class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: str
    partitions: tuple[int, ...]

class DescribeShareGroupOffsetsResponse(Message):
    throttle_time: int
    groups: tuple[DescribeShareGroupOffsetsResponseGroup, ...]

class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: str
    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...]
    error_code: int
    error_message: str | None

class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: str
    topic_id: UUID
    partitions: tuple[DescribeShareGroupOffsetsResponsePartition, ...]

class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: int
    start_offset: int
    leader_epoch: int
    lag: int  # 1+
    error_code: int
    error_message: str | None

class DescribeSharePartitionsRequest(Message):
    groups: tuple[str, ...]

class DescribeSharePartitionsResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    partitions: tuple[DescribedSharePartition, ...]

class DescribedSharePartition(Message):
    group_id: str
    topic: str
    partition: int
    start_offset: int
    acquired_records: int
    redelivered_records: int
    waiting_records: int
    archived_records: int

class DescribeTopicPartitionsRequest(Message):
    topics: tuple[DescribeTopicPartitionsRequestTopicRequest, ...]
    response_partition_limit: int
    cursor: Cursor | None

class DescribeTopicPartitionsRequestTopicRequest(Message):
    name: str

class Cursor(Message):
    topic_name: str
    partition_index: int

class DescribeTopicPartitionsResponse(Message):
    throttle_time: int
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...]
    next_cursor: Cursor | None

class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...]
    topic_authorized_operations: int

class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None
    offline_replicas: tuple[int, ...]

class DescribeTransactionsRequest(Message):
    transactional_ids: tuple[str, ...]

class DescribeTransactionsResponse(Message):
    throttle_time: int
    transaction_states: tuple[DescribeTransactionsResponseTransactionState, ...]

class DescribeTransactionsResponseTransactionState(Message):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout: int
    transaction_start_time: int
    producer_id: int
    producer_epoch: int
    topics: tuple[DescribeTransactionsResponseTopicData, ...]

class DescribeTransactionsResponseTopicData(Message):
    topic: str
    partitions: tuple[int, ...]

class DescribeUserScramCredentialsRequest(Message):
    users: tuple[UserName, ...] | None

class UserName(Message):
    name: str

class DescribeUserScramCredentialsResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    results: tuple[DescribeUserScramCredentialsResult, ...]

class DescribeUserScramCredentialsResult(Message):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: tuple[CredentialInfo, ...]

class CredentialInfo(Message):
    mechanism: int
    iterations: int

class DisconnectClientsRequest(Message):
    principal: str | None
    client_id: str | None

class DisconnectClientsResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    closed: int

class ElectLeadersRequest(Message):
    election_type: int  # 1+
    topic_partitions: tuple[ElectLeadersRequestTopicPartitions, ...] | None
    timeout: int

class ElectLeadersRequestTopicPartitions(Message):
    topic: str
    partitions: tuple[int, ...]

class ElectLeadersResponse(Message):
    throttle_time: int
    error_code: int  # 1+
    replica_election_results: tuple[ReplicaElectionResult, ...]

class ReplicaElectionResult(Message):
    topic: str
    partition_result: tuple[ElectLeadersResponsePartitionResult, ...]

class ElectLeadersResponsePartitionResult(Message):
    partition_id: int
    error_code: int
    error_message: str | None

class EndQuorumEpochRequest(Message):
    cluster_id: str | None
    topics: tuple[EndQuorumEpochRequestTopicData, ...]
    leader_endpoints: tuple[LeaderEndpoint, ...]  # 1+

class EndQuorumEpochRequestTopicData(Message):
    topic_name: str
    partitions: tuple[EndQuorumEpochRequestPartitionData, ...]

class EndQuorumEpochRequestPartitionData(Message):
    partition_index: int
    leader_id: int
    leader_epoch: int
    preferred_successors: tuple[int, ...]  # 0
    preferred_candidates: tuple[ReplicaInfo, ...]  # 1+

class ReplicaInfo(Message):
    candidate_id: int  # 1+
    candidate_directory_id: UUID  # 1+

class EndQuorumEpochResponse(Message):
    error_code: int
    topics: tuple[EndQuorumEpochResponseTopicData, ...]
    node_endpoints: tuple[EndQuorumEpochResponseNodeEndpoint, ...]  # 1+

class EndQuorumEpochResponseTopicData(Message):
    topic_name: str
    partitions: tuple[EndQuorumEpochResponsePartitionData, ...]

class EndQuorumEpochResponsePartitionData(Message):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int

class EndQuorumEpochResponseNodeEndpoint(Message):
    node_id: int  # 1+
    host: str  # 1+
    port: int  # 1+

class EndTxnRequest(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool

class EndTxnResponse(Message):
    throttle_time: int
    error_code: int
    producer_id: int  # 5+
    producer_epoch: int  # 5+

class EnvelopeRequest(Message):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes

class EnvelopeResponse(Message):
    response_data: bytes | None
    error_code: int

class ExpireDelegationTokenRequest(Message):
    hmac: bytes
    expiry_time_period: int

class ExpireDelegationTokenResponse(Message):
    error_code: int
    expiry_timestamp: int
    throttle_time: int

class FetchRequest(Message):
    cluster_id: str | None  # 12+
    replica_id: int  # 4-14
    replica_state: FetchRequestReplicaState  # 15+
    max_wait: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int  # 7+
    session_epoch: int  # 7+
    topics: tuple[FetchRequestFetchTopic, ...]
    forgotten_topics_data: tuple[FetchRequestForgottenTopic, ...]  # 7+
    rack_id: str  # 11+

class FetchRequestReplicaState(Message):
    replica_id: int  # 15+
    replica_epoch: int  # 15+

class FetchRequestFetchTopic(Message):
    topic: str  # 4-12
    topic_id: UUID  # 13+
    partitions: tuple[FetchRequestFetchPartition, ...]

class FetchRequestFetchPartition(Message):
    partition: int
    current_leader_epoch: int  # 9+
    fetch_offset: int
    last_fetched_epoch: int  # 12+
    log_start_offset: int  # 5+
    partition_max_bytes: int
    replica_directory_id: UUID  # 17+
    high_watermark: int  # 18+

class FetchRequestForgottenTopic(Message):
    topic: str  # 7-12
    topic_id: UUID  # 13+
    partitions: tuple[int, ...]  # 7+

class FetchResponse(Message):
    throttle_time: int
    error_code: int  # 7+
    session_id: int  # 7+
    responses: tuple[FetchableTopicResponse, ...]
    node_endpoints: tuple[FetchResponseNodeEndpoint, ...]  # 16+

class FetchableTopicResponse(Message):
    topic: str  # 4-12
    topic_id: UUID  # 13+
    partitions: tuple[FetchResponsePartitionData, ...]

class FetchResponsePartitionData(Message):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int  # 5+
    diverging_epoch: FetchResponseEpochEndOffset  # 12+
    current_leader: LeaderIdAndEpoch  # 12+
    snapshot_id: SnapshotId  # 12+
    aborted_transactions: tuple[AbortedTransaction, ...] | None
    preferred_read_replica: int  # 11+
    records: Buffer | None

class FetchResponseEpochEndOffset(Message):
    epoch: int  # 12+
    end_offset: int  # 12+

class LeaderIdAndEpoch(Message):
    leader_id: int
    leader_epoch: int

class SnapshotId(Message):
    end_offset: int
    epoch: int

class AbortedTransaction(Message):
    producer_id: int
    first_offset: int

class FetchResponseNodeEndpoint(Message):
    node_id: int  # 16+
    host: str  # 16+
    port: int  # 16+
    rack: str | None  # 16+

class FetchSnapshotRequest(Message):
    cluster_id: str | None
    replica_id: int
    max_bytes: int
    topics: tuple[FetchSnapshotRequestTopicSnapshot, ...]

class FetchSnapshotRequestTopicSnapshot(Message):
    name: str
    partitions: tuple[FetchSnapshotRequestPartitionSnapshot, ...]

class FetchSnapshotRequestPartitionSnapshot(Message):
    partition: int
    current_leader_epoch: int
    snapshot_id: SnapshotId
    position: int
    replica_directory_id: UUID  # 1+

class FetchSnapshotResponse(Message):
    throttle_time: int
    error_code: int
    topics: tuple[FetchSnapshotResponseTopicSnapshot, ...]
    node_endpoints: tuple[FetchSnapshotResponseNodeEndpoint, ...]  # 1+

class FetchSnapshotResponseTopicSnapshot(Message):
    name: str
    partitions: tuple[FetchSnapshotResponsePartitionSnapshot, ...]

class FetchSnapshotResponsePartitionSnapshot(Message):
    index: int
    error_code: int
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch
    size: int
    position: int
    unaligned_records: Buffer | None

class FetchSnapshotResponseNodeEndpoint(Message):
    node_id: int  # 1+
    host: str  # 1+
    port: int  # 1+

class FindCoordinatorRequest(Message):
    key: str  # 0-3
    key_type: int  # 1+
    coordinator_keys: tuple[str, ...]  # 4+

class FindCoordinatorResponse(Message):
    throttle_time: int  # 1+
    error_code: int  # 0-3
    error_message: str | None  # 1-3
    node_id: int  # 0-3
    host: str  # 0-3
    port: int  # 0-3
    coordinators: tuple[Coordinator, ...]  # 4+

class Coordinator(Message):
    key: str  # 4+
    node_id: int  # 4+
    host: str  # 4+
    port: int  # 4+
    error_code: int  # 4+
    error_message: str | None  # 4+

class GetTelemetrySubscriptionsRequest(Message):
    client_instance_id: UUID

class GetTelemetrySubscriptionsResponse(Message):
    throttle_time: int
    error_code: int
    client_instance_id: UUID
    subscription_id: int
    accepted_compression_types: tuple[int, ...]
    push_interval: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: tuple[str, ...]

class HeartbeatRequest(Message):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None  # 3+

class HeartbeatResponse(Message):
    throttle_time: int  # 1+
    error_code: int

class IncrementalAlterConfigsRequest(Message):
    resources: tuple[IncrementalAlterConfigsRequestAlterConfigsResource, ...]
    validate_only: bool

class IncrementalAlterConfigsRequestAlterConfigsResource(Message):
    resource_type: int
    resource_name: str
    configs: tuple[IncrementalAlterConfigsRequestAlterableConfig, ...]

class IncrementalAlterConfigsRequestAlterableConfig(Message):
    name: str
    config_operation: int
    value: str | None

class IncrementalAlterConfigsResponse(Message):
    throttle_time: int
    responses: tuple[AlterConfigsResourceResponse, ...]

class InitProducerIdRequest(Message):
    transactional_id: str | None
    transaction_timeout: int
    producer_id: int  # 3+
    producer_epoch: int  # 3+
    enable2_pc: bool  # 6+
    keep_prepared_txn: bool  # 6+

class InitProducerIdResponse(Message):
    throttle_time: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int  # 6+
    ongoing_txn_producer_epoch: int  # 6+

class InitializeShareGroupStateRequest(Message):
    group_id: str
    topics: tuple[InitializeStateData, ...]

class InitializeStateData(Message):
    topic_id: UUID
    partitions: tuple[InitializeShareGroupStateRequestPartitionData, ...]

class InitializeShareGroupStateRequestPartitionData(Message):
    partition: int
    state_epoch: int
    start_offset: int

class InitializeShareGroupStateResponse(Message):
    results: tuple[InitializeStateResult, ...]

class InitializeStateResult(Message):
    topic_id: UUID
    partitions: tuple[InitializeShareGroupStateResponsePartitionResult, ...]

class InitializeShareGroupStateResponsePartitionResult(Message):
    partition: int
    error_code: int
    error_message: str | None

class JoinGroupRequest(Message):
    group_id: str
    session_timeout: int
    rebalance_timeout: int  # 1+
    member_id: str
    group_instance_id: str | None  # 5+
    protocol_type: str
    protocols: tuple[JoinGroupRequestProtocol, ...]
    reason: str | None  # 8+

class JoinGroupRequestProtocol(Message):
    name: str
    metadata: bytes

class JoinGroupResponse(Message):
    throttle_time: int  # 2+
    error_code: int
    generation_id: int
    protocol_type: str | None  # 7+
    protocol_name: str | None
    leader: str
    skip_assignment: bool  # 9+
    member_id: str
    members: tuple[JoinGroupResponseMember, ...]

class JoinGroupResponseMember(Message):
    member_id: str
    group_instance_id: str | None  # 5+
    metadata: bytes

class LeaveGroupRequest(Message):
    group_id: str
    member_id: str  # 0-2
    members: tuple[MemberIdentity, ...]  # 3+

class MemberIdentity(Message):
    member_id: str  # 3+
    group_instance_id: str | None  # 3+
    reason: str | None  # 5+

class LeaveGroupResponse(Message):
    throttle_time: int  # 1+
    error_code: int
    members: tuple[MemberResponse, ...]  # 3+

class MemberResponse(Message):
    member_id: str  # 3+
    group_instance_id: str | None  # 3+
    error_code: int  # 3+

class ListClientsRequest(Message):
    principal: str | None
    client_id: str | None
    only_producers: bool

class ListClientsResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    clients: tuple[ListedClient, ...]

class ListedClient(Message):
    principal: str
    client_id: str | None
    software_name: str
    software_version: str
    host: str
    port: int
    listener: str
    security_protocol: str
    tls_version: str | None
    tls_cipher: str | None
    mechanism: str | None
    connected_ms: int
    idle_ms: int
    bytes_in: int
    bytes_out: int
    client_instance_id: UUID
    pushed_metrics: int
    producer_id: int

class ListConfigResourcesRequest(Message):
    resource_types: tuple[int, ...]  # 1+

class ListConfigResourcesResponse(Message):
    throttle_time: int
    error_code: int
    config_resources: tuple[ConfigResource, ...]

class ConfigResource(Message):
    resource_name: str
    resource_type: int  # 1+

class ListGroupsRequest(Message):
    states_filter: tuple[str, ...]  # 4+
    types_filter: tuple[str, ...]  # 5+

class ListGroupsResponse(Message):
    throttle_time: int  # 1+
    error_code: int
    groups: tuple[ListedGroup, ...]

class ListedGroup(Message):
    group_id: str
    protocol_type: str
    group_state: str  # 4+
    group_type: str  # 5+

class ListOffsetsRequest(Message):
    replica_id: int
    isolation_level: int  # 2+
    topics: tuple[ListOffsetsTopic, ...]
    timeout: int  # 10+

class ListOffsetsTopic(Message):
    name: str
    partitions: tuple[ListOffsetsPartition, ...]

class ListOffsetsPartition(Message):
    partition_index: int
    current_leader_epoch: int  # 4+
    timestamp: int

class ListOffsetsResponse(Message):
    throttle_time: int  # 2+
    topics: tuple[ListOffsetsTopicResponse, ...]

class ListOffsetsTopicResponse(Message):
    name: str
    partitions: tuple[ListOffsetsPartitionResponse, ...]

class ListOffsetsPartitionResponse(Message):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int  # 4+

class ListPartitionReassignmentsRequest(Message):
    timeout: int
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None

class ListPartitionReassignmentsTopics(Message):
    name: str
    partition_indexes: tuple[int, ...]

class ListPartitionReassignmentsResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    topics: tuple[OngoingTopicReassignment, ...]

class OngoingTopicReassignment(Message):
    name: str
    partitions: tuple[OngoingPartitionReassignment, ...]

class OngoingPartitionReassignment(Message):
    partition_index: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]

class ListTransactionsRequest(Message):
    state_filters: tuple[str, ...]
    producer_id_filters: tuple[int, ...]
    duration_filter: int  # 1+
    transactional_id_pattern: str | None  # 2+

class ListTransactionsResponse(Message):
    throttle_time: int
    error_code: int
    unknown_state_filters: tuple[str, ...]
    transaction_states: tuple[ListTransactionsResponseTransactionState, ...]

class ListTransactionsResponseTransactionState(Message):
    transactional_id: str
    producer_id: int
    transaction_state: str

class MetadataRequest(Message):
    topics: tuple[MetadataRequestTopic, ...] | None
    allow_auto_topic_creation: bool  # 4+
    include_cluster_authorized_operations: bool  # 8-10
    include_topic_authorized_operations: bool  # 8+

class MetadataRequestTopic(Message):
    topic_id: UUID  # 10+
    name: str | None

class MetadataResponse(Message):
    throttle_time: int  # 3+
    brokers: tuple[MetadataResponseBroker, ...]
    cluster_id: str | None  # 2+
    controller_id: int  # 1+
    topics: tuple[MetadataResponseTopic, ...]
    cluster_authorized_operations: int  # 8-10
    error_code: int  # 13+

class MetadataResponseBroker(Message):
    node_id: int
    host: str
    port: int
    rack: str | None  # 1+

class MetadataResponseTopic(Message):
    error_code: int
    name: str | None
    topic_id: UUID  # 10+
    is_internal: bool  # 1+
    partitions: tuple[MetadataResponsePartition, ...]
    topic_authorized_operations: int  # 8+

class MetadataResponsePartition(Message):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int  # 7+
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    offline_replicas: tuple[int, ...]  # 5+

class OffsetCommitRequest(Message):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None  # 7+
    retention_time: int  # 2-4
    topics: tuple[OffsetCommitRequestTopic, ...]

class OffsetCommitRequestTopic(Message):
    name: str  # 2-9
    topic_id: UUID  # 10+
    partitions: tuple[OffsetCommitRequestPartition, ...]

class OffsetCommitRequestPartition(Message):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int  # 6+
    committed_metadata: str | None

class OffsetCommitResponse(Message):
    throttle_time: int  # 3+
    topics: tuple[OffsetCommitResponseTopic, ...]

class OffsetCommitResponseTopic(Message):
    name: str  # 2-9
    topic_id: UUID  # 10+
    partitions: tuple[OffsetCommitResponsePartition, ...]

class OffsetCommitResponsePartition(Message):
    partition_index: int
    error_code: int

class OffsetDeleteRequest(Message):
    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]

class OffsetDeleteRequestTopic(Message):
    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]

class OffsetDeleteRequestPartition(Message):
    partition_index: int

class OffsetDeleteResponse(Message):
    error_code: int
    throttle_time: int
    topics: tuple[OffsetDeleteResponseTopic, ...]

class OffsetDeleteResponseTopic(Message):
    name: str
    partitions: tuple[OffsetDeleteResponsePartition, ...]

class OffsetDeleteResponsePartition(Message):
    partition_index: int
    error_code: int

class OffsetFetchRequest(Message):
    group_id: str  # 1-7
    topics: tuple[OffsetFetchRequestTopic, ...] | None  # 1-7
    groups: tuple[OffsetFetchRequestGroup, ...]  # 8+
    require_stable: bool  # 7+

class OffsetFetchRequestTopic(Message):
    name: str  # 1-7
    partition_indexes: tuple[int, ...]  # 1-7

class OffsetFetchRequestGroup(Message):
    group_id: str  # 8+
    member_id: str | None  # 9+
    member_epoch: int  # 9+
    topics: tuple[OffsetFetchRequestTopics, ...] | None  # 8+

class OffsetFetchRequestTopics(Message):
    name: str  # 8-9
    topic_id: UUID  # 10+
    partition_indexes: tuple[int, ...]  # 8+

class OffsetFetchResponse(Message):
    throttle_time: int  # 3+
    topics: tuple[OffsetFetchResponseTopic, ...]  # 1-7
    error_code: int  # 2-7
    groups: tuple[OffsetFetchResponseGroup, ...]  # 8+

class OffsetFetchResponseTopic(Message):
    name: str  # 1-7
    partitions: tuple[OffsetFetchResponsePartition, ...]  # 1-7

class OffsetFetchResponsePartition(Message):
    partition_index: int  # 1-7
    committed_offset: int  # 1-7
    committed_leader_epoch: int  # 5-7
    metadata: str | None  # 1-7
    error_code: int  # 1-7

class OffsetFetchResponseGroup(Message):
    group_id: str  # 8+
    topics: tuple[OffsetFetchResponseTopics, ...]  # 8+
    error_code: int  # 8+

class OffsetFetchResponseTopics(Message):
    name: str  # 8-9
    topic_id: UUID  # 10+
    partitions: tuple[OffsetFetchResponsePartitions, ...]  # 8+

class OffsetFetchResponsePartitions(Message):
    partition_index: int  # 8+
    committed_offset: int  # 8+
    committed_leader_epoch: int  # 8+
    metadata: str | None  # 8+
    error_code: int  # 8+

class OffsetForLeaderEpochRequest(Message):
    replica_id: int  # 3+
    topics: tuple[OffsetForLeaderTopic, ...]

class OffsetForLeaderTopic(Message):
    topic: str
    partitions: tuple[OffsetForLeaderPartition, ...]

class OffsetForLeaderPartition(Message):
    partition: int
    current_leader_epoch: int
    leader_epoch: int

class OffsetForLeaderEpochResponse(Message):
    throttle_time: int
    topics: tuple[OffsetForLeaderTopicResult, ...]

class OffsetForLeaderTopicResult(Message):
    topic: str
    partitions: tuple[OffsetForLeaderEpochResponseEpochEndOffset, ...]

class OffsetForLeaderEpochResponseEpochEndOffset(Message):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int

class ProduceRequest(Message):
    transactional_id: str | None
    acks: int
    timeout: int
    topic_data: tuple[TopicProduceData, ...]

class TopicProduceData(Message):
    name: str  # 3-12
    topic_id: UUID  # 13+
    partition_data: tuple[PartitionProduceData, ...]

class PartitionProduceData(Message):
    index: int
    records: Buffer | None

class ProduceResponse(Message):
    responses: tuple[TopicProduceResponse, ...]
    throttle_time: int
    node_endpoints: tuple[ProduceResponseNodeEndpoint, ...]  # 10+

class TopicProduceResponse(Message):
    name: str  # 3-12
    topic_id: UUID  # 13+
    partition_responses: tuple[PartitionProduceResponse, ...]

class PartitionProduceResponse(Message):
    index: int
    error_code: int
    base_offset: int
    log_append_time: int
    log_start_offset: int  # 5+
    record_errors: tuple[BatchIndexAndErrorMessage, ...]  # 8+
    error_message: str | None  # 8+
    current_leader: LeaderIdAndEpoch  # 10+

class BatchIndexAndErrorMessage(Message):
    batch_index: int  # 8+
    batch_index_error_message: str | None  # 8+

class ProduceResponseNodeEndpoint(Message):
    node_id: int  # 10+
    host: str  # 10+
    port: int  # 10+
    rack: str | None  # 10+

class PushTelemetryRequest(Message):
    client_instance_id: UUID
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes

class PushTelemetryResponse(Message):
    throttle_time: int
    error_code: int

class ReadShareGroupStateRequest(Message):
    group_id: str
    topics: tuple[ReadStateData, ...]

class ReadStateData(Message):
    topic_id: UUID
    partitions: tuple[ReadShareGroupStateRequestPartitionData, ...]

class ReadShareGroupStateRequestPartitionData(Message):
    partition: int
    leader_epoch: int

class ReadShareGroupStateResponse(Message):
    results: tuple[ReadStateResult, ...]

class ReadStateResult(Message):
    topic_id: UUID
    partitions: tuple[ReadShareGroupStateResponsePartitionResult, ...]

class ReadShareGroupStateResponsePartitionResult(Message):
    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    start_offset: int
    state_batches: tuple[StateBatch, ...]

class StateBatch(Message):
    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int

class ReadShareGroupStateSummaryRequest(Message):
    group_id: str
    topics: tuple[ReadStateSummaryData, ...]

class ReadStateSummaryData(Message):
    topic_id: UUID
    partitions: tuple[ReadShareGroupStateSummaryRequestPartitionData, ...]

class ReadShareGroupStateSummaryRequestPartitionData(Message):
    partition: int
    leader_epoch: int

class ReadShareGroupStateSummaryResponse(Message):
    results: tuple[ReadStateSummaryResult, ...]

class ReadStateSummaryResult(Message):
    topic_id: UUID
    partitions: tuple[ReadShareGroupStateSummaryResponsePartitionResult, ...]

class ReadShareGroupStateSummaryResponsePartitionResult(Message):
    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int  # 1+

class RemoveRaftVoterRequest(Message):
    cluster_id: str | None
    voter_id: int
    voter_directory_id: UUID

class RemoveRaftVoterResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None

class RenewDelegationTokenRequest(Message):
    hmac: bytes
    renew_period: int

class RenewDelegationTokenResponse(Message):
    error_code: int
    expiry_timestamp: int
    throttle_time: int

class SaslAuthenticateRequest(Message):
    auth_bytes: bytes

class SaslAuthenticateResponse(Message):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime: int  # 1+

class SaslHandshakeRequest(Message):
    mechanism: str

class SaslHandshakeResponse(Message):
    error_code: int
    mechanisms: tuple[str, ...]

class ShareAcknowledgeRequest(Message):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool  # 2+
    topics: tuple[AcknowledgeTopic, ...]

class AcknowledgeTopic(Message):
    topic_id: UUID
    partitions: tuple[AcknowledgePartition, ...]

class AcknowledgePartition(Message):
    partition_index: int
    acknowledgement_batches: tuple[AcknowledgementBatch, ...]

class AcknowledgementBatch(Message):
    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...]

class ShareAcknowledgeResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout: int  # 2+
    responses: tuple[ShareAcknowledgeTopicResponse, ...]
    node_endpoints: tuple[ShareAcknowledgeResponseNodeEndpoint, ...]

class ShareAcknowledgeTopicResponse(Message):
    topic_id: UUID
    partitions: tuple[ShareAcknowledgeResponsePartitionData, ...]

class ShareAcknowledgeResponsePartitionData(Message):
    partition_index: int
    error_code: int
    error_message: str | None
    current_leader: LeaderIdAndEpoch

class ShareAcknowledgeResponseNodeEndpoint(Message):
    node_id: int
    host: str
    port: int
    rack: str | None

class ShareFetchRequest(Message):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int  # 2+
    is_renew_ack: bool  # 2+
    topics: tuple[ShareFetchRequestFetchTopic, ...]
    forgotten_topics_data: tuple[ShareFetchRequestForgottenTopic, ...]

class ShareFetchRequestFetchTopic(Message):
    topic_id: UUID
    partitions: tuple[ShareFetchRequestFetchPartition, ...]

class ShareFetchRequestFetchPartition(Message):
    partition_index: int
    partition_max_bytes: int  # 1
    acknowledgement_batches: tuple[AcknowledgementBatch, ...]

class ShareFetchRequestForgottenTopic(Message):
    topic_id: UUID
    partitions: tuple[int, ...]

class ShareFetchResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout: int
    responses: tuple[ShareFetchableTopicResponse, ...]
    node_endpoints: tuple[ShareFetchResponseNodeEndpoint, ...]

class ShareFetchableTopicResponse(Message):
    topic_id: UUID
    partitions: tuple[ShareFetchResponsePartitionData, ...]

class ShareFetchResponsePartitionData(Message):
    partition_index: int
    error_code: int
    error_message: str | None
    acknowledge_error_code: int
    acknowledge_error_message: str | None
    current_leader: LeaderIdAndEpoch
    records: Buffer | None
    acquired_records: tuple[AcquiredRecords, ...]

class AcquiredRecords(Message):
    first_offset: int
    last_offset: int
    delivery_count: int

class ShareFetchResponseNodeEndpoint(Message):
    node_id: int
    host: str
    port: int
    rack: str | None

class ShareGroupDescribeRequest(Message):
    group_ids: tuple[str, ...]
    include_authorized_operations: bool

class ShareGroupDescribeResponse(Message):
    throttle_time: int
    groups: tuple[ShareGroupDescribeResponseDescribedGroup, ...]

class ShareGroupDescribeResponseDescribedGroup(Message):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[ShareGroupDescribeResponseMember, ...]
    authorized_operations: int

class ShareGroupDescribeResponseMember(Message):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    assignment: ShareGroupDescribeResponseAssignment

class ShareGroupDescribeResponseAssignment(Message):
    topic_partitions: tuple[ShareGroupDescribeResponseTopicPartitions, ...]

class ShareGroupDescribeResponseTopicPartitions(Message):
    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]

class ShareGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: tuple[str, ...] | None

class ShareGroupHeartbeatResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval: int
    assignment: ShareGroupHeartbeatResponseAssignment | None

class ShareGroupHeartbeatResponseAssignment(Message):
    topic_partitions: tuple[ShareGroupHeartbeatResponseTopicPartitions, ...]

class ShareGroupHeartbeatResponseTopicPartitions(Message):
    topic_id: UUID
    partitions: tuple[int, ...]

class StoreUserScramCredentialsRequest(Message):
    credentials: tuple[StoredScramCredential, ...]

class StoredScramCredential(Message):
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

class StoreUserScramCredentialsResponse(Message):
    throttle_time_ms: int
    results: tuple[StoreUserScramCredentialsResult, ...]

class StoreUserScramCredentialsResult(Message):
    user: str
    mechanism: int
    error_code: int
    error_message: str | None

class StreamsGroupDescribeRequest(Message):
    group_ids: tuple[str, ...]
    include_authorized_operations: bool
    include_topology_description: bool  # 1+

class StreamsGroupDescribeResponse(Message):
    throttle_time: int
    groups: tuple[StreamsGroupDescribeResponseDescribedGroup, ...]

class StreamsGroupDescribeResponseDescribedGroup(Message):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    topology: StreamsGroupDescribeResponseTopology | None
    members: tuple[StreamsGroupDescribeResponseMember, ...]
    authorized_operations: int
    topology_description: TopologyDescription | None  # 1+
    topology_description_status: int  # 1+
    assignor_name: str | None  # 1+

class StreamsGroupDescribeResponseTopology(Message):
    epoch: int
    subtopologies: tuple[StreamsGroupDescribeResponseSubtopology, ...] | None

class StreamsGroupDescribeResponseSubtopology(Message):
    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_source_topics: tuple[TopicInfo, ...]

class TopicInfo(Message):
    name: str
    partitions: int
    replication_factor: int
    topic_configs: tuple[KeyValue, ...]

class KeyValue(Message):
    key: str
    value: str

class StreamsGroupDescribeResponseMember(Message):
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: Endpoint | None
    client_tags: tuple[KeyValue, ...]
    task_offsets: tuple[TaskOffset, ...]
    task_end_offsets: tuple[TaskOffset, ...]
    assignment: StreamsGroupDescribeResponseAssignment
    target_assignment: StreamsGroupDescribeResponseAssignment
    is_classic: bool

class Endpoint(Message):
    host: str
    port: int

class TaskOffset(Message):
    subtopology_id: str
    partition: int
    offset: int

class StreamsGroupDescribeResponseAssignment(Message):
    active_tasks: tuple[TaskIds, ...]
    standby_tasks: tuple[TaskIds, ...]
    warmup_tasks: tuple[TaskIds, ...]

class TaskIds(Message):
    subtopology_id: str
    partitions: tuple[int, ...]

class TopologyDescription(Message):
    subtopologies: tuple[TopologyDescriptionSubtopology, ...]
    global_stores: tuple[TopologyDescriptionGlobalStore, ...]

class TopologyDescriptionSubtopology(Message):
    subtopology_id: str
    nodes: tuple[TopologyDescriptionNode, ...]

class TopologyDescriptionNode(Message):
    name: str
    node_type: int
    source_topics: tuple[str, ...]
    sink_topic: str | None
    stores: tuple[str, ...]
    successors: tuple[str, ...]

class TopologyDescriptionGlobalStore(Message):
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode

class StreamsGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout: int
    topology: StreamsGroupHeartbeatRequestTopology | None
    active_tasks: tuple[TaskIds, ...] | None
    standby_tasks: tuple[TaskIds, ...] | None
    warmup_tasks: tuple[TaskIds, ...] | None
    process_id: str | None
    user_endpoint: Endpoint | None
    client_tags: tuple[KeyValue, ...] | None
    task_offsets: tuple[TaskOffset, ...] | None
    task_end_offsets: tuple[TaskOffset, ...] | None
    shutdown_application: bool

class StreamsGroupHeartbeatRequestTopology(Message):
    epoch: int
    subtopologies: tuple[StreamsGroupHeartbeatRequestSubtopology, ...]

class StreamsGroupHeartbeatRequestSubtopology(Message):
    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[TopicInfo, ...]
    copartition_groups: tuple[CopartitionGroup, ...]

class CopartitionGroup(Message):
    source_topics: tuple[int, ...]
    source_topic_regex: tuple[int, ...]
    repartition_source_topics: tuple[int, ...]

class StreamsGroupHeartbeatResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    member_id: str
    member_epoch: int
    heartbeat_interval: int
    acceptable_recovery_lag_legacy: int  # 0
    task_offset_interval: int
    acceptable_recovery_lag: int  # 1+
    status: tuple[Status, ...] | None
    active_tasks: tuple[TaskIds, ...] | None
    standby_tasks: tuple[TaskIds, ...] | None
    warmup_tasks: tuple[TaskIds, ...] | None
    topology_description_required: bool  # 1+
    endpoint_information_epoch: int
    partitions_by_user_endpoint: tuple[EndpointToPartitions, ...] | None

class Status(Message):
    status_code: int
    status_detail: str

class EndpointToPartitions(Message):
    user_endpoint: Endpoint
    active_partitions: tuple[TopicPartition, ...]
    standby_partitions: tuple[TopicPartition, ...]

class TopicPartition(Message):
    topic: str
    partitions: tuple[int, ...]

class StreamsGroupTopologyDescriptionUpdateRequest(Message):
    group_id: str
    member_id: str
    topology_epoch: int
    topology_description: TopologyDescription

class StreamsGroupTopologyDescriptionUpdateResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None

class SyncGroupRequest(Message):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None  # 3+
    protocol_type: str | None  # 5+
    protocol_name: str | None  # 5+
    assignments: tuple[SyncGroupRequestAssignment, ...]

class SyncGroupRequestAssignment(Message):
    member_id: str
    assignment: bytes

class SyncGroupResponse(Message):
    throttle_time: int  # 1+
    error_code: int
    protocol_type: str | None  # 5+
    protocol_name: str | None  # 5+
    assignment: bytes

class TxnOffsetCommitRequest(Message):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id_or_member_epoch: int  # 3+
    member_id: str  # 3+
    group_instance_id: str | None  # 3+
    topics: tuple[TxnOffsetCommitRequestTopic, ...]

class TxnOffsetCommitRequestTopic(Message):
    name: str  # 0-5
    topic_id: UUID  # 6+
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]

class TxnOffsetCommitRequestPartition(Message):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int  # 2+
    committed_metadata: str | None

class TxnOffsetCommitResponse(Message):
    throttle_time: int
    topics: tuple[TxnOffsetCommitResponseTopic, ...]

class TxnOffsetCommitResponseTopic(Message):
    name: str  # 0-5
    topic_id: UUID  # 6+
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]

class TxnOffsetCommitResponsePartition(Message):
    partition_index: int
    error_code: int

class UnregisterBrokerRequest(Message):
    broker_id: int

class UnregisterBrokerResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None

class UnregisterControllerRequest(Message):
    controller_id: int

class UnregisterControllerResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None

class UpdateFeaturesRequest(Message):
    timeout: int
    feature_updates: tuple[FeatureUpdateKey, ...]
    validate_only: bool  # 1+

class FeatureUpdateKey(Message):
    feature: str
    max_version_level: int
    allow_downgrade: bool  # 0
    upgrade_type: int  # 1+

class UpdateFeaturesResponse(Message):
    throttle_time: int
    error_code: int
    error_message: str | None
    results: tuple[UpdatableFeatureResult, ...]  # 0-1

class UpdatableFeatureResult(Message):
    feature: str
    error_code: int
    error_message: str | None

class UpdateRaftVoterRequest(Message):
    cluster_id: str | None
    current_leader_epoch: int
    voter_id: int
    voter_directory_id: UUID
    listeners: tuple[UpdateRaftVoterRequestListener, ...]
    k_raft_version_feature: KRaftVersionFeature

class UpdateRaftVoterRequestListener(Message):
    name: str
    host: str
    port: int

class KRaftVersionFeature(Message):
    min_supported_version: int
    max_supported_version: int

class UpdateRaftVoterResponse(Message):
    throttle_time: int
    error_code: int
    current_leader: CurrentLeader

class CurrentLeader(Message):
    leader_id: int
    leader_epoch: int
    host: str
    port: int

class VoteRequest(Message):
    cluster_id: str | None
    voter_id: int  # 1+
    topics: tuple[VoteRequestTopicData, ...]

class VoteRequestTopicData(Message):
    topic_name: str
    partitions: tuple[VoteRequestPartitionData, ...]

class VoteRequestPartitionData(Message):
    partition_index: int
    replica_epoch: int
    replica_id: int
    replica_directory_id: UUID  # 1+
    voter_directory_id: UUID  # 1+
    last_offset_epoch: int
    last_offset: int
    pre_vote: bool  # 2+

class VoteResponse(Message):
    error_code: int
    topics: tuple[VoteResponseTopicData, ...]
    node_endpoints: tuple[VoteResponseNodeEndpoint, ...]  # 1+

class VoteResponseTopicData(Message):
    topic_name: str
    partitions: tuple[VoteResponsePartitionData, ...]

class VoteResponsePartitionData(Message):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    vote_granted: bool

class VoteResponseNodeEndpoint(Message):
    node_id: int  # 1+
    host: str  # 1+
    port: int  # 1+

class WriteShareGroupStateRequest(Message):
    group_id: str
    topics: tuple[WriteStateData, ...]

class WriteStateData(Message):
    topic_id: UUID
    partitions: tuple[WriteShareGroupStateRequestPartitionData, ...]

class WriteShareGroupStateRequestPartitionData(Message):
    partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int  # 1+
    state_batches: tuple[StateBatch, ...]

class WriteShareGroupStateResponse(Message):
    results: tuple[WriteStateResult, ...]

class WriteStateResult(Message):
    topic_id: UUID
    partitions: tuple[WriteShareGroupStateResponsePartitionResult, ...]

class WriteShareGroupStateResponsePartitionResult(Message):
    partition: int
    error_code: int
    error_message: str | None

class WriteTxnMarkersRequest(Message):
    markers: tuple[WritableTxnMarker, ...]

class WritableTxnMarker(Message):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: int
    transaction_version: int  # 2+

class WritableTxnMarkerTopic(Message):
    name: str
    partition_indexes: tuple[int, ...]

class WriteTxnMarkersResponse(Message):
    markers: tuple[WritableTxnMarkerResult, ...]

class WritableTxnMarkerResult(Message):
    producer_id: int
    topics: tuple[WritableTxnMarkerTopicResult, ...]

class WritableTxnMarkerTopicResult(Message):
    name: str
    partitions: tuple[WritableTxnMarkerPartitionResult, ...]

class WritableTxnMarkerPartitionResult(Message):
    partition_index: int
    error_code: int
