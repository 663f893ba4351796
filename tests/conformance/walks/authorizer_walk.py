"""Kafka's StandardAuthorizer beside ours: the same ACLs, the same questions, the same rule.

    python -m tests.conformance.walks.authorizer_walk --pairs 100000 --seed 7

asks that many random pairs of a set of ACLs and a request; `test_authorizer_walk.py` some of them.
"""

from __future__ import annotations

import argparse
import random as random_module
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.protocol.schemas.records import AccessControlEntryRecord
from ottla.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.authorizer import Authorizer
from tests.conformance.line_program import Lines

QUESTIONS = 20
"""Requests for each set of ACLs."""

HOSTS = ("10.0.0.1", "10.0.0.2", "192.168.1.1", "2001:db8:0:0:0:0:0:1")
"""As Java writes them."""
ACL_HOSTS = ("*", "*", "*", *HOSTS, "10.0.0.0/8", "", "localhost")
PRINCIPALS = ("User:alice", "User:bob", "User:CN=a,O=b:c", "User:ANONYMOUS", "User:*", "Group:alice", "User:Алиса")
CLIENTS = tuple(each for each in PRINCIPALS if each != "User:*")
"""Kafka fails where a client has that name."""
KINDS = tuple(ResourceType)[2:]
OPERATIONS = tuple(Operation)[2:]
LETTERS = "ab*.é"
"""Names share prefixes, and have the wildcard in them. Nothing sorts before `*`: Kafka's scan may not end where an ACL
and a resource share such a beginning."""


class Asked(NamedTuple):
    principal: str
    host: str
    operation: Operation
    kind: ResourceType
    name: str
    """Empty: any resource of the kind."""


class Case(NamedTuple):
    super_users: tuple[str, ...]
    allow_everyone: bool
    acls: tuple[AccessControlEntryRecord, ...]
    asked: tuple[Asked, ...]


def some_name(random: random_module.Random) -> str:
    return "".join(random.choice(LETTERS) for _ in range(random.choice((1, 1, 2, 2, 3, 4))))


def some_acl(random: random_module.Random, number: int, kinds: Sequence[ResourceType]) -> AccessControlEntryRecord:
    kind = random.choice(kinds)
    name = random.choice(("*", some_name(random), some_name(random)))
    if kind == ResourceType.CLUSTER:
        name = random.choice((CLUSTER_NAME, "kafka", "*"))
    return AccessControlEntryRecord(
        UUID(int=number),
        kind,
        name,
        random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        random.choice(PRINCIPALS),
        random.choice(ACL_HOSTS),
        random.choice((*OPERATIONS, Operation.ALL)),
        random.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


def some_case(random: random_module.Random) -> Case:
    """Few types of resources and operations, so that ACLs and requests meet."""
    kinds = random.sample(KINDS, random.choice((1, 1, 2)))
    acls = {}
    for number in range(random.choice((0, 1, 2, 3, 5, 8, 13, 30))):
        acl = some_acl(random, number + 1, kinds)
        acls[
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        ] = acl
    operations = random.sample(OPERATIONS, 4)
    asked = tuple(
        Asked(
            random.choice(CLIENTS),
            random.choice(HOSTS),
            random.choice(operations),
            kind,
            CLUSTER_NAME if kind == ResourceType.CLUSTER else random.choice((some_name(random), some_name(random), "")),
        )
        for kind in (random.choice(kinds) for _ in range(QUESTIONS))
    )
    supers = tuple(random.sample(PRINCIPALS, random.choice((0, 0, 1))))
    return Case(supers, random.random() < 0.4, tuple(acls.values()), asked)


def line_of(case: Case) -> str:
    acls = "\x1e".join("\x1f".join(map(str, fields_of(acl))) for acl in case.acls)
    asked = "\x1e".join(
        "\x1f".join((each.principal, each.host, str(int(each.operation)), str(int(each.kind)), each.name))
        for each in case.asked
    )
    return "\x1d".join(("decide", ";".join(case.super_users), str(case.allow_everyone).lower(), acls, asked))


def fields_of(acl: AccessControlEntryRecord) -> tuple[int | str, ...]:
    return (
        int(acl.resource_type),
        acl.resource_name,
        int(acl.pattern_type),
        acl.principal,
        acl.host,
        int(acl.operation),
        int(acl.permission_type),
    )


def ours(case: Case) -> list[str]:
    """The answers of our authorizer, in the form of `AclLines`."""
    authorizer = Authorizer(case.super_users, case.allow_everyone)
    authorizer.apply({acl.id: acl for acl in case.acls}, {})
    authorizer.ready = True
    answers = []
    for asked in case.asked:
        if not asked.name:
            allowed = authorizer.is_allowed_for_any(*asked[:4])
            answers.append("ALLOWED" if allowed else "DENIED")
        else:
            verdict = authorizer.decide(*asked)
            assert verdict.allowed == authorizer.is_allowed(*asked)
            answers.append(f"{'ALLOWED' if verdict.allowed else 'DENIED'} {verdict.rule}")
    return answers


def differences(lines: Lines, random: random_module.Random, pairs: int) -> Iterator[str]:
    for _ in range(0, pairs, QUESTIONS):
        case = some_case(random)
        said, _ = lines.ask(line_of(case))
        assert not said.startswith("failed "), said
        theirs = said.split("\x1e")
        for asked, our, their in zip(case.asked, ours(case), theirs, strict=True):
            if our != their:
                yield f"{asked}: Kafka {their}, Ottla {our}; {case}"


def some_filter(random: random_module.Random, acls: Sequence[AccessControlEntryRecord]) -> AclFilter:
    """Around one of the ACLs, so that it matches something."""
    acl = random.choice(acls)
    return AclFilter(
        random.choice((ResourceType.ANY, acl.resource_type, random.choice(KINDS))),
        random.choice((None, acl.resource_name, acl.resource_name + "b", some_name(random))),
        random.choice((PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)),
        random.choice((None, acl.principal, random.choice(PRINCIPALS))),
        random.choice((None, acl.host, "*")),
        random.choice((Operation.ANY, acl.operation)),
        random.choice((Permission.ANY, acl.permission_type)),
    )


def filter_differences(lines: Lines, random: random_module.Random, rounds: int) -> Iterator[str]:
    for _ in range(rounds):
        acls = [some_acl(random, number, KINDS) for number in range(20)]
        filters = [some_filter(random, acls) for _ in range(20)]
        parts = (
            "\x1e".join("\x1f".join(map(str, fields_of(acl))) for acl in acls),
            "\x1e".join(
                "\x1f".join(
                    "null" if part is None else str(part + 0 if isinstance(part, int) else part) for part in each
                )
                for each in filters
            ),
        )
        said, _ = lines.ask("\x1d".join(("match", *parts)))
        for wanted, their in zip(filters, said.split("\x1e"), strict=True):
            our = ",".join(str(number) for number, acl in enumerate(acls) if wanted.matches(acl))
            if our != their:
                yield f"{wanted}: Kafka {their}, Ottla {our}"


def supported_differences(lines: Lines) -> Iterator[str]:
    said, _ = lines.ask("operations")
    our = " ".join(f"{int(kind)}={sum(1 << each for each in found)}" for kind, found in SUPPORTED_OPERATIONS.items())
    if our != said:
        yield f"Kafka {said}, Ottla {our}"


def main() -> None:
    parser = argparse.ArgumentParser(description="ask Kafka's authorizer and ours the same")
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    lines, random = Lines("AclLines"), random_module.Random(given.seed)
    began_s = time.monotonic()
    found = [
        *supported_differences(lines),
        *filter_differences(lines, random, given.pairs // 400),
        *differences(lines, random, given.pairs),
    ]
    lines.close()
    print(*found[:20], sep="\n")
    print(f"{given.pairs} pairs, seed {given.seed}: {len(found)} differences, {time.monotonic() - began_s:.1f} s")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
