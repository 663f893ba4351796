"""The order in which the nodes of a cluster are exchanged, and what each exchange costs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.cli.migrate.findings import stops_writes
from ottla.cli.migrate.survey import Node, Survey


@dataclass(frozen=True)
class Step:
    """One node. The counts are of partitions while it is away."""

    node: Node
    is_active: bool
    """It is the active controller."""
    leads: int
    refuse_writes: int
    away: int
    """Partitions that have no other replica."""

    def as_json(self) -> dict[str, Any]:
        node = self.node
        return {
            "node": node.id,
            "role": node.role,
            "active_controller": self.is_active,
            "address": str(node.address),
            "rack": node.rack,
            "software": node.kind,
            "leads": self.leads,
            "refuse_writes": self.refuse_writes,
            "away": self.away,
        }


def steps(survey: Survey) -> list[Step]:
    """Brokers first, then controllers, the active one last, so that it is elected away once. Among those alike one rack
    after the other, so that copies outside it are all of one kind meanwhile."""
    leader = -1 if survey.quorum is None else survey.quorum.leader
    order = sorted(survey.nodes, key=lambda each: (each.id == leader, each.is_voter, each.rack or "", each.id))
    return [_step(each, survey, is_active=each.id == leader) for each in order]


def _step(node: Node, survey: Survey, *, is_active: bool) -> Step:
    own = [each for each in survey.partitions if node.id in each.replicas]
    return Step(
        node,
        is_active,
        leads=sum(each.leader == node.id for each in own),
        refuse_writes=sum(len(each.replicas) > 1 and stops_writes(each, survey) for each in own),
        away=sum(len(each.replicas) == 1 for each in own),
    )
