"""The keys of an identity provider (JWKS), fetched over HTTPS and kept fresh (KIP-768).

Without keys no token is accepted. A provider that is away for a while costs nothing: the keys that are known stay.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.drivers.nodes.identity_provider import Endpoint, ask, in_a_thread
from ottla.logs import fields
from ottla.security.sasl.jwt import KeySet, parse_keys

_LOG = logging.getLogger("ottla.authentication")

EXPEDITED_SECONDS_MIN: Final = 10.0
"""Between two fetches that tokens with unknown keys cause: anyone can send one."""
WARNING_SECONDS: Final = 60.0
"""Between two warnings that the keys cannot be fetched."""


class JwksSettings(NamedTuple):
    """Settings `sasl.oauthbearer.jwks.endpoint.*`."""

    endpoint: Endpoint
    refresh_s: float
    backoff_s: float
    backoff_s_max: float


class JwksKeys:
    """The keys of one URL. All methods belong to the event loop's thread."""

    def __init__(
        self,
        settings: JwksSettings,
        random: random_module.Random,
        get: Callable[[Endpoint], bytes] = ask,
    ) -> None:
        self.keys = KeySet()
        """Empty until the first fetch has succeeded."""
        self._settings = settings
        self._random = random
        self._get = get
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._expedited_at = -EXPEDITED_SECONDS_MIN
        self._warned_at = -WARNING_SECONDS
        self._fetched = asyncio.Event()

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def wait_fetched(self) -> None:
        """Returns when keys are there."""
        await self._fetched.wait()

    def expedite(self) -> None:
        """A token has a key that is not known: the provider may have a new one."""
        now = asyncio.get_running_loop().time()
        if now - self._expedited_at >= EXPEDITED_SECONDS_MIN:
            self._expedited_at = now
            self._wanted.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            self._wanted.clear()
            try:
                keys: KeySet = await in_a_thread(lambda: parse_keys(self._get(self._settings.endpoint)))
            except (OSError, ValueError) as error:
                failures += 1
                self._warn(error)
                await asyncio.sleep(self._backoff_s(failures))
                continue
            failures = 0
            self.keys = keys
            self._fetched.set()
            try:
                async with asyncio.timeout(self._settings.refresh_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    def _warn(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._warned_at < WARNING_SECONDS:
            return
        self._warned_at = now
        effect = "the keys of before stay" if self.keys.keys else "no token is accepted until then"
        _LOG.warning(
            "the keys of the identity provider cannot be fetched; %s",
            effect,
            extra=fields(url=self._settings.endpoint.url, error=str(error) or type(error).__name__),
        )

    def _backoff_s(self, failures: int) -> float:
        doubled = self._settings.backoff_s * 2.0 ** min(failures - 1, 30)
        return min(doubled * (0.8 + 0.4 * self._random.random()), self._settings.backoff_s_max)
