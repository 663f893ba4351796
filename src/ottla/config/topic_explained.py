"""What a topic's settings and replicas mean, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ottla.config import definitions
from ottla.config.explained import LONG_MAX
from ottla.config.units import long_time, plural, size


@dataclass(frozen=True)
class Facts:
    """Facts of a topic that the text describes."""

    name: str
    brokers: int
    replicas: Sequence[int]
    """Copies of each partition."""
    in_sync: Sequence[int]
    """In-sync copies of each partition."""
    leaderless: Sequence[int]
    settings: Mapping[str, str]
    racks: Sequence[int] = ()
    """Number of racks that the copies of each partition are in, if brokers have racks."""

    def text(self, name: str) -> str:
        """A setting, Kafka's default where the broker does not report it: it may be older, or not let us see."""
        return self.settings.get(name) or definitions.TOPIC[name].default or ""

    def number(self, name: str) -> int:
        return int(self.text(name))

    def is_true(self, name: str) -> bool:
        return self.text(name) == "true"

    @property
    def copies(self) -> int:
        """Copies of the partition that has fewest."""
        return min(self.replicas, default=0)

    @property
    def required(self) -> int:
        """In-sync copies without which acks=all is refused: never more than there are (`Partition.effectiveMinIsr`)."""
        return min(self.number("min.insync.replicas"), self.copies)


Paragraph = tuple[str, str]
"""A heading and a text."""


def explanation(facts: Facts) -> Iterator[Paragraph]:
    """Everything there is to say about a topic."""
    yield "copies", _copies(facts)
    yield "losses", _losses(facts)
    if facts.copies > 1:
        yield "outage", _outage(facts)
    yield "acks", _acks(facts)
    yield "power", _power(facts)
    yield "kept", _kept(facts)
    yield "records", _records(facts)
    warnings = list(_warnings(facts))
    if warnings:
        yield "now", " ".join(warnings)


def _copies(facts: Facts) -> str:
    most = max(facts.replicas, default=0)
    copies = "1 copy" if most == 1 else f"{most} copies" if most == facts.copies else f"{facts.copies} to {most} copies"
    text = f"{plural(len(facts.replicas), 'partition')} with {copies} each, on {plural(facts.brokers, 'broker')}."
    if not facts.racks or facts.copies <= 1:
        return text
    racks = min(facts.racks)
    if racks == 1:
        return f"{text} All copies of a partition may be in one rack (broker.rack): if it fails, they all fail."
    return f"{text} The copies of a partition are in at least {racks} racks (broker.rack): the loss of one is survived."


def _losses(facts: Facts) -> str:
    copies, required = facts.copies, facts.required
    if copies <= 1:
        return (
            "It survives the loss of no broker: with one copy, a broker that is down makes its partitions unavailable, "
            "and a broker whose disk is lost takes their records with it."
        )
    survive = plural(copies - 1, "broker")
    text = f"While all copies are in sync, the topic stays readable after the loss of {survive}. "
    if required == copies:
        text += "Writes with acks=all stop as soon as one copy falls out of sync. "
    else:
        text += f"Writes with acks=all go on while {plural(copies - required, 'broker')} at most is lost. "
        text = text.replace("brokers at most is", "brokers at most are")
    sure = "no broker" if required == 1 else plural(required - 1, "broker")
    text += (
        f"A record acknowledged at acks=all is on {required} {'copy' if required == 1 else 'copies'} at least "
        f"(min.insync.replicas), so in the worst case it survives the loss of {sure}."
    )
    if facts.is_true("unclean.leader.election.enable"):
        text += (
            " But unclean.leader.election.enable is true: if no other copy is left, one that is behind may become "
            "leader, and acknowledged records are lost."
        )
    return text


def _outage(facts: Facts) -> str:
    """Its behaviour when it cannot be both available and consistent: brokers down, or cut off from each other."""
    refuse = (
        f"Brokers that are cut off from the others refuse acks=all as soon as fewer than {facts.required} are in sync"
    )
    if facts.required == 1:
        refuse = "A leader that is cut off from the others may continue alone until the controller has elected another"
    if facts.is_true("unclean.leader.election.enable"):
        return f"It prefers availability (unclean.leader.election.enable=true). {refuse}."
    return (
        f"{refuse}. When no in-sync copy is left, the partition waits for one to return rather than lose records "
        "(unclean.leader.election.enable=false)."
    )


def _acks(facts: Facts) -> str:
    never = "acks=0: the producer gets no answer; a record lost on the way is lost silently."
    if facts.copies <= 1:
        return f"acks=1 and acks=all are the same here: there is only one copy. {never}"
    return (
        f"acks=all: answered when every in-sync copy has the record, refused with fewer than {facts.required} in sync. "
        "acks=1: answered when the leader has it; lost if the leader is lost before the others fetched it. "
        f"{never}"
    )


def _power(facts: Facts) -> str:
    messages, flush_ms = facts.number("flush.messages"), facts.number("flush.ms")
    if messages == 1 and facts.copies > 1:
        return (
            "flush.messages=1: a copy counts only once the record is on its disk, so records acknowledged at "
            "acks=all survive a power loss, even of all machines at once. Records acknowledged at acks=1 are on the "
            "leader's disk only, and are lost if another copy becomes leader."
        )
    if messages == 1:
        return (
            "flush.messages=1: the leader answers only after the record is on its disk, so an acknowledged record "
            "survives a power loss."
        )
    limits = []
    if messages < LONG_MAX:
        limits.append(f"after {messages:,} records (flush.messages)")
    if flush_ms < LONG_MAX:
        limits.append(f"after {long_time(flush_ms)} (flush.ms)")
    if limits:
        fsynced = f"The log is fsynced {' or '.join(limits)}: records appended since then"
    else:
        fsynced = (
            "A killed process loses nothing. Fsyncing is left to the operating system (flush.messages and flush.ms are "
            "unset): records of the last seconds, typically up to half a minute,"
        )
    end = (
        "may be lost when the machine loses power. With flush.messages=1 no acknowledged record is lost."
        if facts.copies <= 1
        else "may be lost only if all machines with an in-sync copy lose power at once."
    )
    if flush_ms < LONG_MAX:
        end += " (Apache Kafka applies flush.ms only if log.flush.scheduler.interval.ms is set, too.)"
    return f"{fsynced} {end}"


def _kept(facts: Facts) -> str:
    policies = {each.strip() for each in facts.settings.get("cleanup.policy", "delete").split(",") if each.strip()}
    sentences = []
    if "compact" in policies:
        sentences.append(_compacted(facts, expires="delete" in policies))
    if "delete" in policies:
        sentences.append(_deleted(facts))
    if facts.is_true("remote.storage.enable"):
        sentences.append(_tiered(facts))
    return " ".join(sentences) or "Records are kept for ever: cleanup.policy is empty."


def _compacted(facts: Facts, *, expires: bool) -> str:
    least, most = facts.number("min.compaction.lag.ms"), facts.number("max.compaction.lag.ms")
    when = f"once {long_time(least)} old" if least else "at any time"
    if most < LONG_MAX:
        when += f", and are due for it when {long_time(most)} old"
    until = "until it expires" if expires else "for good"
    return (
        f"Every record needs a key: the newest of each key is kept {until}; older ones may be compacted away {when}. "
        f"The active segment is not compacted. A null value deletes its key and is kept "
        f"{long_time(facts.number('delete.retention.ms'))} for consumers to see it."
    )


def _tiered(facts: Facts) -> str:
    """KIP-405. -2 follows the retention of the whole topic."""
    limits = []
    keep_ms, keep_bytes = facts.number("local.retention.ms"), facts.number("local.retention.bytes")
    if keep_ms >= 0:
        limits.append(f"after {long_time(keep_ms)} (local.retention.ms)")
    if keep_bytes >= 0:
        limits.append(f"beyond {size(keep_bytes)} (local.retention.bytes)")
    text = "Closed segments are copied to remote storage, if configured (remote.storage.enable)"
    if facts.is_true("remote.log.copy.disable"):
        text = "No more segments are copied to remote storage (remote.log.copy.disable); those there can still be read"
    return f"{text}; the brokers' local copies are deleted {' or '.join(limits) or 'when the records do'}."


def _deleted(facts: Facts) -> str:
    retention_ms, retention_bytes = facts.number("retention.ms"), facts.number("retention.bytes")
    limits = []
    if retention_ms >= 0:
        limits.append(f"for {long_time(retention_ms)} (retention.ms)")
    if retention_bytes >= 0:
        limits.append(f"while its partition holds no more than {size(retention_bytes)} (retention.bytes)")
    if not limits:
        return "Records are kept for ever: retention.ms and retention.bytes set no limit."
    clock = ""
    if retention_ms >= 0 and facts.text("message.timestamp.type") == "CreateTime":
        clock = " Age is counted from the producer's timestamp."
    return (
        f"A record is kept {', but only '.join(limits)}. Whole segments are deleted, each when its newest record is "
        f"due, so older records stay longer: a segment spans up to {size(facts.number('segment.bytes'))} or "
        f"{long_time(facts.number('segment.ms'))}.{clock}"
    )


def _records(facts: Facts) -> str:
    codec = facts.text("compression.type")
    stored = {"producer": "as the producer compressed them", "uncompressed": "uncompressed"}.get(codec, f"with {codec}")
    largest = size(facts.number("max.message.bytes"))
    return (
        f"Batches are stored {stored}; batches up to {largest} are accepted (max.message.bytes). {_times(facts)} "
        "Order is kept within a partition."
    )


def _times(facts: Facts) -> str:
    if facts.text("message.timestamp.type") == "LogAppendTime":
        return "Timestamps are the broker's at the append (LogAppendTime)."
    limits = [
        f"more than {long_time(facts.number(name))} {side} the broker's clock"
        for name, side in (
            ("message.timestamp.after.max.ms", "ahead of"),
            ("message.timestamp.before.max.ms", "behind"),
        )
        if facts.number(name) < LONG_MAX
    ]
    text = "Timestamps are the producers' (CreateTime)"
    return f"{text}; a batch with one {' or '.join(limits)} is refused." if limits else f"{text}."


def _warnings(facts: Facts) -> Iterator[str]:
    if facts.leaderless:
        yield f"No leader: partition {', '.join(map(str, facts.leaderless))} can neither be read nor written."
    behind = [n for n, (have, want) in enumerate(zip(facts.in_sync, facts.replicas, strict=True)) if have < want]
    if behind:
        yield f"Copies are missing or behind in partition {', '.join(map(str, behind))}."
    refused = [n for n, have in enumerate(facts.in_sync) if have < facts.required]
    if refused:
        yield f"acks=all is refused in partition {', '.join(map(str, refused))}."
