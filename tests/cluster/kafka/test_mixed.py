"""One JVM of Kafka 4.4 among three nodes, under load, while leaders move and nodes change their software.

All roles and all changes: `python -m tests.cluster mixed`.
"""

from __future__ import annotations

import shutil

import pytest

from tests.cluster import mixed

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")


@pytest.mark.nightly(
    "tests/cluster/kafka/test_together.py",
    "tests/cluster/kafka/test_mixed_quorum.py",
    "tests/conformance/drop_in/test_drop_in.py",
)
def test_leaders_and_software_change_under_load_and_nothing_is_lost() -> None:
    """Transactions and a share group among the load; the levels of 4.4 come in between, and stay."""
    cycle, logged = mixed.play("combined", mixed.SHORT, 1)
    assert cycle.did == [
        "3 leads",
        "upgrade --release 4.4",
        "3 is ottla",
        "1 is kafka",
        "downgrade --release 4.3 refused",
    ]
    assert cycle.sound, cycle
    assert logged == []
    assert cycle.report["acknowledged"] > 500 and cycle.of_java > 500, cycle
