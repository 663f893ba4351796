"""Share groups in order by key while a leader dies: the small one of `share_proof.py`, on nodes that are processes.

The simulation plays failovers of the queues; only here are sessions, locks and dead letters of real nodes involved, and
each record is told apart by what members heard of it.
"""

from __future__ import annotations

from tests.cluster.share_proof import fate_of, prove
from tests.conformance.groups.raw_share_member import ACCEPT

RECORDS = 1_000


def test_each_record_is_accepted_or_dead_once_and_in_order_by_key() -> None:
    result = prove(RECORDS, keyed=True, kills=1, lock_ms=1_000)
    failing = sum(fate_of(number) != ACCEPT for number in range(RECORDS))
    assert result.dead >= failing > 0 and result.accepted + result.dead == RECORDS
