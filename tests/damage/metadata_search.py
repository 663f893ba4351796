"""One damage to one file of what a controller needs, then start: it refuses and names the file, or nothing is lost."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from ottla.errors import KafkaError, OttlaError
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile, write_clean_shutdown
from ottla.storage.recovery.repair import apply, plan_directory
from tests.damage.search import Outcome
from tests.simulation.disks import test_metadata_log
from tests.simulation.disks.test_metadata_log import ROOT, Controller

METADATA = f"{ROOT}/__cluster_metadata-0"
METADATA_KINDS = (
    "__cluster_metadata-0/00000000000000000000.log", ".log", ".index", ".checkpoint", "quorum-state", "fsynced-end",
    "partition.metadata", "meta.properties", "bootstrap.checkpoint",
)  # fmt: skip
SNAPSHOTS_NEVER = {"metadata.log.max.record.bytes.between.snapshots": "100000000"}


def search_metadata(seed: int, kind: str, how: str, *, clean: bool) -> Outcome:
    """Raises `AssertionError` where topics are lost silently, or a refusal does not say what is wrong."""
    outcome = Outcome(kind, how, clean)
    random = Random(f"{seed} {kind} {how} {clean}")
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(test_metadata_log, "SETTINGS", test_metadata_log.SETTINGS | SNAPSHOTS_NEVER)
        controller = Controller(seed)
        asyncio.run(controller.work(4))
        fs = controller.fs
        if clean:
            write_clean_shutdown(fs, ROOT, 1)
        else:
            fs.crash()
        fs.restart(power_loss=False)
        fs.fsync_all()
        before = fs.files(ROOT)
        paths = sorted(path for path, data in before.items() if path.endswith(kind) and data)
        if not paths:
            return outcome
        path = random.choice(paths)
        data = bytearray(before[path])
        if how == "flip":
            at = random.randrange(len(data))
            data[at : at + 4] = bytes(byte ^ (1 << random.randrange(8)) for byte in data[at : at + 4])
            fs.write_atomic(path, bytes(data))
        elif how == "truncate":
            fs.write_atomic(path, bytes(data[: random.randrange(len(data))]))
        elif how == "empty":
            fs.write_atomic(path, b"")
        elif how == "delete":
            fs.remove(path)
        elif len(paths) > 1:
            other = random.choice([each for each in paths if each != path])
            fs.write_atomic(other, bytes(data))
            if how == "swap":
                fs.write_atomic(path, before[other])
        outcome.fired = fs.files(ROOT) != before
        if not outcome.fired:
            return outcome
        if kind == "meta.properties":
            controller.cluster_ids.clear()  # it has no checksum: another id that could be one is believed
        try:
            asyncio.run(controller.work(0))
        except (OttlaError, CorruptFile) as error:
            outcome.warned = True
            assert ROOT in str(error), error
            if METADATA in str(error) and "ottla log repair" in str(error):
                _repair(controller)
    return outcome


def _repair(controller: Controller) -> None:
    """Afterwards it starts, unless the repair says that it cannot."""
    fs = controller.fs
    fs.restart(power_loss=False)
    plan = plan_directory(fs, ROOT, METADATA)
    assert not plan.is_empty
    apply(fs, plan)
    if not plan.beyond_repair:
        controller.created.clear()
        controller.deleted.clear()
        try:
            asyncio.run(controller.work(0))
        except (OttlaError, KafkaError) as error:
            raise AssertionError(f"after {[*plan.steps()]}: {error}") from error
