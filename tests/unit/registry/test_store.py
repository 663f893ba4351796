"""The topic of the schemas, as far as it needs no broker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.registry.state import State
from ottla.registry.store import StoreClosed, Topic


def test_closing_ends_the_wait_for_a_record() -> None:
    """A registry that is stopped as it becomes the leader once went on for 30 s and then logged an error."""
    topic = Topic({}, "schemas", State())
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(topic.wait_for, 0)
        topic.close()
        with pytest.raises(StoreClosed):
            waiting.result(10)
