"""Connections kept from one micro-batch to the next: Spark's Python workers are reused.

A worker runs one task at a time. A cluster is out of the pool while a task has it, and comes back only if the task
went well: then nothing is under way on its connections.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.client.cluster import Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.fetcher import FetchLimits
from ottla.spark.client_options import ClientOptions
from ottla.spark.worker import freeze_modules

KEPT_MAX = 4
"""Queries of different clusters or settings that share workers; the one that is not used for longest is closed."""

_pool: dict[ClientConfig, Cluster] = {}
_owner = os.getpid()


@contextmanager
def cluster(config: ClientConfig) -> Iterator[Cluster]:
    """The process's cluster for `config`."""
    leased = _take(config)
    try:
        yield leased
    except GeneratorExit:  # a reader wants no more, as with a limit
        _give_back(config, leased)
        raise
    except BaseException:
        leased.close()
        raise
    else:
        _give_back(config, leased)


def client_config(options: ClientOptions) -> ClientConfig:
    return ClientConfig(
        parse_addresses(",".join(options.bootstrap)),
        options.client_id,
        options.rack,
        request_timeout_s=options.request_timeout_ms / 1000,
        connect_timeout_s=options.connect_timeout_ms / 1000,
        metadata_max_age_s=options.metadata_age_ms_max / 1000,
        security=options.security,
    )


def fetch_limits(options: ClientOptions) -> FetchLimits:
    return FetchLimits(options.fetch_bytes_max, options.fetch_bytes_min, options.fetch_wait_ms_max)


def _take(config: ClientConfig) -> Cluster:
    global _owner
    if _owner != os.getpid():
        # Sockets that a fork shares with its parent: two would write on them. Closing them here harms nobody.
        for inherited in _pool.values():
            inherited.close()
        _pool.clear()
        _owner = os.getpid()
    return _pool.pop(config, None) or Cluster(config)


def _give_back(config: ClientConfig, leased: Cluster) -> None:
    others = _pool.pop(config, None)
    if others is not None:
        others.close()
    _pool[config] = leased
    freeze_modules()
    while len(_pool) > KEPT_MAX:
        _pool.pop(next(iter(_pool))).close()
