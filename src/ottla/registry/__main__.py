"""`python -m ottla.registry OPTIONS`: an instance that ends with whoever started it. OPTIONS are JSON."""

from __future__ import annotations

import json
import sys
import threading

from ottla import logs
from ottla.client.properties import security_from
from ottla.client.security_settings import WrongSecurity
from ottla.errors import KafkaError, OttlaError
from ottla.registry.server import Instance, Options, run


def _announce(instance: Instance) -> None:
    print(f"ottla: schema registry at {instance.url}", flush=True)

    def watch() -> None:
        sys.stdin.buffer.read()  # ends with the process that has the other end
        instance.stop()

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    logs.configure("text", "WARN")
    try:
        security = security_from()  # from the environment: everyone sees arguments
        run(Options(**json.loads(arguments[0]), security=security), _announce)
    except (OttlaError, WrongSecurity, KafkaError) as error:
        print(f"ottla: schema registry: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
