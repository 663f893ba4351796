"""What holds in a cluster at every step, seen with the insides of all its nodes and disks at once.

Looked at behind each event of a node, as far as it changed: leaders, epochs and high watermarks of the quorum and of
every partition, and what the disks hold below them. The names are those of
`docs/reference/guarantees.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.coordinator.partitioning import partition_for
from ottla.metadata.image import MetadataImage
from ottla.quorum.core import QuorumCore
from ottla.quorum.voters import ReplicaKey, VoterSet
from ottla.replication.partition import Partition
from ottla.simulation.checks.history import History, Key, Mark
from ottla.simulation.checks.log_view import Batch, LogView
from ottla.simulation.checks.seen_replicas import SeenNode
from ottla.simulation.world import DIRECTORY, SECOND_DIRECTORY, Machine, World

METADATA: Key = ("__cluster_metadata", 0)

IMAGES_MAX = 200
"""So many of the newest images are compared."""


class _Committed:
    """What of a log is known to be committed, by any of its replicas."""

    def __init__(self) -> None:
        self.end = 0
        self.batches: dict[int, tuple[Batch, Mark]] = {}


class Invariants:
    """`watch` is called behind each event. A broken one ends the run with its name."""

    def __init__(self, world: World, history: History, voters: tuple[str, ...], watched: Callable[[str], bool]) -> None:
        """`watched`: the topics whose records are compared between replicas."""
        self.world = world
        self.history = history
        self.voters = sorted(voters)
        self._watched = watched
        self._quorum_seen: dict[str, tuple[int, int, bool, int, VoterSet]] = {}
        self._replicas: dict[str, ReplicaKey] = {}
        """Each node with the directory that it has now."""
        self._gone: dict[ReplicaKey, int] = {}
        """How much of the metadata was on disks that are no more."""
        self._quorum_leaders: dict[int, str] = {}
        self._led: dict[str, int] = {}
        """The newest epoch that each node led the quorum in, over its restarts."""
        self._leaders: dict[tuple[Key, int], str] = {}
        self._epoch_starts: dict[tuple[Key, int], int] = {}
        self._seen: dict[str, SeenNode] = {}
        self._committed: dict[Key, _Committed] = {}
        self._views: dict[tuple[str, Key, bool], LogView] = {}
        self._images: dict[int, MetadataImage] = {}
        self._image_seen: dict[str, int] = {}
        self.image: MetadataImage | None = None
        """The newest that any node has."""
        self._machines = {machine.node_id: machine for machine in world.machines.values()}

    def violated(self, name: str, what: str) -> None:
        self.world.violated(f"{name}: {what}")

    def view(self, machine: Machine, key: Key, *, durable: bool = False) -> LogView:
        place = machine.name, key, durable
        view = self._views.get(place)
        if view is None:
            directories = [f"{path}/{key[0]}-{key[1]}" for path in (DIRECTORY, SECOND_DIRECTORY)]
            view = self._views[place] = LogView(machine.disk, directories, durable=durable)
        return view

    def ended(self, machine: Machine) -> None:
        """The process is gone, and with it what was only in memory."""
        self._quorum_seen.pop(machine.name, None)
        self._image_seen.pop(machine.name, None)
        self._seen.pop(machine.name, None)
        for machines in self.world.deposed.values():
            machines.pop(machine.name, None)

    def wiped(self, machine: Machine) -> None:
        """The disk is lost. What it had fsynced counted until then; the next disk is another voter (KIP-853)."""
        key = self._replicas.get(machine.name)
        if key is not None:
            self._gone[key] = self.view(machine, METADATA, durable=True).end

    def watch(self, machine: Machine) -> None:
        node = machine.node
        if node is None:
            return
        name, serves = machine.name, node.serving and not node.stopping
        seen = self._seen.get(name)
        if seen is None:
            seen = self._seen[name] = SeenNode(node)
        elif seen.is_same(serves):
            return
        seen.note()
        self._look_at_quorum(machine, node.metadata.quorum.core)
        image = node.metadata.publisher.image
        if image.offset >= 0 and image.offset != self._image_seen.get(name):
            self._image(machine, image)
            self._image_seen[name] = image.offset
        if seen.replicas.generation != node.replicas.generation:
            seen.replicas.relist(node.replicas)
        for row in seen.replicas.changed(serves):
            partition = row.partition
            leads = serves and partition.is_leader  # before, what it knows is old; it answers nobody
            key = partition.topic_partition
            self._partition(machine, (key.topic, key.partition), partition, row.state, leads)
            row.note((partition.leader_epoch, partition.partition_epoch, leads, partition.log.high_watermark))
            self.world.counts["partition states checked"] += 1
        damaged_logs = vars(node).get("damaged_logs")  # made with the first records
        if damaged_logs is not None:
            for key, why in damaged_logs.damaged().items():
                is_rotten = (machine.name, (key.topic, key.partition)) in self.world.rotten
                if not is_rotten and "cannot be read" not in why:  # as a disk error says it
                    self.violated("what was written is not damaged", f"{machine.name} says so of {key}: {why}")

    def _look_at_quorum(self, machine: Machine, core: QuorumCore) -> None:
        now = core.epoch, core.high_watermark, core.is_leader, core.leader_id, core.voters
        before = self._quorum_seen.get(machine.name)
        if now != before:
            self._quorum(machine, before or (-1, -1, False, -1, core.voters), now)
            self._quorum_seen[machine.name] = now
            self._replicas[machine.name] = core.me
            self.world.counts["quorum states checked"] += 1

    def may_coordinate(self, host: str, group: str) -> bool:
        """Whether a broker leads the partition of a group's committed offsets, by the newest metadata."""
        topic = None if self.image is None else self.image.topic("__consumer_offsets")
        if topic is None:
            return True
        return topic.partitions[partition_for(group, len(topic.partitions))].leader == self.world.machines[host].node_id

    # The quorum.

    def _quorum(
        self, machine: Machine, before: tuple[int, int, bool, int, VoterSet], now: tuple[int, int, bool, int, VoterSet]
    ) -> None:
        epoch, high_watermark, leads, _, voters = now
        if epoch < before[0]:
            self.violated("epochs are monotonic", f"{machine.name} is in epoch {epoch} after {before[0]}")
        if high_watermark < before[1]:
            text = f"{machine.name}'s metadata is committed up to {high_watermark}, after {before[1]}"
            self.violated("high watermarks are monotonic", text)
        if leads and (not before[2] or epoch != before[0]):
            other = self._quorum_leaders.setdefault(epoch, machine.name)
            if other != machine.name:
                self.violated("one leader per epoch", f"{machine.name} leads the quorum in {epoch}, as {other} does")
            if epoch < self._led.get(machine.name, -1):
                self.violated("epochs are monotonic", f"{machine.name} leads in {epoch} after {self._led}")
            self._led[machine.name] = epoch
            self.world.counts["quorum leaders"] += 1
            self._has_everything(machine, METADATA, "leader completeness")
        if high_watermark > max(0, before[1]):
            if leads:
                self._reached_majority(machine, high_watermark, before[4], voters)
            # Below a snapshot the files may still hold what it has replaced.
            snapshots = machine.node.metadata.quorum.log.snapshots if machine.node is not None else []
            begin = max(0, before[1], *(each.end_offset for each in snapshots))
            self._agrees(machine, METADATA, begin, high_watermark, leads=leads)

    def _reached_majority(self, machine: Machine, high_watermark: int, before: VoterSet, voters: VoterSet) -> None:
        """Check that a majority of the current voters, which the leader knows first, or of the voters before this
        event, has it on disk."""
        now = sorted(self._machines[each.voter_id].name for each in voters)
        if now != self.voters:
            self.voters = now
            self.world.trace("voters", f"{now}")
            self.world.counts["voters changed"] += 1
        if len(now) < 2:
            return
        ends = {key: self._flushed(key) for each in (before, voters) for key in each.keys}
        if not any(2 * sum(ends[key] >= high_watermark for key in each.keys) > len(each) for each in (before, voters)):
            found = {key.node_id: end for key, end in ends.items()}
            text = f"{machine.name} says {high_watermark}, on disk it is {found}"
            self.violated("the high watermark reached a majority", text)

    def _flushed(self, key: ReplicaKey) -> int:
        """How much of the metadata a voter has on disk, or had, where the disk is no more."""
        gone = self._gone.get(key)
        return self.view(self._machines[key.node_id], METADATA, durable=True).end if gone is None else gone

    # Replicas.

    def _leading_before(self, key: Key, epoch: int) -> dict[str, None]:
        """Machines that lead a partition in an epoch before this one, by what was seen of them."""
        return {
            name: None
            for name, seen in self._seen.items()
            for row in seen.replicas.rows
            if row.partition.topic_partition == key and row.state[2] and row.state[0] < epoch
        }

    def _is_over(self, key: Key, epoch: int) -> bool:
        """Whether a partition is in a newer epoch: a node that was cut off may hear only now that it led one."""
        topic = None if self.image is None else self.image.topic(key[0])
        return topic is not None and topic.partitions[key[1]].leader_epoch > epoch

    def _partition(
        self, machine: Machine, key: Key, partition: Partition, before: tuple[int, int, bool, int], leads: bool
    ) -> None:
        epoch, high_watermark = partition.leader_epoch, partition.log.high_watermark
        if epoch < before[0]:
            self.violated("epochs are monotonic", f"{machine.name} has leader epoch {epoch} of {key} after {before[0]}")
        new = leads and (not before[2] or epoch != before[0])
        if partition.is_leader:
            other = self._leaders.setdefault((key, epoch), machine.name)
            if other != machine.name:
                self.violated("one leader per epoch", f"{machine.name} leads {key} in {epoch}, as {other} does")
            if partition.node_id not in partition.isr and not self.world.unclean[key]:
                self.violated("the leader is in the ISR", f"{machine.name} leads {key}, whose ISR is {partition.isr}")
        if not self._watched(key[0]):
            return
        if (deposed := self.world.deposed.get(key)) and (not leads or not self._is_over(key, epoch)):
            deposed.pop(machine.name, None)
        if new:
            self._epoch_starts.setdefault((key, epoch), partition.log.log_end_offset)
        if new and not self._is_over(key, epoch):
            self._has_everything(machine, key, "a leader has what is committed")
        if not leads and self.world.unclean[key]:
            return  # it may still have what the unclean leader had not, until it hears of that one
        if high_watermark > before[3]:
            self._agrees(machine, key, before[3], high_watermark, leads=leads)
            if leads:
                self._in_sync_have(key, partition, high_watermark)
        elif high_watermark < before[3] and leads and not new and self._must_hold(key, high_watermark):
            text = f"{machine.name} leads {key}, committed up to {high_watermark} after {before[3]}"
            self.violated("high watermarks are monotonic", text)

    def _in_sync_have(self, key: Key, partition: Partition, high_watermark: int) -> None:
        """Everything below the leader's high watermark is on every in-sync replica; in the place of one that was
        released without the leader's knowledge, on those that were in sync then."""
        replicas = dict.fromkeys(partition.isr)
        waiting = [*replicas]
        while waiting:
            replica = waiting.pop()
            machine = self._machines.get(replica)
            if machine is None or (machine.losses and not self.history.fsynced) or machine.wipes:
                continue  # what it had may be gone, which the leader cannot know
            successors = self._released_to(machine, key, partition)
            if successors is not None:
                self.world.counts["released replicas"] += 1
                if not self.world.unclean[key]:
                    waiting += [each for each in successors if each not in replicas]
                    replicas.update(dict.fromkeys(successors))
                continue
            end = self.view(machine, key).end
            if end < high_watermark:
                text = f"{key} is committed up to {high_watermark} by {partition.node_id}, {machine.name} ends at {end}"
                self.violated("in-sync replicas have what is committed", text)

    def _released_to(self, machine: Machine, key: Key, led: Partition) -> tuple[int, ...] | None:
        """In-sync replicas of the newest change that a node knows, if the leader does not know that change and it takes
        the partition from the node; else None.

        Such a node has deleted its log (or given up a damaged one, once it was not in sync any more), and the leader
        may still commit by what it said before: an fsync of the leader ends, or another follower fetches. It had all
        that, and so have all others that the leader waits for. Who is in sync by the later change is one of them, or
        came in sync behind one of them that leads since: what is committed is on all of these, and nothing depends on
        the node."""
        topic = None if machine.node is None else machine.node.image.topic(key[0])
        now = None if topic is None or topic.id != led.topic_id else topic.partitions.get(key[1])
        if now is None or now.partition_epoch <= led.partition_epoch:
            return None
        has_left = machine.node_id not in (now.isr if (machine.name, key) in self.world.rotten else now.replicas)
        return now.isr if has_left else None

    def _must_hold(self, key: Key, start: int) -> bool:
        committed = self._committed.get(key)
        if committed is None:
            return True
        return all(self._holds(key, mark) for base, (_, mark) in committed.batches.items() if base >= start)

    def _holds(self, key: Key, mark: Mark) -> bool:
        return key == METADATA or self.history.holds(key, mark)

    def _has_everything(self, machine: Machine, key: Key, name: str) -> None:
        """A new leader's log has all that was ever committed."""
        committed = self._committed.get(key)
        if committed is None:
            return
        view = self.view(machine, key)
        end = view.end
        if end < committed.end:
            if self._must_hold(key, end):
                self.violated(name, f"{machine.name} leads {key} with {end}, committed is {committed.end}")
            self._cut(key, end)
        else:
            self._compare(machine, key, max(0, committed.end - 50), committed.end)

    def _cut(self, key: Key, start: int) -> None:
        """What was committed from there on is lost, as it may."""
        committed = self._committed[key]
        self.world.counts["committed and lost, as it may"] += 1
        committed.end = min(committed.end, start)
        for base in [base for base in committed.batches if base >= start]:
            del committed.batches[base]

    def _agrees(self, machine: Machine, key: Key, start: int, end: int, *, leads: bool) -> None:
        """What a replica takes for committed is what the others do."""
        self._compare(machine, key, start, end)
        committed = self._committed.setdefault(key, _Committed())
        if leads and end > committed.end:
            committed.end = end

    def _compare(self, machine: Machine, key: Key, start: int, end: int) -> None:
        committed = self._committed.setdefault(key, _Committed())
        mark = self.history.mark(key) if key != METADATA else Mark()
        for batch in self.view(machine, key).read(start, end):
            known = committed.batches.get(batch.base)
            if known is not None and known[0] != batch:
                if self._holds(key, known[1]):
                    text = f"{machine.name} has {batch} of {key}, committed was {known[0]}"
                    self.violated("committed records are identical", text)
                self._cut(key, batch.base)
                known = None
            if known is None:
                committed.batches[batch.base] = batch, mark

    # Metadata.

    def _image(self, machine: Machine, image: MetadataImage) -> None:
        known = self._images.setdefault(image.offset, image)
        if known is not image:
            if known != image:
                self.violated("images are equal at equal offsets", f"{machine.name}'s at {image.offset} is another")
            self.world.counts["images compared"] += 1
        if len(self._images) > IMAGES_MAX:
            del self._images[next(iter(self._images))]
        newest = self.image
        if newest is None or image.offset > newest.offset:
            self._changes(newest, image)
            self.image = image

    def _changes(self, before: MetadataImage | None, image: MetadataImage) -> None:
        back: set[int] = set()
        if before is not None:
            known = before.brokers
            back = {
                each.id for each in image.brokers.values() if each.id in known and known[each.id].epoch < each.epoch
            }
        for topic in image.topics:
            old = before.topic_by_id(topic.id) if before is not None else None
            for number, now in topic.partitions.items():
                was = old.partitions.get(number) if old is not None else None
                if now is not was and now != was:
                    self._registered((topic.name, number), was, now, back)

    def _registered(self, key: Key, was: Any, now: Any, back: set[int]) -> None:
        """The controller decided something about a partition. `back`: brokers that it registered again at once with it,
        who are eligible no more after an unclean shutdown (KIP-966)."""
        world = self.world
        if was is not None and was.leader != now.leader and now.leader >= 0:
            world.elections[key] += 1
            world.counts["leaders elected"] += 1
            if not was.isr and {*was.elr} <= back and was.last_known_elr == (now.leader,):
                world.counts["last known leaders"] += 1
            elif now.leader in (*was.isr, *was.elr):
                pass
            elif was.leader in was.isr and was.leader in was.removing and not (now.adding or now.removing):
                # It has come in sync as the old leader asked, which the same change completed the reassignment by: the
                # old leader goes. That the new one has what is committed is checked as in every clean election.
                world.counts["reassigned leaders"] += 1
                self._joined(key, now.leader, was)
            elif now.partition_epoch > was.partition_epoch + 1 and {was.leader, now.leader} <= {*now.isr}:
                # Two decisions were committed at once: it came in sync, and was elected. An unclean leader would be
                # alone in sync.
                self._joined(key, now.leader, was)
            else:
                world.unclean[key] += 1
                world.deposed[key] = self._leading_before(key, now.leader_epoch)
                world.counts["unclean elections"] += 1
                if not self.may_be_unclean:
                    self.violated("no unclean election", f"{key}: {was} became {now}")
            if now.leader in was.elr and now.leader not in was.isr:
                world.counts["leaders from the ELR"] += 1
        if now.leader >= 0 and now.leader not in now.isr:
            self.violated("the leader is in the ISR", f"{key}: {now}")
        if not {*now.isr} <= {*now.replicas} or len({*now.replicas}) < len(now.replicas):
            self.violated("the ISR is of the replicas", f"{key}: {now}")
        if was is None:
            return
        if now.leader_epoch < was.leader_epoch or now.partition_epoch <= was.partition_epoch:
            self.violated("epochs are monotonic", f"{key}: {was} became {now}")
        if {*now.isr} < {*was.isr}:
            world.counts["ISR shrunk"] += 1
        for replica in now.isr:
            if replica not in was.isr and now.leader == was.leader and now.leader_epoch == was.leader_epoch:
                self._joined(key, replica, now)

    def _joined(self, key: Key, replica: int, led: Any) -> None:
        """A replica joins the ISR only when it is caught up to where the epoch of the leader that asked started."""
        self.world.counts["ISR expanded"] += 1
        machine = self._machines.get(replica)
        start = self._epoch_starts.get((key, led.leader_epoch))
        if machine is None or start is None or machine.losses or machine.wipes or not self._watched(key[0]):
            return
        end = self.view(machine, key).end
        if end < start:
            text = f"{key}: {machine.name} ends at {end}, epoch {led.leader_epoch} started at {start}"
            self.violated("who joins the ISR is caught up", text)

    may_be_unclean = False
    """Whether the run allows unclean elections."""

    # In the end.

    def settled(self, machines: list[Machine]) -> list[str]:
        """What is still missing until all is well: every replica in sync and byte-identical, all on one image."""
        image = self.image
        if image is None:
            return ["no metadata"]
        offsets = {each.name: each.node.metadata.publisher.image.offset for each in machines if each.node is not None}
        problems = [] if len(set(offsets.values())) == 1 else [f"images at {offsets}"]
        for topic in image.topics:
            for number, now in sorted(topic.partitions.items()):
                if now.leader < 0 or {*now.isr} != {*now.replicas}:
                    problems.append(f"{topic.name}-{number}: {now.replicas} {now.isr} led by {now.leader}")
        return problems

    def check_identical(self) -> None:
        """Caught-up replicas are byte-identical. Called when nothing is written any more."""
        assert self.image is not None
        for topic in self.image.topics:
            if not self._watched(topic.name):
                continue
            for number, now in sorted(topic.partitions.items()):
                key = topic.name, number
                logs = {}
                for replica in now.isr:
                    view = self.view(self._machines[replica], key)
                    logs[replica] = list(view.read(view.start, 1 << 60))
                    self.world.counts["replicas compared"] += 1
                first = logs[now.isr[0]]
                for replica, batches in logs.items():
                    shared = max(first[0].base if first else 0, batches[0].base if batches else 0)
                    if [b for b in batches if b.base >= shared] != [b for b in first if b.base >= shared]:
                        text = f"{key} of {replica} has {batches[-3:]}, of {now.isr[0]} {first[-3:]}"
                        self.violated("caught-up replicas are identical", text)
