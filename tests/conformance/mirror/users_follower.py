"""A process that keeps the users of a destination as they are at a source, round after round, until it is killed.

`python -m tests.conformance.mirror.users_follower SOURCE CONTROLLERS DESTINATION [apply | note]`. With `apply` it kills
itself when it is about to write what it has decided, with `note` when that is written and not noted yet.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from confluent_kafka import KafkaException

from ottla.errors import KafkaError
from ottla.mirror.carrying import Carry
from ottla.mirror.mirror import Mirror, Route
from tests.conformance.mirror.logins import of


def route(source: str, controllers: str, destination: str) -> Route:
    return Route(
        "a",
        source,
        "b",
        destination,
        "none",
        "none",
        destination_security=of("admin", "a"),
        carry=Carry(frozenset({"users"}), True),
        source_controllers=controllers,
    )


def main(source: str, controllers: str, destination: str, kill_at: str = "") -> None:
    mirror = Mirror(route(source, controllers, destination))

    def killed(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if kill_at == "apply":
        apply = mirror._administration.apply
        mirror._administration.apply = lambda todo: killed() if todo else apply(todo)  # type: ignore[method-assign]
    elif kill_at == "note":
        note = mirror._note_credentials
        mirror._note_credentials = lambda of: killed() if (all_ := list(of)) else note(all_)  # type: ignore
    while True:
        try:  # as `Mirror.follow` does with what else it keeps alike
            mirror.control.ensure()
            mirror.control.load()
            done = mirror.sync_rest([])
        except (KafkaException, KafkaError, OSError) as error:
            print(f"not now: {error}", flush=True)
        else:
            print(f"did {[(each.action, each.name) for each in done]}", flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
