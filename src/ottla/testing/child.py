"""The other half of `process.py`: a node that ends with its parent. Run as a script, with the socket as standard input.

It learns from the first line where its parent imports from, so nothing of Ottla can be imported before that.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import socket
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig
    from ottla.server.node import Node
    from ottla.testing.packet_filter import CutNetwork

TOPIC_ALREADY_EXISTS = 36
PARENT_LOOK_S = 1.0
"""Where the system does not say when a process ends."""
RETENTION = frozenset({"log.retention.ms", "log.retention.minutes", "log.retention.hours"})
"""Where none is given records stay for ever: tests write fixed timestamps of long ago, and Kafka's default, seven days,
would delete them at some moment of the test, or of a slower one."""


class Child:
    """The node's side of the conversation."""

    def __init__(self) -> None:
        self._control = socket.socket(fileno=0)
        with self._control.makefile("rb", buffering=0) as lines:
            line = lines.readline()
        if not line:
            raise SystemExit(1)  # the parent died before it could say anything
        self.order: dict[str, Any] = json.loads(line)
        self.network: CutNetwork | None = None
        """Network of a node in a cluster."""
        self._dismissed = False
        """Whether the parent has no more use for this node, started again or not."""

    def main(self) -> int:
        """Be the node until told to stop; returns the exit status."""
        from ottla.config.server import ServerConfig
        from ottla.errors import OttlaError
        from ottla.network import host_name
        from ottla.server.main import run

        try:
            if self.order["temporary"]:
                os.makedirs(self.order["temporary"], mode=0o700, exist_ok=True)
            settings = {"ottla.log.level": "WARN", **self.order["settings"]}
            if not RETENTION & settings.keys():
                settings["log.retention.ms"] = "-1"
            config = ServerConfig.load(None, settings, {}, host_name)
            if self.order["cluster_id"] is not None:
                self._join_cluster(config, settings)
            return run(config, self.attend, self.network)
        except (OttlaError, OSError) as error:
            self._say({"error": str(error)})
            return 1
        finally:
            if self.order["temporary"] and (self._dismissed or self._parent_is_gone()):
                shutil.rmtree(self.order["temporary"], ignore_errors=True)

    def _join_cluster(self, config: ServerConfig, settings: dict[str, str]) -> None:
        """Be one of several: a directory of their cluster, and a network that can be cut."""
        from random import Random

        from ottla.clock import SystemClock
        from ottla.filesystem import OsFileSystem
        from ottla.server.local_cluster import format_directory
        from ottla.testing.packet_filter import CutNetwork

        fs, now, dice = OsFileSystem(), SystemClock().now_ms(), Random(os.urandom(16))
        format_directory(fs, config.metadata_log_dir, settings, self.order["cluster_id"], dice, now)
        self.network = CutNetwork(config.socket_send_buffer_bytes, config.node_id)

    async def attend(self, node: Node, stop: asyncio.Event) -> None:
        """The node serves: make the topics, watch the parent, say where it is. Raises OttlaError for a bad topic."""
        from ottla.errors import OttlaError

        failure = await create_topics(node, self.order["topics"], (0, TOPIC_ALREADY_EXISTS))
        if failure:
            raise OttlaError(failure)
        node.spawn(self._converse(node, stop))
        # The socket says nothing while forks of the parent live on and have it open; this does.
        watch_parent(self.order["parent"], stop)
        first = node.config.advertised_listeners[0]
        host = f"[{first.host}]" if ":" in first.host else first.host
        self._say({"bootstrap": f"{host}:{first.port or node.ports[first.name]}"})

    async def _converse(self, node: Node, stop: asyncio.Event) -> None:
        """Answer line by line until the parent shuts its end."""
        loop = asyncio.get_running_loop()
        self._control.setblocking(False)
        waiting = b""
        with contextlib.suppress(ConnectionError):
            while received := await loop.sock_recv(self._control, 64 << 10):
                *lines, waiting = (waiting + received).split(b"\n")
                for line in lines:
                    self._say(await self._fulfil(node, json.loads(line)))
        self._dismissed = True
        stop.set()

    async def _fulfil(self, node: Node, request: dict[str, Any]) -> dict[str, Any]:
        """Do what the parent asks for. It waits for an answer, whatever happens."""
        try:
            if "cut" in request:
                assert self.network is not None
                await self.network.cut(*request["cut"])
                return {}
            if "leader" in request:
                return {"leader": _leader(node, *request["leader"])}
            if "clear" in request:
                await _clear(node)
            failure = await create_topics(node, request["topics"], (0,))
        except Exception as error:
            failure = str(error) or repr(error)
        return {"error": failure} if failure else {}

    def _parent_is_gone(self) -> bool:
        return os.getppid() != int(self.order["parent"])

    def _say(self, answer: dict[str, Any]) -> None:
        try:
            self._control.send(json.dumps(answer).encode() + b"\n")
        except OSError:  # nobody listens any more
            pass


def watch_parent(parent: int, stop: asyncio.Event) -> None:
    """Have `stop` set when the process `parent`, which started this one, is gone."""
    loop = asyncio.get_running_loop()

    def look() -> None:
        if os.getppid() != parent:
            stop.set()
        else:
            loop.call_later(PARENT_LOOK_S, look)

    try:
        descriptor = os.pidfd_open(parent)
    except (AttributeError, OSError):  # no Linux, an old one, or the parent is gone
        look()
        return

    def gone() -> None:
        loop.remove_reader(descriptor)
        stop.set()

    loop.add_reader(descriptor, gone)
    if os.getppid() != parent:  # it was gone before, and the number is perhaps another's
        stop.set()


def _leader(node: Node, topic: str, partition: int) -> int:
    """As this node knows it; -1 where there is none. Raises OttlaError for what is not there."""
    from ottla.errors import OttlaError

    found = node.image.topics_by_name.get(topic)
    state = None if found is None else found.partitions.get(partition)
    if state is None:
        raise OttlaError(f"there is no partition {partition} of topic {topic}")
    return int(state.leader)


async def _clear(node: Node) -> None:
    """Delete all topics; with that of the offsets the groups go. Raises KafkaError."""
    from ottla.controller.decision import RECORDS_PER_DECISION_MAX

    while names := list(itertools.islice(node.image.topics_by_name, RECORDS_PER_DECISION_MAX)):
        await _delete(node, names)


async def _delete(node: Node, names: list[str]) -> None:
    from ottla.protocol.messages import ApiKey

    await node.channel.send(ApiKey.DELETE_TOPICS, {"topic_names": names})


async def create_topics(node: Node, topics: list[dict[str, Any]], accepted: tuple[int, ...]) -> str | None:
    """Create topics; returns what was refused, in words, or None."""
    if not topics:
        return None
    from ottla.protocol.messages import ApiKey

    request = {"topics": topics, "timeout": 30_000, "validate_only": False}
    response = await node.channel.send(ApiKey.CREATE_TOPICS, request)
    refused = [row for row in response["topics"] if row["error_code"] not in accepted]
    return "; ".join(f"topic {row['name']}: {row['error_message']}" for row in refused) or None


if __name__ == "__main__":
    child = Child()
    sys.path[:] = child.order["path"]
    sys.exit(child.main())
