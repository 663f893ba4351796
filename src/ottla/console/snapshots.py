"""Answers of the cluster that several pages show, kept for a few seconds and shown with their age.

What is old is shown once more while it is read again, so that nobody waits for a large cluster twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

SHOWN_AGAIN: Final = 6
"""A snapshot is shown while it is read again, up to so many times the seconds that it counts as fresh."""
PARTIAL_S: Final = 1.0
"""What a broker that did not answer lacks counts as fresh for so long: a page names it no longer than that after it is
back."""
PARTIAL_PART: Final = 4.0
"""And for so many times as long as reading it took, so that a large cluster is not read all the time."""
KEPT_MAX: Final = 64
"""Snapshots of one user; the one that was read longest ago goes."""

T = TypeVar("T")


class Threads(Executor):
    """A thread for each call, which ends with the process: a disk may hang, and then the call never returns."""

    def submit(self, call: Callable[..., T], /, *arguments: Any, **keywords: Any) -> Future[T]:
        done = Future[T]()

        def work() -> None:
            try:
                done.set_result(call(*arguments, **keywords))
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=work, name="console disk", daemon=True).start()
        return done


def _always(_: Any) -> bool:
    return True


@dataclass(frozen=True)
class Snapshot(Generic[T]):
    value: T
    taken: float
    """By the monotonic clock."""
    took_s: float = 0.0
    is_whole: bool = True
    """False where a broker did not answer."""

    def is_fresh(self, fresh_s: float) -> bool:
        limit_s = fresh_s if self.is_whole else min(fresh_s, max(PARTIAL_S, PARTIAL_PART * self.took_s))
        return self.age_s <= limit_s

    def may_be_shown(self, fresh_s: float) -> bool:
        """Once more, while it is read again."""
        return self.is_whole and self.age_s <= fresh_s * SHOWN_AGAIN

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.taken


class Snapshots:
    """What one user has been shown. Each thing is read by one thread at a time; the others wait for its result."""

    def __init__(self, executor: Executor) -> None:
        """`executor` runs what is read in the background; it must not be the one of the brokers' requests."""
        self._executor = executor
        self._lock = threading.Lock()
        self._kept: dict[Any, Snapshot[Any]] = {}
        self._reading: dict[Any, tuple[Future[Snapshot[Any]], float]] = {}
        """And when each reading began."""
        self._failed: dict[Any, tuple[BaseException, float]] = {}
        """Readings that failed when nobody waited any more, and when; the next one who asks is told."""
        self._changes = 0
        """How often `drop` was called: a reading that began before is not kept."""

    def drop(self) -> None:
        """After a change: nothing that was read before it is shown again."""
        with self._lock:
            self._changes += 1
            self._kept.clear()
            self._failed.clear()
            self._reading = {}

    def drop_older(self, key: Any, age_s: float) -> None:
        """A snapshot that is older is not shown again: something was missing in it."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept.age_s > age_s:
                del self._kept[key]

    def get(
        self, key: Any, fresh_s: float, read: Callable[[], T], is_whole: Callable[[T], bool] = _always
    ) -> Snapshot[T]:
        """The newest snapshot, read now unless there is one that may be shown. `is_whole` says whether all brokers told
        their part. Raises what `read` raises."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept.is_fresh(fresh_s):
                return kept
            future, is_ours, _ = self._begun(key)
        if kept is not None and kept.may_be_shown(fresh_s):
            if is_ours:
                self._executor.submit(self._read, key, read, is_whole, future)
            return kept
        if is_ours:
            self._read(key, read, is_whole, future)
        return future.result()

    def soon(
        self, key: Any, fresh_s: float, wait_s: float, read: Callable[[], T], is_whole: Callable[[T], bool] = _always
    ) -> Snapshot[T] | None:
        """The same for what may take long: None if there is no snapshot `wait_s` after reading began, which goes on.
        One that is not whole is shown if there is no newer one by then."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept.is_fresh(fresh_s):
                return kept
            error, failed = self._failed.pop(key, (None, 0.0))
            if error is not None and time.monotonic() - failed <= fresh_s:
                raise error
            future, is_ours, began = self._begun(key)
        if is_ours:
            self._executor.submit(self._read, key, read, is_whole, future)
        if kept is not None and kept.may_be_shown(fresh_s):
            return kept
        try:
            return future.result(max(0.0, began + wait_s - time.monotonic()))
        except NotYet:
            return kept if kept is not None and kept.age_s <= fresh_s * SHOWN_AGAIN else None

    def _begun(self, key: Any) -> tuple[Future[Snapshot[Any]], bool, float]:
        """A reading, whether the caller has to do it, and when it began."""
        known = self._reading.get(key)
        if known is not None:
            return known[0], False, known[1]
        future, began = Future[Snapshot[Any]](), time.monotonic()
        self._reading[key] = future, began
        return future, True, began

    def _read(
        self, key: Any, read: Callable[[], Any], is_whole: Callable[[Any], bool], future: Future[Snapshot[Any]]
    ) -> None:
        began, changes = time.monotonic(), self._changes
        try:
            value = read()
            found = Snapshot(value, began, time.monotonic() - began, is_whole(value))
        except BaseException as error:
            with self._lock:
                if self._ended(key, future, changes):
                    self._failed[key] = error, time.monotonic()
                while len(self._failed) > KEPT_MAX:
                    self._failed.pop(next(iter(self._failed)))
            future.set_exception(error)
            return
        with self._lock:
            if self._ended(key, future, changes):
                self._kept.pop(key, None)
                self._failed.pop(key, None)
                self._kept[key] = found
            while len(self._kept) > KEPT_MAX:
                self._kept.pop(next(iter(self._kept)))
        future.set_result(found)

    def _ended(self, key: Any, future: Future[Snapshot[Any]], changes: int) -> bool:
        """Whether what was read may be kept: nothing was changed since the reading began. Called with the lock."""
        if self._reading.get(key, (None, 0.0))[0] is future:
            del self._reading[key]
        return self._changes == changes
