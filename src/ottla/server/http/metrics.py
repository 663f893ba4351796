"""Reads a node's state into metrics. What is many, partitions and groups, is read with pauses for other clients.

Numbers of one answer may therefore be some milliseconds apart; those of one partition are of one moment.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ottla.config.listeners import HTTP
from ottla.coordinator.group.classic.group import ClassicGroup, State
from ottla.drivers.cooperative import run_yielding
from ottla.drivers.quorum.quorum_metrics import state_of, vote_of
from ottla.metrics.instruments import TopicTraffic
from ottla.metrics.text import Exposition, escape, labels
from ottla.model import uuid_to_base64
from ottla.protocol.messages import ApiKey
from ottla.server.http.lag import LagTimes
from ottla.server.http.process import read_process
from ottla.version import VERSION

if TYPE_CHECKING:
    from ottla.drivers.coordinators.coordinator_load import LoadTimes
    from ottla.server.clients.telemetry import NodeTelemetry
    from ottla.server.http.shares import SharePartitionsCollector
    from ottla.server.http.shown import ShownNode
    from ottla.server.replicas.damaged_logs import DamagedLogs

PIECES_AT_ONCE = 4
"""Pieces of work, of some hundred microseconds at most, between two looks at other clients."""

STARTING, RUNNING, STOPPING = 1, 3, 7
"""Kafka's BrokerState, as far as a node has such states."""

TRAFFIC = {
    "messagesin": "messages_in",
    "bytesin": "bytes_in",
    "bytesout": "bytes_out",
    "bytesrejected": "bytes_rejected",
    "totalproducerequests": "produces",
    "totalfetchrequests": "fetches",
    "failedproducerequests": "failed_produces",
    "failedfetchrequests": "failed_fetches",
}
"""Kafka's names to those of `TopicTraffic`."""
SHARE_TRAFFIC = {
    "totalsharefetchrequests": "share_fetches",
    "failedsharefetchrequests": "failed_share_fetches",
    "totalshareacknowledgementrequests": "share_acknowledges",
    "failedshareacknowledgementrequests": "failed_share_acknowledges",
}
"""The same, of topics that a share group has read."""

LATE_TRANSACTION_MS = 5 * 60 * 1000
"""Beyond transaction.max.timeout.ms; Kafka's."""

TRANSACTION_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
SHARD_STATES = {"loading": 0, "active": 0, "failed": 0}

GROUP_STATES = {
    "empty": State.EMPTY,
    "preparingrebalance": State.PREPARING_REBALANCE,
    "completingrebalance": State.COMPLETING_REBALANCE,
    "stable": State.STABLE,
}
GROUP_STATES_OF = {
    "consumer": ("empty", "assigning", "reconciling", "stable"),
    "share": ("empty", "stable"),
    "streams": ("empty", "notready", "assigning", "reconciling", "stable"),
}
"""States of groups of the newer protocols."""


LOGINS: Mapping[str, str] = {
    "successful_authentication_total": "successes",
    "failed_authentication_total": "failures",
    "successful_reauthentication_total": "resuccesses",
    "failed_reauthentication_total": "refailures",
    "successful_authentication_no_reauth_total": "no_reauthentications",
    "expired_connections_killed_count": "expired",
}
"""Kafka's names to those of `login_settings.Counts`."""


def _add_authentications(page: Exposition, counts: object | None, where: str) -> None:
    """Kafka has them for listeners without a login too."""
    for name, attribute in LOGINS.items():
        count = 0 if counts is None else getattr(counts, attribute)
        page.add(f"kafka_server_socket_server_metrics_{name}", count, where)


class HasShards(Protocol):
    """A coordinator."""

    def shards(self) -> Mapping[str, int]: ...
    def load_times(self) -> LoadTimes: ...


class Collector:
    """Fills an `Exposition` with everything that `metrics/table.py` names."""

    def __init__(self, node: ShownNode) -> None:
        self._node = node
        self._lag_times = LagTimes(node.fs)
        self._per_partition: bool = node.config.ottla_metrics_partitions
        self._shares: SharePartitionsCollector | None = None
        self._pieces = 0

    async def collect(self) -> Exposition:
        page = Exposition()
        for name, value in await self._node.fs.run(read_process):
            page.add(name, value)
        self._add_node(page)
        self._add_requests(page)
        await self._add_replicas(page)
        await self._add_directories(page)
        if self._node.serving:
            self._add_cleaner(page)
            await self._add_controller(page)
            await self._add_groups(page)
            await self._add_transactions(page)
            await self._add_shares(page)
            await self._add_quotas(page)
            await self._add_clients(page)
        return page

    async def _breathe(self) -> None:
        self._pieces += 1
        if not self._pieces % PIECES_AT_ONCE:
            await asyncio.sleep(0)

    def _add_node(self, page: Exposition) -> None:
        node = self._node
        state = STOPPING if node.stopping else RUNNING if node.serving else STARTING
        page.add("kafka_server_kafkaserver_brokerstate", state)
        cluster_id = node.cluster_id if node.serving else ""
        where = labels(version=VERSION, python=platform.python_version(), node_id=node.node_id, cluster_id=cluster_id)
        page.add("ottla_build_info", 1, where)
        if node.serving:
            page.add("ottla_start_duration_seconds", round(node.start_seconds, 6))
        page.add_histogram("ottla_event_loop_lag_seconds", node.metrics.loop_lag_seconds)

    def _add_requests(self, page: Exposition) -> None:
        node = self._node
        for key, stats in node.metrics.apis():
            request = "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
            for version, count in sorted(stats.versions.items()):
                page.add("kafka_network_requestmetrics_requests_total", count, labels(request=request, version=version))
            for error, count in sorted(stats.errors.items()):
                page.add("kafka_network_requestmetrics_errors_total", count, labels(request=request, error=error))
            page.add_histogram("kafka_network_requestmetrics_totaltime_seconds", stats.seconds, request=request)
        prefix = "kafka_server_socket_server_metrics_connection"
        for listener in node.listeners:
            where = labels(listener=listener.name)
            page.add(f"{prefix}_count", len(listener.connections), where)
            page.add(f"{prefix}_creation_total", listener.admitted, where)
            page.add("ottla_connections_refused_total", listener.refused, where)
            _add_authentications(page, listener.authentication and listener.authentication.counts, where)
        if node.http is not None and node.http.logins is not None:
            _add_authentications(page, node.http.logins.counts, labels(listener=HTTP))
        if node.authorizer is not None:
            prefix = "kafka_server_plugins"
            page.add(f"{prefix}_acls_total_count", node.authorizer.acl_count)
            page.add(f"{prefix}_authorization_allowed_total", node.authorizer.allowed)
            page.add(f"{prefix}_authorization_denied_total", node.authorizer.denied)
        if node.audit is not None:
            node.audit.add_metrics(page)
        if node.tls is not None:
            node.tls.add_metrics(page)
        prefix = "kafka_server_fetchsessioncache_numincrementalfetch"
        page.add(f"{prefix}sessions", len(node.sessions))
        page.add(f"{prefix}partitionscached", sum(len(session.partitions) for session in node.sessions))

    async def _add_replicas(self, page: Exposition) -> None:
        node = self._node
        count = leaders = under_replicated = under_min_isr = at_min_isr = failed = late = producers = 0
        late_ms = node.clock.now_ms() - node.config.transaction_max_timeout_ms - LATE_TRANSACTION_MS
        waiting: set[Any] = set()
        for session in node.sessions:
            waiting.update(session.waiting)
        sizes: dict[str, int] = {}
        prefix = "kafka_log_log_"
        size_lines, start_lines = page.lines(f"{prefix}size"), page.lines(f"{prefix}logstartoffset")
        end_lines, segment_lines = page.lines(f"{prefix}logendoffset"), page.lines(f"{prefix}numlogsegments")
        for partition in list(node.replicas):
            count += 1
            if partition.is_leader:
                leaders += 1
                under_replicated += len(partition.isr) < len(partition.replicas)
                under_min_isr += partition.is_under_min_isr
                at_min_isr += len(partition.isr) == partition.effective_min_isr
                late += partition.log.producer_state.has_late_transaction(late_ms)
            waiting.update(partition.waiters)
            waiting.update(partition.end_waiters)
            log = partition.log
            failed += partition.is_offline
            producers += len(log.producer_state.producers)
            topic, number = partition.topic_partition
            size = log.size_bytes
            sizes[topic] = sizes.get(topic, 0) + size
            if self._per_partition:
                where = f'{{topic="{topic}",partition="{number}"}}'  # names of topics need no escapes
                size_lines.append(f"{prefix}size{where} {size}\n")
                start_lines.append(f"{prefix}logstartoffset{where} {log.log_start_offset}\n")
                end_lines.append(f"{prefix}logendoffset{where} {log.log_end_offset}\n")
                segment_lines.append(f"{prefix}numlogsegments{where} {len(log.segments)}\n")
            if not count % 64:
                await self._breathe()
        prefix = "kafka_server_replicamanager_"
        page.add(f"{prefix}partitioncount", count)
        page.add(f"{prefix}leadercount", leaders)
        page.add(f"{prefix}underreplicatedpartitions", under_replicated)
        page.add(f"{prefix}underminisrpartitioncount", under_min_isr)
        page.add(f"{prefix}atminisrpartitioncount", at_min_isr)
        page.add(f"{prefix}partitionswithlatetransactionscount", late)
        page.add(f"{prefix}produceridcount", producers)
        page.add(f"{prefix}offlinereplicacount", len(node.replicas.missing) + failed)
        self._add_replication(page)
        page.add("kafka_server_delayedoperationpurgatory_purgatorysize", len(waiting), '{delayedOperation="Fetch"}')
        page.add_histogram("kafka_log_logflushstats_logflushtime_seconds", node.metrics.flush_seconds)
        await self._add_traffic(page, sizes)

    def _add_replication(self, page: Exposition) -> None:
        metrics, replication = self._node.metrics, self._node.replication
        prefix = "kafka_server_replicamanager_"
        page.add(f"{prefix}isrshrinks_total", metrics.isr_shrinks)
        page.add(f"{prefix}isrexpands_total", metrics.isr_expands)
        page.add(f"{prefix}failedisrupdates_total", metrics.failed_isr_updates)
        prefix = "kafka_server_brokertopicmetrics_replicationbytes"
        page.add(f"{prefix}in_total", metrics.replication.bytes_in)
        page.add(f"{prefix}out_total", metrics.replication.bytes_out)
        for side in ("leader", "follower"):
            throttle = None if replication is None else getattr(replication, f"{side}_throttle")
            rate = 0.0 if throttle is None else throttle.bytes_per_second()
            page.add(f"kafka_server_{side}replication_byte_rate", round(rate))
        lag = {} if replication is None else replication.fetchers.lag()
        page.add("kafka_server_replicafetchermanager_maxlag", max(lag.values(), default=0))

    async def _add_traffic(self, page: Exposition, sizes: dict[str, int]) -> None:
        metrics = self._node.metrics
        topics = [(name, traffic) for name, traffic in metrics.topics.items() if name in sizes]
        total = TopicTraffic()
        total.add(metrics.deleted_topics)
        for session in list(self._node.sessions):
            session.count_fetches()
            await self._breathe()
        for traffic in metrics.topics.values():
            total.add(traffic)
        for word, attribute in TRAFFIC.items():
            name = f"kafka_server_brokertopicmetrics_{word}_total"
            page.add(name, getattr(total, attribute))
            for topic, traffic in topics:
                page.add(name, getattr(traffic, attribute), f'{{topic="{topic}"}}')
            await self._breathe()
        shared = [(topic, traffic) for topic, traffic in topics if traffic.share_fetches or traffic.share_acknowledges]
        for word, attribute in SHARE_TRAFFIC.items():
            name = f"kafka_server_brokertopicmetrics_{word}_total"
            page.add(name, getattr(total, attribute))
            for topic, traffic in shared:
                page.add(name, getattr(traffic, attribute), f'{{topic="{topic}"}}')
        for topic, size in sizes.items():
            page.add("ottla_topic_size_bytes", size, f'{{topic="{topic}"}}')
        await self._breathe()

    async def _add_directories(self, page: Exposition) -> None:
        logs = self._node.logs
        sizes, checked, truncated, kept = (Counter[str]() for _ in range(4))
        for number, log in enumerate(logs):
            directory = log.directory.rpartition("/")[0]
            sizes[directory] += log.size_bytes
            checked[directory] += log.recovery.recovered_bytes
            truncated[directory] += log.recovery.truncated_bytes
            kept[directory] += log.recovery.kept_bytes
            if not number % 256:
                await self._breathe()
        offline = set(logs.offline_dirs)
        page.add("kafka_log_logmanager_offlinelogdirectorycount", len(offline))
        for directory in logs.log_dirs:
            where = labels(logDirectory=directory)
            page.add("kafka_log_logmanager_logdirectoryoffline", int(directory in offline), where)
            if directory in offline:
                continue
            where = labels(directory=directory)
            page.add("ottla_log_directory_size_bytes", sizes[directory], where)
            page.add("ottla_recovery_checked_bytes", checked[directory], where)
            page.add("ottla_recovery_truncated_bytes", truncated[directory], where)
            page.add("ottla_recovery_kept_bytes", kept[directory], where)
            try:
                total, free = self._node.fs.free_bytes(directory)
            except OSError:
                continue
            page.add("ottla_log_directory_total_bytes", total, where)
            page.add("ottla_log_directory_free_bytes", free, where)

    def _add_cleaner(self, page: Exposition) -> None:
        node, cleaner, last = self._node, self._node.cleaner, self._node.cleaner.last
        uncleanable: Counter[str] = Counter()
        dirty_bytes: Counter[str] = Counter()
        for log in cleaner.uncleanable:
            directory = log.directory.rpartition("/")[0]
            uncleanable[directory] += 1
            dirty_bytes[directory] += cleaner.dirty_bytes(log)
        prefix = "kafka_log_logcleanermanager_"
        for directory in node.logs.log_dirs:
            where = labels(logDirectory=directory)
            page.add(f"{prefix}uncleanable_partitions_count", uncleanable[directory], where)
            page.add(f"{prefix}uncleanable_bytes", dirty_bytes[directory], where)
        page.add(f"{prefix}max_dirty_percent", int(100 * cleaner.max_dirty_ratio))
        since_ms = max(node.clock.now_ms() - cleaner.last_look_ms, 0) if cleaner.last_look_ms else 0
        page.add(f"{prefix}time_since_last_run_ms", since_ms)
        damaged_logs: DamagedLogs | None = vars(node).get("damaged_logs")  # made with the first records
        scrubbed = None if damaged_logs is None else damaged_logs.scrubber.totals
        served = 0 if damaged_logs is None else len(damaged_logs.damaged())
        page.add("ottla_damaged_logs", len(node.logs.offline_logs) + served)
        page.add("ottla_damaged_logs_found_total", scrubbed.damaged if scrubbed else 0)
        page.add("ottla_leader_epochs_mended_total", scrubbed.epochs_mended if scrubbed else 0)
        page.add("ottla_scrubbed_bytes_total", scrubbed.bytes_read if scrubbed else 0)
        page.add("ottla_scrubbed_logs_total", scrubbed.logs if scrubbed else 0)
        prefix = "kafka_log_logcleaner_"
        page.add(f"{prefix}max_clean_time_secs", round(last.seconds, 3) if last else 0)
        recopied = last.bytes_written / max(last.bytes_read, 1) if last else 0
        page.add(f"{prefix}cleaner_recopy_percent", int(100 * recopied))
        page.add(f"{prefix}max_buffer_utilization_percent", round(100 * last.map_utilization, 1) if last else 0)
        page.add(f"{prefix}max_compaction_delay_secs", cleaner.max_delay_ms // 1000)
        page.add(f"{prefix}deadthreadcount", cleaner.dead_workers)
        page.add("ottla_cleaner_cleanings_total", cleaner.totals.cleanings)
        page.add("ottla_cleaner_bytes_read_total", cleaner.totals.bytes_read)
        page.add("ottla_cleaner_bytes_written_total", cleaner.totals.bytes_written)

    async def _add_controller(self, page: Exposition) -> None:
        node = self._node
        image = node.image
        offline = imbalanced = 0
        for topic in image.topics:
            for registration in topic.partitions.values():
                offline += registration.leader < 0
                imbalanced += registration.leader != registration.replicas[0]
            await self._breathe()
        quorum = node.metadata.quorum
        prefix = "kafka_controller_kafkacontroller_"
        page.add(f"{prefix}activecontrollercount", int(quorum.leader_id == node.node_id))
        page.add(f"{prefix}globaltopiccount", len(image.topics_by_name))
        page.add(f"{prefix}globalpartitioncount", image.partition_count)
        page.add(f"{prefix}offlinepartitionscount", offline)
        page.add(f"{prefix}preferredreplicaimbalancecount", imbalanced)
        fenced = sum(broker.fenced for broker in image.brokers.values())
        page.add(f"{prefix}activebrokercount", len(image.brokers) - fenced)
        page.add(f"{prefix}fencedbrokercount", fenced)
        page.add(f"{prefix}lastappliedrecordoffset", image.offset)
        self._add_quorum(page)

    def _add_quorum(self, page: Exposition) -> None:
        node = self._node.metadata.quorum
        core, prefix = node.core, "kafka_server_raft_metrics_"
        voted = vote_of(core)
        page.add(f"{prefix}current_state", 1, labels(state=state_of(core)))
        page.add(f"{prefix}current_leader", core.leader_id)
        page.add(f"{prefix}current_vote", voted.node_id)
        directory = labels(directory_id=uuid_to_base64(voted.directory_id))
        page.add(f"{prefix}current_vote_directory_id", 1, directory)
        page.add(f"{prefix}current_epoch", core.epoch)
        page.add(f"{prefix}high_watermark", core.high_watermark)
        page.add(f"{prefix}log_end_offset", core.end_offset)
        page.add(f"{prefix}log_end_epoch", core.last_epoch)
        page.add(f"{prefix}number_of_voters", len(core.voters))
        others = (key.node_id for key in core.voters.keys if key.node_id != core.node_id)
        page.add(f"{prefix}number_unknown_voter_connections", sum(node.address_of(each) is None for each in others))
        page.add(f"{prefix}ignored_static_voters", int(bool(node.settings.addresses) and core.kraft_version >= 1))
        for name, value in node.metrics.values().items():
            page.add(prefix + name, round(value, 6))
        if core.leadership is not None:
            page.add(f"{prefix}number_of_observers", len(core.leadership.observers))
            page.add(f"{prefix}uncommitted_voter_change", int(core.configurations.newest.offset >= core.high_watermark))

    async def _add_groups(self, page: Exposition) -> None:
        node = self._node
        now_ms = node.clock.now_ms()
        states: Counter[State] = Counter()
        states_of: dict[str, Counter[str]] = {each: Counter() for each in GROUP_STATES_OF}
        offsets = waiting = groups = 0
        self._lag_times.begin()
        for group, commits in node.groups.groups() if node.config.is_broker else ():
            groups += 1
            if group.group_type in states_of:
                states_of[group.group_type][group.shown_state.lower()] += 1
            elif isinstance(group, ClassicGroup):
                states[group.state] += 1
                waiting += group.awaiting_join_count
            name = escape(group.group_id)
            page.add("kafka_consumergroup_members", len(group.members), f'{{consumergroup="{name}"}}')
            for topic, committed in list(commits.items()):
                offsets += len(committed)
                await self._add_lag(page, group.group_id, name, topic, list(committed.items()), now_ms)
            await self._breathe()
        prefix = "kafka_coordinator_group_groupmetadatamanager_num"
        page.add(f"{prefix}groups", groups)
        for word, state in GROUP_STATES.items():
            page.add(f"{prefix}groups{word}", states[state])
        page.add(f"{prefix}offsets", offsets)
        page.add("ottla_group_rebalances_total", node.metrics.rebalances)
        prefix = "kafka_server_group_coordinator_metrics_"
        page.add(f"{prefix}group_completed_rebalance_count", node.metrics.rebalances)
        others = {kind: sum(counts.values()) for kind, counts in states_of.items()}
        page.add(f"{prefix}group_count", groups - sum(others.values()), '{protocol="classic"}')
        for kind, count in others.items():
            page.add(f"{prefix}group_count", count, labels(protocol=kind))
        for kind, words in GROUP_STATES_OF.items():
            for word in words:
                page.add(f"{prefix}{kind}_group_count", states_of[kind][word], f'{{state="{word}"}}')
        page.add(f"{prefix}consumer_group_rebalance_count", node.metrics.rebalances_of["consumer"])
        page.add(f"{prefix}share_group_rebalance_count", node.metrics.rebalances_of["share"])
        page.add(f"{prefix}streams_group_rebalance_count", node.metrics.rebalances_of["streams"])
        page.add(f"{prefix}offset_commit_count", node.metrics.offsets.commits)
        page.add(f"{prefix}offset_expiration_count", node.metrics.offsets.expirations)
        page.add(f"{prefix}offset_deletion_count", node.metrics.offsets.deletions)
        self._add_shards(page, prefix, node.groups if node.config.is_broker else None)
        page.add("kafka_server_delayedoperationpurgatory_purgatorysize", waiting, '{delayedOperation="Rebalance"}')

    def _add_shards(self, page: Exposition, prefix: str, coordinator: HasShards | None) -> None:
        """Add the shards of a coordinator; None for one that was not needed yet."""
        states = SHARD_STATES if coordinator is None else coordinator.shards()
        for state, count in states.items():
            page.add(f"{prefix}num_partitions", count, labels(state=state))
        times = None if coordinator is None else coordinator.load_times()
        nothing = float("nan")
        page.add(f"{prefix}partition_load_time_avg", nothing if times is None else round(times.average_ms(), 3))
        page.add(f"{prefix}partition_load_time_max", nothing if times is None else round(times.maximum_ms(), 3))

    async def _add_transactions(self, page: Exposition) -> None:
        # To look for the coordinator of transactions would make it.
        found = vars(self._node).get("transactions")
        self._add_shards(page, "kafka_server_transaction_coordinator_metrics_", found)
        states = {} if found is None else await run_yielding(found.states())
        for title in TRANSACTION_STATES:
            page.add("ottla_transactions", states.get(title, 0), labels(state=title))
        page.add("ottla_transaction_open_seconds_max", 0 if found is None else found.longest_open_ms() / 1000)
        unknown = 0 if found is None else found.markers.without_leader
        waiting = 0 if found is None else found.markers.pending
        prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
        page.add(f"{prefix}unknowndestinationqueuesize", unknown)
        page.add(f"{prefix}logappendretryqueuesize", waiting - unknown)
        page.add("ottla_transaction_markers_queued", 0 if found is None else found.markers.queued)

    async def _add_shares(self, page: Exposition) -> None:
        # To look for what share groups need would make it.
        coordinator, shares = (vars(self._node).get(name) for name in ("share_coordinator", "share"))
        self._add_shards(page, "kafka_server_share_coordinator_metrics_", coordinator)
        if coordinator is not None or shares is not None:
            from ottla.server.http import shares as collecting

            if coordinator is not None:
                collecting.add_share_coordinator(page, coordinator, asyncio.get_running_loop().time())
            if shares is not None:
                if self._shares is None:
                    self._shares = collecting.SharePartitionsCollector(
                        self._lag_times, self._breathe, per_partition=self._per_partition
                    )
                await self._shares.add(page, shares.partitions, self._node.clock.now_ms())
        self._lag_times.end()

    async def _add_clients(self, page: Exposition) -> None:
        telemetry: NodeTelemetry | None = vars(self._node).get("telemetry")
        if telemetry is not None and self._node.config.ottla_metrics_clients:
            from ottla.server.http.client_metrics import add_clients

            await add_clients(page, telemetry.clients, self._breathe)

    async def _add_quotas(self, page: Exposition) -> None:
        quotas, listeners = self._node.quotas, self._node.listeners
        rates = next((each.rates for each in listeners if each.rates is not None), None)
        if quotas is not None or rates is not None:
            from ottla.server.http import quotas as collecting

            if quotas is not None:
                await collecting.add_quotas(page, quotas, self._breathe)
            if rates is not None:
                collecting.add_connection_rates(page, rates, [listener.name for listener in listeners])

    async def _add_lag(
        self, page: Exposition, group_id: str, group: str, topic: str, committed: list[tuple[int, Any]], now_ms: int
    ) -> None:
        """The commits of one group in one topic; in topics and partitions that are not here only the offset."""
        lag_sum, seconds_max, known = 0, None, False
        offset_lines = page.lines("kafka_consumergroup_current_offset")
        lag_lines = page.lines("kafka_consumergroup_lag")
        seconds_lines = page.lines("kafka_consumergroup_lag_seconds")
        for number, commit in committed:
            where = f'{{consumergroup="{group}",topic="{topic}",partition="{number}"}}'
            if self._per_partition:
                offset_lines.append(f"kafka_consumergroup_current_offset{where} {commit.offset}\n")
            partition = self._node.replicas.get(topic, number)
            if partition is None or not partition.is_leader:
                continue
            lag = max(0, partition.log.high_watermark - commit.offset)
            seconds = await self._lag_times.seconds(group_id, partition, commit.offset, now_ms) if lag else 0.0
            known = True
            lag_sum += lag
            if seconds is not None:
                seconds_max = seconds if seconds_max is None else max(seconds, seconds_max)
            if self._per_partition:
                lag_lines.append(f"kafka_consumergroup_lag{where} {lag}\n")
                if seconds is not None:
                    seconds_lines.append(f"kafka_consumergroup_lag_seconds{where} {seconds}\n")
            await self._breathe()
        where = f'{{consumergroup="{group}",topic="{topic}"}}'
        if known:
            page.add("kafka_consumergroup_lag_sum", lag_sum, where)
        if seconds_max is not None:
            page.add("kafka_consumergroup_lag_seconds_max", seconds_max, where)
