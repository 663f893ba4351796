"""What `Broker` and `Cluster` have in common: how they begin and end around a block of a test."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from ottla.testing.process import BrokerError, with_output


class Lifetime(ABC):
    """A context manager, also an asynchronous one, made of `start` and `stop`."""

    @abstractmethod
    def start(self) -> Self: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def printed(self) -> str:
        """What to add to the exception of a test that failed; nothing where it is not ours, or not started."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
            return
        output = self.printed()
        if output:
            error.add_note(with_output(f"the test failed with this {type(self).__name__.lower()}", output))
        with contextlib.suppress(BrokerError):  # the test's own error says more
            self.stop()

    async def __aenter__(self) -> Self:
        import asyncio

        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(BrokerError):
                await starting
                await asyncio.to_thread(self.stop)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def __getstate__(self) -> None:
        name = type(self).__name__
        raise TypeError(f"a {name} cannot be sent to another process: send its address, {name.lower()}.bootstrap")
