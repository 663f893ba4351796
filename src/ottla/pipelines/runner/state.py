"""A pipeline's directory: its lock, what `ottla pipeline status` shows, the request to stop, and its checkpoints."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ottla.pipelines.runner.errors import PipelineError

STARTING, RUNNING, STOPPING, DONE = "starting", "running", "stopping", "done"
STOPPED, FAILED, DIED = "stopped", "failed", "died"


def default_directory() -> Path:
    """`$XDG_STATE_HOME/ottla/pipelines`, or `~/.local/state/...`."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "ottla" / "pipelines"


@dataclass
class QueryStatus:
    """How one query does. Rates are of the last batch, lags of now."""

    name: str
    rows: int = 0
    """Read since this run began."""
    batch: int = -1
    rows_per_s: float = 0.0
    batch_s: float = 0.0
    running_s: float = 0.0
    """For how long the batch that is under way has been so; 0 between two batches."""
    lag_records: int | None = None
    """Records that are not processed yet; None until it is known how far the query is."""
    lag_s: float | None = None
    """Age of the oldest record not processed yet."""
    state_rows: int = 0
    state_bytes: int = 0
    late_rows: int = 0
    """Rows that came behind the watermark and were dropped, since this run began."""
    restarts: int = 0
    error: str = ""


@dataclass
class Status:
    """How a run does, as it was written down last."""

    name: str
    state: str = STARTING
    pid: int = 0
    started_at: str = ""
    updated_at: str = ""
    bootstrap: str = ""
    master: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    waits_for: list[str] = field(default_factory=list)
    """Queries whose batch a run that is stopped lets finish."""
    dead_letters: int = 0
    """Records in its dead-letter topic."""
    queries: list[QueryStatus] = field(default_factory=list)
    error: str = ""


class Directory:
    """DIRECTORY/NAME."""

    _STATUS: Final = "status.json"
    _STOP: Final = "stop"
    _LOCK: Final = "lock"

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.path = root / name

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def log(self) -> Path:
        """The log of Spark and the runner."""
        return self.path / "spark.log"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One run at a time. Raises PipelineError where another has it, OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / self._LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(f"{self.name} is running already (in {self.path})") from None
            (self.path / self._STOP).unlink(missing_ok=True)
            yield

    def note(self, text: str) -> None:
        """Write a line of the runner's into the log, between Spark's."""
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        with contextlib.suppress(OSError), self.log.open("a", encoding="utf-8") as file:
            file.write(f"{now} {self.name}: {text}\n")

    def is_locked(self) -> bool:
        """Whether a run has it. The lock dies with its process, however that ends."""
        try:
            with (self.path / self._LOCK).open("r") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def ask_to_stop(self) -> None:
        (self.path / self._STOP).touch()

    def is_asked_to_stop(self) -> bool:
        return (self.path / self._STOP).exists()

    def write(self, status: Status) -> None:
        """Whole or not at all: readers see the old one until then."""
        new = self.path / f"{self._STATUS}.new"
        new.write_text(json.dumps(asdict(status)))
        new.replace(self.path / self._STATUS)

    def status(self) -> Status | None:
        """The last one, `died` where its process left without a word; None where it never ran."""
        try:
            found = json.loads((self.path / self._STATUS).read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise PipelineError(f"{self.path / self._STATUS} cannot be read: {error}") from None
        queries = [QueryStatus(**query) for query in found.pop("queries")]
        status = Status(**found, queries=queries)
        if status.state in (STARTING, RUNNING, STOPPING) and not self.is_locked():
            status.state = DIED
        return status


def all_statuses(root: Path) -> list[Status]:
    """The status of every pipeline that ever ran there, by name."""
    if not root.is_dir():
        return []
    found = [Directory(root, path.name).status() for path in sorted(root.iterdir()) if path.is_dir()]
    return [status for status in found if status is not None]
