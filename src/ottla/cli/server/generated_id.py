"""A broker of a cluster in ZooKeeper whose file gives it no number."""

from __future__ import annotations

import asyncio
import os
import random

from ottla.config.server import ServerConfig
from ottla.drivers.zookeeper.broker_ids import generated_id, known_id
from ottla.filesystem import OsFileSystem
from ottla.network import SystemNetwork


def id_of(config: ServerConfig) -> int:
    """The number that the broker had before, else a new one. Raises OttlaError."""
    fs = OsFileSystem()
    found = known_id(config, fs)
    if found is None:
        seed = random.Random(os.urandom(16))
        found = asyncio.run(generated_id(config, fs, SystemNetwork(), seed))
    return found
