"""Requests about several topics or groups at once: each is reported by itself, the worst decides the exit code."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from ottla.cli.client import error_of, explain, wait
from ottla.cli.exits import FAILED, OK, UNREACHABLE, CommandFailed
from ottla.cli.output import print_json


def report_each(
    kind: str, futures: Mapping[str, Future[Any]], verb: str, as_json: bool, *, ignored: tuple[str, str] | None = None
) -> int:
    """Wait for the answers about each `kind` (topic, group) and print them. Raises CommandFailed with all refusals but
    those of the error `ignored`, which comes with what to print instead of the verb."""
    from confluent_kafka import KafkaException

    results = []
    failures: list[str] = []
    code = OK
    for name, future in futures.items():
        result: dict[str, Any] = {kind: name, "error": None}
        said = verb
        try:
            wait(future)
        except KafkaException as exception:
            error = error_of(exception)
            if ignored is not None and error.name() == ignored[0]:
                said = ignored[1]
            else:
                sentence, unreachable = explain(exception, f"{kind} {name!r}: ")
                result |= {"error": error.name(), "message": error.str()}
                failures.append(sentence)
                code = max(code, UNREACHABLE if unreachable else FAILED)
        results.append(result)
        if not as_json and result["error"] is None:
            print(f"{name} {said}")
    if as_json:
        print_json(results)
    if failures:
        raise CommandFailed("\nottla: ".join(failures), code)
    return OK
