"""The result of every decision of the controller: an answer, and the records that make it true."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.model import Millis

if TYPE_CHECKING:
    from ottla.config.effective import EffectiveConfig
    from ottla.controller.broker_sessions import BrokerSessions
    from ottla.security.tokens import TokenFinder

Request = Mapping[str, Any]
Response = TypeVar("Response")

RECORDS_PER_DECISION_MAX = 10_000
"""An atomic decision is one record batch, so that it is applied whole or not at all; Kafka's limit per request."""


class Decision(NamedTuple, Generic[Response]):
    """`response` may be sent once `records` are committed. A decision without records needs no write."""

    response: Response
    records: Sequence[Any] = ()
    atomic: bool = True
    """False where each record makes sense alone, so that there may be any number of them."""

    def check_size(self) -> None:
        """Raises KafkaError POLICY_VIOLATION for an atomic decision that is too large, as Kafka does."""
        if self.atomic and len(self.records) > RECORDS_PER_DECISION_MAX:
            raise KafkaError(
                ErrorCode.policy_violation,
                f"Excessively large number of partitions per request: {len(self.records)} records in one operation, "
                f"the limit is {RECORDS_PER_DECISION_MAX}",
            )


Permits = Callable[[int], bool]
"""Takes so many creations or deletions of partitions from a client's quota; False where it may not have them."""


def unlimited(partitions: int) -> bool:
    """For whom no quota holds."""
    return True


Steps = Generator[None, None, Decision[Response]]
"""A decision about many items, taken in steps: at each yield others may run. Nobody changes the image meanwhile, since
there is one controller, which takes one decision after the other."""

ITEMS_PER_STEP = 32
"""Topics and the like cost about 0.2 ms each."""

NAMES_PER_STEP = 1000
"""Looking at a name, or at one number of an item, costs less than a microsecond."""

Decide = Callable[[MetadataImage, Millis], Decision[Response] | Steps[Response]]
"""Looks at the image (and the wall clock) and decides. Raises KafkaError to refuse without any record."""


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
    node_id: int = 1
    """The active controller."""
    voters: Callable[[], Sequence[int]] = tuple
    """The ids of the controllers that vote."""
    tokens: TokenFinder | None = None
    """Finds delegation tokens; None where the node has no secret for them."""


Decider = Callable[[MetadataImage, Any, Inputs], Decision[Any] | Steps[Any]]
