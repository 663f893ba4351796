"""A node starts on what `ottla storage format` wrote for an older release, and the cluster has these levels.

What no cheaper test finds: that a controller makes its first decisions, and a broker serves, at each of them. Those of
4.3 are in kafka/test_level_upgrade.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.metadata.features import (
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    default_levels,
)
from tests.cluster.admin import create
from tests.cluster.brokers.test_life import consume, produce
from tests.cluster.kafka.test_mixed_quorum import levels
from tests.cluster.processes import ONE_REPLICA, Voter
from tests.cluster.quorum.test_dynamic_quorum import options, ottla
from tests.node import FOR_EVER

CASES: Mapping[str, tuple[list[str], Mapping[str, int]]] = {
    "the oldest": (["-r", "3.3-IV3"], {METADATA_VERSION: 7}),
    "voters that can change, before 3.9": (["--standalone", "-r", "3.8"], {METADATA_VERSION: 20, KRAFT_VERSION: 1}),
    "levels above and below those of a release": (
        ["-r", "4.0", "-f", f"{ELR_VERSION}=1", "-f", f"{GROUP_VERSION}=0", "-f", f"{SHARE_VERSION}=2"],
        {**default_levels(25), ELR_VERSION: 1, GROUP_VERSION: 0, SHARE_VERSION: 2},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_cluster_begins_with_the_levels_that_were_asked(tmp_path: Path, case: str) -> None:
    asked, wanted = CASES[case]
    node = Voter(tmp_path / "node", is_broker=True)
    node.settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": node.listeners,
        **ONE_REPLICA,
        **FOR_EVER,
        **(
            {"controller.quorum.bootstrap.servers": node.controller}
            if "--standalone" in asked
            else {"controller.quorum.voters": f"1@{node.controller}"}
        ),
    }
    ottla("storage", "format", str(node.data), *options(node), *asked)
    on = {name: level for name, level in wanted.items() if level}
    with node:
        assert levels(node.bootstrap) == on
        assert create(node.bootstrap, "t") == 0
        produce(node.bootstrap, "t", ["one", "two"])
        assert consume(node.bootstrap, "t") == ["one", "two"]
