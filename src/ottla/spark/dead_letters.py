"""Records that could not be read, produced to `dead.letter.topic` by the task that met them.

At least once: a task that fails later is run again and finds them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.client import librdkafka
from ottla.client.config import ClientConfig

if TYPE_CHECKING:
    from ottla.formats.typed import DeadLetter

_FLUSH_S: Final = 120.0


class DeadLetters:
    """Connects for the first letter. A context manager: no letter is left behind when a task ends."""

    def __init__(self, config: ClientConfig, topic: str | None) -> None:
        self._config = config
        self._topic = topic
        self._producer: Any = None
        self._errors: list[str] = []

    def __enter__(self) -> DeadLetters:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer = None

    def send(self, letters: Sequence[DeadLetter]) -> None:
        """Returns when the broker has them: what Spark is given next may be the last that it takes. Raises
        RuntimeError."""
        if not letters:
            return
        producer = self._connected()
        for letter in letters:
            while True:
                try:
                    producer.produce(
                        self._topic, letter.value, letter.key, headers=letter.headers, on_delivery=self._delivered
                    )
                    break
                except BufferError:  # librdkafka's queue has a limit
                    producer.poll(0.1)
        left = producer.flush(_FLUSH_S)
        if left or self._errors:
            why = self._errors[0] if self._errors else f"no answer in {_FLUSH_S:.0f} s"
            raise RuntimeError(f"dead.letter.topic: {len(letters)} records to {self._topic} were not stored: {why}")

    def _connected(self) -> Any:
        if self._producer is None:
            from confluent_kafka import Producer

            self._producer = Producer(
                {
                    "bootstrap.servers": ",".join(self._config.bootstrap),
                    "client.id": self._config.client_id,
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    **librdkafka.settings_of(self._config.security),
                }
            )
        return self._producer

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._errors.append(str(error))
