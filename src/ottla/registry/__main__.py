"""`python -m ottla.registry OPTIONS`: an instance that ends with whoever started it. OPTIONS are JSON.

Where they have `"http": true`, the first line of standard input is JSON as well, with the settings of its port: these
may hold secrets, and everyone on a machine sees arguments.
"""

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
        options = json.loads(arguments[0])
        http = json.loads(sys.stdin.buffer.readline()) if options.pop("http", False) else {}
        security = security_from()  # from the environment, for the same reason
        run(Options(**options, security=security, http=http), _announce)
    except (OttlaError, WrongSecurity, KafkaError) as error:
        print(f"ottla: schema registry: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
