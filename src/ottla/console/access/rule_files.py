"""The files of masks and roles, which are read again when they change: nobody has to restart the console, and with it
the log-ins of its users, to give or take a right.

A file that is wrong changes nothing. The rules before it stay in force, and the log and the audit log say why.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.console.access.roles import Identity, Roles, read_roles
from ottla.console.masks import read_masks
from ottla.errors import OttlaError
from ottla.logs import errors_logged, fields

if TYPE_CHECKING:
    from ottla.console.asking import Site

_LOG = logging.getLogger("ottla.console")

LOOK_S: Final = 1.0
"""How long a change may stay unseen."""
SYSTEM: Final = Identity("(console)")
"""The name in the audit log for whoever changes rules: the files say nothing of who wrote them."""

_State = tuple[int, int, int] | None


def roles_of_file(path: Path, providers: Sequence[str]) -> Roles:
    """Raises OttlaError."""
    from ottla.console.acts.table import BY_NAME

    return read_roles(path, BY_NAME, providers)


class RuleFiles:
    """A thread that looks at the files."""

    def __init__(self, site: Site, masks: Path | None, roles: Path | None, providers: Sequence[str]) -> None:
        """Raises OttlaError."""
        self._site = site
        self._providers = tuple(providers)
        reads = ((masks, "masks", self._read_masks), (roles, "roles", self._read_roles))
        self._files = [(path, what, read) for path, what, read in reads if path is not None]
        self._seen = {path: _state(path) for path, *_ in self._files}
        for path, _, read in self._files:
            read(path)  # what was read before may be older than what was seen
        self._changed: Callable[[], None] = lambda: None
        self._stopping = threading.Event()

    def start(self, changed: Callable[[], None]) -> None:
        """`changed` is called after each change, from this thread."""
        self._changed = changed
        if self._files:
            threading.Thread(target=self._run, name="console rules", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def look(self) -> None:
        """Read what has changed since the last look."""
        for path, what, read in self._files:
            state = _state(path)
            if state == self._seen[path]:
                continue
            self._seen[path] = state
            try:
                read(path)
            except OttlaError as error:
                _LOG.error(
                    "a file of rules is wrong: the rules before it stay in force",
                    extra=fields(file=str(path), why=str(error)),
                )
                self._site.trail.note("rules", SYSTEM, "refused", what=what, why=str(error))
            else:
                _LOG.warning("new rules were read", extra=fields(file=str(path)))
                self._site.trail.note("rules", SYSTEM, "accepted", what=what)
                self._changed()

    def _read_masks(self, path: Path) -> None:
        self._site.masks.rules = read_masks(path).rules

    def _read_roles(self, path: Path) -> None:
        self._site.roles.replace(roles_of_file(path, self._providers))

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            with errors_logged(_LOG, "reading rules"):
                self.look()


def _state(path: Path) -> _State:
    """What changes with a file; also where another file takes its place, as in a volume of Kubernetes."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
