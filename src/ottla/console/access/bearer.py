"""The tokens of one login at an identity provider, renewed before they end."""

from __future__ import annotations

import threading
from typing import Final

from ottla.client.security import SecurityFailure
from ottla.console.access.provider import LoginFailed, Provider, ProviderAway, Tokens
from ottla.console.access.roles import Identity

RENEW_S: Final = 30.0
"""Before its end a token is renewed, or half of its life before where it lives shorter than a minute."""
AGAIN_S: Final = 5.0
"""Between two attempts where the provider does not answer."""


class Bearer:
    """For any thread."""

    def __init__(self, provider: Provider, tokens: Tokens) -> None:
        self.provider = provider
        self._tokens = tokens
        self._lock = threading.Lock()
        self._has_ended = False
        self._renew_at_s = self._due(tokens)

    def _due(self, tokens: Tokens) -> float:
        left_s = max(0.0, tokens.ends_at_s - self.provider.now())
        return tokens.ends_at_s - min(RENEW_S, left_s / 2)

    @property
    def identity(self) -> Identity:
        return self._tokens.identity

    @property
    def tokens(self) -> Tokens:
        return self._tokens

    @property
    def is_due(self) -> bool:
        return self.provider.now() >= self._renew_at_s

    @property
    def is_over(self) -> bool:
        return self._has_ended or self.provider.now() >= self._tokens.ends_at_s

    def end(self) -> None:
        """The user has logged out: nothing is renewed any more."""
        self._has_ended = True

    def renew(self) -> None:
        """Renew the tokens if they end soon. Blocks. Where the provider refuses, the login is over; where it is away,
        the tokens are used until their end."""
        with self._lock:
            if not self.is_due or self._has_ended:
                return
            if self._tokens.refresh is None:
                return
            try:
                self._tokens = self.provider.refresh(self._tokens)
                self._renew_at_s = self._due(self._tokens)
            except LoginFailed:
                self._has_ended = True
            except ProviderAway:
                self._renew_at_s = self.provider.now() + AGAIN_S

    def token(self) -> str:
        """What the brokers are shown. Raises SecurityFailure."""
        if self.is_due:
            self.renew()
        if self.is_over:
            raise SecurityFailure(f"the login at {self.provider.settings.title} is over: log in again")
        return self._tokens.credential
