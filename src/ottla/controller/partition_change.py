"""The one place that changes a partition: who leads it, which replicas are in sync, which are eligible to lead, where
its replicas are (Kafka's `PartitionChangeBuilder`; KIP-455, 841, 858, 966).

A caller says what it wants (`PartitionChange` with its targets), and `record` adds what follows from it: an election,
the end of a reassignment, the eligible leaders, a new leader epoch. Nobody else makes a PartitionChangeRecord.

Invariants of what comes out, given that they held before: the leader is in the ISR; the ISR and the eligible leaders
are replicas, and disjoint; without an unclean election a new leader comes from one of them.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.config.effective import EffectiveConfig
from ottla.controller.bootstrap import MIN_ISR
from ottla.metadata import features
from ottla.metadata.image import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    NO_LEADER_CHANGE,
    BrokerRegistration,
    LeaderRecoveryState,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from ottla.model import NodeId
from ottla.protocol.schemas.records import PartitionChangeRecord

UNCLEAN: Final = "unclean.leader.election.enable"

NOBODY: Final = -1
"""Stands for no broker id."""


class Election(enum.Enum):
    """When a leader that could stay is replaced."""

    ONLINE = enum.auto()
    """Only if the leader can no longer lead."""
    PREFERRED = enum.auto()
    """The first replica leads if it can."""
    UNCLEAN = enum.auto()
    """Like ONLINE, but any live replica rather than none: records that it lacks are lost."""


class TopicRules(NamedTuple):
    """Settings of a topic and features of the cluster that matter here."""

    min_isr: int
    """No more than there are replicas. Below it, the high watermark stands still."""
    unclean: bool
    keeps_elr: bool
    """Eligible leader replicas (KIP-966). Without them, the last of the ISR stays in it."""
    bumps_epoch_on_shrink: bool
    """Brokers before 3.6 need it (KAFKA-15021)."""
    has_directories: bool


class Changes:
    """Makes the changes of one decision, on one image. A decision that lets a broker go or come sees it as it will be:
    `leaving` and `unclean` (it lost what it had not fsynced) lead nothing, `returning` may."""

    def __init__(
        self,
        image: MetadataImage,
        config: EffectiveConfig,
        *,
        leaving: NodeId = NOBODY,
        returning: NodeId = NOBODY,
        unclean: NodeId = NOBODY,
    ) -> None:
        self.image = image
        self._config = config
        self._leaving, self.returning, self.unclean = leaving, returning, unclean
        self._rules: tuple[TopicImage, TopicRules] | None = None

    def of(self, topic: TopicImage, number: int, partition: PartitionRegistration) -> PartitionChange:
        """A change of a partition, so far to what it is."""
        return PartitionChange(self, topic, number, partition)

    def rules(self, topic: TopicImage) -> TopicRules:
        if self._rules is None or self._rules[0] is not topic:  # most callers go through topics one by one
            self._rules = topic, topic_rules(self.image, topic, self._config)
        return self._rules[1]

    def may_lead(self, partition: PartitionRegistration, node_id: NodeId) -> bool:
        """Whether a replica lives, is not about to stop, and has its directory."""
        if node_id in (self._leaving, self.unclean):
            return False
        broker = self.image.brokers.get(node_id)
        if broker is None or not (broker.active or node_id == self.returning):
            return False
        return is_online(broker, partition.directory(node_id))

    def directory(self, node_id: NodeId) -> UUID:
        """Where a new replica goes, if there is only one place."""
        broker = self.image.brokers.get(node_id)
        return DIRECTORY_UNASSIGNED if broker is None else default_directory(broker)


def topic_rules(image: MetadataImage, topic: TopicImage, config: EffectiveConfig) -> TopicRules:
    own, defaults = image.topic_config(topic.name), config.topic_defaults()
    level = features.metadata_version(image.features)
    return TopicRules(
        min_isr=min(int(own.get(MIN_ISR) or defaults[MIN_ISR] or 1), len(topic.partitions[0].replicas)),
        unclean=(own.get(UNCLEAN) or defaults[UNCLEAN] or "").lower() == "true",
        keeps_elr=features.supports_elr(image.features),
        bumps_epoch_on_shrink=features.bumps_epoch_on_shrink(level),
        has_directories=features.supports_directories(image.features),
    )


def is_online(broker: BrokerRegistration, directory: UUID) -> bool:
    """Whether a broker has a directory; one that is not chosen yet is none that could be lost (KIP-858)."""
    return (
        directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING) or not broker.log_dirs or directory in broker.log_dirs
    )


def default_directory(broker: BrokerRegistration) -> UUID:
    """The directory of a broker that has only one; with several the broker itself chooses (KIP-858)."""
    if not broker.log_dirs:
        return DIRECTORY_MIGRATING
    usable = [each for each in broker.log_dirs if each not in broker.cordoned_log_dirs]
    return usable[0] if len(usable) == 1 else DIRECTORY_UNASSIGNED


class PartitionChange:
    """Targets that begin as what is; `record` is to be called once."""

    __slots__ = (
        "_changes",
        "_elr",
        "_number",
        "_partition",
        "_rules",
        "_topic_id",
        "adding",
        "directories",
        "election",
        "isr",
        "recovery_state",
        "removing",
        "replicas",
    )

    def __init__(self, changes: Changes, topic: TopicImage, number: int, partition: PartitionRegistration) -> None:
        self._changes = changes
        self._topic_id = topic.id
        self._number = number
        self._partition = partition
        self._rules = changes.rules(topic)
        self._elr = partition.elr
        self.isr: Sequence[NodeId] = partition.isr
        self.replicas: Sequence[NodeId] = partition.replicas
        self.removing: Sequence[NodeId] = partition.removing
        self.adding: Sequence[NodeId] = partition.adding
        self.recovery_state = partition.recovery_state
        self.election = Election.ONLINE
        self.directories: dict[NodeId, UUID] = {}
        """New directories of replicas."""

    def allow_unclean(self) -> PartitionChange:
        """Elect an unclean leader rather than none, where the topic's settings say so."""
        if self._rules.unclean:
            self.election = Election.UNCLEAN
        return self

    def record(self) -> PartitionChangeRecord | None:
        """The change as it goes into the log; None where nothing changes."""
        change = PartitionChangeRecord(self._number, self._topic_id)
        self._complete_reassignment()
        self._find_eligible()
        self._elect(change)
        self._bump_epoch_where_replicas_go(change)
        self._say_elr(change)
        old, isr = self._partition, tuple(self.isr)
        if change.isr is None and isr != old.isr and (isr or self._rules.keeps_elr):
            change.isr = isr
        self._bump_epoch_where_isr_shrinks(change)
        self._say_last_known(change)
        self._say_assignment(change)
        if self.recovery_state != old.recovery_state:
            change.leader_recovery_state = self.recovery_state
        return None if changes_nothing(change) else change

    def _complete_reassignment(self) -> None:
        """Once all remaining replicas are in sync, remove the others, from the ISR too (KIP-455)."""
        if not self.removing and not self.adding:
            return
        isr = [each for each in self.isr if each not in self.removing]
        replicas = [each for each in self.replicas if each not in self.removing]
        if isr and replicas and all(each in isr for each in replicas):
            self.isr, self.replicas = isr, replicas
            self.removing = self.adding = ()

    def _find_eligible(self) -> None:
        """Eligible leader replicas beside the ISR: none while it is large enough. Below that the high watermark does
        not advance, so a replica that left the ISR has all committed records, unless it lost some (KIP-966; Kafka still
        counts a replica that reports a loss).
        """
        if not self._rules.keeps_elr:
            return
        if len(self.isr) >= self._rules.min_isr:
            self._elr = ()
            return
        found = {*self._elr, *self._partition.isr}.difference(self.isr)
        found.discard(self._changes.unclean)
        kept = {each for each in found if self._directory(each) != DIRECTORY_LOST}  # else its broker gives the log up
        if self.isr or kept:  # the last one does not
            found = kept
        self._elr = tuple(sorted(found.intersection(self.replicas)))

    def _elect(self, change: PartitionChangeRecord) -> None:
        leader, is_unclean = self._choose()
        if leader == self._partition.leader:
            return
        change.leader = leader
        if leader in self._elr:
            self.isr = (leader,)
            self._elr = tuple(each for each in self._elr if each != leader)
        elif is_unclean:
            change.isr = (leader,)
            if self._partition.recovery_state != LeaderRecoveryState.RECOVERING:
                change.leader_recovery_state = LeaderRecoveryState.RECOVERING

    def _choose(self) -> tuple[NodeId, bool]:
        """(leader or NO_LEADER, whether it may lack what was committed)."""
        partition, leader = self._partition, self._partition.leader
        preferred = self.replicas[0]
        if self.election is Election.PREFERRED and self._is_clean(preferred):
            return preferred, False
        if leader != NO_LEADER and self._is_clean(leader):
            return leader, False
        for each in self.replicas:
            if self._is_clean(each):
                return each, False
        may_lead = self._changes.may_lead
        if self._rules.keeps_elr and not self.isr and not self._elr and len(partition.last_known_elr) == 1:
            last = partition.last_known_elr[0]
            if may_lead(partition, last):
                return last, True
        if self.election is Election.UNCLEAN:
            for each in self.replicas:
                if may_lead(partition, each):
                    return each, True
        return NO_LEADER, False

    def _is_clean(self, node_id: NodeId) -> bool:
        has_all = node_id in self.isr if self.isr else node_id in self._elr
        return has_all and self._changes.may_lead(self._partition, node_id)

    def _bump_epoch_where_replicas_go(self, change: PartitionChangeRecord) -> None:
        """A replica that is gone must not be counted for the high watermark in an epoch that began with it."""
        if change.leader == NO_LEADER_CHANGE and any(each not in self.replicas for each in self._partition.replicas):
            change.leader = self._partition.leader

    def _bump_epoch_where_isr_shrinks(self, change: PartitionChangeRecord) -> None:
        if not self._rules.bumps_epoch_on_shrink or change.leader != NO_LEADER_CHANGE or change.isr is None:
            return
        if any(each not in change.isr for each in self._partition.isr):
            change.leader = self._partition.leader

    def _say_elr(self, change: PartitionChangeRecord) -> None:
        if change.isr is not None or not self._rules.keeps_elr:  # an unclean leader: nobody is known to have more
            self._elr = ()
        if self._elr != self._partition.elr:
            change.eligible_leader_replicas = self._elr

    def _say_last_known(self, change: PartitionChangeRecord) -> None:
        """The last leader, from when there is none until there is one again: the next best where all is lost."""
        if not self._rules.keeps_elr:
            return
        if change.leader == NO_LEADER and not self._partition.last_known_elr:
            change.last_known_elr = (self._partition.leader,)
        elif change.leader >= 0 and self._partition.last_known_elr:
            change.last_known_elr = ()

    def _say_assignment(self, change: PartitionChangeRecord) -> None:
        old, replicas = self._partition, tuple(self.replicas)
        if replicas != old.replicas:
            change.replicas = replicas
        if self._rules.has_directories and (self.directories or change.replicas is not None):
            directories = tuple(self._directory(each) for each in replicas)
            if directories != old.directories:
                change.directories = directories
        if tuple(self.removing) != old.removing:
            change.removing_replicas = tuple(self.removing)
        if tuple(self.adding) != old.adding:
            change.adding_replicas = tuple(self.adding)

    def _directory(self, node_id: NodeId) -> UUID:
        found = self.directories.get(node_id)
        if found is not None:
            return found
        if node_id in self._partition.replicas:
            return self._partition.directory(node_id)
        return self._changes.directory(node_id)


def changes_nothing(change: PartitionChangeRecord) -> bool:
    return (
        change.leader == NO_LEADER_CHANGE
        and change.leader_recovery_state == -1
        and change.isr is None
        and change.eligible_leader_replicas is None
        and change.last_known_elr is None
        and change.replicas is None
        and change.removing_replicas is None
        and change.adding_replicas is None
        and change.directories is None
    )
