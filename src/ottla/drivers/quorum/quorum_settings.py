"""What a replica of the metadata log is told at start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.model import Millis, NodeId
from ottla.network import Address
from ottla.quorum.election import Timing
from ottla.storage.config import LogConfig


class QuorumSettings(NamedTuple):
    """Settings of a replica of the metadata log, fixed at start."""

    node_id: NodeId
    log_dir: str
    """The log directory that the metadata log is in."""
    log_config: LogConfig
    retention_ms: Millis = -1
    """Retention of snapshots and of the log below them."""
    retention_bytes: int = -1
    can_vote: bool = True
    """Whether this node has the role controller."""
    addresses: Mapping[NodeId, Address] = {}
    """Addresses of voters, from `controller.quorum.voters`."""
    bootstrap: Sequence[Address] = ()
    """`controller.quorum.bootstrap.servers`"""
    auto_join: bool = False
    """`controller.quorum.auto.join.enable`: whether a controller that does not vote asks to."""
    listener: str = ""
    """The name under which other nodes reach controllers."""
    timing: Timing = Timing()
    request_timeout_ms: Millis = 2_000
    retry_backoff_ms: Millis = 20
    setup_timeout_ms: Millis = 10_000
    fetch_bytes_max: int = 1 << 20
    snapshot_bytes_max: int = 1 << 20
    metrics_window_ms: Millis = 30_000
    """`metrics.sample.window.ms`"""
    metrics_windows: int = 2
    """`metrics.num.samples`"""
