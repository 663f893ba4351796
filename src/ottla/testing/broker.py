"""`Broker`: a node in a process of its own, for tests of programs that speak to Kafka."""

from __future__ import annotations

import difflib
import os
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ottla.testing.exchange import Exchange
from ottla.testing.lifetime import Lifetime
from ottla.testing.process import BrokerError, Process, ending, with_output

PORT_MAX = 65535
ALIKE = 0.75
"""From which likeness on a keyword is taken for a misspelt argument, not for a setting."""

Setting: TypeAlias = str | int | float | bool | list[str] | tuple[str, ...] | None
"""None leaves the default."""
Topics: TypeAlias = Iterable[str] | Mapping[str, int | Mapping[str, Setting]]
"""Names, or names with a number of partitions, or with settings of which `partitions` is one."""


class Broker(Lifetime, Exchange):
    """A node on loopback with a port and a directory of its own.

    with Broker(topics={"orders": 3}, num_partitions=6) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

    `settings` are Kafka's, by name; as keywords they are written with underscores. `keep` names a directory for the
    data that is not removed, and that a later Broker can start on. `port` is free to choose; by default any free one.
    Records stay for ever unless a setting of retention is given: tests write old timestamps. Also an asynchronous
    context manager. Nothing starts before `start` or `with`.
    """

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        *,
        topics: Topics = (),
        keep: str | os.PathLike[str] | None = None,
        port: int = 0,
        **keywords: Setting,
    ) -> None:
        ensure_settings("Broker", settings, keywords, port, ("topics", "keep", "port"))
        named = {name.replace("_", "."): value for name, value in keywords.items()}
        self.settings = as_text({**(settings or {}), **named})
        self.topics = topic_requests(topics)
        self.keep = None if keep is None else Path(keep).absolute()
        self.bootstrap = ""
        """What clients call bootstrap.servers. Stays the same over `restart`."""
        self._port = port
        self._node: Process | None = None
        self._lock = threading.Lock()

    @property
    def port(self) -> int:
        """Port of `bootstrap`. Raises BrokerError before the first start."""
        self._owned()
        return int(self.bootstrap.rpartition(":")[2])

    @property
    def directory(self) -> Path:
        """Where the data is. Raises BrokerError when not started."""
        return self._owned().data

    @property
    def pid(self) -> int:
        """Process id of the node. Raises BrokerError when it is not running."""
        return self._running().pid

    @property
    def output(self) -> str:
        """What the node has printed since the first start: warnings and errors. Normally nothing."""
        return self._owned().read_output()

    def exit_status(self) -> int | None:
        """None while the node's process runs; below 0 the signal that ended it. Raises BrokerError when not started."""
        return self._owned().status()

    def start(self) -> Broker:
        """Returns when clients are served and the topics exist. Raises BrokerError; nothing is left behind then."""
        if self._node is not None:
            raise BrokerError("already started; restart() starts it again")
        self._node = node = Process(self.settings, self.topics, self.keep, self._port)
        # Also when the broker is forgotten, and when the interpreter exits.
        self._give_back = weakref.finalize(self, node.finish)
        try:
            self.bootstrap = node.start()
        except BaseException:
            self._node = None
            self._give_back()
            raise
        return self

    def restart(self) -> None:
        """Stop if it runs, cleanly, and start again: same address, same data. Raises BrokerError."""
        node = self._owned()
        with self._lock:
            node.end()
            self.bootstrap = node.start()

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would; `restart` lets it recover. Raises BrokerError."""
        self._running().kill()

    def shut_down(self) -> None:
        """Stop cleanly and keep everything: `restart` starts it again. Raises BrokerError."""
        node = self._running()
        with self._lock:
            node.end()

    def stop(self) -> None:
        """Stop cleanly and remove the temporary directory. Once stopped, or in a forked process, it does nothing.

        Raises BrokerError if the node had died by itself.
        """
        node = self._node
        if node is None or node.owner != os.getpid():
            return
        self._node = None
        status = node.status()
        died = status is not None and not node.expected_end
        output = node.read_output() if died else ""
        self._give_back()
        if died:
            raise BrokerError(with_output(f"the node died while it was in use ({ending(status)})", output))

    def create_topic(self, name: str, partitions: int | None = None, **settings: Setting) -> str:
        """Create a topic and return its name; settings are Kafka's with underscores. Raises BrokerError."""
        self._ask({"topics": [topic_request(name, {"partitions": partitions, **settings})]})
        return name

    def clear(self) -> None:
        """Delete all topics with their data, all groups and their offsets, and recreate the topics that it was
        started with: the next test finds it as the first did.

        Close the clients before, for a producer or a consumer may create its topic again. Raises BrokerError.
        """
        self._ask({"clear": True, "topics": self.topics})

    def _ask(self, request: Mapping[str, Any]) -> None:
        node = self._running()
        with self._lock:
            answer = node.ask(request)
        if "error" in answer:
            raise BrokerError(answer["error"])

    def _owned(self) -> Process:
        node = self._node
        if node is None:
            raise BrokerError("the broker is not started: use `with Broker() as broker:` or start()")
        if node.owner != os.getpid():
            raise BrokerError(
                f"the broker belongs to process {node.owner}; this process has only its address, bootstrap"
            )
        return node

    def _running(self) -> Process:
        node = self._owned()
        status = node.status()
        if status is not None:
            how = "was killed" if status < 0 else "was shut down"
            what = f"{how}; restart() starts it again" if node.expected_end else f"died ({ending(status)})"
            raise BrokerError(with_output(f"the node {what}", node.read_output()))
        return node

    def printed(self) -> str:
        node = self._node
        return node.read_output() if node is not None and node.owner == os.getpid() else ""

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap}>" if self._node is not None else "<Broker, not started>"


def topic_requests(topics: Topics) -> list[dict[str, Any]]:
    """Each as CreateTopics has it."""
    if isinstance(topics, str):
        raise TypeError(f"topics is a list of names or a mapping, such as {{{topics!r}: 3}}")
    wanted = topics if isinstance(topics, Mapping) else dict.fromkeys(topics)
    return [topic_request(name, each) for name, each in wanted.items()]


def ensure_settings(what: str, settings: Any, keywords: Mapping[str, Any], port: Any, arguments: Sequence[str]) -> None:
    """Raises TypeError or ValueError for what cannot be meant: an address, a port out of range, an argument that is
    misspelt."""
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(
            f"{what} starts a node of its own, and takes settings by name, not {settings!r}: "
            f"{what}({{'num.partitions': 6}}) or {what}(num_partitions=6); its address is in the attribute bootstrap"
        )
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= PORT_MAX:
        raise ValueError(f"port must be a number from 0 (any free one) to {PORT_MAX}, not {port!r}")
    for name in keywords:  # the node itself says which setting it does not know
        close = difflib.get_close_matches(name, arguments, 1, ALIKE)
        if close:
            raise TypeError(f"{what} has no argument {name!r}; did you mean {close[0]}?")


def as_text(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Values as a properties file has them."""
    return {name: _value(value) for name, value in settings.items() if value is not None}


def _value(value: Setting) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def topic_request(name: str, wanted: int | Mapping[str, Setting] | None) -> dict[str, Any]:
    """As CreateTopics has it. -1 partitions means what `num.partitions` says."""
    settings: dict[str, Setting] = dict(wanted) if isinstance(wanted, Mapping) else {"partitions": wanted}
    partitions = settings.pop("partitions", None)
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return {
        "name": name,
        "num_partitions": -1 if partitions is None else partitions,
        "replication_factor": -1,
        "assignments": [],
        "configs": [{"name": name, "value": value} for name, value in as_text(named).items()],
    }
