"""Handlers of what only a controller's listener serves, one file per API, and the table of all that it serves.

Brokers and controllers are the clients here: registrations and heartbeats, the metadata log and its snapshots, requests
of clients that a broker forwards (`envelope.py`), and the tools that ask a controller directly (KIP-919). What is the
same on both kinds of listener is in `ottla.server.handlers`. Start at `broker_heartbeat.py`, then `fetch.py`.
"""

from __future__ import annotations

from ottla.protocol.messages import ApiKey
from ottla.server.handlers import FORWARDABLE, OWN, Served

CONTROLLER_TABLE: dict[int, Served] = {
    ApiKey.FETCH: Served("controller_handlers.fetch", 4, 18),
    ApiKey.SASL_HANDSHAKE: Served("handlers.security.sasl_handshake", 0, 1),
    ApiKey.API_VERSIONS: Served("handlers.cluster.api_versions", 0, 5),
    ApiKey.CREATE_TOPICS: Served("handlers.topics.create_topics", 2, 7),
    ApiKey.DELETE_TOPICS: Served("handlers.topics.delete_topics", 1, 6),
    ApiKey.DESCRIBE_ACLS: Served("handlers.security.describe_acls", 1, 3),
    ApiKey.CREATE_ACLS: Served("handlers.security.create_acls", 1, 3),
    ApiKey.DELETE_ACLS: Served("handlers.security.delete_acls", 1, 3),
    ApiKey.DESCRIBE_CONFIGS: Served("handlers.configs.describe_configs", 1, 4),
    ApiKey.ALTER_CONFIGS: Served("handlers.configs.alter_configs", 0, 2),
    ApiKey.SASL_AUTHENTICATE: Served("handlers.security.sasl_authenticate", 0, 2),
    ApiKey.CREATE_PARTITIONS: Served("handlers.topics.create_partitions", 0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: Served("handlers.security.create_delegation_token", 1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: Served("handlers.security.renew_delegation_token", 1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Served("handlers.security.expire_delegation_token", 1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Served("handlers.security.describe_delegation_token", 1, 3),
    ApiKey.ELECT_LEADERS: Served("handlers.topics.elect_leaders", 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served("handlers.configs.incremental_alter_configs", 0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served("handlers.topics.alter_partition_reassignments", 0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served("handlers.topics.list_partition_reassignments", 0, 0),
    ApiKey.ALTER_CLIENT_QUOTAS: Served("handlers.configs.alter_client_quotas", 0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served("handlers.security.describe_user_scram_credentials", 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served("handlers.security.alter_user_scram_credentials", 0, 0),
    ApiKey.VOTE: Served("controller_handlers.vote", 0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: Served("controller_handlers.begin_quorum_epoch", 0, 1),
    ApiKey.END_QUORUM_EPOCH: Served("controller_handlers.end_quorum_epoch", 0, 1),
    ApiKey.DESCRIBE_QUORUM: Served("handlers.cluster.describe_quorum", 0, 2),
    ApiKey.ALTER_PARTITION: Served("controller_handlers.alter_partition", 2, 3),
    ApiKey.UPDATE_FEATURES: Served("handlers.cluster.update_features", 0, 2),
    ApiKey.ENVELOPE: Served("controller_handlers.envelope", 0, 0),
    ApiKey.FETCH_SNAPSHOT: Served("controller_handlers.fetch_snapshot", 0, 1),
    ApiKey.DESCRIBE_CLUSTER: Served("controller_handlers.describe_cluster", 0, 2),
    ApiKey.BROKER_REGISTRATION: Served("controller_handlers.broker_registration", 0, 4),
    ApiKey.BROKER_HEARTBEAT: Served("controller_handlers.broker_heartbeat", 0, 2),
    ApiKey.UNREGISTER_BROKER: Served("handlers.cluster.unregister_broker", 0, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: Served("controller_handlers.allocate_producer_ids", 0, 0),
    ApiKey.CONTROLLER_REGISTRATION: Served("controller_handlers.controller_registration", 0, 0),
    ApiKey.ADD_RAFT_VOTER: Served("handlers.cluster.add_raft_voter", 0, 1),
    ApiKey.REMOVE_RAFT_VOTER: Served("handlers.cluster.remove_raft_voter", 0, 0),
    ApiKey.UPDATE_RAFT_VOTER: Served("controller_handlers.update_raft_voter", 0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Served("controller_handlers.assign_replicas_to_dirs", 0, 0),
    ApiKey.UNREGISTER_CONTROLLER: Served("handlers.cluster.unregister_controller", 0, 0),
}

OWN_FORWARDED: dict[int, Served] = {
    key: OWN[key]._replace(module=f"handlers.{OWN[key].module}") for key in sorted(FORWARDABLE & OWN.keys())
}
"""APIs that Kafka does not have and that brokers forward. Only Ottla's nodes, commands and mirrors hear of them."""
