"""How many clients may connect in a second (KIP-612; Kafka's `ConnectionQuotas`): to the node
(`max.connection.creation.rate`), to one listener (`listener.name.NAME.max.connection.creation.rate`), and from one
address (`connection_creation_rate` of ip entities).

Where the node's or the listener's rate is exceeded, the next clients wait their turn, one behind the other, as they
wait for Kafka's acceptor: what they send is not read before. More than `socket.listen.backlog.size` do not wait but are
closed. Who comes from an address beyond its quota is closed after the delay, so that coming again at once is no use.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.model import Millis
from ottla.quotas.arithmetic import Average, Rate, Windows, delay_ms
from ottla.server.listeners.listener import RATE_UNLIMITED, limit_of

if TYPE_CHECKING:
    from ottla.server.ports import Listening

ADDRESSES_MAX: Final = 10_000
"""Beyond this many addresses with a quota, those that were silent for all windows are dropped."""


class Admission(NamedTuple):
    delay_s: float = 0.0
    refused: bool = False
    """Whether the connection is to be closed after the delay."""


class _Listener:
    __slots__ = ("free_ms", "held_ms", "rate", "waited_ms", "waiting")

    def __init__(self, windows: Windows) -> None:
        self.rate = Rate(windows)
        self.free_ms: Millis = 0
        """When the last one that waits has had its turn."""
        self.waiting: list[Millis] = []
        """When the turns of those come who wait."""
        self.waited_ms = Average()
        """Waits of connections delayed by the rate of the node or the listener; `held_ms` is for those closed later
        because of their address's rate."""
        self.held_ms = Average()


class ConnectionRates:
    """Made once there is a limit."""

    def __init__(self, node: Listening) -> None:
        config = node.config
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self._broker = Rate(self._windows)
        self._listeners: dict[str, _Listener] = {}
        self._addresses: dict[str, tuple[Rate, Millis]] = {}

    def admit(self, name: str, address: str) -> Admission:
        """A client has connected."""
        now_ms = int(self._loop.time() * 1000)
        listener = self._listeners.get(name)
        if listener is None:
            listener = self._listeners[name] = _Listener(self._windows)
        listener.waiting = [turn_ms for turn_ms in listener.waiting if turn_ms > now_ms]
        if len(listener.waiting) >= self._node.config.socket_listen_backlog_size:
            return Admission(0.0, refused=True)
        at_ms = max(now_ms, listener.free_ms)
        delay = self._delay(listener.rate, limit_of(self._node.config, name), at_ms)
        protected = name == self._node.inter_broker_listener and len(self._node.listeners) > 1
        if not protected:
            delay = max(delay, self._delay(self._broker, self._node.config.max_connection_creation_rate, at_ms))
        turn_ms = listener.free_ms = at_ms + delay
        held = self._of_address(address, turn_ms)
        if delay > 0:
            listener.waited_ms.record(delay, now_ms)
        if held > 0:
            listener.held_ms.record(held, now_ms)
            if not protected:
                self._broker.record(-1, turn_ms)
            listener.rate.record(-1, turn_ms)
            return Admission((turn_ms - now_ms + held) / 1000, refused=True)
        if turn_ms > now_ms:
            listener.waiting.append(turn_ms)
        return Admission((turn_ms - now_ms) / 1000)

    def throttle_times(self, name: str) -> tuple[float, float]:
        """Milliseconds on average of the last 30 to 60 seconds that clients of a listener waited: for the rate of the
        node or the listener, and for that of their address. NaN where nobody waited."""
        listener, now_ms = self._listeners.get(name), int(self._loop.time() * 1000)
        if listener is None:
            return math.nan, math.nan
        return listener.waited_ms.measure(now_ms), listener.held_ms.measure(now_ms)

    def _of_address(self, address: str, now_ms: Millis) -> Millis:
        quotas = self._node.quotas
        limit = None if quotas is None else quotas.addresses.of(address)
        if limit is None or limit == RATE_UNLIMITED:
            return 0
        rate = self._addresses[address][0] if address in self._addresses else Rate(self._windows)
        delay = self._delay(rate, limit, now_ms)
        if delay > 0:
            rate.record(-1, now_ms)
        if len(self._addresses) >= ADDRESSES_MAX and address not in self._addresses:
            oldest_ms = now_ms - self._windows.samples * self._windows.size_ms
            self._addresses = {each: found for each, found in self._addresses.items() if found[1] > oldest_ms}
        self._addresses[address] = (rate, now_ms)
        return delay

    def _delay(self, rate: Rate, limit: int, now_ms: Millis) -> Millis:
        """Count one more; one window at most."""
        rate.record(1, now_ms)
        found = rate.measure(now_ms)
        if found <= limit:
            return 0
        if limit <= 0:
            return self._windows.size_ms
        return min(delay_ms(found, limit, rate.span_ms(now_ms)), self._windows.size_ms)
