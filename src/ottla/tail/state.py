"""Positions in a file: written beside it, fsynced and renamed, so that a crash leaves the old ones or the new."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path

from ottla.tail.files import Position


class TailError(Exception):
    """The agent cannot go on: a sentence for whoever runs it. `is_unreachable`: no broker answered."""

    def __init__(self, sentence: str, is_unreachable: bool = False) -> None:
        super().__init__(sentence)
        self.is_unreachable = is_unreachable


class StateFile:
    """Locked while it is open: two agents with one state would send the same lines twice."""

    def __init__(self, path: Path) -> None:
        """Raises TailError if another agent has it, or the directory cannot be written."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise TailError(f"{path}: {error.strerror}; name another file with --state") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise TailError(f"another agent runs with {path}; give this agent another --id or --state") from error

    def close(self) -> None:
        os.close(self._lock)

    def load(self) -> dict[str, Position]:
        """Raises TailError for what is no state: to start from nothing would send everything again."""
        try:
            document = json.loads(self.path.read_bytes())
            positions = [Position.from_json(each) for each in document["files"]]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise TailError(f"{self.path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise TailError(f"{self.path} holds no positions; remove it to read all files from their start") from error
        return {position.key: position for position in positions}

    def save(self, positions: Iterable[Position]) -> None:
        """On the disk when this returns. Raises TailError."""
        text = json.dumps({"version": 1, "files": [position.to_json() for position in positions]})
        beside = Path(f"{self.path}.new")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.path)
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise TailError(f"{self.path}: {error.strerror}") from error
