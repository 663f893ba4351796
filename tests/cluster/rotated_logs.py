"""A log file that is rotated all the while, and `ottla tail` that sends it exactly once, for faults of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from confluent_kafka import Consumer, KafkaException, TopicPartition

TOPIC = "tailed"
LINES = 20
"""At once, every PAUSE_S."""
PAUSE_S = 0.1
ROTATED_EVERY = 10
"""So many times between two rotations: a rename and a copy with a truncation in turn."""
READ_S = 180.0
OF_SIGTERM = 143


class RotatedLog:
    """Written and sent from `__enter__` to `__exit__`. Then `wrong` says what is not there once."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.rotations = 0
        self.lines = 0
        self._directory = tempfile.TemporaryDirectory()
        self._log = Path(self._directory.name, "app.log")
        self._ended = threading.Event()
        self._begun = False
        self._thread = threading.Thread(target=self._run)
        self._reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "tailed",
                "log_level": 0,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._agent: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RotatedLog:
        self._log.touch()
        state = str(Path(self._directory.name, "state.json"))
        self._agent = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "ottla.cli.main",
                "tail",
                str(self._log),
                "--to",
                TOPIC,
                "-b",
                self.bootstrap,
                "--state",
                state,
                "--id",
                TOPIC,
                "--delivery",
                "exactly-once",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        if kind is not None:
            self._end()

    def _run(self) -> None:
        turn = 0
        while not self._ended.wait(PAUSE_S):
            turn += 1
            with self._log.open("ab") as file:
                file.write(b"".join(b"line %d\n" % number for number in range(self.lines, self.lines + LINES)))
            self.lines += LINES
            if turn % ROTATED_EVERY == 0 and self._has_begun():
                self._rotate()

    def _has_begun(self) -> bool:
        """Whether the agent has sent anything: it does not read what was rotated before its first start."""
        if not self._begun:
            with suppress(KafkaException):
                self._begun = self._reader.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=5)[1] > 0
        return self._begun

    def _rotate(self) -> None:
        self.rotations += 1
        aside = self._log.with_name(f"app.log.{self.rotations}")
        if self.rotations % 2:
            self._log.rename(aside)
            self._log.touch()
        else:
            aside.write_bytes(self._log.read_bytes())
            os.truncate(self._log, 0)

    def _end(self) -> tuple[int, str]:
        assert self._agent is not None
        self._agent.terminate()
        _, said = self._agent.communicate(timeout=READ_S)
        self._directory.cleanup()
        return self._agent.returncode, said.decode()

    def wrong(self) -> list[str]:
        """Lines that are lost or there twice, and an agent that gave up. Waits until all is sent, and ends it."""
        reader = self._reader
        reader.assign([TopicPartition(TOPIC, 0, 0)])
        found: Counter[bytes] = Counter()
        deadline = time.monotonic() + READ_S
        while len(found) < self.lines and time.monotonic() < deadline:
            found.update(each.value() or b"" for each in reader.consume(5000, 0.5) if each.error() is None)
        found.update(each.value() or b"" for each in reader.consume(5000, 2) if each.error() is None)
        reader.close()
        code, said = self._end()
        lost = [number for number in range(self.lines) if not found[b"line %d" % number]]
        twice = [line for line, count in found.items() if count > 1]
        return [
            *([f"{len(lost)} lines of a rotated log are lost, the first is {lost[0]}"] if lost else []),
            *([f"{len(twice)} lines of a rotated log are there twice, one is {twice[0]!r}"] if twice else []),
            *([] if self.rotations else ["the log was never rotated"]),
            *([] if code == OF_SIGTERM else [f"ottla tail ended with {code}: {said}"]),
        ]
