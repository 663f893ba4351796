"""Every request, response and record beside Kafka's generated classes, in one JVM: the same bytes, the same values.

Random messages are written by Java and by Ottla, and read by both. Then they are truncated, extended and given hostile
lengths: both have to refuse the same, and Ottla with the protocol's error and without reserving memory for what is not
there. `python -m tests.conformance.codec.codec_walk SEED COUNT [NAME]` walks by hand, COUNT messages of each version.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.messages import MalformedRequest
from tests.conformance.codec.codec_subjects import Subject, Unknown, subject_of
from tests.conformance.codec.codec_values import UNSAID, Dice, Length, Tree, draw, from_json, to_json, written
from tests.conformance.codec.message_definitions import RELEASE, Definition, definitions
from tests.conformance.line_program import MARK, java_program

LIMIT_S: Final = 900
VERSIONS_AT_ONCE: Final = 64
"""Messages whose frames and answers are in memory."""
TRUNCATIONS: Final = 12
HOSTILE: Final = 24
FLIPS: Final = 8
"""Frames of each kind that are made of one message."""
BYTES_PER_BYTE: Final = 512
BYTES_MORE: Final = 1 << 18
"""Memory that reading a frame may take: an empty string is a byte on the wire and an object in a row in memory, and the
table of 4,096 remembered UUIDs may grow once."""


class Java:
    """Kafka's generated classes (`CodecLines.java`)."""

    def __init__(self) -> None:
        """Skips the test where there is no compiler for Java."""
        self.process = subprocess.Popen(
            java_program("CodecLines", RELEASE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, lines: Sequence[str]) -> list[str]:
        """The answers to all lines, which are sent while answers are read."""
        sender = threading.Thread(target=self._send, args=(lines,))
        limit = threading.Timer(LIMIT_S, self.process.kill)
        limit.start()
        sender.start()
        answers: list[str] = []
        assert self.process.stdout is not None
        try:
            while len(answers) < len(lines):
                said = self.process.stdout.readline().decode()
                assert said, f"the JVM ended at: {lines[len(answers)][:200]}"
                if said.startswith(MARK):  # its log is on the same stream
                    answers.append(said.removeprefix(MARK).rstrip("\n"))
        finally:
            limit.cancel()
            sender.join()
        return answers

    def _send(self, lines: Sequence[str]) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


@dataclass
class Case:
    """One message, or what was made of its bytes."""

    subject: Subject
    kind: str
    frame: bytes
    tree: Tree | None = None
    """The values, where the bytes are whole."""


class Finding(NamedTuple):
    subject: Subject
    kind: str
    what: str
    """`refused`, `accepted`, `values`, `bytes`, `raised`, `memory`."""
    text: str
    frame: bytes

    def __str__(self) -> str:
        shown = self.frame.hex() if len(self.frame) < 300 else f"{self.frame[:300].hex()}..."
        return f"{self.subject.name} v{self.subject.version}, {self.kind}, {self.what}: {self.text}\n    {shown}"


def _differ_in_bad_characters(found: Finding) -> bool:
    """Whether strings differ only in how many replacement characters stand in a row."""
    mine, _, theirs = re.sub("\ufffd+", "\ufffd", found.text).partition(", Kafka ")
    return found.what == "values" and mine.partition(": ")[2] == theirs


def _beyond_the_end(found: Finding) -> object:
    """Whether a known tagged field ends behind the message: whatever was changed, bytes of something else may be read
    as its size."""
    return re.search(r"tagged field \w+ of \d+ bytes where -?\d+ are left", found.text)


class Exempt(NamedTuple):
    reason: str
    covers: Callable[[Finding], object]


EXEMPT: Final = (
    Exempt(
        "A tagged field that is known has another size than it says. Kafka does not look at the size, and goes on "
        "where the value ends.",
        lambda found: found.what == "refused" and ("is not as long as" in found.text or _beyond_the_end(found)),
    ),
    Exempt(
        "A record has a tagged field of a later version. Ottla skips it as any that it does not know (KIP-482).",
        lambda found: found.what == "accepted" and "is not valid for version" in found.text,
    ),
    Exempt(
        "Bytes that would be half of a UTF-16 pair are one bad character for Java, and one each for Python.",
        _differ_in_bad_characters,
    ),
)
"""Where the two differ on purpose: no writer makes such messages."""


@dataclass
class Walk:
    java: Java
    seed: int
    findings: list[Finding] = field(default_factory=list)
    messages: int = 0
    frames: int = 0
    refused: int = 0
    """Frames that both refuse."""
    exempted: Counter[str] = field(default_factory=Counter)
    """Differences by the reason for them."""

    def run(self, wanted: Sequence[tuple[Definition, int]], count: int) -> None:
        """Walk over `count` messages of each of the versions."""
        randoms = random.Random(self.seed)
        for first in range(0, len(wanted), VERSIONS_AT_ONCE):
            self.run_some(wanted[first : first + VERSIONS_AT_ONCE], count, randoms)

    def run_some(self, wanted: Sequence[tuple[Definition, int]], count: int, randoms: random.Random) -> None:
        cases = []
        for definition, version in wanted:
            subject = subject_of(definition, version)
            subject.learn(Dice(randoms, dense=True))
            for _ in range(count):
                tree = draw(definition.struct, version, Dice(randoms))
                frame, lengths = written(definition, version, tree)
                cases.append(Case(subject, "whole", frame, tree))
                cases += spoiled(subject, frame, lengths, randoms)
        self.write([case for case in cases if case.tree is not None])
        self.read(cases)

    def find(self, case: Case, what: str, text: str) -> None:
        found = Finding(case.subject, case.kind, what, text, case.frame)
        reason = next((each.reason for each in EXEMPT if each.covers(found)), None)
        if reason is None:
            self.findings.append(found)
        else:
            self.exempted[reason] += 1

    def write(self, cases: Sequence[Case]) -> None:
        """Both write the same bytes."""
        lines = []
        for case in cases:
            assert case.tree is not None
            definition, version = case.subject.definition, case.subject.version
            values = json.dumps(to_json(definition.struct, version, case.tree))
            lines.append(f"write {definition.java_class} {version} {values}")
        for case, answer in zip(cases, self.java.ask(lines), strict=True):
            self.messages += 1
            # The frame is our own simple writer's: where Kafka's differs, the test is wrong.
            assert answer == f"ok {case.frame.hex()}", f"{case.subject.name} v{case.subject.version}: {answer}"
            assert case.tree is not None
            try:
                mine = case.subject.encode(case.tree)
            except Exception as error:
                self.find(case, "raised", f"encoding {case.tree}: {error!r}")
                continue
            if mine != case.frame:
                self.find(case, "bytes", f"ottla {mine.hex()} of {case.tree}")

    def read(self, cases: Sequence[Case]) -> None:
        """Both read the same frames, and the same values from them."""
        lines = [
            f"read {case.subject.definition.java_class} {case.subject.version} {case.frame.hex()}" for case in cases
        ]
        for case, answer in zip(cases, self.java.ask(lines), strict=True):
            self.frames += 1
            theirs = self.values_of(case, answer)
            try:
                mine = self.decoded(case)
            except (MalformedRequest, MalformedRecord) as error:
                if theirs is not None:
                    self.find(case, "refused", f"{error}; Kafka reads {theirs}")
                self.refused += theirs is None
                continue
            except Exception as error:
                self.find(case, "raised", f"decoding: {error!r}; Kafka: {answer[:200]}")
                continue
            if theirs is None:
                self.find(case, "accepted", f"{mine}; Kafka: {answer}")
            elif difference := different(mine, theirs):
                self.find(case, "values", difference)

    def decoded(self, case: Case) -> Tree:
        if case.kind == "whole":
            return case.subject.decode(case.frame)
        tracemalloc.start()
        try:
            return case.subject.decode(case.frame)
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            if peak > BYTES_PER_BYTE * len(case.frame) + BYTES_MORE:
                self.find(case, "memory", f"{peak} bytes for a frame of {len(case.frame)}")

    def values_of(self, case: Case, answer: str) -> Tree | None:
        """The values that Kafka reads; None where it refuses the frame."""
        if answer.startswith("refused"):
            assert case.tree is None, f"{case.subject.name} v{case.subject.version}: {answer}"
            return None
        _, consumed, again, values = answer.split(" ", 3)
        if int(consumed) < len(case.frame) and case.subject.fills_its_frame:
            return None
        if case.tree is not None:
            assert again == f".{case.frame.hex()}"
            return case.tree
        return from_json(case.subject.definition.struct, case.subject.version, json.loads(values))


def different(mine: Any, theirs: Any, path: str = "") -> str:
    """The first difference; empty where there is none."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        found = (different(mine[name], theirs.get(name), f"{path}.{name}") for name in mine)
        return next(filter(None, found), "")
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        found = (different(a, b, f"{path}[{n}]") for n, (a, b) in enumerate(zip(mine, theirs, strict=True)))
        return next(filter(None, found), "")
    if mine == theirs or theirs is UNSAID or (mine != mine and theirs != theirs):  # NaN
        return ""
    return f"{path}: {mine!r}, Kafka {theirs!r}"


def spoiled(subject: Subject, frame: bytes, lengths: Sequence[Length], randoms: random.Random) -> Iterator[Case]:
    """Frames that are not what they should be."""
    ends = range(len(frame)) if len(frame) <= TRUNCATIONS else randoms.sample(range(len(frame)), TRUNCATIONS)
    for end in ends:
        yield Case(subject, "truncated", frame[:end])
    yield Case(subject, "extended", frame + randoms.randbytes(randoms.choice((1, 2, 9))))
    for length in randoms.choices(lengths, k=HOSTILE) if lengths else ():
        name = randoms.choice([*CHANGES])
        yield Case(subject, f"{_where(lengths, length.start)}: {name}", CHANGES[name](frame, length))
    for _ in range(FLIPS if frame else 0):
        place = randoms.randrange(len(frame))
        byte = randoms.choice((0, 1, 2, 0x7F, 0x80, 0xFF, randoms.randrange(256)))
        yield Case(subject, f"{_where(lengths, place)}: a byte", frame[:place] + bytes([byte]) + frame[place + 1 :])


def _where(lengths: Sequence[Length], place: int) -> str:
    """What stands at a place in a message, and whether it is the size or the value of a tagged field."""
    kind = next((each.kind for each in lengths if each.start <= place < each.end), "value")
    in_tag = any(each.kind == "tag" and each.start <= place < each.end + each.value for each in lengths)
    return f"tagged {kind}" if in_tag else kind


def _raw(frame: bytes, length: Length, instead: bytes) -> bytes:
    return frame[: length.start] + instead + frame[length.end :]


CHANGES: Final[dict[str, Callable[[bytes, Length], bytes]]] = {
    "null": lambda frame, length: length.changed(frame, -1),
    "negative": lambda frame, length: length.changed(frame, -2),
    "very negative": lambda frame, length: length.changed(frame, -(2**31)),
    "none": lambda frame, length: length.changed(frame, 0),
    "one more": lambda frame, length: length.changed(frame, length.value + 1),
    "one less": lambda frame, length: length.changed(frame, max(length.value - 1, 0)),
    "as many as there are bytes": lambda frame, length: length.changed(frame, len(frame)),
    "32 KiB": lambda frame, length: length.changed(frame, 0x7FFF),
    "a million": lambda frame, length: length.changed(frame, 1_000_000),
    "2 GiB": lambda frame, length: length.changed(frame, 2**31 - 2),
    "a varint without end": lambda frame, length: _raw(frame, length, b"\xff" * 10),
    "a varint of five bytes": lambda frame, length: _raw(frame, length, b"\x81\x80\x80\x80\x00"),
    "a varint beyond 32 bits": lambda frame, length: _raw(frame, length, b"\xff\xff\xff\xff\x7f"),
}


def all_versions() -> list[tuple[Definition, int]]:
    """Every version of every message that Kafka and Ottla have."""
    found = []
    for definition in definitions():
        for version in definition.versions:
            try:
                subject_of(definition, version)
            except Unknown:
                continue
            found.append((definition, version))
    return found


def main() -> None:
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    java = Java()
    for definition in definitions():
        if len(sys.argv) > 3 and not any(each in definition.name for each in sys.argv[3:]):
            continue
        walk = Walk(java, seed)
        versions = []
        for version in definition.versions:
            try:
                subject_of(definition, version)
                versions.append((definition, version))
            except Unknown as error:
                print(f"unknown: {error}")
        try:
            walk.run(versions, count)
        except Exception as error:
            print(f"ERROR {definition.name}: {error}")
        for finding in walk.findings:
            print(finding)
        print(f"{definition.name}: {walk.messages} messages, {walk.frames} frames, {walk.refused} refused by both")
    java.close()


if __name__ == "__main__":
    main()
