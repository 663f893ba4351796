"""What a decision of the controller is made from, and the type of a function that makes one."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.config.effective import EffectiveConfig
from ottla.controller.decision import Decision, Permits, Steps, unlimited
from ottla.controller.sessions import BrokerSessions
from ottla.metadata.image import MetadataImage

if TYPE_CHECKING:
    from ottla.security.tokens import TokenFinder

Request = Mapping[str, Any]
Response = dict[str, Any]


class Inputs(NamedTuple):
    """Inputs of a decision besides the image and the request."""

    config: EffectiveConfig
    """The controller's own settings with the dynamic ones of the image."""
    random: random_module.Random
    cluster_id: str
    sessions: BrokerSessions
    permits: Permits = unlimited
    """Mutations that the requesting client may still make (KIP-599)."""
    now_ms: int = 0
    requester: str = "User:ANONYMOUS"
    """The principal that asks."""
    tokens: TokenFinder | None = None
    """Finds delegation tokens; None where the node has no secret for them."""


Decider = Callable[[MetadataImage, Request, Inputs], Decision[Any] | Steps[Any]]
