"""A metadata log that a killed process left: what is in it when it is open is on disk, for the leader counts it so."""

from __future__ import annotations

import random

from ottla.drivers.quorum.metadata_log import MetadataLog
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.storage.config import LogConfig
from ottla.testing.disk import SimulatedFileSystem

NOW = 1_700_000_000_000


def opened(fs: SimulatedFileSystem) -> MetadataLog:
    log = MetadataLog(fs, "/data", LogConfig(), random.Random(1))
    log.open(NOW)
    return log


def test_what_was_only_written_is_fsynced_before_anybody_hears_of_it() -> None:
    fs = SimulatedFileSystem(random.Random(1))
    fs.makedirs("/data")
    fs.fsync_all()
    log = opened(fs)
    log.append(build_batch([SimpleRecord(NOW, b"k", b"v")] * 3), NOW)
    assert (log.log.durable_offset, log.log.log_end_offset) == (0, 3)
    fs.restart(power_loss=False)
    again = opened(fs)
    assert (again.log.durable_offset, again.log.log_end_offset) == (3, 3)
    fs.restart(power_loss=True)
    assert opened(fs).log.log_end_offset == 3
