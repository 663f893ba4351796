"""One file per API; its head says versions, behaviour and KIPs. This table is what ApiVersions advertises.

A handler may import all layers below `server`, and `ottla.server.api`. Modules load on the first request for their API,
so that start-up pays for none of them, or soon after it (`main.ASKED_FIRST`); `api.load` checks a module's decorator
against its row here.
Start at `records/list_offsets.py` for an ordinary handler, at `records/produce.py` for the hot path.
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
    ApiKey.LIST_CLIENTS: Served("cluster.list_clients", 0, 0),
    ApiKey.DISCONNECT_CLIENTS: Served("cluster.disconnect_clients", 0, 0),
    ApiKey.DESCRIBE_LOST_LETTERS: Served("share.describe_lost_letters", 0, 0),
    ApiKey.STORE_USER_SCRAM_CREDENTIALS: Served("security.store_user_scram_credentials", 0, 0),
    ApiKey.DESCRIBE_SHARE_PARTITIONS: Served("share.describe_share_partitions", 0, 0),
}
"""APIs that Kafka does not have. Only Ottla's own commands and mirrors hear of them."""

TABLE: dict[int, Served] = {
    ApiKey.PRODUCE: Served("records.produce", 0, 13),
    ApiKey.FETCH: Served("records.fetch", 4, 18),
    ApiKey.LIST_OFFSETS: Served("records.list_offsets", 1, 11),
    ApiKey.METADATA: Served("topics.metadata", 0, 13),
    ApiKey.OFFSET_COMMIT: Served("groups.offset_commit", 2, 10),
    ApiKey.OFFSET_FETCH: Served("groups.offset_fetch", 1, 10),
    ApiKey.FIND_COORDINATOR: Served("groups.find_coordinator", 0, 6),
    ApiKey.JOIN_GROUP: Served("groups.join_group", 0, 9),
    ApiKey.HEARTBEAT: Served("groups.heartbeat", 0, 4),
    ApiKey.LEAVE_GROUP: Served("groups.leave_group", 0, 5),
    ApiKey.SYNC_GROUP: Served("groups.sync_group", 0, 5),
    ApiKey.DESCRIBE_GROUPS: Served("groups.describe_groups", 0, 6),
    ApiKey.LIST_GROUPS: Served("groups.list_groups", 0, 5),
    ApiKey.SASL_HANDSHAKE: Served("security.sasl_handshake", 0, 1),
    ApiKey.API_VERSIONS: Served("cluster.api_versions", 0, 5),
    ApiKey.CREATE_TOPICS: Served("topics.create_topics", 2, 7),
    ApiKey.DELETE_TOPICS: Served("topics.delete_topics", 1, 6),
    ApiKey.DELETE_RECORDS: Served("records.delete_records", 0, 2),
    ApiKey.INIT_PRODUCER_ID: Served("transactions.init_producer_id", 0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: Served("transactions.add_partitions_to_txn", 0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: Served("transactions.add_offsets_to_txn", 0, 4),
    ApiKey.END_TXN: Served("transactions.end_txn", 0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Served("records.offset_for_leader_epoch", 2, 4),
    ApiKey.WRITE_TXN_MARKERS: Served("transactions.write_txn_markers", 1, 2),
    ApiKey.TXN_OFFSET_COMMIT: Served("transactions.txn_offset_commit", 0, 6),
    ApiKey.DESCRIBE_ACLS: Served("security.describe_acls", 1, 3),
    ApiKey.CREATE_ACLS: Served("security.create_acls", 1, 3),
    ApiKey.DELETE_ACLS: Served("security.delete_acls", 1, 3),
    ApiKey.DESCRIBE_CONFIGS: Served("configs.describe_configs", 1, 4),
    ApiKey.ALTER_CONFIGS: Served("configs.alter_configs", 0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Served("cluster.alter_replica_log_dirs", 1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Served("cluster.describe_log_dirs", 1, 5),
    ApiKey.SASL_AUTHENTICATE: Served("security.sasl_authenticate", 0, 2),
    ApiKey.CREATE_PARTITIONS: Served("topics.create_partitions", 0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: Served("security.create_delegation_token", 1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: Served("security.renew_delegation_token", 1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Served("security.expire_delegation_token", 1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Served("security.describe_delegation_token", 1, 3),
    ApiKey.DELETE_GROUPS: Served("groups.delete_groups", 0, 3),
    ApiKey.ELECT_LEADERS: Served("topics.elect_leaders", 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served("configs.incremental_alter_configs", 0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served("topics.alter_partition_reassignments", 0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served("topics.list_partition_reassignments", 0, 0),
    ApiKey.OFFSET_DELETE: Served("groups.offset_delete", 0, 0),
    ApiKey.DESCRIBE_QUORUM: Served("cluster.describe_quorum", 0, 2),
    ApiKey.ADD_RAFT_VOTER: Served("cluster.add_raft_voter", 0, 1),
    ApiKey.REMOVE_RAFT_VOTER: Served("cluster.remove_raft_voter", 0, 0),
    ApiKey.UPDATE_FEATURES: Served("cluster.update_features", 0, 2),
    ApiKey.DESCRIBE_CLUSTER: Served("cluster.describe_cluster", 0, 2),
    ApiKey.DESCRIBE_PRODUCERS: Served("records.describe_producers", 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Served("transactions.describe_transactions", 0, 0),
    ApiKey.LIST_TRANSACTIONS: Served("transactions.list_transactions", 0, 2),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Served("configs.describe_client_quotas", 0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: Served("configs.alter_client_quotas", 0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served("security.describe_user_scram_credentials", 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served("security.alter_user_scram_credentials", 0, 0),
    ApiKey.UNREGISTER_BROKER: Served("cluster.unregister_broker", 0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Served("groups.consumer_group_heartbeat", 0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Served("groups.consumer_group_describe", 0, 1),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Served("cluster.get_telemetry_subscriptions", 0, 0),
    ApiKey.PUSH_TELEMETRY: Served("cluster.push_telemetry", 0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: Served("configs.list_config_resources", 0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Served("topics.describe_topic_partitions", 0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: Served("share.share_group_heartbeat", 1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: Served("share.share_group_describe", 1, 1),
    ApiKey.SHARE_FETCH: Served("share.share_fetch", 1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: Served("share.share_acknowledge", 1, 2),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Served("share.initialize_share_group_state", 0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: Served("share.read_share_group_state", 0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: Served("share.write_share_group_state", 0, 1),
    ApiKey.DELETE_SHARE_GROUP_STATE: Served("share.delete_share_group_state", 0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Served("share.read_share_group_state_summary", 0, 1),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Served("groups.streams_group_heartbeat", 0, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: Served("groups.streams_group_describe", 0, 1),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Served("share.describe_share_group_offsets", 0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Served("share.alter_share_group_offsets", 0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Served("share.delete_share_group_offsets", 0, 0),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: Served("groups.streams_group_topology_description_update", 0, 0),
    ApiKey.UNREGISTER_CONTROLLER: Served("cluster.unregister_controller", 0, 0),
}

FORWARDABLE = frozenset(
    {
        ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.ALTER_CONFIGS, ApiKey.CREATE_PARTITIONS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER,
        ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.STORE_USER_SCRAM_CREDENTIALS,
    }
)  # fmt: skip
"""APIs allowed in an Envelope (`forwardable` in Kafka's `ApiKeys`) among those served, and Ottla's own."""
