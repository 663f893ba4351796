"""The settings of a topic. Most take their default from a broker setting: see `TOPIC_SYNONYMS` in `definitions.py`."""

from __future__ import annotations

from ottla.config.checks import AtLeast, Between, GzipLevel, ListOf, OneOf, ThrottledReplicas
from ottla.config.setting import Setting, Type

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG, Type.DOUBLE, Type.LIST

# fmt: off
TOPIC: tuple[Setting, ...] = (
    Setting("segment.bytes", INT, "1073741824", AtLeast(1048576),
            doc="Bytes at which a segment is closed and the next begun."),
    Setting("segment.ms", LONG, "604800000", AtLeast(1),
            doc="Milliseconds after which a segment is closed even if it is not full."),
    Setting("segment.jitter.ms", LONG, "0", AtLeast(0),
            doc="Milliseconds at most, chosen at random, by which rolling comes earlier."),
    Setting("segment.index.bytes", INT, "10485760", AtLeast(4),
            doc="Bytes of an index at most; a full index closes its segment."),
    Setting("index.interval.bytes", INT, "4096", AtLeast(0),
            doc="Bytes of records between two entries of the offset index."),
    Setting("retention.ms", LONG, "604800000", AtLeast(-1),
            doc="Milliseconds that records are kept; -1 for no limit."),
    Setting("retention.bytes", LONG, "-1",
            doc="Bytes that a partition keeps; -1 for no limit."),
    Setting("cleanup.policy", LIST, "delete", ListOf(("compact", "delete")),
            doc="What happens to old records: delete, compact, or both; empty to keep everything."),
    Setting("delete.retention.ms", LONG, "86400000", AtLeast(0),
            doc="Milliseconds that tombstones of a compacted topic are kept."),
    Setting("min.compaction.lag.ms", LONG, "0", AtLeast(0),
            doc="Milliseconds that a record stays before it may be compacted."),
    Setting("max.compaction.lag.ms", LONG, "9223372036854775807", AtLeast(1),
            doc="Milliseconds after which a record must become eligible for compaction."),
    Setting("min.cleanable.dirty.ratio", DOUBLE, "0.5", Between(0, 1),
            doc="The share of uncleaned bytes from which a log is cleaned."),
    Setting("file.delete.delay.ms", LONG, "60000", AtLeast(0),
            doc="Milliseconds between a file's renaming and its deletion."),
    Setting("flush.messages", LONG, "9223372036854775807", AtLeast(1),
            doc="Records after which the log is fsynced before more are acknowledged."),
    Setting("flush.ms", LONG, "9223372036854775807", AtLeast(0),
            doc="Milliseconds after which the fsync of an acknowledged record begins; at most 50 later while the node "
                "keeps up, or when fsyncs that are due before it are over."),
    Setting("max.message.bytes", INT, "1048588", AtLeast(0),
            doc="Bytes of a record batch at most."),
    Setting("max.decompressed.message.bytes", INT, "2147483639", Between(1, 2147483639),
            doc="Bytes of one record of a compressed batch at most, once decompressed. Checked before the record is "
                "decompressed, where the node does that: records are produced, compacted, or found by their "
                "timestamps. A larger one is refused with INVALID_RECORD. All records of a batch together have at most "
                "104857600 bytes."),
    Setting("compression.type", STRING, "producer",
            OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
            doc="How batches are compressed on disk; producer keeps what the producer chose."),
    Setting("compression.gzip.level", INT, "-1", GzipLevel(),
            doc="The level when the broker compresses with gzip."),
    Setting("compression.lz4.level", INT, "9", Between(1, 17),
            doc="The level when the broker compresses with lz4."),
    Setting("compression.zstd.level", INT, "3", Between(-131072, 22),
            doc="The level when the broker compresses with zstd."),
    Setting("message.timestamp.type", STRING, "CreateTime", OneOf(("CreateTime", "LogAppendTime")),
            doc="Whose time a record carries: CreateTime, the producer's, or LogAppendTime, the broker's."),
    Setting("message.timestamp.before.max.ms", LONG, "9223372036854775807", AtLeast(0),
            doc="Milliseconds at most that a producer's timestamp may lie in the past."),
    Setting("message.timestamp.after.max.ms", LONG, "3600000", AtLeast(0),
            doc="Milliseconds at most that a producer's timestamp may lie in the future."),
    Setting("min.insync.replicas", INT, "1", AtLeast(1),
            doc="Replicas that must be in sync for a produce request with acks=all."),
    Setting("unclean.leader.election.enable", BOOLEAN, "false",
            doc="Whether a replica that is not in sync may lead when no other is left; records may be lost."),
    Setting("preallocate", BOOLEAN, "false",
            doc="Whether the disk space of a new segment is reserved."),
    Setting("leader.replication.throttled.replicas", LIST, "", ThrottledReplicas(),
            doc="Replicas whose leaders are throttled, as partition:broker,... or *."),
    Setting("follower.replication.throttled.replicas", LIST, "", ThrottledReplicas(),
            doc="Replicas whose followers are throttled, as partition:broker,... or *."),
    Setting("remote.storage.enable", BOOLEAN, "false",
            doc="Whether old segments of the topic move to remote storage."),
    Setting("remote.log.copy.disable", BOOLEAN, "false",
            doc="Whether a tiered topic stops copying to remote storage."),
    Setting("remote.log.delete.on.disable", BOOLEAN, "false",
            doc="Whether remote data is deleted when tiering is switched off."),
    Setting("remote.copy.lag.ms", LONG, "0", AtLeast(-1),
            doc="Milliseconds that a closed segment waits for its copy to remote storage; -1: as local.retention.ms."),
    Setting("remote.copy.lag.bytes", LONG, "-1", AtLeast(-1),
            doc="Bytes of newer segments that a closed segment waits for before its copy to remote storage; -1: as "
                "local.retention.bytes."),
    Setting("local.retention.ms", LONG, "-2", AtLeast(-2),
            doc="Milliseconds that tiered segments stay on the local disk; -2 for as long as the records."),
    Setting("local.retention.bytes", LONG, "-2", AtLeast(-2),
            doc="Bytes of tiered segments on the local disk; -2 for as much as the partition keeps."),
    Setting("internal.segment.bytes", INT, None, internal=True,
            doc="Replaces segment.bytes in tests, without its lower limit."),
)
# fmt: on
