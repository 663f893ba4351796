"""What the checks look at behind each event, and do not look at again while it is as it was."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.model import TopicPartition
from ottla.protocol.records.record_batch import build_batch
from ottla.replication.partition import Partition
from ottla.simulation.checks.log_view import LogView
from ottla.simulation.checks.seen_replicas import UNSEEN, SeenNode, SeenReplicas
from ottla.testing.disk import SimulatedFileSystem


def _append(disk: SimulatedFileSystem, base: int, offset: int) -> None:
    path = f"/data/t-0/{base:020d}.log"
    file = disk.open(path, create=True)
    file.pwrite([build_batch([(0, None, b"value", ())], base_offset=offset)], file.size())
    file.close()


def _bases(view: LogView) -> list[int]:
    return [batch.base for batch in view.read(view.start, 1 << 60)]


def test_a_log_is_seen_as_it_is_through_all_changes_of_its_segments() -> None:
    disk = SimulatedFileSystem(random.Random(1))
    disk.makedirs("/data/t-0")
    disk.fsync_all()
    seen = LogView(disk, ["/data/t-0"])
    durable = LogView(disk, ["/data/t-0"], durable=True)
    assert (seen.end, durable.end) == (0, 0)
    for offset in range(3):
        _append(disk, 0, offset)
        assert (seen.end, durable.end) == (offset + 1, 0)
    disk.fsync_all()
    _append(disk, 3, 3)
    assert (_bases(seen), _bases(durable)) == ([0, 1, 2, 3], [0, 1, 2])
    disk.open("/data/t-0/leader-epoch-checkpoint", create=True).fsync()
    disk.open(f"/data/t-0/{3:020d}.log").fsync()
    disk.fsync_dir("/data/t-0")
    assert _bases(durable) == [0, 1, 2, 3]
    assert [batch.base for batch in seen.read(1, 3)] == [1, 2]
    disk.remove(f"/data/t-0/{0:020d}.log")
    assert (seen.start, _bases(seen), _bases(durable)) == (3, [3], [0, 1, 2, 3])
    disk.rename(f"/data/t-0/{3:020d}.log", f"/data/t-0/{3:020d}.log.deleted")
    assert (seen.end, _bases(durable)) == (0, [0, 1, 2, 3])
    disk.restart(power_loss=True)
    assert _bases(seen) == _bases(durable)
    disk.rmtree("/data/t-0")
    disk.makedirs("/data/t-0")
    assert (seen.end, _bases(seen)) == (0, [])
    _append(disk, 7, 7)
    assert (seen.start, seen.end) == (7, 8), "another directory of the same name"


def test_replicas_are_looked_at_when_something_of_them_changed() -> None:
    made: list[Partition] = []
    for number in range(2):
        log: Any = SimpleNamespace(high_watermark=0, observe=lambda *callbacks: None)
        made.append(Partition(1, TopicPartition("t", number), UUID(int=1), log))
        made[-1].leader_epoch, made[-1].partition_epoch = 4, 7

    class Replicas(list[Partition]):
        generation = 1

    replicas: Any = Replicas(made)
    seen = SeenReplicas()
    seen.relist(replicas)
    assert [row.state for row in seen.changed(True)] == [UNSEEN, UNSEEN]
    for row in seen.changed(True):
        row.note((4, 7, False, 0))
    assert seen.changed(True) == []
    changes = (made[1], "leader_epoch", 5), (made[1], "partition_epoch", 8), (made[1], "is_leader", True)
    for changed, name, value in (*changes, (made[1].log, "high_watermark", 9)):
        setattr(changed, name, value)
        (row,) = seen.changed(True)
        assert row.partition is made[1]
        now = made[1]
        row.note((now.leader_epoch, now.partition_epoch, now.is_leader, now.log.high_watermark))
    (row,) = seen.changed(False)  # who does not serve leads nothing
    assert row.state == (5, 8, True, 9)
    seen.relist(replicas)
    assert seen.changed(True) == [], "what was known of a replica outlives that others come and go"


def _change_damage(node: Any) -> None:
    node.damaged_logs = SimpleNamespace(damaged=lambda: {("t", 0): "at byte 5"})


CHANGES: dict[str, Callable[[Any], None]] = {
    "epoch or vote": lambda node: setattr(node.metadata.quorum.core, "stored", object()),
    "role": lambda node: setattr(node.metadata.quorum.core, "role", object()),
    "high watermark": lambda node: setattr(node.metadata.quorum.core, "high_watermark", 6),
    "voters": lambda node: setattr(node.metadata.quorum.core.configurations, "newest", object()),
    "image": lambda node: setattr(node.metadata.publisher, "image", object()),
    "replicas": lambda node: setattr(node.replicas, "generation", 1),
    "damage": _change_damage,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_node_is_looked_at_when_any_part_of_it_changed(change: str) -> None:
    core = SimpleNamespace(stored=object(), role=object(), high_watermark=5)
    core.configurations = SimpleNamespace(newest=object())
    metadata = SimpleNamespace(quorum=SimpleNamespace(core=core), publisher=SimpleNamespace(image=object()))
    node: Any = SimpleNamespace(metadata=metadata, replicas=SimpleNamespace(generation=0))
    seen = SeenNode(node)
    assert not seen.is_same(True), "it was not looked at yet"
    seen.note()
    seen.replicas.generation = 0
    assert seen.is_same(True)
    CHANGES[change](node)
    assert not seen.is_same(True)
