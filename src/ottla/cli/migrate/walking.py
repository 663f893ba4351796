"""Exchanges the nodes of a cluster one after the other; what it asks of the cluster and the operator is a port."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from ottla.cli.exits import CommandFailed
from ottla.cli.migrate.health import Look, trouble, unfinished
from ottla.cli.migrate.journal import STARTING, STOPPING, Journal
from ottla.cli.migrate.survey import Node
from ottla.cli.units import duration

POLL_S: Final = 0.25
AGAIN_S: Final = 15.0
"""A node that does not answer for so long is started again: the old process may have held its directory still."""
SETTLE_S: Final = 5.0
"""For so long a node has to stay whole after which a killed walk may have sent a stop."""


class WrongSoftware(CommandFailed):
    """The operator's command started the other software."""


class World(Protocol):
    """The cluster and the operator's commands. All but `kind` raise CommandFailed."""

    def look(self, node: Node | None = None) -> Look:
        """The state now; with `node` as this broker sees it, which no longer serves what was before its start."""

    def kind(self, node: Node) -> str | None:
        """KAFKA or OTTLA, by what answers there; None where nothing does."""

    def stop(self, node: Node) -> None: ...
    def start(self, node: Node) -> None: ...
    def elect(self) -> int:
        """How many leaders were moved back."""

    def now_s(self) -> float: ...
    def pause(self, seconds: float) -> None: ...
    def show(self, text: str) -> None: ...
    def tell(self, text: str) -> None: ...


class Walk:
    def __init__(
        self, world: World, journal: Journal, nodes: Collection[Node], silent: Collection[int], patience_s: float
    ) -> None:
        """`silent` are controllers whose listener cannot be asked from here: of them the quorum and the journal say
        what there is to know."""
        self._world = world
        self._journal = journal
        self._nodes = {each.id: each for each in nodes}
        self._brokers = frozenset(each.id for each in nodes if each.is_broker)
        self._silent = silent
        self._patience_s = patience_s

    def run(self) -> int:
        """Exchange every node that is not of the wanted kind; how many leaders were moved back. Raises
        CommandFailed; the same walk then goes on from there."""
        elected = 0
        while True:
            node = self._next()
            if node is None:
                return elected
            began_s = self._world.now_s()
            self._exchange(node)
            elected += self._elect()
            seconds = self._world.now_s() - began_s
            self._journal.finish(node.id, seconds)
            self._world.tell(
                f"node {node.id} is {self._journal.target}, all replicas in sync after {duration(seconds)}"
            )

    def _next(self) -> Node | None:
        """The node that is away or was begun; else the first in order, the active controller the last of all."""
        if self._journal.node is not None:
            found = self._nodes.get(self._journal.node)
            if found is None:
                raise CommandFailed(f"node {self._journal.node}, which the last walk began, is not in the cluster")
            return found
        left = [each for each in self._nodes.values() if not self._is_done(each)]
        if not left:
            return None
        leader = self._wait(lambda look: "", "before the next node").quorum.leader
        return min(left, key=lambda each: (each.id == leader, each.is_voter, each.rack or "", each.id))

    def _is_done(self, node: Node) -> bool:
        if node.id in self._silent:
            return str(node.id) in self._journal.done
        return self._world.kind(node) == self._journal.target

    def _exchange(self, node: Node) -> None:
        begun, phase = self._journal.node == node.id, self._journal.phase
        silent = node.id in self._silent
        is_there = not silent and self._world.kind(node) == self._journal.target
        turned = begun and phase is None
        # Turned round in the middle, what answers may be about to stop: both commands are run again.
        if not is_there or turned:
            away = node.id if begun else None
            self._wait(lambda look: trouble(look, self._brokers, away), f"before node {node.id}")
            self._journal.begin(node.id, STOPPING, silent=silent)
            self._world.show(f"stopping node {node.id}")
            self._world.stop(node)
            if not is_there:
                self._wait_down(node)
            self._journal.begin(node.id, STARTING, silent=silent)
            self._start(node)
        self._wait_whole(node)
        if turned:
            until = self._world.now_s() + SETTLE_S
            while self._world.now_s() < until:
                self._world.pause(POLL_S)
                self._wait_whole(node)

    def _start(self, node: Node) -> None:
        self._world.show(f"starting node {node.id}")
        self._world.start(node)

    def _wait_down(self, node: Node) -> None:
        """The stop command may have ended before the node has. Raises CommandFailed."""
        if node.id in self._silent:
            return
        deadline = self._world.now_s() + self._patience_s
        while self._world.kind(node) is not None:
            if self._world.now_s() > deadline:
                raise CommandFailed(
                    f"node {node.id} still answers {duration(self._patience_s)} after its --stop command; "
                    "nothing was started there"
                )
            self._world.pause(POLL_S)

    def _wait_whole(self, node: Node) -> None:
        """Until it serves with the wanted software, is registered, and all replicas and voters have caught up. Raises
        CommandFailed."""
        mark = self._wait(lambda look: "", f"after node {node.id}").quorum
        started_s = self._world.now_s()

        def serves() -> str:
            nonlocal started_s
            if node.id in self._silent:
                return ""
            kind = self._world.kind(node)
            if kind is None:
                if self._world.now_s() > started_s + AGAIN_S:
                    started_s = self._world.now_s()
                    self._start(node)
                return f"node {node.id} does not answer"
            if kind == self._journal.target:
                return ""
            wrong = f"node {node.id} answers, and is {kind}"
            if self._world.now_s() > started_s + AGAIN_S:
                raise WrongSoftware(f"{wrong}: the --start command does not start {self._journal.target}")
            return wrong  # it may be about to stop

        def why(look: Look) -> str:
            nonlocal mark
            if look.quorum.leader != mark.leader:  # another clock dates its fetches
                mark = look.quorum
            return unfinished(look, self._brokers, node.id, mark)

        self._wait(why, f"after node {node.id}", node if node.is_broker else None, serves)

    def _elect(self) -> int:
        """Preferred leaders, in every pause: else they gather on the nodes that are still to be stopped."""
        self._world.show("electing the preferred leaders")
        return self._world.elect()

    def _wait(
        self, why: Callable[[Look], str], when: str, node: Node | None = None, first: Callable[[], str] | None = None
    ) -> Look:
        """Until there is no reason any more. Raises CommandFailed when the patience is over."""
        deadline = self._world.now_s() + self._patience_s
        while True:
            reason = "" if first is None else first()
            if not reason:
                try:
                    look = self._world.look(node)
                    reason = why(look)
                    if not reason:
                        return look
                except CommandFailed as failure:
                    reason = str(failure).partition("\n")[0]
            if self._world.now_s() > deadline:
                raise CommandFailed(f"{when}: {reason}, after {duration(self._patience_s)}; {self._state()}")
            self._world.show(f"waiting {when}: {reason}")
            self._world.pause(POLL_S)

    def _state(self) -> str:
        node = self._journal.node
        if node is None:
            return "no node is being exchanged"
        return (
            f"node {node} is being exchanged, the others run\n"
            "  correct it and run the same command again, or go back with --back and commands for that direction"
        )
