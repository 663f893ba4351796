"""The progress of a walk in a file, so that one that was killed goes on where it was."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.migrate.survey import KAFKA, OTTLA

STOPPING, STARTING = "stopping", "starting"


@dataclass
class Journal:
    """Each change is on disk before what it speaks of begins."""

    path: Path
    cluster_id: str
    target: str
    """KAFKA or OTTLA: whose software the nodes are to have."""
    node: int | None = None
    """The node that is being exchanged: it may be away, and no other."""
    phase: str | None = None
    silent: bool = False
    """The node's listener could not be asked when it was begun."""
    done: dict[str, float] = field(default_factory=dict)
    """Nodes that have been exchanged, by id, with the seconds that it took."""

    def turn(self, target: str) -> None:
        """The walk goes the other way from now on; the node between the two stays the one that may be away."""
        if self.target != target:
            self.target, self.done, self.phase = target, {}, None
            self.write()

    def begin(self, node: int, phase: str, *, silent: bool = False) -> None:
        self.node, self.phase, self.silent = node, phase, silent
        self.write()

    def finish(self, node: int, seconds: float) -> None:
        self.node, self.phase, self.silent = None, None, False
        self.done[str(node)] = round(seconds, 1)
        self.write()

    def write(self) -> None:
        """Raises CommandFailed."""
        values = {"version": 1, **{name: value for name, value in asdict(self).items() if name != "path"}}
        part = self.path.with_name(self.path.name + ".part")
        try:
            with open(part, "w", encoding="utf-8") as file:
                json.dump(values, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self.path)
            directory = os.open(self.path.absolute().parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise CommandFailed(f"the progress cannot be written to {self.path}: {error.strerror or error}") from error


def load(path: Path, cluster_id: str, target: str) -> Journal:
    """The progress that a walk has left, or a new one. Raises CommandFailed for a file of another cluster, or one that
    cannot be read."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Journal(path, cluster_id, target)
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{path} cannot be read as the progress of a walk: {error}", MISUSED) from error
    try:
        found = Journal(
            path,
            values["cluster_id"],
            values["target"],
            values["node"],
            values["phase"],
            values["silent"],
            {str(int(node)): float(seconds) for node, seconds in values["done"].items()},
        )
        is_sound = (
            values["version"] == 1
            and found.target in (KAFKA, OTTLA)
            and (found.node is None or isinstance(found.node, int))
            and found.phase in (None, STOPPING, STARTING)
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        is_sound = False
    if not is_sound:
        raise CommandFailed(f"{path} is not the progress of a walk: give another file with --journal", MISUSED)
    if found.cluster_id != cluster_id:
        raise CommandFailed(
            f"{path} is of cluster {found.cluster_id}, and this is {cluster_id}: give another file with --journal",
            MISUSED,
        )
    return found


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """No second walk with the same file. Raises CommandFailed where one runs."""
    try:
        file = open(path.with_name(path.name + ".lock"), "ab")  # noqa: SIM115 - open as long as the walk
    except OSError as error:
        raise CommandFailed(f"the progress cannot be written to {path}: {error.strerror or error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CommandFailed(f"another walk is under way with {path}") from None
        yield
