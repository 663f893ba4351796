"""The result of every decision of the controller: an answer, and the records that make it true."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.metadata.image import MetadataImage
from ottla.model import Millis

Response = TypeVar("Response")

RECORDS_PER_DECISION_MAX = 10_000
"""One decision is one record batch, so that it is applied whole or not at all; Kafka has the same limit per request."""


class Decision(NamedTuple, Generic[Response]):
    """`response` may be sent once `records` are committed. A decision without records needs no write."""

    response: Response
    records: Sequence[Any] = ()


Decide = Callable[[MetadataImage, Millis], Decision[Response]]
"""Looks at the image (and the wall clock) and decides. Raises KafkaError to refuse without any record."""
