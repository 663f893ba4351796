"""A client that sends wrong requests and judges what comes back: an answer that can be read, or a closed connection."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.server.handlers import TABLE
from tests import kio_oracle
from tests.fuzz import mutations
from tests.fuzz.tree import frame, tree
from tests.fuzz.values import Draw, Known

VERSIONS = {
    ApiKey(key): list(range(3 if key == ApiKey.PRODUCE else row.min_version, row.max_version + 1))
    for key, row in TABLE.items()
}
MAY_WAIT = {ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
"""Their answers may rightly take for ever, if a mutation asked for that."""
WAIT_S = 1.0
ANSWER_S = 60.0
MARKER = 0x66757A7A
THE_NODE = struct.pack(">i", 1)
"""Correlation id of the ApiVersions request that comes behind others, to tell silence from an answer to come."""
SHOWN_MAX = 4000
"""Characters of a request in a problem; the seed has all of it."""
OFTEN = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH)


@dataclass
class Done:
    """Sent requests and their results."""

    apis: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(API, answered | refused | waiting)"""
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(mutation, answered | refused | waiting)"""
    codes: Counter[str] = field(default_factory=Counter)
    streams: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    batches: int = 0
    """In the logs of the topics that were attacked."""
    problems: list[str] = field(default_factory=list)


@dataclass
class Sent:
    key: ApiKey
    kind: str
    data: bytes

    @property
    def correlation_id(self) -> int | None:
        return int.from_bytes(self.data[4:8], "big", signed=True) if len(self.data) >= 8 else None


class Attacker:
    """One client with its own dice, connection after connection."""

    def __init__(self, name: str, seed: str, port: int, done: Done, apis: Sequence[ApiKey] = ()) -> None:
        """`apis` are drawn, all served ones if there are none."""
        self.name, self.port, self.done = name, port, done
        self.apis = apis
        self.dice = Random(f"{seed} {name}")
        self.known = Known()
        self.numbers = 0
        self.steps = 0
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    # Requests.

    def draw(self, key: ApiKey, version: int, kind: str) -> Sent:
        dice = self.dice
        self.numbers += 1
        request = tree(kio_oracle.request_class(key, version), Draw(dice, self.known))
        if kind in mutations.OF_VALUES:
            for _ in range(dice.choice((1, 1, 1, 2, 4))):
                if not mutations.mutate(request, kind, dice):
                    kind = mutations.NONE
                    break
        data = frame(key, version, self.numbers, f"{self.name}-{self.numbers}", request)
        if kind in mutations.OF_FRAMES:
            data = mutations.OF_FRAMES[kind](data, dice)
        return Sent(key, kind, data)

    def drawn(self) -> Sent:
        dice = self.dice
        often = not self.apis and dice.random() < 0.3
        key = dice.choice(OFTEN if often else self.apis or list(VERSIONS))
        kind = mutations.NONE if dice.random() < 0.2 else dice.choice(mutations.KINDS)
        sent = self.draw(key, dice.choice(VERSIONS[key]), kind)
        while key == ApiKey.UNREGISTER_BROKER and THE_NODE in sent.data[-6:]:  # which nobody could lead without
            sent = self.draw(key, dice.choice(VERSIONS[key]), kind)
        return sent

    async def step(self) -> None:
        """Some requests, and what they were answered."""
        self.steps += 1
        count = self.dice.choice((1, 1, 1, 1, 2, 8))
        await self.exchange([self.drawn() for _ in range(count)])

    async def exchange(self, sent: list[Sent]) -> None:
        stream = b"".join(struct.pack(">i", len(each.data)) + each.data for each in sent)
        end = self.dice.random()
        patient = end >= 0.02 and not any(map(may_wait, sent))
        if end < 0.02:  # a frame that claims more than comes, or less than nothing
            stream += struct.pack(">i", self.dice.choice((-1, -(1 << 31), (1 << 31) - 1, 90_000_000, 3))) + b"\0\1"
            self.done.streams["wrong size"] += 1
        stream += marker()
        try:
            reader, writer = await self.connected()
            await self.write(writer, stream)
            if end > 0.99:
                self.done.streams["gone"] += 1
                self.leave()
                return
            if end > 0.96:
                self.done.streams["half-closed"] += 1
                writer.write_eof()
            answered = await self.answers(reader, sent, patient)
            if end > 0.96:
                self.leave()
        except (ConnectionError, asyncio.IncompleteReadError):
            answered = None
        if answered is not None:
            self.count(sent, answered)
        else:
            self.leave()

    async def write(self, writer: asyncio.StreamWriter, stream: bytes) -> None:
        """Whole, or in pieces. Raises ConnectionError."""
        if self.dice.random() < 0.85:
            writer.write(stream)
            self.done.streams["whole"] += 1
        else:
            self.done.streams["pieces"] += 1
            step = self.dice.choice((1, 3, 50, 1000)) if len(stream) < 3000 else 20_000
            for start in range(0, len(stream), step):
                if writer.is_closing():  # uvloop's raises RuntimeError
                    raise ConnectionResetError
                writer.write(stream[start : start + step])
                await asyncio.sleep(0)
        await writer.drain()

    async def connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.streams is not None and self.streams[1].is_closing():
            self.leave()
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 26)
        return self.streams

    def leave(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None

    # Answers.

    async def answers(self, reader: asyncio.StreamReader, sent: list[Sent], patient: bool) -> list[tuple[Sent, str]]:
        """Each request with what came of it; leaves a connection that was closed, or on which nothing comes."""
        due = list(sent)
        found: list[tuple[Sent, str]] = []
        while True:
            try:
                async with asyncio.timeout(ANSWER_S if patient else WAIT_S):
                    answer = await read_frame(reader)
            except TimeoutError:
                self.leave()
                if patient:
                    self.problem(f"no answer in {ANSWER_S:.0f} s", due[0] if due else None)
                return [*found, *((each, "waiting") for each in due[:1])]
            except (ConnectionError, asyncio.IncompleteReadError):
                self.leave()
                return [*found, *((each, "refused") for each in due[:1])]
            number = int.from_bytes(answer[:4], "big", signed=True)
            while due and due[0].correlation_id != number:  # acks=0 has none
                silent = due.pop(0)
                if number != MARKER and silent.key is not ApiKey.PRODUCE and silent.kind in mutations.OF_VALUES:
                    self.problem("left out", silent)
                found.append((silent, "answered"))
            if not due:
                if number != MARKER:
                    self.problem(f"an answer with the correlation id {number}, which nobody sent", None)
                return found
            found.append((due[0], "answered"))
            self.judge(due.pop(0), answer)

    def judge(self, sent: Sent, answer: bytes) -> None:
        key, version = struct.unpack_from(">hh", sent.data)
        if key == ApiKey.API_VERSIONS and version not in VERSIONS[ApiKey.API_VERSIONS]:
            version = 0
        try:
            _, entity = messages.decode_response(key, version, answer)
        except Exception as error:
            self.problem(f"an answer that cannot be read ({error!r}): {answer[:200].hex()}", sent)
            return
        plain = messages.plain(entity)
        self.known.learn(plain)
        codes = set(error_codes(plain))
        self.done.codes.update(code.name for code in codes)
        if ErrorCode.unknown_server_error in codes:
            self.problem("UNKNOWN_SERVER_ERROR", sent)

    def count(self, sent: list[Sent], outcomes: list[tuple[Sent, str]]) -> None:
        self.done.requests += len(outcomes)
        for each, outcome in outcomes:
            self.done.apis[each.key.name, outcome] += 1
            self.done.kinds[each.kind, outcome] += 1

    def problem(self, what: str, sent: Sent | None) -> None:
        request = "" if sent is None else f" to {sent.key.name}, {sent.kind}: {sent.data.hex()}"
        self.done.problems.append(f"{self.name}, step {self.steps}: {what}{request[:SHOWN_MAX]}")


def may_wait(sent: Sent) -> bool:
    return len(sent.data) >= 2 and int.from_bytes(sent.data[:2], "big") in MAY_WAIT


def marker() -> bytes:
    request = messages.encode_request(ApiKey.API_VERSIONS, 0, MARKER, None, {})
    return struct.pack(">i", len(request)) + request


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def error_codes(value: Any) -> list[ErrorCode]:
    """Every error code in an answer."""
    if isinstance(value, list):
        return [code for each in value if isinstance(each, dict | list) for code in error_codes(each)]
    found = []
    for name, each in value.items():
        if isinstance(each, ErrorCode):
            found.append(each)
        elif isinstance(each, dict | list) and name != "records":
            found += error_codes(each)
    return found
