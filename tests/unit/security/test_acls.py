"""Which ACLs a filter selects: what `kafka-acls --list` and `--remove` mean by their options."""

from __future__ import annotations

import pytest

from ottla.security.acls import AclFilter, Binding, Operation, PatternType, Permission, ResourceType, binding, shown

TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
ALLOW = Permission.ALLOW


def acl(name: str, pattern: PatternType = LITERAL) -> Binding:
    return Binding(TOPIC, name, pattern, "User:alice", "*", Operation.READ, ALLOW)


ALL = (acl("orders"), acl("ord", PREFIXED), acl("*"), acl("orders", PREFIXED), acl("other"))


def selected(**parts: object) -> list[int]:
    wanted = AclFilter(**parts)  # type: ignore[arg-type]
    return [number for number, each in enumerate(ALL) if wanted.matches(each)]


def test_pattern_types_of_a_filter() -> None:
    assert selected() == [0, 1, 2, 3, 4]
    assert selected(resource_name="orders", pattern_type=PatternType.ANY) == [0, 3], "patterns of this very name"
    assert selected(resource_name="orders", pattern_type=PatternType.MATCH) == [0, 1, 2, 3], "all that cover it"
    assert selected(resource_name="orders", pattern_type=LITERAL) == [0]
    assert selected(resource_name="ord", pattern_type=PREFIXED) == [1]
    assert selected(pattern_type=PREFIXED) == [1, 3]
    assert selected(resource_name="*", pattern_type=PatternType.MATCH) == [2]


def test_the_other_parts_of_a_filter() -> None:
    assert selected(resource_type=ResourceType.GROUP) == [] == selected(principal="User:bob")
    assert selected(host="10.0.0.1") == [] == selected(operation=Operation.ALL), "ALL is one operation, not any"
    assert selected(permission_type=Permission.DENY) == []
    assert selected(resource_type=TOPIC, principal="User:alice", host="*", operation=Operation.READ) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("parts", "unknown"),
    [
        ({}, None),
        ({"resource_type": 0}, "patternFilter"),
        ({"resource_type": 99}, "patternFilter"),
        ({"pattern_type": 5}, "patternFilter"),
        ({"operation": 0}, "entryFilter"),
        ({"operation": 77}, "entryFilter"),
        ({"permission_type": -1}, "entryFilter"),
    ],
)
def test_codes_that_mean_nothing(parts: dict[str, int], unknown: str | None) -> None:
    assert AclFilter(**parts).unknown_part == unknown


def test_a_filter_that_names_one_acl() -> None:
    for each in ALL:
        wanted = AclFilter(*each)
        assert wanted.is_exact and [other for other in ALL if wanted.matches(other)] == [each]
        for field in ("resource_name", "principal", "host"):
            assert not wanted._replace(**{field: None}).is_exact
        for field in ("resource_type", "operation", "permission_type", "pattern_type"):
            assert not wanted._replace(**{field: 1}).is_exact
    assert not AclFilter(*ALL[0])._replace(pattern_type=PatternType.MATCH).is_exact


def test_an_acl_as_kafka_writes_it() -> None:
    assert binding(ALL[1]) == ALL[1]
    assert shown(ALL[1]) == (
        "StandardAcl[resourceType=TOPIC, resourceName=ord, patternType=PREFIXED, principal=User:alice, host=*, "
        "operation=READ, permissionType=ALLOW]"
    )
