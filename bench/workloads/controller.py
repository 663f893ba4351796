"""What the controller's decisions cost as a cluster grows: processor time, function calls (which a busy machine does
not change), the longest piece between two yields to the event loop, and memory. No node runs: decisions are pure."""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

from immutables import Map

from bench.tables import Run, Section, table
from ottla.config.effective import EffectiveConfig
from ottla.controller import brokers, isr
from ottla.controller.broker_sessions import BrokerSessions
from ottla.controller.decision import Decision, Steps
from ottla.controller.placement import new_partition, place
from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, BrokerRegistration, MetadataImage, TopicImage
from ottla.metadata.replay import replay
from ottla.metadata.replica_index import index_steps
from ottla.steps import at_once

SIZES = ((1_000, 10), (10_000, 100), (100_000, 1_000))
"""Partitions and brokers: each broker has 300 replicas, whatever the size."""
PARTITIONS_PER_TOPIC = 100
FACTOR = 3
CONFIG = EffectiveConfig({}, {}, {})


def cluster(partitions: int, count: int) -> MetadataImage:
    """All is well: everybody is in sync."""
    registered = {
        node: BrokerRegistration(
            node,
            node,
            UUID(int=node),
            {},
            dict(features.SUPPORTED),
            f"rack-{node % 3}",
            False,
            False,
            (UUID(int=node + 999),),
        )
        for node in range(1, count + 1)
    }
    image = replace(EMPTY_IMAGE, offset=partitions, features=dict(features.BOOTSTRAP), brokers=registered)
    random = Random(1)
    placed = place(image, partitions, FACTOR, random)
    topics = []
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        some = placed[number * PARTITIONS_PER_TOPIC : (number + 1) * PARTITIONS_PER_TOPIC]
        made = {
            each: partition for each, row in enumerate(some) if (partition := new_partition(image, row)) is not None
        }
        topics.append(TopicImage(f"topic-{number}", UUID(int=number + 5_000_000), made))
    return replace(
        image,
        topics_by_name=Map({topic.name: topic for topic in topics}),
        topics_by_id=Map({topic.id: topic for topic in topics}),
    )


def applied(image: MetadataImage, decision: Decision[Any]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in decision.records:
        replay(record, delta)
    return delta.apply(image.offset + max(1, len(decision.records)), 1, 0)


class Calls:
    """Counts calls of functions, of Python and of C, while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: object, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.count += 1


def longest(steps: Steps[Any]) -> int:
    """Calls between two yields, at most."""
    most = 0
    while True:
        with Calls() as calls:
            ended = next(steps, steps) is steps
        most = max(most, calls.count)
        if ended:
            return most


def measured(partitions: int, count: int) -> dict[str, dict[str, Any]]:
    """What each decision costs in a cluster of this size, by its name."""
    tracemalloc.start()
    image = cluster(partitions, count)
    gc.collect()
    bare = tracemalloc.get_traced_memory()[0]
    at_once(index_steps(image))
    gc.collect()
    indexed = tracemalloc.get_traced_memory()[0] - bare
    tracemalloc.stop()
    fenced = applied(image, at_once(brokers.fence(image, 1, CONFIG)))
    beat: dict[str, Any] = {"broker_id": 1, "broker_epoch": 1, "current_metadata_offset": 1 << 40, "want_fence": False}
    beat |= {"want_shut_down": False, "offline_log_dirs": ()}
    sessions = BrokerSessions(9)
    topic = image.topics_by_name["topic-0"]
    first = topic.partitions[0]
    row = {
        "partition_index": 0,
        "leader_epoch": first.leader_epoch,
        "partition_epoch": first.partition_epoch,
        "new_isr_with_epochs": [{"broker_id": each, "broker_epoch": each} for each in first.isr[:2]],
    }
    asked: dict[str, Any] = {"broker_id": first.leader, "broker_epoch": first.leader}
    asked |= {"topics": [{"topic_id": topic.id, "partitions": [row]}]}
    decisions: Mapping[str, tuple[MetadataImage, Callable[[], Steps[Any]]]] = {
        "a broker is fenced": (image, lambda: brokers.fence(image, 1, CONFIG)),
        "and comes back": (fenced, lambda: brokers.heartbeat(fenced, beat, CONFIG, sessions)),
        "a leader changes its ISR": (image, lambda: isr.alter_partition(image, asked, CONFIG)),
        "a new controller's first (index)": (image, lambda: _first(replace(image, replica_index=None))),
    }
    found: dict[str, dict[str, Any]] = {}
    for name, (base, steps) in decisions.items():
        begin = time.process_time()
        decision = at_once(steps())
        decided_ms = (time.process_time() - begin) * 1e3
        begin = time.process_time()
        applied(base, decision)
        applied_ms = (time.process_time() - begin) * 1e3
        with Calls() as calls:
            at_once(steps())
        found[name] = {
            "records": len(decision.records),
            "CPU ms to decide": round(decided_ms, 1),
            "CPU ms to apply": round(applied_ms, 1),
            "calls": calls.count,
            "most calls between yields": longest(steps()),
        }
    found["memory"] = {"image MB": round(bare / 1e6, 1), "index MB": round(indexed / 1e6, 1)}
    return found


def _first(image: MetadataImage) -> Steps[None]:
    """Fences nobody; the first decision of a new controller makes the index."""
    yield from index_steps(image)
    return Decision(None)


@table("controller", "what decisions of the controller cost at 1,000 to 100,000 partitions")
def controller(run: Run) -> Iterator[Section]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for partitions, count in SIZES:
        for name, figures in measured(partitions, count).items():
            rows.setdefault(name, []).append({"partitions": partitions, "brokers": count, **figures})
    for name, found in rows.items():
        yield Section(f"The controller: {name}", found)
