"""The settings of the other resources that DescribeConfigs knows: groups and client metrics subscriptions."""

from __future__ import annotations

from ottla.config.checks import AtLeast, Between, ListOf, OffsetReset, OneOf
from ottla.config.setting import Setting, Type

BOOLEAN, STRING, INT, LONG, LIST = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG, Type.LIST

# fmt: off
GROUP: tuple[Setting, ...] = (
    Setting("consumer.session.timeout.ms", INT, "45000", AtLeast(1),
            doc="Milliseconds without a heartbeat after which a member of the consumer group is removed."),
    Setting("consumer.heartbeat.interval.ms", INT, "5000", AtLeast(1),
            doc="Milliseconds between a consumer group member's heartbeats."),
    Setting("consumer.assignment.interval.ms", INT, "1000", AtLeast(0),
            doc="Milliseconds at least between two assignments of the consumer group."),
    Setting("consumer.assignor.offload.enable", BOOLEAN, "true", internal=True,
            doc="Whether Kafka computes assignments of the consumer group in a thread of their own."),
    Setting("share.session.timeout.ms", INT, "45000", AtLeast(1),
            doc="Milliseconds without a heartbeat after which a member of the share group is removed."),
    Setting("share.heartbeat.interval.ms", INT, "5000", AtLeast(1),
            doc="Milliseconds between a share group member's heartbeats."),
    Setting("share.record.lock.duration.ms", INT, "30000", AtLeast(1000),
            doc="Milliseconds that a delivered record stays locked for its consumer."),
    Setting("share.delivery.count.limit", INT, "5", AtLeast(2),
            doc="Times at most that a record is delivered to the share group."),
    Setting("share.partition.max.record.locks", INT, "2000", AtLeast(100),
            doc="Records of a share partition that may be in flight."),
    Setting("share.auto.offset.reset", STRING, "latest", OffsetReset(),
            doc="Where a share group without state starts: latest, earliest or by_duration:PnDTnHnMn.nS."),
    Setting("share.isolation.level", STRING, "read_uncommitted", OneOf(("read_committed", "read_uncommitted")),
            doc="Whether a share group reads records of open and aborted transactions."),
    Setting("share.renew.acknowledge.enable", BOOLEAN, "true",
            doc="Whether consumers may renew the lock of a delivered record."),
    Setting("share.assignment.interval.ms", INT, "1000", AtLeast(0),
            doc="Milliseconds at least between two assignments of the share group."),
    Setting("share.assignor.offload.enable", BOOLEAN, "true", internal=True,
            doc="Whether Kafka computes assignments of the share group in a thread of their own."),
    Setting("errors.deadletterqueue.topic.name", STRING, "",
            doc="The topic for the dead letters of the share group: records that were rejected, or delivered as often "
                "as they may be. Empty for none. The topic needs errors.deadletterqueue.group.enable."),
    Setting("errors.deadletterqueue.copy.record.enable", BOOLEAN, "false",
            doc="Whether dead letters of the share group have the key and value of their records; else they have only "
                "headers that say where the record is and why it died."),
    Setting("ottla.share.retry.backoff.ms", LONG, "0", AtLeast(0),
            doc="Milliseconds after which a record that was released, or whose lock has ended, is delivered to the "
                "share group again; doubled with each further delivery. 0 for at once."),
    Setting("ottla.share.retry.backoff.max.ms", LONG, "60000", AtLeast(0),
            doc="Milliseconds up to which ottla.share.retry.backoff.ms is doubled, if that is not more itself."),
    Setting("ottla.share.delivery.time.header", STRING, "",
            doc="The header of a record that says before when it is not delivered to the share group: milliseconds "
                "since 1970 as ASCII digits or 8 bytes big endian. Empty for none."),
    Setting("ottla.share.order", STRING, "none", OneOf(("none", "key")),
            doc="With key, records of one key are delivered to the share group in order and one at a time."),
    Setting("ottla.share.waiting.max", INT, "10000", Between(100, 20000),
            doc="Runs of records in a row that wait for the same, in a share partition of a share group that uses one "
                "of the settings ottla.share.* before. At the limit no further records are looked at until some are "
                "done with."),
    Setting("streams.session.timeout.ms", INT, "45000", AtLeast(1),
            doc="Milliseconds without a heartbeat after which a member of the streams group is removed."),
    Setting("streams.heartbeat.interval.ms", INT, "5000", AtLeast(1),
            doc="Milliseconds between a streams group member's heartbeats."),
    Setting("streams.num.standby.replicas", INT, "0", AtLeast(0),
            doc="Standby replicas of each task of the streams group."),
    Setting("streams.initial.rebalance.delay.ms", INT, "3000", AtLeast(0),
            doc="Milliseconds that the first assignment of the streams group waits for more members."),
    Setting("streams.assignment.interval.ms", INT, "1000", AtLeast(0),
            doc="Milliseconds at least between two assignments of the streams group."),
    Setting("streams.assignor.offload.enable", BOOLEAN, "true", internal=True,
            doc="Whether Kafka computes assignments of the streams group in a thread of their own."),
    Setting("streams.task.offset.interval.ms", INT, "60000", AtLeast(1),
            doc="Milliseconds between a member's reports of how far it has restored its tasks."),
    Setting("streams.num.warmup.replicas", INT, "2", AtLeast(0),
            doc="Warm-up tasks of the streams group at most; 0 moves active tasks at once."),
    Setting("streams.rack.aware.assignment.tags", LIST, "", ListOf(),
            doc="Keys of client tags; copies of a task go to clients whose values differ."),
    Setting("streams.acceptable.recovery.lag", LONG, "10000", AtLeast(0),
            doc="Records that a copy of a task may lag behind when the active task moves to it."),
    Setting("streams.assignor.name", STRING, None,
            doc="The task assignor of the streams group, one of group.streams.assignors; by default the first. It "
                "is used from the next assignment on."),
)

CLIENT_METRICS: tuple[Setting, ...] = (
    Setting("metrics", LIST, "", ListOf(),
            doc="The client metrics that are subscribed to, by prefix; * for all."),
    Setting("interval.ms", INT, "300000",
            doc="Milliseconds between pushes of a client's metrics."),
    Setting("match", LIST, "", ListOf(),
            doc="Which clients the subscription is for, as selector=pattern,..."),
)
# fmt: on
