"""The settings of a node as typed attributes: `num_partitions` for `num.partitions`.

Made by `python -m tools.settings_types src/ottla/config/typed.py`; never edited. Left out are settings without effect,
those of TLS and logins, which may differ by listener (`listener_settings.py` reads them), and those for which
`ServerConfig` has an attribute of the same name that says more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.config.secret import Secret


class TypedSettings(Mapping[str, Any]):
    """`EffectiveConfig` and `ServerConfig` read an attribute from the table when it is first asked for. As a mapping it
    has every setting of the table by its name."""

    if TYPE_CHECKING:
        add_partitions_to_txn_retry_backoff_max_ms: int
        add_partitions_to_txn_retry_backoff_ms: int
        alter_log_dirs_replication_quota_window_num: int
        alter_log_dirs_replication_quota_window_size_seconds: int
        authorizer_class_name: str
        auto_create_topics_enable: bool
        auto_leader_rebalance_enable: bool
        broker_heartbeat_interval_ms: int
        broker_id: int
        broker_id_generation_enable: bool
        broker_rack: str | None
        broker_session_timeout_ms: int
        compression_gzip_level: int
        compression_lz4_level: int
        compression_type: str
        compression_zstd_level: int
        config_providers: tuple[str, ...]
        connection_failed_authentication_delay_ms: int
        connections_max_idle_ms: int
        connections_max_reauth_ms: int
        controller_listener_names: tuple[str, ...]
        controller_quorum_auto_join_enable: bool
        controller_quorum_bootstrap_servers: tuple[str, ...]
        controller_quorum_election_backoff_max_ms: int
        controller_quorum_election_timeout_ms: int
        controller_quorum_fetch_max_bytes: int
        controller_quorum_fetch_snapshot_max_bytes: int
        controller_quorum_fetch_timeout_ms: int
        controller_quorum_request_timeout_ms: int
        controller_quorum_retry_backoff_ms: int
        controller_quorum_voters: tuple[str, ...]
        controller_quota_window_num: int
        controller_quota_window_size_seconds: int
        default_replication_factor: int
        delegation_token_expiry_check_interval_ms: int
        delegation_token_expiry_time_ms: int
        delegation_token_max_lifetime_ms: int
        delegation_token_secret_key: Secret | None
        delete_topic_enable: bool
        early_start_listeners: tuple[str, ...] | None
        errors_deadletterqueue_auto_create_topics_enable: bool
        errors_deadletterqueue_topic_name_prefix: str
        fetch_max_bytes: int
        group_consumer_assignment_interval_ms: int
        group_consumer_assignors: tuple[str, ...]
        group_consumer_heartbeat_interval_ms: int
        group_consumer_max_assignment_interval_ms: int
        group_consumer_max_heartbeat_interval_ms: int
        group_consumer_max_session_timeout_ms: int
        group_consumer_max_size: int
        group_consumer_migration_policy: str
        group_consumer_min_assignment_interval_ms: int
        group_consumer_min_heartbeat_interval_ms: int
        group_consumer_min_session_timeout_ms: int
        group_consumer_regex_refresh_interval_ms: int
        group_consumer_session_timeout_ms: int
        group_coordinator_append_linger_ms: int
        group_coordinator_rebalance_protocols: tuple[str, ...]
        group_initial_rebalance_delay_ms: int
        group_max_session_timeout_ms: int
        group_max_size: int
        group_min_session_timeout_ms: int
        group_share_assignment_interval_ms: int
        group_share_delivery_count_limit: int
        group_share_heartbeat_interval_ms: int
        group_share_initialize_retry_interval_ms: int
        group_share_max_assignment_interval_ms: int
        group_share_max_delivery_count_limit: int
        group_share_max_heartbeat_interval_ms: int
        group_share_max_partition_max_record_locks: int
        group_share_max_record_lock_duration_ms: int
        group_share_max_session_timeout_ms: int
        group_share_max_share_sessions: int
        group_share_max_size: int
        group_share_min_assignment_interval_ms: int
        group_share_min_delivery_count_limit: int
        group_share_min_heartbeat_interval_ms: int
        group_share_min_partition_max_record_locks: int
        group_share_min_record_lock_duration_ms: int
        group_share_min_session_timeout_ms: int
        group_share_partition_max_record_locks: int
        group_share_record_lock_duration_ms: int
        group_share_session_timeout_ms: int
        group_streams_acceptable_recovery_lag: int
        group_streams_assignment_interval_ms: int
        group_streams_assignors: tuple[str, ...]
        group_streams_heartbeat_interval_ms: int
        group_streams_initial_rebalance_delay_ms: int
        group_streams_max_assignment_interval_ms: int
        group_streams_max_heartbeat_interval_ms: int
        group_streams_max_session_timeout_ms: int
        group_streams_max_size: int
        group_streams_max_standby_replicas: int
        group_streams_max_warmup_replicas: int
        group_streams_min_assignment_interval_ms: int
        group_streams_min_heartbeat_interval_ms: int
        group_streams_min_session_timeout_ms: int
        group_streams_min_task_offset_interval_ms: int
        group_streams_num_standby_replicas: int
        group_streams_num_warmup_replicas: int
        group_streams_rack_aware_assignment_tags: tuple[str, ...]
        group_streams_session_timeout_ms: int
        group_streams_task_offset_interval_ms: int
        initial_broker_registration_timeout_ms: int
        leader_imbalance_check_interval_seconds: int
        listener_security_protocol_map: str
        log_cleaner_backoff_ms: int
        log_cleaner_dedupe_buffer_size: int
        log_cleaner_delete_retention_ms: int
        log_cleaner_enable: bool
        log_cleaner_io_buffer_load_factor: float
        log_cleaner_io_buffer_size: int
        log_cleaner_io_max_bytes_per_second: float
        log_cleaner_max_compaction_lag_ms: int
        log_cleaner_min_cleanable_ratio: float
        log_cleaner_min_compaction_lag_ms: int
        log_cleaner_threads: int
        log_cleanup_policy: tuple[str, ...]
        log_dir: tuple[str, ...]
        log_dir_failure_timeout_ms: int
        log_flush_interval_messages: int
        log_flush_interval_ms: int | None
        log_flush_offset_checkpoint_interval_ms: int
        log_flush_scheduler_interval_ms: int
        log_flush_start_offset_checkpoint_interval_ms: int
        log_index_interval_bytes: int
        log_index_size_max_bytes: int
        log_message_timestamp_after_max_ms: int
        log_message_timestamp_before_max_ms: int
        log_message_timestamp_type: str
        log_preallocate: bool
        log_retention_bytes: int
        log_retention_check_interval_ms: int
        log_retention_hours: int
        log_retention_minutes: int | None
        log_retention_ms: int | None
        log_roll_hours: int
        log_roll_jitter_hours: int
        log_roll_jitter_ms: int | None
        log_roll_ms: int | None
        log_segment_bytes: int
        log_segment_delete_delay_ms: int
        max_connection_creation_rate: int
        max_connections: int
        max_connections_per_ip: int
        max_connections_per_ip_overrides: str
        max_decompressed_message_bytes: int
        max_incremental_fetch_session_cache_slots: int
        max_request_partition_size_limit: int
        message_max_bytes: int
        metadata_log_max_record_bytes_between_snapshots: int
        metadata_log_max_snapshot_interval_ms: int
        metadata_log_segment_bytes: int
        metadata_log_segment_ms: int
        metadata_max_retention_bytes: int
        metadata_max_retention_ms: int
        metrics_num_samples: int
        metrics_sample_window_ms: int
        min_insync_replicas: int
        node_id: int
        num_partitions: int
        num_recovery_threads_per_data_dir: int
        num_replica_fetchers: int
        offset_metadata_max_bytes: int
        offsets_commit_timeout_ms: int
        offsets_load_buffer_size: int
        offsets_retention_check_interval_ms: int
        offsets_retention_minutes: int
        offsets_topic_compression_codec: int
        offsets_topic_num_partitions: int
        offsets_topic_replication_factor: int
        offsets_topic_segment_bytes: int
        ottla_allow_open_listeners: bool
        ottla_audit_directory: str
        ottla_audit_events: tuple[str, ...]
        ottla_audit_file_bytes: int
        ottla_audit_files_max: int
        ottla_audit_flush_interval_ms: int
        ottla_audit_topic: str
        ottla_broker_incarnation_id: str | None
        ottla_cluster_id: str | None
        ottla_event_loop: str
        ottla_failover_confirm_ms: int
        ottla_http_listener: str
        ottla_http_security_protocol: str
        ottla_legacy_protocol_versions_enable: bool
        ottla_log_format: str
        ottla_log_level: str
        ottla_log_scrub_bytes_per_second: int
        ottla_log_scrub_interval_ms: int
        ottla_log_slow_request_ms: int
        ottla_login_timeout_ms: int
        ottla_metrics_clients: bool
        ottla_metrics_partitions: bool
        ottla_sasl_oauthbearer_unsecured_tokens: bool
        ottla_share_dlq_payload_and_reason: bool
        ottla_ssl_watch_interval_ms: int
        ottla_zookeeper_login_config: str | None
        ottla_zookeeper_login_context: str
        ottla_zookeeper_mode: bool
        password_encoder_old_secret: Secret | None
        password_encoder_secret: Secret | None
        process_roles: tuple[str, ...]
        producer_id_expiration_check_interval_ms: int
        producer_id_expiration_ms: int
        queued_max_request_bytes: int
        quota_window_num: int
        quota_window_size_seconds: int
        replica_fetch_backoff_ms: int
        replica_fetch_max_bytes: int
        replica_fetch_min_bytes: int
        replica_fetch_response_max_bytes: int
        replica_fetch_wait_max_ms: int
        replica_high_watermark_checkpoint_interval_ms: int
        replica_lag_time_max_ms: int
        replica_selector_class: str | None
        replica_socket_receive_buffer_bytes: int
        replica_socket_timeout_ms: int
        replication_quota_window_num: int
        replication_quota_window_size_seconds: int
        request_timeout_ms: int
        reserved_broker_max_id: int
        security_inter_broker_protocol: str
        share_coordinator_cold_partition_snapshot_interval_ms: int
        share_coordinator_load_buffer_size: int
        share_coordinator_snapshot_update_records_per_snapshot: int
        share_coordinator_state_topic_compression_codec: int
        share_coordinator_state_topic_min_isr: int
        share_coordinator_state_topic_num_partitions: int
        share_coordinator_state_topic_prune_interval_ms: int
        share_coordinator_state_topic_replication_factor: int
        share_coordinator_state_topic_segment_bytes: int
        share_coordinator_write_timeout_ms: int
        socket_connection_setup_timeout_ms: int
        socket_listen_backlog_size: int
        socket_request_max_bytes: int
        socket_send_buffer_bytes: int
        telemetry_max_bytes: int
        transaction_abort_timed_out_transaction_cleanup_interval_ms: int
        transaction_max_timeout_ms: int
        transaction_partition_verification_enable: bool
        transaction_remove_expired_transaction_cleanup_interval_ms: int
        transaction_state_log_load_buffer_size: int
        transaction_state_log_min_isr: int
        transaction_state_log_num_partitions: int
        transaction_state_log_replication_factor: int
        transaction_state_log_segment_bytes: int
        transaction_two_phase_commit_enable: bool
        transactional_id_expiration_ms: int
        unclean_leader_election_enable: bool
        unclean_leader_election_interval_ms: int
        zookeeper_clientCnxnSocket: str | None
        zookeeper_connect: str | None
        zookeeper_connection_timeout_ms: int | None
        zookeeper_max_in_flight_requests: int
        zookeeper_session_timeout_ms: int
        zookeeper_set_acl: bool
        zookeeper_ssl_cipher_suites: tuple[str, ...]
        zookeeper_ssl_client_enable: bool
        zookeeper_ssl_crl_enable: bool
        zookeeper_ssl_enabled_protocols: tuple[str, ...]
        zookeeper_ssl_endpoint_identification_algorithm: str
        zookeeper_ssl_keystore_location: str | None
        zookeeper_ssl_keystore_password: Secret | None
        zookeeper_ssl_keystore_type: str | None
        zookeeper_ssl_ocsp_enable: bool
        zookeeper_ssl_protocol: str
        zookeeper_ssl_truststore_location: str | None
        zookeeper_ssl_truststore_password: Secret | None
        zookeeper_ssl_truststore_type: str | None
