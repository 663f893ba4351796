"""`Cluster`: several nodes for tests of programs that must survive failures of brokers."""

from __future__ import annotations

import os
import signal
import socket
import threading
import weakref
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ottla.server.local_cluster import Place, node_settings
from ottla.testing.broker import Setting, Topics, as_text, ensure_settings, topic_request, topic_requests
from ottla.testing.exchange import Exchange
from ottla.testing.lifetime import Lifetime
from ottla.testing.packet_source import source
from ottla.testing.process import BrokerError, Process, ending, reserve, with_output

NODES_MAX = 100


class Cluster(Lifetime, Exchange):
    """Nodes 1 to `nodes` on loopback, each a process with a port and a directory of its own.

    with Cluster(3, topics={"orders": 3}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.kill(cluster.leader("orders", 0))

    From three nodes on topics have three replicas and `min.insync.replicas=2`, so that one node may be away; the first
    three are controllers too. `settings`, `topics`, `keep` and keywords are those of `Broker`, for every node.
    """

    def __init__(
        self,
        nodes: int = 3,
        settings: Mapping[str, Setting] | None = None,
        *,
        topics: Topics = (),
        keep: str | os.PathLike[str] | None = None,
        **keywords: Setting,
    ) -> None:
        if isinstance(nodes, bool) or not isinstance(nodes, int):
            raise TypeError(
                f"Cluster starts nodes of its own, and takes how many, not {nodes!r}: Cluster(3); its address is its "
                "attribute bootstrap"
            )
        if not 1 <= nodes <= NODES_MAX:
            raise ValueError(f"a cluster has from 1 to {NODES_MAX} nodes, not {nodes}")
        if "port" in keywords:
            raise TypeError("Cluster has no argument 'port': every node takes a free one, and addresses has them")
        ensure_settings("Cluster", settings, keywords, 0, ("nodes", "topics", "keep"))
        named = {name.replace("_", "."): value for name, value in keywords.items()}
        self.settings = as_text({**(settings or {}), **named})
        self.topics = topic_requests(topics)
        self.keep = None if keep is None else Path(keep).absolute()
        self.bootstrap = ""
        """What clients call bootstrap.servers: all nodes. Stays the same, whatever becomes of them."""
        self.addresses: dict[int, str] = {}
        """HOST:PORT of each node."""
        self._count = nodes
        self._nodes: dict[int, Process] = {}
        self._places: dict[int, Place] = {}
        self._paused: set[int] = set()
        self._drops: dict[int, set[int]] = {}
        """From which nodes each node hears nothing."""
        self._lock = threading.Lock()

    @property
    def nodes(self) -> list[int]:
        """The ids of all nodes."""
        return list(range(1, self._count + 1))

    def pid(self, node: int) -> int:
        """Process id of a node. Raises BrokerError if it is not running."""
        return self._running(node).pid

    def directory(self, node: int) -> Path:
        """Where a node's data is. Raises BrokerError when the cluster is not started."""
        return self._owned(node).data

    def output(self, node: int) -> str:
        """What a node has printed since the first start: warnings and errors."""
        return self._owned(node).read_output()

    def start(self) -> Cluster:
        """Returns when every node serves and the topics exist. Raises BrokerError; nothing is left behind then."""
        if self._nodes:
            raise BrokerError("already started; restart(node) starts a node again")
        held: list[socket.socket] = []
        try:
            for node in self.nodes:
                held += [reserve(0), reserve(0)]
                port, controller_port = (each.getsockname()[1] for each in held[-2:])
                self._places[node] = Place(node, port, controller_port)
            cluster_id = urlsafe_b64encode(b"O" + os.urandom(15)).decode()[:22]
            controllers = []
            for node, settings in node_settings(list(self._places.values())).items():
                keep = None if self.keep is None else self.keep / f"node-{node}"
                self._nodes[node] = Process({**settings, **self.settings}, (), keep, 0, cluster_id)
                if "controller" in settings["process.roles"]:
                    controllers.append(self._nodes[node])
        except BaseException:
            _finish([], list(self._nodes.values()), held)
            self._nodes = {}
            raise
        # Also when the cluster is forgotten, and when the interpreter exits.
        brokers = [each for each in self._nodes.values() if each not in controllers]
        self._give_back = weakref.finalize(self, _finish, brokers, controllers, held)
        self._drops = {node: set() for node in self.nodes}
        try:
            for process in self._nodes.values():
                process.launch()
            self.addresses = {node: process.ready() for node, process in self._nodes.items()}
            self.bootstrap = ",".join(self.addresses.values())
            if self.topics:
                self._ask(1, {"topics": self.topics})
        except BaseException:
            self._nodes = {}
            self._give_back()
            raise
        return self

    def kill(self, node: int) -> None:
        """End a node with SIGKILL, as a crash would; `restart` lets it recover. Raises BrokerError."""
        self._running(node).kill()
        self._paused.discard(node)

    def pause(self, node: int) -> None:
        """Stop a node in the middle of what it does (SIGSTOP): its connections stay, and nobody answers."""
        self._running(node).signal(signal.SIGSTOP)
        self._paused.add(node)

    def resume(self, node: int) -> None:
        """Let a paused node go on, with the clock of now."""
        self._running(node).signal(signal.SIGCONT)
        self._paused.discard(node)

    def restart(self, node: int) -> None:
        """Stop a node if it runs, cleanly, and start it again: same address, same data. Raises BrokerError."""
        process = self._owned(node)
        with self._lock:
            if node in self._paused:
                self.resume(node)
            process.end()
            process.launch()
            process.ready()
        if self._drops[node]:
            self._apply(node)

    def partition(self, *groups: int | Iterable[int]) -> None:
        """Cut the network between groups of nodes; those that are not named are one more group.

        `partition(1)` leaves node 1 alone, `partition([1, 2], [3])` says the same the other way round. Clients reach
        all nodes. Packets vanish; nothing is closed or refused. Replaces what was cut before.
        """
        named = [[each] if isinstance(each, int) else list(each) for each in groups]
        mentioned = [node for group in named for node in group]
        if len(set(mentioned)) != len(mentioned):
            raise ValueError("a node is in one group only")
        for node in mentioned:
            self._owned(node)
        named.append([node for node in self.nodes if node not in mentioned])
        for group in named:
            for node in group:
                self._drops[node] = set(self.nodes) - set(group)
        self._apply_all()

    def cut(self, source: int, target: int) -> None:
        """What node `source` sends no longer reaches node `target`, though the reverse does: one direction only."""
        self._owned(source)
        self._owned(target)
        self._drops[target].add(source)
        self._apply_all()

    def heal(self) -> None:
        """Every node reaches every other again; what TCP holds is delivered as soon as it tries once more."""
        self._drops = {node: set() for node in self.nodes}
        self._apply_all()

    def leader(self, topic: str, partition: int = 0, *, seen_by: int | None = None) -> int:
        """The node that leads a partition now, as the first node knows that knows of one, or node `seen_by`: one that
        is cut off does not hear of changes. Raises BrokerError where none does, or there is no such partition."""
        for node in self._serving() if seen_by is None else [seen_by]:
            found = int(self._ask(node, {"leader": [topic, partition]})["leader"])
            if found >= 0:
                return found
        raise BrokerError(f"partition {partition} of topic {topic} has no leader")

    def create_topic(self, name: str, partitions: int | None = None, **settings: Setting) -> str:
        """Create a topic and return its name; settings are Kafka's with underscores. Raises BrokerError."""
        nodes = self._serving()
        if not nodes:
            raise BrokerError("no node is running")
        self._ask(nodes[0], {"topics": [topic_request(name, {"partitions": partitions, **settings})]})
        return name

    def stop(self) -> None:
        """Stop all nodes and remove their temporary directories. Once stopped, or in a forked process, does nothing.

        Raises BrokerError if a node had died by itself.
        """
        nodes = self._nodes
        if not nodes or nodes[1].owner != os.getpid():
            return
        self._nodes = {}
        died = []
        for node, process in nodes.items():
            status = process.status()
            if status is not None and not process.expected_end:
                what = f"node {node} died while it was in use ({ending(status)})"
                died.append(with_output(what, process.read_output()))
        for node in self._paused:
            nodes[node].signal(signal.SIGCONT)
        self._paused.clear()
        self._give_back()
        if died:
            raise BrokerError("\n".join(died))

    def printed(self) -> str:
        texts = {node: each.read_output() for node, each in self._nodes.items() if each.owner == os.getpid()}
        return "\n".join(f"node {node}:\n{text.rstrip()}" for node, text in texts.items() if text.strip())

    def _apply_all(self) -> None:
        for node in self._serving():
            self._apply(node)

    def _apply(self, node: int) -> None:
        """Has a node drop what it is cut off from. One that is paused does so as soon as it goes on."""
        others = self._drops[node]
        ports = [port for each in others for port in (self._places[each].port, self._places[each].controller_port)]
        self._ask(node, {"cut": [[source(each) for each in others], ports]})

    def _serving(self) -> list[int]:
        return [node for node in self.nodes if node not in self._paused and self._owned(node).status() is None]

    def _ask(self, node: int, request: Mapping[str, Any]) -> dict[str, Any]:
        process = self._running(node)
        with self._lock:
            answer = process.ask(request)
        if "error" in answer:
            raise BrokerError(answer["error"])
        return answer

    def _owned(self, node: int) -> Process:
        if not self._nodes:
            raise BrokerError("the cluster is not started: use `with Cluster() as cluster:` or start()")
        process = self._nodes.get(node)
        if process is None:
            raise BrokerError(f"there is no node {node}: the cluster has nodes 1 to {self._count}")
        if process.owner != os.getpid():
            raise BrokerError(f"the cluster belongs to process {process.owner}; this process has only its address")
        return process

    def _running(self, node: int) -> Process:
        process = self._owned(node)
        status = process.status()
        if status is not None:
            what = (
                f"was killed; restart({node}) starts it again" if process.expected_end else f"died ({ending(status)})"
            )
            raise BrokerError(with_output(f"node {node} {what}", process.read_output()))
        return process

    def __repr__(self) -> str:
        return f"<Cluster {self.bootstrap}>" if self._nodes else "<Cluster, not started>"


def _finish(brokers: list[Process], controllers: list[Process], held: list[socket.socket]) -> None:
    """All brokers at once, and then the controllers, to whom brokers say that they leave."""
    for nodes in (brokers, controllers):
        for process in nodes:
            with suppress(OSError):
                process.dismiss()
        for process in nodes:
            process.finish()
    for each in held:
        each.close()
