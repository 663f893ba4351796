"""Every metric that a node exposes: the one list behind the answers of `/metrics` and behind `docs/metrics.md`.

Names are those that dashboards for Kafka know: what the widespread configuration of the JMX exporter makes of Kafka's
own metrics, and kafka_exporter's for the lag of groups. What neither has begins with `ottla_`.
"""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """One family of series."""

    name: str
    type: str
    """counter, gauge or histogram."""
    labels: tuple[str, ...]
    unit: str
    doc: str
    per_partition: bool = False
    """One series for each partition; `ottla.metrics.partitions=false` leaves it out."""


class Section(NamedTuple):
    title: str
    metrics: tuple[Metric, ...]


COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
TOPIC = ("topic",)
PARTITION = ("topic", "partition")
GROUP_PARTITION = ("consumergroup", "topic", "partition")
GROUP_TOPIC = ("consumergroup", "topic")

# fmt: off
SECTIONS = (
    Section("Traffic of topics", (
        Metric("kafka_server_brokertopicmetrics_messagesin_total", COUNTER, TOPIC, "records",
               "Records appended."),
        Metric("kafka_server_brokertopicmetrics_bytesin_total", COUNTER, TOPIC, "bytes",
               "Bytes of record batches appended, as they came, compressed or not."),
        Metric("kafka_server_brokertopicmetrics_bytesout_total", COUNTER, TOPIC, "bytes",
               "Bytes of record batches sent to consumers."),
        Metric("kafka_server_brokertopicmetrics_bytesrejected_total", COUNTER, TOPIC, "bytes",
               "Bytes of record batches refused because they were too large."),
        Metric("kafka_server_brokertopicmetrics_totalproducerequests_total", COUNTER, TOPIC, "appends",
               "Appends asked for; a produce request counts once for each partition in it."),
        Metric("kafka_server_brokertopicmetrics_totalfetchrequests_total", COUNTER, TOPIC, "reads",
               "Reads asked for; a fetch request counts once for each partition in it, and again when it has waited."),
        Metric("kafka_server_brokertopicmetrics_failedproducerequests_total", COUNTER, TOPIC, "appends",
               "Appends that were refused or failed."),
        Metric("kafka_server_brokertopicmetrics_failedfetchrequests_total", COUNTER, TOPIC, "reads",
               "Reads that were refused or failed."),
        Metric("ottla_topic_size_bytes", GAUGE, TOPIC, "bytes",
               "Bytes of log that this node holds of the topic."),
    )),
    Section("Requests and connections", (
        Metric("kafka_network_requestmetrics_requests_total", COUNTER, ("request", "version"), "requests",
               "Requests answered."),
        Metric("kafka_network_requestmetrics_errors_total", COUNTER, ("request", "error"), "errors",
               "Errors in answers, by Kafka's name of the error; one answer may have many. NONE is not counted."),
        Metric("kafka_network_requestmetrics_totaltime_seconds", HISTOGRAM, ("request",), "seconds",
               "From having received a request to handing its answer to the socket. Waiting is part of it: of a fetch "
               "for records, of JoinGroup for the other members."),
        Metric("kafka_server_socket_server_metrics_connection_count", GAUGE, ("listener",), "connections",
               "Clients connected now."),
        Metric("kafka_server_socket_server_metrics_connection_creation_total", COUNTER, ("listener",), "connections",
               "Clients that were let in."),
        Metric("ottla_connections_refused_total", COUNTER, ("listener",), "connections",
               "Clients turned away by max.connections, max.connections.per.ip, or while the node stopped."),
        Metric("kafka_server_fetchsessioncache_numincrementalfetchsessions", GAUGE, (), "sessions",
               "Fetch sessions of consumers (KIP-227)."),
        Metric("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", GAUGE, (), "partitions",
               "Partitions in all fetch sessions."),
        Metric("kafka_server_delayedoperationpurgatory_purgatorysize", GAUGE, ("delayedOperation",), "requests",
               "Requests that wait: Fetch for records, Rebalance for the other members of a group."),
    )),
    Section("Replicas and logs", (
        Metric("kafka_server_replicamanager_partitioncount", GAUGE, (), "partitions",
               "Partitions with a replica on this node."),
        Metric("kafka_server_replicamanager_leadercount", GAUGE, (), "partitions",
               "Partitions that this node leads."),
        Metric("kafka_server_replicamanager_underreplicatedpartitions", GAUGE, (), "partitions",
               "Partitions led here with replicas that are not in sync."),
        Metric("kafka_server_replicamanager_underminisrpartitioncount", GAUGE, (), "partitions",
               "Partitions led here with fewer in-sync replicas than min.insync.replicas: acks=all is refused."),
        Metric("kafka_server_replicamanager_atminisrpartitioncount", GAUGE, (), "partitions",
               "Partitions led here with just as many in-sync replicas as min.insync.replicas."),
        Metric("kafka_server_replicamanager_isrshrinks_total", COUNTER, (), "partitions",
               "Times that a follower was found to lag for too long, and the in-sync set to be made smaller."),
        Metric("kafka_server_replicamanager_isrexpands_total", COUNTER, (), "partitions",
               "Times that a follower had caught up, and the in-sync set was to be made larger."),
        Metric("kafka_server_replicamanager_failedisrupdates_total", COUNTER, (), "partitions",
               "Changes of in-sync sets that the controller refused."),
        Metric("kafka_server_brokertopicmetrics_replicationbytesin_total", COUNTER, (), "bytes",
               "Bytes fetched from leaders; they do not count as the topics' own."),
        Metric("kafka_server_brokertopicmetrics_replicationbytesout_total", COUNTER, (), "bytes",
               "Bytes sent to followers."),
        Metric("kafka_server_leaderreplication_byte_rate", GAUGE, (), "bytes per second",
               "Of what followers fetched of throttled replicas that this node leads."),
        Metric("kafka_server_followerreplication_byte_rate", GAUGE, (), "bytes per second",
               "Of what this node fetched of its throttled replicas."),
        Metric("kafka_server_replicafetchermanager_maxlag", GAUGE, (), "records",
               "Of all partitions, the most committed records that this follower lacked when it last fetched."),
        Metric("kafka_server_replicamanager_offlinereplicacount", GAUGE, (), "partitions",
               "Replicas of this node whose log cannot be used."),
        Metric("kafka_log_log_size", GAUGE, PARTITION, "bytes",
               "Bytes of a partition's log files.", True),
        Metric("kafka_log_log_logstartoffset", GAUGE, PARTITION, "offset",
               "The offset of the oldest record.", True),
        Metric("kafka_log_log_logendoffset", GAUGE, PARTITION, "offset",
               "The offset that the next record will get.", True),
        Metric("kafka_log_log_numlogsegments", GAUGE, PARTITION, "segments",
               "Segments of the log.", True),
        Metric("kafka_log_logflushstats_logflushtime_seconds", HISTOGRAM, (), "seconds",
               "Time to fsync one log's files to disk, in a thread."),
        Metric("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, (), "directories",
               "Log directories that cannot be used."),
        Metric("kafka_log_logmanager_logdirectoryoffline", GAUGE, ("logDirectory",), "0 or 1",
               "1 for a log directory that cannot be used."),
        Metric("ottla_log_directory_size_bytes", GAUGE, ("directory",), "bytes",
               "Bytes of all logs in a log directory."),
        Metric("ottla_recovery_checked_bytes", GAUGE, ("directory",), "bytes",
               "Bytes of the logs in a directory that the start read and checked, since they were not known to be "
               "fsynced; 0 after a clean shutdown."),
        Metric("ottla_recovery_truncated_bytes", GAUGE, ("directory",), "bytes",
               "Bytes that the start cut off these logs: what was not fsynced and was no whole, valid batch, or lay "
               "behind one."),
        Metric("ottla_recovery_kept_bytes", GAUGE, ("directory",), "bytes",
               "Bytes of that which the start kept in side files (.cut), since whole batches are among them."),
        Metric("ottla_log_directory_free_bytes", GAUGE, ("directory",), "bytes",
               "Bytes free on the disk of a log directory."),
        Metric("ottla_log_directory_total_bytes", GAUGE, ("directory",), "bytes",
               "Size of the disk of a log directory."),
    )),
    Section("Compaction", (
        Metric("kafka_log_logcleanermanager_max_dirty_percent", GAUGE, (), "percent",
               "The share of the dirtiest log that is not compacted, at the last look for one to compact."),
        Metric("kafka_log_logcleanermanager_time_since_last_run_ms", GAUGE, (), "milliseconds",
               "Since that look."),
        Metric("kafka_log_logcleanermanager_uncleanable_partitions_count", GAUGE, ("logDirectory",), "partitions",
               "Partitions that are not compacted any more because of an error in their log."),
        Metric("kafka_log_logcleanermanager_uncleanable_bytes", GAUGE, ("logDirectory",), "bytes",
               "What there would be to compact in them."),
        Metric("kafka_log_logcleaner_max_clean_time_secs", GAUGE, (), "seconds",
               "How long the last cleaning of a log took."),
        Metric("kafka_log_logcleaner_cleaner_recopy_percent", GAUGE, (), "percent",
               "Bytes written of those read in the last cleaning: what was worth keeping."),
        Metric("kafka_log_logcleaner_max_buffer_utilization_percent", GAUGE, (), "percent",
               "How full the map of keys became in the last cleaning."),
        Metric("kafka_log_logcleaner_max_compaction_delay_secs", GAUGE, (), "seconds",
               "How far the most overdue log is beyond max.compaction.lag.ms."),
        Metric("kafka_log_logcleaner_deadthreadcount", GAUGE, (), "workers",
               "Workers of log.cleaner.threads that do not run."),
        Metric("ottla_cleaner_cleanings_total", COUNTER, (), "cleanings",
               "Cleanings that came to their end."),
        Metric("ottla_cleaner_bytes_read_total", COUNTER, (), "bytes",
               "Bytes that these read."),
        Metric("ottla_cleaner_bytes_written_total", COUNTER, (), "bytes",
               "Bytes that these wrote."),
    )),
    Section("Controller and quorum", (
        Metric("kafka_controller_kafkacontroller_activecontrollercount", GAUGE, (), "0 or 1",
               "1 while this node is the active controller."),
        Metric("kafka_controller_kafkacontroller_globaltopiccount", GAUGE, (), "topics",
               "Topics of the cluster."),
        Metric("kafka_controller_kafkacontroller_globalpartitioncount", GAUGE, (), "partitions",
               "Partitions of the cluster."),
        Metric("kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE, (), "partitions",
               "Partitions of the cluster without a leader: they can be neither written nor read."),
        Metric("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", GAUGE, (), "partitions",
               "Partitions whose leader is not the first of their replicas."),
        Metric("kafka_controller_kafkacontroller_activebrokercount", GAUGE, (), "brokers",
               "Brokers that may lead partitions."),
        Metric("kafka_controller_kafkacontroller_fencedbrokercount", GAUGE, (), "brokers",
               "Brokers that are registered and may not lead partitions."),
        Metric("kafka_controller_kafkacontroller_lastappliedrecordoffset", GAUGE, (), "offset",
               "The last record of the metadata log that this node has applied."),
        Metric("kafka_server_raft_metrics_current_state", GAUGE, ("state",), "1",
               "What this node is: leader, prospective, candidate, follower, observer, unattached or resigned; "
               "prospective-voted and unattached-voted where it has given its vote in this epoch."),
        Metric("kafka_server_raft_metrics_current_leader", GAUGE, (), "node id",
               "The leader of the metadata quorum; -1 while nobody is known to lead."),
        Metric("kafka_server_raft_metrics_current_vote", GAUGE, (), "node id",
               "Who this node voted for in this epoch, itself included; -1 for nobody."),
        Metric("kafka_server_raft_metrics_current_vote_directory_id", GAUGE, ("directory_id",), "1",
               "The directory of the replica that this node voted for; AAAAAAAAAAAAAAAAAAAAAA for nobody, and where "
               "only node ids count (kraft.version 0)."),
        Metric("kafka_server_raft_metrics_current_epoch", GAUGE, (), "epoch",
               "The epoch of the metadata quorum."),
        Metric("kafka_server_raft_metrics_high_watermark", GAUGE, (), "offset",
               "The offset up to which the metadata log is committed."),
        Metric("kafka_server_raft_metrics_log_end_offset", GAUGE, (), "offset",
               "Where the metadata log of this node ends, committed or not."),
        Metric("kafka_server_raft_metrics_log_end_epoch", GAUGE, (), "epoch",
               "The epoch of its last record."),
        Metric("kafka_server_raft_metrics_number_of_voters", GAUGE, (), "voters",
               "Controllers that vote, by the newest record about them."),
        Metric("kafka_server_raft_metrics_number_unknown_voter_connections", GAUGE, (), "voters",
               "Other voters whose address this node does not know."),
        Metric("kafka_server_raft_metrics_ignored_static_voters", GAUGE, (), "0 or 1",
               "1 where controller.quorum.voters is set and counts no more: the log says who votes."),
        Metric("kafka_server_raft_metrics_number_of_observers", GAUGE, (), "nodes",
               "Nodes that follow and do not vote; at the leader only."),
        Metric("kafka_server_raft_metrics_uncommitted_voter_change", GAUGE, (), "0 or 1",
               "1 while a change of the voters is not committed; at the leader only."),
        Metric("kafka_server_raft_metrics_commit_latency_avg", GAUGE, (), "milliseconds",
               "From appending to committing, on average; of records appended together each counts with its share. At "
               "the leader only."),
        Metric("kafka_server_raft_metrics_commit_latency_max", GAUGE, (), "milliseconds",
               "The same, the longest."),
        Metric("kafka_server_raft_metrics_election_latency_avg", GAUGE, (), "milliseconds",
               "From when this node stood for election until somebody led, on average."),
        Metric("kafka_server_raft_metrics_election_latency_max", GAUGE, (), "milliseconds",
               "The same, the longest."),
        Metric("kafka_server_raft_metrics_append_records_rate", GAUGE, (), "records per second",
               "Records that this node appended as the leader."),
        Metric("kafka_server_raft_metrics_fetch_records_rate", GAUGE, (), "records per second",
               "Records that this node fetched from the leader."),
        Metric("kafka_server_raft_metrics_poll_idle_ratio_avg", GAUGE, (), "ratio",
               "The share of the time in which this node had nothing to do for the quorum; 1 is all of it."),
    )),
    Section("Groups", (
        Metric("kafka_coordinator_group_groupmetadatamanager_numgroups", GAUGE, (), "groups",
               "Groups that this node coordinates."),
        Metric("kafka_coordinator_group_groupmetadatamanager_numgroupsempty", GAUGE, (), "groups",
               "Groups without members."),
        Metric("kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance", GAUGE, (), "groups",
               "Groups that wait for their members to join."),
        Metric("kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance", GAUGE, (), "groups",
               "Groups that wait for their leader's assignment."),
        Metric("kafka_coordinator_group_groupmetadatamanager_numgroupsstable", GAUGE, (), "groups",
               "Groups at work."),
        Metric("kafka_coordinator_group_groupmetadatamanager_numoffsets", GAUGE, (), "offsets",
               "Committed offsets of all groups."),
        Metric("ottla_group_rebalances_total", COUNTER, (), "rebalances",
               "Rebalances that were completed."),
        Metric("kafka_consumergroup_members", GAUGE, ("consumergroup",), "members",
               "Members of a group; 0 for one that only has commits."),
        Metric("kafka_consumergroup_current_offset", GAUGE, GROUP_PARTITION, "offset",
               "The offset that a group has committed.", True),
        Metric("kafka_consumergroup_lag", GAUGE, GROUP_PARTITION, "records",
               "Records from the committed offset to the high watermark.", True),
        Metric("kafka_consumergroup_lag_seconds", GAUGE, GROUP_PARTITION, "seconds",
               "Age of the oldest record that is not committed, by its timestamp (of its batch: of the first record "
               "in it); 0 when nothing is left. Without a series where the record has no timestamp.", True),
        Metric("kafka_consumergroup_lag_sum", GAUGE, GROUP_TOPIC, "records",
               "The lag in records, of all partitions of a topic."),
        Metric("kafka_consumergroup_lag_seconds_max", GAUGE, GROUP_TOPIC, "seconds",
               "The lag in seconds, of the partition of a topic that is furthest behind."),
    )),
    Section("The process", (
        Metric("kafka_server_kafkaserver_brokerstate", GAUGE, (), "state",
               "1 starting, 3 running, 7 stopping, as in Kafka."),
        Metric("ottla_ready", GAUGE, (), "0 or 1",
               "What /ready says."),
        Metric("ottla_build_info", GAUGE, ("version", "python", "node_id", "cluster_id"), "1",
               "Always 1; the labels say what runs."),
        Metric("ottla_start_duration_seconds", GAUGE, (), "seconds",
               "How long the start took until clients were served."),
        Metric("ottla_event_loop_lag_seconds", HISTOGRAM, (), "seconds",
               "How much later than due the event loop runs a timer, looked at twice a second: what everybody waits "
               "for while one thing is being done."),
        Metric("process_cpu_seconds_total", COUNTER, (), "seconds",
               "CPU time of the process, user and system."),
        Metric("process_resident_memory_bytes", GAUGE, (), "bytes",
               "Memory in use. Pages of log files that the system caches are not part of it."),
        Metric("process_virtual_memory_bytes", GAUGE, (), "bytes",
               "Address space in use."),
        Metric("process_open_fds", GAUGE, (), "descriptors",
               "Open file descriptors: connections and segments."),
        Metric("process_max_fds", GAUGE, (), "descriptors",
               "How many there may be."),
        Metric("process_start_time_seconds", GAUGE, (), "seconds",
               "When the process started, since the Unix epoch."),
        Metric("ottla_scrape_duration_seconds", GAUGE, (), "seconds",
               "How long it took to put this answer together, with other clients served meanwhile."),
    )),
)
# fmt: on

METRICS = {metric.name: metric for section in SECTIONS for metric in section.metrics}
