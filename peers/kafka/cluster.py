"""Several Kafka nodes on loopback, each broker and controller: what Ottla's clusters are compared with."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from peers.kafka import KafkaPeer, new_cluster_id, voters_addresses

DEFAULTS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
"""As `ottla.testing.Cluster` has them."""


class KafkaCluster:
    """Nodes 1 to `count`. The methods that end and start nodes are those of `ottla.testing.Cluster`."""

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        *,
        heap: str = "512m",
        settings: Mapping[str, str | None] | None = None,
        flags: Sequence[str] = (),
        release: str = "4.3",
    ) -> None:
        self.nodes = list(range(1, count + 1))
        cluster_id = new_cluster_id()
        self.peers = {
            node: KafkaPeer(
                directory / f"node-{node}",
                heap=heap,
                settings={**DEFAULTS, **(settings or {})},
                flags=flags,
                node_id=node,
                cluster_id=cluster_id,
                release=release,
            )
            for node in self.nodes
        }
        voters = ",".join(f"{node}@127.0.0.1:{peer.controller_port}" for node, peer in self.peers.items())
        for peer in self.peers.values():
            peer.voters, peer.controllers = voters, voters_addresses(voters)
        self.addresses = {node: peer.bootstrap for node, peer in self.peers.items()}
        self.bootstrap = ",".join(self.addresses.values())

    def start(self) -> KafkaCluster:
        """Returns when every node answers. Raises RuntimeError."""
        try:
            for peer in self.peers.values():
                peer.format()
                peer.launch()
            for peer in self.peers.values():
                peer.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def kill(self, node: int) -> None:
        self.peers[node].kill()

    def pause(self, node: int) -> None:
        self._signal(node, signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._signal(node, signal.SIGCONT)

    def _signal(self, node: int, number: int) -> None:
        process = self.peers[node].process
        assert process is not None
        process.send_signal(number)

    def restart(self, node: int) -> None:
        """Stop a node if it runs, cleanly, and start it again."""
        self.peers[node].stop()
        self.peers[node].start()

    def stop(self) -> None:
        """End all; nobody reads their files any more."""
        for peer in self.peers.values():
            peer.kill()

    def __enter__(self) -> KafkaCluster:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
