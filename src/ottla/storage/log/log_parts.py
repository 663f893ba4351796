"""The parts of one log, which `log_loader` makes and `Log` and its helpers share."""

from __future__ import annotations

from typing import NamedTuple

from ottla.filesystem import FileSystem
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.log.log_flusher import LogFlusher
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.log_state import LogState
from ottla.storage.producers.producer_state import ProducerStateManager
from ottla.storage.segments.segment_list import SegmentList


class LogParts(NamedTuple):
    """What a log is composed of."""

    fs: FileSystem
    state: LogState
    health: LogHealth
    segments: SegmentList
    flusher: LogFlusher
    epochs: LeaderEpochs
    producer_state: ProducerStateManager
