"""Tokens of forms: a change comes from a page that this user was shown, and is made once however often it is sent.

A token is known from the moment that a form is shown until its outcome is dropped. One that was dropped is unknown, so
that no limit makes an old form act again.
"""

from __future__ import annotations

import secrets
import threading
from typing import Any, Final

ISSUED_MAX: Final = 500
"""Forms of one user that may still be sent; beyond, the oldest must be loaded again."""
OUTCOMES_MAX: Final = 100
"""Outcomes that are shown again when a form is sent again."""
NAME_MAX: Final = 100
"""Characters of a token that a program makes itself."""


class UnknownToken(Exception):
    """The token was never given to this user, is of another act, or is too old."""


class StillActing(Exception):
    """The same form was sent before, and its outcome is not known yet."""


class Tokens:
    """Tokens of one user; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._issued: dict[str, str] = {}
        """Token to the act that its form is of, oldest first."""
        self._acting: set[tuple[str, str]] = set()
        self._outcomes: dict[tuple[str, str], Any] = {}

    def issue(self, act: str) -> str:
        token = secrets.token_urlsafe(24)
        with self._lock:
            self._issued[token] = act
            while len(self._issued) > ISSUED_MAX:
                self._issued.pop(next(iter(self._issued)))
        return token

    def check(self, token: str, act: str) -> None:
        """Raises UnknownToken for one whose form may not be sent, or was."""
        with self._lock:
            if self._issued.get(token) != act:
                raise UnknownToken

    def take(self, token: str, act: str) -> Any:
        """The outcome where the form was sent before, else None: then it is used up, and `keep` or `drop` follows.
        Raises UnknownToken, StillActing."""
        with self._lock:
            known = self._known(token, act)
            if known is None and self._issued.get(token) != act:
                raise UnknownToken
            if known is None:
                del self._issued[token]
                self._acting.add((act, token))
            return known

    def take_own(self, name: str, act: str) -> Any:
        """The same for the name that a program gave its request. Raises StillActing."""
        with self._lock:
            known = self._known(f"own {name}", act)
            if known is None:
                self._acting.add((act, f"own {name}"))
            return known

    def _known(self, token: str, act: str) -> Any:
        if (act, token) in self._acting:
            raise StillActing
        return self._outcomes.get((act, token))

    def keep(self, token: str, act: str, outcome: Any) -> None:
        with self._lock:
            self._acting.discard((act, token))
            self._outcomes[act, token] = outcome
            while len(self._outcomes) > OUTCOMES_MAX:
                self._outcomes.pop(next(iter(self._outcomes)))

    def drop(self, token: str, act: str) -> None:
        """Nothing was done, so that the same may be tried again with a fresh form."""
        with self._lock:
            self._acting.discard((act, token))
