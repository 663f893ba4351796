"""A file system with logs that are written, rotated in every known way, linked to and lost, and an agent that is
killed anywhere: real files, `ottla.tail` itself, a virtual time, and a topic in memory.

Whatever the world does, it does between two system calls of the agent. A line may be missing only if its bytes are on
the disk no more; with exactly-once delivery none comes twice; lines of one generation of a file come in their order.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.tail import agent as agent_module
from ottla.tail import copies as copies_module
from ottla.tail import files as files_module
from ottla.tail import finder as finder_module
from ottla.tail import follow as follow_module
from ottla.tail import relations as relations_module
from ottla.tail.agent import Agent, Options
from ottla.tail.files import Position
from ottla.tail.sinks import Batch

HOOKED = {"open", "stat", "fstat", "pread", "listdir", "readlink"}
"""System calls of the agent before which the world may change."""
LINE = re.compile(rb"(\d+):x*;")
BANNER = b"".join(b"== the same words at the beginning of every file, line %d ==\n" % number for number in range(4))
QUIET_S = 14.0
"""After which an agent has read what there is: the flush time and some looks."""
TICK_S = 0.004
LOST = (".gz", ".tmp")
MODULES = (agent_module, copies_module, files_module, follow_module, finder_module, relations_module)


class Killed(BaseException):
    """kill -9 of the agent."""


class Clock:
    """Stands for the module `time`; the world goes on while the agent sleeps."""

    def __init__(self, slept: Callable[[float], None]) -> None:
        self.now_s = 1_800_000_000.0
        self._slept = slept

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return int(self.now_s * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self._slept(seconds)


class Calls:
    """Stands for the module `os` in the agent: inodes are used again, and descriptors die with the agent."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.open_descriptors: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._hooked(name, real) if name in HOOKED else real

    def _hooked(self, name: str, real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self._world.before_call()
            found = real(*arguments)
            if name == "open":
                self.open_descriptors.add(found)
            return self._world.disguised(found) if name in ("stat", "fstat") else found

        return call

    def close(self, descriptor: int) -> None:
        os.close(descriptor)
        self.open_descriptors.discard(descriptor)

    def die(self) -> None:
        for descriptor in self.open_descriptors:
            os.close(descriptor)
        self.open_descriptors.clear()

    def holds(self, inode: int) -> bool:
        return any(os.fstat(each).st_ino == inode for each in self.open_descriptors)


@dataclass
class Topic:
    """What was sent, and the positions that survive a kill; a Sink of the agent."""

    world: World
    exactly_once: bool
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    """The run of the agent, and the value."""
    positions: dict[str, str] = field(default_factory=dict)
    unsaved: dict[str, str | None] = field(default_factory=dict)
    committed: int = 0
    saved_s: float = 0.0

    def load(self) -> dict[str, Position]:
        return {key: Position.from_json(json.loads(text)) for key, text in self.positions.items()}

    def write(self, batch: Batch, stopping: Callable[[], bool]) -> None:
        self.world.may_be_killed(0.02)
        self.world.stall(0.03)
        self.lines += [(self.world.runs, message.value) for message in batch.messages]
        self.unsaved.update({key: json.dumps(position.to_json()) for key, position in batch.changed.items()})
        self.unsaved.update(dict.fromkeys(batch.gone))
        if self.exactly_once:
            self._save()
        self.world.may_be_killed(0.02)

    def poll(self) -> None:
        if self.world.clock.now_s - self.saved_s >= 1.0:
            self._save()

    def _save(self) -> None:
        for key, text in self.unsaved.items():
            self.positions.pop(key, None)
            if text is not None:
                self.positions[key] = text
        self.unsaved, self.saved_s = {}, self.world.clock.now_s

    def close(self, timeout_s: float | None) -> int:
        return 0


@dataclass
class Log:
    """A program's log file: where it lies, and how many lines it got."""

    path: Path
    old: Path | None = None
    """Where the writer goes on for a while after a rotation that it has not noticed yet."""
    rotations: int = 0


Rotation = Callable[["World", Log], Iterator[None]]


def shift(world: World, name: Callable[[int], Path], last: int = 4) -> Iterator[None]:
    """`.1` becomes `.2` and so on; the last is deleted."""
    for number in range(last, 0, -1):
        if name(number).exists():
            if number == last:
                world.unlink(name(number))
            else:
                world.rename(name(number), name(number + 1))
            yield


def behind(log: Log) -> Callable[[int], Path]:
    return lambda number: log.path.with_name(f"{log.path.name}.{number}")


def before_extension(log: Log) -> Callable[[int], Path]:
    return lambda number: log.path.with_name(f"{log.path.stem}.{number}{log.path.suffix}")


def create(world: World, log: Log) -> Iterator[None]:
    """logrotate's create, Docker's json-file, Python's RotatingFileHandler."""
    yield from shift(world, behind(log))
    world.rename(log.path, behind(log)(1))
    yield
    world.create(log.path)


def create_late(world: World, log: Log) -> Iterator[None]:
    """The writer goes on in the renamed file until it is told."""
    log.old = None
    yield from shift(world, behind(log))
    world.rename(log.path, behind(log)(1))
    log.old = behind(log)(1)
    yield
    world.create(log.path)


def nocreate(world: World, log: Log) -> Iterator[None]:
    """logrotate's nocreate, WatchedFileHandler: the file is made with the next line."""
    yield from shift(world, behind(log))
    world.rename(log.path, behind(log)(1))
    yield


def fixed_window(world: World, log: Log) -> Iterator[None]:
    """logback's and log4j2's, and logrotate's `extension`: app.1.log."""
    yield from shift(world, before_extension(log))
    world.rename(log.path, before_extension(log)(1))
    yield
    world.create(log.path)


def dated(form: str) -> Rotation:
    """logrotate's dateext and dateformat, TimedRotatingFileHandler, log4j2 and logback by time, the kubelet."""

    def rotation(world: World, log: Log) -> Iterator[None]:
        log.rotations += 1
        date = 20261127_000000 + log.rotations
        text = form.format(
            stem=log.path.stem, extension=log.path.suffix, day=f"{date:014d}"[:8], time=f"{log.rotations:06d}"
        )
        world.rename(log.path, log.path.with_name(text))
        yield
        world.create(log.path)

    rotation.__name__ = form
    return rotation


def compressed(rotation: Rotation, keep: int) -> Rotation:
    """`compress` (keep 0) and `delaycompress` (keep 1), Docker's and the kubelet's: all but the newest are packed."""

    def with_compression(world: World, log: Log) -> Iterator[None]:
        yield from rotation(world, log)
        rotated = [each for each in log.path.parent.iterdir() if each != log.path and not each.name.endswith(LOST)]
        for old in sorted(rotated, key=lambda each: (each.stat().st_mtime_ns, each.name), reverse=True)[keep:]:
            yield
            old.with_name(f"{old.name}.tmp").write_bytes(b"packed")
            yield
            if old == log.old:
                log.old = None
            os.replace(old.with_name(f"{old.name}.tmp"), old.with_name(f"{old.name}.gz"))
            world.unlink(old)

    with_compression.__name__ = f"compressed {rotation.__name__}"
    return with_compression


def copytruncate(world: World, log: Log) -> Iterator[None]:
    yield from shift(world, behind(log))
    yield from world.copy(log.path, behind(log)(1))
    world.truncate(log.path)


def copytruncate_over(world: World, log: Log) -> Iterator[None]:
    """`cp log log.1; : > log`."""
    yield from world.copy(log.path, behind(log)(1))
    world.truncate(log.path)


def copytruncate_dated(world: World, log: Log) -> Iterator[None]:
    log.rotations += 1
    yield from world.copy(log.path, log.path.with_name(f"{log.path.stem}-20261127{log.rotations:04d}{log.path.suffix}"))
    world.truncate(log.path)


def copied_twice(world: World, log: Log) -> Iterator[None]:
    """Shifted by copying: `cp log.1 log.2; cp log log.1; : > log`."""
    if behind(log)(1).exists():
        yield from world.copy(behind(log)(1), behind(log)(2))
    yield from copytruncate_over(world, log)


def copy(world: World, log: Log) -> Iterator[None]:
    """logrotate's copy: a snapshot, nothing is truncated."""
    yield from world.copy(log.path, behind(log)(1))


def truncate(world: World, log: Log) -> Iterator[None]:
    """In place; the file may grow past its old size before anybody looks."""
    world.truncate(log.path)
    if world.rng.random() < 0.5:
        world.write(log, world.rng.randint(1, 60))
    yield


def removed(world: World, log: Log) -> Iterator[None]:
    world.unlink(log.path)
    yield
    world.create(log.path)


def copied_in_turn(world: World, log: Log) -> Iterator[None]:
    """Renamed and copied in turn, under numbers that rise: a file that was truncated is renamed next."""
    log.rotations += 1
    if log.rotations % 2:
        world.rename(log.path, behind(log)(log.rotations))
        yield
        world.create(log.path)
    else:
        yield from world.copy(log.path, behind(log)(log.rotations))
        world.truncate(log.path)


ROTATIONS: tuple[Rotation, ...] = (
    create, create_late, nocreate, fixed_window, copytruncate, copytruncate_over, copytruncate_dated, copied_twice,
    copy, truncate, removed,
    dated("{stem}{extension}-{day}{time}"), dated("{stem}-{day}{time}{extension}"),
    dated("{stem}.2026-11-27.{time}{extension}"), dated("{stem}{extension}.2026-11-27_{time}"),
    dated("{stem}{extension}.20261127-{time}"),
    compressed(create, 0), compressed(create, 1), compressed(dated("{stem}{extension}.20261127-{time}"), 1),
    compressed(copytruncate, 1), copied_in_turn,
)  # fmt: skip

LINKS = ("none", "file", "chain", "directory")
PATTERNS = ("name", "star", "family")


@dataclass
class Plan:
    """What one world is like."""

    seed: int
    rotation: Rotation
    link: str
    pattern: str
    exactly_once: bool
    banner: bool

    @classmethod
    def of(cls, seed: int) -> Plan:
        rng = random.Random(seed)
        rotation, link, pattern = rng.choice(ROTATIONS), rng.choice(LINKS), rng.choice(PATTERNS)
        return cls(seed, rotation, link, pattern, rng.random() < 0.8, rng.random() < 0.3)

    def __str__(self) -> str:
        delivery = "exactly-once" if self.exactly_once else "at-least-once"
        return (
            f"seed {self.seed}: {self.rotation.__name__}, link {self.link}, pattern {self.pattern}, {delivery}"
            f"{', banner' if self.banner else ''}"
        )


class World:
    def __init__(self, root: Path, plan: Plan, trace: Callable[[str], None] = lambda text: None) -> None:
        self.root, self.plan, self.rng = root, plan, random.Random(plan.seed)
        self.trace = trace
        self.clock, self.calls = Clock(self._slept), Calls(self)
        self.topic = Topic(self, plan.exactly_once)
        self.runs = self.written = self.kills = self.rotations = 0
        self.generations: dict[int, int] = {}
        """By line, the number of the file's generation that it was written to."""
        self._generation = 0
        self._now: dict[Path, int] = {}
        self._inodes: dict[int, int] = {}
        self._free: list[int] = []
        self._next_inode = 1000
        self._steps: Iterator[None] | None = None
        self._calm = self._hold = True
        self._exempt: set[int] = set()
        self._owed: set[int] = set()
        self._moved = False
        self._seen: set[int] = set()
        self._logs = self._lay_out()

    # Files.

    def _lay_out(self) -> list[Log]:
        link, root = self.plan.link, self.root
        (root / "logs").mkdir(parents=True)
        self._watched = root / "logs"
        if link in ("file", "chain"):
            (root / "containers").mkdir()
            target = "../logs/app.log"
            if link == "chain":
                (root / "between").mkdir()
                (root / "between" / "b.log").symlink_to(root / "logs" / "app.log")
                target = "../between/b.log"
            (root / "containers" / "app.log").symlink_to(target)
            self._watched = root / "containers"
        elif link == "directory":
            for release in ("v1", "v2"):
                (root / "logs" / release).mkdir()
            (root / "current").symlink_to("logs/v1")
            self._watched = root / "current"
            return [Log(root / "logs" / "v1" / "app.log"), Log(root / "logs" / "v2" / "app.log")]
        return [Log(root / "logs" / "app.log")]

    @property
    def pattern(self) -> str:
        return str(self._watched / {"name": "app.log", "star": "*.log", "family": "app*"}[self.plan.pattern])

    def disguised(self, found: os.stat_result) -> Any:
        names = ("st_dev", "st_size", "st_mtime", "st_mtime_ns", "st_mode", "st_nlink")
        inode = self._inodes.get(found.st_ino, found.st_ino)
        return SimpleNamespace(st_ino=inode, **{name: getattr(found, name) for name in names})

    def _touch(self, path: Path) -> None:
        at_ns = int(self.clock.now_s / TICK_S) * int(TICK_S * 1e9)
        os.utime(path, ns=(at_ns, at_ns))

    def create(self, path: Path) -> None:
        """With an inode that was used before, now and then. The writer may have made the file meanwhile."""
        if path.exists():
            return
        with path.open("ab"):
            pass
        real = path.stat().st_ino
        self._seen.discard(real)  # the file system has given a file's inode to another, as it likes
        used = {self._inodes.get(each.stat().st_ino) for each in path.parent.iterdir()}
        self._free = [each for each in self._free if each not in used]
        if self._free and self.rng.random() < 0.5:
            self._inodes[real] = self._free.pop(self.rng.randrange(len(self._free)))
        else:
            self._next_inode += 1
            self._inodes[real] = self._next_inode
        self._begin_generation(path)
        if self.plan.banner:
            path.write_bytes(BANNER)
        self._touch(path)
        self.trace(f"create {path.name} inode {self._inodes[real]}")

    def _begin_generation(self, path: Path) -> None:
        self._generation += 1
        self._now[path] = self._generation

    def unlink(self, path: Path) -> None:
        real = path.stat().st_ino
        if not self.calls.holds(real):
            self._free.append(self._inodes[real])
        path.unlink()
        self.trace(f"unlink {path.name}")

    def rename(self, old: Path, new: Path) -> None:
        if not old.exists():
            return
        if new.exists():
            self.unlink(new)
        old.rename(new)
        self._now[new] = self._now.pop(old, -1)
        for log in self._logs:
            if log.old == old:
                log.old = new
        self.trace(f"rename {old.name} {new.name}")

    def truncate(self, path: Path) -> None:
        if self.plan.banner and self._stored_offset(path) == len(BANNER):
            # It begins again with all that was read of it: no agent can notice (see docs/spark/logs.md).
            self._exempt |= self.on_disk()[path]
        os.truncate(path, 0)
        self._begin_generation(path)
        if self.plan.banner:
            path.write_bytes(BANNER)
        self._touch(path)
        self.trace(f"truncate {path.name}")

    def _stored_offset(self, path: Path) -> int:
        found = path.stat()
        text = self.topic.positions.get(f"{found.st_dev}-{self._inodes.get(found.st_ino)}")
        return -1 if text is None else Position.from_json(json.loads(text)).offset

    def copy(self, old: Path, new: Path) -> Iterator[None]:
        """As cp does: over what is there, in pieces."""
        if not old.exists():
            return
        if not new.exists():
            banner, self.plan.banner = self.plan.banner, False
            self.create(new)
            self.plan.banner = banner
        else:
            os.truncate(new, 0)
        self._touch(new)
        at, pieces = 0, self.rng.randint(1, 3)
        self.trace(f"copy {old.name} {new.name}")
        while at < (size := old.stat().st_size):
            yield
            if not new.exists():
                return
            with old.open("rb") as source, new.open("r+b") as target:
                source.seek(at)
                target.seek(at)
                at += target.write(source.read(size // pieces + 1))
            self._touch(new)

    def write(self, log: Log, count: int) -> None:
        path = log.old if log.old is not None and log.old.exists() else log.path
        if path == log.path and not path.exists():
            self.create(path)
        begin = self.written
        self.written += count
        generation = self._now.get(path, -1)
        text = b""
        for number in range(begin, self.written):
            self.generations[number] = generation
            text += b"%d:%s;\n" % (number, b"x" * self.rng.choice((0, 3, 40)))
        with path.open("ab") as file:
            file.write(text)
        self._touch(path)
        self.trace(f"write {path.name} {begin}-{self.written - 1}")

    # What happens.

    def _slept(self, seconds: float) -> None:
        for found in map(os.fstat, self.calls.open_descriptors):
            # What an agent saw that was killed before it stored a position, no agent has seen.
            if f"{found.st_dev}-{self._inodes.get(found.st_ino)}" in self.topic.positions:
                self._seen.add(found.st_ino)
        if not self._calm:
            while self.rng.random() < 0.4:
                self._act()
            self.may_be_killed(0.01)

    def stall(self, chance: float) -> None:
        """The cluster takes nothing for a while, and files are rotated more than once meanwhile."""
        if not self._calm and self.rng.random() < chance:
            self.trace("STALL")
            for _ in range(self.rng.choice((10, 40))):
                self.clock.now_s += self.rng.choice((0.0, 0.1, 0.5))
                self._act()

    def before_call(self) -> None:
        self.clock.now_s += 1e-5
        if not self._calm and not self._hold:
            if self.rng.random() < 0.01:
                self._act()
            self.may_be_killed(0.0005)

    def may_be_killed(self, chance: float) -> None:
        if not self._calm and self.rng.random() < chance:
            self.trace("KILL")
            raise Killed

    def _log(self) -> Log:
        if self.plan.link == "directory":
            return self._logs[0 if os.readlink(self.root / "current") == "logs/v1" else 1]
        return self._logs[0]

    def _act(self) -> None:
        """One step of whoever writes and rotates."""
        log = self._log()
        if self._steps is not None:
            if self.rng.random() < 0.3:
                self.write(log, self.rng.randint(1, 4))
            if next(self._steps, self) is self:
                self._steps = None
            return
        chance = self.rng.random()
        if chance < 0.15 and log.path.exists() and self._may_rotate(log):
            self.rotations += 1
            self.trace(f"-- {self.plan.rotation.__name__}")
            self._steps = self.plan.rotation(self, log)
        elif chance < 0.25:
            log.old = None
        elif chance < 0.28 and self.plan.link == "directory" and not self._moved:
            self._point(1 - self._logs.index(log))
        else:
            self.write(log, self.rng.choice((1, 2, 5, 30)))

    def _may_rotate(self, log: Log) -> bool:
        """A copy of a file that no agent has seen yet cannot be told from a file of its own."""
        return "cop" not in self.plan.rotation.__name__ or log.path.stat().st_ino in self._seen

    def _point(self, release: int) -> None:
        """Moves the link, as deployments do; the old release may write on for a while."""
        old = self._log()
        if self.rng.random() < 0.5 and old.path.exists():
            self.write(old, 1)
        os.symlink(f"logs/v{release + 1}", self.root / "new")
        os.replace(self.root / "new", self.root / "current")
        self.trace(f"link to v{release + 1}")
        self._moved = True
        if self.rng.random() < 0.5 and old.path.exists():
            self.write(old, 1)
        if not self._log().path.exists():
            self.create(self._log().path)

    def _finish_steps(self) -> None:
        for _ in self._steps or ():
            pass
        self._steps = None
        for log in self._logs:
            log.old = None

    # The agent.

    def play(self, seconds: float) -> None:
        """Runs an agent for so long, unless it is killed."""
        self.runs += 1
        self._hold = not self.topic.positions
        if self._hold:
            self._finish_steps()
            matched = {os.path.realpath(each) for each in finder_matches(self.pattern)}
            self._exempt = set().union(
                *(ids for path, ids in self.on_disk().items() if os.path.realpath(path) not in matched)
            )
        options = Options([self.pattern], "host", flush_s=5.0)
        agent = Agent(options, self.topic, lambda sentence: None)
        end_s = self.clock.now_s + seconds

        def stopping() -> bool:
            self._hold = not self.topic.positions
            return self.clock.now_s >= end_s

        self.trace(f"-- agent {self.runs} {'calm' if self._calm else ''}")
        try:
            agent.run(stopping)
        except Killed:
            self.kills += 1
        finally:
            self.calls.die()
            self.topic.unsaved = {} if self.plan.exactly_once else self.topic.unsaved
            if not self._calm:
                self.topic.unsaved = {}

    def pause(self) -> None:
        """No agent runs."""
        for _ in range(self.rng.choice((0, 1, 5, 30))):
            self.clock.now_s += self.rng.choice((0.0, 0.01, 1.0))
            self._act()

    def on_disk(self) -> dict[Path, set[int]]:
        """By file, the lines that can be read."""
        found = {}
        for path in self.root.rglob("*"):
            if path.is_file() and not path.is_symlink() and not path.name.endswith(LOST):
                text = path.read_bytes()
                found[path] = {int(each[1]) for line in text.split(b"\n") if (each := LINE.fullmatch(line))}
        return found

    def check(self) -> None:
        """Nothing that can be read is missing. AssertionError with what is."""
        ids = Counter(int(found[1]) for _, value in self.topic.lines if (found := LINE.fullmatch(value)))
        owed = set().union(*self.on_disk().values()) - self._exempt
        missing = sorted(owed - set(ids))
        assert not missing, f"{self.plan}: {len(missing)} lines are missing: {missing[:10]}"
        if self.plan.exactly_once and self.plan.rotation is not copied_twice:  # see docs/spark/logs.md
            twice = sorted(number for number, count in ids.items() if count > 1)
            assert not twice, f"{self.plan}: {len(twice)} lines came twice: {twice[:10]}"
            self._check_order()
        junk = [value for _, value in self.topic.lines if not LINE.fullmatch(value) and not value.startswith(b"==")]
        assert not junk, f"{self.plan}: pieces of lines were sent: {junk[:5]}"

    def _check_order(self) -> None:
        last: dict[tuple[int, int], int] = {}
        for run, value in self.topic.lines:
            found = LINE.fullmatch(value)
            if found is not None and (generation := self.generations[int(found[1])]) >= 0:
                key = (run, generation)
                assert last.get(key, -1) < int(found[1]), f"{self.plan}: order"
                last[key] = int(found[1])

    def run(self) -> None:
        self._install()
        for _ in range(self.rng.choice((0, 3, 10))):
            self._act()
        if not self._log().path.exists():
            self.create(self._log().path)
        for _ in range(self.rng.randint(1, 4)):
            for _ in range(self.rng.randint(1, 4)):
                self._calm = False
                self.play(self.rng.choice((2.0, 5.0, 20.0)))
                self.pause()
            self._finish_steps()
            self._calm = True
            self.play(QUIET_S)
            self._moved = False
            self.check()

    def _install(self) -> None:
        for module in MODULES:
            for name, value in (("time", self.clock), ("os", self.calls)):
                if hasattr(module, name):
                    setattr(module, name, value)


def finder_matches(pattern: str) -> list[str]:
    import glob

    return [each for each in glob.glob(pattern) if not each.endswith(LOST)]


def play(root: Path, seed: int, trace: Callable[[str], None] = lambda text: None) -> World:
    """Plays one world and checks it. Raises AssertionError."""
    saved = [
        (module, name, getattr(module, name)) for module in MODULES for name in ("time", "os") if hasattr(module, name)
    ]
    world = World(root, Plan.of(seed), trace)
    try:
        world.run()
    finally:
        for module, name, value in saved:
            setattr(module, name, value)
    return world
