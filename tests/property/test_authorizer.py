"""The index of ACLs decides as a plain reading of all of them does, whatever came and went before.

It finds holes such as CVE-2024-27309.
"""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, acl_content
from ottla.metadata.replay import replay
from ottla.protocol.schemas.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.security.acls import Operation, PatternType, Permission, ResourceType
from ottla.security.authorizer import Authorizer
from ottla.steps import at_once

NAMES = st.text("ab*", min_size=1, max_size=4)
PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:*", "Group:a"])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2"])
KINDS = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
OPERATIONS = st.sampled_from([Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS])
ACLS = st.builds(
    AccessControlEntryRecord,
    st.just(UUID(int=0)), KINDS, st.just("*") | NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]), PRINCIPALS, st.just("*") | HOSTS,
    OPERATIONS | st.just(Operation.ALL), st.sampled_from([Permission.ALLOW, Permission.DENY]),
)  # fmt: skip
QUESTIONS = st.tuples(PRINCIPALS, HOSTS, OPERATIONS, KINDS, NAMES)
IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def plainly(acls: list[Any], everyone: bool, question: tuple[Any, ...]) -> bool:
    """The rules as Kafka's documentation says them."""
    principal, host, operation, kind, name = question
    covering = [
        acl
        for acl in acls
        if acl.resource_type == kind
        and (
            name.startswith(acl.resource_name)
            if acl.pattern_type == PatternType.PREFIXED
            else acl.resource_name == name or (acl.resource_name == "*" and name[0] != "*")
        )
    ]
    if not covering:
        return everyone
    mine = [acl for acl in covering if acl.principal in (principal, "User:*") and acl.host in (host, "*")]
    if any(acl.permission_type == Permission.DENY and acl.operation in (operation, Operation.ALL) for acl in mine):
        return False
    enough = {operation, Operation.ALL, *IMPLIED.get(operation, ())}
    return any(acl.permission_type == Permission.ALLOW and acl.operation in enough for acl in mine)


@settings(max_examples=200)
@given(
    st.lists(st.lists(ACLS | st.integers(1, 30), max_size=12), max_size=6),
    st.booleans(),
    st.lists(QUESTIONS, min_size=1, max_size=12),
)
def test_decisions_follow_the_image(changes: list[list[Any]], everyone: bool, questions: list[Any]) -> None:
    """Each list of changes is a delta of records: ACLs added, and numbers of ACLs removed."""
    image = EMPTY_IMAGE
    authorizer = Authorizer((), everyone)
    authorizer.ready = True
    at_once(image.acls.by_content())
    ids = itertools.count(1)
    for number, change in enumerate(changes):
        delta = MetadataDelta(image)
        there = {acl_id: acl_content(acl) for acl_id, acl in image.acls.items()}
        for each in change:
            if isinstance(each, int):
                if there:
                    gone = sorted(there)[each % len(there)]
                    del there[gone]
                    replay(RemoveAccessControlEntryRecord(gone), delta)
            elif acl_content(each) not in there.values():  # as the controller takes care
                acl = each.replaced(id=UUID(int=next(ids)))
                replay(acl, delta)
                there[acl.id] = acl_content(acl)
        generation = authorizer.generation
        if number % 2:
            decided = [authorizer.decide(*each).rule for each in questions]
            assert list(authorizer.staging(delta.acls, delta.base.acls)) is not None
            authorizer.changed()
            assert [authorizer.decide(*each).rule for each in questions] == decided, "nothing has changed yet"
        authorizer.apply(delta.acls, delta.base.acls)
        assert authorizer.generation != generation
        image = delta.apply(number, 1, 1)
        acls = list(image.acls.values())
        assert authorizer.acl_count == len(acls)
        for question in questions:
            assert authorizer.is_allowed(*question) == plainly(acls, everyone, question)
            assert authorizer.decide(*question).allowed == plainly(acls, everyone, question)
    late = Authorizer((), everyone)
    late.apply(MetadataDelta.full(image).acls, EMPTY_IMAGE.acls)
    late.ready = True
    assert [late.decide(*each).rule for each in questions] == [authorizer.decide(*each).rule for each in questions]
    index = at_once(image.acls.by_content())
    assert set(index) == {acl_content(acl) for acl in image.acls.values()}
    assert all(acl_content(image.acls[acl_id]) == content for content, acl_id in index.items())
