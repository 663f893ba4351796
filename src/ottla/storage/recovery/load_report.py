"""What is logged of a load: which logs were recovered, what was cut off and kept, which stay offline."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from ottla.logs import fields
from ottla.storage.log.log import Log
from ottla.storage.log_directories import Warn
from ottla.storage.offline_logs import OfflineLog

_LOG = logging.getLogger("ottla.logs")

RECOVERIES_LOGGED_MAX = 100
"""Logs that are logged one by one; the sum of all is logged anyhow."""


def log_recoveries(logs: Sequence[Log], warn: Warn) -> None:
    """What an unclean shutdown cost."""
    checked = [log for log in logs if log.recovery.is_news]
    if checked:
        kept = sum(log.recovery.kept_batches for log in checked)
        more = {"kept_batches": kept} if kept else {}
        warn(
            "unclean shutdown: logs recovered",
            logs=len(checked),
            checked_bytes=sum(log.recovery.recovered_bytes for log in checked),
            truncated_bytes=sum(log.recovery.truncated_bytes for log in checked),
            **more,
        )
    for log in checked[:RECOVERIES_LOGGED_MAX]:
        found = fields(
            partition=log.topic_partition,
            checked_bytes=log.recovery.recovered_bytes,
            truncated_bytes=log.recovery.truncated_bytes,
            end_offset=log.log_end_offset,
        )
        _LOG.info("log recovered", extra=found)
    for log in [log for log in checked if log.recovery.kept_files][:RECOVERIES_LOGGED_MAX]:
        found = fields(
            partition=log.topic_partition,
            batches=log.recovery.kept_batches,
            records=log.recovery.kept_records,
            files=",".join(log.recovery.kept_files),
        )
        _LOG.warning("whole batches behind the end of a log were saved to files", extra=found)


def log_offline_logs(logs: Collection[OfflineLog]) -> None:
    for log in list(logs)[:RECOVERIES_LOGGED_MAX]:
        _LOG.error("a log stays offline", extra=fields(partition=log.topic_partition, error=log.error.message))
    if logs:
        _LOG.error("logs cannot be opened; the others are served", extra=fields(logs=len(logs)))
