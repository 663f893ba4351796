"""Does the simulation have teeth? Known bugs are planted in the sources, one at a time, and each has to be found.

    python -m tests.simulation.mutations                  # all of them: which seed found which
    python -m tests.simulation.mutations skip-fsync       # one

A mutation replaces a piece of one module while it is imported, in a process of its own; no file is changed. It has to
be found within `seeds` runs of its kind, by a promise that a client saw broken: that a run met too little does not
count.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from types import ModuleType

from tests.simulation import mutations_of_applications
from tests.simulation.mutation import ROOT, Mutation

MUTATIONS = (
    Mutation("skip-fsync", "power", "ottla.storage.segments.segment",
             "            handle.file.fsync()\n", "            pass\n"),
    Mutation("answer-before-the-high-watermark", "power", "ottla.replication.partition",
             "                return self._commits.add(end_offset, done)\n            error = self._reached()",
             "                pass\n            error = self._reached()"),
    Mutation("high-watermark-before-the-fsync", "power", "ottla.replication.partition",
             "        end = log.safe_end_offset\n        for", "        end = log.log_end_offset\n        for"),
    Mutation("metadata-committed-before-the-fsync", "power", "ottla.drivers.quorum.quorum_disk",
             "                    await log.flush_async()\n",
             "                    log._state.durable = log.log_end_offset\n"),
    Mutation("vote-lost-for-want-of-room", "quorum", "ottla.drivers.quorum.quorum_disk",
             "            self._retry.cancel()\n            self._retry = None\n        if self._task is None",
             "            self._retry.cancel()\n            self._retry = None\n        if self.refused is not None:\n"
             "            return\n        if self._task is None"),
    Mutation("reader-leaves-a-segment-early", "calm", "ottla.storage.segments.segment_list",
             "            if found is not None:\n                return found if found.length else None\n",
             "            if found is not None and (found.length > 400 or number == len(bases)):\n"
             "                return found if found.length else None\n            offset = max(offset, "
             "bases[number] if number < len(bases) else offset)\n"),
    Mutation("producers-forgotten-at-restart", "kill", "ottla.storage.producers.producer_state",
             "            self._refresh_first_unstable_offset()\n            self._last_snapshot_offset",
             "            self._producers = {}\n            self._last_snapshot_offset"),
    Mutation("retries-not-recognised", "network", "ottla.storage.producers.producer_state",
             "if origin is Origin.CLIENT and entry is not None and (duplicate :",
             "if header is None and entry is not None and (duplicate :"),
    Mutation("sequence-not-checked", "disk", "ottla.storage.producers.producer_state",
             "        if origin is Origin.CLIENT:\n            self._check_sequence(header, entry)\n", ""),
    Mutation("commits-dropped-at-load", "kill", "ottla.drivers.coordinators.coordinator_load",
             "                    if record.key is not None:\n",
             "                    if record.key is not None and record.key not in latest:\n"),
    Mutation("commit-answered-before-the-fsync", "power", "ottla.drivers.coordinators.coordinator_effects",
             "        shard.pending.append(pending)\n",
             "        self._committed(shard, pending)\n        self._run(shard, pending.rest)\n        return\n", 20),
    Mutation("recovery-trusts-checksums", "power", "ottla.storage.recovery.segment_recovery",
             " or compute_crc(data, position - start, size) != header.crc:", ":"),
    Mutation("recovery-cuts-the-last-batch", "kill", "ottla.storage.recovery.segment_recovery",
             "            if position + size > file_size:\n", "            if position + size >= file_size:\n"),
    Mutation("clean-shutdown-marker-stays", "power", "ottla.storage.checkpoints.offset_checkpoint",
             "    if fs.exists(path):\n        fs.remove(path)",
             "    if fs.exists(path + '?'):\n        fs.remove(path)"),
    Mutation("recovery-point-too-high", "power", "ottla.storage.log_manager",
             "{log.topic_partition: log.recovery_point for log in logs}",
             "{log.topic_partition: log.log_end_offset for log in logs}"),
    Mutation("new-segment-not-fsynced-in-its-directory", "power", "ottla.storage.log.log_writer",
             "        self._flusher.fsync_later(self._segments.directory)\n", ""),
    Mutation("failed-write-stays", "disk", "ottla.storage.log.log_writer",
             "            segment.open().file.truncate(position)\n", "            pass\n", 20),
    Mutation("leader-epoch-not-checked", "kill", "ottla.replication.partition",
             "                raise KafkaError(ErrorCode.fenced_leader_epoch)\n", "                return\n"),
    Mutation("producer-ids-given-twice", "kill", "ottla.controller.producer_ids",
             "ProducerIdsRecord(broker.id, broker.epoch, following)",
             "ProducerIdsRecord(broker.id, broker.epoch, max(first, 1))", 20),
    Mutation("partial-send-loses-bytes", "calm", "ottla.server.connections.outbox",
             "                queue[0] = memoryview(head)[sent:]\n", "                queue.popleft()\n"),
    Mutation("deleted-topics-come-back", "kill", "ottla.metadata.replay",
             "    name = delta.delete_topic(record.topic_id)\n",
             "    name = delta.delete_topic(record.topic_id) if delta.base.offset >= 0 else 'churn-0'\n"),
    Mutation("snapshot-without-settings", "kill", "ottla.metadata.writer",
             "in sorted(image.configs.items()):", "in ():"),
    # Of a controller and a broker on machines of their own.
    Mutation("controller-answers-before-the-commit", "cluster", "ottla.drivers.controller.active_controller",
             "        if values or self._pending:  # what it only read may not be committed either\n",
             "        if self._pending and not values:\n", 40),
    Mutation("controller-commits-before-the-fsync", "cluster", "ottla.drivers.quorum.quorum_disk",
             "                    await log.flush_async()\n",
             "                    log._state.durable = log.log_end_offset\n"),
    # Of clusters. The numbers are those of a list of what went wrong in others (CONTRIBUTING.md).
    Mutation("no-truncation", "quorum", "ottla.replication.follower",  # 1
             "        if diverging is not None and diverging.end_offset >= 0:\n",
             "        if diverging is not None and diverging.end_offset < -1:\n", 20),
    Mutation("divergence-not-looked-for", "quorum", "ottla.server.fetch.partition_read",  # 1
             "            found.diverging = _divergence(partition, field_of(asked, 4), offset)\n",
             "            found.diverging = None\n"),
    Mutation("epoch-of-a-replica-not-checked", "quorum", "ottla.server.fetch.partition_read",  # 1
             "        partition.check_leader(max(field_of(asked, 3), NO_LEADER_EPOCH))\n"
             "        offset = field_of(asked, 1)\n",
             "        offset = field_of(asked, 1)\n        asked = asked._replace(current_leader_epoch=-1)\n"),
    Mutation("joins-the-isr-behind-the-high-watermark", "quorum", "ottla.replication.partition",  # 2
             "        if replica.end_offset < max(self.log.high_watermark, self.epoch_start):\n",
             "        if replica.end_offset < 0:\n", 20),
    Mutation("hole-behind-a-refused-batch", "quorum", "ottla.storage.producers.producer_state",  # librdkafka#4953
             "        error = self._error_behind(header, entry)\n", "        error = None\n", 40),
    # That the second of a new producer's batches is not taken as its first is for test_refused_batches.py to show: the
    # in-sync set would have to grow just between the two, which no run of the first 21 seeds met.
    Mutation("one-batch-remembered", "quorum", "ottla.storage.producers.producer_entry",  # 7
             "BATCHES_RETAINED = 5", "BATCHES_RETAINED = 1", 20),
    Mutation("retry-answered-with-an-unknown-error", "network", "ottla.storage.producers.producer_state",  # 8
             "            return duplicate\n        if origin is not",
             "            raise KafkaError(ErrorCode.unknown_server_error)\n        if origin is not"),
    Mutation("producers-forgotten-with-their-records", "calm", "ottla.storage.producers.producer_state",  # 8
             "        self._remove_completed_below(log_start_offset)\n        self.map_end_offset = max(",
             "        self._remove_completed_below(log_start_offset)\n        self._producers = {\n"
             "            each: entry for each, entry in self._producers.items()\n"
             "            if entry.batches and entry.batches[-1].last_offset >= log_start_offset\n        }\n"
             "        self.map_end_offset = max("),
    Mutation("producers-of-deleted-records-not-replayed", "kill", "ottla.storage.recovery.rebuild",  # 8
             "    if segments[0].base_offset < log_start:\n", "    if segments[0].base_offset < 0:\n", 20),
    Mutation("look-up-below-the-log-start", "quorum", "ottla.storage.log.log",  # 11
             "find_timestamp(timestamp_ms, max(start, self._state.log_start))", "find_timestamp(timestamp_ms, start)"),
    Mutation("fetch-from-the-middle-of-a-batch", "calm", "ottla.storage.segments.segment",  # 12
             "            if batch is None:\n                return None\n            position, first_offset",
             "            if batch is None or batch.base_offset < offset:\n                return None\n"
             "            position, first_offset", 20),
    Mutation("look-up-passes-over-the-batch", "quorum", "ottla.storage.segments.segment",  # 12
             "if batch.max_timestamp < timestamp_ms or batch", "if batch.max_timestamp <= timestamp_ms or batch"),
    Mutation("commits-found-before-they-are-loaded", "quorum", "ottla.drivers.coordinators.coordinator_shard",  # 10
             "        self.error: ErrorCode | None = ErrorCode.coordinator_load_in_progress\n",
             "        self.error: ErrorCode | None = None\n"),
    Mutation("coordinator-answers-before-the-followers", "quorum", "ottla.drivers.coordinators.coordinator_effects",
              # 17
             "        shard.pending.append(pending)\n",
             "        self._committed(shard, pending)\n        self._run(shard, pending.rest)\n        return\n"),
    Mutation("followers-have-no-producers", "quorum", "ottla.storage.log.log",  # 18
             "append(buffer, size, headers, max_timestamp, now_ms)\n"
             "        return self._appended(first.base_offset, NO",
             "append(buffer, size, [each._replace(producer_id=-1) for each in headers], max_timestamp, now_ms)\n"
             "        return self._appended(first.base_offset, NO"),
    Mutation("high-watermark-without-the-followers", "quorum", "ottla.replication.partition",
             "            if replica.end_offset < end and self._counts(replica_id, replica):\n",
             "            if end < 0:\n"),
    Mutation("answered-before-the-followers", "quorum", "ottla.replication.partition",
             "                return self._commits.add(end_offset, done)\n            error = self._reached()",
             "                pass\n            error = self._reached()"),
    Mutation("any-replica-may-lead", "quorum", "ottla.controller.partition_change",
             "has_all = node_id in self.isr if self.isr else node_id in self._elr\n", "has_all = True\n"),
    Mutation("decides-on-an-old-image", "quorum", "ottla.drivers.controller.active_controller",
             "        image = self.image\n        delta = MetadataDelta(image)\n",
             "        image = self._publisher.image\n        delta = MetadataDelta(self.image)\n"),
    Mutation("votes-twice", "quorum", "ottla.quorum.state",
             "        if self.stored.voted_id >= 0:\n            return self._voted_for(candidate)\n"
             "        return self.stored.leader_id < 0", "        return True", 40),
    Mutation("vote-file-lost", "quorum", "ottla.drivers.quorum.metadata_log",
             "            return decode_quorum_state(self._fs.read_bytes(path))",
             "            return self._fs.read_bytes(path) and None", seeds=1, first=60),
    Mutation("votes-for-a-shorter-log", "quorum", "ottla.quorum.state",
             "        return log_end >= self.log_end\n", "        return True\n", 20),
    Mutation("metadata-committed-by-the-leader-alone", "quorum", "ottla.quorum.leader",
             "        return ends[majority - 1]\n", "        return ends[0]\n"),
    Mutation("high-watermark-counts-observers", "quorum", "ottla.quorum.leader",
             "each.end_offset for each in self.voters.values())",
             "each.end_offset for each in (*self.voters.values(), *self.observers.values()))"),
    Mutation("metadata-counted-before-its-fsync", "quorum", "ottla.drivers.quorum.quorum_disk",
             "or the disk has failed.\"\"\"\n        await _until_idle(lambda: self._task)\n\n\nclass MetadataCutter",
             "or the disk has failed.\"\"\"\n        return\n\n\nclass MetadataCutter", 20),
    Mutation("metadata-not-truncated", "quorum", "ottla.drivers.quorum.quorum_node",
             "        if log.log_end_offset <= end:\n            return\n",
             "        if log.log_end_offset >= 0:\n            return\n", 40),
    # Of transactions.
    Mutation("a-delayed-end-decides-the-next-transaction", "transactions", "ottla.coordinator.transaction.ending",  # 3
             "    if now.producer_epoch != request.producer_epoch and not (is_repeated and now.state in _COMPLETE):\n",
             "    if now.producer_epoch != request.producer_epoch and not is_repeated:\n"),
    Mutation("late-writes-are-not-verified", "transactions", "ottla.coordinator.transaction.partitions",  # 4
             "    return {each: ErrorCode.none if each in inside else ErrorCode.transaction_abortable for each",
             "    return {each: ErrorCode.none if inside is not None else ErrorCode.none for each"),
    Mutation("verified-while-it-ends", "transactions", "ottla.coordinator.transaction.partitions",  # 6
             "    if now.state in PREPARED:\n", "    if now.state in ():\n", 40),
    Mutation("transactional-retries-not-recognised", "transactions", "ottla.storage.producers.producer_state",  # 6
             "if origin is Origin.CLIENT and entry is not None and (duplicate :",
             "if origin is Origin.CLIENT and entry is not None and not header.is_transactional and (duplicate :"),
    Mutation("a-retried-commit-fails", "transactions", "ottla.coordinator.transaction.ending",  # 9
             "        if now.state is OUTCOMES[request.is_commit][1]:\n            return True\n"
             "        raise KafkaError(ErrorCode.invalid_txn_state)\n    if request.is_commit:",
             "        raise KafkaError(ErrorCode.invalid_txn_state)\n    if request.is_commit:", 20),
    Mutation("aborts-what-the-producer-wrote-before", "transactions", "ottla.storage.producers.producer_state",  # 9
             "        return CompletedTransaction(header.producer_id, first_offset, last",
             "        return CompletedTransaction(header.producer_id, max(0, first_offset - 20), last"),
    Mutation("transactions-decided-before-the-followers", "transactions",
             "ottla.drivers.coordinators.coordinator_effects",  # 10, 17
             "        shard.pending.append(pending)\n",
             "        self._committed(shard, pending)\n        self._run(shard, pending.rest)\n        return\n", 40),
    Mutation("offsets-of-aborted-transactions-count", "transactions", "ottla.coordinator.group.offset_store",  # 13
             "                    if not committed:\n                        continue\n", ""),
    Mutation("markers-above-the-high-watermark-for-ever", "transactions", "ottla.storage.producers.producer_state",
              # 19
             "in self._completed.items() if last < offset]", "in self._completed.items() if last + 1 < offset]"),
    Mutation("open-transactions-are-shown", "transactions", "ottla.storage.log.log",
             "        return max(unstable, state.log_start)\n", "        return state.high_watermark\n"),
    Mutation("completion-given-up-on-a-full-disk", "transactions", "ottla.coordinator.transaction.ending",
             '        state.schedule(("complete", transactional_id), RETRY_MS)\n',
             '        if error is not ErrorCode.not_coordinator:\n'
             '            state.schedule(("complete", transactional_id), RETRY_MS)\n', 1, 6145),
    Mutation("offsets-of-a-coordinator-that-is-cut-off", "transactions", "ottla.drivers.coordinators.group_coordinator",
             "            if not partition.is_followed(self._now().timer_ms, silent_ms):\n",
             "            if silent_ms < 0:\n", 1, 6017),
    Mutation("no-transaction-times-out", "transactions", "ottla.coordinator.transaction.sweeps",
             "    if now.timeout_ms == NO_TIMEOUT or", "    if now.timeout_ms != NO_TIMEOUT or"),
    # Of consumer groups (KIP-848) and share groups (KIP-932).
    Mutation("partitions-of-others-are-free", "groups", "ottla.coordinator.group.consumer.reconcile",
             "        return mine or self._partition_epoch(topic_id, number) == NO_EPOCH\n", "        return True\n"),
    Mutation("revocations-are-not-awaited", "groups", "ottla.coordinator.group.consumer.reconcile",
             "        if revoking and self._still_owns(revoking):\n", "        if ():\n"),
    Mutation("members-that-left-stay", "groups", "ottla.coordinator.group.modern_group",
             "            group.set_member(name, None)\n", "            group.set_member(name, group.members[name])\n"),
    Mutation("assignment-epochs-are-not-loaded", "groups", "ottla.coordinator.group.modern_group",
             "            group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)\n",
             "            group.set_assignment_epoch(state.now.timer_ms and value.assignment_epoch, 0)\n"),
    Mutation("state-of-shares-is-not-written", "groups", "ottla.coordinator.share.shard",
             "        self._log([self._record(entry, request, entry.value.leader_epoch)])\n", ""),
    Mutation("state-of-shares-is-not-read", "groups", "ottla.drivers.replication.share_partitions",
             "            batches = [StateBatch(**each) for each in row[\"state_batches\"]]\n",
             "            batches: list[StateBatch] = []\n"),
    Mutation("updates-of-shares-replace", "groups", "ottla.coordinator.share.shard",
             "        combine_into(entry.combined, value.state_batches, start_offset)\n",
             "        entry.combined = [*value.state_batches]\n"),
    Mutation("records-between-batches-are-skipped", "groups", "ottla.replication.share.window",
             "            if self.gap_start == _NO_GAP and batch.first_offset > following:\n",
             "            if ():\n"),
    Mutation("what-is-locked-is-taken", "groups", "ottla.replication.share.acquisition",
             "            if not run.is_available:\n                continue\n            alone",
             "            if not run.is_available and run.deadline_ms is None:\n                continue\n"
             "            run.state = DeliveryState.AVAILABLE\n            alone"),
    Mutation("dead-letters-are-not-written", "groups", "ottla.replication.share.share_partition",
             "            self._dead += write.dead\n", "            self._dead += ()\n"),
    Mutation("letters-of-the-last-leader-are-lost", "groups", "ottla.replication.share.dead_letters",
             "        if each.delivery_state == DeliveryState.ARCHIVING:\n", "        if ():\n", 40),
    Mutation("dead-letters-of-the-next-record", "groups", "ottla.drivers.replication.dead_letters",
             "            record = found.get(offset)\n", "            record = found.get(offset + 1)\n"),
    Mutation("letters-that-fail-are-given-up", "groups", "ottla.drivers.replication.dead_letters",
             "                if not error.code.retriable or loop.time() + pause_s > deadline:\n",
             "                if error.code:\n", 40),
    Mutation("rejected-is-archived-at-once", "groups", "ottla.replication.share.acknowledgement",
             "                        part.begin(config.dead_state, config, write)\n",
             "                        part.begin(DeliveryState.ARCHIVED, config, write)\n"),
    # Of share groups that make records wait.
    Mutation("a-cold-task-is-warm", "streams", "ottla.coordinator.group.streams.warmups",
             "        return end - offset <= lag\n", "        return True\n"),
    Mutation("no-task-waits-for-its-warm-up", "streams", "ottla.coordinator.group.streams.warmups",
             "        if not moving:\n            return {}\n", "        if stateful:\n            return {}\n"),
    Mutation("task-offsets-are-kept-from-the-first-report-only", "streams",
             "ottla.coordinator.group.streams.heartbeat",
             "        before = group.reports.get(request.member_id, warmups.NOTHING_REPORTED)\n",
             "        before = group.reports.get(request.member_id, warmups.NOTHING_REPORTED)\n"
             "        if before is not warmups.NOTHING_REPORTED:\n            return\n"),
    Mutation("a-task-that-is-warm-does-not-move", "streams", "ottla.coordinator.group.streams.heartbeat",
             "            group.is_refining = True\n", "            pass\n"),
    Mutation("old-epochs-commit-for-any-task", "streams", "ottla.coordinator.group.modern_offsets",
             "    if epoch < member.epoch:\n        check_owned(group, member, request)\n", ""),
    Mutation("old-epochs-beat", "streams", "ottla.coordinator.group.streams.heartbeat",
             "        if received == member.epoch:\n", "        if received <= member.epoch:\n"),
    Mutation("a-running-task-is-given-away", "streams", "ottla.coordinator.group.streams.reconcile",
             "        if (name, number) in self._group.active_processes:\n            return False\n", ""),
    Mutation("any-topology-is-taken", "streams", "ottla.coordinator.group.streams.heartbeat",
             'known == Topology(said), "Topology', 'known is not None, "Topology'),
    Mutation("older-topologies-are-not-told", "streams", "ottla.coordinator.group.streams.heartbeat",
             "        if member.topology_epoch < known.epoch:\n", "        if member.topology_epoch < -1:\n"),
    *mutations_of_applications.MUTATIONS,
    Mutation("keys-are-not-waited-for", "queues", "ottla.replication.share.key_order",
             "        return False\n", "        return True\n"),
    Mutation("a-released-record-frees-its-key", "queues", "ottla.replication.share.selection",
             "                if may_close(run):\n                    self._leave(",
             "                if run:\n                    self._leave("),
    Mutation("times-of-delivery-are-not-read", "queues", "ottla.replication.share.selection",
             "            index += 1\n            is_behind",
             "            index += 1\n            due_ms = 0\n            is_behind"),
    Mutation("no-back-off", "queues", "ottla.replication.share.selection",
             "        if wait_ms:\n            self._wait(run, Hold(False, wait_ms, 0))\n",
             "        if ():\n            self._wait(run, Hold(False, wait_ms, 0))\n"),
    Mutation("back-offs-do-not-double", "queues", "ottla.replication.share.config",
             "self.retry_backoff_ms << min(deliveries - 1, DOUBLINGS_MAX)", "self.retry_backoff_ms"),
    Mutation("a-freed-record-is-forgotten", "queues", "ottla.replication.share.selection",
             "        for following in self._keys.leave_all(first, last):\n",
             "        for following in self._keys.leave_all(first, last)[1:]:\n"),
    Mutation("the-window-is-not-scanned-again", "queues", "ottla.replication.share.selection",
             "        self._scanned: Offset = window.start_offset\n",
             "        self._scanned: Offset = window.end_offset + bool(window.batches)\n"),
    Mutation("late-records-are-not-sent", "queues", "ottla.server.handlers.share.share_fetch",
             "in_order(self.found[led.where].acquired, acquired)",
             "[*self.found[led.where].acquired, *acquired]", seeds=1, first=69),
    # Of users, ACLs and delegation tokens.
    Mutation("acls-of-a-snapshot-are-not-followed", "security", "ottla.metadata.delta",
             "        delta.acls = _difference(base.acls, image.acls)\n", ""),
    Mutation("decisions-outlive-a-change", "security", "ottla.security.authorizer",
             "        self.generation += 1\n        self._decisions.clear()\n", "        self.generation += 1\n"),
    Mutation("shortcuts-outlive-a-change", "security", "ottla.server.security.authorization",
             "            connection.shortcuts.clear()\n", "            pass\n"),
    Mutation("a-removed-token-still-logs-in", "security", "ottla.server.listeners.sasl_listeners",
             "        found = node.image.delegation_tokens.get(token_id)\n",
             "        found = made.__dict__.get(token_id) or node.image.delegation_tokens.get(token_id)\n"
             "        made.__dict__[token_id] = found\n"),
    Mutation("snapshot-without-tokens", "security", "ottla.metadata.writer",
             "    yield from image.delegation_tokens.values()\n", ""),
    Mutation("credentials-before-the-commit", "security", "ottla.server.listeners.sasl_listeners",
             "        found = self._node.image.scram_credentials.get(",
             "        controller = self._node.metadata.controller\n"
             "        newest = controller.image if controller and controller.active else self._node.image\n"
             "        found = newest.scram_credentials.get(", 20),
    Mutation("answered-before-the-broker-has-the-change", "security",
             "ottla.drivers.controller.remote_controller_channel",
             "        if api_key != ApiKey.DESCRIBE_QUORUM:\n            await self._changed()\n", ""),
    Mutation("security-changes-answered-before-the-commit", "security", "ottla.drivers.controller.active_controller",
             "        if values or self._pending:  # what it only read may not be committed either\n",
             "        if self._pending and not values:\n"),
    Mutation("the-requester-is-lost-on-the-way", "security", "ottla.drivers.controller.controller_channel",
             "                api_key, request, heard=heard, requester=requester.principal\n",
             "                api_key, request, heard=heard\n"),
    Mutation("denials-are-overlooked", "security", "ottla.security.authorizer",
             "        if denying:\n", "        if denying and not allowing:\n"),
    # Of the client of ZooKeeper.
    Mutation("a-server-that-is-behind-serves", "zookeeper", "ottla.zookeeper.session",
             "write_connect(self.last_zxid, self", "write_connect(0, self"),
    Mutation("the-last-zxid-of-the-first-connection", "zookeeper", "ottla.zookeeper.session",
             "        self.last_zxid = max(self.last_zxid, zxid)\n",
             "        self.last_zxid = self.last_zxid or zxid\n"),
    Mutation("lost-requests-are-sent-again", "zookeeper", "ottla.zookeeper.session",
             "            self._fail(self._sent, Code.CONNECTION_LOSS, reason)\n"
             "            self._fail(self._unsent, Code.CONNECTION_LOSS, reason)\n",
             "            self._unsent.extendleft(reversed(self._sent))\n            self._sent.clear()\n", 20),
    Mutation("lost-requests-were-not-applied", "zookeeper", "ottla.zookeeper.session",
             "                maybe = sent and isinstance(request, _WRITES)\n", "                maybe = False\n", 20),
    Mutation("watches-are-not-set-again", "zookeeper", "ottla.zookeeper.session",
             "        for batch in self.watches.batches():\n", "        for batch in ():\n"),
    Mutation("watches-are-set-again-as-of-the-beginning", "zookeeper", "ottla.zookeeper.session",
             "write = write_set_watches(self.last_zxid, lists)", "write = write_set_watches(0, lists)"),
    Mutation("watches-are-set-again-as-of-now", "zookeeper", "ottla.zookeeper.session",
             "write = write_set_watches(self.last_zxid, lists)", "write = write_set_watches(1 << 62, lists)"),
    Mutation("watches-of-what-is-not-there-are-lost", "zookeeper", "ottla.zookeeper.watches",
             "{Code.OK: Kind.DATA, Code.NO_NODE: Kind.EXISTS}", "{Code.OK: Kind.DATA}"),
    Mutation("watches-of-children-are-of-data", "zookeeper", "ottla.zookeeper.watches",
             "        return Kind.CHILD\n", "        return Kind.DATA\n"),
    Mutation("a-watch-fires-twice", "zookeeper", "ottla.zookeeper.watches",
             "            found.update(self._kinds[each].pop(path, {}))\n",
             "            found.update(self._kinds[each].get(path, {}))\n"),
    Mutation("persistent-watchers-hear-of-no-reconnect", "zookeeper", "ottla.zookeeper.session",
             "        persistent = self.watches.persistent() if again else ()\n", "        persistent = ()\n", 20),
    Mutation("watchers-hear-of-no-end", "zookeeper", "ottla.zookeeper.session",
             "        watchers = self.watches.drop_all()\n        if watchers:",
             "        watchers = self.watches.drop_all()\n        if ():"),
    Mutation("watchers-behind-the-answers", "zookeeper calm", "ottla.zookeeper.client",
             "                for watcher in watchers:\n                    self._tell(watcher, event)\n",
             "                for watcher in watchers:\n"
             "                    asyncio.get_running_loop().call_later(0.02, self._tell, watcher, event)\n", 20),
    Mutation("expired-sessions-begin-again", "zookeeper", "ottla.zookeeper.session",
             '            self._end(State.EXPIRED, f"the session {self.id:#x} has expired")\n'
             '            return\n        again',
             '            self.id, self._password = 0, bytes(16)\n            self._drop("expired", now_ms)\n'
             '            return\n        again', 20),
    Mutation("the-password-is-forgotten", "zookeeper", "ottla.zookeeper.session",
             "self.timeout_ms = session_id, password, timeout_ms\n",
             "self.timeout_ms = session_id, self._password, timeout_ms\n"),
    Mutation("no-pings", "zookeeper calm", "ottla.zookeeper.session",
             "self.phase is Phase.CONNECTED and now_ms - self._sent_ms >= self._ping_ms",
             "self.phase is Phase.CLOSING and now_ms - self._sent_ms >= self._ping_ms"),
    # Of a cluster that lives in ZooKeeper.
    Mutation("answered-before-the-znodes", "in zookeeper", "ottla.drivers.zookeeper.cluster",
             "        self._queue.append(_Decision(delta, image, end))\n",
             "        self._queue.append(_Decision(delta, image, end))\n        self.node.written(end)\n", first=24),
    Mutation("unknown-outcome-taken-for-written", "in zookeeper", "ottla.drivers.zookeeper.cluster",
             "                await writer.write(found)\n",
             "                try:\n                    await writer.write(found)\n"
             "                except ZooKeeperError:\n                    pass\n", first=29),
    Mutation("tree-read-from-a-server-that-lags", "in zookeeper", "ottla.drivers.zookeeper.cluster",
             "        await client.sync(\"/\")\n", "", first=4),
    Mutation("controller-epoch-not-raised", "in zookeeper", "ottla.drivers.zookeeper.cluster",
             "SetData(cluster.CONTROLLER_EPOCH, b\"%d\" % epoch, stat.version)])\n",
             "SetData(cluster.CONTROLLER_EPOCH, b\"%d\" % (epoch - (epoch > 2)), stat.version)])\n", first=24),
    Mutation("in-sync-set-of-a-state-is-all-replicas", "in zookeeper", "ottla.znodes.changes",
             "            partition.isr,\n            controller_epoch,\n",
             "            partition.replicas,\n            controller_epoch,\n", first=4),
    Mutation("leader-epochs-begin-again", "in zookeeper", "ottla.znodes.reading",
             "            leader_epoch=state.leader_epoch,\n",
             "            leader_epoch=min(state.leader_epoch, 1),\n", first=24),
    Mutation("broker-not-registered-in-a-new-session", "in zookeeper", "ottla.drivers.zookeeper.lifecycle",
             "        if self._member is not None and not self._stopping:\n            self._registering",
             "        if self._member is None and not self._stopping:\n            self._registering", first=29),
    Mutation("election-not-watched", "in zookeeper", "ottla.drivers.zookeeper.cluster",
             "                data, stat = await client.get(cluster.CONTROLLER, self._look)\n",
             "                data, stat = await client.get(cluster.CONTROLLER)\n", first=34),
    Mutation("topics-deleted-in-part", "in zookeeper", "ottla.znodes.changes",
             "        yield Change(topics.topic_path(gone.name), Kind.GONE)\n", "", first=32),
    Mutation("producer-ids-not-kept", "in zookeeper", "ottla.znodes.changes",
             "    if delta.next_producer_id is not None and delta.next_producer_id > 0:\n",
             "    if delta.next_producer_id is not None and delta.next_producer_id < 0:\n", first=4),
    Mutation("topic-ids-not-kept", "in zookeeper", "ottla.znodes.topics",
             "        **({} if topic.topic_id is None else {\"topic_id\": uuid_to_base64(topic.topic_id)}),\n", "",
             first=24),
    Mutation("settings-of-topics-not-kept", "in zookeeper", "ottla.znodes.changes",
             "        yield Change(path, Kind.SET if is_topic else Kind.NEW, configs.encode_config(settings))\n",
             "        if not is_topic:\n            yield Change(path, Kind.NEW, configs.encode_config(settings))\n",
             first=24),
    Mutation("decisions-written-in-part", "in zookeeper", "ottla.drivers.zookeeper.cluster",
             "                for delta, image, _ in taken:\n", "                for delta, image, _ in taken[:1]:\n",
             first=17),
    Mutation("moves-not-kept", "in zookeeper", "ottla.znodes.changes",
             "        is_assigned |= assignment(before) != assignment(partition)\n", "", first=17),
    Mutation("states-of-new-partitions-not-kept", "in zookeeper", "ottla.znodes.changes",
             "        yield state(number, partition, Kind.NEW, 1)\n", "", first=24),
    Mutation("in-sync-sets-kept-with-an-election-only", "in zookeeper", "ottla.znodes.changes",
             "        if times := partition.partition_epoch - before.partition_epoch:\n",
             "        times = partition.partition_epoch - before.partition_epoch\n"
             "        if times and partition.leader_epoch != before.leader_epoch:\n"),
    Mutation("producer-ids-kept-once", "in zookeeper", "ottla.znodes.changes",
             "    if delta.next_producer_id is not None and delta.next_producer_id > 0:\n",
             "    if delta.next_producer_id == 0:\n"),
    Mutation("states-set-once-for-two-changes", "in zookeeper", "ottla.drivers.zookeeper.tree",
             "            return [SetData(path, data) for _ in range(times)]\n",
             "            return [SetData(path, data)]\n", first=3),
    Mutation("directories-of-replicas-not-kept", "in zookeeper", "ottla.znodes.changes",
             "            () if DIRECTORIES_UNKNOWN.issuperset(partition.directories) else partition.directories,\n",
             "            (),\n", first=4),
    Mutation("full-disk-keeps-the-controllers-place", "in zookeeper", "ottla.drivers.zookeeper.cluster",
             "                if not self.node.is_leader:  #", "                if False:  #", seeds=1, first=226),
)  # fmt: skip


class Planter(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports one module with the bug in it."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation
        self._source = mutation.source().encode()
        self.planted = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutation.module:
            return None
        return importlib.util.spec_from_file_location(fullname, self._mutation.path, loader=self)  # sets __file__

    def get_filename(self, fullname: str) -> str:
        return str(self._mutation.path)

    def get_data(self, path: str | bytes) -> bytes:
        self.planted = True
        return self._source

    def path_stats(self, path: str | bytes) -> dict[str, float]:
        raise OSError("never from a cache")


def search(mutation: Mutation, seeds: int) -> tuple[int, str]:
    """In this process: the first seed that finds the bug, and by what; (-1, "") if none does."""
    planter = Planter(mutation)
    importlib.import_module("ottla")  # which may put a finder of its own first
    sys.meta_path.insert(0, planter)
    from ottla.simulation import scenario

    for seed in range(mutation.first, mutation.first + seeds):
        outcome = scenario.run(seed, mutation.kind)
        found = [each for each in outcome.failures if not each.startswith("the run met no")]
        assert planter.planted, f"{mutation.module} was not imported"
        if found:
            return seed, found[0].splitlines()[0]
    return -1, ""


def find(mutation: Mutation) -> tuple[int, str]:
    """The same in a process of its own, which nothing of the bug outlives."""
    command = [sys.executable, "-m", "tests.simulation.mutations", mutation.name, "--here", f"--seeds={mutation.seeds}"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    if mutation.path.with_suffix(".pxd").exists():
        environment["OTTLA_INTERPRETED"] = "1"
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    seed, what = json.loads(done.stdout.splitlines()[-1])
    return seed, what


def _children_s() -> float:
    """Processor time of what this process started and awaited."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--check", action="store_true", help="only whether each can still be planted")
    parser.add_argument("--seeds", type=int, help="look through so many seeds, whatever is stated")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = [each for each in MUTATIONS if not options.names or each.name in options.names]
    if options.seeds is not None:
        chosen = [each._replace(seeds=options.seeds) for each in chosen]
    if options.check:
        for mutation in chosen:
            compile(mutation.source(), str(mutation.path), "exec")
        print(f"{len(chosen)} bugs can be planted")
        return 0
    if options.here:
        print(json.dumps(search(chosen[0], chosen[0].seeds)))
        return 0
    missed = []
    for mutation in chosen:
        began_s = _children_s()
        seed, what = find(mutation)
        if seed < 0:
            missed.append(mutation.name)
            what = f"NOT FOUND within {mutation.seeds} seeds"
        took_s = _children_s() - began_s
        print(f"{mutation.name:42} {mutation.kind:12} seed {seed:3} {took_s:6.1f} s  {what[:110]}", flush=True)
    print(f"{len(chosen)} bugs planted, {len(chosen) - len(missed)} found")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
