"""Handlers of what only a controller's listener serves, one file per API, and the table of all that it serves.

Brokers and controllers are the clients here: registrations and heartbeats, the metadata log and its snapshots, requests
of clients that a broker forwards (`envelope.py`), and the tools that ask a controller directly (KIP-919). What is the
same on both kinds of listener is in `ottla.server.handlers`. Start at `broker_heartbeat.py`, then `fetch.py`.
"""

from __future__ import annotations

from ottla.protocol.messages import ApiKey
from ottla.server.handlers import Served

CONTROLLER_TABLE: dict[int, Served] = {
    ApiKey.FETCH: Served("controller_handlers.fetch", 4, 18),
    ApiKey.SASL_HANDSHAKE: Served("handlers.sasl_handshake", 0, 1),
    ApiKey.API_VERSIONS: Served("handlers.api_versions", 0, 4),
    ApiKey.CREATE_TOPICS: Served("handlers.create_topics", 2, 7),
    ApiKey.DELETE_TOPICS: Served("handlers.delete_topics", 1, 6),
    ApiKey.DESCRIBE_ACLS: Served("handlers.describe_acls", 1, 3),
    ApiKey.CREATE_ACLS: Served("handlers.create_acls", 1, 3),
    ApiKey.DELETE_ACLS: Served("handlers.delete_acls", 1, 3),
    ApiKey.DESCRIBE_CONFIGS: Served("handlers.describe_configs", 1, 4),
    ApiKey.ALTER_CONFIGS: Served("handlers.alter_configs", 0, 2),
    ApiKey.SASL_AUTHENTICATE: Served("handlers.sasl_authenticate", 0, 2),
    ApiKey.CREATE_PARTITIONS: Served("handlers.create_partitions", 0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: Served("handlers.create_delegation_token", 1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: Served("handlers.renew_delegation_token", 1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Served("handlers.expire_delegation_token", 1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Served("handlers.describe_delegation_token", 1, 3),
    ApiKey.ELECT_LEADERS: Served("handlers.elect_leaders", 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served("handlers.incremental_alter_configs", 0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served("handlers.alter_partition_reassignments", 0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served("handlers.list_partition_reassignments", 0, 0),
    ApiKey.ALTER_CLIENT_QUOTAS: Served("handlers.alter_client_quotas", 0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served("handlers.describe_user_scram_credentials", 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served("handlers.alter_user_scram_credentials", 0, 0),
    ApiKey.VOTE: Served("controller_handlers.vote", 0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: Served("controller_handlers.begin_quorum_epoch", 0, 1),
    ApiKey.END_QUORUM_EPOCH: Served("controller_handlers.end_quorum_epoch", 0, 1),
    ApiKey.DESCRIBE_QUORUM: Served("handlers.describe_quorum", 0, 2),
    ApiKey.ALTER_PARTITION: Served("controller_handlers.alter_partition", 2, 3),
    ApiKey.UPDATE_FEATURES: Served("handlers.update_features", 0, 2),
    ApiKey.ENVELOPE: Served("controller_handlers.envelope", 0, 0),
    ApiKey.FETCH_SNAPSHOT: Served("controller_handlers.fetch_snapshot", 0, 1),
    ApiKey.DESCRIBE_CLUSTER: Served("controller_handlers.describe_cluster", 0, 2),
    ApiKey.BROKER_REGISTRATION: Served("controller_handlers.broker_registration", 0, 4),
    ApiKey.BROKER_HEARTBEAT: Served("controller_handlers.broker_heartbeat", 0, 2),
    ApiKey.UNREGISTER_BROKER: Served("handlers.unregister_broker", 0, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: Served("controller_handlers.allocate_producer_ids", 0, 0),
    ApiKey.CONTROLLER_REGISTRATION: Served("controller_handlers.controller_registration", 0, 0),
    ApiKey.ADD_RAFT_VOTER: Served("handlers.add_raft_voter", 0, 1),
    ApiKey.REMOVE_RAFT_VOTER: Served("handlers.remove_raft_voter", 0, 0),
    ApiKey.UPDATE_RAFT_VOTER: Served("controller_handlers.update_raft_voter", 0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Served("controller_handlers.assign_replicas_to_dirs", 0, 0),
}

FORWARDABLE = frozenset(
    {
        ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.ALTER_CONFIGS, ApiKey.CREATE_PARTITIONS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER,
        ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)  # fmt: skip
"""APIs allowed in an Envelope (`forwardable` in Kafka's `ApiKeys`) among those served."""
