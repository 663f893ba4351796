"""Every field of every API with odd but well-formed values: no UNKNOWN_SERVER_ERROR, no traceback.

It finds holes such as CVE-2026-83525, CVE-2026-111496.
"""

from __future__ import annotations

import logging
from pathlib import Path

import uvloop

from tests.fuzz.odd import OTHER, Walked, walk_all
from tests.fuzz.run import SETTINGS, Watch
from tests.unit.server.node import running

BOTH = {
    **SETTINGS, "process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "group.consumer.max.size": "10",
    "offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1", "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}  # fmt: skip


async def walked(path: Path) -> Walked:
    done = Walked()
    watch = Watch(done.problems)
    logging.getLogger().addHandler(watch)
    try:
        async with running(str(path), BOTH) as node:
            await walk_all(node, done)
            assert OTHER in node.image.brokers or done.codes["broker_id_not_registered"], "a broker was registered"
    finally:
        logging.getLogger().removeHandler(watch)
    return done


def test_odd_values_are_refused_by_name(tmp_path: Path) -> None:
    done = uvloop.run(walked(tmp_path))
    assert done.problems == []
    assert done.requests > 3_000
    assert len(done.apis) > 90, "APIs that answered, each listener's counted"
    assert len(done.codes) > 30, "kinds of errors that were answered"
