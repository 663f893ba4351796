"""Requests and responses as they are sent: made by `python -m tools.message_types`, never edited.

Behind `#`: the versions of the message that have a field, where not all do. Others leave it out.
"""

from collections.abc import Sequence
from typing import TypedDict
from uuid import UUID

from ottla.model import Buffer

class AddOffsetsToTxnRequest(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

class AddOffsetsToTxnResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int

class AddPartitionsToTxnRequest(TypedDict, total=False):
    transactions: Sequence[AddPartitionsToTxnTransaction]  # 4+
    v3_and_below_transactional_id: str  # 0-3
    v3_and_below_producer_id: int  # 0-3
    v3_and_below_producer_epoch: int  # 0-3
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic]  # 0-3

class AddPartitionsToTxnTransaction(TypedDict, total=False):
    transactional_id: str  # 4+
    producer_id: int  # 4+
    producer_epoch: int  # 4+
    verify_only: bool  # 4+
    topics: Sequence[AddPartitionsToTxnTopic]  # 4+

class AddPartitionsToTxnTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[int]

class AddPartitionsToTxnResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int  # 4+
    results_by_transaction: Sequence[AddPartitionsToTxnResult]  # 4+
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult]  # 0-3

class AddPartitionsToTxnResult(TypedDict, total=False):
    transactional_id: str  # 4+
    topic_results: Sequence[AddPartitionsToTxnTopicResult]  # 4+

class AddPartitionsToTxnTopicResult(TypedDict, total=False):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult]

class AddPartitionsToTxnPartitionResult(TypedDict, total=False):
    partition_index: int
    partition_error_code: int

class AddRaftVoterRequest(TypedDict, total=False):
    cluster_id: str | None
    timeout: int
    voter_id: int
    voter_directory_id: UUID
    listeners: Sequence[AddRaftVoterRequestListener]
    ack_when_committed: bool  # 1+

class AddRaftVoterRequestListener(TypedDict, total=False):
    name: str
    host: str
    port: int

class AddRaftVoterResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None

class AllocateProducerIdsRequest(TypedDict, total=False):
    broker_id: int
    broker_epoch: int

class AllocateProducerIdsResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    producer_id_start: int
    producer_id_len: int

class AlterClientQuotasRequest(TypedDict, total=False):
    entries: Sequence[AlterClientQuotasRequestEntryData]
    validate_only: bool

class AlterClientQuotasRequestEntryData(TypedDict, total=False):
    entity: Sequence[EntityData]
    ops: Sequence[OpData]

class EntityData(TypedDict, total=False):
    entity_type: str
    entity_name: str | None

class OpData(TypedDict, total=False):
    key: str
    value: float
    remove: bool

class AlterClientQuotasResponse(TypedDict, total=False):
    throttle_time: int
    entries: Sequence[AlterClientQuotasResponseEntryData]

class AlterClientQuotasResponseEntryData(TypedDict, total=False):
    error_code: int
    error_message: str | None
    entity: Sequence[EntityData]

class AlterConfigsRequest(TypedDict, total=False):
    resources: Sequence[AlterConfigsRequestAlterConfigsResource]
    validate_only: bool

class AlterConfigsRequestAlterConfigsResource(TypedDict, total=False):
    resource_type: int
    resource_name: str
    configs: Sequence[AlterConfigsRequestAlterableConfig]

class AlterConfigsRequestAlterableConfig(TypedDict, total=False):
    name: str
    value: str | None

class AlterConfigsResponse(TypedDict, total=False):
    throttle_time: int
    responses: Sequence[AlterConfigsResourceResponse]

class AlterConfigsResourceResponse(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str

class AlterPartitionReassignmentsRequest(TypedDict, total=False):
    timeout: int
    allow_replication_factor_change: bool  # 1+
    topics: Sequence[ReassignableTopic]

class ReassignableTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[ReassignablePartition]

class ReassignablePartition(TypedDict, total=False):
    partition_index: int
    replicas: Sequence[int] | None

class AlterPartitionReassignmentsResponse(TypedDict, total=False):
    throttle_time: int
    allow_replication_factor_change: bool  # 1+
    error_code: int
    error_message: str | None
    responses: Sequence[ReassignableTopicResponse]

class ReassignableTopicResponse(TypedDict, total=False):
    name: str
    partitions: Sequence[ReassignablePartitionResponse]

class ReassignablePartitionResponse(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None

class AlterPartitionRequest(TypedDict, total=False):
    broker_id: int
    broker_epoch: int
    topics: Sequence[AlterPartitionRequestTopicData]

class AlterPartitionRequestTopicData(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[AlterPartitionRequestPartitionData]

class AlterPartitionRequestPartitionData(TypedDict, total=False):
    partition_index: int
    leader_epoch: int
    new_isr: Sequence[int]  # 2
    new_isr_with_epochs: Sequence[BrokerState]  # 3+
    leader_recovery_state: int
    partition_epoch: int

class BrokerState(TypedDict, total=False):
    broker_id: int  # 3+
    broker_epoch: int  # 3+

class AlterPartitionResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    topics: Sequence[AlterPartitionResponseTopicData]

class AlterPartitionResponseTopicData(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[AlterPartitionResponsePartitionData]

class AlterPartitionResponsePartitionData(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    leader_recovery_state: int
    partition_epoch: int

class AlterReplicaLogDirsRequest(TypedDict, total=False):
    dirs: Sequence[AlterReplicaLogDir]

class AlterReplicaLogDir(TypedDict, total=False):
    path: str
    topics: Sequence[AlterReplicaLogDirTopic]

class AlterReplicaLogDirTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[int]

class AlterReplicaLogDirsResponse(TypedDict, total=False):
    throttle_time: int
    results: Sequence[AlterReplicaLogDirTopicResult]

class AlterReplicaLogDirTopicResult(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[AlterReplicaLogDirPartitionResult]

class AlterReplicaLogDirPartitionResult(TypedDict, total=False):
    partition_index: int
    error_code: int

class AlterShareGroupOffsetsRequest(TypedDict, total=False):
    group_id: str
    topics: Sequence[AlterShareGroupOffsetsRequestTopic]

class AlterShareGroupOffsetsRequestTopic(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition]

class AlterShareGroupOffsetsRequestPartition(TypedDict, total=False):
    partition_index: int
    start_offset: int

class AlterShareGroupOffsetsResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    responses: Sequence[AlterShareGroupOffsetsResponseTopic]

class AlterShareGroupOffsetsResponseTopic(TypedDict, total=False):
    topic_name: str
    topic_id: UUID
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition]

class AlterShareGroupOffsetsResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None

class AlterUserScramCredentialsRequest(TypedDict, total=False):
    deletions: Sequence[ScramCredentialDeletion]
    upsertions: Sequence[ScramCredentialUpsertion]

class ScramCredentialDeletion(TypedDict, total=False):
    name: str
    mechanism: int

class ScramCredentialUpsertion(TypedDict, total=False):
    name: str
    mechanism: int
    iterations: int
    salt: Buffer
    salted_password: Buffer

class AlterUserScramCredentialsResponse(TypedDict, total=False):
    throttle_time: int
    results: Sequence[AlterUserScramCredentialsResult]

class AlterUserScramCredentialsResult(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None

class ApiVersionsRequest(TypedDict, total=False):
    client_software_name: str  # 3+
    client_software_version: str  # 3+
    cluster_id: str | None  # 5+
    node_id: int  # 5+

class ApiVersionsResponse(TypedDict, total=False):
    error_code: int
    api_keys: Sequence[ApiVersion]
    throttle_time: int  # 1+
    supported_features: Sequence[SupportedFeatureKey]  # 3+
    finalized_features_epoch: int  # 3+
    finalized_features: Sequence[FinalizedFeatureKey]  # 3+
    zk_migration_ready: bool  # 3+

class ApiVersion(TypedDict, total=False):
    api_key: int
    min_version: int
    max_version: int

class SupportedFeatureKey(TypedDict, total=False):
    name: str  # 3+
    min_version: int  # 3+
    max_version: int  # 3+

class FinalizedFeatureKey(TypedDict, total=False):
    name: str  # 3+
    max_version_level: int  # 3+
    min_version_level: int  # 3+

class AssignReplicasToDirsRequest(TypedDict, total=False):
    broker_id: int
    broker_epoch: int
    directories: Sequence[AssignReplicasToDirsRequestDirectoryData]

class AssignReplicasToDirsRequestDirectoryData(TypedDict, total=False):
    id: UUID
    topics: Sequence[AssignReplicasToDirsRequestTopicData]

class AssignReplicasToDirsRequestTopicData(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[AssignReplicasToDirsRequestPartitionData]

class AssignReplicasToDirsRequestPartitionData(TypedDict, total=False):
    partition_index: int

class AssignReplicasToDirsResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    directories: Sequence[AssignReplicasToDirsResponseDirectoryData]

class AssignReplicasToDirsResponseDirectoryData(TypedDict, total=False):
    id: UUID
    topics: Sequence[AssignReplicasToDirsResponseTopicData]

class AssignReplicasToDirsResponseTopicData(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[AssignReplicasToDirsResponsePartitionData]

class AssignReplicasToDirsResponsePartitionData(TypedDict, total=False):
    partition_index: int
    error_code: int

class BeginQuorumEpochRequest(TypedDict, total=False):
    cluster_id: str | None
    voter_id: int  # 1+
    topics: Sequence[BeginQuorumEpochRequestTopicData]
    leader_endpoints: Sequence[LeaderEndpoint]  # 1+

class BeginQuorumEpochRequestTopicData(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[BeginQuorumEpochRequestPartitionData]

class BeginQuorumEpochRequestPartitionData(TypedDict, total=False):
    partition_index: int
    voter_directory_id: UUID  # 1+
    leader_id: int
    leader_epoch: int

class LeaderEndpoint(TypedDict, total=False):
    name: str  # 1+
    host: str  # 1+
    port: int  # 1+

class BeginQuorumEpochResponse(TypedDict, total=False):
    error_code: int
    topics: Sequence[BeginQuorumEpochResponseTopicData]
    node_endpoints: Sequence[BeginQuorumEpochResponseNodeEndpoint]  # 1+

class BeginQuorumEpochResponseTopicData(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[BeginQuorumEpochResponsePartitionData]

class BeginQuorumEpochResponsePartitionData(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int

class BeginQuorumEpochResponseNodeEndpoint(TypedDict, total=False):
    node_id: int  # 1+
    host: str  # 1+
    port: int  # 1+

class BrokerHeartbeatRequest(TypedDict, total=False):
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: Sequence[UUID]  # 1+
    cordoned_log_dirs: Sequence[UUID] | None  # 2+

class BrokerHeartbeatResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool

class BrokerRegistrationRequest(TypedDict, total=False):
    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    listeners: Sequence[BrokerRegistrationRequestListener]
    features: Sequence[Feature]
    rack: str | None
    is_migrating_zk_broker: bool  # 1+
    log_dirs: Sequence[UUID]  # 2+
    previous_broker_epoch: int  # 3+

class BrokerRegistrationRequestListener(TypedDict, total=False):
    name: str
    host: str
    port: int
    security_protocol: int

class Feature(TypedDict, total=False):
    name: str
    min_supported_version: int
    max_supported_version: int

class BrokerRegistrationResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    broker_epoch: int

class ConsumerGroupDescribeRequest(TypedDict, total=False):
    group_ids: Sequence[str]
    include_authorized_operations: bool

class ConsumerGroupDescribeResponse(TypedDict, total=False):
    throttle_time: int
    groups: Sequence[ConsumerGroupDescribeResponseDescribedGroup]

class ConsumerGroupDescribeResponseDescribedGroup(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[ConsumerGroupDescribeResponseMember]
    authorized_operations: int

class ConsumerGroupDescribeResponseMember(TypedDict, total=False):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeResponseAssignment
    target_assignment: ConsumerGroupDescribeResponseAssignment
    member_type: int  # 1+

class ConsumerGroupDescribeResponseAssignment(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupDescribeResponseTopicPartitions]

class ConsumerGroupDescribeResponseTopicPartitions(TypedDict, total=False):
    topic_id: UUID
    topic_name: str
    partitions: Sequence[int]

class ConsumerGroupHeartbeatRequest(TypedDict, total=False):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout: int
    subscribed_topic_names: Sequence[str] | None
    subscribed_topic_regex: str | None  # 1+
    server_assignor: str | None
    topic_partitions: Sequence[ConsumerGroupHeartbeatRequestTopicPartitions] | None

class ConsumerGroupHeartbeatRequestTopicPartitions(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[int]

class ConsumerGroupHeartbeatResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval: int
    assignment: ConsumerGroupHeartbeatResponseAssignment | None

class ConsumerGroupHeartbeatResponseAssignment(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupHeartbeatResponseTopicPartitions]

class ConsumerGroupHeartbeatResponseTopicPartitions(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[int]

class ControllerRegistrationRequest(TypedDict, total=False):
    controller_id: int
    incarnation_id: UUID
    zk_migration_ready: bool
    listeners: Sequence[ControllerRegistrationRequestListener]
    features: Sequence[Feature]

class ControllerRegistrationRequestListener(TypedDict, total=False):
    name: str
    host: str
    port: int
    security_protocol: int

class ControllerRegistrationResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None

class CreateAclsRequest(TypedDict, total=False):
    creations: Sequence[AclCreation]

class AclCreation(TypedDict, total=False):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class CreateAclsResponse(TypedDict, total=False):
    throttle_time: int
    results: Sequence[AclCreationResult]

class AclCreationResult(TypedDict, total=False):
    error_code: int
    error_message: str | None

class CreateDelegationTokenRequest(TypedDict, total=False):
    owner_principal_type: str | None  # 3+
    owner_principal_name: str | None  # 3+
    renewers: Sequence[CreatableRenewers]
    max_lifetime: int

class CreatableRenewers(TypedDict, total=False):
    principal_type: str
    principal_name: str

class CreateDelegationTokenResponse(TypedDict, total=False):
    error_code: int
    principal_type: str
    principal_name: str
    token_requester_principal_type: str  # 3+
    token_requester_principal_name: str  # 3+
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    token_id: str
    hmac: Buffer
    throttle_time: int

class CreatePartitionsRequest(TypedDict, total=False):
    topics: Sequence[CreatePartitionsTopic]
    timeout: int
    validate_only: bool

class CreatePartitionsTopic(TypedDict, total=False):
    name: str
    count: int
    assignments: Sequence[CreatePartitionsAssignment] | None

class CreatePartitionsAssignment(TypedDict, total=False):
    broker_ids: Sequence[int]

class CreatePartitionsResponse(TypedDict, total=False):
    throttle_time: int
    results: Sequence[CreatePartitionsTopicResult]

class CreatePartitionsTopicResult(TypedDict, total=False):
    name: str
    error_code: int
    error_message: str | None

class CreateTopicsRequest(TypedDict, total=False):
    topics: Sequence[CreatableTopic]
    timeout: int
    validate_only: bool

class CreatableTopic(TypedDict, total=False):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreatableReplicaAssignment]
    configs: Sequence[CreatableTopicConfig]

class CreatableReplicaAssignment(TypedDict, total=False):
    partition_index: int
    broker_ids: Sequence[int]

class CreatableTopicConfig(TypedDict, total=False):
    name: str
    value: str | None

class CreateTopicsResponse(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[CreatableTopicResult]

class CreatableTopicResult(TypedDict, total=False):
    name: str
    topic_id: UUID  # 7+
    error_code: int
    error_message: str | None
    topic_config_error_code: int  # 5+
    num_partitions: int  # 5+
    replication_factor: int  # 5+
    configs: Sequence[CreatableTopicConfigs] | None  # 5+

class CreatableTopicConfigs(TypedDict, total=False):
    name: str  # 5+
    value: str | None  # 5+
    read_only: bool  # 5+
    config_source: int  # 5+
    is_sensitive: bool  # 5+

class DeleteAclsRequest(TypedDict, total=False):
    filters: Sequence[DeleteAclsFilter]

class DeleteAclsFilter(TypedDict, total=False):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class DeleteAclsResponse(TypedDict, total=False):
    throttle_time: int
    filter_results: Sequence[DeleteAclsFilterResult]

class DeleteAclsFilterResult(TypedDict, total=False):
    error_code: int
    error_message: str | None
    matching_acls: Sequence[DeleteAclsMatchingAcl]

class DeleteAclsMatchingAcl(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class DeleteGroupsRequest(TypedDict, total=False):
    groups_names: Sequence[str]

class DeleteGroupsResponse(TypedDict, total=False):
    throttle_time: int
    results: Sequence[DeletableGroupResult]

class DeletableGroupResult(TypedDict, total=False):
    group_id: str
    error_code: int
    error_message: str | None  # 3+

class DeleteRecordsRequest(TypedDict, total=False):
    topics: Sequence[DeleteRecordsTopic]
    timeout: int

class DeleteRecordsTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[DeleteRecordsPartition]

class DeleteRecordsPartition(TypedDict, total=False):
    partition_index: int
    offset: int

class DeleteRecordsResponse(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[DeleteRecordsTopicResult]

class DeleteRecordsTopicResult(TypedDict, total=False):
    name: str
    partitions: Sequence[DeleteRecordsPartitionResult]

class DeleteRecordsPartitionResult(TypedDict, total=False):
    partition_index: int
    low_watermark: int
    error_code: int

class DeleteShareGroupOffsetsRequest(TypedDict, total=False):
    group_id: str
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic]

class DeleteShareGroupOffsetsRequestTopic(TypedDict, total=False):
    topic_name: str

class DeleteShareGroupOffsetsResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic]

class DeleteShareGroupOffsetsResponseTopic(TypedDict, total=False):
    topic_name: str
    topic_id: UUID
    error_code: int
    error_message: str | None

class DeleteShareGroupStateRequest(TypedDict, total=False):
    group_id: str
    topics: Sequence[DeleteStateData]

class DeleteStateData(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[DeleteShareGroupStateRequestPartitionData]

class DeleteShareGroupStateRequestPartitionData(TypedDict, total=False):
    partition: int

class DeleteShareGroupStateResponse(TypedDict, total=False):
    results: Sequence[DeleteStateResult]

class DeleteStateResult(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[DeleteShareGroupStateResponsePartitionResult]

class DeleteShareGroupStateResponsePartitionResult(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None

class DeleteTopicsRequest(TypedDict, total=False):
    topics: Sequence[DeleteTopicState]  # 6+
    topic_names: Sequence[str]  # 1-5
    timeout: int

class DeleteTopicState(TypedDict, total=False):
    name: str | None  # 6+
    topic_id: UUID  # 6+

class DeleteTopicsResponse(TypedDict, total=False):
    throttle_time: int
    responses: Sequence[DeletableTopicResult]

class DeletableTopicResult(TypedDict, total=False):
    name: str | None
    topic_id: UUID  # 6+
    error_code: int
    error_message: str | None  # 5+

class DescribeAclsRequest(TypedDict, total=False):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class DescribeAclsResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    resources: Sequence[DescribeAclsResource]

class DescribeAclsResource(TypedDict, total=False):
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: Sequence[AclDescription]

class AclDescription(TypedDict, total=False):
    principal: str
    host: str
    operation: int
    permission_type: int

class DescribeClientQuotasRequest(TypedDict, total=False):
    components: Sequence[ComponentData]
    strict: bool

class ComponentData(TypedDict, total=False):
    entity_type: str
    match_type: int
    match: str | None

class DescribeClientQuotasResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    entries: Sequence[DescribeClientQuotasResponseEntryData] | None

class DescribeClientQuotasResponseEntryData(TypedDict, total=False):
    entity: Sequence[EntityData]
    values: Sequence[ValueData]

class ValueData(TypedDict, total=False):
    key: str
    value: float

class DescribeClusterRequest(TypedDict, total=False):
    include_cluster_authorized_operations: bool
    endpoint_type: int  # 1+
    include_fenced_brokers: bool  # 2+

class DescribeClusterResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    endpoint_type: int  # 1+
    cluster_id: str
    controller_id: int
    brokers: Sequence[DescribeClusterBroker]
    cluster_authorized_operations: int

class DescribeClusterBroker(TypedDict, total=False):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool  # 2+

class DescribeConfigsRequest(TypedDict, total=False):
    resources: Sequence[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool  # 3+

class DescribeConfigsResource(TypedDict, total=False):
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None

class DescribeConfigsResponse(TypedDict, total=False):
    throttle_time: int
    results: Sequence[DescribeConfigsResult]

class DescribeConfigsResult(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResourceResult]

class DescribeConfigsResourceResult(TypedDict, total=False):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: Sequence[DescribeConfigsSynonym]
    config_type: int  # 3+
    documentation: str | None  # 3+

class DescribeConfigsSynonym(TypedDict, total=False):
    name: str
    value: str | None
    source: int

class DescribeDelegationTokenRequest(TypedDict, total=False):
    owners: Sequence[DescribeDelegationTokenOwner] | None

class DescribeDelegationTokenOwner(TypedDict, total=False):
    principal_type: str
    principal_name: str

class DescribeDelegationTokenResponse(TypedDict, total=False):
    error_code: int
    tokens: Sequence[DescribedDelegationToken]
    throttle_time: int

class DescribedDelegationToken(TypedDict, total=False):
    principal_type: str
    principal_name: str
    token_requester_principal_type: str  # 3+
    token_requester_principal_name: str  # 3+
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    token_id: str
    hmac: Buffer
    renewers: Sequence[DescribedDelegationTokenRenewer]

class DescribedDelegationTokenRenewer(TypedDict, total=False):
    principal_type: str
    principal_name: str

class DescribeGroupsRequest(TypedDict, total=False):
    groups: Sequence[str]
    include_authorized_operations: bool  # 3+

class DescribeGroupsResponse(TypedDict, total=False):
    throttle_time: int  # 1+
    groups: Sequence[DescribeGroupsResponseDescribedGroup]

class DescribeGroupsResponseDescribedGroup(TypedDict, total=False):
    error_code: int
    error_message: str | None  # 6+
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribedGroupMember]
    authorized_operations: int  # 3+

class DescribedGroupMember(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None  # 4+
    client_id: str
    client_host: str
    member_metadata: Buffer
    member_assignment: Buffer

class DescribeLogDirsRequest(TypedDict, total=False):
    topics: Sequence[DescribableLogDirTopic] | None

class DescribableLogDirTopic(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]

class DescribeLogDirsResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int  # 3+
    results: Sequence[DescribeLogDirsResult]

class DescribeLogDirsResult(TypedDict, total=False):
    error_code: int
    log_dir: str
    topics: Sequence[DescribeLogDirsTopic]
    total_bytes: int  # 4+
    usable_bytes: int  # 4+
    is_cordoned: bool  # 5+

class DescribeLogDirsTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[DescribeLogDirsPartition]

class DescribeLogDirsPartition(TypedDict, total=False):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool

class DescribeLostLettersRequest(TypedDict, total=False):
    groups: Sequence[str]

class DescribeLostLettersResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    groups: Sequence[LostLetters]

class LostLetters(TypedDict, total=False):
    group_id: str
    topic: str
    partition: int
    first_offset: int
    timestamp_ms: int
    message: str

class DescribeProducersRequest(TypedDict, total=False):
    topics: Sequence[DescribeProducersRequestTopicRequest]

class DescribeProducersRequestTopicRequest(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]

class DescribeProducersResponse(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[TopicResponse]

class TopicResponse(TypedDict, total=False):
    name: str
    partitions: Sequence[PartitionResponse]

class PartitionResponse(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: Sequence[ProducerState]

class ProducerState(TypedDict, total=False):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int

class DescribeQuorumRequest(TypedDict, total=False):
    topics: Sequence[DescribeQuorumRequestTopicData]

class DescribeQuorumRequestTopicData(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[DescribeQuorumRequestPartitionData]

class DescribeQuorumRequestPartitionData(TypedDict, total=False):
    partition_index: int

class DescribeQuorumResponse(TypedDict, total=False):
    error_code: int
    error_message: str | None  # 2+
    topics: Sequence[DescribeQuorumResponseTopicData]
    nodes: Sequence[Node]  # 2+

class DescribeQuorumResponseTopicData(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[DescribeQuorumResponsePartitionData]

class DescribeQuorumResponsePartitionData(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None  # 2+
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: Sequence[DescribeQuorumResponseReplicaState]
    observers: Sequence[DescribeQuorumResponseReplicaState]

class DescribeQuorumResponseReplicaState(TypedDict, total=False):
    replica_id: int
    replica_directory_id: UUID  # 2+
    log_end_offset: int
    last_fetch_timestamp: int  # 1+
    last_caught_up_timestamp: int  # 1+

class Node(TypedDict, total=False):
    node_id: int  # 2+
    listeners: Sequence[DescribeQuorumResponseListener]  # 2+

class DescribeQuorumResponseListener(TypedDict, total=False):
    name: str  # 2+
    host: str  # 2+
    port: int  # 2+

class DescribeShareGroupOffsetsRequest(TypedDict, total=False):
    groups: Sequence[DescribeShareGroupOffsetsRequestGroup]

class DescribeShareGroupOffsetsRequestGroup(TypedDict, total=False):
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None

class DescribeShareGroupOffsetsRequestTopic(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[int]

class DescribeShareGroupOffsetsResponse(TypedDict, total=False):
    throttle_time: int
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup]

class DescribeShareGroupOffsetsResponseGroup(TypedDict, total=False):
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic]
    error_code: int
    error_message: str | None

class DescribeShareGroupOffsetsResponseTopic(TypedDict, total=False):
    topic_name: str
    topic_id: UUID
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition]

class DescribeShareGroupOffsetsResponsePartition(TypedDict, total=False):
    partition_index: int
    start_offset: int
    leader_epoch: int
    lag: int  # 1+
    error_code: int
    error_message: str | None

class DescribeSharePartitionsRequest(TypedDict, total=False):
    groups: Sequence[str]

class DescribeSharePartitionsResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    partitions: Sequence[DescribedSharePartition]

class DescribedSharePartition(TypedDict, total=False):
    group_id: str
    topic: str
    partition: int
    start_offset: int
    acquired_records: int
    redelivered_records: int
    waiting_records: int
    archived_records: int

class DescribeTopicPartitionsRequest(TypedDict, total=False):
    topics: Sequence[DescribeTopicPartitionsRequestTopicRequest]
    response_partition_limit: int
    cursor: Cursor | None

class DescribeTopicPartitionsRequestTopicRequest(TypedDict, total=False):
    name: str

class Cursor(TypedDict, total=False):
    topic_name: str
    partition_index: int

class DescribeTopicPartitionsResponse(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None

class DescribeTopicPartitionsResponseTopic(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: Sequence[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: int

class DescribeTopicPartitionsResponsePartition(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    eligible_leader_replicas: Sequence[int] | None
    last_known_elr: Sequence[int] | None
    offline_replicas: Sequence[int]

class DescribeTransactionsRequest(TypedDict, total=False):
    transactional_ids: Sequence[str]

class DescribeTransactionsResponse(TypedDict, total=False):
    throttle_time: int
    transaction_states: Sequence[DescribeTransactionsResponseTransactionState]

class DescribeTransactionsResponseTransactionState(TypedDict, total=False):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout: int
    transaction_start_time: int
    producer_id: int
    producer_epoch: int
    topics: Sequence[DescribeTransactionsResponseTopicData]

class DescribeTransactionsResponseTopicData(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]

class DescribeUserScramCredentialsRequest(TypedDict, total=False):
    users: Sequence[UserName] | None

class UserName(TypedDict, total=False):
    name: str

class DescribeUserScramCredentialsResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResult]

class DescribeUserScramCredentialsResult(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: Sequence[CredentialInfo]

class CredentialInfo(TypedDict, total=False):
    mechanism: int
    iterations: int

class DisconnectClientsRequest(TypedDict, total=False):
    principal: str | None
    client_id: str | None

class DisconnectClientsResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    closed: int

class ElectLeadersRequest(TypedDict, total=False):
    election_type: int  # 1+
    topic_partitions: Sequence[ElectLeadersRequestTopicPartitions] | None
    timeout: int

class ElectLeadersRequestTopicPartitions(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]

class ElectLeadersResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int  # 1+
    replica_election_results: Sequence[ReplicaElectionResult]

class ReplicaElectionResult(TypedDict, total=False):
    topic: str
    partition_result: Sequence[ElectLeadersResponsePartitionResult]

class ElectLeadersResponsePartitionResult(TypedDict, total=False):
    partition_id: int
    error_code: int
    error_message: str | None

class EndQuorumEpochRequest(TypedDict, total=False):
    cluster_id: str | None
    topics: Sequence[EndQuorumEpochRequestTopicData]
    leader_endpoints: Sequence[LeaderEndpoint]  # 1+

class EndQuorumEpochRequestTopicData(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[EndQuorumEpochRequestPartitionData]

class EndQuorumEpochRequestPartitionData(TypedDict, total=False):
    partition_index: int
    leader_id: int
    leader_epoch: int
    preferred_successors: Sequence[int]  # 0
    preferred_candidates: Sequence[ReplicaInfo]  # 1+

class ReplicaInfo(TypedDict, total=False):
    candidate_id: int  # 1+
    candidate_directory_id: UUID  # 1+

class EndQuorumEpochResponse(TypedDict, total=False):
    error_code: int
    topics: Sequence[EndQuorumEpochResponseTopicData]
    node_endpoints: Sequence[EndQuorumEpochResponseNodeEndpoint]  # 1+

class EndQuorumEpochResponseTopicData(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[EndQuorumEpochResponsePartitionData]

class EndQuorumEpochResponsePartitionData(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int

class EndQuorumEpochResponseNodeEndpoint(TypedDict, total=False):
    node_id: int  # 1+
    host: str  # 1+
    port: int  # 1+

class EndTxnRequest(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool

class EndTxnResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    producer_id: int  # 5+
    producer_epoch: int  # 5+

class EnvelopeRequest(TypedDict, total=False):
    request_data: Buffer
    request_principal: Buffer | None
    client_host_address: Buffer

class EnvelopeResponse(TypedDict, total=False):
    response_data: Buffer | None
    error_code: int

class ExpireDelegationTokenRequest(TypedDict, total=False):
    hmac: Buffer
    expiry_time_period: int

class ExpireDelegationTokenResponse(TypedDict, total=False):
    error_code: int
    expiry_timestamp: int
    throttle_time: int

class FetchRequest(TypedDict, total=False):
    cluster_id: str | None  # 12+
    replica_id: int  # 4-14
    replica_state: FetchRequestReplicaState  # 15+
    max_wait: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int  # 7+
    session_epoch: int  # 7+
    topics: Sequence[FetchRequestFetchTopic]
    forgotten_topics_data: Sequence[FetchRequestForgottenTopic]  # 7+
    rack_id: str  # 11+

class FetchRequestReplicaState(TypedDict, total=False):
    replica_id: int  # 15+
    replica_epoch: int  # 15+

class FetchRequestFetchTopic(TypedDict, total=False):
    topic: str  # 4-12
    topic_id: UUID  # 13+
    partitions: Sequence[FetchRequestFetchPartition]

class FetchRequestFetchPartition(TypedDict, total=False):
    partition: int
    current_leader_epoch: int  # 9+
    fetch_offset: int
    last_fetched_epoch: int  # 12+
    log_start_offset: int  # 5+
    partition_max_bytes: int
    replica_directory_id: UUID  # 17+
    high_watermark: int  # 18+

class FetchRequestForgottenTopic(TypedDict, total=False):
    topic: str  # 7-12
    topic_id: UUID  # 13+
    partitions: Sequence[int]  # 7+

class FetchResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int  # 7+
    session_id: int  # 7+
    responses: Sequence[FetchableTopicResponse]
    node_endpoints: Sequence[FetchResponseNodeEndpoint]  # 16+

class FetchableTopicResponse(TypedDict, total=False):
    topic: str  # 4-12
    topic_id: UUID  # 13+
    partitions: Sequence[FetchResponsePartitionData]

class FetchResponsePartitionData(TypedDict, total=False):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int  # 5+
    diverging_epoch: FetchResponseEpochEndOffset  # 12+
    current_leader: LeaderIdAndEpoch  # 12+
    snapshot_id: SnapshotId  # 12+
    aborted_transactions: Sequence[AbortedTransaction] | None
    preferred_read_replica: int  # 11+
    records: Buffer | None

class FetchResponseEpochEndOffset(TypedDict, total=False):
    epoch: int  # 12+
    end_offset: int  # 12+

class LeaderIdAndEpoch(TypedDict, total=False):
    leader_id: int
    leader_epoch: int

class SnapshotId(TypedDict, total=False):
    end_offset: int
    epoch: int

class AbortedTransaction(TypedDict, total=False):
    producer_id: int
    first_offset: int

class FetchResponseNodeEndpoint(TypedDict, total=False):
    node_id: int  # 16+
    host: str  # 16+
    port: int  # 16+
    rack: str | None  # 16+

class FetchSnapshotRequest(TypedDict, total=False):
    cluster_id: str | None
    replica_id: int
    max_bytes: int
    topics: Sequence[FetchSnapshotRequestTopicSnapshot]

class FetchSnapshotRequestTopicSnapshot(TypedDict, total=False):
    name: str
    partitions: Sequence[FetchSnapshotRequestPartitionSnapshot]

class FetchSnapshotRequestPartitionSnapshot(TypedDict, total=False):
    partition: int
    current_leader_epoch: int
    snapshot_id: SnapshotId
    position: int
    replica_directory_id: UUID  # 1+

class FetchSnapshotResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    topics: Sequence[FetchSnapshotResponseTopicSnapshot]
    node_endpoints: Sequence[FetchSnapshotResponseNodeEndpoint]  # 1+

class FetchSnapshotResponseTopicSnapshot(TypedDict, total=False):
    name: str
    partitions: Sequence[FetchSnapshotResponsePartitionSnapshot]

class FetchSnapshotResponsePartitionSnapshot(TypedDict, total=False):
    index: int
    error_code: int
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch
    size: int
    position: int
    unaligned_records: Buffer | None

class FetchSnapshotResponseNodeEndpoint(TypedDict, total=False):
    node_id: int  # 1+
    host: str  # 1+
    port: int  # 1+

class FindCoordinatorRequest(TypedDict, total=False):
    key: str  # 0-3
    key_type: int  # 1+
    coordinator_keys: Sequence[str]  # 4+

class FindCoordinatorResponse(TypedDict, total=False):
    throttle_time: int  # 1+
    error_code: int  # 0-3
    error_message: str | None  # 1-3
    node_id: int  # 0-3
    host: str  # 0-3
    port: int  # 0-3
    coordinators: Sequence[Coordinator]  # 4+

class Coordinator(TypedDict, total=False):
    key: str  # 4+
    node_id: int  # 4+
    host: str  # 4+
    port: int  # 4+
    error_code: int  # 4+
    error_message: str | None  # 4+

class GetTelemetrySubscriptionsRequest(TypedDict, total=False):
    client_instance_id: UUID

class GetTelemetrySubscriptionsResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    client_instance_id: UUID
    subscription_id: int
    accepted_compression_types: Sequence[int]
    push_interval: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: Sequence[str]

class HeartbeatRequest(TypedDict, total=False):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None  # 3+

class HeartbeatResponse(TypedDict, total=False):
    throttle_time: int  # 1+
    error_code: int

class IncrementalAlterConfigsRequest(TypedDict, total=False):
    resources: Sequence[IncrementalAlterConfigsRequestAlterConfigsResource]
    validate_only: bool

class IncrementalAlterConfigsRequestAlterConfigsResource(TypedDict, total=False):
    resource_type: int
    resource_name: str
    configs: Sequence[IncrementalAlterConfigsRequestAlterableConfig]

class IncrementalAlterConfigsRequestAlterableConfig(TypedDict, total=False):
    name: str
    config_operation: int
    value: str | None

class IncrementalAlterConfigsResponse(TypedDict, total=False):
    throttle_time: int
    responses: Sequence[AlterConfigsResourceResponse]

class InitProducerIdRequest(TypedDict, total=False):
    transactional_id: str | None
    transaction_timeout: int
    producer_id: int  # 3+
    producer_epoch: int  # 3+
    enable2_pc: bool  # 6+
    keep_prepared_txn: bool  # 6+

class InitProducerIdResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int  # 6+
    ongoing_txn_producer_epoch: int  # 6+

class InitializeShareGroupStateRequest(TypedDict, total=False):
    group_id: str
    topics: Sequence[InitializeStateData]

class InitializeStateData(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[InitializeShareGroupStateRequestPartitionData]

class InitializeShareGroupStateRequestPartitionData(TypedDict, total=False):
    partition: int
    state_epoch: int
    start_offset: int

class InitializeShareGroupStateResponse(TypedDict, total=False):
    results: Sequence[InitializeStateResult]

class InitializeStateResult(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[InitializeShareGroupStateResponsePartitionResult]

class InitializeShareGroupStateResponsePartitionResult(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None

class JoinGroupRequest(TypedDict, total=False):
    group_id: str
    session_timeout: int
    rebalance_timeout: int  # 1+
    member_id: str
    group_instance_id: str | None  # 5+
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocol]
    reason: str | None  # 8+

class JoinGroupRequestProtocol(TypedDict, total=False):
    name: str
    metadata: Buffer

class JoinGroupResponse(TypedDict, total=False):
    throttle_time: int  # 2+
    error_code: int
    generation_id: int
    protocol_type: str | None  # 7+
    protocol_name: str | None
    leader: str
    skip_assignment: bool  # 9+
    member_id: str
    members: Sequence[JoinGroupResponseMember]

class JoinGroupResponseMember(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None  # 5+
    metadata: Buffer

class LeaveGroupRequest(TypedDict, total=False):
    group_id: str
    member_id: str  # 0-2
    members: Sequence[MemberIdentity]  # 3+

class MemberIdentity(TypedDict, total=False):
    member_id: str  # 3+
    group_instance_id: str | None  # 3+
    reason: str | None  # 5+

class LeaveGroupResponse(TypedDict, total=False):
    throttle_time: int  # 1+
    error_code: int
    members: Sequence[MemberResponse]  # 3+

class MemberResponse(TypedDict, total=False):
    member_id: str  # 3+
    group_instance_id: str | None  # 3+
    error_code: int  # 3+

class ListClientsRequest(TypedDict, total=False):
    principal: str | None
    client_id: str | None
    only_producers: bool

class ListClientsResponse(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    clients: Sequence[ListedClient]

class ListedClient(TypedDict, total=False):
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

class ListConfigResourcesRequest(TypedDict, total=False):
    resource_types: Sequence[int]  # 1+

class ListConfigResourcesResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    config_resources: Sequence[ConfigResource]

class ConfigResource(TypedDict, total=False):
    resource_name: str
    resource_type: int  # 1+

class ListGroupsRequest(TypedDict, total=False):
    states_filter: Sequence[str]  # 4+
    types_filter: Sequence[str]  # 5+

class ListGroupsResponse(TypedDict, total=False):
    throttle_time: int  # 1+
    error_code: int
    groups: Sequence[ListedGroup]

class ListedGroup(TypedDict, total=False):
    group_id: str
    protocol_type: str
    group_state: str  # 4+
    group_type: str  # 5+

class ListOffsetsRequest(TypedDict, total=False):
    replica_id: int
    isolation_level: int  # 2+
    topics: Sequence[ListOffsetsTopic]
    timeout: int  # 10+

class ListOffsetsTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[ListOffsetsPartition]

class ListOffsetsPartition(TypedDict, total=False):
    partition_index: int
    current_leader_epoch: int  # 4+
    timestamp: int

class ListOffsetsResponse(TypedDict, total=False):
    throttle_time: int  # 2+
    topics: Sequence[ListOffsetsTopicResponse]

class ListOffsetsTopicResponse(TypedDict, total=False):
    name: str
    partitions: Sequence[ListOffsetsPartitionResponse]

class ListOffsetsPartitionResponse(TypedDict, total=False):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int  # 4+

class ListPartitionReassignmentsRequest(TypedDict, total=False):
    timeout: int
    topics: Sequence[ListPartitionReassignmentsTopics] | None

class ListPartitionReassignmentsTopics(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]

class ListPartitionReassignmentsResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    topics: Sequence[OngoingTopicReassignment]

class OngoingTopicReassignment(TypedDict, total=False):
    name: str
    partitions: Sequence[OngoingPartitionReassignment]

class OngoingPartitionReassignment(TypedDict, total=False):
    partition_index: int
    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]

class ListTransactionsRequest(TypedDict, total=False):
    state_filters: Sequence[str]
    producer_id_filters: Sequence[int]
    duration_filter: int  # 1+
    transactional_id_pattern: str | None  # 2+

class ListTransactionsResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListTransactionsResponseTransactionState]

class ListTransactionsResponseTransactionState(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    transaction_state: str

class MetadataRequest(TypedDict, total=False):
    topics: Sequence[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool  # 4+
    include_cluster_authorized_operations: bool  # 8-10
    include_topic_authorized_operations: bool  # 8+

class MetadataRequestTopic(TypedDict, total=False):
    topic_id: UUID  # 10+
    name: str | None

class MetadataResponse(TypedDict, total=False):
    throttle_time: int  # 3+
    brokers: Sequence[MetadataResponseBroker]
    cluster_id: str | None  # 2+
    controller_id: int  # 1+
    topics: Sequence[MetadataResponseTopic]
    cluster_authorized_operations: int  # 8-10
    error_code: int  # 13+

class MetadataResponseBroker(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None  # 1+

class MetadataResponseTopic(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: UUID  # 10+
    is_internal: bool  # 1+
    partitions: Sequence[MetadataResponsePartition]
    topic_authorized_operations: int  # 8+

class MetadataResponsePartition(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int  # 7+
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]  # 5+

class OffsetCommitRequest(TypedDict, total=False):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None  # 7+
    retention_time: int  # 2-4
    topics: Sequence[OffsetCommitRequestTopic]

class OffsetCommitRequestTopic(TypedDict, total=False):
    name: str  # 2-9
    topic_id: UUID  # 10+
    partitions: Sequence[OffsetCommitRequestPartition]

class OffsetCommitRequestPartition(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int  # 6+
    committed_metadata: str | None

class OffsetCommitResponse(TypedDict, total=False):
    throttle_time: int  # 3+
    topics: Sequence[OffsetCommitResponseTopic]

class OffsetCommitResponseTopic(TypedDict, total=False):
    name: str  # 2-9
    topic_id: UUID  # 10+
    partitions: Sequence[OffsetCommitResponsePartition]

class OffsetCommitResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int

class OffsetDeleteRequest(TypedDict, total=False):
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopic]

class OffsetDeleteRequestTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetDeleteRequestPartition]

class OffsetDeleteRequestPartition(TypedDict, total=False):
    partition_index: int

class OffsetDeleteResponse(TypedDict, total=False):
    error_code: int
    throttle_time: int
    topics: Sequence[OffsetDeleteResponseTopic]

class OffsetDeleteResponseTopic(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetDeleteResponsePartition]

class OffsetDeleteResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int

class OffsetFetchRequest(TypedDict, total=False):
    group_id: str  # 1-7
    topics: Sequence[OffsetFetchRequestTopic] | None  # 1-7
    groups: Sequence[OffsetFetchRequestGroup]  # 8+
    require_stable: bool  # 7+

class OffsetFetchRequestTopic(TypedDict, total=False):
    name: str  # 1-7
    partition_indexes: Sequence[int]  # 1-7

class OffsetFetchRequestGroup(TypedDict, total=False):
    group_id: str  # 8+
    member_id: str | None  # 9+
    member_epoch: int  # 9+
    topics: Sequence[OffsetFetchRequestTopics] | None  # 8+

class OffsetFetchRequestTopics(TypedDict, total=False):
    name: str  # 8-9
    topic_id: UUID  # 10+
    partition_indexes: Sequence[int]  # 8+

class OffsetFetchResponse(TypedDict, total=False):
    throttle_time: int  # 3+
    topics: Sequence[OffsetFetchResponseTopic]  # 1-7
    error_code: int  # 2-7
    groups: Sequence[OffsetFetchResponseGroup]  # 8+

class OffsetFetchResponseTopic(TypedDict, total=False):
    name: str  # 1-7
    partitions: Sequence[OffsetFetchResponsePartition]  # 1-7

class OffsetFetchResponsePartition(TypedDict, total=False):
    partition_index: int  # 1-7
    committed_offset: int  # 1-7
    committed_leader_epoch: int  # 5-7
    metadata: str | None  # 1-7
    error_code: int  # 1-7

class OffsetFetchResponseGroup(TypedDict, total=False):
    group_id: str  # 8+
    topics: Sequence[OffsetFetchResponseTopics]  # 8+
    error_code: int  # 8+

class OffsetFetchResponseTopics(TypedDict, total=False):
    name: str  # 8-9
    topic_id: UUID  # 10+
    partitions: Sequence[OffsetFetchResponsePartitions]  # 8+

class OffsetFetchResponsePartitions(TypedDict, total=False):
    partition_index: int  # 8+
    committed_offset: int  # 8+
    committed_leader_epoch: int  # 8+
    metadata: str | None  # 8+
    error_code: int  # 8+

class OffsetForLeaderEpochRequest(TypedDict, total=False):
    replica_id: int  # 3+
    topics: Sequence[OffsetForLeaderTopic]

class OffsetForLeaderTopic(TypedDict, total=False):
    topic: str
    partitions: Sequence[OffsetForLeaderPartition]

class OffsetForLeaderPartition(TypedDict, total=False):
    partition: int
    current_leader_epoch: int
    leader_epoch: int

class OffsetForLeaderEpochResponse(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[OffsetForLeaderTopicResult]

class OffsetForLeaderTopicResult(TypedDict, total=False):
    topic: str
    partitions: Sequence[OffsetForLeaderEpochResponseEpochEndOffset]

class OffsetForLeaderEpochResponseEpochEndOffset(TypedDict, total=False):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int

class ProduceRequest(TypedDict, total=False):
    transactional_id: str | None
    acks: int
    timeout: int
    topic_data: Sequence[TopicProduceData]

class TopicProduceData(TypedDict, total=False):
    name: str  # 3-12
    topic_id: UUID  # 13+
    partition_data: Sequence[PartitionProduceData]

class PartitionProduceData(TypedDict, total=False):
    index: int
    records: Buffer | None

class ProduceResponse(TypedDict, total=False):
    responses: Sequence[TopicProduceResponse]
    throttle_time: int
    node_endpoints: Sequence[ProduceResponseNodeEndpoint]  # 10+

class TopicProduceResponse(TypedDict, total=False):
    name: str  # 3-12
    topic_id: UUID  # 13+
    partition_responses: Sequence[PartitionProduceResponse]

class PartitionProduceResponse(TypedDict, total=False):
    index: int
    error_code: int
    base_offset: int
    log_append_time: int
    log_start_offset: int  # 5+
    record_errors: Sequence[BatchIndexAndErrorMessage]  # 8+
    error_message: str | None  # 8+
    current_leader: LeaderIdAndEpoch  # 10+

class BatchIndexAndErrorMessage(TypedDict, total=False):
    batch_index: int  # 8+
    batch_index_error_message: str | None  # 8+

class ProduceResponseNodeEndpoint(TypedDict, total=False):
    node_id: int  # 10+
    host: str  # 10+
    port: int  # 10+
    rack: str | None  # 10+

class PushTelemetryRequest(TypedDict, total=False):
    client_instance_id: UUID
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: Buffer

class PushTelemetryResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int

class ReadShareGroupStateRequest(TypedDict, total=False):
    group_id: str
    topics: Sequence[ReadStateData]

class ReadStateData(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[ReadShareGroupStateRequestPartitionData]

class ReadShareGroupStateRequestPartitionData(TypedDict, total=False):
    partition: int
    leader_epoch: int

class ReadShareGroupStateResponse(TypedDict, total=False):
    results: Sequence[ReadStateResult]

class ReadStateResult(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[ReadShareGroupStateResponsePartitionResult]

class ReadShareGroupStateResponsePartitionResult(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    start_offset: int
    state_batches: Sequence[StateBatch]

class StateBatch(TypedDict, total=False):
    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int

class ReadShareGroupStateSummaryRequest(TypedDict, total=False):
    group_id: str
    topics: Sequence[ReadStateSummaryData]

class ReadStateSummaryData(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[ReadShareGroupStateSummaryRequestPartitionData]

class ReadShareGroupStateSummaryRequestPartitionData(TypedDict, total=False):
    partition: int
    leader_epoch: int

class ReadShareGroupStateSummaryResponse(TypedDict, total=False):
    results: Sequence[ReadStateSummaryResult]

class ReadStateSummaryResult(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[ReadShareGroupStateSummaryResponsePartitionResult]

class ReadShareGroupStateSummaryResponsePartitionResult(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int  # 1+

class RemoveRaftVoterRequest(TypedDict, total=False):
    cluster_id: str | None
    voter_id: int
    voter_directory_id: UUID

class RemoveRaftVoterResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None

class RenewDelegationTokenRequest(TypedDict, total=False):
    hmac: Buffer
    renew_period: int

class RenewDelegationTokenResponse(TypedDict, total=False):
    error_code: int
    expiry_timestamp: int
    throttle_time: int

class SaslAuthenticateRequest(TypedDict, total=False):
    auth_bytes: Buffer

class SaslAuthenticateResponse(TypedDict, total=False):
    error_code: int
    error_message: str | None
    auth_bytes: Buffer
    session_lifetime: int  # 1+

class SaslHandshakeRequest(TypedDict, total=False):
    mechanism: str

class SaslHandshakeResponse(TypedDict, total=False):
    error_code: int
    mechanisms: Sequence[str]

class ShareAcknowledgeRequest(TypedDict, total=False):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool  # 2+
    topics: Sequence[AcknowledgeTopic]

class AcknowledgeTopic(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[AcknowledgePartition]

class AcknowledgePartition(TypedDict, total=False):
    partition_index: int
    acknowledgement_batches: Sequence[AcknowledgementBatch]

class AcknowledgementBatch(TypedDict, total=False):
    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]

class ShareAcknowledgeResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout: int  # 2+
    responses: Sequence[ShareAcknowledgeTopicResponse]
    node_endpoints: Sequence[ShareAcknowledgeResponseNodeEndpoint]

class ShareAcknowledgeTopicResponse(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[ShareAcknowledgeResponsePartitionData]

class ShareAcknowledgeResponsePartitionData(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    current_leader: LeaderIdAndEpoch

class ShareAcknowledgeResponseNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None

class ShareFetchRequest(TypedDict, total=False):
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
    topics: Sequence[ShareFetchRequestFetchTopic]
    forgotten_topics_data: Sequence[ShareFetchRequestForgottenTopic]

class ShareFetchRequestFetchTopic(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[ShareFetchRequestFetchPartition]

class ShareFetchRequestFetchPartition(TypedDict, total=False):
    partition_index: int
    partition_max_bytes: int  # 1
    acknowledgement_batches: Sequence[AcknowledgementBatch]

class ShareFetchRequestForgottenTopic(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[int]

class ShareFetchResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout: int
    responses: Sequence[ShareFetchableTopicResponse]
    node_endpoints: Sequence[ShareFetchResponseNodeEndpoint]

class ShareFetchableTopicResponse(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[ShareFetchResponsePartitionData]

class ShareFetchResponsePartitionData(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    acknowledge_error_code: int
    acknowledge_error_message: str | None
    current_leader: LeaderIdAndEpoch
    records: Buffer | None
    acquired_records: Sequence[AcquiredRecords]

class AcquiredRecords(TypedDict, total=False):
    first_offset: int
    last_offset: int
    delivery_count: int

class ShareFetchResponseNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None

class ShareGroupDescribeRequest(TypedDict, total=False):
    group_ids: Sequence[str]
    include_authorized_operations: bool

class ShareGroupDescribeResponse(TypedDict, total=False):
    throttle_time: int
    groups: Sequence[ShareGroupDescribeResponseDescribedGroup]

class ShareGroupDescribeResponseDescribedGroup(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[ShareGroupDescribeResponseMember]
    authorized_operations: int

class ShareGroupDescribeResponseMember(TypedDict, total=False):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    assignment: ShareGroupDescribeResponseAssignment

class ShareGroupDescribeResponseAssignment(TypedDict, total=False):
    topic_partitions: Sequence[ShareGroupDescribeResponseTopicPartitions]

class ShareGroupDescribeResponseTopicPartitions(TypedDict, total=False):
    topic_id: UUID
    topic_name: str
    partitions: Sequence[int]

class ShareGroupHeartbeatRequest(TypedDict, total=False):
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: Sequence[str] | None

class ShareGroupHeartbeatResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval: int
    assignment: ShareGroupHeartbeatResponseAssignment | None

class ShareGroupHeartbeatResponseAssignment(TypedDict, total=False):
    topic_partitions: Sequence[ShareGroupHeartbeatResponseTopicPartitions]

class ShareGroupHeartbeatResponseTopicPartitions(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[int]

class StoreUserScramCredentialsRequest(TypedDict, total=False):
    credentials: Sequence[StoredScramCredential]

class StoredScramCredential(TypedDict, total=False):
    name: str
    mechanism: int
    iterations: int
    salt: Buffer
    stored_key: Buffer
    server_key: Buffer

class StoreUserScramCredentialsResponse(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[StoreUserScramCredentialsResult]

class StoreUserScramCredentialsResult(TypedDict, total=False):
    user: str
    mechanism: int
    error_code: int
    error_message: str | None

class StreamsGroupDescribeRequest(TypedDict, total=False):
    group_ids: Sequence[str]
    include_authorized_operations: bool
    include_topology_description: bool  # 1+

class StreamsGroupDescribeResponse(TypedDict, total=False):
    throttle_time: int
    groups: Sequence[StreamsGroupDescribeResponseDescribedGroup]

class StreamsGroupDescribeResponseDescribedGroup(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    topology: StreamsGroupDescribeResponseTopology | None
    members: Sequence[StreamsGroupDescribeResponseMember]
    authorized_operations: int
    topology_description: TopologyDescription | None  # 1+
    topology_description_status: int  # 1+
    assignor_name: str | None  # 1+

class StreamsGroupDescribeResponseTopology(TypedDict, total=False):
    epoch: int
    subtopologies: Sequence[StreamsGroupDescribeResponseSubtopology] | None

class StreamsGroupDescribeResponseSubtopology(TypedDict, total=False):
    subtopology_id: str
    source_topics: Sequence[str]
    repartition_sink_topics: Sequence[str]
    state_changelog_topics: Sequence[TopicInfo]
    repartition_source_topics: Sequence[TopicInfo]

class TopicInfo(TypedDict, total=False):
    name: str
    partitions: int
    replication_factor: int
    topic_configs: Sequence[KeyValue]

class KeyValue(TypedDict, total=False):
    key: str
    value: str

class StreamsGroupDescribeResponseMember(TypedDict, total=False):
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: Endpoint | None
    client_tags: Sequence[KeyValue]
    task_offsets: Sequence[TaskOffset]
    task_end_offsets: Sequence[TaskOffset]
    assignment: StreamsGroupDescribeResponseAssignment
    target_assignment: StreamsGroupDescribeResponseAssignment
    is_classic: bool

class Endpoint(TypedDict, total=False):
    host: str
    port: int

class TaskOffset(TypedDict, total=False):
    subtopology_id: str
    partition: int
    offset: int

class StreamsGroupDescribeResponseAssignment(TypedDict, total=False):
    active_tasks: Sequence[TaskIds]
    standby_tasks: Sequence[TaskIds]
    warmup_tasks: Sequence[TaskIds]

class TaskIds(TypedDict, total=False):
    subtopology_id: str
    partitions: Sequence[int]

class TopologyDescription(TypedDict, total=False):
    subtopologies: Sequence[TopologyDescriptionSubtopology]
    global_stores: Sequence[TopologyDescriptionGlobalStore]

class TopologyDescriptionSubtopology(TypedDict, total=False):
    subtopology_id: str
    nodes: Sequence[TopologyDescriptionNode]

class TopologyDescriptionNode(TypedDict, total=False):
    name: str
    node_type: int
    source_topics: Sequence[str]
    sink_topic: str | None
    stores: Sequence[str]
    successors: Sequence[str]

class TopologyDescriptionGlobalStore(TypedDict, total=False):
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode

class StreamsGroupHeartbeatRequest(TypedDict, total=False):
    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout: int
    topology: StreamsGroupHeartbeatRequestTopology | None
    active_tasks: Sequence[TaskIds] | None
    standby_tasks: Sequence[TaskIds] | None
    warmup_tasks: Sequence[TaskIds] | None
    process_id: str | None
    user_endpoint: Endpoint | None
    client_tags: Sequence[KeyValue] | None
    task_offsets: Sequence[TaskOffset] | None
    task_end_offsets: Sequence[TaskOffset] | None
    shutdown_application: bool

class StreamsGroupHeartbeatRequestTopology(TypedDict, total=False):
    epoch: int
    subtopologies: Sequence[StreamsGroupHeartbeatRequestSubtopology]

class StreamsGroupHeartbeatRequestSubtopology(TypedDict, total=False):
    subtopology_id: str
    source_topics: Sequence[str]
    source_topic_regex: Sequence[str]
    state_changelog_topics: Sequence[TopicInfo]
    repartition_sink_topics: Sequence[str]
    repartition_source_topics: Sequence[TopicInfo]
    copartition_groups: Sequence[CopartitionGroup]

class CopartitionGroup(TypedDict, total=False):
    source_topics: Sequence[int]
    source_topic_regex: Sequence[int]
    repartition_source_topics: Sequence[int]

class StreamsGroupHeartbeatResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    member_id: str
    member_epoch: int
    heartbeat_interval: int
    acceptable_recovery_lag_legacy: int  # 0
    task_offset_interval: int
    acceptable_recovery_lag: int  # 1+
    status: Sequence[Status] | None
    active_tasks: Sequence[TaskIds] | None
    standby_tasks: Sequence[TaskIds] | None
    warmup_tasks: Sequence[TaskIds] | None
    topology_description_required: bool  # 1+
    endpoint_information_epoch: int
    partitions_by_user_endpoint: Sequence[EndpointToPartitions] | None

class Status(TypedDict, total=False):
    status_code: int
    status_detail: str

class EndpointToPartitions(TypedDict, total=False):
    user_endpoint: Endpoint
    active_partitions: Sequence[TopicPartition]
    standby_partitions: Sequence[TopicPartition]

class TopicPartition(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]

class StreamsGroupTopologyDescriptionUpdateRequest(TypedDict, total=False):
    group_id: str
    member_id: str
    topology_epoch: int
    topology_description: TopologyDescription

class StreamsGroupTopologyDescriptionUpdateResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None

class SyncGroupRequest(TypedDict, total=False):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None  # 3+
    protocol_type: str | None  # 5+
    protocol_name: str | None  # 5+
    assignments: Sequence[SyncGroupRequestAssignment]

class SyncGroupRequestAssignment(TypedDict, total=False):
    member_id: str
    assignment: Buffer

class SyncGroupResponse(TypedDict, total=False):
    throttle_time: int  # 1+
    error_code: int
    protocol_type: str | None  # 5+
    protocol_name: str | None  # 5+
    assignment: Buffer

class TxnOffsetCommitRequest(TypedDict, total=False):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id_or_member_epoch: int  # 3+
    member_id: str  # 3+
    group_instance_id: str | None  # 3+
    topics: Sequence[TxnOffsetCommitRequestTopic]

class TxnOffsetCommitRequestTopic(TypedDict, total=False):
    name: str  # 0-5
    topic_id: UUID  # 6+
    partitions: Sequence[TxnOffsetCommitRequestPartition]

class TxnOffsetCommitRequestPartition(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int  # 2+
    committed_metadata: str | None

class TxnOffsetCommitResponse(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[TxnOffsetCommitResponseTopic]

class TxnOffsetCommitResponseTopic(TypedDict, total=False):
    name: str  # 0-5
    topic_id: UUID  # 6+
    partitions: Sequence[TxnOffsetCommitResponsePartition]

class TxnOffsetCommitResponsePartition(TypedDict, total=False):
    partition_index: int
    error_code: int

class UnregisterBrokerRequest(TypedDict, total=False):
    broker_id: int

class UnregisterBrokerResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None

class UnregisterControllerRequest(TypedDict, total=False):
    controller_id: int

class UnregisterControllerResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None

class UpdateFeaturesRequest(TypedDict, total=False):
    timeout: int
    feature_updates: Sequence[FeatureUpdateKey]
    validate_only: bool  # 1+

class FeatureUpdateKey(TypedDict, total=False):
    feature: str
    max_version_level: int
    allow_downgrade: bool  # 0
    upgrade_type: int  # 1+

class UpdateFeaturesResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    results: Sequence[UpdatableFeatureResult]  # 0-1

class UpdatableFeatureResult(TypedDict, total=False):
    feature: str
    error_code: int
    error_message: str | None

class UpdateRaftVoterRequest(TypedDict, total=False):
    cluster_id: str | None
    current_leader_epoch: int
    voter_id: int
    voter_directory_id: UUID
    listeners: Sequence[UpdateRaftVoterRequestListener]
    k_raft_version_feature: KRaftVersionFeature

class UpdateRaftVoterRequestListener(TypedDict, total=False):
    name: str
    host: str
    port: int

class KRaftVersionFeature(TypedDict, total=False):
    min_supported_version: int
    max_supported_version: int

class UpdateRaftVoterResponse(TypedDict, total=False):
    throttle_time: int
    error_code: int
    current_leader: CurrentLeader

class CurrentLeader(TypedDict, total=False):
    leader_id: int
    leader_epoch: int
    host: str
    port: int

class VoteRequest(TypedDict, total=False):
    cluster_id: str | None
    voter_id: int  # 1+
    topics: Sequence[VoteRequestTopicData]

class VoteRequestTopicData(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[VoteRequestPartitionData]

class VoteRequestPartitionData(TypedDict, total=False):
    partition_index: int
    replica_epoch: int
    replica_id: int
    replica_directory_id: UUID  # 1+
    voter_directory_id: UUID  # 1+
    last_offset_epoch: int
    last_offset: int
    pre_vote: bool  # 2+

class VoteResponse(TypedDict, total=False):
    error_code: int
    topics: Sequence[VoteResponseTopicData]
    node_endpoints: Sequence[VoteResponseNodeEndpoint]  # 1+

class VoteResponseTopicData(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[VoteResponsePartitionData]

class VoteResponsePartitionData(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    vote_granted: bool

class VoteResponseNodeEndpoint(TypedDict, total=False):
    node_id: int  # 1+
    host: str  # 1+
    port: int  # 1+

class WriteShareGroupStateRequest(TypedDict, total=False):
    group_id: str
    topics: Sequence[WriteStateData]

class WriteStateData(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[WriteShareGroupStateRequestPartitionData]

class WriteShareGroupStateRequestPartitionData(TypedDict, total=False):
    partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int  # 1+
    state_batches: Sequence[StateBatch]

class WriteShareGroupStateResponse(TypedDict, total=False):
    results: Sequence[WriteStateResult]

class WriteStateResult(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[WriteShareGroupStateResponsePartitionResult]

class WriteShareGroupStateResponsePartitionResult(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None

class WriteTxnMarkersRequest(TypedDict, total=False):
    markers: Sequence[WritableTxnMarker]

class WritableTxnMarker(TypedDict, total=False):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: Sequence[WritableTxnMarkerTopic]
    coordinator_epoch: int
    transaction_version: int  # 2+

class WritableTxnMarkerTopic(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]

class WriteTxnMarkersResponse(TypedDict, total=False):
    markers: Sequence[WritableTxnMarkerResult]

class WritableTxnMarkerResult(TypedDict, total=False):
    producer_id: int
    topics: Sequence[WritableTxnMarkerTopicResult]

class WritableTxnMarkerTopicResult(TypedDict, total=False):
    name: str
    partitions: Sequence[WritableTxnMarkerPartitionResult]

class WritableTxnMarkerPartitionResult(TypedDict, total=False):
    partition_index: int
    error_code: int
