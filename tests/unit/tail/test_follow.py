"""What was rotated more than once between two looks of an agent, as while the cluster takes nothing."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

from ottla.tail.agent import Agent, Options
from ottla.tail.files import Position
from ottla.tail.sinks import AtLeastOnce


class Looks:
    """An agent whose looks the test begins itself."""

    def __init__(self, pattern: Path, stored: dict[str, Position] | None = None) -> None:
        sink: AtLeastOnce = None  # type: ignore[assignment]  # `run` alone uses it
        agent = self._agent = Agent(Options([str(pattern)], "host"), sink, lambda sentence: None)
        agent._follower.positions.stored.update(stored or {})
        agent._follower.scan(first=True)

    def lines(self) -> list[bytes]:
        return [message.value for message in self._agent._read().messages]

    def scan(self) -> list[bytes]:
        self._agent._follower.scan()
        return self.lines() + self.lines()

    def close(self) -> None:
        for file in self._agent._follower.files.values():
            file.close()

    def stored(self) -> dict[str, Position]:
        """A moment later, so that what lies there is older than the last look."""
        stored = self._agent._follower.positions.stored
        return {key: replace(each, time_ms=each.time_ms + 60_000) for key, each in stored.items()}


def copy_and_truncate(log: Path, copy: Path) -> None:
    shutil.copy(log, copy)
    os.truncate(log, 0)


def add(log: Path, *lines: str) -> None:
    with log.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_a_generation_that_came_and_went_while_nothing_of_the_file_was_read(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    add(log, "one")
    looks = Looks(log)
    assert looks.scan() == [b"one"]
    copy_and_truncate(log, tmp_path / "app.log.1")
    assert looks.scan() == []
    add(log, "two")
    copy_and_truncate(log, tmp_path / "app.log.2")
    add(log, "three")
    assert sorted(looks.lines() + looks.lines()) == [b"three", b"two"]
    assert looks.scan() == []


def test_a_file_that_was_copied_truncated_and_renamed(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    add(log, "one 1", "one 2")
    looks = Looks(log)
    assert looks.scan() == [b"one 1", b"one 2"]
    add(log, "one 3")
    copy_and_truncate(log, tmp_path / "app.log.1")
    add(log, "two 1", "two 2")
    log.rename(tmp_path / "app.log.2")
    add(log, "new 1")
    found = looks.scan() + looks.scan()
    assert sorted(found) == [b"new 1", b"one 3", b"two 1", b"two 2"]


def test_files_that_were_made_where_a_link_led_to_before_it_was_moved(tmp_path: Path) -> None:
    for release in ("v1", "v2"):
        (tmp_path / release).mkdir()
    link, log = tmp_path / "current", tmp_path / "v1" / "app.log"
    link.symlink_to("v1")
    add(log, "one")
    looks = Looks(link / "app.log")
    assert looks.scan() == [b"one"]
    log.rename(tmp_path / "v1" / "app.log.1")
    assert looks.scan() == []
    add(log, "two")
    log.rename(tmp_path / "v1" / "app.log.2")
    add(log, "three")
    link.unlink()
    link.symlink_to("v2")
    add(tmp_path / "v2" / "app.log", "four")
    assert sorted(looks.scan()) == [b"four", b"three", b"two"]


def test_a_copy_over_a_rotated_file_that_was_found_under_its_own_name(tmp_path: Path) -> None:
    log, rotated = tmp_path / "app.log", tmp_path / "app.log.1"
    add(rotated, "zero")
    add(log, "one")
    before = Looks(tmp_path / "app*")
    assert sorted(before.scan()) == [b"one", b"zero"]
    looks = Looks(tmp_path / "app*", before.stored())
    assert looks.scan() == []
    copy_and_truncate(log, rotated)
    add(log, "two")
    assert looks.scan() + looks.scan() == [b"two"]


def test_a_generation_that_came_and_went_and_nothing_after_it(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    add(log, "one")
    looks = Looks(log)
    assert looks.scan() == [b"one"]
    log.rename(tmp_path / "app.log.1")
    log.touch()
    assert looks.scan() == []
    add(log, "two")
    os.utime(log, ns=(1, 1))
    copy_and_truncate(log, tmp_path / "app.log.2")
    assert looks.scan() == [b"two"]


def test_files_renamed_and_copied_in_turn(tmp_path: Path) -> None:
    """Every line comes once, whatever happens between two looks."""
    for seed in range(200):
        rng, root, count, found, rotations = random.Random(seed), tmp_path / str(seed), 1, [], 0
        root.mkdir()
        log = root / "app.log"
        add(log, "00000000")
        looks = Looks(log)
        found += looks.scan()
        for _ in range(rng.randint(5, 25)):
            chance = rng.random()
            if chance < 0.45:
                more = rng.choice((1, 2, 30))
                add(log, *(f"{number:08d}" for number in range(count, count + more)))
                count += more
            elif chance < 0.7:
                rotations += 1
                if rotations % 2:
                    log.rename(root / f"app.log.{rotations}")
                    log.touch()
                else:
                    copy_and_truncate(log, root / f"app.log.{rotations}")
            else:
                found += looks.lines() if chance < 0.85 else looks.scan()
        found += looks.scan() + looks.scan()
        looks.close()
        assert sorted(found) == [b"%08d" % number for number in range(count)], f"seed {seed}"
