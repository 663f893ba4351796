"""The text of `storage format --add-scram` (KIP-900): one SCRAM user that a cluster begins with.

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5Yzc0Nmw=",saltedpassword="..."]

As Kafka's `ScramParser`; no message shows a value.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.errors import OttlaError
from ottla.security.sasl.scram import (
    BY_NAME,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    Credential,
    ScramMechanism,
    credential,
    nonce_text,
    salted_password,
)

_ARGUMENT = re.compile(r"\s*(?P<mechanism>[^=\s]+)\s*=\s*\[(?P<values>.*)\]\s*", re.DOTALL)
_VALUE = re.compile(r'\s*(?P<name>[a-z]+)\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,"]*?))\s*(?:,|$)')
_NAMES: Final = ("name", "password", "iterations", "salt", "saltedpassword")


class ScramUser(NamedTuple):
    """A user with a credential in one mechanism."""

    name: str
    mechanism: ScramMechanism
    credential: Credential


def parse_scram_argument(text: str, random_bytes: bytes) -> ScramUser:
    """`random_bytes` (`scram.NONCE_BYTES`) become the salt where none is given. Raises OttlaError."""
    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise _mistake("it is not of the form SCRAM-SHA-256=[name=NAME,password=PASSWORD]")
    mechanism = BY_NAME.get(match["mechanism"])
    if mechanism is None:
        raise _mistake(f"the mechanism {match['mechanism'][:50]} is not one of {', '.join(BY_NAME)}")
    values = _values(match["values"])
    if not values.get("name"):
        raise _mistake("a name is missing")
    password, salted = values.get("password"), _bytes(values, "saltedpassword")
    if (password is None) == (salted is None):
        raise _mistake("exactly one of password and saltedpassword must be given")
    iterations = _iterations(values.get("iterations"))
    salt = _bytes(values, "salt")
    if salted is not None and salt is None:
        raise _mistake("saltedpassword needs the salt with which it was made")
    if salt is None:
        salt = nonce_text(random_bytes).encode()
    if salted is None:
        if not password:
            raise _mistake("the password is empty")
        salted = salted_password(mechanism, password, salt, iterations)
    if len(salted) != mechanism.digest_bytes:
        raise _mistake(f"saltedpassword has {len(salted)} bytes; {mechanism.name} needs {mechanism.digest_bytes}")
    return ScramUser(values["name"], mechanism, credential(mechanism, salted, salt, iterations))


def _values(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _VALUE.match(text, position)
        if match is None:
            raise _mistake(f"character {position + 1} within the brackets cannot be read")
        name = match["name"]
        if name not in _NAMES or name in found:
            raise _mistake(f"{name[:50]} is {'given twice' if name in found else 'not one of ' + ', '.join(_NAMES)}")
        found[name] = match["plain"] if match["quoted"] is None else match["quoted"]
        position = match.end()
    return found


def _iterations(text: str | None) -> int:
    if text is None:
        return ITERATIONS_MIN
    if not text.isascii() or not text.isdecimal() or not ITERATIONS_MIN <= int(text[:20]) <= ITERATIONS_MAX:
        raise _mistake(f"iterations must be a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return int(text)


def _bytes(values: Mapping[str, str], name: str) -> bytes | None:
    text = values.get(name)
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _mistake(f"{name} is not base64") from None


def _mistake(what: str) -> OttlaError:
    return OttlaError(f"--add-scram: {what}")
