"""Settings that a node takes, so that a file that works for Kafka works as it is, and that do nothing here: with why.

Those of the table are checked and reported all the same. `foreign.MUST_BE_OFF` refuses the few that would protect
something, where they are set. A test compares this table with what the code reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.config.tables.node import ZOOKEEPER

_REASONS: Mapping[str, tuple[str, ...]] = {
    "A node has one event loop; threads of the operating system's disk calls need no number.": (
        "num.io.threads", "num.network.threads", "background.threads", "num.replica.alter.log.dirs.threads",
        "group.coordinator.threads", "group.coordinator.background.threads", "share.coordinator.threads",
        "group.consumer.assignor.offload.enable", "group.share.assignor.offload.enable",
        "consumer.assignor.offload.enable", "share.assignor.offload.enable",
    ),
    "Each connection is held back by itself: queued.max.request.bytes.": ("queued.max.requests",),
    "A stopping broker always hands its leaderships over.": ("controlled.shutdown.enable",),
    "A start has no limit of time.": ("server.max.startup.time.ms",),
    "Only released versions are served.": ("unstable.api.versions.enable", "unstable.feature.versions.enable"),
    "The operating system sizes the receive buffers of clients' connections.": ("socket.receive.buffer.bytes",),
    "Each try to connect has the same time: socket.connection.setup.timeout.ms.": (
        "socket.connection.setup.timeout.max.ms",
    ),
    "Requests between nodes have one time limit: request.timeout.ms.": ("controller.socket.timeout.ms",),
    "The controller appends each decision at once.": ("controller.quorum.append.linger.ms",),
    "An idle leader of the metadata quorum appends nothing.": ("metadata.max.idle.interval.ms",),
    "It is for Kafka's own tests.": (
        "internal.metadata.log.segment.bytes", "internal.metadata.max.batch.size.in.bytes",
        "internal.metadata.delete.delay.millis",
    ),
    "Slow requests are logged: ottla.log.slow.request.ms.": (
        "controller.performance.sample.period.ms", "controller.performance.always.log.threshold.ms",
    ),
    "Background work on logs begins with the start and yields to requests.": ("log.initial.task.delay.ms",),
    "A request that has been answered leaves nothing to clear.": (
        "fetch.purgatory.purge.interval.requests", "producer.purgatory.purge.interval.requests",
        "delete.records.purgatory.purge.interval.requests", "share.fetch.purgatory.purge.interval.requests",
    ),
    "Coordinators keep no write buffer for reuse.": (
        "group.coordinator.cached.buffer.max.bytes", "share.coordinator.cached.buffer.max.bytes",
    ),
    "The share coordinator appends the records of each request at once.": ("share.coordinator.append.linger.ms",),
    "There is one assignor of share groups, simple.": ("group.share.assignors",),
    "Assignments of streams groups are computed on the event loop.": (
        "group.streams.assignor.offload.enable", "streams.assignor.offload.enable",
    ),
    "Descriptions of topologies are kept in the record of the group's topology.": (
        "group.streams.topology.description.plugin.class",
    ),
    "Metrics are served over HTTP: ottla.http.listener.": (
        "metric.reporters", "metrics.recording.level", "kafka.metrics.reporters", "kafka.metrics.polling.interval.secs",
        "metrics.context.",
    ),
    "It names a Java class, and a node loads none.": (
        "create.topic.policy.class.name", "alter.config.policy.class.name", "client.quota.callback.",
        "principal.builder.class", "security.providers", "group.share.persister.class.name",
        "group.share.dlq.manager.class.name",
        "sasl.client.callback.handler.class", "sasl.login.class", "sasl.login.callback.handler.class",
        "sasl.oauthbearer.jwt.retriever.class",
    ),
    "TLS is OpenSSL's, which has no such choice.": (
        "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation",
    ),
    "A token is fetched when a connection needs one and four fifths of the last one's time are over.": (
        "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms", "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter", "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.buffer.seconds",
    ),
    "Tickets come from a keytab, or from a cache that is kept from outside.": ("sasl.kerberos.kinit.cmd",),
    "A node takes its client id, secret and scope from the options in sasl.jaas.config.": (
        "sasl.oauthbearer.scope", "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
    ),
    "A node asks for its tokens by client id and secret, not by signed assertions.": (
        "sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.template.file",
    ),
    "There is no tiered storage.": (
        "remote.copy.lag.ms", "remote.copy.lag.bytes", "log.remote.copy.lag.ms", "log.remote.copy.lag.bytes",
        "remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable", "local.retention.ms",
        "local.retention.bytes", "log.local.retention.ms", "log.local.retention.bytes",
        "follower.fetch.last.tiered.offset.enable", "remote.log.storage.system.enable",
        "remote.log.storage.manager.class.name", "remote.log.storage.manager.class.path",
        "remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.class.name",
        "remote.log.metadata.manager.class.path", "remote.log.metadata.manager.impl.prefix",
        "remote.log.metadata.manager.listener.name", "remote.log.metadata.custom.metadata.max.bytes",
        "remote.log.index.file.cache.total.size.bytes", "remote.log.index.file.cache.ttl.ms",
        "remote.log.manager.thread.pool.size", "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size", "remote.log.manager.follower.thread.pool.size",
        "remote.log.manager.task.interval.ms", "remote.log.manager.task.retry.backoff.ms",
        "remote.log.manager.task.retry.backoff.max.ms", "remote.log.manager.task.retry.jitter",
        "remote.log.manager.copy.max.bytes.per.second", "remote.log.manager.copy.quota.window.num",
        "remote.log.manager.copy.quota.window.size.seconds", "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.fetch.quota.window.num", "remote.log.manager.fetch.quota.window.size.seconds",
        "remote.log.reader.threads", "remote.log.reader.max.pending.tasks", "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms", "rsm.config.", "rlmm.config.",
    ),
    "A cluster that lives in ZooKeeper does not need it.": (
        "zookeeper.", "control.plane.listener.name",
    ),
    "Dynamic passwords are kept as Kafka's KRaft keeps them, which needs no secret.": (
        "password.encoder.cipher.algorithm", "password.encoder.iterations", "password.encoder.key.length",
        "password.encoder.keyfactory.algorithm",
    ),
    "Listeners have replaced it: listeners and advertised.listeners.": (
        "advertised.host.name", "advertised.port", "host.name", "port",
    ),
    "Quotas are set by kafka-configs.": ("quota.consumer.default", "quota.producer.default"),
    "Versions are features now, which kafka-features sets.": (
        "inter.broker.protocol.version", "log.message.format.version", "eligible.leader.replicas.enable",
        "group.coordinator.new.enable",
    ),
    "It is called delegation.token.secret.key now.": ("delegation.token.master.key",),
    "log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms have replaced it.": (
        "log.message.timestamp.difference.max.ms",
    ),
    "Kafka has removed it.": (
        "controlled.shutdown.max.retries", "controlled.shutdown.retry.backoff.ms", "log.message.downconversion.enable",
        "offsets.commit.required.acks",
    ),
    "It belongs to a distribution of Kafka.": ("strimzi.", "confluent."),
}  # fmt: skip

WITHOUT_EFFECT: Mapping[str, str] = {name: why for why, names in _REASONS.items() for name in names}
"""Why a setting does nothing, by its name, or by a prefix of names, which ends with a dot."""


def why(name: str) -> str | None:
    """Why the setting does nothing; None where it has an effect, or is none."""
    if name in _OF_ZOOKEEPER:
        return None
    found = WITHOUT_EFFECT.get(name)
    return found or next((WITHOUT_EFFECT[each] for each in _PREFIXES if name.startswith(each)), None)


_OF_ZOOKEEPER = frozenset(each.name for each in ZOOKEEPER)
"""They have an effect where the cluster lives in ZooKeeper."""

_PREFIXES = tuple(name for name in WITHOUT_EFFECT if name.endswith("."))
