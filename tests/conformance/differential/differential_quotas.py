"""What is asked of both brokers about client quotas: see differential_cases.py. Those set here hold for nobody:
names are the test's own, and addresses those of documents (RFC 5737)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.protocol.messages import ApiKey
from tests.conformance.differential.differential_cases import Requests, World, cases
from tests.conformance.operations.operations import eventually

Names = Sequence[tuple[str, str | None]]

EXACT, DEFAULT, SPECIFIED = range(3)


def entry(names: Names, ops: Sequence[tuple[str, float | None]]) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in names],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
    }


def alter(*entries: Mapping[str, Any], validate_only: bool = False) -> dict[str, Any]:
    return {"entries": list(entries), "validate_only": validate_only}


@cases(ApiKey.ALTER_CLIENT_QUOTAS)
def alter_client_quotas(w: World, version: int) -> Requests:
    yield alter()
    user, both = [("user", w.prefix)], [("client-id", f"{w.prefix}c"), ("user", w.prefix)]
    address = [("ip", "192.0.2.1")]
    rate = [("producer_byte_rate", 1000.0)]
    for names in ([], user, both, [("user", None)], [("client-id", None), ("user", None)], [("ip", None)], address):
        yield alter(entry(names, []), validate_only=True)
        for key in (
            "producer_byte_rate",
            "consumer_byte_rate",
            "request_percentage",
            "controller_mutation_rate",
            "connection_creation_rate",
            "nonsense",
            "",
        ):
            for value in (1.0, 0.5, 0.0, -1.0, 1e300, 2.0**31 - 1, 2.0**31, 2.0**63, 2.0**64, 5.0000001, 5.00001):
                yield alter(entry(names, [(key, value)]), validate_only=True)
            yield alter(entry(names, [(key, None)]), validate_only=True)
    for bad in (
        [("user", "")],
        [("client-id", "")],
        [("topic", "t")],
        [("", "t")],
        [*address, *user],
        [("ip", "")],
        [("ip", "999.1.1.1")],
        [("User", "x")],
    ):
        yield alter(entry(bad, rate), validate_only=True)
    yield alter(entry([("user", "a"), ("user", w.prefix)], rate), validate_only=True)
    yield alter(entry(user, [*rate, *rate]), validate_only=True)
    for names in (user, both, [("client-id", None), ("user", w.prefix)], address):
        ops = [("connection_creation_rate", 7.0)] if names is address else rate
        yield alter(entry(names, ops), entry(names, ops), validate_only=True)
    yield alter(entry(user, rate), entry([("user", "")], rate), entry(both, [("nonsense", 1.0)]), validate_only=True)
    yield alter(entry(user, rate))
    yield alter(entry(user, rate))
    yield alter(entry(user, [("producer_byte_rate", None), ("consumer_byte_rate", None)]))


def only(*components: tuple[str, int, str | None], strict: bool = False) -> dict[str, Any]:
    rows = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    return {"components": rows, "strict": strict}


def wait_for_entries(w: World, client_id: str, count: int) -> None:
    """The last of the changes is one of a client id: brokers hear of it a moment after the controller's answer."""
    values = only(("client-id", EXACT, client_id))
    for side in w.sides:
        eventually(lambda side=side: len(side.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, values)["entries"] or ()) == count)


@cases(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(w: World, version: int) -> Requests:
    user, client_id = f"{w.prefix}user", f"{w.prefix}client"
    entities: Sequence[Names] = (
        [("user", user)],
        [("client-id", client_id)],
        [("client-id", client_id), ("user", user)],
        [("client-id", None), ("user", user)],
        [("client-id", client_id), ("user", None)],
    )
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
    for number, names in enumerate(entities):
        for side in w.sides:
            ops = [(key, 1000.0 * number + 50) for key in keys[: 1 + number % 3]]
            answer = side.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, alter(entry(names, ops)))
            assert not answer["entries"][0]["error_code"], answer
    wait_for_entries(w, client_id, 3)
    for strict in (False, True):
        yield only(("user", EXACT, user), strict=strict)
        yield only(("client-id", EXACT, client_id), strict=strict)
        yield only(("client-id", EXACT, client_id), ("user", DEFAULT, None), strict=strict)
        yield only(("client-id", SPECIFIED, None), ("user", EXACT, user), strict=strict)
        yield only(("client-id", DEFAULT, None), ("user", EXACT, user), strict=strict)
        yield only(("client-id", EXACT, f"{w.prefix}nobody"), strict=strict)
        yield only(("ip", EXACT, "192.0.2.77"), strict=strict)
        yield only(("", EXACT, user), strict=strict)
        yield only(("topic", EXACT, user), strict=strict)
        yield only(("user", EXACT, None), strict=strict)
        yield only(("user", DEFAULT, user), strict=strict)
        yield only(("user", SPECIFIED, user), strict=strict)
        for how in (3, -1):
            yield only(("user", how, None), strict=strict)
        yield only(("user", EXACT, user), ("user", DEFAULT, None), strict=strict)
        yield only(("ip", EXACT, "192.0.2.77"), ("user", EXACT, user), strict=strict)
    for names in entities:
        for side in w.sides:
            side.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, alter(entry(names, [(key, None) for key in keys])))
    wait_for_entries(w, client_id, 0)
    yield only(("user", EXACT, user))
