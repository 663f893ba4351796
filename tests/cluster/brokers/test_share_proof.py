"""A bounded share of `share_proof.py`: real nodes, of which leaders of records, of states and of letters are killed."""

from __future__ import annotations

from tests.cluster.share_proof import prove


def test_each_record_is_accepted_or_dead_once_in_order_while_nodes_die() -> None:
    """What the simulation cannot find: that processes keep it, which end with all that they had in memory."""
    result = prove(8_000, keyed=True)
    assert result.dead >= 50 and result.kills == 3
    assert result.accepted + result.dead == 8_000
