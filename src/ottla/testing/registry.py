"""`Registry`: a schema registry for tests, on loopback, beside a `Broker` or a `Cluster`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ottla.testing.process import BrokerError

if TYPE_CHECKING:
    from types import TracebackType

    from ottla.registry.server import Instance

_STOP_S = 15.0


class Registry:
    """A registry in a thread of this process, with a port of its own.

    with Broker() as broker, Registry(broker.bootstrap) as registry:
        client = SchemaRegistryClient({"url": registry.url})

    It asks no other instance whether it may write. Its schemas are in the topic: another one on the same broker has
    them, too.
    """

    def __init__(self, bootstrap: str, *, topic: str = "_schemas", port: int = 0) -> None:
        self._bootstrap, self._topic, self._port = bootstrap, topic, port
        self._instance: Instance | None = None
        self._thread: threading.Thread | None = None
        self.url = ""
        """What clients call `schema.registry.url`."""

    def start(self) -> Registry:
        """Returns when requests are answered. Raises BrokerError."""
        from ottla.errors import OttlaError
        from ottla.registry.server import Instance, Options

        if self._instance is not None:
            raise BrokerError("already started")
        try:
            instance = Instance(Options(self._bootstrap, port=self._port, topic=self._topic, is_alone=True))
            try:
                instance.start()
            except BaseException:
                instance.close()
                raise
        except OttlaError as error:
            raise BrokerError(str(error)) from error
        self._instance, self.url = instance, instance.url
        self._thread = threading.Thread(target=instance.serve, name="registry", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Once stopped it does nothing."""
        if self._instance is None or self._thread is None:
            return
        self._instance.stop()
        self._thread.join(_STOP_S)
        self._instance = self._thread = None

    def __enter__(self) -> Registry:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Registry {self.url}>" if self._instance is not None else "<Registry, not started>"
