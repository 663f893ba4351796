"""What is asked of both brokers about logins, SCRAM users and ACLs where neither has an authorizer, nor a listener
that asks for a login: see differential_cases.py. With them: test_sasl_like_kafka.py, test_acls_like_kafka.py."""

from __future__ import annotations

import time
from typing import Any

from ottla.protocol.messages import ApiKey
from tests.conformance.differential.differential_cases import Requests, World, cases

SCRAM_SHA_256, SCRAM_SHA_512 = 1, 2
SALT, SALTED = b"salt" * 4, b"p" * 32


@cases(ApiKey.SASL_HANDSHAKE)
def sasl_handshake(w: World, version: int) -> Requests:
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "nonsense", ""):
        yield {"mechanism": mechanism}


@cases(ApiKey.SASL_AUTHENTICATE)
def sasl_authenticate(w: World, version: int) -> Requests:
    for token in (b"", b"\0alice\0secret", b"n,,n=alice,r=abc"):
        yield {"auth_bytes": token}


def acl(**more: Any) -> dict[str, Any]:
    row = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return row | more


def wanted(**more: Any) -> dict[str, Any]:
    row = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return row | more


FILTERS = (
    wanted(),
    wanted(resource_type_filter=2, resource_name_filter="t"),
    wanted(principal_filter="alice"),
    wanted(operation=9),
)


@cases(ApiKey.DESCRIBE_ACLS)
def describe_acls(w: World, version: int) -> Requests:
    yield from FILTERS


@cases(ApiKey.CREATE_ACLS)
def create_acls(w: World, version: int) -> Requests:
    yield {"creations": []}
    yield {"creations": [acl()]}
    yield {"creations": [acl(), acl(principal="alice"), acl(host=""), acl(resource_name="")]}


@cases(ApiKey.DELETE_ACLS)
def delete_acls(w: World, version: int) -> Requests:
    yield {"filters": []}
    yield {"filters": FILTERS[:1]}
    yield {"filters": FILTERS}


def upsertion(name: str, **more: Any) -> dict[str, Any]:
    row = {
        "name": name,
        "mechanism": SCRAM_SHA_256,
        "iterations": 4096,
        "salt": SALT,
        "salted_password": SALTED,
    }
    return row | more


def altered(*upsertions: dict[str, Any], deletions: tuple[tuple[str, int], ...] = ()) -> dict[str, Any]:
    gone = [{"name": name, "mechanism": mechanism} for name, mechanism in deletions]
    return {"deletions": gone, "upsertions": list(upsertions)}


@cases(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
def alter_user_scram_credentials(w: World, version: int) -> Requests:
    user, other = f"{w.prefix}user", f"{w.prefix}other"
    yield altered()
    for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512, 0, 77):
        yield altered(deletions=((user, mechanism),))
        yield altered(upsertion("", mechanism=mechanism))
    yield altered(deletions=(("", SCRAM_SHA_256),))
    for iterations in (-1, 0, 4095, 16385, 2**31 - 1):
        yield altered(upsertion(user, iterations=iterations))
        yield altered(upsertion(user, mechanism=SCRAM_SHA_512, iterations=iterations))
    yield altered(upsertion(user), upsertion(user))
    yield altered(upsertion(user), deletions=((user, SCRAM_SHA_256),))
    yield altered(upsertion(other, iterations=1), deletions=((other, SCRAM_SHA_512),))
    yield altered(upsertion(user, mechanism=SCRAM_SHA_512, iterations=16384), upsertion("a=b,c"))
    yield altered(upsertion(user, iterations=8192), deletions=(("a=b,c", SCRAM_SHA_256),))
    yield altered(upsertion(user), deletions=((user, SCRAM_SHA_512),))
    yield altered(deletions=((user, SCRAM_SHA_512),))
    yield altered(deletions=((user, SCRAM_SHA_256),))


@cases(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def describe_user_scram_credentials(w: World, version: int) -> Requests:
    user = f"{w.prefix}user"

    def of(*names: str) -> dict[str, Any]:
        return {"users": [{"name": each} for each in names]}

    yield {"users": None}
    yield of()
    yield of(user)
    yield of(user, user)
    yield of("")
    change(w, altered(upsertion(user, mechanism=SCRAM_SHA_512, iterations=5000)))
    yield of(user)
    yield of(f"{w.prefix}nobody")
    change(w, altered(deletions=((user, SCRAM_SHA_512),)))


def change(w: World, asked: dict[str, Any]) -> None:
    """Returns when both show it: Kafka answers once the controller has it."""
    (name,) = [each["name"] for each in (*asked["upsertions"], *asked["deletions"])]
    for side in w.sides:
        (row,) = side.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, asked)["results"]
        assert not row["error_code"], row
        shown = {"users": [{"name": name}]}
        while True:
            (row,) = side.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, shown)["results"]
            if bool(row["credential_infos"]) == bool(asked["upsertions"]):
                break
            time.sleep(0.02)


# Nobody is logged in here, so that tokens are refused to all.


@cases(ApiKey.CREATE_DELEGATION_TOKEN)
def create_delegation_token(w: World, version: int) -> Requests:
    bob = {"principal_type": "User", "principal_name": "bob"}
    for renewers, lifetime in (([], -1), ([bob], 3_600_000), ([{"principal_type": "", "principal_name": ""}], 0)):
        for owner in (None, "alice"):
            yield {
                "owner_principal_type": None if owner is None else "User",
                "owner_principal_name": owner,
                "renewers": renewers,
                "max_lifetime": lifetime,
            }


@cases(ApiKey.RENEW_DELEGATION_TOKEN)
def renew_delegation_token(w: World, version: int) -> Requests:
    for hmac, period in ((b"", -1), (b"no such token", 1000)):
        yield {"hmac": hmac, "renew_period": period}


@cases(ApiKey.EXPIRE_DELEGATION_TOKEN)
def expire_delegation_token(w: World, version: int) -> Requests:
    for hmac, period in ((b"", -1), (b"no such token", 1000)):
        yield {"hmac": hmac, "expiry_time_period": period}


@cases(ApiKey.DESCRIBE_DELEGATION_TOKEN)
def describe_delegation_token(w: World, version: int) -> Requests:
    yield {"owners": None}
    yield {"owners": []}
    yield {"owners": [{"principal_type": "User", "principal_name": "alice"}]}


@cases(ApiKey.UNREGISTER_CONTROLLER)
def unregister_controller(w: World, version: int) -> Requests:
    for controller in (77, -1, 1 << 30):
        yield {"controller_id": controller}
