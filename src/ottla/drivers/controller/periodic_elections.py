"""What the active controller does by itself, about leaders (`ottla.controller.leader_elections`) and delegation
tokens that have ended (`ottla.controller.tokens`); Kafka's `PeriodicTask`s."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.config.effective import EffectiveConfig
from ottla.controller.decision import Decide, Steps
from ottla.controller.leader_elections import balance_leaders, elect_unclean_leaders
from ottla.errors import KafkaError
from ottla.metadata.image import MetadataImage

Elect = Callable[[MetadataImage, EffectiveConfig], Steps[bool]]

TOKEN_CHECK_SECONDS_MAX = 86_400.0
"""No timer lasts for longer; expired tokens that are removed earlier than asked for are of no use to anybody."""


class PeriodicElections:
    """Runs between `start` and `stop`, while its controller is the active one."""

    def __init__(
        self, submit: Callable[[Decide[Any]], Awaitable[Any]], config: Callable[[MetadataImage], EffectiveConfig]
    ) -> None:
        """`submit` runs a decision and gives its response; `config`: the settings that an image leads to."""
        self._submit = submit
        self._config = config
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, image: MetadataImage) -> None:
        config, loop = self._config(image), asyncio.get_running_loop()
        kinds = [(config.unclean_leader_election_interval_ms / 1000, elect_unclean_leaders)]
        if config.auto_leader_rebalance_enable:
            kinds.append((config.leader_imbalance_check_interval_seconds, balance_leaders))
        self._tasks = [loop.create_task(self._repeat(interval_s, elect)) for interval_s, elect in kinds]
        if config.delegation_token_secret_key:
            interval_s = min(config.delegation_token_expiry_check_interval_ms / 1000, TOKEN_CHECK_SECONDS_MAX)
            self._tasks.append(loop.create_task(self._remove_tokens(interval_s)))

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def _repeat(self, interval_s: float, elect: Elect) -> None:
        try:
            while True:
                await asyncio.sleep(interval_s)
                while await self._submit(lambda image, now: elect(image, self._config(image))):
                    pass
        except KafkaError:  # another controller is the active one
            return

    async def _remove_tokens(self, interval_s: float) -> None:
        from ottla.controller.tokens import expired  # most clusters have no tokens

        try:
            while True:
                await asyncio.sleep(interval_s)
                await self._submit(expired)
        except KafkaError:  # another controller is the active one
            return
