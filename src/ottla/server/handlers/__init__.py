"""One file per API; its head says versions, behaviour and KIPs. This table is what ApiVersions advertises.

A handler may import all layers below `server`, and `ottla.server.api`. Modules load on the first request for their API,
so that start-up pays for none of them; `api.load` checks a module's decorator against its row here.
Start at `list_offsets.py` for an ordinary handler, at `produce.py` for the hot path.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.protocol.messages import ApiKey


class Served(NamedTuple):
    """One API as advertised: the module (below this package) that handles it, and the versions, both inclusive."""

    module: str
    min_version: int
    max_version: int


OWN: dict[int, Served] = {
    ApiKey.LIST_CLIENTS: Served("list_clients", 0, 0),
    ApiKey.DISCONNECT_CLIENTS: Served("disconnect_clients", 0, 0),
}
"""APIs that Kafka does not have. Only Ottla's own commands hear of them."""

TABLE: dict[int, Served] = {
    ApiKey.PRODUCE: Served("produce", 0, 13),
    ApiKey.FETCH: Served("fetch", 4, 18),
    ApiKey.LIST_OFFSETS: Served("list_offsets", 1, 11),
    ApiKey.METADATA: Served("metadata", 0, 13),
    ApiKey.OFFSET_COMMIT: Served("offset_commit", 2, 10),
    ApiKey.OFFSET_FETCH: Served("offset_fetch", 1, 10),
    ApiKey.FIND_COORDINATOR: Served("find_coordinator", 0, 6),
    ApiKey.JOIN_GROUP: Served("join_group", 0, 9),
    ApiKey.HEARTBEAT: Served("heartbeat", 0, 4),
    ApiKey.LEAVE_GROUP: Served("leave_group", 0, 5),
    ApiKey.SYNC_GROUP: Served("sync_group", 0, 5),
    ApiKey.DESCRIBE_GROUPS: Served("describe_groups", 0, 6),
    ApiKey.LIST_GROUPS: Served("list_groups", 0, 5),
    ApiKey.SASL_HANDSHAKE: Served("sasl_handshake", 0, 1),
    ApiKey.API_VERSIONS: Served("api_versions", 0, 4),
    ApiKey.CREATE_TOPICS: Served("create_topics", 2, 7),
    ApiKey.DELETE_TOPICS: Served("delete_topics", 1, 6),
    ApiKey.DELETE_RECORDS: Served("delete_records", 0, 2),
    ApiKey.INIT_PRODUCER_ID: Served("init_producer_id", 0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: Served("add_partitions_to_txn", 0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: Served("add_offsets_to_txn", 0, 4),
    ApiKey.END_TXN: Served("end_txn", 0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Served("offset_for_leader_epoch", 2, 4),
    ApiKey.WRITE_TXN_MARKERS: Served("write_txn_markers", 1, 2),
    ApiKey.TXN_OFFSET_COMMIT: Served("txn_offset_commit", 0, 5),
    ApiKey.DESCRIBE_ACLS: Served("describe_acls", 1, 3),
    ApiKey.CREATE_ACLS: Served("create_acls", 1, 3),
    ApiKey.DELETE_ACLS: Served("delete_acls", 1, 3),
    ApiKey.DESCRIBE_CONFIGS: Served("describe_configs", 1, 4),
    ApiKey.ALTER_CONFIGS: Served("alter_configs", 0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Served("alter_replica_log_dirs", 1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Served("describe_log_dirs", 1, 5),
    ApiKey.SASL_AUTHENTICATE: Served("sasl_authenticate", 0, 2),
    ApiKey.CREATE_PARTITIONS: Served("create_partitions", 0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: Served("create_delegation_token", 1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: Served("renew_delegation_token", 1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Served("expire_delegation_token", 1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Served("describe_delegation_token", 1, 3),
    ApiKey.DELETE_GROUPS: Served("delete_groups", 0, 2),
    ApiKey.ELECT_LEADERS: Served("elect_leaders", 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served("incremental_alter_configs", 0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served("alter_partition_reassignments", 0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served("list_partition_reassignments", 0, 0),
    ApiKey.OFFSET_DELETE: Served("offset_delete", 0, 0),
    ApiKey.DESCRIBE_QUORUM: Served("describe_quorum", 0, 2),
    ApiKey.ADD_RAFT_VOTER: Served("add_raft_voter", 0, 1),
    ApiKey.REMOVE_RAFT_VOTER: Served("remove_raft_voter", 0, 0),
    ApiKey.UPDATE_FEATURES: Served("update_features", 0, 2),
    ApiKey.DESCRIBE_CLUSTER: Served("describe_cluster", 0, 2),
    ApiKey.DESCRIBE_PRODUCERS: Served("describe_producers", 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Served("describe_transactions", 0, 0),
    ApiKey.LIST_TRANSACTIONS: Served("list_transactions", 0, 2),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Served("describe_client_quotas", 0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: Served("alter_client_quotas", 0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served("describe_user_scram_credentials", 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served("alter_user_scram_credentials", 0, 0),
    ApiKey.UNREGISTER_BROKER: Served("unregister_broker", 0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Served("consumer_group_heartbeat", 0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Served("consumer_group_describe", 0, 1),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Served("get_telemetry_subscriptions", 0, 0),
    ApiKey.PUSH_TELEMETRY: Served("push_telemetry", 0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: Served("list_config_resources", 0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Served("describe_topic_partitions", 0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: Served("share_group_heartbeat", 1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: Served("share_group_describe", 1, 1),
    ApiKey.SHARE_FETCH: Served("share_fetch", 1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: Served("share_acknowledge", 1, 2),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Served("initialize_share_group_state", 0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: Served("read_share_group_state", 0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: Served("write_share_group_state", 0, 1),
    ApiKey.DELETE_SHARE_GROUP_STATE: Served("delete_share_group_state", 0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Served("read_share_group_state_summary", 0, 1),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Served("streams_group_heartbeat", 0, 0),
    ApiKey.STREAMS_GROUP_DESCRIBE: Served("streams_group_describe", 0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Served("describe_share_group_offsets", 0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Served("alter_share_group_offsets", 0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Served("delete_share_group_offsets", 0, 0),
}
