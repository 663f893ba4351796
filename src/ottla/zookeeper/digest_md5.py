"""The client's side of SASL DIGEST-MD5 (RFC 2831), as ZooKeeper uses it: name and password, and no protection of what
follows.

ZooKeeper's server is `zookeeper/zk-sasl-md5` in its login (`ZooKeeperSaslServer`). MD5 does not keep a password from
whoever listens: use TLS beside it where others can.
"""

from __future__ import annotations

import re
from functools import partial
from hashlib import md5 as _md5
from hmac import compare_digest
from typing import Final

URI: Final = "zookeeper/zk-sasl-md5"
NONCE_BYTES: Final = 16

CHALLENGE_BYTES_MAX: Final = 2048
"""RFC 2831, 2.1.1."""

md5 = partial(_md5, usedforsecurity=False)
"""Also where a system allows MD5 for nothing that has to be safe: the mechanism has no other."""

_DIRECTIVE = re.compile(r'\s*([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))\s*(?:,|$)', re.DOTALL)


class LoginRefused(Exception):
    """The server's words are no step of this login, or do not prove that it knows the password."""


class DigestMd5:
    """One login. `step` takes what the server says, empty at first, and gives the answer; None once all is said."""

    mechanism = "DIGEST-MD5"

    def __init__(self, name: str, password: str, nonce: str, uri: str = URI) -> None:
        """`nonce` is the client's: letters and digits of NONCE_BYTES that nobody can guess."""
        self._name, self._password, self._uri = name, password, uri
        self._own_nonce = nonce
        self._expected: bytes | None = None
        self._asked = False

    def step(self, said: bytes) -> bytes | None:
        """Raises LoginRefused."""
        if not self._asked:
            self._asked = True
            return b""  # the server speaks first in this mechanism
        if self._expected is None:
            return self._answer(_directives(said))
        if not compare_digest(_directives(said).get("rspauth", "").encode(), self._expected):
            raise LoginRefused("the server does not know the password: it may not be the one that it seems to be")
        return None

    def _answer(self, challenge: dict[str, str]) -> bytes:
        if not challenge:
            raise LoginRefused("the server knows no login by SASL")
        nonce = challenge.get("nonce", "")
        if not nonce or challenge.get("algorithm") != "md5-sess":
            raise LoginRefused("the challenge has no nonce, or another algorithm than md5-sess")
        if "auth" not in challenge.get("qop", "auth").split(","):
            raise LoginRefused(f"the server wants {challenge['qop']!r}, and only a login without protection is known")
        charset = "utf-8" if challenge.get("charset") == "utf-8" else "iso-8859-1"
        realm = challenge.get("realm", "")
        try:
            name, password = self._name.encode(charset), self._password.encode(charset)
        except UnicodeEncodeError:
            raise LoginRefused("the server does not take this name or password: no UTF-8") from None
        hidden = md5(b":".join((_narrow(name), _narrow(realm.encode(charset)), _narrow(password)))).digest()
        session = md5(b":".join((hidden, nonce.encode(charset), self._own_nonce.encode()))).hexdigest()

        def proof(method: str) -> str:
            what = md5(f"{method}:{self._uri}".encode()).hexdigest()
            return md5(f"{session}:{nonce}:00000001:{self._own_nonce}:auth:{what}".encode(charset)).hexdigest()

        self._expected = proof("").encode()
        parts = [
            *(["charset=utf-8"] if charset == "utf-8" else []),
            f'username="{_quoted(self._name)}"',
            f'realm="{_quoted(realm)}"',
            f'nonce="{_quoted(nonce)}"',
            "nc=00000001",
            f'cnonce="{self._own_nonce}"',
            f'digest-uri="{self._uri}"',
            f"response={proof('AUTHENTICATE')}",
            "qop=auth",
        ]
        return ",".join(parts).encode(charset)


def _directives(said: bytes) -> dict[str, str]:
    if len(said) > CHALLENGE_BYTES_MAX:
        raise LoginRefused(f"a challenge of {len(said)} bytes, at most {CHALLENGE_BYTES_MAX} are allowed")
    try:
        text = said.decode()
    except UnicodeDecodeError:
        text = said.decode("iso-8859-1")
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise LoginRefused("the server's challenge cannot be read")
        position = match.end()
        value = match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2], flags=re.DOTALL)
        found.setdefault(match[1].lower(), value)
    return found


def _narrow(data: bytes) -> bytes:
    """Text that ISO 8859-1 can write is hashed in it (RFC 2831, 2.1.2.1)."""
    try:
        return data.decode().encode("iso-8859-1")
    except UnicodeError:
        return data


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
