"""The node under attack, in this process, and what must hold of it whatever comes.

No answer is UNKNOWN_SERVER_ERROR and no line of the log an error or a traceback; a witness that writes and reads beside
the attack gets every record once, in order, also after the node was started again on its files; nothing stays behind.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from ottla.errors import ErrorCode
from ottla.model import INTERNAL_TOPICS
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, iterate_batches, iterate_records
from ottla.server.node import Node
from tests.fuzz import mutations
from tests.fuzz.batches import TIME
from tests.fuzz.clients import VERSIONS, Attacker, Done
from tests.unit.server.node import Client, running

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1", "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "3", "num.partitions": "1", "connections.max.idle.ms": "5000",
}  # fmt: skip
WITNESS = "witness"
STEPS_PER_RECORD = 10
GROWN_MB_MAX = 400
"""Memory that the attack may take; the largest request is 100 MB."""


class Watch(logging.Handler):
    """Notes what a node should never have to log."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__()
        self.problems = problems
        self.strangers = {each.ident for each in threading.enumerate()} - {threading.get_ident()}
        """Threads that earlier tests of this process have left."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread in self.strangers:
            return
        if record.levelno >= logging.ERROR or record.exc_info:
            self.problems.append(f"logged: {logging.Formatter().format(record)} {record.__dict__.get('fields', '')}")


@dataclass
class Plan:
    directory: Path
    seed: str
    clients: int = 3
    steps: int | None = None
    """Steps of all clients together, for each start of the node."""
    seconds: float | None = None
    """For each start of the node, where no steps are given."""
    starts: int = 2
    apis: Sequence[ApiKey] = ()
    """APIs to attack; all if empty."""
    problems_max: int = 1
    """So many end it."""


@dataclass
class Witness:
    """Writes numbered records and reads them all."""

    written: list[bytes] = field(default_factory=list)
    client: Client | None = None

    async def connect(self, node: Node) -> None:
        """Again, since silent clients are closed soon."""
        if self.client is not None:
            self.client.close()
        self.client = await Client.connect(node)

    async def write(self) -> None:
        assert self.client is not None
        value = b"record %d" % len(self.written)
        answer = await self.client.produce(WITNESS, bytes(build_batch([SimpleRecord(TIME, b"k", value)])))
        assert (answer["error_code"], answer["base_offset"]) == (0, len(self.written)), answer
        self.written.append(value)

    async def check(self) -> None:
        """Every record is there once, in order."""
        assert self.client is not None
        found: list[tuple[int, bytes | None]] = []
        while len(found) < len(self.written):
            answer = await self.client.fetch(WITNESS, len(found))
            assert answer["error_code"] == ErrorCode.none and answer["records"], answer
            data = answer["records"]
            for position, header in iterate_batches(data):
                found += [
                    (each.offset, each.value) for each in iterate_records(data[position : position + header.size])
                ]
        assert found == list(enumerate(self.written))


async def attack(plan: Plan) -> Done:
    """Attack as planned. What must not be is in `problems` of what is returned."""
    done = Done()
    watch = Watch(done.problems)
    logging.getLogger().addHandler(watch)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: done.problems.append(f"the loop: {context}"))
    witness = Witness()
    before_mb = grown_mb()
    try:
        for number in range(plan.starts):
            async with running(str(plan.directory), SETTINGS, seed=number) as node:
                await witness.connect(node)
                if number == 0 and witness.client is not None:
                    await witness.client.create(WITNESS)
                await witness.check()
                await _attack_once(plan, f"{plan.seed} {number}", node, witness, done)
                if number == plan.starts - 1:
                    await _every_pair(Attacker("fuzz-all", plan.seed, node.ports["PLAINTEXT"], done), plan)
                    await nothing_left(node)
                await witness.connect(node)
                await witness.check()
                await readable(node, done)
                assert witness.client is not None
                witness.client.close()
            if done.problems:
                break
        gc.collect()
    finally:
        logging.getLogger().removeHandler(watch)
    if grown_mb() - before_mb > GROWN_MB_MAX:
        done.problems.append(f"the process has grown by {grown_mb() - before_mb:.0f} MB")
    return done


async def _attack_once(plan: Plan, seed: str, node: Node, witness: Witness, done: Done) -> None:
    port = node.ports["PLAINTEXT"]
    attackers = [Attacker(f"fuzz-{number}", seed, port, done, plan.apis) for number in range(plan.clients)]
    deadline = time.monotonic() + (plan.seconds or 0)

    async def keep_on(attacker: Attacker) -> None:
        for step in range(1 << 60 if plan.steps is None else plan.steps // plan.clients):
            if (plan.steps is None and time.monotonic() > deadline) or len(done.problems) >= plan.problems_max:
                break
            await attacker.step()
            if step % STEPS_PER_RECORD == 0 and attacker is attackers[0]:
                await witness.connect(node)
                await witness.write()
        attacker.leave()

    async with asyncio.TaskGroup() as tasks:
        for each in attackers:
            tasks.create_task(keep_on(each))
    await nothing_left(node)


async def _every_pair(attacker: Attacker, plan: Plan) -> None:
    """Each API, and each mutation, whatever was drawn until now."""
    for key, versions in VERSIONS.items():
        for kind in mutations.KINDS:
            if len(attacker.done.problems) < plan.problems_max:
                await attacker.exchange([attacker.draw(key, attacker.dice.choice(versions), kind)])
    attacker.leave()


async def readable(node: Node, done: Done) -> None:
    """Every record that was accepted can be read, at the offset where it should be."""
    client = await Client.connect(node)
    for topic in list(node.image.topics_by_name.values()):
        if topic.name in INTERNAL_TOPICS:
            continue
        for number in topic.partitions:
            partition = node.replicas.get(topic.name, number)
            if partition is None:
                continue
            offset, end = partition.log.log_start_offset, partition.log.high_watermark
            while offset < end:
                asked = {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                answer = await client.fetch(topic.name, offset, topics=[{"topic": topic.name, "partitions": [asked]}])
                data = answer["records"]
                if answer["error_code"] or not data:
                    done.problems.append(f"cannot read {topic.name}-{number} at {offset} of {end}: {answer}")
                    break
                for position, header in iterate_batches(data):
                    records = list(iterate_records(data[position : position + header.size]))
                    offsets = [record.offset for record in records]
                    if not header.is_control and offsets != list(range(header.base_offset, header.next_offset)):
                        done.problems.append(f"{topic.name}-{number} has {offsets[:9]} in {header}")
                    if header.base_offset > offset and "compact" not in node.image.topic_config(topic.name).values():
                        done.problems.append(f"{topic.name}-{number} has a gap at {offset}: {header}")
                    offset = header.next_offset
                    done.batches += 1
    client.close()


async def nothing_left(node: Node) -> None:
    """Connections of clients that have gone are forgotten, with their buffers."""
    async with asyncio.timeout(60):
        while any(len(each.connections) > 1 or each.buffers.bytes for each in node.listeners):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def grown_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def shown(done: Done) -> str:
    """Results as a table."""
    outcomes = ("answered", "refused", "waiting")
    lines = [f"{done.requests} requests; {done.batches} batches accepted; {dict(done.streams)}"]
    for title, counts in (("API", done.apis), ("mutation", done.kinds)):
        lines.append(f"{title:28}" + "".join(f"{each:>10}" for each in outcomes))
        names = sorted({name for name, _ in counts})
        lines += [f"{name:28}" + "".join(f"{counts[name, each]:>10}" for each in outcomes) for name in names]
    lines.append(f"errors told: {dict(done.codes.most_common())}")
    return "\n".join(lines)


def short_of(done: Done) -> list[str]:
    """Missing attempts: each API must have been answered and refused, each mutation sent."""
    missing = [
        f"{key.name} never {outcome}"
        for key in VERSIONS
        for outcome in ("answered", "refused")
        if not done.apis[key.name, outcome]
    ]
    sent = {kind for kind, outcome in done.kinds if outcome in ("answered", "refused")}
    return missing + [f"{kind} never sent" for kind in mutations.KINDS if kind not in sent]


def seeds(seed: int) -> Any:
    """One seed after another, drawn from the first."""
    dice = Random(seed)
    while True:
        yield dice.randrange(1 << 32)
