"""A Kafka of three nodes becomes Ottla, node by node, under load, and Kafka again: nothing may be lost.

    python -m tests.cluster rolling [--times N]

Each node keeps its directory, its `server.properties` and its port. In between the quorum, the replicas in sync and the
coordinators are of both kinds. The load and the judgement are those of `faults.py`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from peers.kafka import start_fast
from peers.kafka.cluster import KafkaCluster
from tests.cluster import faults
from tests.node import NodeProcess

SETTINGS = {"offsets.topic.num.partitions": "3"}
STOP_S = 300


class Rolling(KafkaCluster):
    """Nodes 1 to 3; `kinds` says who serves each now."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 3, settings=SETTINGS, flags=start_fast("4.4"), release="4.4")
        self.ottla = {
            node: NodeProcess(peer.data, config=peer.properties, port=peer.port) for node, peer in self.peers.items()
        }
        self.kinds = dict.fromkeys(self.nodes, "kafka")

    def move(self, node: int, kind: str) -> None:
        """Stop who serves a node, as an operator does, and start the other there. Raises RuntimeError."""
        assert self.kinds[node] != kind
        peer, ottla = self.peers[node], self.ottla[node]
        self.kinds[node] = kind
        if kind == "ottla":
            assert peer.process is not None
            peer.process.terminate()
            peer.process.wait(STOP_S)
            peer.process = None
            ottla.start()
        else:
            assert ottla.stop() == 0
            peer.start()

    def stop(self) -> None:
        """End all; nobody reads their files any more."""
        for ottla in self.ottla.values():
            if ottla.process is not None:
                ottla.kill()
        super().stop()


def to(node: int, kind: str) -> Callable[[faults.World], str]:
    """A move, as one of the things that are done to a cluster under load."""

    def move(world: faults.World) -> str:
        world.wait_whole()  # only one node is away at a time
        world.cluster.move(node, kind)
        return f"{node} is {kind}"

    return move


THERE_AND_BACK = [(node, kind) for kind in ("ottla", "kafka") for node in (1, 2, 3)]


def play(moves: Sequence[tuple[int, str]], seed: int = 1) -> tuple[faults.Cycle, dict[int, str]]:
    """The result of these moves under load, and the software of each node at the end."""
    with tempfile.TemporaryDirectory() as directory, Rolling(Path(directory)) as cluster:
        return faults.play(cluster, [to(node, kind) for node, kind in moves], seed), dict(cluster.kinds)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster rolling")
    parser.add_argument("--times", type=int, default=1)
    unsound = 0
    for number in range(parser.parse_args(arguments).times):
        cycle, _ = play(THERE_AND_BACK, number)
        unsound += not cycle.sound
        print(cycle, flush=True)
    return min(unsound, 1)
