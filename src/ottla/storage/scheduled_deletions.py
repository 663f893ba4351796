"""Files and directories that are to be removed when `file.delete.delay.ms` is over, off the event loop."""

from __future__ import annotations

from ottla.filesystem import FileSystem
from ottla.model import Millis
from ottla.storage.log_directories import DELETE_SUFFIX, Warn


class ScheduledDeletions:
    """What was renamed for deletion. Readers keep what they have open; the delay is for those who open it late."""

    def __init__(self, fs: FileSystem, warn: Warn) -> None:
        self._fs = fs
        self._warn = warn
        self._entries: list[tuple[Millis, str]] = []

    def add(self, due_ms: Millis, path: str) -> None:
        self._entries.append((due_ms, path))

    def take(self, entries: list[tuple[Millis, str]]) -> None:
        """Take over what a log has scheduled; its list is empty then."""
        self._entries += entries
        entries.clear()

    def has_due_directory(self, now_ms: Millis) -> bool:
        return any(due_ms <= now_ms and path.endswith(DELETE_SUFFIX) for due_ms, path in self._entries)

    async def delete_due(self, now_ms: Millis) -> int:
        """Unlink what is due; returns how many. What cannot be removed stays, with a warning, until the next start."""
        due = [path for due_ms, path in self._entries if due_ms <= now_ms]
        if not due:
            return 0
        self._entries = [entry for entry in self._entries if entry[0] > now_ms]
        fs = self._fs

        def remove() -> None:
            for path in due:
                try:
                    if path.endswith(DELETE_SUFFIX):
                        fs.rmtree(path)
                    else:
                        fs.remove(path)
                except FileNotFoundError:
                    pass

        try:
            await fs.run(remove)
        except OSError as error:
            self._warn("scheduled files could not be deleted", error=str(error))
        return len(due)
