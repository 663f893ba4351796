"""Records as `produce` of `Broker` and `Cluster` takes them and `consume` returns them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ottla.testing.process import BrokerError

Text: TypeAlias = str | bytes | None
"""`str` is encoded as UTF-8; None is Kafka's null (a tombstone, as a value)."""
Headers: TypeAlias = Mapping[str, Text] | Iterable[tuple[str, Text]]

TIMEOUT_S = 30.0
"""How long `produce` and `consume` wait unless told otherwise."""


@dataclass(frozen=True, slots=True, init=False)
class Record:
    """One record: what `consume` returns, and what `produce` takes where a value alone is not enough.

    `partition`, `timestamp` (milliseconds since 1970) and `offset` are -1 where they are not given: `produce` then
    chooses the partition, and stamps the record with the present time.
    """

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int
    timestamp: int
    offset: int
    topic: str

    def __init__(
        self,
        value: Text = None,
        key: Text = None,
        headers: Headers = (),
        partition: int = -1,
        timestamp: int = -1,
        offset: int = -1,
        topic: str = "",
    ) -> None:
        """Raises TypeError for a key, a value or a header that is neither text nor bytes."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        fields = {
            "value": _as_bytes("value", value),
            "key": _as_bytes("key", key),
            "headers": tuple((name, _as_bytes(f"header {name}", each)) for name, each in pairs),
            "partition": partition,
            "timestamp": timestamp,
            "offset": offset,
            "topic": topic,
        }
        for name, each in fields.items():
            object.__setattr__(self, name, each)


Value: TypeAlias = Text | Record


class ConsumeTimeout(BrokerError, TimeoutError):
    """Fewer records came than were asked for. `records` has those that came."""

    def __init__(self, what: str, records: list[Record]) -> None:
        super().__init__(what)
        self.records = records


def _as_bytes(what: str, text: object) -> bytes | None:
    if text is None or isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, bytearray | memoryview):
        return bytes(text)
    raise TypeError(f"{what} is str, bytes or None, not {kind_of(text)}")


def kind_of(value: object) -> str:
    return f"{type(value).__name__}: encode it first, for example with json.dumps"
