"""The settings of the other resources that DescribeConfigs knows: groups and client metrics subscriptions."""

from __future__ import annotations

from ottla.config.checks import AtLeast, ListOf, OneOf
from ottla.config.setting import Setting, Type

BOOLEAN, STRING, INT, LIST = Type.BOOLEAN, Type.STRING, Type.INT, Type.LIST

# fmt: off
GROUP: tuple[Setting, ...] = (
    Setting("consumer.session.timeout.ms", INT, "45000", AtLeast(1), acts=False,
            doc=""),
    Setting("consumer.heartbeat.interval.ms", INT, "5000", AtLeast(1), acts=False,
            doc=""),
    Setting("consumer.assignment.interval.ms", INT, "1000", AtLeast(0), acts=False,
            doc=""),
    Setting("share.session.timeout.ms", INT, "45000", AtLeast(1), acts=False,
            doc=""),
    Setting("share.heartbeat.interval.ms", INT, "5000", AtLeast(1), acts=False,
            doc=""),
    Setting("share.record.lock.duration.ms", INT, "30000", AtLeast(1000), acts=False,
            doc=""),
    Setting("share.delivery.count.limit", INT, "5", AtLeast(2), acts=False,
            doc=""),
    Setting("share.partition.max.record.locks", INT, "2000", AtLeast(100), acts=False,
            doc=""),
    Setting("share.auto.offset.reset", STRING, "latest", acts=False,
            doc=""),
    Setting("share.isolation.level", STRING, "read_uncommitted", OneOf(("read_committed", "read_uncommitted")),
            acts=False,
            doc=""),
    Setting("share.renew.acknowledge.enable", BOOLEAN, "true", acts=False,
            doc=""),
    Setting("share.assignment.interval.ms", INT, "1000", AtLeast(0), acts=False,
            doc=""),
    Setting("streams.session.timeout.ms", INT, "45000", AtLeast(1), acts=False,
            doc=""),
    Setting("streams.heartbeat.interval.ms", INT, "5000", AtLeast(1), acts=False,
            doc=""),
    Setting("streams.num.standby.replicas", INT, "0", AtLeast(0), acts=False,
            doc=""),
    Setting("streams.initial.rebalance.delay.ms", INT, "3000", AtLeast(0), acts=False,
            doc=""),
    Setting("streams.assignment.interval.ms", INT, "1000", AtLeast(0), acts=False,
            doc=""),
)

CLIENT_METRICS: tuple[Setting, ...] = (
    Setting("metrics", LIST, "", ListOf(), acts=False,
            doc=""),
    Setting("interval.ms", INT, "300000", acts=False,
            doc=""),
    Setting("match", LIST, "", ListOf(), acts=False,
            doc=""),
)
# fmt: on
