"""The broker settings that Kafka does not have: metrics over HTTP, and the log of a node."""

from __future__ import annotations

from ottla.config.checks import Address, AtLeast, OneOf
from ottla.config.setting import Mode, Setting, Type

# fmt: off
OTTLA: tuple[Setting, ...] = (
    Setting("ottla.cluster.id", Type.STRING, None,
            doc="The cluster that a new log directory is of, as `kafka-storage.sh random-uuid` makes them. The "
                "controllers of a new cluster of several need it, the same for all, unless their directories are "
                "formatted; other nodes ask the controllers that their settings name."),
    Setting("ottla.broker.incarnation.id", Type.STRING, None, internal=True,
            doc="The incarnation as which the broker registers, a UUID that `ottla cluster add` has taken its id with. "
                "For one process only."),
    Setting("ottla.http.listener", Type.STRING, "", Address(),
            doc="Where the node answers /metrics, /health and /ready over HTTP, as host:port; an empty host means all "
                "interfaces, port 0 any free port. Empty for nowhere."),
    Setting("ottla.metrics.partitions", Type.BOOLEAN, "true",
            doc="Whether /metrics has series for each partition, and for each partition of a group."),
    Setting("ottla.log.level", Type.STRING, "INFO", OneOf(("DEBUG", "INFO", "WARN", "ERROR", "FATAL")),
            doc="The least severe events that are logged. Loggers can be changed one by one while the node runs."),
    Setting("ottla.log.format", Type.STRING, "text", OneOf(("text", "json")),
            doc="Whether a logged event is a line of text or a JSON object in a line."),
    Setting("ottla.log.slow.request.ms", Type.INT, "1000", AtLeast(-1),
            doc="Milliseconds from which a request is logged as slow; -1 for none."),
    Setting("ottla.log.scrub.bytes.per.second", Type.INT, "8388608", AtLeast(0), mode=Mode.CLUSTER_WIDE,
            doc="Bytes a second that a node reads at most to find damage in its logs that nobody has met; 0 for none. "
                "Logs that somebody suspects are read in any case, and faster."),
    Setting("ottla.log.scrub.interval.ms", Type.LONG, "604800000", AtLeast(1000), mode=Mode.CLUSTER_WIDE,
            doc="Milliseconds after which a log that was read for damage is read again; after a start each is once."),
    Setting("ottla.failover.confirm.ms", Type.INT, "100", AtLeast(-1),
            doc="A node whose connection ends and whose listener refuses new ones, for so many milliseconds, is taken "
                "for dead: a controller fences such a broker, voters elect another controller. -1: only "
                "broker.session.timeout.ms and controller.quorum.fetch.timeout.ms tell."),
    Setting("ottla.event.loop", Type.STRING, "uvloop", OneOf(("uvloop", "asyncio")),
            doc="The event loop that the node runs on. asyncio's own is slower, and tells whether a fault is "
                "uvloop's."),
)
# fmt: on
