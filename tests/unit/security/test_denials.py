"""Lines of logs that say who was denied what: as the node's own formatters, its audit log and Kafka write them."""

from __future__ import annotations

import json
import logging

import pytest

from ottla.logs import JsonFormatter, TextFormatter, fields
from ottla.security.audit import Chain
from ottla.security.denials import Denial, denial_of

NAMES = ("orders", "a b", 'q"uote', "é", "x:LITERAL:y", "rule=1", "for request = Fetch")


def record(name: str) -> logging.LogRecord:
    found = logging.LogRecord("ottla.authorizer", logging.INFO, "", 0, "denied", None, None)
    values = fields(
        principal="User:alice",
        operation="DESCRIBE_CONFIGS",
        host="10.0.0.7",
        resource=f"TRANSACTIONAL_ID:LITERAL:{name}",
        rule="DefaultDeny",
        denials_left_out=None,
    )
    found.__dict__.update(values)
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_lines_of_the_log(form: logging.Formatter, name: str) -> None:
    assert denial_of(form.format(record(name))) == Denial(
        "User:alice", "describe-configs", "transactional-id", name, "10.0.0.7", "DefaultDeny"
    )


@pytest.mark.parametrize("name", NAMES)
def test_lines_of_the_audit_log(name: str) -> None:
    event = {
        "event": "AccessDenied",
        "principal": "User:alice",
        "host": "h",
        "operation": "WRITE",
        "resource": f"topic:{name}",
        "allowed": False,
        "rule": "DefaultDeny",
    }
    line = Chain().seal(0, event).decode()
    assert denial_of(line) == Denial("User:alice", "write", "topic", name, "h", "DefaultDeny")


@pytest.mark.parametrize("name", ["orders", "a.b-c_d"])
@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("Topic", "topic"),
        ("TransactionalId", "transactional-id"),
        ("DelegationToken", "token"),
        ("Group", "group"),
        ("Cluster", "cluster"),
    ],
)
def test_lines_of_kafka(kind: str, word: str, name: str) -> None:
    line = (
        f"[2026-11-28 10:00:00,000] INFO Principal = User:CN=a,O=b is Denied operation = CLUSTER_ACTION from host = "
        f"10.0.0.7 on resource = {kind}:LITERAL:{name} for request = Fetch with resourceRefCount = 1 based on rule "
        "MatchingAcl(acl=StandardAcl(x)) (kafka.authorizer.logger)"
    )
    found = denial_of(line)
    assert found is not None
    assert found[:5] == ("User:CN=a,O=b", "cluster-action", word, name, "10.0.0.7")
    assert found.rule.startswith("MatchingAcl")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "{}",
        "[1]",
        "principal=User:a operation=READ",
        'principal="User:a operation=READ resource=topic:t',
        json.dumps({"principal": 1, "operation": "READ", "resource": "topic:t"}),
        "resource=dog:t principal=a operation=r",
        "{" * 5000 + "}",
        "principal= " * 1000,
    ],
)
def test_what_is_no_such_line(line: str) -> None:
    assert denial_of(line) is None
