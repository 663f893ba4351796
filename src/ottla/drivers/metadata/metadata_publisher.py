"""Turns committed records into images, and publishes these to subscribers (Kafka's `MetadataLoader` and
`MetadataPublisher`s).

What is committed comes from the quorum node: the snapshot, then batches below the high watermark, wherever the leader
is. The active controller of the same process has replayed its records already when it decided, so it leaves its deltas
here (`stage`), and they are published as they are, once the high watermark has passed them. One change is published
after the other, each with all that its subscribers do for it in steps.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ottla.drivers.quorum.metadata_log import LoadedBatch
from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.errors import OttlaError
from ottla.logs import fields
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.loader import MetadataLoader, at_kraft_version
from ottla.metadata.replay import ReplayError, UnsupportedLevel
from ottla.model import Offset
from ottla.quorum.snapshot import SnapshotId

_LOG = logging.getLogger("ottla.controller")

Subscriber = Callable[[MetadataDelta, MetadataImage], None]
"""Called on the event loop after each committed change, in the order of subscription. The first call has everything in
its delta, whose base is the empty image."""

SubscriberSteps = Callable[[MetadataDelta, MetadataImage], Iterator[None]]
"""What a subscriber does in steps: before its call, when the change is committed and not yet published, or after
it. The next change waits; the next decision does not."""

BATCHES_PER_STEP = 16
"""Batches of the log that are replayed in one piece; most have few records, of some 30 us each."""


class _Change(NamedTuple):
    delta: MetadataDelta
    image: MetadataImage


class MetadataPublisher:
    """Holds the newest published image. All methods belong to the event loop's thread."""

    def __init__(self, quorum: QuorumNode) -> None:
        self._quorum = quorum
        self.image: MetadataImage = EMPTY_IMAGE
        """The committed image: nothing in it can be undone."""
        self.replayed = 0
        """Records of the log that `load` replayed; those of the snapshot do not count."""
        self._loader: MetadataLoader | None = None
        """Loads the image at start, and a transaction that has not ended yet."""
        self._replayed = 0
        """All records that `preview` replayed."""
        self._loaded = False
        self._previewed = self.image
        self._next_offset: Offset = 0
        """Offset of the next record to replay."""
        self._staged: deque[_Change] = deque()
        """Changes of the controller of this process, each based on the one before it. As many as it has in flight."""
        self._base: MetadataImage = self.image
        """The image on which the next staged change is based."""
        self._subscribers: list[Subscriber] = []
        self._before: list[SubscriberSteps] = []
        self._after: list[SubscriberSteps] = []
        self._snapshot: SnapshotId | None = None
        """One that came from the leader and is to be loaded."""
        self._worker: asyncio.Task[None] | None = None
        self._published: Offset = -1
        """All that subscribers do for the changes up to this offset is done."""
        self._waiting: list[tuple[Offset, int, asyncio.Future[None]]] = []
        """A heap: the next offset first, and in the order of arrival."""
        self._arrivals = itertools.count()
        self._stopped = False
        self.failure: UnsupportedLevel | None = None
        """Why nothing is published any more."""
        self.on_failure: Callable[[UnsupportedLevel], None] = lambda failure: None
        """Called when a level is committed that this software does not support: the node has to end."""
        quorum.on_commit.append(self.advance)
        quorum.on_snapshot.append(self._on_snapshot)

    # Start and stop.

    @property
    def open_transaction(self) -> bool:
        """Whether the committed log ends within a transaction, none of which counts yet (KIP-868)."""
        return self._loader is not None and self._loader.transaction is not None

    def preview(self, cluster_id: str) -> MetadataImage:
        """The image that `load` will publish once this node leads, if it is the only voter: then all that its log has
        will be committed. Otherwise what is committed already, as far as that is known. Blocks. Raises OttlaError."""
        self.image = replace(EMPTY_IMAGE, cluster_id=cluster_id)
        loader = self._loader = self._new_loader()
        self._feed(loader, self._snapshot_batches())
        of_snapshot = loader.replayed
        self._feed(loader, self._quorum.read_to_be_committed(loader.offset + 1))
        self._next_offset = loader.offset + 1
        self._replayed, self.replayed = loader.replayed, loader.replayed - of_snapshot
        self._previewed = loader.image()
        return self._previewed

    def load(self) -> None:
        """Publish what is committed by now, before anybody follows; after `preview`. Blocks. Raises OttlaError."""
        loader, self._loader = self._loader, None
        assert loader is not None
        self._feed(loader, self._quorum.read_committed(self._next_offset))
        self._loaded = True
        if loader.offset < 0:
            return
        self._tell_left_out(loader)
        if loader.replayed > self._replayed:
            self.replayed += loader.replayed - self._replayed
            self.image = loader.image()
        else:
            self.image = loader.placed(self._previewed)
        self._next_offset = self.image.offset + 1
        self._published = self.image.offset
        if loader.transaction is not None:
            self._loader = self._going_on(self.image, loader)

    def unsubscribe_all(self) -> None:
        """The node stops: changes are still published, to nobody but who asks for the image."""
        for steps in (self._before, self._after):
            steps.clear()
        self._subscribers.clear()

    async def stop(self) -> None:
        """Publish nothing more; what has begun ends."""
        self._stopped = True
        self.unsubscribe_all()
        if self._worker is not None:
            await asyncio.wait([self._worker])
        self._release_all()

    # Those who follow.

    def subscribe(
        self, callback: Subscriber, *, before: SubscriberSteps | None = None, after: SubscriberSteps | None = None
    ) -> None:
        """Call `callback` for every later change; with the whole current image at once if there is one already.

        What takes long is better done in `before` and `after`, which let others run at each of their yields.
        """
        self._subscribers.append(callback)
        if before is not None:
            self._before.append(before)
        if after is not None:
            self._after.append(after)
        if self.image.offset >= 0:
            callback(MetadataDelta.full(self.image), self.image)

    def after_each(self, steps: SubscriberSteps) -> None:
        """Run `steps` for every later change, with pauses, before its waiters are told."""
        self._after.append(steps)

    async def wait_published(self, offset: Offset) -> None:
        """Return when the change whose last record is at `offset` is published and all is done for it, or when nothing
        is published any more."""
        if offset <= self._published or self._stopped:
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, next(self._arrivals), future))
        await future

    # What is to be published.

    def begin_staging(self) -> MetadataImage:
        """The controller of this process is the active one from now on: the image that it begins with. Nobody else
        appends records of metadata; those of the quorum itself (who votes) may come between its own."""
        self._base = self.image
        return self.image

    def stage(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A change that the active controller of this process made and appended: published when it is committed. Its
        base is the change staged before it, or what `begin_staging` gave."""
        self._staged.append(_Change(delta, image))

    def unstage(self) -> None:
        """The controller of this process is not the active one any more: what it made is read from the log, if it
        gets committed at all."""
        self._staged.clear()

    def advance(self, high_watermark: Offset) -> None:
        """Everything below is committed."""
        if self._loaded and not self._stopped and self._next_offset < high_watermark:
            self._wake()

    def _on_snapshot(self, snapshot: SnapshotId) -> None:
        self._snapshot = snapshot
        self._wake()

    def _wake(self) -> None:
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            while not self._stopped and await self._publish_next():  # noqa: ASYNC110  no event: others have their turn
                await asyncio.sleep(0)
        except BaseException as error:  # nobody may wait for ever
            self._stopped = True
            if isinstance(error, UnsupportedLevel):
                self.failure = error
                self.on_failure(error)
            else:
                _report("the metadata cannot be followed any further", error)
            self._release_all()
            if not isinstance(error, Exception):
                raise

    async def _publish_next(self) -> bool:
        """Publish a change, or all batches of the log that are committed, or a snapshot in their place; returns whether
        there was anything."""
        if self._snapshot is not None:
            await self._load_snapshot()
            return True
        high_watermark = self._quorum.high_watermark
        if self._next_offset >= high_watermark:
            return False
        if not self._staged:
            await self._replay_log()
            return True
        if self._staged[0].image.offset >= high_watermark:  # a decision of several batches, not all committed yet
            return False
        delta, image = self._staged.popleft()
        assert delta.base is self._base, "staged changes follow one from the other"
        self._base = image
        self._loader = None  # the controller has ended what a transaction left open
        self._next_offset = image.offset + 1
        await self._publish(delta, at_kraft_version(image, self._quorum.committed.kraft_version))
        return True

    async def _load_snapshot(self) -> None:
        self._snapshot = self._loader = None
        self._staged.clear()
        loader = self._new_loader()
        for batch in self._snapshot_batches():
            for _ in self._feeding(loader, (batch,)):
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        image = loader.image()
        self._next_offset = image.offset + 1
        await self._publish(MetadataDelta.between(self.image, image), image)

    async def _replay_log(self) -> None:
        loader = self._loader or MetadataLoader(MetadataDelta(self.image), has_gaps=self._quorum.log.has_gaps)
        await self._quorum.readable()
        for number, batch in enumerate(self._quorum.read_committed(self._next_offset), start=1):
            others_ran = number % BATCHES_PER_STEP == 0
            for _ in self._feeding(loader, (batch,)):
                await asyncio.sleep(0)
                others_ran = True
            self._next_offset = batch.header.next_offset
            if others_ran:
                await asyncio.sleep(0)
                await self._quorum.readable()
                if self._snapshot is not None:  # it has all this, and the log is another one now
                    return
        self._tell_left_out(loader)
        image, self._loader = loader.image(), None
        if loader.transaction is not None:
            self._loader = self._going_on(image, loader)
        await self._publish(loader.delta, image)

    def _going_on(self, image: MetadataImage, loader: MetadataLoader) -> MetadataLoader:
        """What goes on with the transaction that `loader` is in the middle of."""
        return MetadataLoader(MetadataDelta(image), has_gaps=self._quorum.log.has_gaps, transaction=loader.transaction)

    # Publishing.

    async def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A subscriber that fails keeps neither the others nor the writer from hearing of what is committed."""
        if delta:
            await _step(self._before, delta, image)
        self.image = image
        for callback in list(self._subscribers) if delta else ():
            try:
                callback(delta, image)
            except Exception as error:
                _report("a subscriber failed to apply a metadata change", error)
        if delta:
            await _step(self._after, delta, image)
        self._published = image.offset
        while self._waiting and self._waiting[0][0] <= image.offset:
            _release(heapq.heappop(self._waiting)[2])

    def _release_all(self) -> None:
        while self._waiting:
            _release(heapq.heappop(self._waiting)[2])

    # Loading.

    def _new_loader(self) -> MetadataLoader:
        empty = MetadataDelta(replace(EMPTY_IMAGE, cluster_id=self.image.cluster_id))
        return MetadataLoader(empty, has_gaps=self._quorum.log.has_gaps)

    def _snapshot_batches(self) -> Iterator[LoadedBatch]:
        """The newest snapshot. One that ends before the log begins has no metadata yet: `format` of Kafka 4.4 leaves
        there what the first active controller is to write into the log."""
        for batch in self._quorum.committed_snapshot():
            if batch.header.is_control or (batch.snapshot is not None and batch.snapshot.end_offset > 0):
                yield batch

    def _feed(self, loader: MetadataLoader, batches: Iterator[LoadedBatch] | Sequence[LoadedBatch]) -> None:
        for _ in self._feeding(loader, batches):
            pass

    def _feeding(
        self, loader: MetadataLoader, batches: Iterator[LoadedBatch] | Sequence[LoadedBatch]
    ) -> Iterator[None]:
        """Replay batches in steps. Raises OttlaError."""
        try:
            for batch in batches:
                yield from loader.adding(batch.header, batch.items, batch.snapshot)
        except ReplayError as error:
            raise OttlaError(
                f"the metadata in {self._quorum.log.directory} contradicts itself ({error}): restore the directory "
                "from a copy"
            ) from error

    def _tell_left_out(self, loader: MetadataLoader) -> None:
        if loader.left_out:
            found = fields(records=len(loader.left_out), first=loader.left_out[0])
            _LOG.error("metadata that depends on lost records is skipped", extra=found)


async def _step(subscribers: Sequence[SubscriberSteps], delta: MetadataDelta, image: MetadataImage) -> None:
    for steps in list(subscribers):
        try:
            for _ in steps(delta, image):
                await asyncio.sleep(0)
        except Exception as error:
            _report("a subscriber failed during a metadata change", error)


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _report(message: str, error: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
