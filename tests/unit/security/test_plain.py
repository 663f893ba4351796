"""PLAIN: Kafka's sentences, and no way around the password."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ottla.config.secret import Secret
from ottla.security.sasl import AuthenticationFailed
from ottla.security.sasl.client import PlainClient
from ottla.security.sasl.plain import PlainServer

ANOTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"
USERS = {"alice": Secret("secret"), "empty": Secret("")}


def test_the_right_password() -> None:
    there = PlainServer(USERS)
    assert there.step(PlainClient("alice", Secret("secret")).first()) == b""
    assert there.user == "alice" and PlainClient("alice", "secret").step(b"") is None
    there = PlainServer(USERS)
    there.step(b"alice\0alice\0secret")
    assert there.user == "alice"


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0secret", "Authentication failed: Invalid username or password"),
        (b"\0bob\0\0nobody", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (b"bob\0alice\0secret", ANOTHER_ID),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0\xff", "Authentication failed: Invalid username or password"),
    ],
)
def test_what_is_refused(token: bytes, message: str) -> None:
    there = PlainServer(USERS)
    with pytest.raises(AuthenticationFailed) as failure:
        there.step(token)
    assert failure.value.message == message and there.user is None
    assert "secret" not in str(failure.value)


def test_secrets_are_compared_in_constant_time_only() -> None:
    """CVE-2021-38153: no == and no `in` with a password, proof, signature or stored key on either side."""
    secret_words = ("password", "proof", "signature", "stored_key", "server_key", "expected", "salted")
    folder = Path(__file__).parents[3] / "src" / "ottla" / "security" / "sasl"
    found = []
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
                sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
                words = {word.lstrip("_") for side in sides for word in re.findall(r"\w+", side)}
                if words.intersection(secret_words) and not any(re.search(r"^len\(| is None", side) for side in sides):
                    found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert found == []
