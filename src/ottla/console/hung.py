"""Nodes that hang: they take a connection or a request and do not answer.

A page waits for such a node once. From then on each request to it fails at once, and the request that got no answer is
repeated in the background, at most every AGAIN_S and only while pages ask for the node. When it is answered, or fails
in another way, the node is asked as before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import Final

ANSWER_S: Final = 1.5
"""A node that has sent nothing of an answer for so long hangs. Pages are there within 2 s, and what they ask before the
node is named takes half a second at most (`ASK_NEXT_S` of the brokers)."""
AGAIN_S: Final = 2.0
"""From one asking in the background to the next."""
ASKED_AGAIN_MAX: Final = 8
"""Hung nodes that are asked again at the same time, each by a thread of the brokers' requests."""

Address = tuple[str, int]


@dataclass
class _Hung:
    since: float
    """By the monotonic clock."""
    is_hung: Callable[[], bool]
    """Asks again, and says whether there is still no answer."""
    asking: Future[None] | None = None
    asked: float = float("-inf")
    """When the last asking ended."""


class HungNodes:
    """The nodes that hang, as one user's requests found them; from any thread."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._back = threading.Condition(self._lock)
        """Notified when a node has answered or failed."""
        self._hung: dict[Address, _Hung] = {}

    def add(self, at: Address, is_hung: Callable[[], bool]) -> None:
        """A request to the node got no answer in time; `is_hung` repeats it."""
        with self._lock:
            found = self._hung.setdefault(at, _Hung(time.monotonic() - ANSWER_S, is_hung))
            self._ask_again(at, found)

    def seconds(self, at: Address) -> float | None:
        """How long the node has hung, None where it does not. It is asked again, if that is due."""
        with self._lock:
            found = self._hung.get(at)
            if found is None:
                return None
            self._ask_again(at, found)
            return time.monotonic() - found.since

    def has(self, at: Address) -> bool:
        with self._lock:
            return at in self._hung

    def wait(self, addresses: Collection[Address], seconds: float) -> None:
        """Until one of the nodes that are being asked again has answered or failed."""
        with self._lock:
            asking = [self._hung[at].asking for at in addresses if at in self._hung]
        wait([each for each in asking if each is not None], seconds, FIRST_COMPLETED)

    def until_one_is_back(self, addresses: Collection[Address], seconds: float) -> None:
        """Until one of the nodes does not hang, the given time at most; meanwhile they are asked again."""
        until = time.monotonic() + seconds
        with self._back:
            while True:
                hung = {at: self._hung[at] for at in addresses if at in self._hung}
                left_s = until - time.monotonic()
                if len(hung) < len(addresses) or left_s <= 0:
                    return
                for at, each in hung.items():
                    self._ask_again(at, each)
                self._back.wait(min(left_s, AGAIN_S / 4))

    def keep(self, addresses: Iterable[Address]) -> None:
        """The others are no nodes of the cluster any more."""
        known = set(addresses)
        with self._lock:
            self._hung = {at: each for at, each in self._hung.items() if at in known}

    def _ask_again(self, at: Address, hung: _Hung) -> None:
        """With the lock."""
        if hung.asking is not None or time.monotonic() - hung.asked < AGAIN_S:
            return
        if sum(each.asking is not None for each in self._hung.values()) < ASKED_AGAIN_MAX:
            hung.asking = self._executor.submit(self._asked, at, hung)

    def _asked(self, at: Address, hung: _Hung) -> None:
        is_hung = hung.is_hung()
        with self._lock:
            hung.asking, hung.asked = None, time.monotonic()
            if not is_hung and self._hung.get(at) is hung:
                del self._hung[at]
                self._back.notify_all()
