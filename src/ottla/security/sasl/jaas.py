"""The text of `sasl.jaas.config`: one of four known login modules with its options. No class is loaded by its name.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="..." user_admin="...";

Read as Kafka's `JaasConfig` does, on Java's `StreamTokenizer`; what that would silently cut short is refused: a string
without its end, a lone `/`, an option that is given twice. No message shows a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ottla.config.secret import Secret
from ottla.errors import OttlaError

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
"""Login module of clients of ZooKeeper, in a file of sections."""
KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
MODULES: Final = (PLAIN_MODULE, SCRAM_MODULE, OAUTHBEARER_MODULE, KERBEROS_MODULE)

TEXT_CHARS_MAX: Final = 1 << 20
"""A thousand users of PLAIN take some 50 KB."""

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_USER: Final = "user_"

_TOKEN = re.compile(
    r"""(?P<space>[\0-\x20]+|//[^\r\n]*|/\*.*?\*/)
    |(?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z_$0-9.\-\xa0-\U0010ffff]*)
    |"(?P<double>(?:[^"\\\r\n]|\\[^\r\n])*)"
    |'(?P<single>(?:[^'\\\r\n]|\\[^\r\n])*)'
    |(?P<sign>[=;{}])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """A parsed entry."""

    name: str
    """One of MODULES; in a file of sections, any."""
    options: Mapping[str, Secret]

    @property
    def users(self) -> dict[str, Secret]:
        """Passwords by name, of the options `user_NAME="PASSWORD"`."""
        return {name[len(_USER) :]: value for name, value in self.options.items() if name.startswith(_USER)}

    @property
    def login(self) -> tuple[str, Secret] | None:
        """The name and password for a login to others; None where they are not given."""
        name, password = self.options.get("username"), self.options.get("password")
        return None if name is None or password is None else (name.reveal(), password)


def parse_jaas(text: str) -> LoginModule:
    """The one login module of the text. Raises OttlaError."""
    tokens = _tokens(text)
    found: list[LoginModule] = []
    for kind, name in tokens:
        if kind == "sign":
            raise OttlaError(f"a login module is expected where {name!r} is")
        if name not in MODULES:
            raise OttlaError(
                f"login module {name[:100]!r} is not known, and none is loaded by its name; known are "
                + ", ".join(MODULES)
            )
        found.append(_entry(name, tokens))
    if not found:
        raise OttlaError("no login module is named; name one of " + ", ".join(MODULES))
    if len(found) > 1:
        raise OttlaError(f"{len(found)} login modules are named, should be one")
    return found[0]


def parse_login_file(text: str, section: str) -> LoginModule | None:
    """The first login module of a section of a file as Java's `java.security.auth.login.config` names it, whatever its
    name is; None where the file has no such section. Raises OttlaError for a text that is no such file."""
    tokens = _tokens(text)
    found: LoginModule | None = None
    for kind, name in tokens:
        if kind == "sign" or next(tokens, ("end", "")) != ("sign", "{"):
            raise OttlaError(f"a section such as {section} {{ ... }}; is expected where {name[:100]!r} is")
        modules = []
        for kind, module in tokens:
            if (kind, module) == ("sign", "}"):
                break
            modules.append(_entry(module, tokens))
        else:
            raise OttlaError(f"section {name[:100]!r} does not end with }};")
        if next(tokens, ("end", "")) != ("sign", ";"):
            raise OttlaError(f"section {name[:100]!r} does not end with }};")
        if name == section and found is None:
            if not modules:
                raise OttlaError(f"section {section} names no login module")
            found = modules[0]
    return found


def _entry(name: str, tokens: Iterator[tuple[str, str]]) -> LoginModule:
    kind, flag = next(tokens, ("end", ""))
    if kind != "word" or flag.lower() not in _FLAGS:
        raise OttlaError(f"a control flag must follow the login module: {', '.join(_FLAGS)}")
    options: dict[str, Secret] = {}
    for kind, key in tokens:
        if kind == "sign":
            if key == ";":
                return LoginModule(name, options)
            raise OttlaError("an option has no name before its =")
        if next(tokens, ("end", "")) != ("sign", "="):
            raise OttlaError(f'option {key[:100]!r} has no value: write {key[:100]}="..."')
        kind, value = next(tokens, ("end", ""))
        if kind not in ("word", "text"):
            raise OttlaError(f'option {key[:100]!r} has no value: write {key[:100]}="..."')
        if key in options:
            raise OttlaError(f"option {key[:100]!r} is given twice")
        options[key] = Secret(value)
    raise OttlaError("the entry does not end with a semicolon")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """(word, text or sign; what it says). Raises OttlaError."""
    if len(text) > TEXT_CHARS_MAX:
        raise OttlaError(f"a text of {len(text)} characters, at most {TEXT_CHARS_MAX} are allowed")
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise OttlaError(
                f"character {position + 1} cannot be read: put values in double quotes, and end each on its line"
            )
        position = match.end()
        kind = match.lastgroup
        if kind in ("double", "single"):
            yield "text", _ESCAPE.sub(_unescaped, match[kind])
        elif kind is not None and kind != "space":
            yield kind, match[kind]


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)
