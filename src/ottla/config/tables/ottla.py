"""The broker settings that Kafka does not have: metrics over HTTP, and the log of a node."""

from __future__ import annotations

from ottla.config.checks import Address, AtLeast, ListOf, OneOf
from ottla.config.setting import Mode, Setting, Type

AUDITED = ("authentication", "administration", "denials", "data")
"""Classes of events of the audit log."""

# fmt: off
OTTLA: tuple[Setting, ...] = (
    Setting("ottla.cluster.id", Type.STRING, None,
            doc="The cluster id of a new log directory, in the format of `kafka-storage.sh random-uuid`. Controllers "
                "of a new cluster with several controllers need it, the same for all, unless their directories are "
                "formatted; other nodes ask the controllers named in their settings."),
    Setting("ottla.broker.incarnation.id", Type.STRING, None, internal=True,
            doc="The incarnation as which the broker registers, a UUID that `ottla cluster add` has taken its id with. "
                "For one process only."),
    Setting("ottla.http.listener", Type.STRING, "", Address(),
            doc="Where the node serves /metrics, /health and /ready over HTTP, as host:port; an empty host means all "
                "interfaces, port 0 any free port. Empty for no HTTP port."),
    Setting("ottla.http.security.protocol", Type.STRING, "PLAINTEXT",
            OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
            doc="How the HTTP port, and the schema registry that is started with the node, are reached: SSL and "
                "SASL_SSL are https; with SASL_PLAINTEXT and SASL_SSL clients log in by a password (Basic, users of "
                "SCRAM or PLAIN) or a token (Bearer). Certificates and mechanisms are those of the node, or its own "
                "with the prefix listener.name.http., such as listener.name.http.sasl.enabled.mechanisms."),
    Setting("ottla.allow.open.listeners", Type.BOOLEAN, "false",
            doc="Whether the node may start with a listener, or an HTTP port, that other machines reach and that asks "
                "for no login. Set it only where the network itself keeps strangers out."),
    Setting("ottla.metrics.clients", Type.BOOLEAN, "true",
            doc="Whether /metrics has the metrics that clients push (KIP-714)."),
    Setting("ottla.metrics.partitions", Type.BOOLEAN, "true",
            doc="Whether /metrics has series for each partition, and for each partition of a group."),
    Setting("ottla.share.dlq.payload.and.reason", Type.BOOLEAN, "false", mode=Mode.CLUSTER_WIDE,
            doc="Whether dead letters of share groups have the payload of their records, unless the group says "
                "otherwise (errors.deadletterqueue.copy.record.enable), with it the record's own headers, which "
                "Kafka leaves out, and two more: __ottla.dlq.reason, rejected or deliveries, and "
                "__ottla.dlq.timestamp, the record's own."),
    Setting("ottla.log.level", Type.STRING, "INFO", OneOf(("DEBUG", "INFO", "WARN", "ERROR", "FATAL")),
            doc="The minimum level of logged events. Levels of single loggers can be changed while the node runs."),
    Setting("ottla.log.format", Type.STRING, "text", OneOf(("text", "json")),
            doc="Format of log lines: text, or one JSON object per line."),
    Setting("ottla.log.slow.request.ms", Type.INT, "1000", AtLeast(-1),
            doc="Milliseconds from which a request is logged as slow; -1 for none."),
    Setting("ottla.log.scrub.bytes.per.second", Type.INT, "8388608", AtLeast(0), mode=Mode.CLUSTER_WIDE,
            doc="Maximum bytes per second that a node reads to find undetected damage in its logs; 0 for none. Logs "
                "suspected of damage are always read, and faster."),
    Setting("ottla.log.scrub.interval.ms", Type.LONG, "604800000", AtLeast(1000), mode=Mode.CLUSTER_WIDE,
            doc="Milliseconds after which a log is read for damage again; after a start each log is read once."),
    Setting("ottla.audit.directory", Type.STRING, "",
            doc="The directory of the audit log: one JSON line for each login, denial and change, with a hash over "
                "the line before it, in files below node-ID. Empty for no audit log. `ottla audit` verifies and "
                "searches it."),
    Setting("ottla.audit.topic", Type.STRING, "",
            doc="A topic to which the lines of the audit log are shipped from the files of ottla.audit.directory, "
                "which this needs. A topic that is missing is created with the defaults of topics; the node's user "
                "must be allowed to write to it. Empty for none."),
    Setting("ottla.audit.events", Type.LIST, "authentication,administration,denials", ListOf(AUDITED, empty=False),
            doc="What the audit log has: authentication (logins that succeeded and failed), administration (changes, "
                "with the values before and after), denials, and data (who read or wrote which topic; only with an "
                "authorizer)."),
    Setting("ottla.audit.file.bytes", Type.LONG, "104857600", AtLeast(4096),
            doc="Bytes of a file of the audit log, from which another one is begun."),
    Setting("ottla.audit.files.max", Type.INT, "0", AtLeast(0),
            doc="Files of the audit log that are kept; the oldest one is deleted, and the log says so. 0 keeps all."),
    Setting("ottla.audit.flush.interval.ms", Type.INT, "1000", AtLeast(0),
            doc="Milliseconds within which lines of the audit log, which are written at once, are fsynced; 0 fsyncs "
                "each write."),
    Setting("ottla.login.timeout.ms", Type.INT, "10000", AtLeast(100),
            doc="Milliseconds that a client of a SASL listener may take until it is known, TLS included."),
    Setting("ottla.sasl.oauthbearer.unsecured.tokens", Type.BOOLEAN, "false",
            doc="Whether OAUTHBEARER accepts tokens that nobody signed, with which anyone is who he says; for tests "
                "only. Each start warns of it."),
    Setting("ottla.ssl.watch.interval.ms", Type.INT, "5000", AtLeast(100),
            doc="Milliseconds between looks at the key stores and trust stores of listeners over TLS. Changed ones are "
                "used for new connections if they are usable, else the old ones stay and an error is logged."),
    Setting("ottla.failover.confirm.ms", Type.INT, "100", AtLeast(-1),
            doc="A node whose connection has ended and whose listener refuses new connections for this many "
                "milliseconds is considered dead: the controller fences such a broker, and voters elect another "
                "controller. -1: only broker.session.timeout.ms and controller.quorum.fetch.timeout.ms apply."),
    Setting("ottla.legacy.protocol.versions.enable", Type.BOOLEAN, "false",
            doc="Whether the versions of APIs that Kafka 4.0 removed (KIP-896) are served, for clients older than "
                "2.1, and records converted for them from and to the message formats 0 and 1."),
    Setting("ottla.event.loop", Type.STRING, "uvloop", OneOf(("uvloop", "asyncio")),
            doc="The event loop of the node. asyncio is slower; use it to find out whether a fault is in uvloop."),
)
# fmt: on
