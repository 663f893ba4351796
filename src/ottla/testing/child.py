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
    from ottla.server.node import Node

TOPIC_ALREADY_EXISTS = 36
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
        self._dismissed = False
        """Whether the parent has no more use for this node, started again or not."""

    def main(self) -> int:
        """Be the node until told to stop; returns the exit status."""
        from ottla.config.server import ServerConfig
        from ottla.errors import OttlaError
        from ottla.server.main import run

        try:
            if self.order["temporary"]:
                os.makedirs(self.order["temporary"], mode=0o700, exist_ok=True)
            settings = {"ottla.log.level": "WARN", **self.order["settings"]}
            if not RETENTION & settings.keys():
                settings["log.retention.ms"] = "-1"
            return run(ServerConfig.load(None, settings, {}), self.attend)
        except (OttlaError, OSError) as error:
            self._say({"error": str(error)})
            return 1
        finally:
            if self.order["temporary"] and (self._dismissed or self._parent_is_gone()):
                shutil.rmtree(self.order["temporary"], ignore_errors=True)

    async def attend(self, node: Node, stop: asyncio.Event) -> None:
        """The node serves: make the topics, watch the parent, say where it is. Raises OttlaError for a bad topic."""
        from ottla.errors import OttlaError

        failure = await _create(node, self.order["topics"], (0, TOPIC_ALREADY_EXISTS))
        if failure:
            raise OttlaError(failure)
        node.spawn(self._converse(node, stop))
        self._watch_parent(stop)
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
                    failure = await _fulfil(node, json.loads(line))
                    self._say({"error": failure} if failure else {})
        self._dismissed = True
        stop.set()

    def _watch_parent(self, stop: asyncio.Event) -> None:
        """The socket says nothing while forks of the parent live on and have it open; this does."""
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(self.order["parent"])
        except (AttributeError, OSError):  # no Linux, an old one, or the parent is gone
            pass
        else:

            def gone() -> None:
                loop.remove_reader(descriptor)
                stop.set()

            loop.add_reader(descriptor, gone)
        if self._parent_is_gone():
            stop.set()

    def _parent_is_gone(self) -> bool:
        return os.getppid() != int(self.order["parent"])

    def _say(self, answer: dict[str, Any]) -> None:
        try:
            self._control.send(json.dumps(answer).encode() + b"\n")
        except OSError:  # nobody listens any more
            pass


async def _fulfil(node: Node, request: dict[str, Any]) -> str | None:
    """Do what the parent asks for; returns why not, or None. The parent waits for an answer, whatever happens."""
    try:
        if "clear" in request:
            await _clear(node)
        return await _create(node, request["topics"], (0,))
    except Exception as error:
        return str(error) or repr(error)


async def _clear(node: Node) -> None:
    """Delete all topics; with that of the offsets the groups go. Raises KafkaError."""
    from ottla.controller.decision import RECORDS_PER_DECISION_MAX

    while names := list(itertools.islice(node.image.topics_by_name, RECORDS_PER_DECISION_MAX)):
        await _delete(node, names)


async def _delete(node: Node, names: list[str]) -> None:
    from ottla.controller.topics import delete_topics

    asked = {"topic_names": names}
    await node.controller.submit(lambda image, now: delete_topics(image, asked, node.config))


async def _create(node: Node, topics: list[dict[str, Any]], accepted: tuple[int, ...]) -> str | None:
    """Create topics; returns what was refused, in words, or None."""
    if not topics:
        return None
    response = await node.controller.create_topics({"topics": topics, "timeout_ms": 30_000, "validate_only": False})
    refused = [row for row in response["topics"] if row["error_code"] not in accepted]
    return "; ".join(f"topic {row['name']}: {row['error_message']}" for row in refused) or None


if __name__ == "__main__":
    child = Child()
    sys.path[:] = child.order["path"]
    sys.exit(child.main())
